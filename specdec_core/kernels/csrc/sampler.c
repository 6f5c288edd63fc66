/* The coupled choice of sampling.py on a CPU: one walk over a row's logits, few over parts of it.
 *
 * What PyTorch computes is bounded, not repeated: exponentials and logarithms differ by library in
 * their last bits. Where the bounds leave two ids or a cut open, the row is UNDECIDED and PyTorch
 * decides it. What is compared exactly (logits, their differences, x, hashes) is the same float32
 * and integer arithmetic there and here.
 *
 * Letters as in sampling/filters.py: z logit, x = (z - max) / T; here d = z - max <= 0, in float32. The
 * stable order is x down, then id up. native_choice.py builds this file and calls it.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "team.h"

/* Numbers of the widest vector that this machine compares at once: of wider ones the compiler
 * compares one number after the other. */
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#define BLOCK 64
#define GREEDY_BLOCK 512
/* What a sampled row costs, in greedy ones, and the cost below which a second thread takes over
 * less than waking it takes. */
#define SAMPLED_COST 8
#define PARALLEL_COST 16

#define NO_CHOICE -1
#define UNDECIDED -2

/* Of sampling/gumbel.py. */
#define LARGEST_UNIFORM 0x1.fffffep-1f
#define LARGEST_NOISE 22.1808f
/* Bounds by how much the noise of PyTorch's float32 differs from the true logarithms. */
#define NOISE_ERROR 0x1p-16
/* Bounds the rounding of a product or sum of two float32 numbers, twice over. */
#define ROUNDING 0x1p-23
/* Bounds what a sum of approximate exponentials is off by, as a share of it. */
#define MASS_ERROR 0x1p-14
/* Masses are cut to integers, in such units of the greatest. */
#define MASS_UNIT 0x1p-32
/* Blocks whose masses are summed in float32, before they meet the others in float64. */
#define BLOCKS_A_SUM 64
/* Temperatures below it are left to PyTorch: a quotient by them says little. */
#define LEAST_TEMPERATURE 1e-30f

typedef uint16_t bf16;
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
typedef uint64_t longs __attribute__((vector_size(4 * LANES)));

/* What a row of logits is chosen by; `_ROW` of native_choice.py. */
typedef struct {
    const void *logits;
    uint64_t seed, position;
    double top_p;  /* 1 keeps all */
    int64_t top_k; /* 0 keeps all */
    float temperature, min_x;
    int64_t is_bf16; /* else float32 */
} Row;

/* A row in float32, padded with -inf to whole blocks. */
typedef struct {
    const float *z;
    const float *greatest; /* of each block; -inf behind the last one */
    float *spare;          /* room for as many numbers as the row has */
    int64_t num_ids, num_blocks, best_block;
    float max, temperature;
    uint32_t key_low, key_high;
} Logits;

/* The ids u with d(u) >= (u < end ? at : above): a beginning of the stable order. at <= above. */
typedef struct {
    float at, above;
    int32_t end;
} Prefix;

static const union {
    int32_t numbers[16];
    ints vector;
} lanes = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

