/* end.c: how a thread ends, and who waits for that. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "services.h"
#include "finish.h"
#include "foreign.h"
#include "memory.h"
#include "lives.h"

/* The last of a thread here. Whoever joins finds all that it has stored, and its output is out. */
void comb_end_thread(void *argument)
{
    struct comb_life *life = argument;
    comb_locals_end();
    comb_keys_end();
    comb_foreign_flush();
    comb_cache_end();
    comb_flush_output();
    comb_leave_program();
    if (comb_here.program)
        comb_here.program->publish();
    comb_stack_give(&life->stack);
    comb_register_lock();
    int is_forgotten = life->is_detached;
    if (is_forgotten)
        comb_register_remove(life);
    else
        atomic_store(&life->has_ended, 1);
    comb_register_unlock();
    /* The joiner may already be gone with it. A word that nobody waits at any more is woken for nothing: it is
     * private memory. */
    if (is_forgotten)
        free(life);
    else
        comb_word_wake(&life->has_ended, INT_MAX);
    if (atomic_fetch_sub(&comb_living, 1) == 1)
        comb_word_wake(&comb_living, INT_MAX);
}

static int wait_for(struct comb_life *life, enum comb_patience patience, struct comb_deadline deadline)
{
    while (!atomic_load(&life->has_ended)) {
        if (patience == COMB_TRY)
            return EBUSY;
        if (comb_word_wait(&life->has_ended, 0, deadline))
            return ETIMEDOUT;
    }
    return 0;
}

int comb_join_here(uint64_t number, enum comb_patience patience, struct comb_deadline deadline, void **result)
{
    comb_register_lock();
    struct comb_life *life = comb_register_find(number);
    int error = !life ? ESRCH : life->is_detached || life->is_joined ? EINVAL : 0;
    if (!error)
        life->is_joined = 1;
    comb_register_unlock();
    if (error)
        return error;
    error = wait_for(life, patience, deadline);
    comb_register_lock();
    life->is_joined = 0;
    if (!error)
        comb_register_remove(life);
    comb_register_unlock();
    if (!error) {
        *result = life->result;
        free(life);
    }
    return error;
}

int comb_detach_here(uint64_t number)
{
    comb_register_lock();
    struct comb_life *life = comb_register_find(number);
    int error = !life ? ESRCH : life->is_detached || life->is_joined ? EINVAL : 0;
    int has_ended = !error && atomic_load(&life->has_ended);
    if (!error)
        life->is_detached = 1;
    if (has_ended)
        comb_register_remove(life);
    comb_register_unlock();
    if (has_ended)
        free(life);
    return error;
}

/* What travels for a join. Time is what is left of it: clocks of hosts differ. */
struct join_request {
    uint64_t number;
    int64_t left_ns;
    uint32_t patience;
};

static int64_t left_ns(struct comb_deadline deadline)
{
    struct timespec now;
    if (!deadline.at)
        return 0;
    clock_gettime(deadline.is_realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
    return (deadline.at->tv_sec - now.tv_sec) * 1000000000 + deadline.at->tv_nsec - now.tv_nsec;
}

static int join(uint64_t number, enum comb_patience patience, struct comb_deadline deadline, void **result)
{
    if (number == comb_self())
        return EDEADLK;
    unsigned rank = comb_rank_of(number);
    if (rank >= comb_here.place.count)
        return ESRCH;
    if (rank == comb_here.place.rank)
        return comb_join_here(number, patience, deadline, result);
    struct join_request request = {number, left_ns(deadline), patience};
    return comb_ask(rank, COMB_CALL_JOIN, &request, sizeof request, result, sizeof *result);
}

long comb_serve_join(const struct comb_request *call)
{
    struct join_request request;
    if (!comb_request_read(call, &request, sizeof request))
        return EINVAL;
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t left = request.left_ns > 0 ? request.left_ns : 0;
    at.tv_sec += (at.tv_nsec + left) / 1000000000;
    at.tv_nsec = (at.tv_nsec + left) % 1000000000;
    struct comb_deadline deadline = {request.patience == COMB_UNTIL ? &at : NULL, 0};
    void *result = NULL;
    int error = comb_join_here(request.number, request.patience, deadline, &result);
    comb_reply(call, &result, sizeof result);
    return error;
}

long comb_serve_detach(const struct comb_request *call)
{
    uint64_t number;
    return comb_request_read(call, &number, sizeof number) ? comb_detach_here(number) : EINVAL;
}

static int join_for_program(uint64_t number, enum comb_patience patience, struct comb_deadline deadline, void **result)
{
    void *value = NULL;
    int error = join(number, patience, deadline, &value);
    if (!error && result)
        comb_copy_to(result, &value, sizeof value);
    return error;
}

int comb_lib_pthread_join(pthread_t thread, void **result)
{
    return join_for_program(thread, COMB_WAIT, COMB_FOR_EVER, result);
}

int comb_lib_pthread_tryjoin_np(pthread_t thread, void **result)
{
    return join_for_program(thread, COMB_TRY, COMB_FOR_EVER, result);
}

int comb_lib_pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *shared)
{
    struct timespec at;
    comb_copy_from(&at, shared, sizeof at);
    if (comb_deadline_check(&at))
        return EINVAL;
    return join_for_program(thread, COMB_UNTIL, (struct comb_deadline){&at, clock == CLOCK_REALTIME}, result);
}

int comb_lib_pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *shared)
{
    return comb_lib_pthread_clockjoin_np(thread, result, CLOCK_REALTIME, shared);
}

int comb_lib_pthread_detach(pthread_t thread)
{
    unsigned rank = comb_rank_of(thread);
    uint64_t number = thread;
    if (rank >= comb_here.place.count)
        return ESRCH;
    if (rank == comb_here.place.rank)
        return comb_detach_here(number);
    return comb_ask(rank, COMB_CALL_DETACH, &number, sizeof number, NULL, 0);
}

void comb_end_of_thread(void)
{
    struct comb_life *life = comb_life();
    if (!life->birth.function && life->native == pthread_self() && !life->is_detached)
        comb_end_of_main_thread();
    pthread_exit(NULL);
}

void comb_lib_pthread_exit(void *result)
{
    comb_life()->result = result;
    comb_clean_up();
    comb_end_of_thread();
}
