/* What lies between the linears of a decoder of Llama's shape, in bfloat16 on a CPU.
 *
 * Every number is rounded to bfloat16 where transformers rounds it. A token's result never depends
 * on the tokens that share its pass: sums run in one order, whatever the number of rows, threads
 * or keys, and lanes that are left over compute like the others and are thrown away.
 *
 * Shapes: T tokens, E width, H query heads, K key-value heads, G = H / K, D head size, I width of
 * the MLP. E, D and I are multiples of 16. native_kernels.py builds this file and calls it.
 */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
#define MULTIPLIES_PAIRS /* of bfloat16 numbers, sixteen or more at once */
#include <immintrin.h>
#endif

#define LANES 16
#define KEYS 16 /* keys of a tile */
#define MAX_HEAD 256

typedef uint16_t bf16;
typedef float v16 __attribute__((vector_size(64)));
typedef int32_t i16 __attribute__((vector_size(64)));
typedef uint32_t u16 __attribute__((vector_size(64)));
typedef uint16_t h16 __attribute__((vector_size(32)));

/* Below so many numbers a second thread costs more than it takes over. */
#define PARALLEL_NUMBERS 16384

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

static inline float sum_of(v16 x) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
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

/* row / rms(row), rounded, then times the weight (arXiv 1910.07467). */
static inline void normalise(const bf16 *row, const bf16 *weight, bf16 *out, int64_t width,
                             float epsilon) {
    v16 squares = {0};
    for (int64_t i = 0; i < width; i += LANES) {
        v16 x = load(row + i);
        squares += x * x;
    }
    float scale = 1.0f / sqrtf(sum_of(squares) / (float)width + epsilon);
    for (int64_t i = 0; i < width; i += LANES)
        store(out + i, round_trip(load(row + i) * scale) * load(weight + i));
}

/* x += update, in place, unless update is NULL; out = the norm of x. All [T, E]. */
void specdec_add_norm(bf16 *x, const bf16 *update, const bf16 *weight, bf16 *out, int64_t tokens,
                      int64_t width, float epsilon) {
#pragma omp parallel for if (tokens * width > PARALLEL_NUMBERS)
    for (int64_t t = 0; t < tokens; t++) {
        bf16 *row = x + t * width;
        if (update)
            for (int64_t i = 0; i < width; i += LANES)
                store(row + i, load(row + i) + load(update + t * width + i));
        normalise(row, weight, out + t * width, width, epsilon);
    }
}

/* out = silu(gate) * up, of rows [gate, up] of 2 I numbers. */
void specdec_gate(const bf16 *gate_up, bf16 *out, int64_t tokens, int64_t width) {
#pragma omp parallel for if (tokens * width > PARALLEL_NUMBERS)
    for (int64_t t = 0; t < tokens; t++) {
        const bf16 *gate = gate_up + t * 2 * width, *up = gate + width;
        for (int64_t i = 0; i < width; i += LANES) {
            v16 x = load(gate + i);
            store(out + t * width + i, round_trip(x / (1.0f + exp_of(-x))) * load(up + i));
        }
    }
}

/* Turn a head to its place (arXiv 2104.09864): number i pairs with i + D / 2. */
static inline void turn(bf16 *head, const bf16 *cosine, const bf16 *sine, int64_t size) {
    bf16 *other = head + size / 2;
    for (int64_t i = 0; i < size / 2; i += LANES) {
        v16 a = load(head + i), b = load(other + i);
        v16 turned_a = round_trip(a * load(cosine + i)) - round_trip(b * load(sine + i));
        v16 turned_b = round_trip(b * load(cosine + size / 2 + i)) +
                       round_trip(a * load(sine + size / 2 + i));
        store(head + i, turned_a);
        store(other + i, turned_b);
    }
}

/* Turn the first H + K heads of each token's row of `stride` numbers, in place; cosine and sine are
 * [T, D]. Where the norms of query and key heads are given, they come first. */
