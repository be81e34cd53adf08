/* comb_program.h: what the runtime of a program compiled by combcc asks of libcomb.
 *
 * The runtime is linked into the program and finds libcomb only when it is part of a task: it opens the library whose
 * path `comb run` leaves in COMB_LIBRARY, and asks comb_program() for this table. Programs themselves never see it;
 * they use pthreads, and libcomb's own interface is comb.h.
 *
 *     void *library = dlopen(getenv("COMB_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
 *     const struct comb_program *(*find)(unsigned) = dlsym(library, "comb_program");
 *     const struct comb_program *comb = find(COMB_PROGRAM_VERSION);
 *
 * join() comes first, once a process, and everything else after it; then everything may be called from any thread, and
 * nothing from a handler of signals but fetch() and is_inside(). Functions that return an error number return it as pthreads' functions
 * do, and leave errno alone.
 *
 * What is given by pointer is private memory, unless it says otherwise: terms, deadlines, and the bytes of calls.
 */
#ifndef COMB_PROGRAM_H
#define COMB_PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library of another version has no table for it. */
#define COMB_PROGRAM_VERSION 4u

/* What stops a load or store of a block that is not here. */
enum comb_access {
    COMB_ACCESS_CHECK = 0,  /* instructions of the program's own before or after each access */
    COMB_ACCESS_HYBRID = 1, /* the MMU before loads, the program's instructions before stores */
    COMB_ACCESS_MMU = 2,    /* the MMU, each object with a page of addresses of its own, where there are objects */
    COMB_ACCESS_PAGE = 3    /* the MMU, page by page */
};

/* Memory of the program that becomes shared where it lies: whole pages, outside the heap, with the same initial content
 * in all components. */
struct comb_image {
    void *start;
    size_t bytes;
};

struct comb_terms_of_program {
    unsigned version;     /* COMB_PROGRAM_VERSION */
    unsigned access;      /* enum comb_access */
    unsigned block_bytes; /* a power of two from 128 to 65536, a page at least where the MMU stops threads; 0: 4096 */
    unsigned images;      /* how many; they do not overlap */
    const struct comb_image *image;
    /* What must be equal in all components, or join() fails: which build it is, addresses of code. Never NULL. */
    const char *build;
    /* Not 0: threads look at COMB_MAIL often while they compute, and call poll() when it is not 0. The caller has mapped
     * its page, which is replaced. */
    unsigned polls;
};

/* A byte that code compiled to poll looks at, by its absolute address. */
#define COMB_MAIL_PAGE 0x100000ul
#define COMB_MAIL (COMB_MAIL_PAGE + 96)

/* enum comb_spread: where new threads begin. From COMB_SPREAD_FILL on, each component gets one, and as many more as the
 * number is above it, before the next does. */
enum comb_spread { COMB_SPREAD_ROUND_ROBIN = 0, COMB_SPREAD_HOME = 1, COMB_SPREAD_FILL = 2 };

/* What a component is told of its task. */
struct comb_place {
    unsigned rank;    /* which component this is, from 0; the program's main() belongs to 0 */
    unsigned count;   /* how many there are */
    /* Whether all share page frames: no load or store ever needs fetch(), and the kernel's own futex knows who sleeps
     * at a word. */
    unsigned imports;
    unsigned spread;  /* enum comb_spread */
    unsigned hosts;   /* on how many hosts they are */
};

/* The longest content of a call, and of its answer. */
#define COMB_CALL_BYTES 65536u

/* A call that has come to this component. It, and what it points to, stays until it is answered. */
struct comb_incoming {
    unsigned from;    /* the caller's rank; possibly this component itself */
    unsigned service; /* as the caller has it */
    const void *in;   /* private memory, aligned for anything */
    size_t in_bytes;
    size_t out_room;  /* no more is taken of the answer */
    uint64_t number;  /* libcomb's own */
};

struct comb_thread; /* comb_thread.h */

struct comb_program {
    /* Makes this process a component of its task: 0, or -1 and error() says why. Called by the only thread, before any
     * constructor of the program: what the images contain at that time is what they contain at first. Returns when all
     * components have joined. */
    int (*join)(const struct comb_terms_of_program *terms, struct comb_place *place);
    const char *(*error)(void); /* of this thread's last call that failed with -1 or NULL; never NULL */

    /* A thread of this component begins, and ends, to access shared memory by instructions of the program. By the
     * thread itself. */
    void (*thread_begin)(struct comb_thread *thread);
    void (*thread_end)(struct comb_thread *thread);

    /* Returns when this component has had the right to load, or to store, all of these bytes at some moment. At most
     * 65536 of them. `instruction` is where it was needed, for the report. */
    void (*fetch)(void *address, size_t bytes, int is_store, void *instruction);

