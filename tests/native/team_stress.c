/* Jobs whose units fall asleep anywhere, for test_team.py. */

#include <string.h>

#include "../../specdec_core/team.h"

#define WIDTH 8 /* numbers of a unit */

typedef struct {
    uint64_t *numbers; /* [num_buffers][num_units][WIDTH]; stages take turns with the buffers */
    int64_t num_units, num_buffers;
    int64_t sleep_every, sleep_us; /* one half of a unit of so many sleeps */
} Facts;

static _Thread_local uint64_t dice;
static _Thread_local int is_inside;
static _Atomic int64_t num_computed;

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void perhaps_sleep(const Facts *f) {
    if (!dice) dice = (uint64_t)(uintptr_t)&dice;
    dice = mixed(dice + 0x9E3779B97F4A7C15u);
    if (f->sleep_every && dice % f->sleep_every == 0) usleep(dice / f->sleep_every % f->sleep_us);
}

/* Stages differ in size, and some have one unit. */
static int64_t units(const void *facts, int64_t stage) {
    int64_t num_units = ((const Facts *)facts)->num_units;
    return stage % 5 == 3 ? 1 : stage % 2 ? num_units : num_units / 2 + 1;
}

static uint64_t *buffer_of(const Facts *f, int64_t stage) {
    return f->numbers + (stage + 1) % f->num_buffers * f->num_units * WIDTH;
}

/* Every number depends on all of the stage before. */
static void compute(const void *facts, int64_t stage, int64_t unit, void *room) {
    const Facts *f = facts;
    if (!is_inside) abort();
    const uint64_t *from = buffer_of(f, stage - 1);
    uint64_t sum = mixed(stage * 1000003 + unit), *out = room;
    int64_t count = (stage ? units(f, stage - 1) : f->num_units) * WIDTH;
    for (int64_t i = 0; i < count; i++) sum = mixed(sum + from[i]);
    perhaps_sleep(f);
    for (int i = 0; i < WIDTH; i++) out[i] = mixed(sum + i);
    atomic_fetch_add(&num_computed, 1);
}

static void commit(const void *facts, int64_t stage, int64_t unit, const void *room) {
    const Facts *f = facts;
    uint64_t *to = buffer_of(f, stage) + unit * WIDTH;
    memcpy(to, room, WIDTH / 2 * sizeof *to);
    perhaps_sleep(f);
    memcpy(to + WIDTH / 2, (const uint64_t *)room + WIDTH / 2, WIDTH / 2 * sizeof *to);
}

static void enter(void) { is_inside = 1; }
static void leave(void) { is_inside = 0; }

/* `ring` may be more than there are buffers: then results are to be wrong. Returns how many units
 * were computed. */
int64_t stress_run(const Facts *facts, int64_t num_stages, int64_t ring, int64_t num_threads) {
    TeamJob job = {.units = units,
                   .compute = compute,
                   .commit = commit,
                   .enter = enter,
                   .leave = leave,
                   .facts = facts,
                   .num_stages = num_stages,
                   .ring = ring,
                   .room_bytes = WIDTH * sizeof(uint64_t)};
    int64_t before = num_computed;
    team_run(&job, num_threads);
    return num_computed - before;
}
