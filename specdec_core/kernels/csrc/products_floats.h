/* `multiply` for machines that multiply float32 numbers only: a number of bfloat16 is the upper half
 * of one. Rows are widened once per thread and stage, weights as they are read. */

#if LANES == 16
#define ROWS 12 /* whose sums of PARTS vectors stay in registers */
#define ROWS_OF_A_BLOCK 12
#else
#define ROWS 5 /* a sixth row's sums and the weights need a register more than there are */
#define ROWS_OF_A_BLOCK 3 /* whose sums of a whole block nearly do; so few rows wait for memory */
#endif
#define PARTS 2
#define BLOCK_PARTS (OUTPUTS / LANES)
/* What is read next is asked for by so many bytes before. */
#define AHEAD 2048

/* Rows [count][I] in float32. */
static const float *widen(const Product *p, uint64_t ticket, int64_t first, int64_t count) {
    static _Thread_local uint64_t last_ticket;
    static _Thread_local int64_t last_first;
    float *rows = scratch_of(MAX_ROWS * p->inputs);
    if (last_ticket == ticket + 1 && last_first == first) return rows;
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < p->inputs; i += LANES) {
            vf numbers = load(p->x + (first + r) * p->inputs + i);
            memcpy(rows + r * p->inputs + i, &numbers, sizeof numbers);
        }
    last_ticket = ticket + 1, last_first = first;
    return rows;
}

/* `count` rows times `num_parts` registers of a block's outputs from `first_part` on: both counts are
 * known when this is compiled. */
INLINE void multiply_rows(const float *x, int64_t inputs, const bf16 *weights, const int count,
                          const int first_part, const int num_parts, vf sums[ROWS][BLOCK_PARTS]) {
    vf s[ROWS][BLOCK_PARTS];
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int v = 0; v < num_parts; v++) s[r][v] = (vf){0};
    for (int64_t i = 0; i < inputs; i += 32)
        for (int pair = 0; pair < 16; pair++) {
            const float *numbers = x + i + 2 * pair;
            vf even[BLOCK_PARTS], odd[BLOCK_PARTS];
#pragma GCC unroll 4
            for (int v = 0; v < num_parts; v++) {
                const bf16 *from = words_at(weights + 32 * i, pair, (first_part + v) * LANES);
                if (v % (16 / LANES) == 0) __builtin_prefetch((const char *)from + AHEAD);
                even[v] = (vf)(load_words(from) << 16);
            }
#pragma GCC unroll 12
            for (int r = 0; r < count; r++)
#pragma GCC unroll 4
                for (int v = 0; v < num_parts; v++) s[r][v] += even[v] * numbers[r * inputs];
#pragma GCC unroll 4
            for (int v = 0; v < num_parts; v++) {
                const bf16 *from = words_at(weights + 32 * i, pair, (first_part + v) * LANES);
                odd[v] = (vf)(load_words(from) & 0xffff0000);
            }
#pragma GCC unroll 12
            for (int r = 0; r < count; r++)
#pragma GCC unroll 4
                for (int v = 0; v < num_parts; v++) s[r][v] += odd[v] * numbers[r * inputs + 1];
        }
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int v = 0; v < num_parts; v++) sums[r][first_part + v] = s[r][v];
}

/* Up to ROWS rows; the number of rows is known when this is compiled. */
INLINE void multiply_block(const float *x, int64_t inputs, const bf16 *weights, const int count,
                           vf sums[ROWS][BLOCK_PARTS]) {
    if (count <= ROWS_OF_A_BLOCK)
        multiply_rows(x, inputs, weights, count, 0, BLOCK_PARTS, sums);
    else
        for (int part = 0; part < BLOCK_PARTS; part += PARTS)
            multiply_rows(x, inputs, weights, count, part, PARTS, sums);
}

#define CASE(n) case n: multiply_block(x, inputs, weights, n, sums); break;

static void multiply_some(const float *x, int64_t inputs, const bf16 *weights, int64_t count,
                          vf sums[ROWS][BLOCK_PARTS]) {
    switch (count) {
        CASE(1) CASE(2) CASE(3) CASE(4)
#if ROWS > 5
        CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)
#endif
    default: multiply_block(x, inputs, weights, ROWS, sums);
    }
}

static void multiply(const Product *p, uint64_t ticket, int64_t first, int64_t count,
                     const int64_t *blocks, int num_blocks, Results *results) {
    const float *x = widen(p, ticket, first, count);
    int64_t num_groups = (count + ROWS - 1) / ROWS;
    for (int b = 0; b < num_blocks; b++)
        for (int64_t group = 0; group < num_groups; group++) {
            int64_t begin = count * group / num_groups, end = count * (group + 1) / num_groups;
            float sums[ROWS][OUTPUTS] __attribute__((aligned(64)));
            multiply_some(x + begin * p->inputs, p->inputs, block_of(p, blocks[b]), end - begin,
                          (vf(*)[BLOCK_PARTS])sums);
            for (int64_t r = begin; r < end; r++)
                for (int at = 0; at < OUTPUTS; at += LANES)
                    put(p, blocks[b], at, load_floats(sums[r - begin] + at), results->of[r][b]);
        }
}

static int prepare_products(void) { return 0; }
