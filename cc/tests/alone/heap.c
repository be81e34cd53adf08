/* Memory and threads for programs that are stolen from. What the allocator knows is private, and nothing is used twice. */
#include "comb_access.h"
#include "comb_state.h"
#include "comb_thread.h"
#include "thief.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GRAIN 16

static size_t used;
static unsigned sizes[THIEF_HEAP_BYTES / GRAIN];

size_t thief_heap_used(void)
{
    size_t bytes = __atomic_load_n(&used, __ATOMIC_RELAXED);
    return bytes < THIEF_HEAP_BYTES ? bytes : THIEF_HEAP_BYTES - 1;
}

void *thief_allocate(size_t bytes)
{
    size_t rounded = (bytes + GRAIN) & -(size_t)GRAIN;
    size_t offset = __atomic_fetch_add(&used, rounded, __ATOMIC_RELAXED);
    if (offset + rounded > THIEF_HEAP_BYTES)
        return NULL;
    sizes[offset / GRAIN] = (unsigned)bytes;
    return (void *)(COMB_HEAP_START + offset);
}

void *comb_lib_malloc(size_t bytes);
void *comb_lib_calloc(size_t count, size_t each);
void *comb_lib_realloc(void *old, size_t bytes);
void comb_lib_free(void *memory);
void *comb_lib__Znwm(size_t bytes);
void *comb_lib__Znam(size_t bytes);
void comb_lib__ZdlPv(void *memory);
void comb_lib__ZdlPvm(void *memory, size_t bytes);
void comb_lib__ZdaPv(void *memory);
int comb_lib_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int comb_lib_pthread_join(pthread_t thread, void **result);

void *comb_lib_malloc(size_t bytes)
{
    return thief_allocate(bytes);
}

void *comb_lib_calloc(size_t count, size_t each)
{
    return thief_allocate(count * each);
}

void *comb_lib_realloc(void *old, size_t bytes)
{
    void *new = thief_allocate(bytes);
    if (!old || !new)
        return new;
    size_t before = sizes[((uintptr_t)old - COMB_HEAP_START) / GRAIN];
    size_t kept = before < bytes ? before : bytes;
    char *between = malloc(kept + 1);
    comb_copy_from(between, old, kept);
    comb_copy_to(new, between, kept);
    free(between);
    return new;
}

void comb_lib_free(void *memory)
{
    (void)memory;
}

void *comb_lib__Znwm(size_t bytes)
{
    return thief_allocate(bytes);
}

void *comb_lib__Znam(size_t bytes)
{
    return thief_allocate(bytes);
}

void comb_lib__ZdlPv(void *memory)
{
    (void)memory;
}

void comb_lib__ZdlPvm(void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
}

void comb_lib__ZdaPv(void *memory)
{
    (void)memory;
}

struct thread_start {
    void *(*run)(void *);
    void *argument;
};

static void *run_thread(void *memory)
{
    struct thread_start begin = *(struct thread_start *)memory;
    free(memory);
    thief_enter_thread();
    void *result = begin.run(begin.argument);
    thief_leave_thread();
    return result;
}

int comb_lib_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    (void)attributes;
    struct thread_start *begin = malloc(sizeof *begin);
    *begin = (struct thread_start){run, argument};
    pthread_t own;
    int error = pthread_create(&own, NULL, run_thread, begin);
    comb_copy_to(thread, &own, sizeof own);
    return error;
}

int comb_lib_pthread_join(pthread_t thread, void **result)
{
    void *own;
    int error = pthread_join(thread, &own);
    if (result)
        comb_copy_to(result, &own, sizeof own);
    return error;
}
