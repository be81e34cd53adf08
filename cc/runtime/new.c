/* new.c: C++'s operators new and delete, in all their forms. They have the names that the compiler gives them, so
 * that none of this needs C++. */
#include <stdlib.h>

#include "memory.h"

/* libstdc++'s; a program without it has no operators new. */
void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak, noreturn));

static void *or_throw(void *memory)
{
    if (memory)
        return memory;
    if (throw_bad_alloc)
        throw_bad_alloc();
    abort();
}

void *comb_lib__Znwm(size_t bytes)
{
    return or_throw(comb_lib_malloc(bytes ? bytes : 1));
}

void *comb_lib__Znam(size_t bytes)
{
    return or_throw(comb_lib_malloc(bytes ? bytes : 1));
}

void *comb_lib__ZnwmRKSt9nothrow_t(size_t bytes, const void *nothrow)
{
    (void)nothrow;
    return comb_lib_malloc(bytes ? bytes : 1);
}

void *comb_lib__ZnamRKSt9nothrow_t(size_t bytes, const void *nothrow)
{
    (void)nothrow;
    return comb_lib_malloc(bytes ? bytes : 1);
}

void *comb_lib__ZnwmSt11align_val_t(size_t bytes, size_t alignment)
{
    return or_throw(comb_lib_aligned_alloc(alignment, bytes ? bytes : 1));
}

void *comb_lib__ZnamSt11align_val_t(size_t bytes, size_t alignment)
{
    return or_throw(comb_lib_aligned_alloc(alignment, bytes ? bytes : 1));
}

void *comb_lib__ZnwmSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t alignment, const void *nothrow)
{
    (void)nothrow;
    return comb_lib_aligned_alloc(alignment, bytes ? bytes : 1);
}

void *comb_lib__ZnamSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t alignment, const void *nothrow)
{
    (void)nothrow;
    return comb_lib_aligned_alloc(alignment, bytes ? bytes : 1);
}

/* What else delete is told, the size and the alignment, is not needed. */
#define DELETE(name)               \
    void comb_lib_##name(void *memory) \
    {                              \
        comb_lib_free(memory);     \
    }

DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
