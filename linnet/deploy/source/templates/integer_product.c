#ifndef PAIRS_AT_ONCE
/* Four sums of products, of four rows of weights and x. */
static void four_sums(const int8_t *restrict w, const int16_t *restrict x, int inputs, int32_t *restrict sums)
{
    int row, in;
    for (row = 0; row < 4; row++, w += inputs) {
        int32_t sum = 0;
        for (in = 0; in < inputs; in++) sum += w[in] * x[in];
        sums[row] = sum;
    }
}
#endif

/* y = W x + b: for each row of W a multiplier and a shift, which round its sum to the unit of y. */
static void product(const int8_t *restrict w, const int32_t *restrict multipliers, const int8_t *restrict shifts,
                    const int16_t *restrict bias, const int16_t *restrict x, int16_t *restrict y, int inputs,
                    int outputs, int32_t limit)
{
    int first, row, in;
    for (first = 0; first < outputs; first += 4) {
        const int rows = outputs - first < 4 ? outputs - first : 4;
        int32_t sums[4] = {0, 0, 0, 0};
        if (rows == 4) {
            four_sums(w, x, inputs, sums);
        } else {
            for (row = 0; row < rows; row++)
                for (in = 0; in < inputs; in++) sums[row] += w[row * inputs + in] * x[in];
        }
        for (row = 0; row < rows; row++) {
            const int32_t made = scaled_sum(sums[row], multipliers[first + row], shifts[first + row]);
            y[first + row] = (int16_t)limited(made + (bias ? bias[first + row] : 0), limit);
        }
        w += 4 * inputs;
    }
}
