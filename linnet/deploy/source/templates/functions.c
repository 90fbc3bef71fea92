/* The number with these bits, and the bits of a number. */
static inline float from_bits(uint32_t bits)
{
    union { uint32_t bits; float number; } both;
    both.bits = bits;
    return both.number;
}

static inline uint32_t to_bits(float number)
{
    union { uint32_t bits; float number; } both;
    both.number = number;
    return both.bits;
}

static inline float infinity(void) { return from_bits(0x7f800000u); }

static inline float not_a_number(void) { return from_bits(0x7fc00000u); }

/* 2 to the power n, -126 <= n <= 128. */
static inline float power_of_two(int32_t n) { return from_bits((uint32_t)(n + 127) << 23); }

/* NaN passes through the comparisons below. */
static inline float maximum(float a, float b) { return a > b || a != a ? a : b; }

static inline float minimum(float a, float b) { return a < b || a != a ? a : b; }

static inline float absolute(float x) { return from_bits(to_bits(x) & 0x7fffffffu); }

static inline float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

/* exp(x) - 1 = (1 + q) 2^n - 1, from which the functions below are made: x = n ln(2) + r, and q is the series
   of exp(r) - 1. Adding 1.5 * 2^23 rounds to a whole number. */
static inline float reduced(float x, int32_t *n)
{
    const float rounded = x * 1.44269504f + 12582912.0f;
    const float times = rounded - 12582912.0f;
    const float r = (x - times * 0.693145752f) - times * 1.42860677e-6f;
    float q = 1.98412698e-4f;
    q = q * r + 1.38888889e-3f;
    q = q * r + 8.33333333e-3f;
    q = q * r + 4.16666667e-2f;
    q = q * r + 0.166666667f;
    q = q * r + 0.5f;
    *n = (int32_t)(to_bits(rounded) - 0x4b400000u);
    return q * r * r + r;
}

static inline float between(float x, float low, float high) { return x > high ? high : x < low ? low : x; }

static inline float exponential(float x)
{
    int32_t n;
    const float q = reduced(between(x, -104.0f, 89.0f), &n);
    /* In two steps, so that the ends come out as 0 and infinity. */
    return (1.0f + q) * power_of_two(n / 2) * power_of_two(n - n / 2);
}

static inline float sigmoid(float x)
{
    int32_t n;
    const float q = reduced(between(-x, -87.0f, 88.0f), &n);
    return 1.0f / (1.0f + (1.0f + q) * power_of_two(n));
}

/* exp(x) - 1, also right to the last digits around 0. */
static inline float near_less_one(float x)
{
    int32_t n;
    const float q = reduced(x, &n);
    return q * power_of_two(n) + (power_of_two(n) - 1.0f);
}

static inline float less_one(float x) { return x > 20.0f ? exponential(x) : near_less_one(between(x, -40.0f, 20.0f)); }

static inline float tangent(float x)
{
    const float e = near_less_one(between(x + x, -20.0f, 20.0f));
    return e / (e + 2.0f);
}

static inline float logarithm(float x)
{
    /* x = m 2^e with m between sqrt(1/2) and sqrt(2). Denormal numbers are scaled first. */
    const int is_tiny = x < 1.17549435e-38f;
    int32_t bits, above, e;
    float m, s, t;
    if (!(x > 0.0f)) return x == 0.0f ? -infinity() : not_a_number();
    if (x == infinity()) return x;
    bits = (int32_t)to_bits(is_tiny ? x * 8388608.0f : x);
    above = bits - 0x3f3504f3;
    e = above >= 0 ? above / 8388608 : -((8388607 - above) / 8388608);
    m = from_bits((uint32_t)(bits - e * 8388608));
    e -= is_tiny ? 23 : 0;
    s = (m - 1.0f) / (m + 1.0f);
    t = s * s;
    t = 2.0f * s * (1.0f + t * (0.333333333f + t * (0.2f + t * (0.142857143f + t * 0.111111111f))));
    return (float)e * 0.693145752f + ((float)e * 1.42860677e-6f + t);
}