void specdec_turn(bf16 *heads, const bf16 *cosine, const bf16 *sine, const bf16 *query_norm,
                  const bf16 *key_norm, int64_t tokens, int64_t stride, int64_t query_heads,
                  int64_t key_heads, int64_t size, float epsilon) {
    int64_t num_heads = query_heads + key_heads;
#pragma omp parallel for if (tokens * num_heads * size > PARALLEL_NUMBERS)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < num_heads; h++) {
            bf16 *head = heads + t * stride + h * size;
            const bf16 *norm = h < query_heads ? query_norm : key_norm;
            if (norm) normalise(head, norm, head, size, epsilon);
            turn(head, cosine + t * size, sine + t * size, size);
        }
}

/* One pass's attention over a layer's pools. */
typedef struct {
    const bf16 *query, *new_keys, *new_values; /* tokens are *_stride numbers apart */
    int64_t query_stride, key_stride, value_stride;
    bf16 *keys, *values; /* [rows, K, D] */
    const int64_t *write_index; /* [T] row of the pools that each token is written to */
    bf16 *out; /* [T, H, D] */
    const int32_t *pieces; /* [P, 3]: first token, tokens, place of the first one */
    const int32_t *tables; /* [P, table_width] blocks of the sequence */
    int64_t num_tokens, num_pieces, table_width, block_size, heads, key_heads, size;
    float scaling;
} Attention;

/* Some queries of one sequence that share a key head: a lane each. */
typedef struct {
    const int32_t *table;
    int64_t key_head, first_token, first_lane, num_lanes; /* lanes count (token, group) */
    int64_t place; /* of the piece's first token */
    int64_t num_keys;
} Unit;

static float *scratch_of(int64_t count) {
    static _Thread_local float *scratch;
    static _Thread_local int64_t size;
    if (count > size) {
        free(scratch);
        size = 2 * count;
        scratch = aligned_alloc(64, size * sizeof *scratch);
        if (!scratch) abort();
    }
    return scratch;
}

/* Sixteen rows of a pool, `stride` numbers apart, of which the first `count` are keys of the unit.*/
typedef struct {
    const bf16 *rows;
    int64_t stride, count;
} Tile;

/* A block is read where it lies; keys that lie otherwise are copied to `spare`, [16, D]. */
static Tile tile_of(const Attention *a, const Unit *u, const bf16 *pool, int64_t first_key,
                    bf16 *spare) {
    int64_t left = u->num_keys - first_key, stride = a->key_heads * a->size;
    Tile tile = {.stride = stride, .count = left < KEYS ? left : KEYS};
    const bf16 *head = pool + u->key_head * a->size;
    if (a->block_size == KEYS) {
        tile.rows = head + u->table[first_key / KEYS] * KEYS * stride;
        return tile;
    }
    for (int64_t j = 0; j < tile.count; j++) {
        int64_t block = u->table[(first_key + j) / a->block_size];
        int64_t row = block * a->block_size + (first_key + j) % a->block_size;
        memcpy(spare + j * a->size, head + row * stride, a->size * sizeof *spare);
    }
    memset(spare + tile.count * a->size, 0, (KEYS - tile.count) * a->size * sizeof *spare);
    tile.rows = spare;
    tile.stride = a->size;
    return tile;
}

/* The queries of a unit; lanes that are left over repeat the first one. */
static inline const bf16 *query_of(const Attention *a, const Unit *u, int64_t lane) {
    int64_t groups = a->heads / a->key_heads;
    int64_t index = u->first_lane + (lane < u->num_lanes ? lane : 0);
    return a->query + (u->first_token + index / groups) * a->query_stride +
           (u->key_head * groups + index % groups) * a->size;
}

/* Weighted sums of values, [lane][D]. */
typedef struct {
    float of[LANES][MAX_HEAD] __attribute__((aligned(64)));
} Sums;

#ifdef __AMX_BF16__

/* All tiles are 16 rows of 64 bytes: 32 numbers of bfloat16 or 16 sums. */
static void begin_tiles(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    _tile_loadconfig(&config);
}

static void end_tiles(void) { _tile_release(); }

#else

static void begin_tiles(void) {}
static void end_tiles(void) {}

#endif

#ifdef MULTIPLIES_PAIRS

/* Pairs of numbers of every query, [D / 2][lane]. */
typedef struct {
    uint32_t pairs[MAX_HEAD / 2][LANES] __attribute__((aligned(64)));
} Queries;

