/* The world with Comb's promises and none of its machinery: blocks of the arena and of the heap are taken away at random,
 * by this thread at each request and by a thread of its own, with the fence of the real thing. A block that is not here
 * reads 0xF1; what is stored to it, or to one that may only be loaded, ends the test. */
#include "world.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../access/comb_access.h"
#include "../comb_calls.h"
#include "../pinned.h"

__thread struct comb_thread comb_thread;

enum { HEAP_BYTES = 64 << 20, REGION_BYTES = ARENA_BYTES + HEAP_BYTES, BLOCKS = REGION_BYTES / COMB_BLOCK_BYTES };
enum { FLAG = 0xF1, THREADS_MOST = 16 };

static pthread_mutex_t rights = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *states; /* of the region's first block on */
static char shadow[REGION_BYTES];
static struct comb_thread *threads[THREADS_MOST];
static int threads_count;
static size_t heap_used;
static unsigned long long thief_dice = 88172645463325252ull;
static atomic_int is_over;
static atomic_ulong stolen, fetched;
static pthread_t thief;

static unsigned roll(unsigned limit)
{
    thief_dice ^= thief_dice << 13, thief_dice ^= thief_dice >> 7, thief_dice ^= thief_dice << 17;
    return (unsigned)(thief_dice >> 20) % limit;
}

static void fail(const char *what, const void *where)
{
    fprintf(stderr, "%s: at %p\n", what, where);
    abort();
}

void thread_known(void)
{
    pthread_mutex_lock(&rights);
    threads[threads_count++] = &comb_thread;
    pthread_mutex_unlock(&rights);
}

/* Returns when no thread is among accesses that were checked before. */
static void fence(void)
{
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    for (int at = 0; at < threads_count; at++) {
        unsigned long long before = threads[at]->pins;
        if (!(before & 1))
            continue;
        if (threads[at] == &comb_thread)
            fail("a request among pinned accesses", NULL);
        for (unsigned long waits = 0; *(volatile uint64_t *)&threads[at]->pins == before; waits++) {
            usleep(20);
            if (waits > 500000)
                fail("a thread holds its pins", (void *)threads[at]->noted[0].start);
        }
    }
}

static char *block_at(size_t block)
{
    return ARENA + block * COMB_BLOCK_BYTES;
}

/* With `rights` held. */
static void take(size_t block, unsigned char down_to)
{
    if (states[block] >= down_to)
        return;
    if (states[block] == 1 && memcmp(block_at(block), shadow + block * COMB_BLOCK_BYTES, COMB_BLOCK_BYTES))
        fail("a store to a block that could only be loaded", block_at(block));
    states[block] = down_to;
    fence();
    memcpy(shadow + block * COMB_BLOCK_BYTES, block_at(block), COMB_BLOCK_BYTES);
    if (down_to == 2)
        memset(block_at(block), FLAG, COMB_BLOCK_BYTES);
    stolen++;
}

static void give(size_t block, int is_store)
{
    char *here = block_at(block), *content = shadow + block * COMB_BLOCK_BYTES;
    if (states[block] == 2) {
        for (int at = 0; at < COMB_BLOCK_BYTES; at++) {
            if ((unsigned char)here[at] != FLAG)
                fail("a store to a block that is not here", here + at);
        }
        memcpy(here, content, COMB_BLOCK_BYTES);
    } else if (states[block] == 1 && memcmp(here, content, COMB_BLOCK_BYTES)) {
        fail("a store to a block that could only be loaded", here);
    }
    if (is_store)
        states[block] = 0;
    else if (states[block] == 2)
        states[block] = 1;
    fetched++;
}

static void take_some(unsigned blocks)
{
    unsigned in_use = (unsigned)((ARENA_BYTES + heap_used) / COMB_BLOCK_BYTES) + 1;
    for (unsigned count = 0; count < blocks; count++) {
        size_t first = roll(in_use), run = 1 + roll(4) * roll(8);
        for (size_t block = first; block < first + run && block < in_use; block++)
            take(block, (unsigned char)(1 + roll(2)));
    }
}

void theft(void)
{
    pthread_mutex_lock(&rights);
    take_some(1 + roll(60));
    pthread_mutex_unlock(&rights);
}

static void *steal_always(void *nothing)
{
    while (!is_over) {
        pthread_mutex_lock(&rights);
        take_some(8);
        pthread_mutex_unlock(&rights);
        usleep(50);
    }
    return nothing;
}

