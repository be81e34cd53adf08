/* spans.c: where small objects come from. A span is a piece of shared memory with objects of one class, and lives
 * with the component that allocated it: no two components ever allocate in one block. All that is known of it is
 * private to that component: a byte for each 64 KB of heap, and the free objects of each class as a list of
 * addresses. Nothing is ever written into a free object, which may be in anybody's cache. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "classes.h"
#include "memory.h"
#include "runtime.h"

static const uintptr_t heap_start = 0x100000000000;
static const uintptr_t heap_end = 0x2fe000000000;
#define UNIT_BITS 16
#define UNIT_BYTES ((size_t)1 << UNIT_BITS)

/* To allocate shared memory takes a message to each component: each time twice as much, within these bounds. */
static const size_t least_chunk_bytes = (size_t)1 << 20;
static const size_t most_chunk_bytes = (size_t)32 << 20;

/* Objects of up to this size are guarded one by one with access `mmu`; so many are allocated at a time. */
static const size_t most_guarded_bytes = 2048;
static const size_t guarded_objects = 256;

static pthread_mutex_t chunk_lock = PTHREAD_MUTEX_INITIALIZER;
static char *chunk, *chunk_end;
static size_t next_chunk_bytes;
static unsigned char *units; /* what each 64 KB of the heap is to this component */

static struct list {
    pthread_mutex_t lock;
    void **free;
    size_t count, room;
    char *fresh, *fresh_end; /* of the last span, what was never given out */
} lists[COMB_CLASSES];

int comb_is_heap(const void *memory)
{
    return (uintptr_t)memory - heap_start < heap_end - heap_start;
}

unsigned comb_spans_what(const void *memory)
{
    return units ? units[((uintptr_t)memory - heap_start) >> UNIT_BITS] : 0;
}

/* Under chunk_lock: the first to come reserves the table, which costs what is touched of it. */
static void map_units(void)
{
    size_t bytes = (heap_end - heap_start) >> UNIT_BITS;
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        comb_die("no addresses for the table of what is allocated");
    madvise(table, bytes, MADV_NOHUGEPAGE);
    units = table;
}

void comb_spans_mark(const void *memory, size_t bytes, unsigned what)
{
    size_t first = ((uintptr_t)memory - heap_start) >> UNIT_BITS;
    size_t count = (bytes + UNIT_BYTES - 1) >> UNIT_BITS;
    pthread_mutex_lock(&chunk_lock);
    if (!units)
        map_units();
    memset(units + first, (int)what, count);
    pthread_mutex_unlock(&chunk_lock);
}

static int grow(size_t bytes)
{
    if (!next_chunk_bytes)
        next_chunk_bytes = least_chunk_bytes;
    size_t wanted = bytes > next_chunk_bytes ? bytes : next_chunk_bytes;
    char *memory = comb_here.program->allocate(wanted, (int)comb_here.place.rank, 0);
    if (!memory)
        return 0;
    chunk = memory;
    chunk_end = memory + wanted;
    if (next_chunk_bytes < most_chunk_bytes)
        next_chunk_bytes *= 2;
    return 1;
}

static char *take_span(size_t bytes)
{
    pthread_mutex_lock(&chunk_lock);
    char *span = NULL;
    if ((size_t)(chunk_end - chunk) >= bytes || grow(bytes)) {
        span = chunk;
        chunk += bytes;
    }
    pthread_mutex_unlock(&chunk_lock);
    return span;
}

static size_t span_bytes(size_t object_bytes)
{
    size_t bytes = object_bytes <= UNIT_BYTES / 8 ? UNIT_BYTES : object_bytes * 8;
    return (bytes + UNIT_BYTES - 1) & ~(UNIT_BYTES - 1);
}

static int add_span(struct list *list, unsigned class)
{
    size_t object_bytes = comb_class_bytes(class);
    size_t bytes = span_bytes(object_bytes);
    char *span = take_span(bytes);
    if (!span)
        return 0;
    comb_spans_mark(span, bytes, class + 1);
    list->fresh = span;
    list->fresh_end = span + bytes / object_bytes * object_bytes;
    return 1;
}

static int push(struct list *list, void *object)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 512;
        void **larger = realloc(list->free, room * sizeof *larger);
        if (!larger)
            return 0;
        list->free = larger;
        list->room = room;
    }
    list->free[list->count++] = object;
    return 1;
}

/* Each of them is a page of addresses apart from the next. */
static int add_guarded(struct list *list, unsigned class)
{
    size_t object_bytes = comb_class_bytes(class);
    int home = (int)comb_here.place.rank;
    void *memory = comb_here.program->allocate(object_bytes * guarded_objects, home, (int)object_bytes);
    if (!memory)
        return 0;
    void *object;
    for (size_t i = 0; i < guarded_objects && (object = comb_here.program->object(memory, i)); i++) {
        comb_spans_mark(object, 1, class + 1);
        if (!push(list, object))
            return i > 0;
    }
    return 1;
}

static int add(struct list *list, unsigned class)
{
    int is_guarded = comb_here.access == COMB_ACCESS_MMU && comb_class_bytes(class) <= most_guarded_bytes;
    return is_guarded ? add_guarded(list, class) : add_span(list, class);
}

unsigned comb_spans_take(unsigned class, void **objects, unsigned wanted)
{
    struct list *list = &lists[class];
    size_t object_bytes = comb_class_bytes(class);
    unsigned count = 0;
    pthread_mutex_lock(&list->lock);
    while (count < wanted) {
        if (list->count) {
            objects[count++] = list->free[--list->count];
        } else if (list->fresh != list->fresh_end) {
            objects[count++] = list->fresh;
            list->fresh += object_bytes;
        } else if (count || !add(list, class)) {
            break; /* what there is will do */
        }
    }
    pthread_mutex_unlock(&list->lock);
    return count;
}

void comb_spans_give(unsigned class, void *const *objects, unsigned count)
{
    struct list *list = &lists[class];
    pthread_mutex_lock(&list->lock);
    for (unsigned i = 0; i < count; i++)
        push(list, objects[i]); /* without memory for the list an object is lost, and nothing worse */
    pthread_mutex_unlock(&list->lock);
}
