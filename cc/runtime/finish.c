/* finish.c: the program ends in component 0, whoever ends it: handlers of atexit() run once, there; what the others
 * have written is out before; and then all components end with the same status. */
#include "finish.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <unistd.h>

#include "calls.h"
#include "comb_calls.h"
#include "foreign.h"
#include "services.h"
#include "lives.h"

/* The library may be without files: then there is nothing to settle. */
#pragma weak comb_library_settle

int __cxa_atexit(void (*function)(void *), void *argument, void *library);

enum how { BY_EXIT, QUICKLY, AT_ONCE };

struct ending {
    int32_t status;
    uint32_t how;
};

void comb_flush_spread_output(void)
{
    if (comb_library_settle)
        comb_library_settle();
    if (__fpending(stdout))
        fflush(stdout); /* of ordinary code; the program's own goes to component 0 */
}

long comb_serve_flush(const struct comb_request *request)
{
    (void)request;
    fflush(NULL);
    return 0;
}

static __attribute__((noreturn)) void sleep_for_ever(void)
{
    __atomic_store_n(&comb_thread.away, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause();
}

void comb_wait_for_the_end(void)
{
    sleep_for_ever();
}

/* The last of all handlers, in component 0. In others exit() is never called by the program. */
static void end_all(int status, void *unused)
{
    (void)unused;
    if (!comb_here.program)
        return;
    for (unsigned rank = 1; rank < comb_here.place.count && !comb_here.place.rank; rank++)
        comb_ask(rank, COMB_CALL_FLUSH, NULL, 0, NULL, 0);
    fflush(NULL);
    comb_here.program->end(status);
}

void comb_begin_finish(void)
{
    if (!comb_here.program)
        return;
    on_exit(end_all, NULL);
    if (comb_is_spread())
        setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

/* Handlers of at_quick_exit(), in component 0. */
#define MOST_QUICK 64
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*quick[MOST_QUICK])(void);
static int quick_count;

static void finish(struct ending ending)
{
    static pthread_mutex_t is_ending = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&is_ending); /* the first one ends the program, and the others wait for that */
    if (ending.how == BY_EXIT)
        exit(ending.status);
    if (ending.how == QUICKLY)
        while (quick_count)
            quick[--quick_count]();
    if (comb_here.program)
        comb_here.program->end(ending.status);
    _exit(ending.status);
}

long comb_serve_exit(const struct comb_request *request)
{
    struct ending ending;
    if (!comb_request_read(request, &ending, sizeof ending))
        return EINVAL;
    finish(ending);
    return 0;
}

static __attribute__((noreturn)) void end_program(int status, enum how how)
{
    struct ending ending = {status, how};
    if (how == BY_EXIT) {
        comb_locals_end();
        comb_flush_output();
    }
    if (comb_here.place.rank)
        comb_ask(0, COMB_CALL_EXIT, &ending, sizeof ending, NULL, 0);
    else
        finish(ending);
    sleep_for_ever();
}

__attribute__((noreturn)) void comb_lib_exit(int status)
{
    end_program(status, BY_EXIT);
}

__attribute__((noreturn)) void comb_lib_quick_exit(int status)
{
    end_program(status, QUICKLY);
}

__attribute__((noreturn)) void comb_lib__exit(int status)
{
    end_program(status, AT_ONCE);
}

__attribute__((noreturn)) void comb_lib__Exit(int status)
{
    end_program(status, AT_ONCE);
}

/* A component that ends by a signal ends the task: `comb run` sees it. */
void comb_lib_abort(void)
{
    abort();
}

/* What is to be called at the end, whoever asks for it. */
struct handler {
    uint32_t kind;
    void *function, *argument;
};
enum { WITH_ARGUMENT, WITHOUT, WITH_STATUS, IF_QUICK };

static void call_without(void *function)
{
    ((void (*)(void))function)();
}

static int add_quick(void (*function)(void))
{
    pthread_mutex_lock(&lock);
    int is_full = quick_count == MOST_QUICK;
    if (!is_full)
        quick[quick_count++] = function;
    pthread_mutex_unlock(&lock);
    return is_full ? ENOMEM : 0;
}

static int add_here(const struct handler *handler)
{
    switch (handler->kind) {
    case WITH_ARGUMENT:
        return __cxa_atexit((void (*)(void *))handler->function, handler->argument, NULL) ? ENOMEM : 0;
    case WITHOUT:
        return __cxa_atexit(call_without, handler->function, NULL) ? ENOMEM : 0;
    case WITH_STATUS:
        return on_exit((void (*)(int, void *))handler->function, handler->argument) ? ENOMEM : 0;
    case IF_QUICK:
        return add_quick((void (*)(void))handler->function);
    default:
        return EINVAL;
    }
}

long comb_serve_at_exit(const struct comb_request *request)
{
    struct handler handler;
    return comb_request_read(request, &handler, sizeof handler) ? add_here(&handler) : EINVAL;
}

static int add(struct handler handler)
{
    int error = comb_here.place.rank ? comb_ask(0, COMB_CALL_AT_EXIT, &handler, sizeof handler, NULL, 0)
                                     : add_here(&handler);
    return error ? -1 : 0;
}

int comb_lib_atexit(void (*function)(void))
{
    return add((struct handler){WITHOUT, (void *)function, NULL});
}

int comb_lib___cxa_atexit(void (*function)(void *), void *argument, void *library)
{
    (void)library; /* libraries are not unloaded before the end */
    return add((struct handler){WITH_ARGUMENT, (void *)function, argument});
}

int comb_lib_on_exit(void (*function)(int, void *), void *argument)
{
    return add((struct handler){WITH_STATUS, (void *)function, argument});
}

int comb_lib_at_quick_exit(void (*function)(void))
{
    return add((struct handler){IF_QUICK, (void *)function, NULL});
}

/* Returns whether some thread was still there. */
static int wait_for_living(void)
{
    uint32_t living = atomic_load(&comb_living);
    int was_there = living != 0;
    while ((living = atomic_load(&comb_living)))
        comb_word_wait(&comb_living, living, COMB_FOR_EVER);
    return was_there;
}

long comb_serve_living(const struct comb_request *request)
{
    (void)request;
    return wait_for_living();
}

/* The program goes on until its last thread ends. Threads may begin others elsewhere: until nobody was found
 * anywhere. */
void comb_end_of_main_thread(void)
{
    comb_locals_end();
    comb_keys_end();
    comb_foreign_flush();
    comb_flush_output();
    for (int was_there = 1; was_there;) {
        was_there = wait_for_living();
        for (unsigned rank = 1; rank < comb_here.place.count; rank++)
            was_there |= comb_ask(rank, COMB_CALL_LIVING, NULL, 0, NULL, 0);
    }
    exit(0);
}
