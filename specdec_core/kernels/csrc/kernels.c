/* A pass of a decoder of Llama's shape in bfloat16 on a CPU: one call, one job of the team.
 *
 * A token's result never depends on the tokens that share its pass: sums run in one order, whatever
 * the number of rows, threads or keys, and lanes that are left over compute like the others and are
 * thrown away.
 *
 * Shapes: T tokens, N of them wanted, E width, H query heads, K key-value heads, G = H / K, D head
 * size, I width of the MLP. E, D and I are multiples of 16, those of linears of 32.
 * kernels/ops.py builds this file and calls it.
 */

#include "numbers.h"
#include "team.h"

#include "attention.h"
#include "products.h"

/* Numbers that are worth a unit of their own in the small operations. */
#define UNIT_NUMBERS 2048

static int64_t num_units_of(int64_t rows, int64_t width) {
    int64_t units = rows * width / UNIT_NUMBERS;
    return units < 1 ? 1 : units > rows ? rows : units;
}

/* row / rms(row), rounded, then times the weight (arXiv 1910.07467). */
static inline void normalise(const bf16 *row, const bf16 *weight, bf16 *out, int64_t width,
                             float epsilon) {
    vf squares = {0};
    for (int64_t i = 0; i < width; i += LANES) {
        vf x = load(row + i);
        squares += x * x;
    }
    float scale = 1.0f / sqrtf(sum_of(squares) / (float)width + epsilon);
    for (int64_t i = 0; i < width; i += LANES)
        store(out + i, round_trip(load(row + i) * scale) * load(weight + i));
}

/* The norm of x + update, kept in `sum` unless that is NULL. Row t is of x and update the row
 * index[t], unless that is NULL. All are [T, E]. */
typedef struct {
    const bf16 *x, *update, *weight;
    const int64_t *index;
    bf16 *sum, *out;
    int64_t rows, width, num_units;
    float epsilon;
} Norm;

static int run_norm(const void *room, uint64_t ticket, int64_t unit) {
    const Norm *n = room;
    int64_t first = n->rows * unit / n->num_units, width = n->width;
    int64_t count = n->rows * (unit + 1) / n->num_units - first;
    bf16 *sums = (bf16 *)scratch_of(count * width), *normed = sums + count * width;
    for (int64_t t = 0; t < count; t++) {
        int64_t row = (n->index ? n->index[first + t] : first + t) * width;
        for (int64_t i = 0; i < width; i += LANES) {
            vf x = load(n->x + row + i);
            store(sums + t * width + i, n->update ? x + load(n->update + row + i) : x);
        }
        normalise(sums + t * width, n->weight, normed + t * width, width, n->epsilon);
    }
    if (!commits(ticket, unit)) return 0;
    if (n->sum) memcpy(n->sum + first * width, sums, count * width * sizeof *sums);
    memcpy(n->out + first * width, normed, count * width * sizeof *normed);
    return 1;
}

/* Turn a head to its place (arXiv 2104.09864): number i pairs with i + D / 2. */
static inline void turn(bf16 *head, const bf16 *cosine, const bf16 *sine, int64_t size) {
    bf16 *other = head + size / 2;
    for (int64_t i = 0; i < size / 2; i += LANES) {
        vf a = load(head + i), b = load(other + i);
        vf turned_a = round_trip(a * load(cosine + i)) - round_trip(b * load(sine + i));
        vf turned_b = round_trip(b * load(cosine + size / 2 + i)) +
                       round_trip(a * load(sine + size / 2 + i));
        store(head + i, turned_a);
        store(other + i, turned_b);
    }
}

/* Turn the query and key heads of tokens, whose rows begin with them, `stride` numbers apart; norms
 * of the heads come first, where there are any. With pools the keys and values behind the queries go
 * there and the turned keys nowhere else. */
typedef struct {
    bf16 *heads;
    int64_t stride;
    const bf16 *cosine, *sine; /* [.., D]; NULL: heads are turned already */
    const int64_t *places; /* rows of those; NULL: the tokens' own numbers */
    const bf16 *query_norm, *key_norm;
    bf16 *keys, *values; /* pools [rows, K, D], or NULL */
    const int64_t *write_index; /* row of the pools of each token */
    int64_t tokens, query_heads, key_heads, size, num_units;
    float epsilon;
} Turn;

