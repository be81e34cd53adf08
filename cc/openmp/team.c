/* Parallel regions: a pool of threads that lasts, and the regions that they enter. */

#include "team.h"
#include "environment.h"
#include "omp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Threads of the pool wait at a dock for the next region. Each passes it twice a region, with the thread that opens the
 * region: once to begin and once to end, whether it takes part or not. Between the two, and only then, the pool's
 * threads read what is below; between two regions, and only then, the thread that has taken the pool writes it. */
struct dock {
    pthread_barrier_t barrier;
};

static struct {
    pthread_mutex_t mutex; /* For `is_taken`, and for `dock` while threads are made. */
    bool is_taken;
    unsigned threads;
    struct dock *dock;
    struct dock *retired; /* The one before: the last of its threads may still be leaving it. */
    struct team *team;    /* Kept from region to region while the size stays. */
    struct team *running; /* `team`, or none where the threads only move to another dock. */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct region *current;
static _Thread_local struct region outermost;
static _Thread_local int32_t name_of_this;
static _Thread_local int wished_threads;
static _Thread_local struct settings settings_of_this;

_Noreturn void refuse(const char *what) {
    fprintf(stderr, "comb openmp: %s\n", what);
    abort();
}

void *shared_zeros(uint64_t bytes) {
    void *memory;
    if (posix_memalign(&memory, BLOCK_BYTES, bytes) != 0) {
        refuse("no memory left");
    }
    memset(memory, 0, bytes);
    return memory;
}

static struct team *new_team(unsigned size) {
    struct team *team = shared_zeros(sizeof *team);
    team->size = size;
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->changed, NULL);
    if (size > 1) {
        pthread_barrier_init(&team->barrier, NULL, size);
    }
    return team;
}

static void free_team(struct team *team) {
    if (team->size > 1) {
        pthread_barrier_destroy(&team->barrier);
    }
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->mutex);
    free(team);
}

static pthread_key_t end_of_thread;
static pthread_once_t has_key = PTHREAD_ONCE_INIT;

static void leave_outermost(void *team) {
    current = NULL;
    free_team(team);
}

static void make_key(void) { pthread_key_create(&end_of_thread, leave_outermost); }

struct region *current_region(void) {
    if (!current) {
        outermost = (struct region){.team = new_team(1)};
        current = &outermost;
        pthread_once(&has_key, make_key);
        pthread_setspecific(end_of_thread, outermost.team);
    }
    return current;
}

/* Makes the team ready for a region inside the current one of this thread. All its loops are free: their threads have
 * seen the end. */
static void begin_team(struct team *team) {
    const struct team *outer = current_region()->team;
    team->level = outer->level + 1;
    team->active_level = outer->active_level + (team->size > 1);
    team->settings = settings_of_this;
    atomic_store_explicit(&team->singles, 0, memory_order_relaxed);
    for (int i = 0; i < LOOPS_AT_ONCE; i++) {
        team->loops[i].number = 0;
    }
}

void team_barrier(struct team *team) {
    if (team->size > 1) {
        pthread_barrier_wait(&team->barrier);
    }
}

int32_t thread_name(void) { return name_of_this; }

struct settings *settings(void) { return &settings_of_this; }

/* A function may be called with more arguments than it takes: on our machines the caller clears them away. So a few
 * calls do for every number. */
#define EIGHT(a) a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
#define FORTY(a) EIGHT(a), EIGHT((a + 8)), EIGHT((a + 16)), EIGHT((a + 24)), EIGHT((a + 32))

static void call_body(struct team *team, unsigned number) {
    int32_t thread = name_of_this, in_team = (int32_t)number;
    void **a = team->arguments;
    if (team->argument_count <= 8) {
        team->body(&thread, &in_team, EIGHT(a));
    } else if (team->argument_count <= 40) {
        team->body(&thread, &in_team, FORTY(a));
    } else {
        team->body(&thread, &in_team, FORTY(a), FORTY((a + 40)), FORTY((a + 80)));
    }
}

static void enter(struct region *region, struct team *team, unsigned number) {
    *region = (struct region){.outer = current_region(), .team = team, .number = number};
    current = region;
}

/* What a thread sets inside of the region ends with it. */
static void run(struct team *team, unsigned number) {
    struct region region;
    struct settings before = settings_of_this;
    enter(&region, team, number);
    settings_of_this = team->settings;
    call_body(team, number);
    settings_of_this = before;
    current = region.outer;
}

static void *pool_thread(void *number) {
    name_of_this = (int32_t)(intptr_t)number;
    pthread_mutex_lock(&pool.mutex);
    struct dock *dock = pool.dock;
    pthread_mutex_unlock(&pool.mutex);
    for (;;) {
        pthread_barrier_wait(&dock->barrier);
        struct team *team = pool.running;
        struct dock *next = pool.dock;
        if (team && (unsigned)name_of_this < team->size) {
            run(team, (unsigned)name_of_this);
        }
        pthread_barrier_wait(&dock->barrier);
        dock = next;
    }
}

