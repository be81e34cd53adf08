/* Parts of the thief's runtime. */
#ifndef THIEF_H
#define THIEF_H

#include <stddef.h>

#define THIEF_HEAP_BYTES (64UL << 20)
#ifndef THIEF_HYBRID
#define THIEF_HYBRID 0
#endif

void *thief_allocate(size_t bytes);
size_t thief_heap_used(void);
void thief_enter_thread(void);
void thief_leave_thread(void);

#endif