static void turn_token(const Turn *t, int64_t token, bf16 *heads) {
    int64_t place = (t->places ? t->places[token] : token) * t->size;
    for (int64_t h = 0; h < t->query_heads + t->key_heads; h++) {
        bf16 *head = heads + h * t->size;
        const bf16 *norm = h < t->query_heads ? t->query_norm : t->key_norm;
        if (norm) normalise(head, norm, head, t->size, t->epsilon);
        turn(head, t->cosine + place, t->sine + place, t->size);
    }
}

static int run_turn(const void *room, uint64_t ticket, int64_t unit) {
    const Turn *t = room;
    int64_t first = t->tokens * unit / t->num_units, end = t->tokens * (unit + 1) / t->num_units;
    int64_t num_turned = (t->query_heads + t->key_heads) * t->size;
    bf16 *turned = (bf16 *)scratch_of((end - first) * num_turned);
    for (int64_t token = first; token < end; token++) {
        bf16 *own = turned + (token - first) * num_turned;
        memcpy(own, t->heads + token * t->stride, num_turned * sizeof *own);
        turn_token(t, token, own);
    }
    if (!commits(ticket, unit)) return 0;
    int64_t row_size = t->key_heads * t->size, query_size = t->query_heads * t->size;
    for (int64_t token = first; token < end; token++) {
        const bf16 *own = turned + (token - first) * num_turned;
        bf16 *heads = t->heads + token * t->stride;
        memcpy(heads, own, (t->keys ? query_size : num_turned) * sizeof *own);
        if (!t->keys) continue;
        int64_t row = t->write_index[token] * row_size;
        memcpy(t->keys + row, own + query_size, row_size * sizeof *own);
        memcpy(t->values + row, heads + num_turned, row_size * sizeof *own);
    }
    return 1;
}

/* One layer's weights and pools; what a model does not have is NULL. */
typedef struct {
    const bf16 *attention_norm, *qkv, *qkv_bias, *query_norm, *key_norm, *output, *output_bias;
    const bf16 *mlp_norm, *gate_up, *gate_up_bias, *down, *down_bias;
    bf16 *keys, *values;
} Layer;

/* A model's weights, and memory for the numbers of its passes: T rounded up to whole tiles. */
typedef struct {
    const Layer *layers;
    const bf16 *embedding, *norm, *head, *head_bias; /* head NULL: a pass ends with its norm */
    bf16 *x, *update, *normed, *heads, *mixed, *gated;
    int64_t num_layers, width, mlp_width, num_heads, key_heads, size, vocabulary;
    float epsilon, head_epsilon, scaling;
} Model;

/* A pass: T tokens in P pieces, N of them wanted. */
typedef struct {
    const int64_t *ids, *places, *write_index, *wanted; /* [T], [T], [T], [N] */
    const bf16 *cosine, *sine; /* [places, D] */
    const int32_t *query_ends, *key_counts, *tables; /* as of Attention */
    bf16 *out; /* [N, V] logits, or [N, E] without a head */
    int64_t num_tokens, num_wanted, num_pieces, table_width, block_size, num_threads;
} Pass;

/* What the threads read: a copy of all. */
typedef struct {
    Model model;
    Pass pass;
} Context;

enum { NORM, QKV, TURN, ATTEND, OUTPUT, MLP_NORM, GATE_UP, DOWN, STAGES_OF_LAYER };

/* A stage and how its units are run. */
typedef struct {
    int (*run)(const void *facts, uint64_t ticket, int64_t unit);
    _Alignas(16) char facts[STAGE_ROOM - 32];
} Operation;

static int run_operation(const void *room, uint64_t ticket, int64_t unit) {
    const Operation *operation = room;
    return operation->run(operation->facts, ticket, unit);
}

static int64_t begin_norm(Operation *o, Norm norm) {
    norm.num_units = num_units_of(norm.rows, norm.width);
    o->run = run_norm;
    memcpy(o->facts, &norm, sizeof norm);
    return norm.num_units;
}

static int64_t begin_product(Operation *o, Product product, int64_t num_threads) {
    int64_t num_units = num_product_units(&product, (int)num_threads);
    o->run = run_product;
    memcpy(o->facts, &product, sizeof product);
    return num_units;
}