static void read_queries(const Attention *a, const Unit *u, Queries *queries) {
    for (int64_t lane = 0; lane < LANES; lane++) {
        uint32_t pairs[MAX_HEAD / 2];
        memcpy(pairs, query_of(a, u, lane), a->size * sizeof(bf16));
        for (int64_t i = 0; i < a->size / 2; i++) queries->pairs[i][lane] = pairs[i];
    }
}

static const bf16 no_row[MAX_HEAD];

/* Weights of pairs of keys, and the pairs of values that they belong to. */
typedef struct {
    uint32_t factor[LANES][KEYS] __attribute__((aligned(64)));
    uint32_t values[MAX_HEAD / LANES][KEYS][LANES] __attribute__((aligned(64)));
} Pairs;

static void read_pairs(const Tile *tiles, const v16 *weights, int64_t size, Pairs *pairs) {
    uint32_t across[KEYS][LANES] __attribute__((aligned(64)));
    for (int64_t pair = 0; pair < KEYS; pair++) {
        u16 both = rounded(weights[2 * pair]) | rounded(weights[2 * pair + 1]) << 16;
        memcpy(across[pair], &both, sizeof both);
        const Tile *tile = tiles + pair / 8;
        int64_t j = 2 * (pair % 8);
        const bf16 *even = j < tile->count ? tile->rows + j * tile->stride : no_row;
        const bf16 *odd = j + 1 < tile->count ? tile->rows + (j + 1) * tile->stride : no_row;
        for (int64_t d = 0; d < size; d += LANES) {
            h16 low, high;
            memcpy(&low, even + d, sizeof low);
            memcpy(&high, odd + d, sizeof high);
            both = __builtin_convertvector(low, u16) | __builtin_convertvector(high, u16) << 16;
            memcpy(pairs->values[d / LANES][pair], &both, sizeof both);
        }
    }
    for (int64_t lane = 0; lane < LANES; lane++)
        for (int64_t pair = 0; pair < KEYS; pair++) pairs->factor[lane][pair] = across[pair][lane];
}

#endif

#ifdef __AMX_BF16__

static void score_tile(const Tile *tile, const Queries *queries, int64_t size, v16 *scores) {
    _tile_zero(2);
    for (int64_t d = 0; d < size; d += 32) {
        _tile_loadd(0, tile->rows + d, tile->stride * sizeof(bf16));
        _tile_loadd(1, queries->pairs[d / 2], 64);
        _tile_dpbf16ps(2, 0, 1);
    }
    _tile_stored(2, scores, 64);
}

/* sums[lane][d] += weights[key][lane] * value[key][d] over two tiles of keys. */
static void add_tiles(const Tile *tiles, const v16 *weights, int64_t size, int64_t num_lanes,
                      Sums *sums) {
    (void)num_lanes;
    Pairs pairs;
    read_pairs(tiles, weights, size, &pairs);
    _tile_loadd(0, pairs.factor, 64);
    for (int64_t d = 0; d < size; d += LANES) {
        _tile_loadd(2, sums->of[0] + d, sizeof sums->of[0]);
        _tile_loadd(1, pairs.values[d / LANES], 64);
        _tile_dpbf16ps(2, 0, 1);
        _tile_stored(2, sums->of[0] + d, sizeof sums->of[0]);
    }
}

#elif defined(MULTIPLIES_PAIRS)

static inline __m512 add_products(__m512 sum, const uint32_t *vector, uint32_t other) {
    __m512bh numbers;
    memcpy(&numbers, vector, sizeof numbers);
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(other), numbers);
}

static void score_tile(const Tile *tile, const Queries *queries, int64_t size, v16 *scores) {
    for (int64_t j = 0; j < KEYS; j += 8) {
        __m512 s[8];
        for (int i = 0; i < 8; i++) s[i] = _mm512_setzero_ps();
        for (int64_t d = 0; d < size; d += 2)
            for (int i = 0; i < 8; i++) {
                uint32_t both;
                memcpy(&both, tile->rows + (j + i) * tile->stride + d, sizeof both);
                s[i] = add_products(s[i], queries->pairs[d / 2], both);
            }
        memcpy(scores + j, s, sizeof s);
    }
}

