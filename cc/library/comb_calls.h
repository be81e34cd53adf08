/* Calls from one cell of a spread program to another, as the library of wrapped functions needs them.
 * cc/runtime carries them; tests carry them in-process. */
#ifndef COMB_CALLS_H
#define COMB_CALLS_H

#include <stddef.h>

/* The cell that the calling thread runs on: 0 is where `main` is. */
unsigned comb_cell(void);

/* Asks `cell` for `service`, and waits for the answer: its result, errno as the service left it, and at most `out_room`
 * bytes in `out`, of which `*out_bytes` were filled. All pointers are to private memory. */
long comb_call(unsigned cell, unsigned service, const void *in, size_t in_bytes, void *out, size_t out_room,
               size_t *out_bytes);

/* What this library does for other cells. A service runs on any thread of the cell that was asked, and may wait. */
struct comb_library_service {
    unsigned number;
    long (*serve)(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes);
};
extern const struct comb_library_service comb_library_services[];
extern const unsigned comb_library_services_count;

/* Sends on what this cell's threads have written to files of other cells, and gives back what they have read ahead. The
 * runtime calls it before a thread lets others go on (unlock, notify, barrier, its end), so that what is printed keeps
 * the order that the program gave it. */
void comb_library_settle(void);

/* Memory for the program, and its end: the runtime's. */
void *comb_lib_malloc(size_t bytes);
void *comb_lib_calloc(size_t count, size_t bytes);
void *comb_lib_aligned_alloc(size_t alignment, size_t bytes);
void *comb_lib_realloc(void *memory, size_t bytes);
void comb_lib_free(void *memory);
void comb_lib_exit(int status) __attribute__((noreturn));

#endif
