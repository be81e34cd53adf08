/* mutex.c: mutexes that are normal (or adaptive, the same here), recursive or error checking. Robust ones are
 * refused: a task's components fail together. */
#include <errno.h>
#include <stdlib.h>

#include "finish.h"
#include "held.h"
#include "objects.h"

/* What is in the four bytes of pthread_mutexattr_t: the type, and above it what is kept to be told again. */
enum { TYPE = 3, SHARED = 4 };

static const struct timespec at_once = {0, 0};

static int32_t kind_of(const struct comb_mutex *mutex)
{
    int32_t kind;
    if (!comb_is_by_messages(mutex))
        return mutex->kind & TYPE;
    comb_copy_from(&kind, &mutex->kind, sizeof kind);
    return kind & TYPE;
}

static int is_counted(int32_t kind)
{
    return kind == PTHREAD_MUTEX_RECURSIVE || kind == PTHREAD_MUTEX_ERRORCHECK;
}

/* By words. */

static int take_word(struct comb_mutex *mutex, int tries, struct comb_deadline deadline)
{
    uint32_t free = COMB_MUTEX_FREE;
    if (atomic_compare_exchange_strong_explicit(&mutex->word, &free, COMB_MUTEX_HELD, memory_order_acquire,
                                                memory_order_relaxed))
        return 0;
    if (tries)
        return EBUSY;
    for (unsigned turn = 0; comb_word_spin(&turn);) {
        free = COMB_MUTEX_FREE;
        if (!atomic_load_explicit(&mutex->word, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&mutex->word, &free, COMB_MUTEX_HELD))
            return 0;
    }
    while (atomic_exchange(&mutex->word, COMB_MUTEX_SLEEPERS) != COMB_MUTEX_FREE)
        if (comb_word_wait(&mutex->word, COMB_MUTEX_SLEEPERS, deadline))
            return ETIMEDOUT;
    return 0;
}

static void give_word(struct comb_mutex *mutex)
{
    if (atomic_exchange_explicit(&mutex->word, COMB_MUTEX_FREE, memory_order_release) == COMB_MUTEX_SLEEPERS)
        comb_word_wake(&mutex->word, 1);
}

static int lock_by_words(struct comb_mutex *mutex, int32_t kind, int tries, struct comb_deadline deadline)
{
    if (!is_counted(kind))
        return take_word(mutex, tries, deadline);
    if (atomic_load_explicit(&mutex->owner, memory_order_relaxed) == comb_self()) {
        if (kind == PTHREAD_MUTEX_ERRORCHECK)
            return tries ? EBUSY : EDEADLK;
        if (mutex->depth == UINT32_MAX)
            return EAGAIN;
        mutex->depth++;
        return 0;
    }
    int error = take_word(mutex, tries, deadline);
    if (!error)
        atomic_store_explicit(&mutex->owner, comb_self(), memory_order_relaxed);
    return error;
}

static int unlock_by_words(struct comb_mutex *mutex, int32_t kind)
{
    if (is_counted(kind)) {
        if (atomic_load_explicit(&mutex->owner, memory_order_relaxed) != comb_self())
            return EPERM;
        if (mutex->depth) {
            mutex->depth--;
            return 0;
        }
        atomic_store_explicit(&mutex->owner, 0, memory_order_relaxed);
    }
    give_word(mutex);
    return 0;
}

/* By messages. Who holds what, and how deep, is private to the thread (held.c). */

static int lock_by_messages(struct comb_mutex *mutex, int32_t kind, int tries, struct comb_deadline deadline)
{
    uint64_t number = (uint64_t)mutex;
    if (kind == PTHREAD_MUTEX_RECURSIVE && comb_held_again(number))
        return 0;
    int error = comb_here.program->lock(number, 0, tries ? &at_once : deadline.at, deadline.is_realtime);
    if (!error && kind == PTHREAD_MUTEX_RECURSIVE)
        comb_held_begin(number);
    return error == EDEADLK && tries ? EBUSY : error;
}

static int unlock_by_messages(struct comb_mutex *mutex, int32_t kind)
{
    uint64_t number = (uint64_t)mutex;
    if (kind == PTHREAD_MUTEX_RECURSIVE && comb_held_less(number))
        return 0;
    return comb_here.program->unlock(number);
}

static int lock(pthread_mutex_t *shared, int tries, struct comb_deadline deadline)
{
    struct comb_mutex *mutex = (struct comb_mutex *)shared;
    int32_t kind = kind_of(mutex);
    return comb_is_by_messages(mutex) ? lock_by_messages(mutex, kind, tries, deadline)
                                      : lock_by_words(mutex, kind, tries, deadline);
}

int comb_lib_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return lock(mutex, 0, COMB_FOR_EVER);
}

