/* Threads that work through a job together, and survive company.
 *
 * A job is a row of stages, a stage some units. Units are taken one by one from a shared counter,
 * and a stage begins when all units of the one before it are done, by anybody. A thread that finds
 * nothing left to take waits a little, then computes again what others have taken and not
 * finished: whoever is preempted holds nobody up before the end of the job.
 *
 * What makes that safe: a unit has two halves. `compute` reads what earlier stages left and writes
 * nothing but a private room of its thread; `commit` copies from there to where later stages read.
 * A thread that wakes up late has computed from memory that may have changed since. So before it
 * commits it asks whether its stage still runs and its unit is still open, and if not drops what it
 * has. What is committed was therefore computed while its stage ran, and all who commit a unit
 * write the same bytes. A job keeps to this:
 *   - no unit reads what a unit of its own stage commits: nothing is changed in place;
 *   - the units of a stage commit to different memory;
 *   - what stages commit are no indices or lengths: a late `compute` may read any bytes there.
 * One hazard is left: a thread preempted within `commit` goes on later, with the right bytes, in
 * memory that a later stage may have committed to in the meantime. So a stage begins only when
 * nobody is any more in a commit of the stage `ring` before it, or of an earlier one; and memory
 * that stage s commits to is committed to again by stage s + ring at the earliest. A commit takes
 * well below a microsecond: that check hardly ever has to wait.
 *
 * A job ends when no thread is within one of its units: what belongs to it may then be freed. One
 * caller at a time has the team; another one works alone meanwhile, with the same result. Included
 * by one C file of a library; its threads are that library's. A fork has none and starts its own.
 */

#ifndef SPECDEC_TEAM_H
#define SPECDEC_TEAM_H

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TEAM_MAX_THREADS 64
#define TEAM_MAX_UNITS 0x3FFF   /* of a stage */
#define TEAM_MAX_STAGES 0xFFFE /* of a job */

/* What a thread without a job spins before it sleeps: about what waking it takes. */
#define TEAM_IDLE_NS 50000
/* What it waits for units of others, beyond the time of its own last unit, before it computes them
 * itself. */
#define TEAM_PATIENCE_NS 3000

typedef struct {
    /* How many units a stage has, from 1 on. */
    int64_t (*units)(const void *facts, int64_t stage);
    void (*compute)(const void *facts, int64_t stage, int64_t unit, void *room);
    void (*commit)(const void *facts, int64_t stage, int64_t unit, const void *room);
    /* Called by each thread around its units; may be NULL. */
    void (*enter)(void), (*leave)(void);
    const void *facts;
    int64_t num_stages, ring;
    int64_t room_bytes; /* of the room of a thread, aligned to a page; what is in it is not kept */
} TeamJob;

/* What a member is doing; from 0 on: committing to that stage. While not OUT it may look at the
 * job, and the job does not end. */
#define TEAM_OUT ((int64_t)-2)
#define TEAM_IN ((int64_t)-1)

typedef struct {
    _Alignas(64) _Atomic int64_t state;
    int64_t index;
    int64_t unit_ns; /* what its last unit took */
    void *room;
    int64_t room_bytes;
} TeamMember;

/* Where the job stands, in one word, so that a unit is taken and a stage is ended in one step. From
 * above: 20 bits of the job's number, 16 of the stage, 14 of units taken, 14 of units done. */
#define TEAM_ONE_TAKEN ((uint64_t)1 << 14)
#define TEAM_CLOSED 0xFFFF /* the stage of no job */

static struct {
    _Alignas(64) _Atomic uint64_t word;
    _Alignas(64) _Atomic int64_t clear; /* nobody commits to this stage or to an earlier one */
    _Alignas(64) _Atomic uint32_t calls; /* jobs so far: what sleepers look at */
    _Atomic uint32_t num_sleepers;
    _Alignas(64) atomic_flag is_busy;
    _Atomic int64_t num_threads; /* the caller and those that were started */
    int64_t num_wanted;          /* how many of them may take part */
    uint64_t job_number;
    TeamJob job;
    TeamMember members[TEAM_MAX_THREADS];
    /* By unit, the last stage of the last job in which it was done: a number that only grows. */
    _Atomic uint64_t done[TEAM_MAX_UNITS];
} team = {.word = (uint64_t)TEAM_CLOSED << 28, .is_busy = ATOMIC_FLAG_INIT, .num_threads = 1};

