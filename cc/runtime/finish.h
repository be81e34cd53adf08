/* finish.h: how the program ends, and what it has written until then. */
#ifndef COMB_FINISH_H
#define COMB_FINISH_H

#include "runtime.h"

/* Before anything that the program registers. */
void comb_begin_finish(void);

/* For all components but the first: main() is not theirs. Others end this process. */
void comb_wait_for_the_end(void) __attribute__((noreturn));

void comb_flush_spread_output(void);

/* What the calling thread has written is out: it comes before what a thread writes that this one lets go on. Before
 * each unlock, signal, barrier and end. */
static inline void comb_flush_output(void)
{
    if (comb_is_spread())
        comb_flush_spread_output();
}

#endif
