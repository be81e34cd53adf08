/* lives.h: the program's threads that run in this component. */
#ifndef COMB_LIVES_H
#define COMB_LIVES_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "runtime.h"
#include "words.h"

/* All that a new thread is told, wherever it begins. It travels as the content of a call. */
struct comb_birth {
    void *(*function)(void *);
    void *argument;
    uint64_t stack_bytes;
    uint32_t is_detached;
    uint32_t is_c11; /* the function returns an int */
    sigset_t blocked;
};

/* A thread of this component, from its creation until it is joined, or has ended detached. */
struct comb_life {
    struct comb_life *next; /* in the register */
    uint64_t number;
    pthread_t native;
    struct comb_birth birth;
    struct comb_stack stack;
    void *result;
    comb_word has_ended;
    int is_detached;
    int is_joined; /* somebody waits for its end */
};

/* A number names a thread in the whole task: its component's rank + 1 in the low bits, and a serial number that is
 * never used again. */
#define COMB_RANK_BITS 16
static inline unsigned comb_rank_of(uint64_t number)
{
    return (unsigned)(number & ((1u << COMB_RANK_BITS) - 1)) - 1;
}

/* The calling thread's. One that the runtime did not make gets one when it asks. */
struct comb_life *comb_life(void);

/* register.c: who lives here. */
void comb_life_begins(struct comb_life *life); /* by the thread itself */
void comb_register_add(struct comb_life *life); /* gives it its number */
void comb_register_remove(struct comb_life *life);
struct comb_life *comb_register_find(uint64_t number);
void comb_register_lock(void);
void comb_register_unlock(void);
extern comb_word comb_living; /* how many threads of the program run here, besides main() */

/* birth.c: begins a thread here, or where place.c says. Error numbers. */
int comb_begin_here(const struct comb_birth *birth, uint64_t *number);
int comb_begin(const struct comb_birth *birth, uint64_t *number);

/* place.c: in which component the next thread begins. */
unsigned comb_next_place(void);

/* end.c */
enum comb_patience { COMB_WAIT, COMB_TRY, COMB_UNTIL };
int comb_join_here(uint64_t number, enum comb_patience patience, struct comb_deadline deadline, void **result);
int comb_detach_here(uint64_t number);
/* Everything that a thread leaves behind is in order: its keys, its output, its stack. Run by libc at its very end. */
void comb_end_thread(void *life);
void comb_end_of_main_thread(void) __attribute__((noreturn)); /* by pthread_exit() in it */

/* keys.c: calls the destructors of the calling thread's values. */
void comb_keys_end(void);

/* The calling thread's handlers of pthread_cleanup_push(), innermost first; returns when none is left. */
void comb_clean_up(void);
/* With the result that is known. */
void comb_end_of_thread(void) __attribute__((noreturn));

#endif
