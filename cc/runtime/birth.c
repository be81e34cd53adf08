/* birth.c: how a thread begins, here or in another component. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "calls.h"
#include "comb_signals.h"
#include "services.h"
#include "lives.h"

/* What libc itself needs on a machine stack, beyond what the program asked for; escaping objects lie elsewhere. */
static const size_t least_stack_bytes = 64 << 10;

static void *live(void *argument)
{
    struct comb_life *life = argument;
    comb_life_begins(life);
    comb_enter_program(&life->stack);
    comb_look_what_is_present();
    pthread_sigmask(SIG_SETMASK, &life->birth.blocked, NULL);
    const struct comb_birth *birth = &life->birth;
    if (birth->is_c11)
        life->result = (void *)(intptr_t)((int (*)(void *))(void *)birth->function)(birth->argument);
    else
        life->result = birth->function(birth->argument);
    return NULL;
}

/* Not joinable: who joins waits for comb_life.has_ended, in whatever component. Signals wait until the thread is
 * ready for them; but for Comb's own. */
static int begin_native(struct comb_life *life)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    size_t bytes = life->birth.stack_bytes < least_stack_bytes ? least_stack_bytes : life->birth.stack_bytes;
    int error = pthread_attr_setstacksize(&attributes, (bytes + 4095) & ~(size_t)4095);
    sigfillset(&all);
    comb_spare_ours(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!error)
        error = pthread_create(&life->native, &attributes, live, life);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

int comb_begin_here(const struct comb_birth *birth, uint64_t *number)
{
    struct comb_life *life = calloc(1, sizeof *life);
    if (!life)
        return EAGAIN;
    life->birth = *birth;
    life->is_detached = birth->is_detached != 0;
    if (comb_stack_take(birth->stack_bytes, &life->stack)) {
        free(life);
        return EAGAIN;
    }
    comb_register_add(life);
    atomic_fetch_add(&comb_living, 1);
    *number = life->number;
    int error = begin_native(life);
    if (error) {
        comb_register_lock();
        comb_register_remove(life);
        comb_register_unlock();
        atomic_fetch_sub(&comb_living, 1);
        comb_stack_give(&life->stack);
        free(life);
    }
    return error;
}

int comb_begin(const struct comb_birth *birth, uint64_t *number)
{
    unsigned rank = comb_next_place();
    if (rank == comb_here.place.rank)
        return comb_begin_here(birth, number);
    return comb_ask(rank, COMB_CALL_BEGIN, birth, sizeof *birth, number, sizeof *number);
}

long comb_serve_begin(const struct comb_request *request)
{
    struct comb_birth birth;
    if (!comb_request_read(request, &birth, sizeof birth))
        return EINVAL;
    uint64_t number = 0;
    int error = comb_begin_here(&birth, &number);
    comb_reply(request, &number, sizeof number);
    return error;
}
