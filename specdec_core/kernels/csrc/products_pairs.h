/* `multiply` for machines that multiply pairs of bfloat16 numbers: AVX-512 BF16. */

#include <sys/mman.h>

/* Rows that are multiplied at once: two sums of each and block stay in registers. */
#define ROWS 12
#define ROWS_OF_TWO_BLOCKS 6
#define PARTS (OUTPUTS / LANES)

/* Bytes before which a line of weights is asked for, where many rows are multiplied. */
#define AHEAD 8192
/* Whether it is: `prepare_products` measures what this machine is better with. */
static int asks_ahead = 1;

/* `count` rows from `first` on times `num_blocks` blocks; these and `asks` are known when this is
 * compiled. */
INLINE void multiply_rows(const Product *p, int64_t first, const int count, const int64_t *blocks,
                          const int num_blocks, const int asks, bf16 (*to)[2][OUTPUTS]) {
    const bf16 *x = p->x + first * p->inputs;
    const bf16 *weights[2] = {block_of(p, blocks[0]), block_of(p, blocks[num_blocks - 1])};
    vf sums[ROWS][2 * PARTS];
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int b = 0; b < PARTS * num_blocks; b++) sums[r][b] = (vf){0};
    for (int64_t i = 0; i < p->inputs; i += 32)
#pragma GCC unroll 2
        for (int pair = 0; pair < 16; pair++) {
            Pairs vectors[2 * PARTS];
#pragma GCC unroll 4
            for (int b = 0; b < PARTS * num_blocks; b++) {
                const bf16 *from = words_at(weights[b / PARTS] + 32 * i, pair, b % PARTS * LANES);
                if (asks) __builtin_prefetch((const char *)from + AHEAD);
                vectors[b] = pairs_of(load_words(from));
            }
#pragma GCC unroll 12
            for (int r = 0; r < count; r++) {
                Pairs numbers = repeated(x + r * p->inputs + i + 2 * pair);
#pragma GCC unroll 4
                for (int b = 0; b < PARTS * num_blocks; b++)
                    sums[r][b] = add_products(sums[r][b], numbers, vectors[b]);
            }
        }
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int b = 0; b < PARTS * num_blocks; b++)
            put(p, blocks[b / PARTS], b % PARTS * LANES, sums[r][b], to[r][b / PARTS]);
}

#define CASE(n, num_blocks, asks) \
    case n: multiply_rows(p, first, n, blocks, num_blocks, asks, to); break;

/* Few rows wait for memory, and two places of it are read faster than one. */
static void multiply_few(const Product *p, int64_t first, int64_t count, const int64_t *blocks,
                         bf16 (*to)[2][OUTPUTS]) {
    switch (count) {
        CASE(0, 2, 0) CASE(1, 2, 0) CASE(2, 2, 0) CASE(3, 2, 0) CASE(4, 2, 0) CASE(5, 2, 0)
    default: multiply_rows(p, first, ROWS_OF_TWO_BLOCKS, blocks, 2, 0, to);
    }
}

INLINE void multiply_many(const Product *p, int64_t first, int64_t count, const int64_t *blocks,
                          const int asks, bf16 (*to)[2][OUTPUTS]) {
    switch (count) {
        CASE(0, 1, asks) CASE(1, 1, asks) CASE(2, 1, asks) CASE(3, 1, asks)
        CASE(4, 1, asks) CASE(5, 1, asks) CASE(6, 1, asks) CASE(7, 1, asks)
        CASE(8, 1, asks) CASE(9, 1, asks) CASE(10, 1, asks) CASE(11, 1, asks)
    default: multiply_rows(p, first, ROWS, blocks, 1, asks, to);
    }
}

static void multiply(const Product *p, uint64_t ticket, int64_t first, int64_t count,
                     const int64_t *blocks, int num_blocks, Results *results) {
    (void)ticket;
    int64_t num_groups = (count + ROWS - 1) / ROWS;
    if (num_blocks == 2 && count <= ROWS_OF_TWO_BLOCKS)
        return multiply_few(p, first, count, blocks, results->of);
    for (int b = 0; b < num_blocks; b++)
        for (int64_t group = 0; group < num_groups; group++) {
            int64_t begin = count * group / num_groups;
            int64_t end = count * (group + 1) / num_groups;
            bf16(*to)[2][OUTPUTS] = (bf16(*)[2][OUTPUTS])results->of[begin][b];
            if (asks_ahead)
                multiply_many(p, first + begin, end - begin, blocks + b, 1, to);
            else
                multiply_many(p, first + begin, end - begin, blocks + b, 0, to);
        }
}

#define TRIAL_ROWS 8
#define TRIAL_INPUTS 1024
#define TRIAL_BLOCKS 1024 /* 64 MiB, more than caches hold */
#define TRIALS 4

static double seconds_of_trial(const Product *p) {
    struct timespec begin, end;
    Results results;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int64_t block = 0; block < TRIAL_BLOCKS; block++)
        multiply(p, 0, 0, TRIAL_ROWS, &block, 1, &results);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* Asking ahead takes a fifth off 8 rows on Zen 5 and adds up to 8 % on Zen 4, so both are timed, in
 * turns: 0.1 s in all. 0, as nothing can be refused. */
static int prepare_products(void) {
#ifndef EMULATES_PAIRS
    size_t size = (size_t)TRIAL_BLOCKS * TRIAL_INPUTS * OUTPUTS * sizeof(bf16);
    bf16 *weights = aligned_alloc(1 << 21, size);
    if (!weights) return 0;
    madvise(weights, size, MADV_HUGEPAGE);
    memset(weights, 0, size);
    static const bf16 x[TRIAL_ROWS * TRIAL_INPUTS];
    Product p = {.x = x, .weights = weights, .rows = TRIAL_ROWS, .inputs = TRIAL_INPUTS};
    double best[2] = {INFINITY, INFINITY};
    for (int trial = 0; trial < 2 * TRIALS; trial++) {
        asks_ahead = trial % 2;
        best[asks_ahead] = fmin(best[asks_ahead], seconds_of_trial(&p));
    }
    asks_ahead = best[1] < best[0];
    free(weights);
#endif
    return 0;
}
