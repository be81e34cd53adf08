/* barrier.c: barriers. The count is written at initialisation alone; what changes at each round lies beside it only
 * where page frames are shared. */
#include <errno.h>
#include <limits.h>
#include <sched.h>

#include "finish.h"
#include "objects.h"

static void sleep_while(struct comb_barrier *barrier, uint32_t sequence, int has_core)
{
    int (*spins)(unsigned *) = has_core ? comb_word_spin_long : comb_word_spin;
    for (unsigned turn = 0; atomic_load(&barrier->sequence) == sequence && spins(&turn);)
        ;
    while (atomic_load(&barrier->sequence) == sequence)
        comb_word_wait(&barrier->sequence, sequence, COMB_FOR_EVER);
}

/* Counts the calling thread where it is. Whether all that are on this core have arrived: who is missing needs another. */
static int arrive_on(unsigned core, struct comb_barrier *barrier)
{
    unsigned are_here = comb_cores_counted(&barrier->here_since, core);
    return comb_cores_count(&barrier->arrived_on, core) >= are_here && are_here > 0;
}

static int wait_by_words(struct comb_barrier *barrier)
{
    int counts_cores = barrier->count <= COMB_CORES_THREADS;
    unsigned core = comb_core_here();
    atomic_fetch_add(&barrier->inside, 1);
    uint32_t sequence = atomic_load(&barrier->sequence);
    int has_core = counts_cores && arrive_on(core, barrier);
    int is_last = atomic_fetch_add(&barrier->arrived, 1) + 1 == barrier->count;
    if (is_last) {
        atomic_store(&barrier->arrived, 0);
        atomic_store(&barrier->here_since, atomic_exchange(&barrier->arrived_on, 0));
        atomic_fetch_add(&barrier->sequence, 1);
        comb_word_wake(&barrier->sequence, INT_MAX);
    } else {
        sleep_while(barrier, sequence, has_core);
    }
    if (counts_cores)
        comb_cores_go_on(&barrier->here_since, core, barrier->count);
    atomic_fetch_sub(&barrier->inside, 1); /* our last touch: see comb_lib_pthread_barrier_destroy() */
    return is_last;
}

static int wait_by_messages(struct comb_barrier *barrier)
{
    uint32_t count;
    comb_copy_from(&count, &barrier->count, sizeof count);
    int outcome = comb_here.program->barrier((uint64_t)barrier, count);
    if (outcome < 0)
        comb_die("%u threads wait at a barrier where others wait for another number", count);
    return outcome;
}

int comb_lib_pthread_barrier_wait(pthread_barrier_t *shared)
{
    struct comb_barrier *barrier = (struct comb_barrier *)shared;
    comb_flush_output();
    int is_one = comb_is_by_messages(barrier) ? wait_by_messages(barrier) : wait_by_words(barrier);
    comb_look_what_is_present();
    return is_one ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}

int comb_lib_pthread_barrier_init(pthread_barrier_t *shared, const pthread_barrierattr_t *attributes, unsigned count)
{
    (void)attributes;
    if (!count || count > INT_MAX)
        return EINVAL;
    struct comb_barrier new = {.count = count};
    comb_copy_to(shared, &new, sizeof new);
    return 0;
}

/* The first thread that leaves may destroy it, while others are still on their way out. */
int comb_lib_pthread_barrier_destroy(pthread_barrier_t *shared)
{
    struct comb_barrier *barrier = (struct comb_barrier *)shared;
    if (!comb_is_by_messages(barrier)) {
        if (atomic_load(&barrier->arrived))
            return EBUSY;
        while (atomic_load(&barrier->inside))
            sched_yield();
    }
    return 0;
}

int comb_lib_pthread_barrierattr_init(pthread_barrierattr_t *shared)
{
    int none = PTHREAD_PROCESS_PRIVATE;
    comb_copy_to(shared, &none, sizeof none);
    return 0;
}

int comb_lib_pthread_barrierattr_destroy(pthread_barrierattr_t *shared)
{
    (void)shared;
    return 0;
}

int comb_lib_pthread_barrierattr_setpshared(pthread_barrierattr_t *shared, int value)
{
    if (value != PTHREAD_PROCESS_PRIVATE && value != PTHREAD_PROCESS_SHARED)
        return EINVAL;
    comb_copy_to(shared, &value, sizeof value);
    return 0;
}

int comb_lib_pthread_barrierattr_getpshared(const pthread_barrierattr_t *shared, int *out)
{
    int value;
    comb_copy_from(&value, shared, sizeof value);
    comb_copy_to(out, &value, sizeof value);
    return 0;
}
