/* Locks of programs: mutexes of the heap, and the nested kind, which knows its thread. */

#include "omp.h"
#include "team.h"

#include <stdlib.h>

void omp_init_lock(omp_lock_t *lock) {
    lock->held = shared_zeros(sizeof(pthread_mutex_t));
    pthread_mutex_init(lock->held, NULL);
}

void omp_init_lock_with_hint(omp_lock_t *lock, omp_sync_hint_t hint) {
    (void)hint;
    omp_init_lock(lock);
}

void omp_destroy_lock(omp_lock_t *lock) {
    pthread_mutex_destroy(lock->held);
    free(lock->held);
    lock->held = NULL;
}

void omp_set_lock(omp_lock_t *lock) { pthread_mutex_lock(lock->held); }

void omp_unset_lock(omp_lock_t *lock) { pthread_mutex_unlock(lock->held); }

int omp_test_lock(omp_lock_t *lock) { return pthread_mutex_trylock(lock->held) == 0; }

struct nested_lock {
    pthread_mutex_t held;  /* By the owner, from its first set to its last unset. */
    pthread_mutex_t guard; /* For the rest, shortly. */
    pthread_t owner;
    int depth;
};

void omp_init_nest_lock(omp_nest_lock_t *lock) {
    struct nested_lock *nested = shared_zeros(sizeof *nested);
    pthread_mutex_init(&nested->held, NULL);
    pthread_mutex_init(&nested->guard, NULL);
    lock->held = nested;
}

void omp_init_nest_lock_with_hint(omp_nest_lock_t *lock, omp_sync_hint_t hint) {
    (void)hint;
    omp_init_nest_lock(lock);
}

void omp_destroy_nest_lock(omp_nest_lock_t *lock) {
    struct nested_lock *nested = lock->held;
    pthread_mutex_destroy(&nested->held);
    pthread_mutex_destroy(&nested->guard);
    free(nested);
    lock->held = NULL;
}

/* Goes one deeper if this thread has the lock: the new depth, or 0. */
static int deeper(struct nested_lock *nested) {
    pthread_mutex_lock(&nested->guard);
    int depth = nested->depth > 0 && pthread_equal(nested->owner, pthread_self()) ? ++nested->depth : 0;
    pthread_mutex_unlock(&nested->guard);
    return depth;
}

static void own(struct nested_lock *nested) {
    pthread_mutex_lock(&nested->guard);
    nested->owner = pthread_self();
    nested->depth = 1;
    pthread_mutex_unlock(&nested->guard);
}

void omp_set_nest_lock(omp_nest_lock_t *lock) {
    struct nested_lock *nested = lock->held;
    if (deeper(nested) == 0) {
        pthread_mutex_lock(&nested->held);
        own(nested);
    }
}

int omp_test_nest_lock(omp_nest_lock_t *lock) {
    struct nested_lock *nested = lock->held;
    int depth = deeper(nested);
    if (depth == 0 && pthread_mutex_trylock(&nested->held) == 0) {
        own(nested);
        depth = 1;
    }
    return depth;
}

void omp_unset_nest_lock(omp_nest_lock_t *lock) {
    struct nested_lock *nested = lock->held;
    pthread_mutex_lock(&nested->guard);
    int depth = --nested->depth;
    pthread_mutex_unlock(&nested->guard);
    if (depth == 0) {
        pthread_mutex_unlock(&nested->held);
    }
}
