/* comb.h: programs on many cells that load and store in one address space.
 *
 *     cc program.c $(pkg-config --cflags --libs comb) -o program
 *     comb run -n 4 -- ./program
 *
 * Every component of the program calls comb_init() first. Memory from comb_alloc() and comb_alloc_together() has the same address in all of
 * them, and plain loads and stores are all it takes. Functions that return int return 0, or -1 and leave the reason in comb_error().
 * All may be called from any thread, and none from a handler of signals.
 *
 * Loads and stores of two threads that do not synchronise find what the memory's sharing promises: see enum comb_sharing, and README.md.
 */
#ifndef COMB_H
#define COMB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the task that `comb run` started this process for; started otherwise, the program is a task of one component.
 * A program that ends with status 0 waits for the end of all other components; one that ends with another status ends them. */
int comb_init(void);

/* Gives this process's locks back, waits for all components to come here, and parts from them. Called by exit(0) and by the end of main(), if
 * not before. Shared memory is gone afterwards, and a process joins once. */
void comb_end(void);

/* Why the last call of this thread failed; never NULL. */
const char *comb_error(void);

unsigned comb_rank(void);  /* which component this is, from 0 */
unsigned comb_count(void); /* how many there are */

/* On which other components' memory this one has come to depend: writes the ranks of up to `room`, and returns how many there are. */
size_t comb_dependencies(unsigned *ranks, size_t room);

/* Calls `on_loss` on a thread that touches what was lost with a component that died, before the process ends: in a handler of signals, in which
 * the thread may write its last words or leave by siglongjmp(). `reason` is valid during the call. NULL: nothing is called. While `comb run`
 * ends a task together with its first component that fails, few programs come to see a loss. */
int comb_on_loss(void (*on_loss)(void *address, const char *reason, int is_store));

/* What stops a load or store that has no right. */
enum comb_guard {
    COMB_PAGE = 0, /* the MMU, page by page: for any code, and for arrays */
    COMB_MMU = 1   /* the MMU, for blocks of up to 2 KB that have a page of addresses each: see comb_object() */
};

/* Who may do what, and when the others see it. */
enum comb_sharing {
    COMB_STACHE = 0,    /* one writer or many readers; sequentially consistent */
    COMB_MIGRATORY = 1, /* one holder: for what is read, changed and passed on */
    COMB_RELEASE = 2,   /* many writers; who synchronises finds what was stored before: others' copies are dropped */
    COMB_UPDATE = 3     /* the same; others' copies are changed */
};

/* Where memory lives. */
enum comb_placement {
    COMB_FIRST_TOUCH = 0, /* 64 KB by 64 KB, with who touches it first */
    COMB_ROUND_ROBIN = 1, /* with one component after the other */
    COMB_AT = 2           /* all of it with component `at` */
};

struct comb_terms {
    unsigned block_bytes; /* 128 to 65536, a power of two; 0 for 4096 */
    enum comb_guard guard;
    enum comb_sharing sharing;
    enum comb_placement placement;
    unsigned at;
    int sparse; /* may be larger than memory: what is never touched costs nothing */
    int moves;  /* blocks come to live with the component that alone keeps missing them; not with COMB_RELEASE and COMB_UPDATE */
};

/* Memory of zeros that all components can use from when it returns. `terms` may be NULL. NULL on failure. */
void *comb_alloc(size_t bytes, const struct comb_terms *terms);

/* The same, called by all components in the same order: all get the same address. */
void *comb_alloc_together(size_t bytes, const struct comb_terms *terms);

/* Gives memory back, in the component that allocated it; of comb_alloc_together(), component 0. */
int comb_free(void *memory);

/* Of memory that was allocated with COMB_MMU: the number of its objects, and where each is. An object's bytes are in a row, two objects are
 * not neighbours. */
size_t comb_objects(const void *memory);
void *comb_object(const void *memory, size_t index);

/* How a region is attached: a sum of these, or 0. */
enum comb_attaching {
    COMB_TO_READ = 1,  /* nothing is to be stored: a store is stopped, as if it was lost */
    COMB_BY_COPIES = 2 /* by copies, as if it lived on another host */
};

