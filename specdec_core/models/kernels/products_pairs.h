/* `multiply` for machines that multiply pairs of bfloat16 numbers: AVX-512 BF16. */

/* Rows that are multiplied at once: two sums of each and block stay in registers. */
#define ROWS 12
#define ROWS_OF_TWO_BLOCKS 6
#define PARTS (OUTPUTS / LANES)

/* `count` rows from `first` on times `num_blocks` blocks, both known when this is compiled. Nothing is
 * asked for ahead: the machine foresees a block's lines, and asking cost 3 to 8 % on Zen 4. */
INLINE void multiply_rows(const Product *p, int64_t first, const int count, const int64_t *blocks,
                          const int num_blocks, bf16 (*to)[2][OUTPUTS]) {
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
            for (int b = 0; b < PARTS * num_blocks; b++)
                vectors[b] = pairs_of(load_words(
                    words_at(weights[b / PARTS] + 32 * i, pair, b % PARTS * LANES)));
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

#define CASE(n, blocks_at_once) case n: multiply_rows(p, first, n, blocks, blocks_at_once, to); break;

/* Few rows wait for memory, and two places of it are read faster than one. */
static void multiply_few(const Product *p, int64_t first, int64_t count, const int64_t *blocks,
                         bf16 (*to)[2][OUTPUTS]) {
    switch (count) {
        CASE(0, 2) CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2)
    default: multiply_rows(p, first, ROWS_OF_TWO_BLOCKS, blocks, 2, to);
    }
}

static void multiply_many(const Product *p, int64_t first, int64_t count, const int64_t *blocks,
                          bf16 (*to)[2][OUTPUTS]) {
    switch (count) {
        CASE(0, 1) CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1) CASE(7, 1)
        CASE(8, 1) CASE(9, 1) CASE(10, 1) CASE(11, 1)
    default: multiply_rows(p, first, ROWS, blocks, 1, to);
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
            multiply_many(p, first + begin, end - begin, blocks + b,
                          (bf16(*)[2][OUTPUTS])results->of[begin][b]);
        }
}