int comb_lib_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return lock(mutex, 1, COMB_FOR_EVER);
}

int comb_lib_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *deadline)
{
    struct timespec at;
    if (comb_deadline_read(deadline, &at))
        return EINVAL;
    return lock(mutex, 0, (struct comb_deadline){&at, clock == CLOCK_REALTIME});
}

int comb_lib_pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *deadline)
{
    return comb_lib_pthread_mutex_clocklock(mutex, CLOCK_REALTIME, deadline);
}

int comb_lib_pthread_mutex_unlock(pthread_mutex_t *shared)
{
    comb_flush_output();
    struct comb_mutex *mutex = (struct comb_mutex *)shared;
    int32_t kind = kind_of(mutex);
    return comb_is_by_messages(mutex) ? unlock_by_messages(mutex, kind) : unlock_by_words(mutex, kind);
}

int comb_lib_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    struct comb_mutex new = {.kind = 0};
    if (attributes)
        comb_copy_from(&new.kind, attributes, sizeof new.kind);
    comb_copy_to(mutex, &new, sizeof new);
    return 0;
}

int comb_lib_pthread_mutex_destroy(pthread_mutex_t *shared)
{
    struct comb_mutex *mutex = (struct comb_mutex *)shared;
    return !comb_is_by_messages(mutex) && atomic_load(&mutex->word) ? EBUSY : 0;
}

int comb_lib_pthread_mutex_consistent(pthread_mutex_t *mutex)
{
    (void)mutex;
    return EINVAL; /* none is robust */
}

/* Priorities are not passed on, and a ceiling is none. */
int comb_lib_pthread_mutex_getprioceiling(const pthread_mutex_t *mutex, int *ceiling)
{
    (void)mutex, (void)ceiling;
    return EINVAL;
}

int comb_lib_pthread_mutex_setprioceiling(pthread_mutex_t *mutex, int ceiling, int *before)
{
    (void)mutex, (void)ceiling, (void)before;
    return EINVAL;
}

static int read_bits(const pthread_mutexattr_t *shared)
{
    int bits;
    comb_copy_from(&bits, shared, sizeof bits);
    return bits;
}

static int write_bits(pthread_mutexattr_t *shared, int bits)
{
    comb_copy_to(shared, &bits, sizeof bits);
    return 0;
}

static int tell(int *out, int value)
{
    comb_copy_to(out, &value, sizeof value);
    return 0;
}

int comb_lib_pthread_mutexattr_init(pthread_mutexattr_t *shared)
{
    return write_bits(shared, PTHREAD_MUTEX_DEFAULT);
}

int comb_lib_pthread_mutexattr_destroy(pthread_mutexattr_t *shared)
{
    (void)shared;
    return 0;
}

int comb_lib_pthread_mutexattr_settype(pthread_mutexattr_t *shared, int type)
{
    if (type < 0 || type > TYPE)
        return EINVAL;
    return write_bits(shared, (read_bits(shared) & ~TYPE) | type);
}

int comb_lib_pthread_mutexattr_gettype(const pthread_mutexattr_t *shared, int *type)
{
    return tell(type, read_bits(shared) & TYPE);
}

int comb_lib_pthread_mutexattr_setpshared(pthread_mutexattr_t *shared, int wanted)
{
    if (wanted != PTHREAD_PROCESS_PRIVATE && wanted != PTHREAD_PROCESS_SHARED)
        return EINVAL;
    return write_bits(shared, (read_bits(shared) & ~SHARED) | (wanted == PTHREAD_PROCESS_SHARED ? SHARED : 0));
}

int comb_lib_pthread_mutexattr_getpshared(const pthread_mutexattr_t *shared, int *out)
{
    return tell(out, read_bits(shared) & SHARED ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
}

int comb_lib_pthread_mutexattr_setprotocol(pthread_mutexattr_t *shared, int protocol)
{
    (void)shared;
    return protocol >= PTHREAD_PRIO_NONE && protocol <= PTHREAD_PRIO_PROTECT ? 0 : EINVAL;
}

int comb_lib_pthread_mutexattr_getprotocol(const pthread_mutexattr_t *shared, int *protocol)
{
    (void)shared;
    return tell(protocol, PTHREAD_PRIO_NONE);
}

int comb_lib_pthread_mutexattr_setrobust(pthread_mutexattr_t *shared, int robust)
{
    (void)shared;
    if (robust == PTHREAD_MUTEX_STALLED)
        return 0;
    comb_say("robust mutexes are not supported: the threads of a program fail together");
    return ENOTSUP;
}

int comb_lib_pthread_mutexattr_getrobust(const pthread_mutexattr_t *shared, int *robust)
{
    (void)shared;
    return tell(robust, PTHREAD_MUTEX_STALLED);
}