void world_begin(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    void *table = mmap((void *)COMB_STATE_TABLE, COMB_STATE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *region = mmap(ARENA, REGION_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (table != (void *)COMB_STATE_TABLE || region != ARENA)
        fail("no room for the arena", ARENA);
    states = (unsigned char *)table + ((uintptr_t)ARENA >> COMB_STATE_SHIFT);
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    thread_known();
    pthread_create(&thief, NULL, steal_always, NULL);
}

void world_end(void)
{
    is_over = 1;
    pthread_join(thief, NULL);
    fprintf(stderr, "%lu blocks stolen, %lu fetched\n", stolen, fetched);
    if (stolen < 1000 || fetched < 1000)
        fail("the thief has slept", NULL);
}

/* The promises. */

static char *no_stack(size_t *bytes)
{
    (void)bytes;
    fail("a stack was asked for", NULL);
    return NULL;
}

/* As in a task. */
struct comb_runtime comb_runtime = {.stack = no_stack};

int comb_is_shared(const void *address)
{
    return (uintptr_t)address - (uintptr_t)ARENA < REGION_BYTES;
}

static int is_allowed(const struct comb_need *need)
{
    return !need->bytes ||
           comb_is_allowed(need->start, need->bytes, need->is_store ? COMB_BARS_STORE : COMB_BARS_LOAD);
}

static void fetch(const struct comb_need *need)
{
    if (!comb_is_shared(need->start))
        fail("a miss outside", need->start);
    size_t first = (size_t)((char *)need->start - ARENA) / COMB_BLOCK_BYTES;
    size_t last = (size_t)((char *)need->start + need->bytes - 1 - ARENA) / COMB_BLOCK_BYTES;
    pthread_mutex_lock(&rights);
    for (size_t block = first; block <= last; block++)
        give(block, need->is_store);
    pthread_mutex_unlock(&rights);
}

void comb_pin(const struct comb_need *needs, int count)
{
    if (comb_thread.pins & 1)
        fail("pins in pins", needs->start);
    size_t bytes = 0;
    for (int at = 0; at < count; at++)
        bytes += needs[at].bytes;
    if (bytes > COMB_PINNED_MOST || count > COMB_NOTED_MOST)
        fail("too much pinned at once", needs->start);
    for (;;) {
        comb_pins_step();
        int missing = 0;
        while (missing < count && is_allowed(&needs[missing]))
            missing++;
        if (missing == count)
            return;
        comb_pins_step();
        fetch(&needs[missing]);
    }
}

void comb_unpin(void)
{
    comb_pins_step();
}

/* Chance that a copy is preceded by thefts: enough that most wrappers meet a block that has gone between two steps. */
static void perhaps_theft(void)
{
    static _Thread_local unsigned turn;
    if (++turn % 7 == 0)
        theft();
}

void comb_copy_from(void *own, const void *shared, size_t bytes)
{
    perhaps_theft();
    while (bytes) {
        size_t piece = bytes < 4096 ? bytes : 4096;
        comb_pin(&(struct comb_need){shared, piece, 0}, 1);
        memcpy(own, shared, piece);
        comb_unpin();
        own = (char *)own + piece, shared = (const char *)shared + piece, bytes -= piece;
    }
}

void comb_copy_to(void *shared, const void *own, size_t bytes)
{
    perhaps_theft();
    while (bytes) {
        size_t piece = bytes < 4096 ? bytes : 4096;
        comb_pin(&(struct comb_need){shared, piece, 1}, 1);
        memcpy(shared, own, piece);
        comb_unpin();
        shared = (char *)shared + piece, own = (const char *)own + piece, bytes -= piece;
    }
}

size_t comb_length(const char *shared, size_t most)
{
    for (size_t length = 0;; length++) {
        if (length == most)
            return most;
        char byte;
        comb_pin(&(struct comb_need){shared + length, 1, 0}, 1);
        byte = shared[length];
        comb_unpin();
        if (!byte)
            return length;
    }
}

void put(void *to, const void *from, size_t bytes)
{
    comb_copy_to(to, from, bytes);
}

void get(void *to, const void *from, size_t bytes)
{
    comb_copy_from(to, from, bytes);
}

/* A heap that only grows; the size of each piece stands before it. */

void *comb_lib_aligned_alloc(size_t alignment, size_t bytes)
{
    size_t at = ARENA_BYTES + heap_used + 16;
    at = (at + alignment - 1) & ~(alignment - 1);
    if (at + bytes > REGION_BYTES)
        fail("the heap is full", NULL);
    heap_used = (at + bytes - ARENA_BYTES + 15) & ~(size_t)15;
    comb_copy_to(ARENA + at - 16, &bytes, sizeof bytes);
    return ARENA + at;
}

void *comb_lib_malloc(size_t bytes)
{
    return comb_lib_aligned_alloc(16, bytes);
}

void comb_lib_free(void *memory)
{
    if (memory && !comb_is_shared(memory))
        fail("freed what was not allocated", memory);
}

void *comb_lib_realloc(void *memory, size_t bytes)
{
    void *larger = comb_lib_malloc(bytes);
    if (memory) {
        size_t before;
        comb_copy_from(&before, (char *)memory - 16, sizeof before);
        char *own = malloc(before + 1);
        comb_copy_from(own, memory, before < bytes ? before : bytes);
        comb_copy_to(larger, own, before < bytes ? before : bytes);
        free(own);
    }
    return larger;
}

void *comb_lib_calloc(size_t count, size_t bytes)
{
    return comb_lib_malloc(count * bytes);
}

void comb_lib_exit(int status)
{
    exit(status);
}
