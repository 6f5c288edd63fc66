/* Threads that run the stages of a job together and never wait for one that was preempted.
 *
 * A job is a row of stages, a stage a number of units. Units begin in any order, by any thread; a
 * stage begins when every unit of the one before is done. Whoever finds nothing left to begin waits
 * about as long as a unit takes, then computes again what others have begun and not finished.
 *
 * The invariant that makes this safe: a unit computes in memory of its thread alone, and writes to
 * shared memory only after `commits` has said yes, which it does once per unit. A thread that comes
 * late, even passes later, is told no: it has read what may have changed since, and throws the
 * result away. So a stage may overwrite what earlier ones read, and itself.
 *
 * Threads sleep between jobs. A job's caller is one of its threads and returns when all units are
 * done, wherever the others are; they read a copy of the job that stays while they are in it.
 */

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 64
#define UNIT_BITS 20
#define MAX_UNITS (1 << UNIT_BITS)
/* Jobs whose copies are kept: a thread may be so many behind before a caller waits for it. */
#define NUM_SLOTS 8
/* Room for what a thread knows of the stage that it is at. */
#define STAGE_ROOM 512
/* How long a thread waits for the next job before it sleeps. */
#define IDLE_NS 20000
/* How long it waits for units of others, else as long as its own took, before it computes them. */
#define MIN_PATIENCE_NS 3000
#define MAX_PATIENCE_NS 300000

typedef struct {
    int64_t num_stages;
    /* Fills `room`; returns the stage's number of units, at least 1. */
    int64_t (*begin)(const void *context, int64_t stage, void *room);
    /* Returns whether it has committed. */
    int (*run)(const void *room, uint64_t ticket, int64_t unit);
    /* Before a thread's first unit of the job and after its last; may be NULL. */
    void (*enter)(void);
    void (*leave)(void);
} JobKind;

typedef struct {
    JobKind kind;
    int num_threads;
    uint64_t first_ticket;
    void *context;
    size_t size;
    _Atomic int num_inside; /* threads other than the caller */
} JobSlot;

typedef struct {
    _Alignas(64) _Atomic uint64_t next; /* ticket, then units of the thread's share that are begun */
} Share;

static struct {
    pthread_mutex_t mutex;
    _Alignas(64) _Atomic uint64_t ticket; /* of the open stage: counts those of all jobs */
    _Alignas(64) _Atomic uint64_t num_done; /* units of the open stage */
    _Alignas(64) _Atomic uint32_t num_jobs; /* begun; what idle threads sleep on */
    _Atomic int num_sleeping;
    int num_helpers; /* threads besides callers */
    JobSlot slots[NUM_SLOTS];
    Share shares[MAX_THREADS];
    /* Ticket + 1 of the last stage in which a unit of this number was committed. */
    _Atomic uint64_t committed[MAX_UNITS];
} team = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether the caller is the one who writes the unit's results. */
static inline int commits(uint64_t ticket, int64_t unit) {
    uint64_t last = atomic_load_explicit(&team.committed[unit], memory_order_relaxed);
    return last <= ticket &&
           atomic_compare_exchange_strong(&team.committed[unit], &last, ticket + 1);
}

/* The next unit of a thread's share of a stage, or -1. */
static int64_t take(uint64_t ticket, int64_t num_units, int thread, int num_threads) {
    int64_t first = num_units * thread / num_threads;
    int64_t count = num_units * (thread + 1) / num_threads - first;
    _Atomic uint64_t *next = &team.shares[thread].next;
    uint64_t seen = atomic_load_explicit(next, memory_order_relaxed);
    do {
        int64_t begun = seen & (MAX_UNITS - 1);
        if (seen >> UNIT_BITS != ticket || begun >= count) return -1;
    } while (!atomic_compare_exchange_weak(next, &seen, seen + 1));
    return first + (seen & (MAX_UNITS - 1));
}

static void open_stage(uint64_t ticket, int num_threads) {
    atomic_store_explicit(&team.num_done, 0, memory_order_relaxed);
    for (int i = 0; i < num_threads; i++)
        atomic_store_explicit(&team.shares[i].next, ticket << UNIT_BITS, memory_order_release);
    atomic_store_explicit(&team.ticket, ticket, memory_order_release);
}

static inline uint64_t open_ticket(void) {
    return atomic_load_explicit(&team.ticket, memory_order_acquire);
}

typedef struct {
    const JobSlot *slot;
    const void *room;
    uint64_t ticket;
    int64_t num_units;
    int thread;
} Stage;

static void run_unit(const Stage *s, int64_t unit) {
    if (!s->slot->kind.run(s->room, s->ticket, unit)) return;
    if (atomic_fetch_add(&team.num_done, 1) + 1 == (uint64_t)s->num_units)
        open_stage(s->ticket + 1, s->slot->num_threads);
}

/* Units that are there to begin: those of the thread's own share, one behind the other, then those
 * of others. Returns the mean time of one. */
static int64_t run_units(const Stage *s) {
    int64_t unit, count = 0, began = now_ns();
    for (int i = 0; i < s->slot->num_threads; i++) {
        int whose = (s->thread + i) % s->slot->num_threads;
        for (; (unit = take(s->ticket, s->num_units, whose, s->slot->num_threads)) >= 0; count++)
            run_unit(s, unit);
    }
    return count ? (now_ns() - began) / count : 0;
}

