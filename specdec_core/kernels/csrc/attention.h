/* Attention over blocks of keys and values, a unit for some queries that share a key head.
 *
 * Keys are on lanes: a query's score of a key is a sum over the head in its order, whatever the
 * number of queries, so few queries cost little and have the bits of many. Two walks over the keys:
 * scores and their highest, then weights and the weighted sum of values.
 */

#define KEYS 16 /* of a tile */
#define STEP (2 * KEYS) /* keys of a step: two tiles */
#define MAX_HEAD 256
/* Queries of a unit: a tile's where there are tiles, which compute all of it; else many, which share the
 * keys once turned. */
#ifdef __AMX_BF16__
#define MAX_QUERIES 16
#define NUM_COMPUTED(num_queries) MAX_QUERIES
#define MAY_SHARE 0 /* a unit of several key heads: a tile's queries are of one */
#else
#define MAX_QUERIES 48
#define NUM_COMPUTED(num_queries) (num_queries)
#define MAY_SHARE 1
#endif
#define MAX_ROW 1024 /* numbers of a token's key heads where a unit takes all of them */
#ifdef __AVX512F__
#define QUERIES_AT_ONCE 8 /* whose sums stay in registers */
#else
#define QUERIES_AT_ONCE 3
#endif

/* One pass's attention over a layer's pools. T tokens, P pieces. */
typedef struct {
    const bf16 *query; /* tokens are `query_stride` numbers apart */
    int64_t query_stride;
    const bf16 *keys, *values; /* [rows, K, D] */
    bf16 *out; /* [T, H, D] */
    const int32_t *query_ends; /* [P + 1] tokens before each piece, then all of them */
    const int32_t *key_counts; /* [P] keys that the piece's last query sees */
    const int32_t *tables; /* [P, table_width] blocks of the sequence */
    int64_t num_pieces, table_width, block_size, heads, key_heads, size;
    int64_t most_units; /* of a piece and key head */
    int64_t num_threads;
    float scaling;
} Attention;

/* Some queries of each of some key heads. Those of a head count (token, group): those of one token lie
 * behind each other. Query q of the unit is query q % num_queries of head q / num_queries. */
typedef struct {
    const int32_t *table;
    int64_t key_head, num_heads, first_token, first_query, num_queries;
    int64_t place; /* of the piece's first token */
    int64_t num_keys;
} Unit;

/* Sixteen rows of a pool, `stride` numbers apart, of which the first `count` are keys of the unit.*/
typedef struct {
    const bf16 *rows;
    int64_t stride, count;
} Tile;

typedef bf16 Spare[KEYS * MAX_ROW] __attribute__((aligned(64)));

static const bf16 no_row[MAX_ROW];

/* A block is read where it lies, by a unit of one key head; one of all heads copies it to `spare` first, in
 * the order of memory. Keys that lie otherwise are copied to `spare`, [16, D]. */