/* Makes threads until there are so many, or as many as the machine gives, and moves all to a dock of that size. */
static void grow_pool(unsigned threads) {
    struct dock *old = pool.dock, *dock = shared_zeros(sizeof *dock);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_mutex_lock(&pool.mutex);
    unsigned made = pool.threads;
    pthread_t thread;
    while (made < threads && pthread_create(&thread, &detached, pool_thread, (void *)(intptr_t)(made + 1)) == 0) {
        made++;
    }
    pthread_barrier_init(&dock->barrier, NULL, made + 1);
    pool.threads = made;
    pool.dock = dock;
    pool.running = NULL;
    pthread_mutex_unlock(&pool.mutex);
    pthread_attr_destroy(&detached);
    if (old) {
        pthread_barrier_wait(&old->barrier);
        pthread_barrier_wait(&old->barrier);
    }
    if (pool.retired) {
        pthread_barrier_destroy(&pool.retired->barrier);
        free(pool.retired);
    }
    pool.retired = old;
}

/* A program may have threads of its own that open regions at the same time: who finds the pool taken does without. */
static bool take_pool(void) {
    pthread_mutex_lock(&pool.mutex);
    bool was_taken = pool.is_taken;
    pool.is_taken = true;
    pthread_mutex_unlock(&pool.mutex);
    return !was_taken;
}

static void leave_pool(void) {
    pthread_mutex_lock(&pool.mutex);
    pool.is_taken = false;
    pthread_mutex_unlock(&pool.mutex);
}

/* The team of the pool for a region of so many threads, or fewer. */
static struct team *pool_team(unsigned size) {
    if (pool.threads < size - 1) {
        grow_pool(size - 1);
        size = size - 1 < pool.threads ? size : pool.threads + 1;
    }
    if (!pool.team || pool.team->size != size) {
        if (pool.team) {
            free_team(pool.team);
        }
        pool.team = new_team(size);
    }
    return pool.team;
}

static unsigned threads_of_next_region(void) {
    int threads = wished_threads > 0 ? wished_threads : omp_get_max_threads();
    wished_threads = 0;
    if (current_region()->team->active_level > 0) {
        return 1;
    }
    int limit = environment()->thread_limit;
    return (unsigned)(threads < limit ? threads : limit);
}

static void fill(struct team *team, region_body body, int count, va_list arguments) {
    if (count > MOST_ARGUMENTS) {
        refuse("a parallel region captures more than 120 variables: put them into a structure");
    }
    team->body = body;
    team->argument_count = count;
    for (int i = 0; i < count; i++) {
        team->arguments[i] = va_arg(arguments, void *);
    }
}

/* The parallel construct. */
void __kmpc_fork_call(struct place *place, int32_t count, region_body body, ...) {
    (void)place;
    va_list arguments;
    va_start(arguments, body);
    unsigned threads = threads_of_next_region();
    if (threads > 1 && take_pool()) {
        struct team *team = pool_team(threads);
        fill(team, body, count, arguments);
        begin_team(team);
        pool.running = team;
        struct dock *dock = pool.dock;
        pthread_barrier_wait(&dock->barrier);
        run(team, 0);
        pthread_barrier_wait(&dock->barrier);
        leave_pool();
    } else {
        struct team *team = new_team(1);
        fill(team, body, count, arguments);
        begin_team(team);
        run(team, 0);
        free_team(team);
    }
    va_end(arguments);
}

/* A region whose if clause says no: clang calls its body itself, between these two. */
void __kmpc_serialized_parallel(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    wished_threads = 0;
    struct region *region = shared_zeros(sizeof *region);
    struct team *team = new_team(1);
    begin_team(team);
    enter(region, team, 0);
}

void __kmpc_end_serialized_parallel(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    struct region *region = current;
    current = region->outer;
    free_team(region->team);
    free(region);
}

void __kmpc_push_num_threads(struct place *place, int32_t thread, int32_t threads) {
    (void)place, (void)thread;
    wished_threads = threads;
}

/* Where threads run is not for the program to say. */
void __kmpc_push_proc_bind(struct place *place, int32_t thread, int32_t binding) {
    (void)place, (void)thread, (void)binding;
}

/* The teams construct: always one team. */
void __kmpc_fork_teams(struct place *place, int32_t count, region_body body, ...) {
    (void)place;
    va_list arguments;
    va_start(arguments, body);
    struct team team = {.size = 1};
    fill(&team, body, count, arguments);
    va_end(arguments);
    call_body(&team, 0);
}

void __kmpc_push_num_teams(struct place *place, int32_t thread, int32_t teams, int32_t threads) {
    (void)place, (void)thread, (void)teams;
    wished_threads = threads;
}

int32_t __kmpc_global_thread_num(struct place *place) {
    (void)place;
    return thread_name();
}