/* Attaches a region: memory with a name, that lives in a cell and outlives programs (`comb region create NAME --size 1G`). It has the same address in
 * every process; its length is stored to `bytes`, which may be NULL. NULL on failure. Regions are sequentially consistent, and atomic
 * operations work on them, and mutexes shared by processes unless by copies; locks and barriers are a task's. If its cell dies it is lost: see comb_on_loss() and comb_load(). */
void *comb_attach(const char *name, unsigned how, size_t *bytes);

/* Gives a region back, as often as it was attached; the last time nobody may use it any more. Called by comb_end(). What a process by copies
 * alone had is lost if it ends in another way. */
int comb_detach(void *region);

/* As memcpy() from and to shared memory; -1 where it is lost, instead of SIGBUS. What lies before that may have been copied. */
int comb_load(void *to, const void *shared, size_t bytes);
int comb_store(void *shared, const void *from, size_t bytes);

/* Waits until one thread of every component has come here. What each stored before, all find after it. */
void comb_barrier(void);

/* The same; and combines the values that they bring, one by one. All get the outcome, the same to the bit. */
enum comb_combine {
    COMB_FIRST = 0, /* those of component 0 */
    COMB_SUM = 1,
    COMB_SUM_OF_DOUBLES = 2,
    COMB_LEAST = 3,
    COMB_GREATEST = 4,
    COMB_LEAST_DOUBLE = 5,
    COMB_GREATEST_DOUBLE = 6
};
/* Up to 8192 values, as many from each. Those of type double are passed as their bits. */
int comb_reduce(enum comb_combine how, uint64_t *values, size_t count);
double comb_sum(double value); /* of one value from each */

/* Locks are known by a number, such as an address. Whoever gets one finds what all who had it before have stored. A lock is a thread's, who
 * has it once: to ask for it again is an error. */
int comb_lock(uint64_t lock);      /* to have it alone */
int comb_read_lock(uint64_t lock); /* beside others who only read */
int comb_try_lock(uint64_t lock);  /* alone: 0 if it was free, -1 at once if not */
int comb_unlock(uint64_t lock);

/* Inside a lock that is held alone: gives it back until `condition`, a number less than 2 to the 56, is notified, and has it again. Look again
 * whether what was waited for holds. */
int comb_wait(uint64_t lock, uint64_t condition);

/* Lets up to `how_many` threads go on that wait for a condition of a lock, one after the other. */
int comb_notify(uint64_t lock, uint64_t condition, uint64_t how_many);

/* Writes all shared memory to the directory of `comb run --checkpoint DIRECTORY`: of it what has changed since the last time. Called by one
 * thread of each component, while no other stores and none holds a lock. Until all have written, the checkpoint before stays valid. */
int comb_checkpoint(void);

/* Whether this task goes on from a checkpoint (`comb run --checkpoint DIRECTORY --restore`). Then the same calls of comb_alloc_together() return
 * the memory of then, with its content, at the same address; and what comb_alloc() gave is where it was. Private memory is as in any new process. */
int comb_restored(void);

/* Hints. None waits. */
void comb_prefetch(const void *memory, size_t bytes, int to_store); /* we need it soon */

/* Component `to` needs it soon, or with COMB_ALL all others do: it is offered as far as it lives here or is here, and whoever believes it asks for it. What
 * is stored meanwhile is found as ever. Returns how many blocks were offered. */
size_t comb_push(const void *memory, size_t bytes, unsigned to);
#define COMB_ALL 0xffffffffu

/* Memory that lives here, on terms with `moves`, is to live with component `to`: for a program that knows better than the count of misses. Returns how
 * many blocks are on their way. */
size_t comb_move_home(const void *memory, size_t bytes, unsigned to);

/* With whom the block at an address lives, as far as this component knows; COMB_ALL if it does not, or nobody needs to. */
unsigned comb_home(const void *memory);

void comb_poll(void); /* lets others be served now, by a thread that computes for long */

/* How often threads of this component have waited for a block since comb_init(): what a hint saves, in numbers. */
uint64_t comb_misses(void);

/* What this thread has stored is found by whoever synchronises with it by other means than the above. */
void comb_publish(void);

#ifdef __cplusplus
}
#endif
#endif
