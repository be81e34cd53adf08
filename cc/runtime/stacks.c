/* stacks.c: the second stack of each thread, for objects whose address escapes. It is shared memory, so that other
 * threads can reach them wherever they run. Stacks of threads that have ended are kept for those to come: to
 * allocate shared memory takes a message to each component. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime.h"

#define MOST_KEPT 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comb_stack kept[MOST_KEPT];
static int count;

static int take_kept(size_t bytes, struct comb_stack *stack)
{
    int is_found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !is_found; i++)
        if (kept[i].bytes >= bytes) {
            *stack = kept[i];
            kept[i] = kept[--count];
            is_found = 1;
        }
    pthread_mutex_unlock(&lock);
    return is_found;
}

static void *allocate(size_t bytes)
{
    if (comb_here.program)
        return comb_here.program->allocate(bytes, -1, 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int comb_stack_take(size_t bytes, struct comb_stack *stack)
{
    bytes = (bytes + 65535) & ~(size_t)65535;
    if (take_kept(bytes, stack))
        return 0;
    char *memory = allocate(bytes);
    if (!memory)
        return -1;
    *stack = (struct comb_stack){memory + bytes, bytes};
    return 0;
}

void comb_stack_give(const struct comb_stack *stack)
{
    pthread_mutex_lock(&lock);
    int is_kept = count < MOST_KEPT;
    if (is_kept)
        kept[count++] = *stack;
    pthread_mutex_unlock(&lock);
    if (is_kept)
        return;
    if (comb_here.program)
        comb_here.program->release(stack->top - stack->bytes);
    else
        munmap(stack->top - stack->bytes, stack->bytes);
}

void comb_enter_program(const struct comb_stack *stack)
{
    comb_thread.shared_stack = stack->top;
    comb_thread.shared_stack_end = stack->top - stack->bytes;
    if (comb_here.program)
        comb_here.program->thread_begin(&comb_thread);
}

void comb_leave_program(void)
{
    if (comb_here.program)
        comb_here.program->thread_end(&comb_thread);
    comb_thread.shared_stack = comb_thread.shared_stack_end = NULL;
}
