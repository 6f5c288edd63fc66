/* Vectors of bfloat16 numbers, and sums of products of them.
 *
 * Every number is rounded to bfloat16 where transformers rounds it.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
#include <immintrin.h>
#ifndef MULTIPLIES_PAIRS
#define MULTIPLIES_PAIRS /* of bfloat16 numbers, sixteen at once */
#endif
#endif

#define LANES 16

#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;
typedef float v16 __attribute__((vector_size(64)));
typedef int32_t i16 __attribute__((vector_size(64)));
typedef uint32_t u16 __attribute__((vector_size(64)));
typedef uint16_t h16 __attribute__((vector_size(32)));

static inline v16 load(const bf16 *from) {
    h16 half;
    memcpy(&half, from, sizeof half);
    return (v16)(__builtin_convertvector(half, u16) << 16);
}

/* Round to nearest, ties to even; what is not a number stays none. */
static inline u16 rounded(v16 x) {
    u16 bits = (u16)x;
    u16 is_nan = (u16)(x != x);
    u16 even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (even & ~is_nan) | (0x7fc0 & is_nan);
}

static inline void store(bf16 *to, v16 x) {
    h16 half = __builtin_convertvector(rounded(x), h16);
    memcpy(to, &half, sizeof half);
}

static inline v16 round_trip(v16 x) { return (v16)(rounded(x) << 16); }

static inline v16 blend(i16 mask, v16 yes, v16 no) {
    return (v16)(((i16)yes & mask) | ((i16)no & ~mask));
}

static inline v16 larger(v16 x, v16 y) { return blend((i16)(x > y), x, y); }

static inline float sum_of(v16 x) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

static inline float largest_of(v16 x) {
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* e^x as 2^n times a polynomial of degree 6, within two units of the last place; 0 below -87,
 * infinite above 88. */
static inline v16 exp_of(v16 x) {
    const v16 zero = {0};
    v16 low = zero - 87.0f, high = zero + 88.0f;
    i16 underflows = (i16)(x < low), overflows = (i16)(x > high);
    x = blend(overflows, high, blend(underflows, low, x));
    v16 shifted = x * 1.44269504f + 12582912.0f;
    v16 n = shifted - 12582912.0f;
    v16 r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    v16 p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    i16 power = (__builtin_convertvector(n, i16) + 127) << 23;
    return blend(underflows, zero, blend(overflows, zero + INFINITY, p * (v16)power));
}

static inline u16 load_words(const void *from) {
    u16 words;
    memcpy(&words, from, sizeof words);
    return words;
}

static inline v16 load_floats(const float *from) {
    v16 numbers;
    memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

/* Sixteen pairs of numbers: the even one of a pair is the lower half of its word. */
#if defined(__AVX512BF16__) && !defined(EMULATES_PAIRS)

typedef u16 Pairs;

INLINE Pairs pairs_of(u16 words) { return words; }

/* sum + odd * odd + even * even, as the machine does it. */
INLINE v16 add_products(v16 sum, Pairs a, Pairs b) {
    return (v16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

#else

typedef struct {
    v16 even, odd;
} Pairs;

INLINE Pairs pairs_of(u16 words) {
    return (Pairs){(v16)(words << 16), (v16)(words & 0xffff0000)};
}

INLINE v16 add_products(v16 sum, Pairs a, Pairs b) {
    sum += a.even * b.even;
    return sum + a.odd * b.odd;
}

#endif

/* One pair, sixteen times. */
INLINE Pairs repeated(uint32_t word) { return pairs_of((u16){0} + word); }

/* Memory of the thread for `count` numbers; what is in it is not kept. */
static float *scratch_of(int64_t count) {
    static _Thread_local float *scratch;
    static _Thread_local int64_t size;
    if (count > size) {
        free(scratch);
        size = (2 * count + 15) / 16 * 16;
        scratch = aligned_alloc(64, size * sizeof *scratch);
        if (!scratch) abort();
    }
    return scratch;
}