static Tile tile_of(const Attention *a, const Unit *u, const bf16 *pool, int64_t first_key,
                    bf16 *spare) {
    int64_t left = u->num_keys - first_key, stride = a->key_heads * a->size;
    Tile tile = {.stride = stride, .count = left < KEYS ? (left > 0 ? left : 0) : KEYS};
    const bf16 *head = pool + u->key_head * a->size;
    if (!tile.count) return (Tile){.rows = no_row};
    if (a->block_size == KEYS) {
        tile.rows = head + u->table[first_key / KEYS] * KEYS * stride;
        if (u->num_heads > 1)
            tile.rows = memcpy(spare, tile.rows, KEYS * stride * sizeof *spare);
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

/* Ask for a tile that is read soon; the processor foresees whole blocks by itself. */
static void ask_for_tile(const Attention *a, const Unit *u, const bf16 *pool, int64_t first_key) {
    if (a->block_size != KEYS || first_key >= u->num_keys || u->num_heads > 1) return;
    int64_t stride = a->key_heads * a->size;
    const bf16 *rows = pool + u->key_head * a->size + u->table[first_key / KEYS] * KEYS * stride;
    for (int64_t j = 0; j < KEYS; j++)
        for (int64_t d = 0; d < a->size; d += 32) __builtin_prefetch(rows + j * stride + d);
}

static inline const bf16 *query_of(const Attention *a, const Unit *u, int64_t query) {
    int64_t groups = a->heads / a->key_heads, index = u->first_query + query % u->num_queries;
    int64_t head = u->key_head + query / u->num_queries;
    return a->query + (u->first_token + index / groups) * a->query_stride +
           (head * groups + index % groups) * a->size;
}

typedef uint32_t u8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (i8){__VA_ARGS__})
#endif

/* Eight words of each of eight rows, turned: to[i * to_stride + j] = word i of row j. */
static inline void turn_words(const bf16 *rows, int64_t stride, uint32_t *to, int64_t to_stride) {
    u8 r[8], t[8], u[8];
    for (int j = 0; j < 8; j++) memcpy(r + j, rows + j * stride, sizeof *r);
    for (int j = 0; j < 8; j += 2) {
        t[j] = SHUFFLE(r[j], r[j + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[j + 1] = SHUFFLE(r[j], r[j + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int j = 0; j < 8; j += 4)
        for (int i = 0; i < 2; i++) {
            u[j + 2 * i] = SHUFFLE(t[j + i], t[j + 2 + i], 0, 1, 8, 9, 4, 5, 12, 13);
            u[j + 2 * i + 1] = SHUFFLE(t[j + i], t[j + 2 + i], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        u8 low = SHUFFLE(u[i], u[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
        u8 high = SHUFFLE(u[i], u[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
        memcpy(to + i * to_stride, &low, sizeof low);
        memcpy(to + (4 + i) * to_stride, &high, sizeof high);
    }
}

/* Pairs of numbers of a tile's keys, [D / 2][16 keys]. */
typedef uint32_t Across[MAX_HEAD / 2][KEYS] __attribute__((aligned(64)));

static void read_across(const Tile *tile, int64_t head, int64_t size, Across across) {
    const bf16 *rows = tile->rows + head * size;
    for (int64_t j = 0; j < KEYS; j += 8)
        for (int64_t pair = 0; pair < size / 2; pair += 8)
            turn_words(rows + j * tile->stride + 2 * pair, tile->stride, across[pair] + j, KEYS);
}

/* Pairs of two tiles' values, [16 pairs of keys][D]; keys that are none of the unit's count 0. */
typedef uint32_t ValuePairs[KEYS][MAX_HEAD] __attribute__((aligned(64)));

static void read_value_pairs(const Tile *tiles, int64_t head, int64_t size, ValuePairs pairs) {
    for (int64_t pair = 0; pair < KEYS; pair++) {
        const Tile *tile = tiles + pair / 8;
        int64_t j = 2 * (pair % 8);
        const bf16 *rows = tile->rows + head * size + j * tile->stride;
        const bf16 *even = j < tile->count ? rows : no_row;
        const bf16 *odd = j + 1 < tile->count ? rows + tile->stride : no_row;
        for (int64_t d = 0; d < size; d += LANES) {
            vu both = (vu)load(even + d) >> 16 | (vu)load(odd + d);
            memcpy(pairs[pair] + d, &both, sizeof both);
        }
    }
}

/* What a unit computes with. */
typedef struct {
    Number queries[MAX_QUERIES][MAX_HEAD] __attribute__((aligned(64)));
    Number weights[MAX_QUERIES][STEP] __attribute__((aligned(64))); /* of a step's keys */
    float sums[MAX_QUERIES][MAX_HEAD] __attribute__((aligned(64)));
    float *scores; /* [queries][stride] */
    int64_t stride;
} Work;

#ifdef __AMX_BF16__

static void score_step(Work *w, const Across *across, int64_t size, int64_t first, int64_t end,
                       int64_t key) {
    (void)first, (void)end;
    finish_stores();
    for (int t = 0; t < 2; t++) {
        _tile_zero(2);
        for (int64_t d = 0; d < size; d += 32) {
            _tile_loadd(0, w->queries[0] + d, sizeof *w->queries);
            _tile_loadd(1, across[t][d / 2], 64);
            _tile_dpbf16ps(2, 0, 1);
        }
        _tile_stored(2, w->scores + key + t * KEYS, w->stride * sizeof(float));
    }
}

static void add_step(Work *w, ValuePairs values, int64_t size, int64_t first, int64_t end) {
    (void)first, (void)end;
    finish_stores();
    _tile_loadd(0, w->weights, sizeof *w->weights);
    for (int64_t d = 0; d < size; d += 16) {
        _tile_loadd(2, w->sums[0] + d, sizeof *w->sums);
        _tile_loadd(1, values[0] + d, sizeof *values);
        _tile_dpbf16ps(2, 0, 1);
        _tile_stored(2, w->sums[0] + d, sizeof *w->sums);
    }
}

#else

/* Of `count` queries from `first` on; the count is known when this is compiled. */
INLINE void score_queries(Work *w, const Across *across, int64_t size, int64_t first,
                          const int count, int64_t key) {
    vf sums[QUERIES_AT_ONCE][STEP / LANES];
#pragma GCC unroll 8
    for (int q = 0; q < count; q++)
#pragma GCC unroll 4
        for (int v = 0; v < STEP / LANES; v++) sums[q][v] = (vf){0};
    for (int64_t pair = 0; pair < size / 2; pair++)
#pragma GCC unroll 4
        for (int v = 0; v < STEP / LANES; v++) {
            int place = v * LANES;
            Pairs keys = pairs_of(load_words(across[place / KEYS][pair] + place % KEYS));
#pragma GCC unroll 8
            for (int q = 0; q < count; q++)
                sums[q][v] = add_products(sums[q][v], keys, repeated(w->queries[first + q] + 2 * pair));
        }
#pragma GCC unroll 8
    for (int q = 0; q < count; q++)
        memcpy(w->scores + (first + q) * w->stride + key, sums[q], sizeof *sums);
}

#define SCORE(n) case n: score_queries(w, across, size, first, n, key); break;

static void score_step(Work *w, const Across *across, int64_t size, int64_t first, int64_t end,
                       int64_t key) {
    for (; first < end; first += QUERIES_AT_ONCE) switch (end - first) {
        SCORE(1) SCORE(2)
#if QUERIES_AT_ONCE > 3
        SCORE(3) SCORE(4) SCORE(5) SCORE(6) SCORE(7)
#endif
        default: score_queries(w, across, size, first, QUERIES_AT_ONCE, key);
        }
}

INLINE void add_values(Work *w, ValuePairs values, int64_t size, int64_t first, const int count) {
    for (int64_t d = 0; d < size; d += 32) {
        vf sums[QUERIES_AT_ONCE][32 / LANES];
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) memcpy(sums[q], w->sums[first + q] + d, sizeof *sums);
        for (int64_t pair = 0; pair < KEYS; pair++)
#pragma GCC unroll 4
            for (int v = 0; v < 32 / LANES; v++) {
                Pairs numbers = pairs_of(load_words(values[pair] + d + v * LANES));
#pragma GCC unroll 8
                for (int q = 0; q < count; q++)
                    sums[q][v] =
                        add_products(sums[q][v], numbers, repeated(w->weights[first + q] + 2 * pair));
            }
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) memcpy(w->sums[first + q] + d, sums[q], sizeof *sums);
    }
}

#define ADD(n) case n: add_values(w, values, size, first, n); break;

static void add_step(Work *w, ValuePairs values, int64_t size, int64_t first, int64_t end) {
    for (; first < end; first += QUERIES_AT_ONCE) switch (end - first) {
        ADD(1) ADD(2)
#if QUERIES_AT_ONCE > 3
        ADD(3) ADD(4) ADD(5) ADD(6) ADD(7)
#endif
        default: add_values(w, values, size, first, QUERIES_AT_ONCE);
        }
}

#endif

static const int32_t lane_numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Scale a step's scores, hide keys behind the query's own place; returns the highest with `before`. */
static inline vf heed(float *scores, float scaling, int64_t key, int64_t last_key, vf before) {
    for (int64_t j = 0; j < STEP; j += LANES) {
        vf score = load_floats(scores + j) * scaling;
        if (key + j + LANES - 1 > last_key) {
            vi place;
            memcpy(&place, lane_numbers, sizeof place);
            Mask is_hidden = is_behind(place + (int32_t)(key + j), (vi){0} + (int32_t)last_key);
            score = blend(is_hidden, (vf){0} - INFINITY, score);
        }
        memcpy(scores + j, &score, sizeof score);
        before = larger(score, before);
    }
    return before;
}

static inline int64_t all_queries(const Unit *u) { return u->num_heads * u->num_queries; }

static void begin_unit(const Attention *a, const Unit *u, Work *w) {
    int64_t num_queries = all_queries(u), num_computed = NUM_COMPUTED(num_queries);
    w->stride = (u->num_keys + STEP - 1) / STEP * STEP;
    w->scores = scratch_of(num_computed * w->stride);
    for (int64_t q = 0; q < num_computed; q++) {
        const bf16 *query = q < num_queries ? query_of(a, u, q) : no_row;
        for (int64_t d = 0; d < a->size; d += LANES)
            store_numbers(w->queries[q] + d, load(query + d));
        memset(w->sums[q], 0, a->size * sizeof(float));
        memset(w->weights[q], 0, sizeof w->weights[q]);
    }
}

static void score(const Attention *a, const Unit *u, Work *w, float *highest) {
    int64_t groups = a->heads / a->key_heads;
    vf highest_of[MAX_QUERIES];
    Across across[2];
    Spare spare[2];
    Tile tiles[2];
    for (int64_t q = 0; q < all_queries(u); q++) highest_of[q] = (vf){0} - INFINITY;
    for (int64_t key = 0; key < u->num_keys; key += STEP) {
        for (int t = 0; t < 2; t++) {
            ask_for_tile(a, u, a->keys, key + STEP + t * KEYS);
            tiles[t] = tile_of(a, u, a->keys, key + t * KEYS, spare[t]);
        }
        for (int64_t head = 0; head < u->num_heads; head++) {
            for (int t = 0; t < 2; t++) read_across(tiles + t, head, a->size, across[t]);
            score_step(w, (const Across *)across, a->size, head * u->num_queries,
                       (head + 1) * u->num_queries, key);
        }
        for (int64_t q = 0; q < all_queries(u); q++)
            highest_of[q] =
                heed(w->scores + q * w->stride + key, a->scaling, key,
                     u->place + (u->first_query + q % u->num_queries) / groups, highest_of[q]);
    }
    for (int64_t q = 0; q < all_queries(u); q++) highest[q] = largest_of(highest_of[q]);
}

static void mix(const Attention *a, const Unit *u, Work *w, const float *highest, float *total) {
    vf total_of[MAX_QUERIES];
    ValuePairs values;
    Spare spare[2];
    for (int64_t q = 0; q < all_queries(u); q++) total_of[q] = (vf){0};
    for (int64_t key = 0; key < u->num_keys; key += STEP) {
        Tile tiles[2];
        for (int t = 0; t < 2; t++) {
            ask_for_tile(a, u, a->values, key + STEP + t * KEYS);
            tiles[t] = tile_of(a, u, a->values, key + t * KEYS, spare[t]);
        }
        for (int64_t q = 0; q < all_queries(u); q++)
            for (int64_t j = 0; j < STEP; j += LANES) {
                vf weight = exp_of(load_floats(w->scores + q * w->stride + key + j) - highest[q]);
                total_of[q] += weight;
                store_weights(w->weights[q] + j, weight); /* e^-87 is a normal number */
            }
        for (int64_t head = 0; head < u->num_heads; head++) {
            read_value_pairs(tiles, head, a->size, values);
            add_step(w, values, a->size, head * u->num_queries, (head + 1) * u->num_queries);
        }
    }
    for (int64_t q = 0; q < all_queries(u); q++) total[q] = sum_of(total_of[q]);
}

static int64_t tokens_of(const Attention *a, int64_t piece) {
    return a->query_ends[piece + 1] - a->query_ends[piece];
}

/* Whether a piece's few queries are one unit over all key heads, where there are pieces enough for all
 * threads. A token's heads lie beside each other: a walk for each head skips the others' numbers, and
 * memory gives half of what it gives to one walk over everything. */
static int shares_heads(const Attention *a, int64_t piece) {
    return MAY_SHARE && a->block_size == KEYS && a->key_heads * a->size <= MAX_ROW &&
           tokens_of(a, piece) * a->heads <= MAX_QUERIES &&
           a->num_pieces >= a->num_threads;
}

static Unit unit_of(const Attention *a, int64_t piece, int64_t key_head, int64_t first_query) {
    int64_t groups = a->heads / a->key_heads, num_tokens = tokens_of(a, piece);
    int64_t num_queries = num_tokens * groups - first_query;
    Unit unit = {.table = a->tables + piece * a->table_width,
                 .key_head = key_head,
                 .num_heads = shares_heads(a, piece) ? a->key_heads : 1,
                 .first_token = a->query_ends[piece],
                 .first_query = first_query,
                 .num_queries = num_queries < MAX_QUERIES ? num_queries : MAX_QUERIES,
                 .place = a->key_counts[piece] - num_tokens};
    unit.num_keys = unit.place + (first_query + unit.num_queries - 1) / groups + 1;
    return unit;
}

static int attend(const void *room, uint64_t ticket, int64_t index) {
    const Attention *a = room;
    /* The last queries of all pieces first: they see the most keys. */
    int64_t first_query = (a->most_units - 1 - index / (a->num_pieces * a->key_heads)) * MAX_QUERIES;
    int64_t piece = index / a->key_heads % a->num_pieces, key_head = index % a->key_heads;
    int64_t groups = a->heads / a->key_heads;
    if (tokens_of(a, piece) * groups <= first_query) return commits(ticket, index);
    if (key_head && shares_heads(a, piece)) return commits(ticket, index);
    Unit u = unit_of(a, piece, key_head, first_query);
    Work work;
    float highest[MAX_QUERIES], total[MAX_QUERIES];
    begin_unit(a, &u, &work);
    score(a, &u, &work, highest);
    mix(a, &u, &work, highest, total);
    if (!commits(ticket, index)) return 0;
    for (int64_t q = 0; q < all_queries(&u); q++) {
        int64_t at = u.first_query + q % u.num_queries;
        int64_t head = (u.key_head + q / u.num_queries) * groups + at % groups;
        bf16 *to = a->out + ((u.first_token + at / groups) * a->heads + head) * a->size;
        for (int64_t d = 0; d < a->size; d += LANES)
            store(to + d, load_floats(work.sums[q] + d) / total[q]);
    }
    return 1;
}

static int64_t num_attention_units(Attention *a) {
    int64_t groups = a->heads / a->key_heads;
    a->most_units = 1;
    for (int64_t p = 0; p < a->num_pieces; p++) {
        int64_t units = (tokens_of(a, p) * groups + MAX_QUERIES - 1) / MAX_QUERIES;
        a->most_units = units > a->most_units ? units : a->most_units;
    }
    return a->num_pieces * a->key_heads * a->most_units;
}
