/* Jobs whose units fall asleep anywhere, for test_team.py. */

#include "../../specdec_core/kernels/csrc/team.h"

#define WIDTH 8 /* numbers of a unit */

typedef struct {
    uint64_t *numbers; /* [2][num_units][WIDTH]; stages take turns with the two */
    int64_t num_units, num_stages;
    int64_t sleep_every, sleep_us; /* one half of a unit of so many sleeps */
    int64_t is_careless;           /* writes what it is told to throw away */
} Facts;

typedef struct {
    Facts facts;
    int64_t stage;
} Room;

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
static int64_t units(const Facts *f, int64_t stage) {
    return stage % 5 == 3 ? 1 : stage % 2 ? f->num_units : f->num_units / 2 + 1;
}

static int64_t begin(const void *context, int64_t stage, void *room) {
    Room mine = {*(const Facts *)context, stage};
    memcpy(room, &mine, sizeof mine);
    return units(&mine.facts, stage);
}

static uint64_t *buffer_of(const Facts *f, int64_t stage) {
    return f->numbers + stage % 2 * f->num_units * WIDTH;
}

/* Every number depends on the whole buffer of the stage before. */
static int run(const void *room, uint64_t ticket, int64_t unit) {
    const Facts *f = &((const Room *)room)->facts;
    int64_t stage = ((const Room *)room)->stage;
    const uint64_t *from = buffer_of(f, stage + 1);
    uint64_t *to = buffer_of(f, stage) + unit * WIDTH, sum = mixed(stage * 1000003 + unit);
    if (!is_inside) abort();
    for (int64_t i = 0; i < f->num_units * WIDTH; i++) sum = mixed(sum + from[i]);
    perhaps_sleep(f);
    atomic_fetch_add(&num_computed, 1);
    int is_mine = commits(ticket, unit);
    if (!is_mine && !f->is_careless) return 0;
    for (int i = 0; i < WIDTH; i++) {
        if (i == WIDTH / 2) perhaps_sleep(f);
        to[i] = mixed(sum + i);
    }
    return is_mine;
}

static void enter(void) { is_inside = 1; }
static void leave(void) { is_inside = 0; }

/* Jobs close behind each other, over what the one before has left: threads may still be in that.
 * Returns how many units were computed. */
int64_t stress_run(const Facts *facts, int64_t num_jobs, int64_t num_threads) {
    JobKind kind = {facts->num_stages, begin, run, enter, leave};
    num_computed = 0;
    for (int64_t i = 0; i < num_jobs; i++) {
        memcpy(begin_job(sizeof *facts), facts, sizeof *facts);
        run_job(kind, num_threads);
    }
    await_threads();
    return num_computed;
}