static int64_t begin_turn(Operation *o, Turn turn) {
    turn.num_units = num_units_of(turn.tokens, turn.stride);
    o->run = run_turn;
    memcpy(o->facts, &turn, sizeof turn);
    return turn.num_units;
}

static int64_t begin_attention(Operation *o, Attention attention) {
    int64_t num_units = num_attention_units(&attention);
    o->run = attend;
    memcpy(o->facts, &attention, sizeof attention);
    return num_units;
}

static int64_t begin_ending(const Context *c, int is_head, Operation *o) {
    const Model *m = &c->model;
    const Pass *p = &c->pass;
    if (is_head)
        return begin_product(o, (Product){.x = m->normed, .weights = m->head, .bias = m->head_bias,
                                          .out = p->out, .rows = p->num_wanted,
                                          .inputs = m->width, .outputs = m->vocabulary},
                             p->num_threads);
    return begin_norm(o, (Norm){.x = m->x, .update = m->update, .weight = m->norm,
                                .index = p->wanted, .out = m->head ? m->normed : p->out,
                                .rows = p->num_wanted, .width = m->width,
                                .epsilon = m->epsilon});
}

static int64_t begin_mixing(const Context *c, const Layer *layer, int stage, Operation *o) {
    const Model *m = &c->model;
    const Pass *p = &c->pass;
    int64_t stride = (m->num_heads + 2 * m->key_heads) * m->size;
    if (stage == TURN)
        return begin_turn(o, (Turn){.heads = m->heads, .stride = stride, .cosine = p->cosine,
                                    .sine = p->sine, .places = p->places,
                                    .query_norm = layer->query_norm, .key_norm = layer->key_norm,
                                    .keys = layer->keys, .values = layer->values,
                                    .write_index = p->write_index, .tokens = p->num_tokens,
                                    .query_heads = m->num_heads, .key_heads = m->key_heads,
                                    .size = m->size, .epsilon = m->head_epsilon});
    return begin_attention(
        o, (Attention){.query = m->heads, .query_stride = stride, .keys = layer->keys,
                       .values = layer->values, .out = m->mixed, .query_ends = p->query_ends,
                       .key_counts = p->key_counts, .tables = p->tables, .num_pieces = p->num_pieces,
                       .table_width = p->table_width, .block_size = p->block_size,
                       .heads = m->num_heads, .key_heads = m->key_heads, .size = m->size,
                       .num_threads = p->num_threads, .scaling = m->scaling});
}

/* A linear of a layer: x [T, inputs] to out. */
static int64_t begin_linear(const Context *c, const Layer *layer, int stage, Operation *o) {
    const Model *m = &c->model;
    int64_t tokens = c->pass.num_tokens, mixed = m->num_heads * m->size;
    int64_t all_heads = mixed + 2 * m->key_heads * m->size;
    Product product = {.x = m->normed, .rows = tokens, .inputs = m->width};
    if (stage == QKV)
        product.weights = layer->qkv, product.bias = layer->qkv_bias, product.out = m->heads,
        product.outputs = all_heads;
    else if (stage == OUTPUT)
        product.x = m->mixed, product.weights = layer->output, product.bias = layer->output_bias,
        product.out = m->update, product.inputs = mixed, product.outputs = m->width;
    else if (stage == GATE_UP)
        product.weights = layer->gate_up, product.bias = layer->gate_up_bias,
        product.out = m->gated, product.outputs = 2 * m->mlp_width, product.is_gated = 1;
    else
        product.x = m->gated, product.weights = layer->down, product.bias = layer->down_bias,
        product.out = m->update, product.inputs = m->mlp_width, product.outputs = m->width;
    return begin_product(o, product, c->pass.num_threads);
}