static inline floats load(const float *from) {
    floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline floats widen(const bf16 *from) {
    halves half;
    memcpy(&half, from, sizeof half);
    return (floats)(__builtin_convertvector(half, words) << 16);
}

static inline floats blend(ints mask, floats yes, floats no) {
    return (floats)(((ints)yes & mask) | ((ints)no & ~mask));
}

static inline floats greater(floats a, floats b) { return blend((ints)(a > b), a, b); }

/* What d must reach for the ids of a vector from `first` on to be in a prefix. */
static inline floats least_in(Prefix prefix, int64_t first) {
    const floats none = {0};
    if (first + LANES <= prefix.end) return none + prefix.at;
    if (first >= prefix.end) return none + prefix.above;
    return blend((ints)(lanes.vector + (int32_t)first < prefix.end), none + prefix.at, none + prefix.above);
}

/* By halves: lane by lane it takes three times as long. */
static inline float max_of(floats x) {
    float of[LANES];
    memcpy(of, &x, sizeof x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) of[i] = of[i] > of[i + half] ? of[i] : of[i + half];
    return of[0];
}

static inline double sum_of(floats x) {
    double sum = 0.0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

static inline int any_of(ints mask) {
    longs pairs = (longs)mask;
    uint64_t any = 0;
    for (int i = 0; i < LANES / 2; i++) any |= pairs[i];
    return any != 0;
}

static inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float *room_of(int64_t count) {
    static _Thread_local float *room;
    static _Thread_local int64_t size;
    if (count > size) {
        free(room);
        size = (count + BLOCK - 1) / BLOCK * BLOCK;
        room = aligned_alloc(64, size * sizeof *room);
        if (!room) abort();
    }
    return room;
}

/* 64 logits in float32; -inf behind the last one. */
static inline void read_block(const Row *row, int64_t first, int64_t num_ids, float *z) {
    const float *wide = (const float *)row->logits + first;
    const bf16 *half = (const bf16 *)row->logits + first;
    if (first + BLOCK <= num_ids) {
        for (int i = 0; i < BLOCK; i += LANES) {
            floats numbers = row->is_bf16 ? widen(half + i) : load(wide + i);
            memcpy(z + i, &numbers, sizeof numbers);
        }
        return;
    }
    for (int i = 0; i < BLOCK; i++)
        z[i] = first + i >= num_ids ? -INFINITY
               : row->is_bf16       ? from_bits((uint32_t)half[i] << 16)
                                    : wide[i];
}

/* Whether the row has a finite greatest logit and nothing that is no number. */
static int read_row(const Row *row, int64_t num_ids, Logits *logits) {
    int64_t num_blocks = (num_ids + BLOCK - 1) / BLOCK;
    int64_t num_padded = (num_blocks + LANES - 1) / LANES * LANES;
    float *z = room_of(2 * num_blocks * BLOCK + num_padded);
    float *greatest = z + num_blocks * BLOCK;
    ints is_nan = {0};
    float max = -INFINITY;
    int64_t best_block = 0;
    for (int64_t b = 0; b < num_blocks; b++) {
        float *block = z + b * BLOCK;
        read_block(row, b * BLOCK, num_ids, block);
        floats most = load(block);
        is_nan |= (ints)(most != most);
        for (int i = LANES; i < BLOCK; i += LANES) {
            floats numbers = load(block + i);
            is_nan |= (ints)(numbers != numbers);
            most = greater(numbers, most);
        }
        greatest[b] = max_of(most);
        if (greatest[b] > max) max = greatest[b], best_block = b;
    }
    for (int64_t b = num_blocks; b < num_padded; b++) greatest[b] = -INFINITY;
    *logits = (Logits){.z = z,
                       .greatest = greatest,
                       .spare = greatest + num_padded,
                       .num_ids = num_ids,
                       .num_blocks = num_blocks,
                       .best_block = best_block,
                       .max = max,
                       .temperature = row->temperature};
    return isfinite(max) && !any_of(is_nan);
}

/* Of seeds.py. */
static uint64_t finalise(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t mix(uint64_t seed, uint64_t counter) {
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    return finalise(finalise(seed + golden) + golden * (counter + 1));
}

/* Of sampling/gumbel.py: 31 random bits of each of the ids of a vector. */
static inline words hash_of(const Logits *l, int64_t first) {
    const words steps = (words)lanes.vector * 0x9E3779B1u;
    words x = steps + ((uint32_t)first * 0x9E3779B1u + l->key_low);
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= l->key_high;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    x ^= x >> 16;
    return x & 0x7FFFFFFFu;
}

static double noise_of(uint32_t hash) {
    float w = ((float)(int32_t)hash + 0.5f) * 0x1p-31f;
    w = w < LARGEST_UNIFORM ? w : LARGEST_UNIFORM;
    return -log(-log1p(-(double)w));
}

/* The best id so far and what the others can reach.
 *
 * Noise g = -log(-log1p(-w)) <= -log(w), and the bits of a float32, taken for a number, are a chord
 * below its logarithm: with x for those of the hash, g <= log(2) * (158 - x / 2^23). So an id can
 * have the score `low` only if z - slope * x >= bar. */
typedef struct {
    int64_t id;
    double low, high; /* bounds of its score in PyTorch */
    double rival;     /* no other has a higher one */
    float floor;      /* not above `low` */
    float slope, bar;
} Best;

#define LOG_2 0.6931471805599453

static float below(double x) { return nextafterf((float)x, -INFINITY); }

/* `bar` leaves room for the rounding of its two sides: of what is of the logits' size, and of what
 * is of the noise's. */
static void raise_bar(Best *best, const Logits *l, double low) {
    double t = l->temperature, sizes = fabs(l->max) + fabs(low) + 160.0 * t;
    best->low = low;
    best->floor = below(low);
    best->bar = below(low - t * (158.0 * LOG_2 + 0x1p-12) - 2.0 * ROUNDING * sizes);
}

static void meet(Best *best, const Logits *l, int64_t id, uint32_t hash) {
    double noise = l->temperature * noise_of(hash), score = noise + l->z[id];
    double error = l->temperature * NOISE_ERROR +
                   ROUNDING * (fabs(noise) + fabs(score)) + FLT_MIN;
    if (score - error <= best->low) {
        best->rival = fmax(best->rival, score + error);
        return;
    }
    best->rival = fmax(best->rival, best->high);
    best->id = id;
    best->high = score + error;
    raise_bar(best, l, score - error);
}

static void meet_block(Best *best, const Logits *l, Prefix open, int64_t block) {
    words hashes[BLOCK / LANES];
    ints hits[BLOCK / LANES], any = {0};
    for (int i = 0; i < BLOCK / LANES; i++) {
        int64_t first = block * BLOCK + i * LANES;
        floats z = load(l->z + first);
        hashes[i] = hash_of(l, first);
        floats bits = __builtin_convertvector((ints)__builtin_convertvector((ints)hashes[i], floats), floats);
        hits[i] = (ints)(z - l->max >= least_in(open, first)) & (ints)(z - bits * best->slope >= best->bar);
        any |= hits[i];
    }
    if (!any_of(any)) return;
    for (int i = 0; i < BLOCK; i++)
        if (hits[i / LANES][i % LANES])
            meet(best, l, block * BLOCK + i, hashes[i / LANES][i % LANES]);
}

/* The open id that scores highest, or UNDECIDED. */
static int64_t best_of(const Logits *l, Prefix open) {
    Best best = {.id = UNDECIDED,
                 .low = -INFINITY,
                 .high = -INFINITY,
                 .rival = -INFINITY,
                 .floor = -FLT_MAX,
                 .slope = (float)(l->temperature * LOG_2 * 0x1p-23),
                 .bar = -FLT_MAX};
    float reach = l->temperature * (LARGEST_NOISE + 0x1p-12f);
    meet_block(&best, l, open, l->best_block);
    for (int64_t b = 0; b < l->num_blocks; b++)
        if (b != l->best_block && l->greatest[b] - l->max >= open.at &&
            l->greatest[b] + reach >= best.floor)
            meet_block(&best, l, open, b);
    return best.low > best.rival ? best.id : UNDECIDED;
}

/* A float32 as an integer: of two numbers the greater has the greater key. Numbers that are none
 * lie above infinity or below -infinity. */
#define INFINITE_KEY 0x7F800000
static inline int32_t key_of(uint32_t bits) {
    return (int32_t)(bits ^ (uint32_t)((int32_t)bits >> 31) >> 1);
}

static inline int32_t key_at(const Row *row, int64_t id, const int is_bf16) {
    return key_of(is_bf16 ? (uint32_t)((const bf16 *)row->logits)[id] << 16
                          : ((const uint32_t *)row->logits)[id]);
}

/* The lowest id of the greatest logit; the row is read, not copied. Integers, because compilers
 * find their greatest by vectors. Both zeros, keys 0 and -1, are equal. */
static inline __attribute__((always_inline)) int64_t greedy_in(const Row *row, int64_t num_ids,
                                                               const int is_bf16) {
    int32_t least = INT32_MAX, most = INT32_MIN;
    int64_t best = 0;
    for (int64_t first = 0; first < num_ids; first += GREEDY_BLOCK) {
        int64_t end = first + GREEDY_BLOCK < num_ids ? first + GREEDY_BLOCK : num_ids;
        int32_t greatest = INT32_MIN;
        for (int64_t id = first; id < end; id++) {
            int32_t key = key_at(row, id, is_bf16);
            least = key < least ? key : least;
            greatest = key > greatest ? key : greatest;
        }
        greatest += greatest == -1;
        if (greatest > most) most = greatest, best = first;
    }
    if (most >= INFINITE_KEY || most <= ~INFINITE_KEY || least < ~INFINITE_KEY) return NO_CHOICE;
    while (key_at(row, best, is_bf16) < most - (most == 0)) best++;
    return best;
}

static int64_t greedy_of(const Row *row, int64_t num_ids) {
    return row->is_bf16 ? greedy_in(row, num_ids, 1) : greedy_in(row, num_ids, 0);
}

static inline int reaches(uint32_t magnitude, float temperature, float x, int is_more) {
    float quotient = -from_bits(magnitude) / temperature;
    return is_more ? quotient > x : quotient >= x;
}

/* The least difference whose quotient by the temperature is at least x, or more than x. */
static float least_reaching(float x, float temperature, int is_more) {
    uint32_t in = 0, out = 0x7F800000; /* the bits of 0 and infinity */
    if (!reaches(in, temperature, x, is_more)) return INFINITY;
    if (reaches(out, temperature, x, is_more)) return -INFINITY;
    while (out - in > 1) {
        uint32_t middle = in + (out - in) / 2;
        if (reaches(middle, temperature, x, is_more)) in = middle;
        else out = middle;
    }
    return -from_bits(in);
}

/* The ids before `end` in stable order that are at least as probable as x, or before `id`. */
static Prefix before(const Logits *l, float x, int64_t end) {
    return (Prefix){least_reaching(x, l->temperature, 0), least_reaching(x, l->temperature, 1),
                    (int32_t)end};
}

/* How many of `numbers`, whole vectors of logits, lie no more than -least below the greatest. */
static int64_t count_from(const Logits *l, const float *numbers, int64_t count, float least) {
    ints found = {0};
    for (int64_t i = 0; i < count; i += LANES) found += (ints)(load(numbers + i) - l->max >= least);
    int64_t sum = 0;
    for (int i = 0; i < LANES; i++) sum -= found[i];
    return sum;
}

/* Of the same numbers the rank-th difference from above. */
static float difference_at(const Logits *l, const float *numbers, int64_t count, int64_t rank) {
    uint32_t low = 0, high = 0x7F800000;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (count_from(l, numbers, count, -from_bits(middle)) >= rank) high = middle;
        else low = middle + 1;
    }
    return -from_bits(low);
}

/* Copies the logits whose differences are at least that to `spare`, in whole vectors. */
static int64_t gather(const Logits *l, float least) {
    int64_t count = 0;
    for (int64_t b = 0; b < l->num_blocks; b++) {
        if (l->greatest[b] - l->max < least) continue;
        for (int64_t id = b * BLOCK; id < (b + 1) * BLOCK; id++) {
            l->spare[count] = l->z[id];
            count += l->z[id] - l->max >= least;
        }
    }
    while (count % LANES) l->spare[count++] = -INFINITY;
    return count;
}

/* The first `rank` ids, fewer than all. They are not below the rank-th block by their greatest. */
static Prefix first_ids(const Logits *l, int64_t rank) {
    int64_t num_padded = (l->num_blocks + LANES - 1) / LANES * LANES;
    float least = rank > l->num_blocks ? -INFINITY
                                       : difference_at(l, l->greatest, num_padded, rank);
    int64_t count = gather(l, least);
    float last = difference_at(l, l->spare, count, rank);
    Prefix prefix = before(l, last / l->temperature, 0);
    int64_t left = rank - count_from(l, l->spare, count, prefix.above);
    for (int64_t b = 0; left; b++) {
        if (l->greatest[b] - l->max < prefix.at) continue;
        for (int64_t id = b * BLOCK; left && id < (b + 1) * BLOCK; id++) {
            float d = l->z[id] - l->max;
            left -= d >= prefix.at && d < prefix.above;
            prefix.end = (int32_t)(id + 1);
        }
    }
    return prefix;
}

/* The ids of a prefix whose differences are at least that: a prefix too. */
static Prefix no_less(Prefix prefix, float least) {
    prefix.at = fmaxf(prefix.at, least);
    prefix.above = fmaxf(prefix.above, least);
    return prefix;
}

/* What min-p, then top-k keep. */
static Prefix kept_by_rank(const Logits *l, const Row *row) {
    Prefix prefix = {-INFINITY, -INFINITY, 0};
    if (row->top_k && row->top_k < l->num_ids) prefix = first_ids(l, row->top_k);
    return no_less(prefix, least_reaching(row->min_x, l->temperature, 0));
}

/* 2^t for t <= 0 in float32's range, within 2^-18 of it. */
static inline floats power_of_two(floats t) {
    floats shifted = t + 12582912.0f, f = t - (shifted - 12582912.0f);
    floats p = f * 1.3333558e-3f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    return (floats)((words)p + ((words)shifted << 23));
}

/* Sums of e^x over two beginnings of the stable order. */
typedef struct {
    double all, part;
} Mass;

static inline void add_block(const Logits *l, int64_t block, Prefix all, Prefix part, float scale,
                             floats *sums) {
    const floats none = {0};
    for (int i = 0; i < BLOCK; i += LANES) {
        int64_t first = block * BLOCK + i;
        floats d = load(l->z + first) - l->max;
        floats mass = power_of_two(greater(d * scale, none - 100.0f));
        sums[0] += (floats)((ints)mass & (ints)(d >= least_in(all, first)));
        sums[1] += (floats)((ints)mass & (ints)(d >= least_in(part, first)));
    }
}

/* Blocks whose ids together weigh less than 2^-17 of the most probable id may be left out. */
static Mass mass_of(const Logits *l, Prefix all, Prefix part) {
    float scale = 1.44269504f / l->temperature;
    float least = -17.0f - log2f((float)l->num_ids);
    Mass mass = {0.0, 0.0};
    for (int64_t first = 0; first < l->num_blocks; first += BLOCKS_A_SUM) {
        floats sums[2] = {{0}, {0}};
        for (int64_t b = first; b < l->num_blocks && b < first + BLOCKS_A_SUM; b++) {
            float d = l->greatest[b] - l->max;
            if (d >= all.at && d * scale >= least) add_block(l, b, all, part, scale, sums);
        }
        mass.all += sum_of(sums[0]);
        mass.part += sum_of(sums[1]);
    }
    return mass;
}

/* `kept` without ids that top-p drops for certain: all ids from there on weigh 1 - p at most. */
static Prefix without_tail(const Logits *l, Prefix kept, double top_p) {
    return no_less(kept, (float)(l->temperature * (log((1.0 - top_p) / (double)l->num_ids) - 0.01)));
}

/* The best id is kept where the ids before it weigh less than top_p; else it and all behind it are
 * dropped, and the best of those before it is asked. */
static int64_t sample_of(const Logits *l, const Row *row) {
    Prefix kept = kept_by_rank(l, row);
    if (row->top_p >= 1.0) return best_of(l, kept);
    Prefix open = without_tail(l, kept, row->top_p);
    double units = (double)l->num_ids * MASS_UNIT;
    for (;;) {
        int64_t id = best_of(l, open);
        if (id < 0) return id;
        open = before(l, (l->z[id] - l->max) / l->temperature, id);
        Mass mass = mass_of(l, kept, open);
        double most = mass.all * (1.0 + MASS_ERROR), least = mass.all * (1.0 - MASS_ERROR) - units;
        if (mass.part * (1.0 + MASS_ERROR) < row->top_p * least) return id;
        if (mass.part * (1.0 - MASS_ERROR) - units < row->top_p * most) return UNDECIDED;
    }
}

static int64_t choose(const Row *row, int64_t num_ids) {
    Logits logits;
    if (row->temperature == 0.0f) return greedy_of(row, num_ids);
    if (!read_row(row, num_ids, &logits)) return NO_CHOICE;
    if (row->temperature < LEAST_TEMPERATURE) return UNDECIDED;
    uint64_t key = mix(row->seed, row->position);
    logits.key_low = (uint32_t)key;
    logits.key_high = (uint32_t)(key >> 32);
    return sample_of(&logits, row);
}

typedef struct {
    const Row *rows;
    int64_t num_rows, num_ids;
    int64_t *chosen;
} Choices;

static int64_t begin_choices(const void *choices, int64_t stage, void *room) {
    (void)stage;
    memcpy(room, choices, sizeof(Choices));
    return ((const Choices *)choices)->num_rows;
}

static int choose_row(const void *room, uint64_t ticket, int64_t row) {
    const Choices *c = room;
    int64_t id = choose(c->rows + row, c->num_ids);
    if (!commits(ticket, row)) return 0;
    c->chosen[row] = id;
    return 1;
}

/* Whether a second thread takes over more than waking it costs. */
static int is_worth_sharing(const Choices *c) {
    int64_t cost = 0;
    for (int64_t i = 0; i < c->num_rows; i++)
        cost += c->rows[i].temperature == 0.0f ? 1 : SAMPLED_COST;
    return cost >= PARALLEL_COST && c->num_rows <= MAX_UNITS;
}

/* The choice of every row among its first `num_ids` ids. Nobody reads the logits any more when it
 * returns. */
void specdec_choose(const Row *rows, int64_t num_rows, int64_t num_ids, int64_t *chosen,
                    int64_t num_threads) {
    Choices choices = {rows, num_rows, num_ids, chosen};
    if (num_threads < 2 || !is_worth_sharing(&choices)) {
        for (int64_t i = 0; i < num_rows; i++) chosen[i] = choose(rows + i, num_ids);
        return;
    }
    JobKind kind = {.num_stages = 1, .begin = begin_choices, .run = choose_row};
    memcpy(begin_job(sizeof choices), &choices, sizeof choices);
    run_job(kind, num_threads);
    await_threads();
}

/* Rows of one sequence; row j sees the ids before positions[j]. `_Penalties` of native_choice.py. */
typedef struct {
    float *logits;
    int64_t stride, num_ids, num_rows;
    const int32_t *history;
    const int64_t *positions;
    int64_t prompt_len;
    float repetition, frequency, presence;
} Penalties;

/* As PyTorch rounds it: the product of two float32 numbers is exact in float64. */
static inline float penalised(float z, int32_t count, const Penalties *p) {
    z = z > 0.0f ? z / p->repetition : z * p->repetition;
    if (!count) return z;
    float charge = (float)((double)count * (double)p->frequency);
    z -= charge;
    return z - p->presence;
}

/* Repetition over prompt and output, then frequency and presence over the output alone. */
void specdec_penalise(const Penalties *p) {
    int32_t *counts = calloc(p->num_ids, sizeof *counts); /* -1 once an id is done */
    if (!counts) abort();
    for (int64_t j = 0; j < p->num_rows; j++) {
        float *row = p->logits + j * p->stride;
        int64_t position = p->positions[j];
        for (int64_t i = p->prompt_len; i < position; i++) counts[p->history[i]]++;
        for (int64_t i = 0; i < position; i++) {
            int32_t id = p->history[i];
            if (counts[id] < 0) continue;
            row[id] = penalised(row[id], counts[id], p);
            counts[id] = -1;
        }
        for (int64_t i = 0; i < position; i++) counts[p->history[i]] = 0;
    }
    free(counts);
}
