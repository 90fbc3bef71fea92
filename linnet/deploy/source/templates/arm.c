/* Arm processors such as Cortex-M4 and larger multiply two pairs of numbers of 16 bits at once. */
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
#define PAIRS_AT_ONCE
#include <arm_acle.h>

/* Words of 32 bits at any address. */
typedef struct __attribute__((packed, may_alias)) { uint32_t bits; } any_word;

static inline uint32_t word_at(const void *address) { return ((const any_word *)address)->bits; }

/* Instructions that compilers do not find in C: the numbers 1 and 3 of four numbers of 8 bits, as two of 16; the
   lower halves of two words, and the upper halves. */
static inline uint32_t odd_numbers(uint32_t four)
{
    uint32_t made;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(made) : "r"(four));
    return made;
}

static inline uint32_t lower_halves(uint32_t low, uint32_t high)
{
    uint32_t made;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(made) : "r"(low), "r"(high));
    return made;
}

static inline uint32_t upper_halves(uint32_t low, uint32_t high)
{
    uint32_t made;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(made) : "r"(high), "r"(low));
    return made;
}

static inline int32_t four_products(int32_t sum, uint32_t weights, uint32_t even, uint32_t odd)
{
    sum = __smlad((int16x2_t)__sxtb16((int8x4_t)weights), (int16x2_t)even, sum);
    return __smlad((int16x2_t)odd_numbers(weights), (int16x2_t)odd, sum);
}

/* Four sums of products, of four rows of weights and x. */
static void four_sums(const int8_t *restrict w, const int16_t *restrict x, int inputs, int32_t *restrict sums)
{
    const int8_t *const w1 = w + inputs, *const w2 = w1 + inputs, *const w3 = w2 + inputs;
    int32_t a = 0, b = 0, c = 0, d = 0;
    int in, left;
    for (in = 0; in + 4 <= inputs; in += 4) {
        const uint32_t low = word_at(x + in), high = word_at(x + in + 2);
        const uint32_t even = lower_halves(low, high), odd = upper_halves(low, high);
        a = four_products(a, word_at(w + in), even, odd);
        b = four_products(b, word_at(w1 + in), even, odd);
        c = four_products(c, word_at(w2 + in), even, odd);
        d = four_products(d, word_at(w3 + in), even, odd);
    }
    for (left = inputs % 4; left > 0; left--, in++) {
        a += w[in] * x[in];
        b += w1[in] * x[in];
        c += w2[in] * x[in];
        d += w3[in] * x[in];
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}
#endif
