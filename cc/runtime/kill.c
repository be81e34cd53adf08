/* kill.c: signals for one thread, wherever it runs. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "calls.h"
#include "services.h"
#include "lives.h"

static int kill_here(uint64_t number, int signal)
{
    comb_register_lock();
    struct comb_life *life = comb_register_find(number);
    int has_ended = life && atomic_load(&life->has_ended);
    int error = !life ? ESRCH : has_ended ? 0 : pthread_kill(life->native, signal);
    comb_register_unlock();
    return error;
}

struct request {
    uint64_t number;
    int64_t signal;
};

long comb_serve_kill(const struct comb_request *call)
{
    struct request request;
    return comb_request_read(call, &request, sizeof request) ? kill_here(request.number, (int)request.signal) : EINVAL;
}

int comb_lib_pthread_kill(pthread_t thread, int signal)
{
    unsigned rank = comb_rank_of(thread);
    struct request request = {thread, signal};
    if (rank >= comb_here.place.count)
        return ESRCH;
    if (rank == comb_here.place.rank)
        return kill_here(thread, signal);
    return comb_ask(rank, COMB_CALL_KILL, &request, sizeof request, NULL, 0);
}
