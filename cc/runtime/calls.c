/* calls.c: the threads that serve what other components ask. A service may wait for long (for a thread's end, for a
 * terminal): there is always one thread more than calls that are being served, up to a bound beyond which calls wait
 * for each other. */
#include "calls.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comb_calls.h"
#include "comb_signals.h"
#include "runtime.h"
#include "services.h"
#include "words.h"

#define MOST_SERVERS 4096
static const size_t server_stack_bytes = 256 << 10;

static comb_word idle, servers;

typedef long (*service)(const struct comb_request *request);

static const service services[COMB_CALLS_OF_RUNTIME] = {
    [COMB_CALL_BEGIN] = comb_serve_begin,
    [COMB_CALL_JOIN] = comb_serve_join,
    [COMB_CALL_DETACH] = comb_serve_detach,
    [COMB_CALL_KILL] = comb_serve_kill,
    [COMB_CALL_LIVING] = comb_serve_living,
    [COMB_CALL_KEY_CREATE] = comb_serve_key_create,
    [COMB_CALL_KEY_DELETE] = comb_serve_key_delete,
    [COMB_CALL_KEY_DESTRUCTOR] = comb_serve_key_destructor,
    [COMB_CALL_FREE] = comb_serve_free,
    [COMB_CALL_USABLE] = comb_serve_usable,
    [COMB_CALL_EXIT] = comb_serve_exit,
    [COMB_CALL_AT_EXIT] = comb_serve_at_exit,
    [COMB_CALL_FLUSH] = comb_serve_flush,
    [COMB_CALL_SIGNAL] = comb_serve_signal,
};

static const struct comb_library_service *find_in_library(unsigned number)
{
    for (unsigned i = 0; i < comb_library_services_count; i++)
        if (comb_library_services[i].number == number)
            return &comb_library_services[i];
    return NULL;
}

/* The result; the service leaves its error number in errno. */
static long serve(const struct comb_request *request, unsigned number)
{
    if (number < COMB_CALLS_OF_RUNTIME && services[number])
        return services[number](request);
    const struct comb_library_service *found =
        number >= COMB_CALL_LIBRARY ? find_in_library(number - COMB_CALL_LIBRARY) : NULL;
    if (!found) {
        errno = ENOSYS;
        return -1;
    }
    return found->serve(request->in, request->in_bytes, request->out, request->out_room, request->out_bytes);
}

static void answer(struct comb_incoming *incoming, char *out)
{
    size_t out_bytes = 0;
    struct comb_request request = {
        .in = incoming->in,
        .in_bytes = incoming->in_bytes,
        .out = out,
        .out_room = incoming->out_room < COMB_CALL_BYTES ? incoming->out_room : COMB_CALL_BYTES,
        .out_bytes = &out_bytes,
        .from = incoming->from,
    };
    errno = 0;
    long result = serve(&request, incoming->service);
    int error = errno;
    comb_here.program->answer(incoming, result, out, out_bytes, error);
}

static void begin_server(void);

static void *serve_all(void *unused)
{
    struct comb_incoming incoming;
    char *out = malloc(COMB_CALL_BYTES);
    if (!out)
        comb_die("no memory to serve calls");
    comb_here.program->thread_begin(&comb_thread);
    while (!comb_here.program->next(&incoming)) {
        if (atomic_fetch_sub(&idle, 1) == 1)
            begin_server();
        answer(&incoming, out);
        atomic_fetch_add(&idle, 1);
    }
    comb_here.program->thread_end(&comb_thread);
    free(out);
    return unused;
}

/* Signals are for the program's own threads; but for Comb's own. */
static void begin_server(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (atomic_fetch_add(&servers, 1) >= MOST_SERVERS) {
        atomic_fetch_sub(&servers, 1);
        return;
    }
    atomic_fetch_add(&idle, 1);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, server_stack_bytes);
    sigfillset(&all);
    comb_spare_ours(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, serve_all, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error && atomic_load(&servers) == 1)
        comb_die("no thread to serve calls: %s", strerror(error));
    if (error) {
        atomic_fetch_sub(&idle, 1);
        atomic_fetch_sub(&servers, 1);
    }
}

void comb_begin_calls(void)
{
    begin_server();
    begin_server();
}

unsigned comb_cell(void)
{
    return comb_here.place.rank;
}

/* Of the library, which numbers its services from 0. Without an answer -1 and errno. */
long comb_call(unsigned cell, unsigned number, const void *in, size_t in_bytes, void *out, size_t out_room,
               size_t *out_bytes)
{
    int error = 0;
    if (!comb_here.program) {
        size_t unwanted = 0;
        const struct comb_library_service *found = cell ? NULL : find_in_library(number);
        if (found)
            return found->serve(in, in_bytes, out, out_room, out_bytes ? out_bytes : &unwanted);
        errno = ENXIO;
        return -1;
    }
    long result = comb_here.program->call(cell, COMB_CALL_LIBRARY + number, in, in_bytes, out, out_room, out_bytes,
                                          &error);
    errno = error;
    return result;
}

int comb_ask(unsigned rank, unsigned number, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    int error = 0;
    size_t got = 0;
    int saved = errno;
    long result = comb_here.program->call(rank, number, in, in_bytes, out, out_bytes, &got, &error);
    errno = saved;
    return result == -1 ? EIO : (int)result;
}

int comb_request_read(const struct comb_request *request, void *to, size_t bytes)
{
    if (request->in_bytes != bytes)
        return 0;
    memcpy(to, request->in, bytes);
    return 1;
}

void comb_reply(const struct comb_request *request, const void *from, size_t bytes)
{
    if (bytes > request->out_room)
        bytes = request->out_room;
    if (bytes)
        memcpy(request->out, from, bytes);
    *request->out_bytes = bytes;
}
