/* rwlock.c: many readers or one writer. Readers come before writers that wait, as with libc: a thread that reads
 * already may read again. */
#include <errno.h>
#include <limits.h>

#include "finish.h"
#include "objects.h"

static const struct timespec at_once = {0, 0};
/* comb_program.h: beside others, whoever waits to be alone. */
static const int as_reader = 2;

static int take_words(struct comb_rwlock *lock, int is_writer, int tries, struct comb_deadline deadline)
{
    for (unsigned turn = 0;;) {
        uint32_t holders = atomic_load(&lock->holders);
        int is_free = is_writer ? holders == 0 : !(holders & COMB_WRITER);
        if (is_free) {
            if (atomic_compare_exchange_weak(&lock->holders, &holders, is_writer ? COMB_WRITER : holders + 1))
                return 0;
            continue;
        }
        if (tries)
            return EBUSY;
        if (comb_word_spin(&turn))
            continue;
        atomic_fetch_add(&lock->sleepers, 1);
        uint32_t sequence = atomic_load(&lock->sequence);
        holders = atomic_load(&lock->holders);
        is_free = is_writer ? holders == 0 : !(holders & COMB_WRITER);
        int outcome = is_free ? 0 : comb_word_wait(&lock->sequence, sequence, deadline);
        atomic_fetch_sub(&lock->sleepers, 1);
        if (outcome)
            return outcome;
    }
}

static int give_words(struct comb_rwlock *lock)
{
    uint32_t holders = atomic_load(&lock->holders);
    uint32_t left;
    do {
        if (!holders)
            return EPERM;
        left = holders & COMB_WRITER ? 0 : holders - 1;
    } while (!atomic_compare_exchange_weak(&lock->holders, &holders, left));
    if (!left && atomic_load(&lock->sleepers)) {
        atomic_fetch_add(&lock->sequence, 1);
        comb_word_wake(&lock->sequence, INT_MAX);
    }
    return 0;
}

static int take(pthread_rwlock_t *shared, int is_writer, int tries, struct comb_deadline deadline)
{
    if (!comb_is_by_messages(shared))
        return take_words((struct comb_rwlock *)shared, is_writer, tries, deadline);
    int error = comb_here.program->lock((uint64_t)shared, is_writer ? 0 : as_reader, tries ? &at_once : deadline.at,
                                         deadline.is_realtime);
    return error == EDEADLK && tries ? EBUSY : error;
}

static int take_until(pthread_rwlock_t *shared, int is_writer, clockid_t clock, const struct timespec *deadline)
{
    struct timespec at;
    if (comb_deadline_read(deadline, &at))
        return EINVAL;
    return take(shared, is_writer, 0, (struct comb_deadline){&at, clock == CLOCK_REALTIME});
}

int comb_lib_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    return take(lock, 0, 0, COMB_FOR_EVER);
}

int comb_lib_pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    return take(lock, 1, 0, COMB_FOR_EVER);
}

int comb_lib_pthread_rwlock_tryrdlock(pthread_rwlock_t *lock)
{
    return take(lock, 0, 1, COMB_FOR_EVER);
}

int comb_lib_pthread_rwlock_trywrlock(pthread_rwlock_t *lock)
{
    return take(lock, 1, 1, COMB_FOR_EVER);
}

int comb_lib_pthread_rwlock_timedrdlock(pthread_rwlock_t *lock, const struct timespec *deadline)
{
    return take_until(lock, 0, CLOCK_REALTIME, deadline);
}

int comb_lib_pthread_rwlock_timedwrlock(pthread_rwlock_t *lock, const struct timespec *deadline)
{
    return take_until(lock, 1, CLOCK_REALTIME, deadline);
}

int comb_lib_pthread_rwlock_clockrdlock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *deadline)
{
    return take_until(lock, 0, clock, deadline);
}

int comb_lib_pthread_rwlock_clockwrlock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *deadline)
{
    return take_until(lock, 1, clock, deadline);
}

int comb_lib_pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    comb_flush_output();
    return comb_is_by_messages(lock) ? comb_here.program->unlock((uint64_t)lock)
                                     : give_words((struct comb_rwlock *)lock);
}

int comb_lib_pthread_rwlock_init(pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes)
{
    (void)attributes;
    struct comb_rwlock new = {.holders = 0};
    comb_copy_to(lock, &new, sizeof new);
    return 0;
}

int comb_lib_pthread_rwlock_destroy(pthread_rwlock_t *lock)
{
    return !comb_is_by_messages(lock) && atomic_load(&((struct comb_rwlock *)lock)->holders) ? EBUSY : 0;
}

/* The attributes are two numbers, kept to be told again. */
struct attributes {
    int32_t kind, is_shared;
};

int comb_lib_pthread_rwlockattr_init(pthread_rwlockattr_t *shared)
{
    struct attributes new = {PTHREAD_RWLOCK_DEFAULT_NP, PTHREAD_PROCESS_PRIVATE};
    comb_copy_to(shared, &new, sizeof new);
    return 0;
}

int comb_lib_pthread_rwlockattr_destroy(pthread_rwlockattr_t *shared)
{
    (void)shared;
    return 0;
}

#define PAIR(name, field, most)                                                          \
    int comb_lib_pthread_rwlockattr_set##name(pthread_rwlockattr_t *shared, int value)   \
    {                                                                                    \
        int32_t kept = value;                                                            \
        if (value < 0 || value > (most))                                                 \
            return EINVAL;                                                               \
        comb_copy_to(&((struct attributes *)shared)->field, &kept, sizeof kept);         \
        return 0;                                                                        \
    }                                                                                    \
    int comb_lib_pthread_rwlockattr_get##name(const pthread_rwlockattr_t *shared, int *out) \
    {                                                                                    \
        struct attributes kept;                                                          \
        comb_copy_from(&kept, shared, sizeof kept);                                      \
        comb_copy_to(out, &kept.field, sizeof *out);                                     \
        return 0;                                                                        \
    }

PAIR(kind_np, kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
PAIR(pshared, is_shared, PTHREAD_PROCESS_SHARED)
