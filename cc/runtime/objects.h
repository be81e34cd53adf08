/* objects.h: how the program's objects for synchronisation are laid out in its own memory, and what they share.
 *
 * All zeros is a new object, as libc's static initialisers have it. Where components share page frames, or alone,
 * the first words are the object. By messages the object is libcomb's, by its address, and its memory is read for
 * what was said at its initialisation, so that its block stays where it is. */
#ifndef COMB_OBJECTS_H
#define COMB_OBJECTS_H

#include <pthread.h>
#include <stdint.h>

#include "cores.h"
#include "runtime.h"
#include "words.h"

/* Sleepers is 2: who unlocks must wake. */
enum { COMB_MUTEX_FREE, COMB_MUTEX_HELD, COMB_MUTEX_SLEEPERS };

struct comb_mutex {
    comb_word word;
    uint32_t depth;           /* of a recursive one */
    _Atomic uint64_t owner;   /* of recursive and error checking ones */
    int32_t kind;             /* at 16, where libc's static initialisers put it */
};

struct comb_condition {
    comb_word sequence;
    comb_word sleepers;
    int32_t clock;
    uint32_t unused;
    uint64_t mutex; /* by messages: the mutex that it was last used with */
};

struct comb_rwlock {
    comb_word holders; /* readers, or COMB_WRITER */
    comb_word sequence;
    comb_word sleepers;
};
#define COMB_WRITER 0x80000000u

struct comb_barrier {
    uint32_t count;
    comb_word arrived;
    comb_word sequence;
    comb_word inside;
    comb_cores arrived_on, here_since;
};

struct comb_semaphore {
    comb_word value;
    comb_word sleepers;
};

_Static_assert(sizeof(struct comb_mutex) <= sizeof(pthread_mutex_t), "ours lie where libc's would");
_Static_assert(sizeof(struct comb_condition) <= sizeof(pthread_cond_t), "ours lie where libc's would");
_Static_assert(sizeof(struct comb_rwlock) <= sizeof(pthread_rwlock_t), "ours lie where libc's would");
_Static_assert(sizeof(struct comb_barrier) <= sizeof(pthread_barrier_t), "ours lie where libc's would");
_Static_assert(offsetof(struct comb_mutex, kind) == 16, "libc's static initialisers put the kind there");


/* Reads a deadline of the program's: EINVAL if its nanoseconds are none. */
static inline int comb_deadline_read(const struct timespec *shared, struct timespec *at)
{
    comb_copy_from(at, shared, sizeof *at);
    return comb_deadline_check(at);
}

#endif
