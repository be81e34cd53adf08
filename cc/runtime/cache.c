/* cache.c: each thread keeps some free objects of each class for itself, so that most calls take neither a lock nor
 * an atomic operation. */
#include <string.h>

#include "classes.h"
#include "memory.h"
#include "runtime.h"

/* A thread keeps at most so many objects of a class, and so many bytes. */
#define MOST_OBJECTS 64
#define MOST_BYTES ((size_t)64 << 10)

static _Thread_local struct kept {
    unsigned count;
    unsigned room; /* 0 until it is needed: see spill() */
    void *object[MOST_OBJECTS];
} kept[COMB_CLASSES];

static unsigned room(unsigned class)
{
    size_t objects = MOST_BYTES / comb_class_bytes(class);
    return objects >= MOST_OBJECTS ? MOST_OBJECTS : objects < 2 ? 2 : (unsigned)objects;
}

static __attribute__((noinline)) void *refill(unsigned class)
{
    struct kept *row = &kept[class];
    row->room = room(class);
    row->count = comb_spans_take(class, row->object, row->room / 2);
    return row->count ? row->object[--row->count] : NULL;
}

static inline void *take_small(unsigned class)
{
    struct kept *row = &kept[class];
    return __builtin_expect(row->count != 0, 1) ? row->object[--row->count] : refill(class);
}

static __attribute__((noinline)) void spill(unsigned class)
{
    struct kept *row = &kept[class];
    if (!row->room) {
        row->room = room(class);
        return;
    }
    unsigned half = row->count / 2;
    comb_spans_give(class, row->object, half);
    row->count -= half;
    memmove(row->object, row->object + half, row->count * sizeof *row->object);
}

void *comb_own_allocate(size_t bytes, int *is_zeros)
{
    if (bytes > COMB_LARGEST_SMALL)
        return comb_large_take(bytes, 0, is_zeros);
    if (is_zeros)
        *is_zeros = 0;
    return take_small(comb_class_of(bytes));
}

/* A class that is a power of two has its objects at multiples of it: spans begin at multiples of 64 KB. Objects that
 * are guarded one by one do not; what is to be aligned to more than 16 bytes is large then. */
void *comb_own_allocate_aligned(size_t alignment, size_t bytes)
{
    size_t power = alignment;
    while (power < bytes)
        power *= 2;
    if (alignment <= 16)
        return comb_own_allocate(bytes, NULL);
    if (power <= (size_t)64 << 10 && comb_here.access != COMB_ACCESS_MMU)
        return take_small(comb_class_of(power));
    return comb_large_take(bytes, alignment, NULL);
}

static inline void give_small(unsigned class, void *memory)
{
    struct kept *row = &kept[class];
    if (__builtin_expect(row->count >= row->room, 0))
        spill(class);
    row->object[row->count++] = memory;
}

void comb_own_free(void *memory)
{
    unsigned what = comb_spans_what(memory);
    if (what == COMB_LARGE)
        comb_large_give(memory);
    else if (what)
        give_small(what - 1, memory);
    else
        comb_die("free() of %p, which is no allocated object", memory);
}

size_t comb_own_usable(const void *memory)
{
    unsigned what = comb_spans_what(memory);
    return what == COMB_LARGE ? comb_large_bytes(memory) : what ? comb_class_bytes(what - 1) : 0;
}

/* At a thread's end its objects are for the other threads. */
void comb_cache_end(void)
{
    for (unsigned class = 0; class < COMB_CLASSES; class++) {
        comb_spans_give(class, kept[class].object, kept[class].count);
        kept[class].count = 0;
    }
}
