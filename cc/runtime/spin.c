/* spin.c: spinlocks. A thread that spins for long gives its processor away: whoever holds the lock may need it. By
 * messages they are locks like mutexes. */
#include <errno.h>
#include <sched.h>

#include "finish.h"
#include "objects.h"

static const struct timespec at_once = {0, 0};

int comb_lib_pthread_spin_lock(pthread_spinlock_t *shared)
{
    if (comb_is_by_messages((void *)shared))
        return comb_here.program->lock((uint64_t)shared, 0, NULL, 0);
    comb_word *word = (comb_word *)shared;
    for (unsigned turn = 0; atomic_exchange_explicit(word, 1, memory_order_acquire);)
        while (atomic_load_explicit(word, memory_order_relaxed))
            if (!comb_word_spin(&turn))
                sched_yield();
    return 0;
}

int comb_lib_pthread_spin_trylock(pthread_spinlock_t *shared)
{
    if (!comb_is_by_messages((void *)shared))
        return atomic_exchange_explicit((comb_word *)shared, 1, memory_order_acquire) ? EBUSY : 0;
    int error = comb_here.program->lock((uint64_t)shared, 0, &at_once, 0);
    return error == EDEADLK ? EBUSY : error;
}

int comb_lib_pthread_spin_unlock(pthread_spinlock_t *shared)
{
    comb_flush_output();
    if (comb_is_by_messages((void *)shared))
        return comb_here.program->unlock((uint64_t)shared);
    atomic_store_explicit((comb_word *)shared, 0, memory_order_release);
    return 0;
}

int comb_lib_pthread_spin_init(pthread_spinlock_t *shared, int is_shared)
{
    (void)is_shared;
    uint32_t free = 0;
    comb_copy_to((void *)shared, &free, sizeof free);
    return 0;
}

int comb_lib_pthread_spin_destroy(pthread_spinlock_t *shared)
{
    (void)shared;
    return 0;
}