static inline float log_one_plus(float x)
{
    const float u = 1.0f + x;
    if (!(u > 0.0f) || u == infinity()) return logarithm(u);
    /* Corrected for what 1 + x has lost of x. */
    return logarithm(u) - ((u - 1.0f) - x) / u;
}

static inline float square_root(float x)
{
    float root;
    int i;
    if (!(x > 0.0f) || x == infinity()) return x < 0.0f ? not_a_number() : x;
    /* Denormal numbers are scaled first. */
    if (x < 1.17549435e-38f) return square_root(x * 16777216.0f) * 2.44140625e-4f;
    root = from_bits((to_bits(x) >> 1) + 0x1fbd1df5u);
    for (i = 0; i < 3; i++) root = 0.5f * (root + x / root);
    return root;
}

/* x times itself n times. */
static inline float whole_power(float x, int n)
{
    float result = 1.0f;
    for (; n > 0; n--) result *= x;
    return result;
}

static inline float power(float x, float y)
{
    const int whole = absolute(y) < 8388608.0f && (float)(int32_t)y == y;
    const float size = x == 0.0f ? (y > 0.0f ? 0.0f : y < 0.0f ? infinity() : 1.0f)
                                 : exponential(y * logarithm(absolute(x)));
    if (x >= 0.0f) return size;
    if (!whole) return not_a_number();
    return (int32_t)y % 2 ? -size : size;
}

static inline float round_down(float x)
{
    float whole;
    if (!(absolute(x) < 8388608.0f)) return x;
    whole = (float)(int32_t)x;
    return whole > x ? whole - 1.0f : whole;
}

/* sin(x + quarters * pi / 2), for |x| up to about 10,000. */
static inline float turned(float x, int32_t quarters)
{
    float times, r, s, sine, cosine;
    int32_t quadrant;
    if (!(absolute(x) < 1.0e6f)) return not_a_number();
    times = round_down(x * 0.636619772f + 0.5f);
    quadrant = ((int32_t)times + quarters) & 3;
    r = ((x - times * 1.5703125f) - times * 4.83751297e-4f) - times * 7.54978943e-8f;
    s = r * r;
    sine = r + r * s * (-0.166666546f + s * (8.33216087e-3f - s * 1.95152959e-4f));
    cosine = 1.0f - 0.5f * s + s * s * (4.16666456e-2f + s * (-1.38873162e-3f + s * 2.44331571e-5f));
    r = quadrant & 1 ? cosine : sine;
    return quadrant & 2 ? -r : r;
}

static inline float sine(float x) { return turned(x, 0); }

static inline float cosine(float x) { return turned(x, 1); }

/* The product of a block of fewer than 16 outputs. */
static void narrow_product(const float *restrict w, const float *restrict bias, const float *restrict x,
                           float *restrict y, int inputs, int width)
{
    float sums[16] = {0.0f};
    int in, lane;
    for (in = 0; in + 8 <= inputs; in += 8, w += 8 * width) {
        const float *restrict z = x + in;
        for (lane = 0; lane < width; lane++)
            sums[lane] += ((z[0] * w[lane] + z[1] * w[lane + width])
                           + (z[2] * w[lane + 2 * width] + z[3] * w[lane + 3 * width]))
                          + ((z[4] * w[lane + 4 * width] + z[5] * w[lane + 5 * width])
                             + (z[6] * w[lane + 6 * width] + z[7] * w[lane + 7 * width]));
    }
    for (; in < inputs; in++, w += width)
        for (lane = 0; lane < width; lane++) sums[lane] += x[in] * w[lane];
    for (lane = 0; lane < width; lane++) y[lane] = sums[lane] + (bias ? bias[lane] : 0.0f);
}

