/* runtime.h: what the parts of the runtime know of each other.
 *
 * The runtime is ordinary code, and its own data is private to each component. It touches the program's memory by
 * comb_access.h, or, where components have the same page frames (comb_here.by_messages is 0), by plain atomics. */
#ifndef COMB_RUNTIME_H
#define COMB_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "comb_access.h"
#include "comb_program.h"
#include "comb_thread.h"

/* What this process is. Set before any code of the program runs, and constant from then on. */
struct comb_here {
    const struct comb_program *program; /* NULL: the program runs alone */
    struct comb_place place;            /* alone: rank 0 of 1 */
    int by_messages;                    /* copies: locks are messages, and objects are touched by comb_access.h */
    unsigned access;                    /* enum comb_access */
};
extern struct comb_here comb_here;

/* More than one component: what only works within one process is refused. */
static inline int comb_is_spread(void)
{
    return comb_here.place.count > 1;
}

/* Whether an object is one for messages: what is private to this component is not, even by copies. */
static inline int comb_is_by_messages(const void *object)
{
    return comb_here.by_messages && comb_is_shared(object);
}

/* Writes "comb: ..." to standard error, and ends the process where it says so. Without stdio: the caller may be
 * anywhere. */
void comb_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void comb_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* A stack for objects whose address escapes, in shared memory. */
struct comb_stack {
    char *top;
    size_t bytes;
};
int comb_stack_take(size_t bytes, struct comb_stack *stack); /* 0, or -1: no memory */
void comb_stack_give(const struct comb_stack *stack);
/* Gives the calling thread one, and makes it known; and takes it back. For threads that run code of the program. */
void comb_enter_program(const struct comb_stack *stack);
void comb_leave_program(void);

/* The calling thread's thread-local objects end. */
void comb_locals_end(void);

/* Other threads may have set up what this one is to work on. */
void comb_look_what_is_present(void);

/* The calling thread's number: what pthread_self() returns. */
uint64_t comb_self(void);

#endif