/* sums[lane][d] += weights[key][lane] * value[key][d] over two tiles of keys, of the first lanes. */
static void add_tiles(const Tile *tiles, const v16 *weights, int64_t size, int64_t num_lanes,
                      Sums *sums) {
    Pairs pairs;
    read_pairs(tiles, weights, size, &pairs);
    for (int64_t lane = 0; lane < num_lanes; lane += 4)
        for (int64_t d = 0; d < size; d += LANES) {
            __m512 s[4];
            for (int i = 0; i < 4; i++) memcpy(s + i, sums->of[lane + i] + d, sizeof *s);
            for (int64_t pair = 0; pair < KEYS; pair++)
                for (int i = 0; i < 4; i++)
                    s[i] = add_products(s[i], pairs.values[d / LANES][pair],
                                        pairs.factor[lane + i][pair]);
            for (int i = 0; i < 4; i++) memcpy(sums->of[lane + i] + d, s + i, sizeof *s);
        }
}

#else

typedef struct {
    v16 of[MAX_HEAD];
} Queries;

static void read_queries(const Attention *a, const Unit *u, Queries *queries) {
    for (int64_t lane = 0; lane < LANES; lane++) {
        const bf16 *from = query_of(a, u, lane);
        for (int64_t d = 0; d < a->size; d++) {
            uint32_t bits = (uint32_t)from[d] << 16;
            memcpy((float *)&queries->of[d] + lane, &bits, sizeof bits);
        }
    }
}

static void widen(const Tile *tile, int64_t size, float *to) {
    for (int64_t j = 0; j < tile->count; j++)
        for (int64_t d = 0; d < size; d += LANES) {
            v16 numbers = load(tile->rows + j * tile->stride + d);
            memcpy(to + j * size + d, &numbers, sizeof numbers);
        }
    memset(to + tile->count * size, 0, (KEYS - tile->count) * size * sizeof *to);
}

static void score_tile(const Tile *tile, const Queries *queries, int64_t size, v16 *scores) {
    float keys[KEYS * MAX_HEAD] __attribute__((aligned(64)));
    widen(tile, size, keys);
    for (int64_t j = 0; j < KEYS; j += 8) {
        v16 s[8] = {0};
        for (int64_t d = 0; d < size; d++)
            for (int i = 0; i < 8; i++) s[i] += queries->of[d] * keys[(j + i) * size + d];
        memcpy(scores + j, s, sizeof s);
    }
}

/* sums[lane][d] += weights[key][lane] * value[key][d] over two tiles of keys, of the first lanes. */
static void add_tiles(const Tile *tiles, const v16 *weights, int64_t size, int64_t num_lanes,
                      Sums *sums) {
    float values[2 * KEYS * MAX_HEAD] __attribute__((aligned(64)));
    widen(tiles, size, values);
    widen(tiles + 1, size, values + KEYS * size);
    for (int64_t lane = 0; lane < num_lanes; lane += 4)
        for (int64_t d = 0; d < size; d += LANES) {
            v16 s[4];
            for (int i = 0; i < 4; i++) memcpy(s + i, sums->of[lane + i] + d, sizeof *s);
            for (int64_t j = 0; j < 2 * KEYS; j++) {
                v16 value;
                memcpy(&value, values + j * size + d, sizeof value);
                for (int i = 0; i < 4; i++) s[i] += weights[j][lane + i] * value;
            }
            for (int i = 0; i < 4; i++) memcpy(sums->of[lane + i] + d, s + i, sizeof *s);
        }
}

#endif