static int64_t begin_stage_of_pass(const void *context, int64_t stage, void *room) {
    const Context *c = context;
    const Model *m = &c->model;
    Operation *o = room;
    int64_t index = stage / STAGES_OF_LAYER;
    int kind = stage % STAGES_OF_LAYER;
    if (index == m->num_layers) return begin_ending(c, kind, o);
    const Layer *layer = m->layers + index;
    if (kind == TURN || kind == ATTEND) return begin_mixing(c, layer, kind, o);
    if (kind != NORM && kind != MLP_NORM) return begin_linear(c, layer, kind, o);
    int is_first = stage == 0;
    return begin_norm(o, (Norm){.x = is_first ? m->embedding : m->x,
                                .index = is_first ? c->pass.ids : NULL,
                                .update = is_first ? NULL : m->update,
                                .weight = kind == NORM ? layer->attention_norm : layer->mlp_norm,
                                .sum = m->x, .out = m->normed, .rows = c->pass.num_tokens,
                                .width = m->width, .epsilon = m->epsilon});
}

#ifdef __AMX_BF16__

/* Eight tiles of 16 rows of 64 bytes, as LDTILECFG reads them. A constant, not a local variable:
 * `_tile_loadconfig` of GCC tells the compiler of the first 8 bytes only, and GCC 12 leaves out the
 * stores of the others. The processor refuses such a configuration (general protection). */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tiles_config = {.palette = 1, .bytes = {[0 ... 7] = 64}, .rows = {[0 ... 7] = 16}};

static void begin_tiles(void) { _tile_loadconfig(&tiles_config); }

static void end_tiles(void) { _tile_release(); }

#else

#define begin_tiles NULL
#define end_tiles NULL

#endif

/* `count` numbers of `size` bytes behind `*room`, which moves. */
static const void *keep(char **room, const void *from, int64_t count, size_t size) {
    char *to = *room;
    if (count) memcpy(to, from, count * size);
    *room += (count * size + 63) / 64 * 64;
    return to;
}

/* Caches the tokens of the pass and writes what is wanted. */
void specdec_run_pass(const Model *m, const Pass *p) {
    int64_t num_indices = 3 * p->num_tokens + p->num_wanted;
    int64_t num_facts = p->num_pieces * (2 + p->table_width) + 1;
    Context *c = begin_job(sizeof *c + 8 * num_indices + 4 * num_facts + 9 * 64);
    char *room = (char *)(c + 1);
    c->model = *m;
    c->pass = *p;
    room += -(uintptr_t)room % 64;
    c->pass.ids = keep(&room, p->ids, p->num_tokens, sizeof *p->ids);
    c->pass.places = keep(&room, p->places, p->num_tokens, sizeof *p->places);
    c->pass.write_index = keep(&room, p->write_index, p->num_tokens, sizeof *p->write_index);
    c->pass.wanted = keep(&room, p->wanted, p->num_wanted, sizeof *p->wanted);
    c->pass.query_ends = keep(&room, p->query_ends, p->num_pieces + 1, sizeof *p->query_ends);
    c->pass.key_counts = keep(&room, p->key_counts, p->num_pieces, sizeof *p->key_counts);
    c->pass.tables = keep(&room, p->tables, p->num_pieces * p->table_width, sizeof *p->tables);
    int64_t ending = p->num_wanted ? (m->head ? 2 : 1) : 0;
    run_job((JobKind){STAGES_OF_LAYER * m->num_layers + ending, begin_stage_of_pass, run_operation,
                      begin_tiles, end_tiles},
            (int)p->num_threads);
}

/* One operation by itself, for models that have other layers between. */
typedef struct {
    Operation operation;
    int64_t num_units;
} Alone;

static int64_t begin_alone(const void *context, int64_t stage, void *room) {
    const Alone *alone = context;
    (void)stage;
    memcpy(room, &alone->operation, sizeof alone->operation);
    return alone->num_units;
}

/* Returns when no thread reads its operands any more. */
static void run_alone(int64_t num_threads) {
    run_job((JobKind){1, begin_alone, run_operation, begin_tiles, end_tiles}, (int)num_threads);
    await_threads();
}

/* x += update, in place, unless update is NULL; out = the norm of x. All [T, E]. */
void specdec_add_norm(bf16 *x, const bf16 *update, const bf16 *weight, bf16 *out, int64_t tokens,
                      int64_t width, float epsilon, int64_t num_threads) {
    if (!tokens) return;
    Alone *alone = begin_job(sizeof *alone);
    alone->num_units = begin_norm(
        &alone->operation, (Norm){.x = x, .update = update, .weight = weight, .out = out,
                                  .sum = update ? x : NULL, .rows = tokens, .width = width,
                                  .epsilon = epsilon});
    run_alone(num_threads);
}

