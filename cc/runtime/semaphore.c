/* semaphore.c: semaphores without names. By messages the count lies in the object, and is changed by who has the
 * lock of its address. */
#include <semaphore.h>

#include <errno.h>
#include <limits.h>
#include <stdarg.h>

#include "finish.h"
#include "objects.h"

_Static_assert(sizeof(struct comb_semaphore) <= sizeof(sem_t), "ours lie where libc's would");

static int fail(int error)
{
    errno = error;
    return -1;
}

static int take_word(comb_word *value)
{
    uint32_t found = atomic_load(value);
    while (found)
        if (atomic_compare_exchange_weak(value, &found, found - 1))
            return 1;
    return 0;
}

static int wait_by_words(struct comb_semaphore *semaphore, int tries, struct comb_deadline deadline)
{
    for (unsigned turn = 0; !take_word(&semaphore->value);) {
        if (tries)
            return EAGAIN;
        if (comb_word_spin(&turn))
            continue;
        atomic_fetch_add(&semaphore->sleepers, 1);
        int outcome = comb_word_wait(&semaphore->value, 0, deadline);
        atomic_fetch_sub(&semaphore->sleepers, 1);
        if (outcome)
            return take_word(&semaphore->value) ? 0 : outcome;
    }
    return 0;
}

static uint32_t load(const struct comb_semaphore *semaphore)
{
    uint32_t value;
    comb_copy_from(&value, (const void *)&semaphore->value, sizeof value);
    return value;
}

static void store(struct comb_semaphore *semaphore, uint32_t value)
{
    comb_copy_to((void *)&semaphore->value, &value, sizeof value);
}

static int wait_by_messages(struct comb_semaphore *semaphore, int tries, struct comb_deadline deadline)
{
    uint64_t number = (uint64_t)semaphore;
    const struct comb_program *program = comb_here.program;
    int error = program->lock(number, 0, NULL, 0);
    if (error)
        return error;
    while (!load(semaphore) && !error)
        error = tries ? EAGAIN : program->wait(number, number, deadline.at, deadline.is_realtime);
    uint32_t value = load(semaphore);
    if (value) {
        store(semaphore, value - 1);
        error = 0;
    }
    program->unlock(number);
    return error;
}

static int wait(sem_t *shared, int tries, struct comb_deadline deadline)
{
    struct comb_semaphore *semaphore = (struct comb_semaphore *)shared;
    int error = comb_is_by_messages(semaphore) ? wait_by_messages(semaphore, tries, deadline)
                                               : wait_by_words(semaphore, tries, deadline);
    return error ? fail(error) : 0;
}

int comb_lib_sem_wait(sem_t *semaphore)
{
    return wait(semaphore, 0, COMB_FOR_EVER);
}

int comb_lib_sem_trywait(sem_t *semaphore)
{
    return wait(semaphore, 1, COMB_FOR_EVER);
}

int comb_lib_sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline)
{
    struct timespec at;
    if (comb_deadline_read(deadline, &at))
        return fail(EINVAL);
    return wait(semaphore, 0, (struct comb_deadline){&at, clock == CLOCK_REALTIME});
}

int comb_lib_sem_timedwait(sem_t *semaphore, const struct timespec *deadline)
{
    return comb_lib_sem_clockwait(semaphore, CLOCK_REALTIME, deadline);
}

static int post_by_messages(struct comb_semaphore *semaphore)
{
    uint64_t number = (uint64_t)semaphore;
    int error = comb_here.program->lock(number, 0, NULL, 0);
    if (error)
        return error;
    uint32_t value = load(semaphore);
    if (value < SEM_VALUE_MAX)
        store(semaphore, value + 1);
    comb_here.program->notify(number, number, 1);
    comb_here.program->unlock(number);
    return value < SEM_VALUE_MAX ? 0 : EOVERFLOW;
}

/* Who is woken may destroy the semaphore: nothing of it is touched after the count, but for a wake that may come too
 * late and wakes nobody. */
static int post_by_words(struct comb_semaphore *semaphore)
{
    uint32_t value = atomic_load(&semaphore->value);
    do {
        if (value == SEM_VALUE_MAX)
            return EOVERFLOW;
    } while (!atomic_compare_exchange_weak(&semaphore->value, &value, value + 1));
    if (atomic_load(&semaphore->sleepers))
        comb_word_wake(&semaphore->value, 1);
    return 0;
}

int comb_lib_sem_post(sem_t *shared)
{
    comb_flush_output();
    struct comb_semaphore *semaphore = (struct comb_semaphore *)shared;
    int error = comb_is_by_messages(semaphore) ? post_by_messages(semaphore) : post_by_words(semaphore);
    return error ? fail(error) : 0;
}

int comb_lib_sem_getvalue(sem_t *shared, int *out)
{
    int value = (int)load((struct comb_semaphore *)shared);
    comb_copy_to(out, &value, sizeof value);
    return 0;
}

int comb_lib_sem_init(sem_t *shared, int is_shared, unsigned value)
{
    (void)is_shared;
    if (value > SEM_VALUE_MAX)
        return fail(EINVAL);
    struct comb_semaphore new = {.value = value};
    comb_copy_to(shared, &new, sizeof new);
    return 0;
}

int comb_lib_sem_destroy(sem_t *shared)
{
    (void)shared;
    return 0;
}

sem_t *comb_lib_sem_open(const char *name, int flags, ...)
{
    (void)name, (void)flags;
    comb_say("sem_open() is not supported: threads share semaphores of sem_init()");
    errno = ENOSYS;
    return SEM_FAILED;
}

int comb_lib_sem_close(sem_t *semaphore)
{
    (void)semaphore;
    return fail(EINVAL);
}

int comb_lib_sem_unlink(const char *name)
{
    (void)name;
    return fail(ENOENT);
}
