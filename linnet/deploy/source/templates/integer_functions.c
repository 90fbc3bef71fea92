static inline int32_t maximum(int32_t a, int32_t b) { return a > b ? a : b; }

static inline int32_t minimum(int32_t a, int32_t b) { return a < b ? a : b; }

static inline int32_t absolute(int32_t x) { return x < 0 ? -x : x; }

static inline int32_t sign(int32_t x) { return (x > 0) - (x < 0); }

/* From -limit - 1 to limit. */
static inline int32_t limited(int32_t x, int32_t limit)
{
    return minimum(maximum(x, -limit - 1), limit);
}

/* x / 2^places, rounded to the nearest number, from -limit - 1 to limit. */
static inline int32_t rescaled(int32_t x, int places, int32_t limit)
{
    return limited((x + (1 << places >> 1)) >> places, limit);
}

/* A function of x as a line between two of the 513 numbers of its table. */
static inline int32_t interpolated(const int16_t *table, int32_t x)
{
    const int32_t at = x + 32768;
    const int16_t *const pair = table + (at >> 7);
    return pair[0] + (((pair[1] - pair[0]) * (at & 127) + 64) >> 7);
}

/* sum * multiplier / 2^shift, rounded to the nearest number, from the upper half of the product: the shift is
   above 32. */
static inline int32_t scaled_sum(int32_t sum, int32_t multiplier, int shift)
{
    const int32_t upper = (int32_t)(((int64_t)sum * multiplier) >> 32);
    return (upper + (1 << (shift - 33))) >> (shift - 32);
}

/* A row of a table of 8 bits, times multiplier / 2^shift. */
static void row_of_table(const int8_t *restrict row, int32_t multiplier, int shift, int16_t *restrict y, int size,
                         int32_t limit)
{
    int at;
    for (at = 0; at < size; at++) {
        const int64_t exact = ((int64_t)row[at] * multiplier + ((int64_t)1 << (shift - 1))) >> shift;
        y[at] = (int16_t)(exact > limit ? limit : exact < -limit - 1 ? -limit - 1 : exact);
    }
}
