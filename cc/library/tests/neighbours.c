/* Several cells in one process: a thread says which one it is on, and calls are made by turning into the other for a while. */
#include "world.h"

#ifndef PLAIN
#include "../comb_calls.h"
#include "../services.h"

static _Thread_local unsigned cell;
static unsigned long calls;

unsigned comb_cell(void)
{
    return cell;
}

long comb_call(unsigned to, unsigned service, const void *in, size_t in_bytes, void *out, size_t out_room,
               size_t *out_bytes)
{
    unsigned from = cell;
    calls++;
    if (in_bytes > COMB_CALL_BYTES_MOST || out_room > COMB_CALL_BYTES_MOST || to == from) {
        fprintf(stderr, "a call of %zu and %zu bytes from %u to %u\n", in_bytes, out_room, from, to);
        abort();
    }
    for (unsigned at = 0; at < comb_library_services_count; at++) {
        if (comb_library_services[at].number != service)
            continue;
        cell = to;
        long answer = comb_library_services[at].serve(in, in_bytes, out, out_room, out_bytes);
        cell = from;
        return answer;
    }
    abort();
}

void on_cell(unsigned number)
{
    comb_library_settle();
    cell = number;
}

unsigned long calls_made(void)
{
    return calls;
}
#else
void on_cell(unsigned number)
{
    (void)number;
}

unsigned long calls_made(void)
{
    return 0;
}
#endif
