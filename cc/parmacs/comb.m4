divert(-1)
The macros of the Argonne National Laboratory ("parmacs") as the programs of the SPLASH family use them, over plain POSIX
threads. A program is expanded with this file alone, m4 comb.m4 program.C > program.c, and compiled as any other.

Statements expand to a block in braces, so that they stand with or without a semicolon behind them, as both are found.
What a thread shares with others is global or from the heap: nothing here relies on the threads sharing a machine. Every
wait sleeps in pthread, none of them spins.

-- Words of m4 that C programs call functions by. Those that a program could use on purpose (define, include) stay.

undefine(`len', `index', `substr', `format', `shift', `incr', `decr', `eval', `translit', `patsubst', `regexp',
    `syscmd', `esyscmd', `sysval', `errprint', `maketemp', `mkstemp', `builtin', `indir', `debugmode', `debugfile')
undefine(`unix', `__unix__', `gnu', `__gnu__')

-- The environment: MAIN_ENV stands once in a program, EXTERN_ENV in its other files.

define(`EXTERN_ENV', `
#ifndef PARMACS_DECLARED
#define PARMACS_DECLARED
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

/* Its threads are told to it by every wait: how many there are is not known before. */
struct parmacs_barrier {
    pthread_mutex_t mutex;
    pthread_barrier_t barrier;
    unsigned parties; /* 0: not yet initialised. */
};

/* Hands out subscripts; whoever finds none left waits until everybody has. */
struct parmacs_subscripts {
    pthread_mutex_t mutex;
    pthread_cond_t all_done;
    long next;
    unsigned waiting;
    unsigned round;
};

struct parmacs_pause {
    pthread_mutex_t mutex;
    pthread_cond_t is_set;
    int flag;
};

void parmacs_create(void (*function)(void));
void parmacs_wait_for_end(long count);
void parmacs_barrier_init(struct parmacs_barrier *barrier, unsigned parties);
void parmacs_barrier_wait(struct parmacs_barrier *barrier, unsigned parties);
void parmacs_subscripts_init(struct parmacs_subscripts *subscripts);
long parmacs_next_subscript(struct parmacs_subscripts *subscripts, long last, unsigned parties);
void parmacs_pause_init(struct parmacs_pause *pause);
void parmacs_pause_set(struct parmacs_pause *pause, int flag);
void parmacs_pause_wait(struct parmacs_pause *pause);
void *parmacs_malloc(size_t size);
unsigned long parmacs_clock(void);
#endif
')

define(`MAIN_ENV', `EXTERN_ENV
#define PARMACS_MOST_THREADS 4096

static pthread_t parmacs_threads[PARMACS_MOST_THREADS];
static unsigned parmacs_created, parmacs_joined;

static void parmacs_check(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "parmacs: %s failed with error %d\n", what, error);
        exit(1);
    }
}

/* The functions of these programs take nothing and return nothing, which no pthread start function does. */
static void *parmacs_start(void *function) {
    ((void (*)(void))function)();
    return NULL;
}

/* Only the first thread creates, and waits: no lock for the table. */
void parmacs_create(void (*function)(void)) {
    if (parmacs_created == PARMACS_MOST_THREADS) {
        fprintf(stderr, "parmacs: more than %d threads\n", PARMACS_MOST_THREADS);
        exit(1);
    }
    parmacs_check(pthread_create(&parmacs_threads[parmacs_created], NULL, parmacs_start, (void *)function),
                  "pthread_create");
    parmacs_created++;
}

/* Some programs count themselves, some do not: there may be one thread less than they say. */
void parmacs_wait_for_end(long count) {
    for (; count > 0 && parmacs_joined < parmacs_created; count--) {
        parmacs_check(pthread_join(parmacs_threads[parmacs_joined], NULL), "pthread_join");
        parmacs_joined++;
    }
    if (parmacs_joined == parmacs_created) {
        parmacs_joined = parmacs_created = 0;
    }
}

void parmacs_barrier_init(struct parmacs_barrier *barrier, unsigned parties) {
    parmacs_check(pthread_mutex_init(&barrier->mutex, NULL), "pthread_mutex_init");
    barrier->parties = parties;
    if (parties != 0) {
        parmacs_check(pthread_barrier_init(&barrier->barrier, NULL, parties), "pthread_barrier_init");
    }
}

/* What the wait says counts, as the definition of these macros has it. Nobody is inside when the number changes: a
   program whose threads disagree about it has no meaning. */
void parmacs_barrier_wait(struct parmacs_barrier *barrier, unsigned parties) {
    pthread_mutex_lock(&barrier->mutex);
    if (barrier->parties != parties) {
        if (barrier->parties != 0) {
            pthread_barrier_destroy(&barrier->barrier);
        }
        parmacs_check(pthread_barrier_init(&barrier->barrier, NULL, parties), "pthread_barrier_init");
        barrier->parties = parties;
    }
    pthread_mutex_unlock(&barrier->mutex);
    pthread_barrier_wait(&barrier->barrier);
}

void parmacs_subscripts_init(struct parmacs_subscripts *subscripts) {
    parmacs_check(pthread_mutex_init(&subscripts->mutex, NULL), "pthread_mutex_init");
    parmacs_check(pthread_cond_init(&subscripts->all_done, NULL), "pthread_cond_init");
    subscripts->next = 0;
    subscripts->waiting = 0;
    subscripts->round = 0;
}

/* -1 for everybody, and all over again, once everybody has found nothing left. */
long parmacs_next_subscript(struct parmacs_subscripts *subscripts, long last, unsigned parties) {
    long subscript = -1;
    pthread_mutex_lock(&subscripts->mutex);
    if (subscripts->next <= last) {
        subscript = subscripts->next++;
    } else if (++subscripts->waiting == parties) {
        subscripts->next = 0;
        subscripts->waiting = 0;
        subscripts->round++;
        pthread_cond_broadcast(&subscripts->all_done);
    } else {
        unsigned round = subscripts->round;
        while (subscripts->round == round) {
            pthread_cond_wait(&subscripts->all_done, &subscripts->mutex);
        }
    }
    pthread_mutex_unlock(&subscripts->mutex);
    return subscript;
}

void parmacs_pause_init(struct parmacs_pause *pause) {
    parmacs_check(pthread_mutex_init(&pause->mutex, NULL), "pthread_mutex_init");
    parmacs_check(pthread_cond_init(&pause->is_set, NULL), "pthread_cond_init");
    pause->flag = 0;
}

void parmacs_pause_set(struct parmacs_pause *pause, int flag) {
    pthread_mutex_lock(&pause->mutex);
    pause->flag = flag;
    if (flag) {
        pthread_cond_broadcast(&pause->is_set);
    }
    pthread_mutex_unlock(&pause->mutex);
}

void parmacs_pause_wait(struct parmacs_pause *pause) {
    pthread_mutex_lock(&pause->mutex);
    while (!pause->flag) {
        pthread_cond_wait(&pause->is_set, &pause->mutex);
    }
    pthread_mutex_unlock(&pause->mutex);
}

/* The programs place their data by the page, and pad small records so that none shares a cache block with another: a
   large piece begins a page, a smaller one a block of memory that cells share, and what is less than a block a line. */
void *parmacs_malloc(size_t size) {
    void *memory;
    parmacs_check(posix_memalign(&memory, size >= 4096 ? 4096 : size >= 1024 ? 1024 : 128, size), "posix_memalign");
    return memory;
}

/* Microseconds. Programs keep them in an unsigned int or long and subtract: that they wrap is no harm. */
unsigned long parmacs_clock(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (unsigned long)now.tv_sec * 1000000 + (unsigned long)now.tv_usec;
}
')

define(`MAIN_INITENV', `{;}')
define(`MAIN_END', `{exit(0);}')

-- Threads. CREATE(f) starts one; CREATE(f, n) makes n of them of f, the calling thread being the last.

define(`CREATE', `ifelse(`$2', `', `{parmacs_create((void (*)(void))($1));}',
`{
    long parmacs_i;
    for (parmacs_i = 1; parmacs_i < (long)($2); parmacs_i++) {
        parmacs_create((void (*)(void))($1));
    }
    ($1)();
}')')
define(`WAIT_FOR_END', `{parmacs_wait_for_end($1);}')

-- Locks, alone and in arrays.

define(`LOCKDEC', `pthread_mutex_t $1;')
define(`LOCKINIT', `{pthread_mutex_init(&($1), NULL);}')
define(`LOCK', `{pthread_mutex_lock(&($1));}')
define(`UNLOCK', `{pthread_mutex_unlock(&($1));}')

define(`ALOCKDEC', `pthread_mutex_t $1[$2];')
define(`ALOCKINIT', `{
    long parmacs_i;
    for (parmacs_i = 0; parmacs_i < (long)($2); parmacs_i++) {
        pthread_mutex_init(&(($1)[parmacs_i]), NULL);
    }
}')
define(`ALOCK', `{pthread_mutex_lock(&(($1)[$2]));}')
define(`AULOCK', `{pthread_mutex_unlock(&(($1)[$2]));}')
define(`AUNLOCK', defn(`AULOCK'))

-- Conditions, which belong to a lock.

define(`CONDVARDEC', `pthread_cond_t $1;')
define(`CONDVARINIT', `{pthread_cond_init(&($1), NULL);}')
define(`CONDVARWAIT', `{pthread_cond_wait(&($1), &($2));}')
define(`CONDVARSIGNAL', `{pthread_cond_signal(&($1));}')
define(`CONDVARBCAST', `{pthread_cond_broadcast(&($1));}')

-- Barriers. Older programs tell how many threads there are only where they wait.

define(`BARDEC', `struct parmacs_barrier $1;')
define(`BARINIT', `{parmacs_barrier_init(&($1), ifelse(`$2', `', 0, `(unsigned)($2)'));}')
define(`BARRIER', `{parmacs_barrier_wait(&($1), (unsigned)($2));}')
define(`BARINCLUDE', `{;}')

-- Loops that schedule themselves.

define(`GSDEC', `struct parmacs_subscripts $1;')
define(`GSINIT', `{parmacs_subscripts_init(&($1));}')
define(`GETSUB', `{($2) = parmacs_next_subscript(&($1), (long)($3), (unsigned)($4));}')

-- Flags to wait for, alone and in arrays.

define(`PAUSEDEC', `struct parmacs_pause $1`'ifelse(`$2', `', `', `[$2]');')
define(`PAUSEINIT', `ifelse(`$2', `', `{parmacs_pause_init(&($1));}',
`{
    long parmacs_i;
    for (parmacs_i = 0; parmacs_i < (long)($2); parmacs_i++) {
        parmacs_pause_init(&(($1)[parmacs_i]));
    }
}')')
define(`SETPAUSE', `{parmacs_pause_set(&($1), 1);}')
define(`CLEARPAUSE', `{parmacs_pause_set(&($1), 0);}')
define(`WAITPAUSE', `{parmacs_pause_wait(&($1));}')

-- Memory, and time.

define(`G_MALLOC', `parmacs_malloc($1)')
define(`NU_MALLOC', `parmacs_malloc($1)')
define(`G_FREE', `free($1)')
define(`CLOCK', `{($1) = parmacs_clock();}')

-- Marks for simulators, which mean nothing to a machine.

define(`EVENT', `{;}')
define(`PAUSE', `{;}')
define(`AUG_ON', `{;}')
define(`AUG_OFF', `{;}')
define(`TRACE_ON', `{;}')
define(`TRACE_OFF', `{;}')
define(`REF_TRACE_ON', `{;}')
define(`REF_TRACE_OFF', `{;}')
define(`DYN_TRACE_ON', `{;}')
define(`DYN_TRACE_OFF', `{;}')
define(`DYN_REF_TRACE_ON', `{;}')
define(`DYN_REF_TRACE_OFF', `{;}')
define(`DISCARD_REF_TRACE', `{;}')
define(`THREAD_INIT_FREE', `{;}')
divert(0)dnl
