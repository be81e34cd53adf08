/* Shared memory for code that is not instrumented: wrappers of the C library's functions and the runtime.
 *
 * A block that another cell took may go at any moment, except while this thread's pins are odd. So: pin what is needed, access
 * it, unpin; or copy to private memory. In a program that runs alone nothing ever goes, and all of this costs next to nothing. */
#ifndef COMB_ACCESS_H
#define COMB_ACCESS_H

#include <stddef.h>
#include <stdint.h>

/* What one batch may ask for: a fence waits until it is over. */
#define COMB_BATCH_BYTES_MOST 65536

/* Copy between private and shared memory, of any length. */
void comb_copy_from(void *own, const void *shared, size_t bytes);
void comb_copy_to(void *shared, const void *own, size_t bytes);

/* As strnlen. */
size_t comb_length(const char *shared, size_t most);

struct comb_need {
    const void *start;
    size_t bytes;
    int is_store;
};

/* Returns when all needs hold at once: at most 8, at most COMB_BATCH_BYTES_MOST in all. From then until `comb_unpin` the thread
 * may access exactly them, and may not wait, call back, or pin again. */
void comb_pin(const struct comb_need *needs, int count);
void comb_unpin(void);

/* Whether an address is in the heap or in an image. */
int comb_is_shared(const void *address);

/* Memory of an executable's or library's variables. The runtime fills in what the dynamic linker loaded. */
#define COMB_IMAGES_MOST 64
struct comb_range {
    uintptr_t start, end;
};
extern struct comb_range comb_images[COMB_IMAGES_MOST];
extern int comb_image_count;

/* What the miss path needs of the task; nothing is set in a program that runs alone. */
struct comb_runtime {
    /* Returns when the thread had the right for all of the range (at most COMB_BATCH_BYTES_MOST) at some moment. May wait. */
    void (*fetch)(void *address, size_t bytes, int is_store, void *instruction);
    /* A shared stack for a thread that has none: returns its lowest byte. */
    char *(*stack)(size_t *bytes);
    /* Gives others what they have asked for. Between two accesses, and without waiting. */
    void (*poll)(void);
    /* Does what comb_thread.has_late stands for. It may take long, and whatever was noted is noted again when it is over. */
    void (*late)(void);
};
extern struct comb_runtime comb_runtime;

/* Where this thread's rseq area is, from the thread pointer. The start sets it to __rseq_offset; before that it is the offset of an
 * area that the kernel does not know. */
extern uint64_t comb_rseq_offset;

/* Makes all noted ranges hold again, with pins odd before and after, and `address` with them. For handlers of a fault between
 * accesses that were checked together. */
void comb_restore_noted(uintptr_t address, uint64_t bytes, int is_store, void *instruction);

#endif
