/* What instrumented code, the miss path and the fences know of one thread. */
#ifndef COMB_THREAD_H
#define COMB_THREAD_H

#include <stdint.h>

/* More ranges than this are never checked together. */
#define COMB_NOTED_MOST 8

/* A range that was checked: it may be accessed while `pins` is odd. */
struct comb_noted {
    uintptr_t start;
    uint64_t bytes_and_store; /* bytes << 1 | is_store */
};

/* An interface: instrumented code, and the fences of other threads, read the fields at these offsets. A fence waits for nobody whose ranges it has
 * nothing of, so they are noted before they are checked; 0 of them may be any. */
struct comb_thread {
    /* Odd while the thread is among accesses that were checked together. Only the thread itself changes it, always by +1. */
    uint64_t pins;
    /* Stack for objects whose address escapes. It grows down; NULL before the first use. */
    char *shared_stack;
    /* Its lowest byte. */
    char *shared_stack_end;
    uint64_t noted_count;
    /* Valid while `pins` is odd. */
    struct comb_noted noted[COMB_NOTED_MOST];
    /* Not 0: the thread makes no access before this is 0 again, and a fence behind it. Whoever takes a block away need not wait for
     * it. */
    uint64_t away;
    /* Not 0: there is something to be done as soon as the thread may make accesses of all kinds. See comb_runtime.late. */
    uint64_t has_late;
    /* What was checked among the others, alone, while `pins` was odd. */
    struct comb_noted alone;
};

#ifndef __cplusplus
_Static_assert(__builtin_offsetof(struct comb_thread, noted) == 32, "instrumented code writes there");
_Static_assert(__builtin_offsetof(struct comb_thread, alone) == 176, "fences read there");
#endif

extern __thread struct comb_thread comb_thread __attribute__((tls_model("initial-exec")));

#endif
