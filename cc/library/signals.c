/* Signals: sets and stacks. Whose handlers run where is the runtime's (sigaction, signal). */
#include "every.h"

#include "reach.h"

COMB_WRAP(int, sigemptyset, INOUT(sigset_t, set));
COMB_WRAP(int, sigfillset, INOUT(sigset_t, set));
COMB_WRAP(int, sigaddset, INOUT(sigset_t, set), VALUE(int, signal));
COMB_WRAP(int, sigdelset, INOUT(sigset_t, set), VALUE(int, signal));
COMB_WRAP(int, sigismember, IN(sigset_t, set), VALUE(int, signal));
COMB_WRAP(int, sigisemptyset, IN(sigset_t, set));
COMB_WRAP(int, sigandset, INOUT(sigset_t, to), IN(sigset_t, one), IN(sigset_t, other));
COMB_WRAP(int, sigorset, INOUT(sigset_t, to), IN(sigset_t, one), IN(sigset_t, other));
COMB_WRAP(int, sigprocmask, VALUE(int, how), SIGNALS(set), INOUT(sigset_t, before));
COMB_WRAP(int, pthread_sigmask, VALUE(int, how), SIGNALS(set), INOUT(sigset_t, before));
COMB_WRAP(int, sigpending, INOUT(sigset_t, set));
COMB_WRAP(int, sigsuspend, SIGNALS(set));
COMB_WRAP(int, sigwait, IN(sigset_t, set), INOUT(int, signal));
COMB_WRAP(int, sigwaitinfo, IN(sigset_t, set), INOUT(siginfo_t, what));
COMB_WRAP(int, sigtimedwait, IN(sigset_t, set), INOUT(siginfo_t, what), IN(struct timespec, limit));
COMB_WRAP(int, timer_create, VALUE(clockid_t, clock), INOUT(struct sigevent, event), INOUT(timer_t, timer));
COMB_WRAP(int, timer_settime, VALUE(timer_t, timer), VALUE(int, flags), IN(struct itimerspec, value),
          INOUT(struct itimerspec, before));
COMB_WRAP(int, timer_gettime, VALUE(timer_t, timer), INOUT(struct itimerspec, value));
COMB_WRAP_VOID(psignal, VALUE(int, signal), TEXT(text));
COMB_WRAP_VOID(psiginfo, IN(siginfo_t, what), TEXT(text));