/* Scores of all keys, their highest, then the weighted sum of values: two walks over the keys. */
static void attend(const Attention *a, const Unit *u) {
    int64_t groups = a->heads / a->key_heads, size = a->size;
    bf16 spare[2 * KEYS * MAX_HEAD] __attribute__((aligned(64)));
    Queries queries;
    Sums sums;
    v16 *scores = (v16 *)scratch_of((u->num_keys + 2 * KEYS) * LANES);
    const v16 zero = {0}, least = zero - INFINITY;
    v16 highest = least, total = zero;
    i16 last_key;
    for (int64_t lane = 0; lane < LANES; lane++) {
        int64_t index = u->first_lane + (lane < u->num_lanes ? lane : 0);
        last_key[lane] = (int32_t)(u->place + index / groups);
    }
    read_queries(a, u, &queries);
    for (int64_t key = 0; key < u->num_keys; key += KEYS) {
        Tile tile = tile_of(a, u, a->keys, key, spare);
        score_tile(&tile, &queries, size, scores + key);
        for (int64_t j = key; j < key + KEYS; j++) {
            scores[j] = blend((i16)(last_key < (int32_t)j), least, scores[j] * a->scaling);
            highest = blend((i16)(scores[j] > highest), scores[j], highest);
        }
    }
    for (int64_t lane = 0; lane < LANES; lane++) memset(sums.of[lane], 0, size * sizeof(float));
    for (int64_t key = 0; key < u->num_keys; key += 2 * KEYS) {
        Tile tiles[2] = {tile_of(a, u, a->values, key, spare), {.count = 0}};
        if (key + KEYS < u->num_keys)
            tiles[1] = tile_of(a, u, a->values, key + KEYS, spare + KEYS * MAX_HEAD);
        else
            for (int64_t j = 0; j < KEYS; j++) scores[key + KEYS + j] = least;
        for (int64_t j = key; j < key + 2 * KEYS; j++)
            total += scores[j] = exp_of(scores[j] - highest);
        add_tiles(tiles, scores + key, size, u->num_lanes, &sums);
    }
    for (int64_t lane = 0; lane < u->num_lanes; lane++) {
        int64_t index = u->first_lane + lane;
        int64_t head = u->key_head * groups + index % groups;
        bf16 *to = a->out + ((u->first_token + index / groups) * a->heads + head) * size;
        for (int64_t d = 0; d < size; d += LANES) {
            v16 numbers;
            memcpy(&numbers, sums.of[lane] + d, sizeof numbers);
            store(to + d, numbers / total[lane]);
        }
    }
}

static Unit unit_of(const Attention *a, int64_t piece, int64_t key_head, int64_t first_lane) {
    const int32_t *facts = a->pieces + 3 * piece;
    int64_t groups = a->heads / a->key_heads, num_lanes = facts[1] * groups - first_lane;
    Unit unit = {.table = a->tables + piece * a->table_width,
                 .key_head = key_head,
                 .first_token = facts[0],
                 .first_lane = first_lane,
                 .num_lanes = num_lanes < LANES ? num_lanes : LANES,
                 .place = facts[2]};
    unit.num_keys = unit.place + (first_lane + unit.num_lanes - 1) / groups + 1;
    return unit;
}

/* Cache the new keys and values of a layer, then attend. */
void specdec_attend(const Attention *a) {
    int64_t row_size = a->key_heads * a->size, groups = a->heads / a->key_heads;
    for (int64_t t = 0; t < a->num_tokens; t++) {
        int64_t row = a->write_index[t] * row_size;
        memcpy(a->keys + row, a->new_keys + t * a->key_stride, row_size * sizeof(bf16));
        memcpy(a->values + row, a->new_values + t * a->value_stride, row_size * sizeof(bf16));
    }
    int64_t most = 0; /* units of the longest piece */
    for (int64_t p = 0; p < a->num_pieces; p++) {
        int64_t units = (a->pieces[3 * p + 1] * groups + LANES - 1) / LANES;
        most = units > most ? units : most;
    }
    int64_t num_units = a->num_pieces * a->key_heads * most;
#pragma omp parallel
    {
        begin_tiles();
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < num_units; i++) {
            /* The last chunks first: they see the most keys. */
            int64_t chunk = most - 1 - i / (a->num_pieces * a->key_heads);
            int64_t piece = i / a->key_heads % a->num_pieces;
            if (a->pieces[3 * piece + 1] * groups <= chunk * LANES) continue;
            Unit unit = unit_of(a, piece, i % a->key_heads, chunk * LANES);
            attend(a, &unit);
        }
        end_tiles();
    }
}

#ifdef MULTIPLIES_PAIRS

/* Outputs of a block of packed weights: [I / 32][2][16 pairs of inputs][16 outputs][2]. */
#define OUTPUTS 32

static const bf16 no_bias[OUTPUTS];

/* A product [M, I] x [I, O]. */
typedef struct {
    const bf16 *x, *weights, *bias;
    bf16 *out;
    int64_t rows, inputs, outputs;
    const bf16 *last; /* of AMX: the rows behind the last whole tile, and zeros */
} Product;

