/* malloc.c: malloc() and its kin, as the program calls them. In a program that runs alone they are libc's.
 *
 * Ordinary code (libstdc++, say) frees what instrumented code allocated, and the other way round: whose an object
 * is, its address tells. So free() and realloc() of ordinary code are taken over, too. What ordinary code allocates
 * stays private. */
#include "memory.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"
#include "runtime.h"

/* libc's own, under the names that it keeps for those who take the others over. */
void __libc_free(void *memory);
void *__libc_realloc(void *memory, size_t bytes);

/* cc/library */
void *comb_lib_memset(void *memory, int byte, size_t bytes);
void *comb_lib_memcpy(void *to, const void *from, size_t bytes);

static void *or_no_memory(void *memory)
{
    if (!memory)
        errno = ENOMEM;
    return memory;
}

void *comb_lib_malloc(size_t bytes)
{
    if (!comb_here.program)
        return malloc(bytes);
    return or_no_memory(comb_own_allocate(bytes, NULL));
}

void *comb_lib_calloc(size_t count, size_t each)
{
    size_t bytes;
    int is_zeros;
    if (!comb_here.program)
        return calloc(count, each);
    if (__builtin_mul_overflow(count, each, &bytes))
        return or_no_memory(NULL);
    void *memory = comb_own_allocate(bytes, &is_zeros);
    if (memory && !is_zeros)
        comb_lib_memset(memory, 0, bytes);
    return or_no_memory(memory);
}

/* Of heap addresses. */
static void free_shared(void *memory)
{
    if (__builtin_expect(comb_spans_what(memory) != 0, 1))
        comb_own_free(memory);
    else
        comb_foreign_free(memory);
}

static size_t usable_shared(const void *memory)
{
    return comb_spans_what(memory) ? comb_own_usable(memory) : comb_foreign_usable(memory);
}

void free(void *memory)
{
    if (__builtin_expect(comb_is_heap(memory), 0))
        free_shared(memory);
    else
        __libc_free(memory);
}

void comb_lib_free(void *memory)
{
    if (comb_is_heap(memory))
        free_shared(memory);
    else
        __libc_free(memory);
}

size_t comb_lib_malloc_usable_size(void *memory)
{
    return comb_is_heap(memory) ? usable_shared(memory) : malloc_usable_size(memory);
}

static void *reallocate_shared(void *memory, size_t bytes)
{
    size_t before = usable_shared(memory);
    /* It stays where it is unless it would waste more than half. */
    if (bytes <= before && (bytes >= before / 2 || before <= 64))
        return memory;
    void *larger = or_no_memory(comb_own_allocate(bytes, NULL));
    if (!larger)
        return NULL;
    comb_lib_memcpy(larger, memory, bytes < before ? bytes : before);
    free_shared(memory);
    return larger;
}

/* What ordinary code allocated becomes shared when the program makes it longer. */
static void *share(void *memory, size_t bytes)
{
    size_t before = malloc_usable_size(memory);
    void *shared = comb_lib_malloc(bytes);
    if (shared) {
        comb_copy_to(shared, memory, bytes < before ? bytes : before);
        __libc_free(memory);
    }
    return shared;
}

void *comb_lib_realloc(void *memory, size_t bytes)
{
    if (!comb_here.program)
        return __libc_realloc(memory, bytes);
    if (!memory)
        return comb_lib_malloc(bytes);
    if (!bytes) {
        comb_lib_free(memory);
        return NULL;
    }
    return comb_is_heap(memory) ? reallocate_shared(memory, bytes) : share(memory, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return comb_is_heap(memory) ? comb_lib_realloc(memory, bytes) : __libc_realloc(memory, bytes);
}

void *comb_lib_reallocarray(void *memory, size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes))
        return or_no_memory(NULL);
    return comb_lib_realloc(memory, bytes);
}

void *comb_lib_memalign(size_t alignment, size_t bytes)
{
    if (!comb_here.program)
        return memalign(alignment, bytes);
    size_t power = 16;
    while (power < alignment && power <= SIZE_MAX / 4)
        power *= 2;
    return or_no_memory(comb_own_allocate_aligned(power, bytes));
}

void *comb_lib_aligned_alloc(size_t alignment, size_t bytes)
{
    if (!alignment || alignment & (alignment - 1)) {
        errno = EINVAL;
        return NULL;
    }
    return comb_lib_memalign(alignment, bytes);
}

int comb_lib_posix_memalign(void **shared, size_t alignment, size_t bytes)
{
    if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1))
        return EINVAL;
    int saved = errno;
    void *memory = comb_lib_memalign(alignment, bytes);
    errno = saved;
    if (!memory)
        return ENOMEM;
    comb_copy_to(shared, &memory, sizeof memory);
    return 0;
}

void *comb_lib_valloc(size_t bytes)
{
    return comb_lib_memalign(4096, bytes);
}

void *comb_lib_pvalloc(size_t bytes)
{
    return comb_lib_memalign(4096, (bytes + 4095) & ~(size_t)4095);
}

void comb_lib_cfree(void *memory)
{
    comb_lib_free(memory);
}
