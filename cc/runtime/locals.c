/* locals.c: what C++ has a thread do at its end for each of its thread-local objects. libc would do it when the thread is no thread of
 * the program's any more, and their destructors are the program's code. */
#include <stdlib.h>

#include "runtime.h"

struct local {
    struct local *next;
    void (*end)(void *object);
    void *object;
};
static __thread struct local *locals;

int comb_lib___cxa_thread_atexit(void (*end)(void *), void *object, void *library)
{
    (void)library; /* libraries are not unloaded before the end */
    struct local *local = malloc(sizeof *local);
    if (!local)
        return -1;
    *local = (struct local){locals, end, object};
    locals = local;
    return 0;
}

void comb_locals_end(void)
{
    for (struct local *local; (local = locals);) {
        locals = local->next;
        local->end(local->object);
        free(local);
    }
}
