/* attributes.c: pthread_attr_*(). Stack size and detach state count; the rest is kept and told again. */
#include "attributes.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/resource.h>

#include "lives.h"

_Static_assert(sizeof(struct comb_attributes) <= sizeof(pthread_attr_t), "ours lie where libc's would");

/* As libc has it: the limit of the first thread's stack, or 8 MiB where there is none. */
static uint64_t default_stack_bytes(void)
{
    struct rlimit limit;
    int is_limited = !getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur != RLIM_INFINITY;
    return is_limited && limit.rlim_cur >= (rlim_t)PTHREAD_STACK_MIN ? limit.rlim_cur : 8 << 20;
}

struct comb_attributes comb_attributes_read(const pthread_attr_t *shared)
{
    struct comb_attributes found = {
        .stack_bytes = default_stack_bytes(),
        .guard_bytes = 4096,
        .inherits = PTHREAD_INHERIT_SCHED,
    };
    if (shared)
        comb_copy_from(&found, shared, sizeof found);
    return found;
}

static int keep(pthread_attr_t *shared, struct comb_attributes attributes)
{
    comb_copy_to(shared, &attributes, sizeof attributes);
    return 0;
}

int comb_lib_pthread_attr_init(pthread_attr_t *shared)
{
    return keep(shared, comb_attributes_read(NULL));
}

int comb_lib_pthread_attr_destroy(pthread_attr_t *shared)
{
    (void)shared;
    return 0;
}

/* Each of these pairs keeps one value; `is_good` says which are possible. */
#define PAIR(name, type, field, is_good)                                             \
    int comb_lib_pthread_attr_set##name(pthread_attr_t *shared, type value)          \
    {                                                                                \
        struct comb_attributes attributes = comb_attributes_read(shared);            \
        if (!(is_good))                                                              \
            return EINVAL;                                                           \
        attributes.field = value;                                                    \
        return keep(shared, attributes);                                            \
    }                                                                                \
    int comb_lib_pthread_attr_get##name(const pthread_attr_t *shared, type *out)     \
    {                                                                                \
        type value = (type)comb_attributes_read(shared).field;                       \
        comb_copy_to(out, &value, sizeof value);                                     \
        return 0;                                                                    \
    }

PAIR(stacksize, size_t, stack_bytes, value >= (size_t)PTHREAD_STACK_MIN)
PAIR(guardsize, size_t, guard_bytes, 1)
PAIR(detachstate, int, is_detached, value == PTHREAD_CREATE_DETACHED || value == PTHREAD_CREATE_JOINABLE)
PAIR(schedpolicy, int, policy, value == SCHED_OTHER || value == SCHED_FIFO || value == SCHED_RR)
PAIR(inheritsched, int, inherits, value == PTHREAD_INHERIT_SCHED || value == PTHREAD_EXPLICIT_SCHED)
PAIR(scope, int, scope, value == PTHREAD_SCOPE_SYSTEM)

int comb_lib_pthread_attr_setschedparam(pthread_attr_t *shared, const struct sched_param *parameter)
{
    struct comb_attributes attributes = comb_attributes_read(shared);
    comb_copy_from(&attributes.priority, &parameter->sched_priority, sizeof attributes.priority);
    return keep(shared, attributes);
}

int comb_lib_pthread_attr_getschedparam(const pthread_attr_t *shared, struct sched_param *out)
{
    struct sched_param parameter = {.sched_priority = comb_attributes_read(shared).priority};
    comb_copy_to(out, &parameter, sizeof parameter);
    return 0;
}

int comb_lib_pthread_attr_setstack(pthread_attr_t *shared, void *stack, size_t bytes)
{
    struct comb_attributes attributes = comb_attributes_read(shared);
    if (bytes < (size_t)PTHREAD_STACK_MIN)
        return EINVAL;
    attributes.stack = stack;
    attributes.stack_bytes = bytes;
    return keep(shared, attributes);
}

int comb_lib_pthread_attr_getstack(const pthread_attr_t *shared, void **stack, size_t *bytes)
{
    struct comb_attributes attributes = comb_attributes_read(shared);
    size_t length = attributes.stack_bytes;
    comb_copy_to(stack, &attributes.stack, sizeof *stack);
    comb_copy_to(bytes, &length, sizeof length);
    return 0;
}

int comb_lib_pthread_attr_setaffinity_np(pthread_attr_t *shared, size_t bytes, const cpu_set_t *processors)
{
    (void)shared, (void)bytes, (void)processors;
    return 0;
}

/* Of the calling thread what is so; of another what it was born with. */
int comb_lib_pthread_getattr_np(pthread_t thread, pthread_attr_t *shared)
{
    struct comb_attributes attributes = comb_attributes_read(NULL);
    comb_register_lock();
    struct comb_life *life = comb_register_find(thread);
    if (life && life->birth.function) {
        attributes.stack_bytes = life->birth.stack_bytes;
        attributes.is_detached = life->is_detached;
    }
    if (life && life == comb_life()) {
        pthread_attr_t native;
        size_t bytes = 0;
        if (!pthread_getattr_np(pthread_self(), &native)) {
            pthread_attr_getstack(&native, &attributes.stack, &bytes);
            attributes.stack_bytes = bytes;
            pthread_attr_destroy(&native);
        }
    }
    comb_register_unlock();
    return keep(shared, attributes);
}
