/* start.h: what must be in order before the program's own code. */
#ifndef COMB_START_H
#define COMB_START_H

/* Makes the calling thread the program's first (threads.c). */
void comb_begin_main_thread(void);

/* cplusplus.c: for components where the constructors of the program do not run. */
void comb_make_streams(void);

#endif