static const bf16 *block_of(const Product *p, int64_t block) {
    return p->weights + block * OUTPUTS * p->inputs;
}

/* Write a row's sums of a block. */
static inline void put(const Product *p, int64_t row, int64_t block, v16 low, v16 high) {
    const bf16 *bias = p->bias ? p->bias + block * OUTPUTS : no_bias;
    low += load(bias);
    high += load(bias + LANES);
    __m512bh both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    memcpy(p->out + row * p->outputs + block * OUTPUTS, &both, sizeof both);
}

#ifdef __AMX_BF16__

/* What is read next is asked for by so many bytes before; the rest of a page the machine foresees. */
#define AHEAD 1024

/* The sums of four tiles, [16 rows][16 outputs] each. */
typedef float Sums4[4][256] __attribute__((aligned(64)));

static inline void ask_for(const bf16 *weights) {
    for (int line = 0; line < 32; line++)
        _mm_prefetch((const char *)weights + AHEAD + 64 * line, _MM_HINT_T0);
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
        _tile_loadd(1, first, 64);
        _tile_dpbf16ps(4, 0, 1);
        _tile_loadd(2, second, 64);
        _tile_dpbf16ps(6, 0, 2);
        _tile_loadd(3, first + 512, 64);
        _tile_dpbf16ps(5, 0, 3);
        _tile_loadd(1, second + 512, 64);
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
        _tile_loadd(2, weights, 64);
        _tile_dpbf16ps(4, 0, 2);
        _tile_loadd(1, more_rows + i, inputs * sizeof(bf16));
        _tile_dpbf16ps(6, 1, 2);
        _tile_loadd(3, weights + 512, 64);
        _tile_dpbf16ps(5, 0, 3);
        _tile_dpbf16ps(7, 1, 3);
    }
    end_sums(sums);
}

/* The rows behind the last whole tile, and zeros. */
static const bf16 *last_tile(const Product *p) {
    int64_t num_left = p->rows % 16;
    if (!num_left) return NULL;
    bf16 *last = (bf16 *)scratch_of(16 * p->inputs);
    memcpy(last, p->x + (p->rows - num_left) * p->inputs, num_left * p->inputs * sizeof *last);
    memset(last + num_left * p->inputs, 0, (16 - num_left) * p->inputs * sizeof *last);
    return last;
}

static const bf16 *tile_of_rows(const Product *p, int64_t first) {
    return first + 16 <= p->rows ? p->x + first * p->inputs : p->last;
}

/* Write the sums of a tile of rows, from row `first` on, times a block. */
static void put_tile(const Product *p, int64_t first, int64_t block, float sums[2][256]) {
    for (int64_t j = 0; j < 16 && first + j < p->rows; j++) {
        v16 low, high;
        memcpy(&low, sums[0] + j * LANES, sizeof low);
        memcpy(&high, sums[1] + j * LANES, sizeof high);
        put(p, first + j, block, low, high);
    }
}

/* All rows times two blocks, or times one that is named twice. */
static void multiply(const Product *p, int64_t block, int64_t other) {
    Sums4 sums;
    int64_t row = 0;
    for (; row + 16 < p->rows; row += 32)
        for (int64_t b = block; b <= other; b++) {
            multiply_two_tiles(tile_of_rows(p, row), tile_of_rows(p, row + 16), p->inputs,
                               block_of(p, b), row == 0, sums);
            put_tile(p, row, b, sums);
            put_tile(p, row + 16, b, sums + 2);
        }
    if (row < p->rows) {
        multiply_two_blocks(tile_of_rows(p, row), p->inputs, block_of(p, block), block_of(p, other),
                            sums);
        put_tile(p, row, block, sums);
        put_tile(p, row, other, sums + 2);
    }
}

#else

/* What is read next is asked for by so many bytes before. */
#define AHEAD 3072
/* Rows that are multiplied at once: two sums of each and block stay in registers. */
#define ROWS 12
#define ROWS_OF_TWO_BLOCKS 6

#define INLINE static inline __attribute__((always_inline))

/* `count` rows from `first` on times `num_blocks` blocks, both known when this is compiled. A sum
 * takes its pairs of inputs in their order, whatever the counts. */
