/* syscall(): only calls that name no memory, and the futex, which no function of libc's is for; what is behind the others has one. */
#include "wrap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reach.h"

/* Calls without any pointer, and without a descriptor, which would be a number of the program's. */
static int names_no_memory(long number)
{
    switch (number) {
    case SYS_gettid:
    case SYS_getpid:
    case SYS_getppid:
    case SYS_getuid:
    case SYS_geteuid:
    case SYS_getgid:
    case SYS_getegid:
    case SYS_getpgrp:
    case SYS_getpgid:
    case SYS_getsid:
    case SYS_sched_yield:
    case SYS_getpriority:
    case SYS_setpriority:
    case SYS_sync:
    case SYS_umask:
    case SYS_tgkill:
    case SYS_tkill:
    case SYS_kill:
    case SYS_membarrier: return 1;
    default: return 0;
    }
}

/* The runtime's. */
extern long comb_system_futex(uint32_t *word, int operation, uint32_t value, const struct timespec *deadline) __attribute__((weak));

long comb_lib_syscall(long number, ...)
{
    long words[4];
    va_list list;
    va_start(list, number);
    for (int at = 0; at < 4; at++)
        words[at] = va_arg(list, long);
    va_end(list);
    if (names_no_memory(number))
        return syscall(number, words[0], words[1], words[2]);
    if (number == SYS_futex && comb_system_futex)
        return comb_system_futex((uint32_t *)words[0], (int)words[1], (uint32_t)words[2], (const struct timespec *)words[3]);
    errno = ENOSYS;
    return -1;
}
COMB_SAME_TYPE(syscall);