/* y = W x + b. W is stored in blocks of 16 outputs, and in a block the weights of one input after the other, so
   that memory is read in its order, and the loops over lanes run in vectors without a change in the order of any
   sum. The bias is added last: if it is large, sums that start from it lose the digits of small products. */
static void product(const float *restrict w, const float *restrict bias, const float *restrict x,
                    float *restrict y, int inputs, int outputs)
{
    int in, out, lane;
    for (out = 0; out + 16 <= outputs; out += 16) {
        float sums[16] = {0.0f};
        for (in = 0; in + 8 <= inputs; in += 8, w += 8 * 16) {
            const float *restrict z = x + in;
            for (lane = 0; lane < 16; lane++)
                sums[lane] += ((z[0] * w[lane] + z[1] * w[lane + 16]) + (z[2] * w[lane + 32] + z[3] * w[lane + 48]))
                              + ((z[4] * w[lane + 64] + z[5] * w[lane + 80]) + (z[6] * w[lane + 96] + z[7] * w[lane + 112]));
        }
        for (; in < inputs; in++, w += 16)
            for (lane = 0; lane < 16; lane++) sums[lane] += x[in] * w[lane];
        for (lane = 0; lane < 16; lane++) y[out + lane] = sums[lane] + (bias ? bias[out + lane] : 0.0f);
    }
    /* The last block may be narrower. */
    if (out < outputs) narrow_product(w, bias ? bias + out : NULL, x, y + out, inputs, outputs - out);
}

/* The weights of one output of such a matrix. */
static void weights_of_output(const float *w, int output, float *y, int inputs, int outputs)
{
    const int block = output - output % 16;
    const int width = outputs - block < 16 ? outputs - block : 16;
    int in;
    for (in = 0; in < inputs; in++) y[in] = w[block * inputs + in * width + output - block];
}

/* Where the machine multiplies bytes, x is rounded to bytes from 1 to 255, of which 128 is 0. */
#if defined __AVX512VNNI__ && defined __AVX512VL__ || defined __AVXVNNI__
typedef uint8_t rounded_number;
enum { ZERO = 128 };
#else
typedef int16_t rounded_number;
enum { ZERO = 0 };
#endif

/* x as whole numbers from -127 to 127, and their scale. */
static float quantise(const float *restrict x, rounded_number *restrict q, int size)
{
    uint32_t largest = 0;
    float scale, divisor;
    int i;
    /* The bits of numbers that are not negative have the order of the numbers. */
    for (i = 0; i < size; i++) {
        const uint32_t bits = to_bits(x[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    scale = from_bits(largest) / 127.0f;
    divisor = scale == 0.0f ? 1.0f : scale;
    /* The sum has no digits after the point: it is rounded, halves to the even number. */
    for (i = 0; i < size; i++) q[i] = (rounded_number)(ZERO + (int32_t)(to_bits(x[i] / divisor + 12582912.0f) - 0x4b400000u));
    return scale;
}

/* y = W x + b with W in int8, a scale and the sum of the weights for each of its rows, and x rounded to int8. */
static void int8_product(const int8_t *restrict w, const float *restrict scales, const int32_t *restrict sums,
                         const float *restrict bias, const float *restrict x, void *restrict space,
                         float *restrict y, int inputs, int outputs)
{
    rounded_number *restrict q = space;
    const float scale = quantise(x, q, inputs);
    int in, out = 0;
#ifdef PAIRS_AT_ONCE
    for (; out + 4 <= outputs; out += 4, w += 4 * inputs) {
        int32_t four[4];
        four_sums(w, q, inputs, four);
        for (in = 0; in < 4; in++)
            y[out + in] = (float)four[in] * scales[out + in] * scale + (bias ? bias[out + in] : 0.0f);
    }
#endif
    for (; out < outputs; out++, w += inputs) {
        int32_t sum = 0;
        for (in = 0; in < inputs; in++) sum += w[in] * q[in];
        y[out] = (float)(sum - ZERO * sums[out]) * scales[out] * scale + (bias ? bias[out] : 0.0f);
    }
}