    /* Memory of zeros for all components, at the same address in all of them; usable by all when this returns. NULL:
     * error() says why. Not for every little thing: a message goes to each component, addresses are taken in steps of
     * 64 KB, and homes are given in as many.
     * `home`: with which component it lives; -1: each 64 KB with the component that touches them first.
     * `objects`: not 0: memory for objects of so many bytes (at most 2048), each guarded alone; see object(). `bytes`
     * is for all of them, each rounded up to a power of two from 128 on. */
    void *(*allocate)(size_t bytes, int home, int objects);
    void *(*object)(void *memory, size_t index); /* of memory with objects; NULL beyond its end */
    /* Gives memory back: what allocate() returned, in any component. Nobody uses it any more. 0 or -1. */
    int (*release)(void *memory);

    /* FUTEX_WAIT or FUTEX_WAKE on a word of shared memory, for threads of all components. To wait until a deadline on
     * CLOCK_REALTIME or, with is_realtime 0, CLOCK_MONOTONIC; NULL is never. 0, or how many were woken, or a negative
     * error number: -EAGAIN, -ETIMEDOUT, -EINTR and others */
    long (*futex)(uint32_t *word, int operation, uint32_t value, const struct timespec *deadline, int is_realtime);

    /* Locks, conditions and barriers by number: any number, as the address of the program's object. By messages,
     * without moving blocks. What was stored by who had a lock before, or came to a barrier, is found by who has it
     * after.
     *
     * lock() takes it alone, with is_shared 1 beside others who came no later than who wants it alone, with 2 beside
     * others in any case. A thread may have a lock shared several times. 0, or ETIMEDOUT; a deadline of {0, 0} does not
     * wait at all and gives EBUSY. EDEADLK: this thread has it already.
     * unlock() is for the thread that has it,
     * otherwise EPERM. */
    int (*lock)(uint64_t number, int is_shared, const struct timespec *deadline, int is_realtime);
    int (*unlock)(uint64_t number);
    /* Gives a lock that this thread has alone back until the condition (less than 2^56) is notified or the deadline has
     * passed, and has it again in both cases: 0 or ETIMEDOUT. EPERM: it does not have it. Who is late takes no
     * notification away from another. */
    int (*wait)(uint64_t lock, uint64_t condition, const struct timespec *deadline, int is_realtime);
    /* Lets the first so many that wait go on. The lock need not be held. */
    int (*notify)(uint64_t lock, uint64_t condition, uint64_t how_many);
    /* Waits until so many threads, of whatever components, have come to the barrier. 1 to one of them, 0 to the others;
     * -1: others wait there for another number of threads. It may be used again at once. */
    int (*barrier)(uint64_t number, unsigned threads);

    /* Calls between components: waits until somebody there has answered, and returns the answer's result, with its
     * *error_number. Without an answer -1, and *error_number is ENXIO: there is no such component; ESHUTDOWN: it is
     * over there; EMSGSIZE: content of more than COMB_CALL_BYTES. Not more than out_room bytes are written (0 for
     * NULL); *out_bytes, unless NULL, is how many. A component may call itself. */
    long (*call)(unsigned rank, unsigned service, const void *in, size_t in_bytes, void *out, size_t out_room,
                 size_t *out_bytes, int *error_number);
    /* Waits for the next call of this component: 0; -1 if there is no task. As many threads as like to serve. */
    int (*next)(struct comb_incoming *incoming);
    /* Ends a call. Content beyond its out_room is cut off. Once for each, by any thread. */
    void (*answer)(struct comb_incoming *incoming, long result, const void *out, size_t out_bytes, int error_number);

    /* Whoever synchronises with this thread in other ways than by the above finds what it has stored before. */
    void (*publish)(void);

    /* Does not return. In component 0: the task is over, and this is its status; all others end at once, wherever their
     * threads are. In another one: this process has failed, and the task with it. No exit handlers run. */
    void (*end)(int status);

    /* Which component has allocated what lies at an address of the heap, or would: each has its own part of the heap's
     * addresses. UINT_MAX outside the heap. Asks nobody. */
    unsigned (*owner)(const void *address);

    /* Whether the calling thread is in the middle of libcomb's own work: a handler of a signal that has come there must not touch shared
     * memory. For threads between thread_begin() and thread_end(). */
    int (*is_inside)(void);

    /* COMB_MAIL is not 0: what others have asked for meanwhile is given to them. By a thread that checks its accesses,
     * between two of them; it does not wait. */
    void (*poll)(void);

    /* Where page frames are shared: what other components have touched by now comes into this one's page table, so that
     * it need not be found page by page. Takes milliseconds where there is much. */
    void (*map_present)(void);
};

/* The table; NULL if this library has none of that version. */
const struct comb_program *comb_program(unsigned version);

#ifdef __cplusplus
}
#endif

#endif
