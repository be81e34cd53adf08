/* attributes.h: what is in the program's pthread_attr_t. */
#ifndef COMB_ATTRIBUTES_H
#define COMB_ATTRIBUTES_H

#include <pthread.h>
#include <stdint.h>

struct comb_attributes {
    uint64_t stack_bytes;
    uint64_t guard_bytes;
    void *stack; /* kept to be told again; machine stacks are private, and libc's */
    int32_t is_detached;
    int32_t policy, priority, inherits, scope;
};

/* Of the program's memory; NULL is what a thread gets without. */
struct comb_attributes comb_attributes_read(const pthread_attr_t *shared);

#endif