static int is_open(uint64_t ticket) { return open_ticket() == ticket; }

/* Wait for the stage's end; whoever is late is not waited for. */
static void finish_stage(const Stage *s, int64_t unit_ns) {
    int64_t patience = unit_ns < MAX_PATIENCE_NS ? unit_ns : MAX_PATIENCE_NS;
    if (patience < MIN_PATIENCE_NS) patience = MIN_PATIENCE_NS;
    while (is_open(s->ticket)) {
        for (int64_t end = now_ns() + patience; is_open(s->ticket) && now_ns() < end;)
            for (int i = 0; i < 16 && is_open(s->ticket); i++) relax();
        int64_t first = s->num_units * s->thread / s->slot->num_threads;
        for (int64_t i = 0; i < s->num_units && is_open(s->ticket); i++) {
            int64_t unit = (first + i) % s->num_units;
            if (atomic_load_explicit(&team.committed[unit], memory_order_relaxed) <= s->ticket)
                run_unit(s, unit);
        }
        if (is_open(s->ticket)) sched_yield();
    }
}

static void run_stages(const JobSlot *slot, int thread) {
    _Alignas(64) char room[STAGE_ROOM];
    Stage stage = {.slot = slot, .room = room, .thread = thread};
    uint64_t end = slot->first_ticket + slot->kind.num_stages;
    if (slot->kind.enter) slot->kind.enter();
    while ((stage.ticket = open_ticket()) < end) {
        stage.num_units =
            slot->kind.begin(slot->context, stage.ticket - slot->first_ticket, room);
        finish_stage(&stage, run_units(&stage));
    }
    if (slot->kind.leave) slot->kind.leave();
}

static uint32_t await_job(uint32_t last) {
    for (int64_t end = now_ns() + IDLE_NS; now_ns() < end; relax())
        if (atomic_load(&team.num_jobs) != last) return atomic_load(&team.num_jobs);
    atomic_fetch_add(&team.num_sleeping, 1);
    while (atomic_load(&team.num_jobs) == last)
        syscall(SYS_futex, &team.num_jobs, FUTEX_WAIT_PRIVATE, last, NULL, NULL, 0);
    atomic_fetch_sub(&team.num_sleeping, 1);
    return atomic_load(&team.num_jobs);
}

static void *help(void *argument) {
    int thread = (int)(intptr_t)argument;
    for (uint32_t job = 0;;) {
        job = await_job(job);
        JobSlot *slot = team.slots + job % NUM_SLOTS;
        atomic_fetch_add(&slot->num_inside, 1);
        /* Unless the slot may have been given to a later job. */
        if (atomic_load(&team.num_jobs) == job && thread < slot->num_threads)
            run_stages(slot, thread);
        atomic_fetch_sub(&slot->num_inside, 1);
    }
    return NULL;
}

/* A forked child has none of its parent's threads. */
static void forget_threads(void) {
    pthread_mutex_init(&team.mutex, NULL);
    team.num_helpers = 0;
    team.num_sleeping = 0;
    for (int i = 0; i < NUM_SLOTS; i++) team.slots[i].num_inside = 0;
}

__attribute__((constructor)) static void heed_forks(void) {
    pthread_atfork(NULL, NULL, forget_threads);
}

/* A thread that takes no signals: those are for the program's own. */
static int begin_thread(int number) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, help, (void *)(intptr_t)number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error || pthread_detach(thread);
}

/* As many threads as asked for, the caller among them, or as there can be. */
static int begin_threads(int num_threads) {
    if (num_threads > MAX_THREADS) num_threads = MAX_THREADS;
    for (; team.num_helpers < num_threads - 1; team.num_helpers++)
        if (begin_thread(team.num_helpers + 1)) return team.num_helpers + 1;
    return num_threads > 1 ? num_threads : 1;
}

static void await_empty(const JobSlot *slot) {
    while (atomic_load(&slot->num_inside)) sched_yield();
}

/* Room of `size` bytes for the next job's context, until `run_job`, which has to follow. */
static void *begin_job(size_t size) {
    pthread_mutex_lock(&team.mutex);
    JobSlot *slot = team.slots + (atomic_load(&team.num_jobs) + 1) % NUM_SLOTS;
    await_empty(slot);
    if (size > slot->size) {
        free(slot->context);
        slot->size = (2 * size + 63) / 64 * 64;
        slot->context = aligned_alloc(64, slot->size);
        if (!slot->context) abort();
    }
    return slot->context;
}

/* Run the job whose context was filled; returns when all of its units are done. */
static void run_job(JobKind kind, int num_threads) {
    JobSlot *slot = team.slots + (atomic_load(&team.num_jobs) + 1) % NUM_SLOTS;
    slot->kind = kind;
    slot->num_threads = begin_threads(num_threads);
    slot->first_ticket = open_ticket();
    open_stage(slot->first_ticket, slot->num_threads);
    atomic_fetch_add(&team.num_jobs, 1);
    if (slot->num_threads > 1 && atomic_load(&team.num_sleeping))
        syscall(SYS_futex, &team.num_jobs, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
    run_stages(slot, 0);
    pthread_mutex_unlock(&team.mutex);
}

/* Return when no thread reads anything that a job was given. */
static void await_threads(void) {
    pthread_mutex_lock(&team.mutex);
    for (int i = 0; i < NUM_SLOTS; i++) await_empty(team.slots + i);
    pthread_mutex_unlock(&team.mutex);
}
