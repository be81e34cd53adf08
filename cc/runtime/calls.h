/* calls.h: what components ask of each other. */
#ifndef COMB_RUNTIME_CALLS_H
#define COMB_RUNTIME_CALLS_H

#include <stddef.h>

#include "comb_program.h"

/* The runtime's own; the library's begin at COMB_CALL_LIBRARY. */
enum comb_call_number {
    COMB_CALL_BEGIN,      /* birth.c: a thread begins */
    COMB_CALL_JOIN,       /* end.c */
    COMB_CALL_DETACH,     /* end.c */
    COMB_CALL_KILL,       /* kill.c: a signal for a thread */
    COMB_CALL_LIVING,     /* finish.c: waits until no thread of the program runs there */
    COMB_CALL_KEY_CREATE, /* keys.c: these three of component 0 */
    COMB_CALL_KEY_DELETE,
    COMB_CALL_KEY_DESTRUCTOR,
    COMB_CALL_FREE,    /* foreign.c: objects come back to where they were allocated */
    COMB_CALL_USABLE,  /* foreign.c: how long an object is */
    COMB_CALL_EXIT,    /* finish.c: of component 0: the program ends */
    COMB_CALL_AT_EXIT, /* finish.c: of component 0 */
    COMB_CALL_FLUSH,   /* finish.c: standard output */
    COMB_CALL_SIGNAL,  /* signals.c: what a signal does */
    COMB_CALLS_OF_RUNTIME,
    COMB_CALL_LIBRARY = 64
};

/* A call that is being served. */
struct comb_request {
    const void *in;
    size_t in_bytes;
    char *out;
    size_t out_room;
    size_t *out_bytes;
    unsigned from;
};

/* Begins to serve calls of other components. */
void comb_begin_calls(void);

/* Calls another component's, or this one's, service, and returns its result; EIO if there was no answer. For
 * services that return error numbers. */
int comb_ask(unsigned rank, unsigned service, const void *in, size_t in_bytes, void *out, size_t out_bytes);

/* For services: copies what came with the call, and is true if it was as long as that; and what goes back. */
int comb_request_read(const struct comb_request *request, void *to, size_t bytes);
void comb_reply(const struct comb_request *request, const void *from, size_t bytes);

#endif
