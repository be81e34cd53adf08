/* held.h: which recursive mutexes the calling thread has by messages, and how deep. */
#ifndef COMB_HELD_H
#define COMB_HELD_H

#include <stdint.h>

void comb_held_begin(uint64_t number); /* has it now */
int comb_held_again(uint64_t number);  /* whether it had it already: now once more */
int comb_held_less(uint64_t number);   /* whether it has it still, once less */

#endif
