/* The second stack of a thread, where objects live whose address escapes; and the place that stands for a thread's rseq area until
 * the start knows the real one. */
#include "comb_access.h"
#include "comb_thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Enough for the escaping objects of deep recursion; untouched pages cost nothing. */
#define STACK_BYTES (8UL << 20)

/* Stores before the start, in constructors of shared libraries, write their descriptor here. */
__thread char comb_no_rseq[32] __attribute__((aligned(32)));
__asm__(".pushsection .data\n"
        ".globl comb_rseq_offset\n"
        ".balign 8\n"
        "comb_rseq_offset: .quad comb_no_rseq@tpoff\n"
        ".popsection");

static char *private_stack(size_t *bytes)
{
    *bytes = STACK_BYTES;
    void *memory = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Called by a function's first instructions when its frame does not fit. Returns where the frame may end. */
char *comb_more_stack(size_t bytes);
char *comb_more_stack(size_t bytes)
{
    if (!comb_thread.shared_stack) {
        size_t stack_bytes;
        char *lowest = (comb_runtime.stack ? comb_runtime.stack : private_stack)(&stack_bytes);
        if (lowest && stack_bytes >= bytes) {
            comb_thread.shared_stack_end = lowest;
            comb_thread.shared_stack = lowest + stack_bytes;
            return comb_thread.shared_stack;
        }
    }
    fprintf(stderr, "comb: a thread's stack for shared objects is full: %zu bytes more are needed\n", bytes);
    abort();
}
