/* Products of rows and packed weights: the linears of a pass, a unit for some of their outputs.
 *
 * A sum takes its pairs of inputs in their order, whatever the number of rows, so a row's bits never
 * depend on its company. Three ways, by what the machine has: products_amx.h, products_pairs.h,
 * products_floats.h; each has `multiply`.
 */

/* Outputs of a block of packed weights: [I / 2 pairs of inputs][32 outputs][2], so that a block is read
 * from its first byte to its last: machines foresee no other order as well. */
#define OUTPUTS 32
/* Rows of a unit at most; a multiple of a tile's. */
#define MAX_ROWS 128
#define TILE_ROWS 16

/* out [M, O] = x [M, I] times weights, plus a bias [O] unless it is NULL. x has room for whole tiles
 * of rows. With `is_gated` the outputs are rows [gate, up], and out [M, O / 2] = silu(gate) * up. */
typedef struct {
    const bf16 *x, *weights, *bias;
    bf16 *out;
    int64_t rows, inputs, outputs;
    int is_gated;
    int64_t blocks_of_unit, num_columns, num_chunks; /* units are chunks of rows times columns */
} Product;

/* A unit's results: of two blocks, or one. */
typedef struct {
    bf16 of[MAX_ROWS][2][OUTPUTS] __attribute__((aligned(64)));
} Results;

static inline const bf16 *block_of(const Product *p, int64_t block) {
    return p->weights + block * OUTPUTS * p->inputs;
}

static const bf16 no_bias[OUTPUTS];

/* Sums of a vector of a block's outputs, from output `at` on. */
static inline void put(const Product *p, int64_t block, int at, vf sums, bf16 *to) {
    const bf16 *bias = p->bias ? p->bias + block * OUTPUTS : no_bias;
    store(to + at, sums + load(bias + at));
}

/* Where the weights of a vector of a block's outputs and a pair of inputs lie; `from` is the block's,
 * of the pair's 32 inputs. */
INLINE const bf16 *words_at(const bf16 *from, int pair, int at) {
    return from + pair * 2 * OUTPUTS + 2 * at;
}

/* Rows [first, first + count) of a product, times blocks[0] and, of two, blocks[1]. */
static void multiply(const Product *p, uint64_t ticket, int64_t first, int64_t count,
                     const int64_t *blocks, int num_blocks, Results *results);

/* What `multiply` needs before its first call; 0 if it was given. */
static int prepare_products(void);

#ifdef __AMX_BF16__
#include "products_amx.h"
#elif defined(MULTIPLIES_PAIRS)
#include "products_pairs.h"
#else
#include "products_floats.h"
#endif

static inline vf silu(vf x) { return round_trip(x / (1.0f + exp_of(-x))); }

static void write_gated(const Product *p, int64_t first, int64_t count, int64_t block,
                        const Results *results) {
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < OUTPUTS; i += LANES)
            store(p->out + (first + r) * (p->outputs / 2) + block * OUTPUTS + i,
                  silu(load(results->of[r][0] + i)) * load(results->of[r][1] + i));
}

/* Units of the same rows lie behind each other. */
static int run_product(const void *room, uint64_t ticket, int64_t unit) {
    const Product *p = room;
    int64_t chunk = unit / p->num_columns, column = unit % p->num_columns;
    int64_t first = p->rows * chunk / p->num_chunks / TILE_ROWS * TILE_ROWS;
    int64_t end = p->rows * (chunk + 1) / p->num_chunks / TILE_ROWS * TILE_ROWS;
    if (chunk + 1 == p->num_chunks) end = p->rows;
    int64_t num_blocks = p->outputs / OUTPUTS;
    int64_t blocks[2] = {column * p->blocks_of_unit, column * p->blocks_of_unit + 1};
    if (p->is_gated) blocks[0] = column, blocks[1] = column + num_blocks / 2;
    int count = p->blocks_of_unit == 2 && blocks[1] < num_blocks ? 2 : 1;
    Results results;
    multiply(p, ticket, first, end - first, blocks, count, &results);
    if (!commits(ticket, unit)) return 0;
    if (p->is_gated)
        write_gated(p, first, end - first, column, &results);
    else
        for (int64_t r = 0; r < end - first; r++)
            for (int b = 0; b < count; b++)
                memcpy(p->out + (first + r) * p->outputs + blocks[b] * OUTPUTS, results.of[r][b],
                       sizeof results.of[r][b]);
    return 1;
}

/* Two blocks a unit where few rows wait for memory, of which two places are read faster than one;
 * one where threads would else be left without work in the end. */
static int64_t num_product_units(Product *p, int num_threads) {
    int64_t num_blocks = p->outputs / OUTPUTS, num_pairs = (num_blocks + 1) / 2;
    int is_even = num_pairs % num_threads == 0 || num_pairs >= 16 * num_threads;
    p->blocks_of_unit = p->is_gated || is_even ? 2 : 1;
    p->num_columns = p->blocks_of_unit == 2 ? num_pairs : num_blocks;
    /* A chunk begins at a whole tile, and so may be a tile longer than its share. */
    int64_t share = MAX_ROWS - TILE_ROWS;
    p->num_chunks = p->rows <= MAX_ROWS ? 1 : (p->rows + share - 1) / share;
    return p->num_columns * p->num_chunks;
}
