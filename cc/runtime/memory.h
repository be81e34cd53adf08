/* memory.h: memory that the program allocates. */
#ifndef COMB_MEMORY_H
#define COMB_MEMORY_H

#include <stddef.h>

/* malloc() and its kin, of the program: in shared memory, or libc's in a program that runs alone. */
void *comb_lib_malloc(size_t bytes);
void *comb_lib_calloc(size_t count, size_t bytes);
void *comb_lib_realloc(void *memory, size_t bytes);
void comb_lib_free(void *memory);
void *comb_lib_aligned_alloc(size_t alignment, size_t bytes);

/* cache.c: what this component gives out and takes back, small or large. */
void *comb_own_allocate(size_t bytes, int *is_zeros); /* is_zeros may be NULL */
void *comb_own_allocate_aligned(size_t alignment, size_t bytes);
void comb_own_free(void *memory);

/* How long an object of this component is; 0 if it has no such object. */
size_t comb_own_usable(const void *memory);
void comb_cache_end(void); /* the calling thread ends */

/* spans.c: small objects of one class, many at a time; how many there were. Thread safe. */
unsigned comb_spans_take(unsigned class, void **objects, unsigned wanted);
void comb_spans_give(unsigned class, void *const *objects, unsigned count);

/* What a heap address is to this component: 0 nothing, a small object's class + 1, or COMB_LARGE. */
#define COMB_LARGE 255
unsigned comb_spans_what(const void *memory);
void comb_spans_mark(const void *memory, size_t bytes, unsigned what);
int comb_is_heap(const void *memory);

/* large.c */
void *comb_large_take(size_t bytes, size_t alignment, int *is_zeros);
void comb_large_give(void *memory);
size_t comb_large_bytes(const void *memory);

#endif
