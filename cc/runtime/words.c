/* words.c: the kernel's futexes, for words in shared page frames and for private ones. */
#include "words.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime.h"

/* A waker that runs comes within this many looks, a microsecond or three; one that does not run needs our processor. */
static const unsigned looks_before_sleep = 100;
/* Where nobody needs that: about 20 microseconds. */
static const unsigned looks_on_own_processor = 800;

static int flag_of_sharing(void)
{
    return comb_here.program ? 0 : FUTEX_PRIVATE_FLAG;
}

int comb_word_wait(comb_word *word, uint32_t value, struct comb_deadline deadline)
{
    int operation = FUTEX_WAIT_BITSET | flag_of_sharing() | (deadline.is_realtime ? FUTEX_CLOCK_REALTIME : 0);
    struct timespec at;
    if (deadline.at) {
        at = *deadline.at; /* it may lie in memory that is not here, of which the kernel knows nothing */
        if (at.tv_sec < 0)
            return ETIMEDOUT;
    }
    int saved = errno;
    long outcome = syscall(SYS_futex, word, operation, value, deadline.at ? &at : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
    int error = outcome < 0 ? errno : 0;
    errno = saved;
    if (error == EFAULT)
        (void)atomic_load(word); /* its page is not here yet */
    return error == ETIMEDOUT ? ETIMEDOUT : 0;
}

long comb_word_wake(comb_word *word, int how_many)
{
    int saved = errno;
    long woken = syscall(SYS_futex, word, FUTEX_WAKE | flag_of_sharing(), how_many, NULL, NULL, 0);
    errno = saved;
    return woken < 0 ? 0 : woken;
}

static int spin(unsigned *turn, unsigned most)
{
    if (++*turn > most)
        return 0;
    __builtin_ia32_pause();
    return 1;
}

int comb_word_spin(unsigned *turn)
{
    return spin(turn, looks_before_sleep);
}

int comb_word_spin_long(unsigned *turn)
{
    return spin(turn, looks_on_own_processor);
}

int comb_deadline_check(const struct timespec *at)
{
    return at && (at->tv_nsec < 0 || at->tv_nsec >= 1000000000) ? EINVAL : 0;
}
