/* condition.c: conditions. By words, a sequence number that every signal changes: who waits sleeps while it is what
 * it was before the mutex was given up. By messages libcomb's conditions, which belong to a mutex: the object
 * remembers which. A mutex that is recursive is given up as far as it is held once, as libc has it. */
#include <errno.h>
#include <limits.h>
#include <sched.h>

#include "finish.h"
#include "objects.h"

int comb_lib_pthread_mutex_lock(pthread_mutex_t *mutex);
int comb_lib_pthread_mutex_unlock(pthread_mutex_t *mutex);

static int wait_by_words(struct comb_condition *condition, pthread_mutex_t *mutex, struct comb_deadline deadline)
{
    atomic_fetch_add(&condition->sleepers, 1);
    uint32_t sequence = atomic_load(&condition->sequence);
    int error = comb_lib_pthread_mutex_unlock(mutex);
    int outcome = 0;
    if (!error)
        outcome = comb_word_wait(&condition->sequence, sequence, deadline);
    /* From here on the object may be destroyed by who waits for that in comb_lib_pthread_cond_destroy(). */
    atomic_fetch_sub(&condition->sleepers, 1);
    return error ? error : (comb_lib_pthread_mutex_lock(mutex), outcome);
}

/* Whoever holds the mutex after us finds the condition's mutex written, and so does everybody who signals what we
 * wait for. */
static int wait_by_messages(struct comb_condition *condition, pthread_mutex_t *mutex, struct comb_deadline deadline)
{
    uint64_t number = (uint64_t)mutex, known;
    comb_flush_output();
    comb_copy_from(&known, &condition->mutex, sizeof known);
    if (known != number)
        comb_copy_to(&condition->mutex, &number, sizeof number);
    return comb_here.program->wait(number, (uint64_t)condition, deadline.at, deadline.is_realtime);
}

static int wait(pthread_cond_t *shared, pthread_mutex_t *mutex, struct comb_deadline deadline)
{
    struct comb_condition *condition = (struct comb_condition *)shared;
    return comb_is_by_messages(condition) ? wait_by_messages(condition, mutex, deadline)
                                          : wait_by_words(condition, mutex, deadline);
}

static int notify(pthread_cond_t *shared, int how_many)
{
    struct comb_condition *condition = (struct comb_condition *)shared;
    if (comb_is_by_messages(condition)) {
        uint64_t mutex;
        comb_copy_from(&mutex, &condition->mutex, sizeof mutex);
        uint64_t most = how_many == INT_MAX ? UINT32_MAX : (uint64_t)how_many;
        return mutex ? comb_here.program->notify(mutex, (uint64_t)condition, most) : 0;
    }
    if (atomic_load(&condition->sleepers)) {
        atomic_fetch_add(&condition->sequence, 1);
        comb_word_wake(&condition->sequence, how_many);
    }
    return 0;
}

int comb_lib_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return wait(condition, mutex, COMB_FOR_EVER);
}

int comb_lib_pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                                    const struct timespec *deadline)
{
    struct timespec at;
    if (comb_deadline_read(deadline, &at))
        return EINVAL;
    return wait(condition, mutex, (struct comb_deadline){&at, clock == CLOCK_REALTIME});
}

int comb_lib_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline)
{
    int32_t clock;
    comb_copy_from(&clock, &((struct comb_condition *)condition)->clock, sizeof clock);
    return comb_lib_pthread_cond_clockwait(condition, mutex, clock, deadline);
}

int comb_lib_pthread_cond_signal(pthread_cond_t *condition)
{
    comb_flush_output();
    return notify(condition, 1);
}

int comb_lib_pthread_cond_broadcast(pthread_cond_t *condition)
{
    comb_flush_output();
    return notify(condition, INT_MAX);
}

int comb_lib_pthread_cond_init(pthread_cond_t *shared, const pthread_condattr_t *attributes)
{
    struct comb_condition new = {.clock = CLOCK_REALTIME};
    if (attributes)
        comb_copy_from(&new.clock, attributes, sizeof new.clock);
    comb_copy_to(shared, &new, sizeof new);
    return 0;
}

/* A condition may be destroyed as soon as all who waited are woken: before they have left it. */
int comb_lib_pthread_cond_destroy(pthread_cond_t *shared)
{
    struct comb_condition *condition = (struct comb_condition *)shared;
    if (!comb_is_by_messages(condition))
        while (atomic_load(&condition->sleepers))
            sched_yield();
    return 0;
}

int comb_lib_pthread_condattr_init(pthread_condattr_t *shared)
{
    int32_t clock = CLOCK_REALTIME;
    comb_copy_to(shared, &clock, sizeof clock);
    return 0;
}

int comb_lib_pthread_condattr_destroy(pthread_condattr_t *shared)
{
    (void)shared;
    return 0;
}

int comb_lib_pthread_condattr_setclock(pthread_condattr_t *shared, clockid_t wanted)
{
    int32_t clock = wanted;
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return EINVAL;
    comb_copy_to(shared, &clock, sizeof clock);
    return 0;
}

int comb_lib_pthread_condattr_getclock(const pthread_condattr_t *shared, clockid_t *out)
{
    int32_t clock;
    comb_copy_from(&clock, shared, sizeof clock);
    comb_copy_to(out, &clock, sizeof clock);
    return 0;
}

/* All objects are for all threads of the task, and for nobody else. */
int comb_lib_pthread_condattr_setpshared(pthread_condattr_t *shared, int wanted)
{
    (void)shared;
    return wanted == PTHREAD_PROCESS_PRIVATE || wanted == PTHREAD_PROCESS_SHARED ? 0 : EINVAL;
}

int comb_lib_pthread_condattr_getpshared(const pthread_condattr_t *shared, int *out)
{
    (void)shared;
    int value = PTHREAD_PROCESS_PRIVATE;
    comb_copy_to(out, &value, sizeof value);
    return 0;
}