static inline uint64_t team_word(int64_t stage) {
    return team.job_number << 44 | (uint64_t)stage << 28;
}
static inline int64_t team_stage(uint64_t word) { return word >> 28 & 0xFFFF; }
static inline int64_t team_taken(uint64_t word) { return word >> 14 & TEAM_MAX_UNITS; }
static inline int64_t team_done(uint64_t word) { return word & TEAM_MAX_UNITS; }
static inline uint64_t team_tag(int64_t stage) { return team.job_number << 16 | (uint64_t)stage; }

static inline int64_t team_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void team_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The next turn of a wait for a thread that may be preempted. */
static inline void team_rest(int64_t *turns) {
    if (++*turns < 64) team_pause();
    else sched_yield();
}

static void *team_room(TeamMember *me, int64_t bytes) {
    if (bytes > me->room_bytes) {
        free(me->room);
        me->room_bytes = (bytes + 4095) / 4096 * 4096;
        me->room = aligned_alloc(4096, me->room_bytes);
        if (!me->room) abort();
    }
    return me->room;
}

/* Count a unit; the last one of a stage begins the next. */
static void team_finish(int64_t stage) {
    int64_t num_units = team.job.units(team.job.facts, stage);
    uint64_t next, word = atomic_load(&team.word);
    do next = team_done(word) + 1 == num_units ? team_word(stage + 1) : word + 1;
    while (!atomic_compare_exchange_weak(&team.word, &word, next));
}

static void team_run_unit(TeamMember *me, int64_t stage, int64_t unit) {
    uint64_t tag = team_tag(stage), last;
    void *room = team_room(me, team.job.room_bytes);
    team.job.compute(team.job.facts, stage, unit, room);
    atomic_store(&me->state, stage);
    last = atomic_load(&team.done[unit]);
    if (last < tag && team_stage(atomic_load(&team.word)) == stage) {
        team.job.commit(team.job.facts, stage, unit, room);
        if (atomic_compare_exchange_strong(&team.done[unit], &last, tag)) team_finish(stage);
    }
    atomic_store(&me->state, TEAM_IN);
}

/* Whether nobody commits any more to stage - ring or to an earlier one. Whoever wants to later is
 * refused: its stage does not run. */
static int team_is_clear(int64_t stage) {
    int64_t clear = atomic_load(&team.clear), least = stage - team.job.ring;
    if (clear >= least) return 1;
    int64_t found = stage - 1, count = atomic_load(&team.num_threads);
    for (int64_t i = 0; i < count; i++) {
        int64_t state = atomic_load(&team.members[i].state);
        if (state >= 0 && state <= found) found = state - 1;
    }
    while (clear < found && !atomic_compare_exchange_weak(&team.clear, &clear, found)) continue;
    return found >= least;
}

/* A unit of the stage that is not done, or -1. Members begin to look at different ones. */
static int64_t team_open_unit(const TeamMember *me, int64_t stage, int64_t num_units) {
    int64_t first = num_units * me->index / team.num_wanted;
    for (int64_t i = 0; i < num_units; i++) {
        int64_t unit = (first + i) % num_units;
        if (atomic_load(&team.done[unit]) < team_tag(stage)) return unit;
    }
    return -1;
}

/* Whether the job is open, and then `me` is in it. */
static int team_enter(TeamMember *me) {
    atomic_store(&me->state, TEAM_IN);
    if (team_stage(atomic_load(&team.word)) != TEAM_CLOSED) return 1;
    atomic_store(&me->state, TEAM_OUT);
    return 0;
}

/* Wait outside of the job, a while, for the word to change; whether it did. */
static int team_sees_change(TeamMember *me, uint64_t word) {
    int64_t until = 0;
    atomic_store(&me->state, TEAM_OUT);
    for (int turn = 1;; turn++) {
        if (atomic_load(&team.word) != word) return 1;
        team_pause();
        if (turn % 16) continue;
        int64_t now = team_now();
        if (!until) until = now + me->unit_ns + TEAM_PATIENCE_NS;
        if (now > until) return 0;
    }
}

/* All units of the stage are taken: wait for those who did, or do one of theirs. Whether `me` is
 * still in the job. */
static int team_help(TeamMember *me, uint64_t word, int64_t num_units) {
    int has_changed = team_sees_change(me, word);
    if (!team_enter(me)) return 0;
    if (has_changed || atomic_load(&team.word) != word) return 1;
    int64_t unit = team_open_unit(me, team_stage(word), num_units);
    if (unit >= 0) team_run_unit(me, team_stage(word), unit);
    return 1;
}

