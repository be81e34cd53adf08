/* A call that another cell makes for us: the function, its arguments, and the bytes that they point to. */
#include "wrap.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "services.h"

/* What is sent, before the bytes of the parts, in their order. */
struct request {
    uintptr_t function;
    size_t count;
    struct comb_part parts[COMB_PARTS_MOST];
};

static size_t sum_in(const struct comb_part *parts, size_t count)
{
    size_t bytes = 0;
    for (size_t at = 0; at < count; at++)
        bytes += parts[at].own ? parts[at].in : 0;
    return bytes;
}

static size_t sum_out(const struct comb_part *parts, size_t count)
{
    size_t bytes = 0;
    for (size_t at = 0; at < count; at++)
        bytes += parts[at].own ? parts[at].out : 0;
    return bytes;
}

long comb_forward(unsigned cell, void (*function)(void), const struct comb_part *parts, size_t count)
{
    if (cell == (unsigned)COMB_SEVERAL_CELLS) {
        errno = EXDEV;
        return -1;
    }
    COMB_DESK(desk);
    size_t in_bytes = sizeof(struct request) + sum_in(parts, count), out_room = sum_out(parts, count), out_bytes = 0;
    char *in = comb_desk_room(&desk, in_bytes), *out = comb_desk_room(&desk, out_room + 1);
    struct request *request = (struct request *)in;
    *request = (struct request){(uintptr_t)function, count, {{0}}};
    memcpy(request->parts, parts, count * sizeof *parts);
    char *at = in + sizeof *request;
    for (size_t part = 0; part < count; part++) {
        if (parts[part].own && parts[part].in)
            at = (char *)memcpy(at, parts[part].own, parts[part].in) + parts[part].in;
    }
    long answer = comb_call(cell, COMB_SERVICE_FORWARD, in, in_bytes, out, out_room, &out_bytes);
    if (out_bytes < out_room)
        return answer;
    int error = errno;
    at = out;
    for (size_t part = 0; part < count; part++) {
        if (!parts[part].own)
            continue;
        memcpy(parts[part].own, at, parts[part].out);
        at += parts[part].out;
    }
    errno = error;
    return answer;
}

long comb_serve_forward(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes)
{
    COMB_DESK(desk);
    struct request request;
    *out_bytes = 0;
    if (in_bytes < sizeof request) {
        errno = EPROTO;
        return -1;
    }
    memcpy(&request, in, sizeof request);
    if (request.count > COMB_PARTS_MOST || in_bytes != sizeof request + sum_in(request.parts, request.count) ||
        sum_out(request.parts, request.count) > out_room) {
        errno = EPROTO;
        return -1;
    }
    long words[COMB_PARTS_MOST] = {0};
    const char *at = (const char *)in + sizeof request;
    for (size_t part = 0; part < request.count; part++) {
        struct comb_part *the = &request.parts[part];
        words[part] = the->value;
        if (!the->own)
            continue;
        size_t room = the->in > the->out ? the->in : the->out;
        the->own = memset(comb_desk_room(&desk, room), 0, room);
        memcpy(the->own, at, the->in);
        at += the->in;
        words[part] = (long)the->own;
    }
    long (*function)(long, long, long, long, long, long, long, long) =
        (long (*)(long, long, long, long, long, long, long, long))request.function;
    long answer = function(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]);
    int error = errno;
    for (size_t part = 0; part < request.count; part++) {
        if (!request.parts[part].own)
            continue;
        memcpy((char *)out + *out_bytes, request.parts[part].own, request.parts[part].out);
        *out_bytes += request.parts[part].out;
    }
    errno = error;
    return answer;
}
