/* classes.h: the sizes in which small objects are given out. Up to 128 bytes in steps of 16, then four to each
 * doubling. */
#ifndef COMB_CLASSES_H
#define COMB_CLASSES_H

#include <stddef.h>

#define COMB_CLASSES 48
/* What is longer has addresses of its own. */
#define COMB_LARGEST_SMALL ((size_t)128 << 10)

static inline unsigned comb_class_of(size_t bytes)
{
    if (bytes <= 128)
        return bytes ? (unsigned)((bytes - 1) >> 4) : 0;
    unsigned log = 63u - (unsigned)__builtin_clzl(bytes - 1); /* from 7: 129 to 256 bytes */
    return 8 + (log - 7) * 4 + (unsigned)((bytes - 1) >> (log - 2) & 3);
}

static inline size_t comb_class_bytes(unsigned class)
{
    if (class < 8)
        return ((size_t)class + 1) << 4;
    unsigned step = class - 8;
    return ((size_t)128 << step / 4) + ((size_t)32 << step / 4) * (step % 4 + 1);
}

#endif
