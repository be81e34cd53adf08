/* The signals by which Comb brings memory and covers system calls. Nobody blocks them: the kernel ends who is stopped with one of
 * them blocked. */
#ifndef COMB_SIGNALS_H
#define COMB_SIGNALS_H

#include <signal.h>

/* Takes them out of what is to be blocked. */
static inline void comb_spare_ours(sigset_t *blocked)
{
    sigdelset(blocked, SIGSYS);
    sigdelset(blocked, SIGSEGV);
    sigdelset(blocked, SIGBUS);
}

#endif
