/* `multiply` for machines with AMX: tiles of 16 rows of 64 bytes, 32 numbers of bfloat16 or 16 sums.*/

/* What is read next is asked for by so many bytes before; the rest of a page the machine foresees. */
#define AHEAD 1024
/* Bytes of a pair of inputs: a tile is the first or the second half of sixteen. */
#define PAIR (2 * OUTPUTS * sizeof(bf16))

/* The sums of four tiles, [16 rows][16 outputs] each. */
typedef float Sums4[4][256] __attribute__((aligned(64)));

static inline void ask_for(const bf16 *weights) {
    for (int line = 0; line < 32; line++)
        __builtin_prefetch((const char *)weights + AHEAD + 64 * line);
}

static inline void begin_sums(void) {
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

static inline void end_sums(Sums4 sums) {
    _tile_stored(4, sums[0], 64);
    _tile_stored(5, sums[1], 64);
    _tile_stored(6, sums[2], 64);
    _tile_stored(7, sums[3], 64);
}

/* One tile of rows times two blocks: what few rows wait for is memory, and two places of it are read
 * faster than one. */
static void multiply_two_blocks(const bf16 *rows, int64_t inputs, const bf16 *first,
                                const bf16 *second, Sums4 sums) {
    begin_sums();
    for (int64_t i = 0; i < inputs; i += 32, first += 1024, second += 1024) {
        ask_for(first);
        ask_for(second);
        _tile_loadd(0, rows + i, inputs * sizeof(bf16));
        _tile_loadd(1, first, PAIR);
        _tile_dpbf16ps(4, 0, 1);
        _tile_loadd(2, second, PAIR);
        _tile_dpbf16ps(6, 0, 2);
        _tile_loadd(3, first + 32, PAIR);
        _tile_dpbf16ps(5, 0, 3);
        _tile_loadd(1, second + 32, PAIR);
        _tile_dpbf16ps(7, 0, 1);
    }
    end_sums(sums);
}

/* Two tiles of rows times a block, which is asked for ahead where it is read `first`. */
static void multiply_two_tiles(const bf16 *rows, const bf16 *more_rows, int64_t inputs,
                               const bf16 *weights, int is_first, Sums4 sums) {
    begin_sums();
    for (int64_t i = 0; i < inputs; i += 32, weights += 1024) {
        if (is_first) ask_for(weights);
        _tile_loadd(0, rows + i, inputs * sizeof(bf16));
        _tile_loadd(2, weights, PAIR);
        _tile_dpbf16ps(4, 0, 2);
        _tile_loadd(1, more_rows + i, inputs * sizeof(bf16));
        _tile_dpbf16ps(6, 1, 2);
        _tile_loadd(3, weights + 32, PAIR);
        _tile_dpbf16ps(5, 0, 3);
        _tile_dpbf16ps(7, 1, 3);
    }
    end_sums(sums);
}

/* Write the sums of a tile of rows, from the unit's row `first` on, times a block. */
static void put_tile(const Product *p, int64_t first, int64_t count, int64_t block, int place,
                     float sums[2][256], Results *results) {
    for (int64_t j = 0; j < TILE_ROWS && first + j < count; j++)
        for (int at = 0; at < OUTPUTS; at += LANES)
            put(p, block, at, load_floats(sums[at / 16] + 16 * j + at % 16),
                results->of[first + j][place]);
}

static void multiply(const Product *p, uint64_t ticket, int64_t first, int64_t count,
                     const int64_t *blocks, int num_blocks, Results *results) {
    (void)ticket;
    const bf16 *x = p->x + first * p->inputs;
    Sums4 sums;
    int64_t row = 0;
    finish_stores();
    for (; row + TILE_ROWS < count; row += 2 * TILE_ROWS)
        for (int b = 0; b < num_blocks; b++) {
            const bf16 *rows = x + row * p->inputs;
            multiply_two_tiles(rows, rows + TILE_ROWS * p->inputs, p->inputs,
                               block_of(p, blocks[b]), row == 0, sums);
            put_tile(p, row, count, blocks[b], b, sums, results);
            put_tile(p, row + TILE_ROWS, count, blocks[b], b, sums + 2, results);
        }
    if (row >= count) return;
    multiply_two_blocks(x + row * p->inputs, p->inputs, block_of(p, blocks[0]),
                        block_of(p, blocks[num_blocks - 1]), sums);
    for (int b = 0; b < num_blocks; b++)
        put_tile(p, row, count, blocks[b], b, sums + 2 * b, results);
}

static int prepare_products(void) {
    const int request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request, tile_data) != 0;
}