/* out [T, I] = silu(gate) * up, of rows [gate, up]. */
void specdec_gate(const bf16 *gate_up, bf16 *out, int64_t tokens, int64_t width) {
    for (int64_t t = 0; t < tokens; t++) {
        const bf16 *gate = gate_up + t * 2 * width, *up = gate + width;
        for (int64_t i = 0; i < width; i += LANES)
            store(out + t * width + i, silu(load(gate + i)) * load(up + i));
    }
}

/* Turn the first H + K heads of each token's row of `stride` numbers, in place; cosine and sine are
 * [T, D]. Where the norms of query and key heads are given, they come first. */
void specdec_turn(bf16 *heads, const bf16 *cosine, const bf16 *sine, const bf16 *query_norm,
                  const bf16 *key_norm, int64_t tokens, int64_t stride, int64_t query_heads,
                  int64_t key_heads, int64_t size, float epsilon, int64_t num_threads) {
    if (!tokens) return;
    Alone *alone = begin_job(sizeof *alone);
    alone->num_units = begin_turn(
        &alone->operation, (Turn){.heads = heads, .stride = stride, .cosine = cosine, .sine = sine,
                                  .query_norm = query_norm, .key_norm = key_norm, .tokens = tokens,
                                  .query_heads = query_heads, .key_heads = key_heads, .size = size,
                                  .epsilon = epsilon});
    run_alone(num_threads);
}

/* out [M, O] = x [M, I] times packed weights, plus a bias [O] unless it is NULL. */
void specdec_linear(const bf16 *x, const bf16 *weights, const bf16 *bias, bf16 *out, int64_t rows,
                    int64_t inputs, int64_t outputs, int64_t num_threads) {
    if (!rows) return;
    int64_t whole = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    Alone *alone = begin_job(sizeof *alone + whole * inputs * sizeof *x);
    bf16 *copy = (bf16 *)(alone + 1);
    memcpy(copy, x, rows * inputs * sizeof *x);
    alone->num_units = begin_product(
        &alone->operation, (Product){.x = copy, .weights = weights, .bias = bias, .out = out,
                                     .rows = rows, .inputs = inputs, .outputs = outputs},
        num_threads);
    run_alone(num_threads);
}

typedef struct {
    const bf16 *query, *new_keys, *new_values; /* tokens are *_stride numbers apart */
    int64_t query_stride, key_stride, value_stride;
    bf16 *keys, *values; /* [rows, K, D] */
    const int64_t *write_index; /* [T] row of the pools that each token is written to */
    bf16 *out; /* [T, H, D] */
    const int32_t *query_ends, *key_counts, *tables; /* as of Attention */
    int64_t num_tokens, num_pieces, table_width, block_size, heads, key_heads, size, num_threads;
    float scaling;
} AttentionCall;

/* Cache the new keys and values of a layer, then attend. */
void specdec_attend(const AttentionCall *a) {
    int64_t row_size = a->key_heads * a->size;
    Alone *alone = begin_job(sizeof *alone);
    for (int64_t t = 0; t < a->num_tokens; t++) {
        int64_t row = a->write_index[t] * row_size;
        memcpy(a->keys + row, a->new_keys + t * a->key_stride, row_size * sizeof(bf16));
        memcpy(a->values + row, a->new_values + t * a->value_stride, row_size * sizeof(bf16));
    }
    alone->num_units = begin_attention(
        &alone->operation,
        (Attention){.query = a->query, .query_stride = a->query_stride, .keys = a->keys,
                    .values = a->values, .out = a->out, .query_ends = a->query_ends,
                    .key_counts = a->key_counts, .tables = a->tables,
                    .num_pieces = a->num_pieces, .table_width = a->table_width,
                    .block_size = a->block_size, .heads = a->heads, .key_heads = a->key_heads,
                    .size = a->size, .num_threads = a->num_threads, .scaling = a->scaling});
    run_alone(a->num_threads);
}

/* Return when no thread reads the memory of any pass. */
void specdec_settle(void) { await_threads(); }

/* Ask the system for what the kernels need, and measure what they run by, once per process; 0 if all
 * was given. */
int specdec_prepare(void) { return prepare_products(); }
