/* large.c: objects with addresses of their own. What is freed is kept for a while: programs free what they will soon
 * need again, and to allocate takes a message to each component. Each 64 KB live with the component that touches
 * them first. */
#include <pthread.h>
#include <stdlib.h>

#include "memory.h"
#include "runtime.h"

/* Addresses are given out in steps of this. */
#define UNIT_BYTES ((size_t)64 << 10)
#define ROWS 1024
#define PAGE_BYTES ((size_t)4096)
static const size_t most_kept_bytes = (size_t)256 << 20;

struct large {
    struct large *next;
    char *memory; /* what the program has */
    char *base;   /* what libcomb gave */
    size_t bytes; /* from memory on */
    size_t taken; /* from base on */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct large *rows[ROWS];
static struct large *kept;
static size_t kept_bytes;

static struct large **row_of(const void *memory)
{
    return &rows[((uintptr_t)memory / UNIT_BYTES) % ROWS];
}

/* The rest of these is for who has the lock. */
static struct large **find(const void *memory)
{
    struct large **link = row_of(memory);
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    return link;
}

static struct large *take_kept(size_t taken)
{
    for (struct large **link = &kept; *link; link = &(*link)->next)
        if ((*link)->taken == taken) {
            struct large *found = *link;
            *link = found->next;
            kept_bytes -= found->taken;
            return found;
        }
    return NULL;
}

static void file(struct large *large)
{
    struct large **row = row_of(large->memory);
    large->next = *row;
    *row = large;
}

static struct large *allocate(size_t taken)
{
    struct large *large = malloc(sizeof *large);
    char *base = large ? comb_here.program->allocate(taken, -1, 0) : NULL;
    if (!base) {
        free(large);
        return NULL;
    }
    *large = (struct large){.base = base, .taken = taken};
    return large;
}

/* One object begins a page further into its unit than the one before: processors predict where a line is in their cache by some bits of its
 * address, and of two objects that are equal in all of those, one expels the other line by line. */
static size_t next_shift(void)
{
    static _Atomic size_t count;
    return count++ * PAGE_BYTES % UNIT_BYTES;
}

void *comb_large_take(size_t bytes, size_t alignment, int *is_zeros)
{
    int is_shifted = alignment <= PAGE_BYTES;
    size_t beyond = is_shifted ? UNIT_BYTES - PAGE_BYTES : alignment > UNIT_BYTES ? alignment - UNIT_BYTES : 0;
    if (bytes > (size_t)1 << 46 || alignment > (size_t)1 << 40)
        return NULL;
    size_t taken = (bytes + beyond + UNIT_BYTES - 1) & ~(UNIT_BYTES - 1);
    pthread_mutex_lock(&lock);
    struct large *large = take_kept(taken);
    pthread_mutex_unlock(&lock);
    if (is_zeros)
        *is_zeros = !large;
    if (!large && !(large = allocate(taken)))
        return NULL;
    uintptr_t start = (uintptr_t)large->base + (is_shifted ? next_shift() : 0);
    if (alignment > UNIT_BYTES)
        start = (start + alignment - 1) & ~(alignment - 1);
    large->memory = (char *)start;
    large->bytes = taken - (size_t)(large->memory - large->base);
    comb_spans_mark(large->memory, 1, COMB_LARGE);
    pthread_mutex_lock(&lock);
    file(large);
    pthread_mutex_unlock(&lock);
    return large->memory;
}

/* Whether it is kept: not what is long, nor more than there is room for. */
static int keep(struct large *large)
{
    if (large->taken > most_kept_bytes / 4 || kept_bytes + large->taken > most_kept_bytes)
        return 0;
    large->next = kept;
    kept = large;
    kept_bytes += large->taken;
    return 1;
}

void comb_large_give(void *memory)
{
    pthread_mutex_lock(&lock);
    struct large **link = find(memory), *large = *link;
    if (large)
        *link = large->next;
    int is_kept = large && keep(large);
    pthread_mutex_unlock(&lock);
    if (!large)
        comb_die("free() of %p, which is no allocated object", memory);
    comb_spans_mark(memory, 1, 0);
    if (is_kept)
        return;
    comb_here.program->release(large->base);
    free(large);
}

size_t comb_large_bytes(const void *memory)
{
    pthread_mutex_lock(&lock);
    struct large *large = *find(memory);
    size_t bytes = large ? large->bytes : 0;
    pthread_mutex_unlock(&lock);
    return bytes;
}
