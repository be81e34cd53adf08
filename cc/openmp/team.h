/* Teams of threads, and what one thread knows of the region that it is in. Internal to the runtime.
 *
 * The threads of a team may run on several machines. So whatever they share is global or from the heap, they wait for
 * each other in pthread barriers, mutexes and conditions only, and words that several change stand in blocks of their
 * own. */

#ifndef COMB_OPENMP_TEAM_H
#define COMB_OPENMP_TEAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Where in the source a construct stands. Clang makes one for every call; nothing here looks into it. */
struct place;

/* The body of a parallel region, as clang outlines it: two numbers of the thread, then what the region captures. */
typedef void (*region_body)(int32_t *thread, int32_t *number_in_team, ...);

/* Machines exchange memory in blocks of this size. */
#define BLOCK_BYTES 1024

/* Variables that one region can capture. */
#define MOST_ARGUMENTS 120

/* Loops without a barrier at their end that threads may be ahead of each other. */
#define LOOPS_AT_ONCE 8

/* A loop whose iterations are handed out while it runs, shared by the team. */
struct shared_loop {
    _Alignas(BLOCK_BYTES) _Atomic uint64_t next; /* The first iteration that nobody has. */
    _Alignas(BLOCK_BYTES) atomic_uint left;      /* Threads that have not yet seen its end; 0: free for another loop. */
    uint64_t number;                             /* Which loop of the region it is, from 1. */
    uint64_t ordered_next;                       /* The iteration whose turn it is in an ordered loop. */
};

/* What a thread has set for itself and for the regions that it opens. 0: as the environment says. */
struct settings {
    int threads;         /* omp_set_num_threads. */
    int schedule, chunk; /* omp_set_schedule. */
};

struct team {
    unsigned size;
    int level, active_level;
    struct settings settings; /* Of the thread that opened the region. */
    region_body body;
    int argument_count;
    void *arguments[MOST_ARGUMENTS];

    pthread_barrier_t barrier; /* Of the size of the team; none in a team of one. */
    pthread_mutex_t mutex;     /* For `number` and `ordered_next` of the loops. */
    pthread_cond_t changed;
    void *copied; /* By copyprivate, between two barriers. */
    _Alignas(BLOCK_BYTES) _Atomic uint64_t singles; /* How many single constructs somebody has entered. */
    struct shared_loop loops[LOOPS_AT_ONCE];
};

/* The part of one thread in a loop that is handed out while it runs. Iterations are counted from 0. */
struct own_loop {
    struct shared_loop *shared;
    uint64_t first, step; /* The program's variable at iteration 0, and what each adds to it: modulo 2^64. */
    uint64_t count;
    uint64_t chunk;
    int schedule;
    uint64_t position;   /* The next chunk of this thread, where threads know theirs beforehand. */
    uint64_t ordered_at; /* The iteration that this thread is in. */
    bool ordered_done;   /* It has been through its ordered part. */
};

/* What one thread knows of one region. Private to it. */
struct region {
    struct region *outer;
    struct team *team;
    unsigned number; /* In the team. */
    uint64_t singles, loop_count;
    struct own_loop loop;
};

/* The innermost region of this thread; outside of all, a region with a team of one. */
struct region *current_region(void);

/* Of this thread. */
struct settings *settings(void);

/* This thread's number among those that the runtime knows: 0 for all that the program made itself. */
int32_t thread_name(void);

void team_barrier(struct team *team);

/* Memory of its own blocks, zeros. Ends the program where there is none. */
void *shared_zeros(uint64_t bytes);

/* Ends the program, and says why. */
_Noreturn void refuse(const char *what);

/* Gets or makes the mutex behind a name of 32 bytes that clang reserves for a critical section, zeros at first. */
pthread_mutex_t *critical_mutex(void *name);

#endif
