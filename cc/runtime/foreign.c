/* foreign.c: what one component allocates and another frees goes back to the first, many objects in one call. */
#include "foreign.h"

#include <errno.h>

#include "calls.h"
#include "services.h"
#include "classes.h"
#include "memory.h"
#include "runtime.h"

/* A call takes some 20 microseconds: shared by so many it is no longer what free() costs. What is freed meanwhile is
 * short: see comb_foreign_free(). */
#define MOST 128

static _Thread_local struct {
    unsigned count;
    void *object[MOST];
    unsigned short owner[MOST];
} freed;

static void send(unsigned owner)
{
    void *objects[MOST];
    size_t count = 0;
    for (unsigned i = 0; i < freed.count; i++)
        if (freed.owner[i] == owner)
            objects[count++] = freed.object[i];
    if (count)
        comb_ask(owner, COMB_CALL_FREE, objects, count * sizeof *objects, NULL, 0);
}

void comb_foreign_flush(void)
{
    if (!freed.count)
        return;
    for (unsigned owner = 0; owner < comb_here.place.count; owner++)
        send(owner);
    freed.count = 0;
}

/* Which component allocated what lies at a heap address. */
static unsigned owner_of(const void *memory)
{
    unsigned owner = comb_here.program ? comb_here.program->owner(memory) : 0;
    if (owner == comb_here.place.rank || owner >= comb_here.place.count)
        comb_die("%p is no allocated object", memory);
    return owner;
}

void comb_foreign_free(void *memory)
{
    unsigned owner = owner_of(memory);
    freed.object[freed.count] = memory;
    freed.owner[freed.count++] = (unsigned short)owner;
    /* What begins a page may be large: its memory is wanted back at once. */
    if (freed.count == MOST || (uintptr_t)memory % 65536 == 0)
        comb_foreign_flush();
}

size_t comb_foreign_usable(const void *memory)
{
    size_t bytes = 0;
    comb_ask(owner_of(memory), COMB_CALL_USABLE, &memory, sizeof memory, &bytes, sizeof bytes);
    if (!bytes)
        comb_die("%p is no allocated object", memory);
    return bytes;
}

long comb_serve_free(const struct comb_request *request)
{
    void *const *objects = request->in;
    for (size_t i = 0; i < request->in_bytes / sizeof *objects; i++)
        comb_own_free(objects[i]);
    return 0;
}

long comb_serve_usable(const struct comb_request *request)
{
    const void *memory;
    if (!comb_request_read(request, &memory, sizeof memory))
        return EINVAL;
    size_t bytes = comb_own_usable(memory);
    comb_reply(request, &bytes, sizeof bytes);
    return 0;
}
