/* Vectors of bfloat16 numbers, and sums of products of them.
 *
 * Every number is rounded to bfloat16 where transformers rounds it.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
#ifndef MULTIPLIES_PAIRS
#define MULTIPLIES_PAIRS /* of bfloat16 numbers, sixteen at once */
#endif
#endif

/* Numbers of a vector: as many as a register of the machine has. */
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif

#define INLINE static inline __attribute__((always_inline))

#ifdef __AMX_BF16__
/* Write to memory all that was stored so far: GCC is not told that a load of a tile reads memory, and
 * may move or leave out stores before it. No instruction comes of it. */
INLINE void finish_stores(void) { __asm__ volatile("" ::: "memory"); }
#endif

typedef uint16_t bf16;
typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));

/* The compiler would do each in halves. */
#ifdef __AVX512F__
static inline vu widened(vh half) { return (vu)_mm512_cvtepu16_epi32((__m256i)half); }
static inline vh narrowed(vu words) { return (vh)_mm512_cvtepi32_epi16((__m512i)words); }
#else
static inline vu widened(vh half) { return __builtin_convertvector(half, vu); }
static inline vh narrowed(vu words) { return __builtin_convertvector(words, vh); }
#endif

static inline vf load(const bf16 *from) {
    vh half;
    memcpy(&half, from, sizeof half);
    return (vf)(widened(half) << 16);
}

/* Where something holds; the compiler would make a vector of numbers of it. */
#ifdef __AVX512F__
typedef __mmask16 Mask;
INLINE Mask is_less(vf x, vf y) { return _mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_LT_OQ); }
INLINE Mask is_no_number(vf x) { return _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q); }
INLINE Mask is_behind(vi x, vi y) { return _mm512_cmpgt_epi32_mask((__m512i)x, (__m512i)y); }
INLINE vf blend(Mask mask, vf yes, vf no) {
    return (vf)_mm512_mask_blend_ps(mask, (__m512)no, (__m512)yes);
}
#else
typedef vi Mask;
INLINE Mask is_less(vf x, vf y) { return (vi)(x < y); }
INLINE Mask is_no_number(vf x) { return (vi)(x != x); }
INLINE Mask is_behind(vi x, vi y) { return x > y; }
INLINE vf blend(Mask mask, vf yes, vf no) {
    return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}
#endif

/* Round to nearest, ties to even; what is not a number stays none. */
static inline vu rounded(vf x) {
    vu bits = (vu)x;
    vu even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (vu)blend(is_no_number(x), (vf)((vu){0} + 0x7fc0), (vf)even);
}

static inline void store(bf16 *to, vf x) {
    vh half = narrowed(rounded(x));
    memcpy(to, &half, sizeof half);
}

static inline vf round_trip(vf x) { return (vf)(rounded(x) << 16); }

static inline vf larger(vf x, vf y) { return blend(is_less(y, x), x, y); }

static inline float sum_of(vf x) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

static inline float largest_of(vf x) {
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* e^x as 2^n times a polynomial of degree 6, within two units of the last place; 0 below -87,
 * infinite above 88. */
static inline vf exp_of(vf x) {
    const vf zero = {0};
    vf low = zero - 87.0f, high = zero + 88.0f;
    Mask underflows = is_less(x, low), overflows = is_less(high, x);
    x = blend(overflows, high, blend(underflows, low, x));
    vf shifted = x * 1.44269504f + 12582912.0f;
    vf n = shifted - 12582912.0f;
    vf r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    vf p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vi power = (__builtin_convertvector(n, vi) + 127) << 23;
    return blend(underflows, zero, blend(overflows, zero + INFINITY, p * (vf)power));
}

static inline vu load_words(const void *from) {
    vu words;
    memcpy(&words, from, sizeof words);
    return words;
}

static inline vf load_floats(const float *from) {
    vf numbers;
    memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

/* Pairs of numbers: the even one of a pair is the lower half of its word. */
#if defined(__AVX512BF16__) && !defined(EMULATES_PAIRS)

typedef vu Pairs;

INLINE Pairs pairs_of(vu words) { return words; }

/* sum + odd * odd + even * even, as the machine does it. */
INLINE vf add_products(vf sum, Pairs a, Pairs b) {
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

#else

typedef struct {
    vf even, odd;
} Pairs;

INLINE Pairs pairs_of(vu words) { return (Pairs){(vf)(words << 16), (vf)(words & 0xffff0000)}; }

INLINE vf add_products(vf sum, Pairs a, Pairs b) {
    sum += a.even * b.even;
    return sum + a.odd * b.odd;
}

#endif

/* Numbers that pairs are multiplied with, one pair for all lanes. */
#ifdef MULTIPLIES_PAIRS

typedef bf16 Number;

INLINE Pairs repeated(const Number *pair) {
    uint32_t word;
    memcpy(&word, pair, sizeof word);
    return pairs_of((vu){0} + word);
}

static inline void store_numbers(Number *to, vf x) { store(to, x); }

/* The same bits, of numbers that are neither smaller than a normal one nor none. */
static inline void store_weights(Number *to, vf x) {
#ifdef __AVX512BF16__
    __m256bh half = _mm512_cvtneps_pbh((__m512)x);
    memcpy(to, &half, sizeof half);
#else
    store(to, x);
#endif
}

#else

typedef float Number;

INLINE Pairs repeated(const Number *pair) {
    return (Pairs){(vf){0} + pair[0], (vf){0} + pair[1]};
}

static inline void store_numbers(Number *to, vf x) { memcpy(to, &x, sizeof x); }
static inline void store_weights(Number *to, vf x) { store_numbers(to, x); }

#endif

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