INLINE void multiply_rows(const Product *p, int64_t first, const int count, const int64_t *blocks,
                          const int num_blocks) {
    const bf16 *x = p->x + first * p->inputs;
    const bf16 *weights[2] = {block_of(p, blocks[0]), block_of(p, blocks[1])};
    __m512 sums[ROWS][4];
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int b = 0; b < 2 * num_blocks; b++) sums[r][b] = _mm512_setzero_ps();
    for (int64_t i = 0; i < p->inputs; i += 32)
#pragma GCC unroll 2
        for (int pair = 0; pair < 16; pair++) {
            __m512bh vectors[4];
#pragma GCC unroll 4
            for (int b = 0; b < 2 * num_blocks; b++) {
                const bf16 *from = weights[b / 2] + 32 * i + b % 2 * 512 + pair * 32;
                _mm_prefetch((const char *)from + AHEAD, _MM_HINT_T0);
                memcpy(vectors + b, from, sizeof *vectors);
            }
#pragma GCC unroll 12
            for (int r = 0; r < count; r++) {
                int32_t both;
                memcpy(&both, x + r * p->inputs + i + 2 * pair, sizeof both);
                __m512bh numbers = (__m512bh)_mm512_set1_epi32(both);
#pragma GCC unroll 4
                for (int b = 0; b < 2 * num_blocks; b++)
                    sums[r][b] = _mm512_dpbf16_ps(sums[r][b], numbers, vectors[b]);
            }
        }
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 2
        for (int b = 0; b < num_blocks; b++)
            put(p, first + r, blocks[b], (v16)sums[r][2 * b], (v16)sums[r][2 * b + 1]);
}

/* Few rows wait for memory, and two places of it are read faster than one. */
static void multiply_few(const Product *p, int64_t first, int64_t count, const int64_t *blocks) {
    switch (count) {
    case 0: return;
    case 1: return multiply_rows(p, first, 1, blocks, 2);
    case 2: return multiply_rows(p, first, 2, blocks, 2);
    case 3: return multiply_rows(p, first, 3, blocks, 2);
    case 4: return multiply_rows(p, first, 4, blocks, 2);
    case 5: return multiply_rows(p, first, 5, blocks, 2);
    default: return multiply_rows(p, first, 6, blocks, 2);
    }
}

static void multiply_many(const Product *p, int64_t first, int64_t count, const int64_t *block) {
    switch (count) {
    case 6: return multiply_rows(p, first, 6, block, 1);
    case 7: return multiply_rows(p, first, 7, block, 1);
    case 8: return multiply_rows(p, first, 8, block, 1);
    case 9: return multiply_rows(p, first, 9, block, 1);
    case 10: return multiply_rows(p, first, 10, block, 1);
    case 11: return multiply_rows(p, first, 11, block, 1);
    default: return multiply_rows(p, first, 12, block, 1);
    }
}

/* All rows times two blocks, or times one that is named twice. */
static void multiply(const Product *p, int64_t block, int64_t other) {
    if (p->rows <= ROWS_OF_TWO_BLOCKS) {
        const int64_t blocks[2] = {block, other};
        multiply_few(p, 0, p->rows, blocks);
        return;
    }
    int64_t num_groups = (p->rows + ROWS - 1) / ROWS;
    for (int64_t b = block; b <= other; b++)
        for (int64_t group = 0; group < num_groups; group++) {
            int64_t first = p->rows * group / num_groups;
            int64_t count = p->rows * (group + 1) / num_groups - first;
            const int64_t alone[2] = {b, b};
            multiply_many(p, first, count, alone);
        }
}

#endif

/* out [M, O] = x [M, I] times packed weights, plus a bias [O] unless it is NULL. */
void specdec_linear(const bf16 *x, const bf16 *weights, const bf16 *bias, bf16 *out, int64_t rows,
                    int64_t inputs, int64_t outputs) {
    int64_t num_blocks = outputs / OUTPUTS;
    Product product = {x, weights, bias, out, rows, inputs, outputs, NULL};
#ifdef __AMX_BF16__
    product.last = last_tile(&product);
#endif
#pragma omp parallel
    {
        int64_t count = omp_get_num_threads(), thread = omp_get_thread_num();
        int64_t begin = num_blocks * thread / count, end = num_blocks * (thread + 1) / count;
        begin_tiles();
        for (int64_t block = begin; block < end; block += 2)
            multiply(&product, block, block + 1 < end ? block + 1 : block);
        end_tiles();
    }
}

