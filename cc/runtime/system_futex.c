/* system_futex.c: syscall(SYS_futex), by which C++'s own headers wait for an atomic to change: std::atomic::wait, latches, semaphores. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>

#include "finish.h"
#include "objects.h"
#include "words.h"

static struct timespec from_now(struct timespec length)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long nanoseconds = now.tv_nsec + length.tv_nsec;
    return (struct timespec){now.tv_sec + length.tv_sec + nanoseconds / 1000000000, nanoseconds % 1000000000};
}

static int wait(uint32_t *word, uint32_t value, struct comb_deadline deadline)
{
    if (comb_is_by_messages(word))
        return (int)-comb_here.program->futex(word, FUTEX_WAIT, value, deadline.at, deadline.is_realtime);
    return comb_word_wait((comb_word *)word, value, deadline);
}

static long wake(uint32_t *word, uint32_t how_many)
{
    int most = how_many > INT_MAX ? INT_MAX : (int)how_many;
    if (comb_is_by_messages(word))
        return comb_here.program->futex(word, FUTEX_WAKE, (uint32_t)most, NULL, 0);
    return comb_word_wake((comb_word *)word, most);
}

/* As the kernel answers, and without its rarer operations. Who waits by a bit set waits for any: programs look again. */
long comb_system_futex(uint32_t *word, int operation, uint32_t value, const struct timespec *shared)
{
    struct timespec at;
    int command = operation & FUTEX_CMD_MASK, waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
    if (!waits && command != FUTEX_WAKE && command != FUTEX_WAKE_BITSET) {
        errno = ENOSYS;
        return -1;
    }
    comb_flush_output();
    if (!waits)
        return wake(word, value);
    struct comb_deadline deadline = {shared ? &at : NULL, (operation & FUTEX_CLOCK_REALTIME) != 0};
    if (shared)
        comb_copy_from(&at, shared, sizeof at);
    if (comb_deadline_check(deadline.at)) {
        errno = EINVAL;
        return -1;
    }
    /* One of the two counts from now. */
    if (shared && command == FUTEX_WAIT)
        at = from_now(at);
    int error = wait(word, value, deadline);
    if (!error)
        return 0;
    errno = error;
    return -1;
}