/* Units as long as there are stages. Entered before; not in the job any more afterwards. */
static void team_work(TeamMember *me) {
    int64_t turns = 0;
    for (;;) {
        uint64_t word = atomic_load(&team.word);
        int64_t stage = team_stage(word), unit = team_taken(word);
        if (stage >= team.job.num_stages) break;
        int64_t num_units = team.job.units(team.job.facts, stage);
        if (unit == num_units) {
            if (!team_help(me, word, num_units)) return;
        } else if (!team_is_clear(stage)) {
            team_rest(&turns);
        } else if (atomic_compare_exchange_strong(&team.word, &word, word + TEAM_ONE_TAKEN)) {
            int64_t started = team_now();
            team_run_unit(me, stage, unit);
            me->unit_ns = team_now() - started;
            turns = 0;
        }
    }
    atomic_store(&me->state, TEAM_OUT);
}

static void team_take_part(TeamMember *me) {
    if (!team_enter(me)) return;
    if (me->index >= team.num_wanted) {
        atomic_store(&me->state, TEAM_OUT);
        return;
    }
    void (*leave)(void) = team.job.leave;
    if (team.job.enter) team.job.enter();
    team_work(me);
    if (leave) leave();
}

/* The count of jobs once it is not `seen` any more. */
static uint32_t team_next_call(uint32_t seen) {
    int64_t until = team_now() + TEAM_IDLE_NS;
    for (int turn = 1; atomic_load(&team.calls) == seen; turn++) {
        team_pause();
        if (turn % 64 == 0 && team_now() > until) break;
    }
    atomic_fetch_add(&team.num_sleepers, 1);
    while (atomic_load(&team.calls) == seen)
        syscall(SYS_futex, &team.calls, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&team.num_sleepers, 1);
    return atomic_load(&team.calls);
}

static void *team_thread(void *member) {
    for (uint32_t seen = 0;;) {
        seen = team_next_call(seen);
        team_take_part((TeamMember *)member);
    }
    return NULL;
}

static void team_forget_threads(void) {
    for (int64_t i = 0; i < TEAM_MAX_THREADS; i++) team.members[i].state = TEAM_OUT;
    team.word = (uint64_t)TEAM_CLOSED << 28;
    team.num_sleepers = 0;
    team.num_threads = 1;
    atomic_flag_clear(&team.is_busy);
}

/* Signals are for the threads of others. */
static int team_start_thread(int64_t index) {
    TeamMember *member = &team.members[index];
    sigset_t all, before;
    pthread_t thread;
    member->state = TEAM_OUT;
    member->index = index;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, team_thread, member);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) pthread_detach(thread);
    return !failed;
}

static void team_have_threads(int64_t count) {
    static int is_prepared;
    if (!is_prepared) is_prepared = !pthread_atfork(NULL, NULL, team_forget_threads);
    while (team.num_threads < count && team_start_thread(team.num_threads)) team.num_threads++;
}

static void team_run_alone(const TeamJob *job, void *room) {
    if (job->enter) job->enter();
    for (int64_t stage = 0; stage < job->num_stages; stage++) {
        int64_t num_units = job->units(job->facts, stage);
        for (int64_t unit = 0; unit < num_units; unit++) {
            job->compute(job->facts, stage, unit, room);
            job->commit(job->facts, stage, unit, room);
        }
    }
    if (job->leave) job->leave();
}

static void team_run_together(const TeamJob *job, int64_t num_threads) {
    team.job = *job;
    team.num_wanted = num_threads;
    team.job_number++;
    atomic_store(&team.clear, -1);
    atomic_store(&team.word, team_word(0));
    atomic_fetch_add(&team.calls, 1);
    if (atomic_load(&team.num_sleepers))
        syscall(SYS_futex, &team.calls, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    team_take_part(&team.members[0]);
    atomic_store(&team.word, team_word(TEAM_CLOSED));
    int64_t turns = 0, count = atomic_load(&team.num_threads);
    for (int64_t i = 1; i < count; i++)
        while (atomic_load(&team.members[i].state) != TEAM_OUT) team_rest(&turns);
}

/* Run the job on this thread and at most num_threads - 1 others. */
static void team_run(const TeamJob *job, int64_t num_threads) {
    if (atomic_flag_test_and_set(&team.is_busy)) {
        TeamMember me = {0};
        team_run_alone(job, team_room(&me, job->room_bytes));
        free(me.room);
        return;
    }
    if (num_threads > TEAM_MAX_THREADS) num_threads = TEAM_MAX_THREADS;
    team_have_threads(num_threads);
    if (num_threads > 1) team_run_together(job, num_threads);
    else team_run_alone(job, team_room(&team.members[0], job->room_bytes));
    atomic_flag_clear(&team.is_busy);
}

#endif