/* One layer's weights and pools; what a model does not have is NULL. */
typedef struct {
    const bf16 *attention_norm, *qkv, *qkv_bias, *query_norm, *key_norm, *output, *output_bias;
    const bf16 *mlp_norm, *gate_up, *gate_up_bias, *down, *down_bias;
    bf16 *keys, *values;
} Layer;

/* All layers of a pass. x [T, E] holds the embeddings; what is to be added to it in the end is left
 * in `update`. The rest is room: normed [T, E], heads [T, (H + 2 K) D], mixed [T, H D],
 * gate_up [T, 2 I], gated [T, I]. */
typedef struct {
    const Layer *layers;
    bf16 *x, *update, *normed, *heads, *mixed, *gate_up, *gated;
    const bf16 *cosine, *sine;
    const int64_t *write_index;
    const int32_t *pieces, *tables;
    int64_t num_layers, num_tokens, num_pieces, table_width, block_size;
    int64_t width, mlp_width, num_heads, key_heads, size;
    float epsilon, head_epsilon, scaling;
} Pass;

static void run_layer(const Pass *p, const Layer *layer, int is_first) {
    int64_t tokens = p->num_tokens, all_heads = (p->num_heads + 2 * p->key_heads) * p->size;
    specdec_add_norm(p->x, is_first ? NULL : p->update, layer->attention_norm, p->normed, tokens,
                     p->width, p->epsilon);
    specdec_linear(p->normed, layer->qkv, layer->qkv_bias, p->heads, tokens, p->width, all_heads);
    specdec_turn(p->heads, p->cosine, p->sine, layer->query_norm, layer->key_norm, tokens,
                 all_heads, p->num_heads, p->key_heads, p->size, p->head_epsilon);
    const bf16 *new_keys = p->heads + p->num_heads * p->size;
    Attention attention = {.query = p->heads,
                           .new_keys = new_keys,
                           .new_values = new_keys + p->key_heads * p->size,
                           .query_stride = all_heads,
                           .key_stride = all_heads,
                           .value_stride = all_heads,
                           .keys = layer->keys,
                           .values = layer->values,
                           .write_index = p->write_index,
                           .out = p->mixed,
                           .pieces = p->pieces,
                           .tables = p->tables,
                           .num_tokens = tokens,
                           .num_pieces = p->num_pieces,
                           .table_width = p->table_width,
                           .block_size = p->block_size,
                           .heads = p->num_heads,
                           .key_heads = p->key_heads,
                           .size = p->size,
                           .scaling = p->scaling};
    specdec_attend(&attention);
    specdec_linear(p->mixed, layer->output, layer->output_bias, p->update, tokens,
                   p->num_heads * p->size, p->width);
    specdec_add_norm(p->x, p->update, layer->mlp_norm, p->normed, tokens, p->width, p->epsilon);
    specdec_linear(p->normed, layer->gate_up, layer->gate_up_bias, p->gate_up, tokens, p->width,
                   2 * p->mlp_width);
    specdec_gate(p->gate_up, p->gated, tokens, p->mlp_width);
    specdec_linear(p->gated, layer->down, layer->down_bias, p->update, tokens, p->mlp_width,
                   p->width);
}

void specdec_run_layers(const Pass *p) {
    for (int64_t l = 0; l < p->num_layers; l++) run_layer(p, p->layers + l, l == 0);
}

int specdec_has_linear(void) { return 1; }

#else

void specdec_linear(const bf16 *x, const bf16 *weights, const bf16 *bias, bf16 *out, int64_t rows,
                    int64_t inputs, int64_t outputs) {
    (void)x, (void)weights, (void)bias, (void)out, (void)rows, (void)inputs, (void)outputs;
    abort();
}

typedef struct Pass Pass;

void specdec_run_layers(const Pass *p) {
    (void)p;
    abort();
}

int specdec_has_linear(void) { return 0; }

#endif

/* Ask the system for what the kernels need, once per process; 0 if it was given. */
int specdec_prepare(void) {
#ifdef __AMX_BF16__
    const int request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request, tile_data) != 0;
#else
    return 0;
#endif
}
