/* Descriptors of a spread program: the number says which cell has the file, so that every thread can use it.
 *
 * Cell 0's numbers are the kernel's, so a program whose threads share what `main` opened, and standard input and output,
 * sees what it always saw. */
#ifndef COMB_DESCRIPTORS_H
#define COMB_DESCRIPTORS_H

#include <stddef.h>

#include "comb_calls.h"

/* The kernel's own numbers stay below this: fs.nr_open is 2^20 by default. */
enum { COMB_CELL_SHIFT = 22 };

enum { COMB_NO_CELL = ~0u, COMB_SEVERAL_CELLS = ~1u };

/* The kernel's number of a descriptor. What stands in `*cell` becomes the cell that has it; two descriptors of different
 * cells in one call are COMB_SEVERAL_CELLS. Negative numbers (AT_FDCWD, errors) belong to no cell. */
static inline int comb_descriptor_here(int descriptor, unsigned *cell)
{
    if (descriptor < 0)
        return descriptor;
    unsigned whose = (unsigned)descriptor >> COMB_CELL_SHIFT;
    *cell = *cell == (unsigned)COMB_NO_CELL || *cell == whose ? whose : (unsigned)COMB_SEVERAL_CELLS;
    return descriptor & ((1 << COMB_CELL_SHIFT) - 1);
}

static inline int comb_is_here(unsigned cell)
{
    return cell == (unsigned)COMB_NO_CELL || cell == comb_cell();
}

/* The program's number of a descriptor that the kernel has given this cell; -1 stays -1. */
static inline int comb_descriptor_given(int descriptor)
{
    return descriptor < 0 ? descriptor : descriptor | (int)(comb_cell() << COMB_CELL_SHIFT);
}

/* An argument of a call that another cell makes for us: a value, or private memory of which `in` bytes go there, and
 * `out` bytes come back. */
struct comb_part {
    long value;
    void *own;
    size_t in, out;
};

enum { COMB_PARTS_MOST = 8 };

/* Calls `function` there with integers and pointers to copies; with its answer and errno. Code has the same addresses in
 * all cells. Fails with EXDEV for COMB_SEVERAL_CELLS. */
long comb_forward(unsigned cell, void (*function)(void), const struct comb_part *parts, size_t count);

#endif
