/* create.c: pthread_create(), and what a program says of threads by their number. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "attributes.h"
#include "finish.h"
#include "lives.h"

int comb_lib_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                            void *argument)
{
    struct comb_attributes wanted = comb_attributes_read(attributes);
    struct comb_birth birth = {
        .function = function,
        .argument = argument,
        .stack_bytes = wanted.stack_bytes,
        .is_detached = wanted.is_detached,
    };
    pthread_sigmask(SIG_SETMASK, NULL, &birth.blocked);
    comb_flush_output(); /* what was written before comes before what the thread writes */
    uint64_t number = 0;
    int error = comb_begin(&birth, &number);
    if (!error)
        comb_copy_to(thread, &number, sizeof number);
    return error;
}

pthread_t comb_lib_pthread_self(void)
{
    return comb_self();
}

int comb_lib_pthread_equal(pthread_t one, pthread_t other)
{
    return one == other;
}

/* A name is for those who look at the process from outside: threads of other components go without. */
int comb_lib_pthread_setname_np(pthread_t thread, const char *shared)
{
    char name[17] = "";
    size_t length = comb_length(shared, sizeof name);
    if (length > 15)
        return ERANGE;
    comb_copy_from(name, shared, length);
    comb_register_lock();
    struct comb_life *life = comb_register_find(thread);
    int error = life ? pthread_setname_np(life->native, name) : 0;
    comb_register_unlock();
    return error;
}

int comb_lib_pthread_getname_np(pthread_t thread, char *shared, size_t room)
{
    char name[16] = "";
    if (room < sizeof name)
        return ERANGE;
    comb_register_lock();
    struct comb_life *life = comb_register_find(thread);
    int error = life ? pthread_getname_np(life->native, name, sizeof name) : 0;
    comb_register_unlock();
    if (!error)
        comb_copy_to(shared, name, sizeof name);
    return error;
}

/* Where a thread runs is Comb's to say: a wish for a processor is taken, and does nothing. */
int comb_lib_pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t *processors)
{
    (void)thread, (void)bytes, (void)processors;
    return 0;
}

int comb_lib_pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *shared)
{
    (void)thread;
    cpu_set_t processors;
    CPU_ZERO(&processors);
    sched_getaffinity(0, sizeof processors, &processors);
    comb_copy_to(shared, &processors, bytes < sizeof processors ? bytes : sizeof processors);
    return 0;
}

int comb_lib_pthread_setconcurrency(int level)
{
    (void)level;
    return 0;
}

int comb_lib_pthread_getconcurrency(void)
{
    return 0;
}

/* Priorities are the host's own; a program that asks for what every thread has is not wrong. */
int comb_lib_pthread_setschedparam(pthread_t thread, int policy, const struct sched_param *parameter)
{
    (void)thread, (void)parameter;
    return policy == SCHED_OTHER ? 0 : EPERM;
}

int comb_lib_pthread_getschedparam(pthread_t thread, int *policy, struct sched_param *parameter)
{
    (void)thread;
    int other = SCHED_OTHER;
    struct sched_param none = {0};
    comb_copy_to(policy, &other, sizeof other);
    comb_copy_to(parameter, &none, sizeof none);
    return 0;
}

/* Threads of other components cannot be cancelled in the middle of what they do, and so none is. */
int comb_lib_pthread_cancel(pthread_t thread)
{
    (void)thread;
    comb_say("pthread_cancel() is not supported: let the thread look at a flag, and return");
    return ENOSYS;
}

int comb_lib_pthread_setcancelstate(int state, int *before)
{
    int enabled = PTHREAD_CANCEL_ENABLE;
    if (state != PTHREAD_CANCEL_ENABLE && state != PTHREAD_CANCEL_DISABLE)
        return EINVAL;
    if (before)
        comb_copy_to(before, &enabled, sizeof enabled);
    return 0;
}

int comb_lib_pthread_setcanceltype(int type, int *before)
{
    int deferred = PTHREAD_CANCEL_DEFERRED;
    if (type != PTHREAD_CANCEL_DEFERRED && type != PTHREAD_CANCEL_ASYNCHRONOUS)
        return EINVAL;
    if (before)
        comb_copy_to(before, &deferred, sizeof deferred);
    return 0;
}

void comb_lib_pthread_testcancel(void)
{
}
