/* c11.c: C11's names for the same things. Its objects are as long as those of pthreads, or longer. */
#include <errno.h>
#include <threads.h>

#include "attributes.h"
#include "finish.h"
#include "objects.h"
#include "lives.h"

_Static_assert(sizeof(struct comb_mutex) <= sizeof(mtx_t), "ours lie where libc's would");
_Static_assert(sizeof(struct comb_condition) <= sizeof(cnd_t), "ours lie where libc's would");

int comb_lib_pthread_join(pthread_t thread, void **result);
int comb_lib_pthread_detach(pthread_t thread);
void comb_lib_pthread_exit(void *result) __attribute__((noreturn));
int comb_lib_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int comb_lib_pthread_mutex_lock(pthread_mutex_t *mutex);
int comb_lib_pthread_mutex_trylock(pthread_mutex_t *mutex);
int comb_lib_pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *deadline);
int comb_lib_pthread_mutex_unlock(pthread_mutex_t *mutex);
int comb_lib_pthread_mutex_destroy(pthread_mutex_t *mutex);
int comb_lib_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int comb_lib_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int comb_lib_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline);
int comb_lib_pthread_cond_signal(pthread_cond_t *condition);
int comb_lib_pthread_cond_broadcast(pthread_cond_t *condition);
int comb_lib_pthread_cond_destroy(pthread_cond_t *condition);
int comb_lib_pthread_once(pthread_once_t *once, void (*function)(void));
int comb_lib_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int comb_lib_pthread_key_delete(pthread_key_t key);
void *comb_lib_pthread_getspecific(pthread_key_t key);
int comb_lib_pthread_setspecific(pthread_key_t key, const void *content);

static int outcome(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case EBUSY:
        return thrd_busy;
    case ETIMEDOUT:
        return thrd_timedout;
    case ENOMEM:
    case EAGAIN:
        return thrd_nomem;
    default:
        return thrd_error;
    }
}

int comb_lib_thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    struct comb_birth birth = {
        .function = (void *(*)(void *))(void *)function,
        .argument = argument,
        .stack_bytes = comb_attributes_read(NULL).stack_bytes,
        .is_c11 = 1,
    };
    pthread_sigmask(SIG_SETMASK, NULL, &birth.blocked);
    comb_flush_output();
    uint64_t number = 0;
    int error = comb_begin(&birth, &number);
    if (!error)
        comb_copy_to(thread, &number, sizeof number);
    return outcome(error);
}

int comb_lib_thrd_join(thrd_t thread, int *result)
{
    void *value;
    int error = comb_lib_pthread_join(thread, &value);
    int number = error ? 0 : (int)(intptr_t)value;
    if (!error && result)
        comb_copy_to(result, &number, sizeof number);
    return outcome(error);
}

int comb_lib_thrd_detach(thrd_t thread)
{
    return outcome(comb_lib_pthread_detach(thread));
}

void comb_lib_thrd_exit(int result)
{
    comb_lib_pthread_exit((void *)(intptr_t)result);
}

thrd_t comb_lib_thrd_current(void)
{
    return comb_self();
}

int comb_lib_thrd_equal(thrd_t one, thrd_t other)
{
    return one == other;
}

int comb_lib_mtx_init(mtx_t *mutex, int type)
{
    int32_t kind = type & mtx_recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL;
    struct comb_mutex new = {.kind = kind};
    comb_copy_to(mutex, &new, sizeof new);
    return thrd_success;
}

int comb_lib_mtx_lock(mtx_t *mutex)
{
    return outcome(comb_lib_pthread_mutex_lock((pthread_mutex_t *)mutex));
}

int comb_lib_mtx_trylock(mtx_t *mutex)
{
    return outcome(comb_lib_pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

int comb_lib_mtx_timedlock(mtx_t *mutex, const struct timespec *deadline)
{
    return outcome(comb_lib_pthread_mutex_timedlock((pthread_mutex_t *)mutex, deadline));
}

int comb_lib_mtx_unlock(mtx_t *mutex)
{
    return outcome(comb_lib_pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

void comb_lib_mtx_destroy(mtx_t *mutex)
{
    comb_lib_pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int comb_lib_cnd_init(cnd_t *condition)
{
    return outcome(comb_lib_pthread_cond_init((pthread_cond_t *)condition, NULL));
}

int comb_lib_cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return outcome(comb_lib_pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

int comb_lib_cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *deadline)
{
    return outcome(comb_lib_pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, deadline));
}

int comb_lib_cnd_signal(cnd_t *condition)
{
    return outcome(comb_lib_pthread_cond_signal((pthread_cond_t *)condition));
}

int comb_lib_cnd_broadcast(cnd_t *condition)
{
    return outcome(comb_lib_pthread_cond_broadcast((pthread_cond_t *)condition));
}

void comb_lib_cnd_destroy(cnd_t *condition)
{
    comb_lib_pthread_cond_destroy((pthread_cond_t *)condition);
}

void comb_lib_call_once(once_flag *once, void (*function)(void))
{
    comb_lib_pthread_once((pthread_once_t *)once, function);
}

int comb_lib_tss_create(tss_t *key, tss_dtor_t destructor)
{
    return outcome(comb_lib_pthread_key_create((pthread_key_t *)key, destructor));
}

void comb_lib_tss_delete(tss_t key)
{
    comb_lib_pthread_key_delete(key);
}

void *comb_lib_tss_get(tss_t key)
{
    return comb_lib_pthread_getspecific(key);
}

int comb_lib_tss_set(tss_t key, void *content)
{
    return outcome(comb_lib_pthread_setspecific(key, content));
}
