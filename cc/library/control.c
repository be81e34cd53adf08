/* fcntl and ioctl: what the third argument is, the second says. */
#include "wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "reach.h"

/* How many bytes the argument points to; 0 where it is a number. */
static size_t fcntl_bytes(int command)
{
    switch (command) {
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW: return sizeof(struct flock);
    case F_GETOWN_EX:
    case F_SETOWN_EX: return sizeof(struct f_owner_ex);
    case F_GET_RW_HINT:
    case F_SET_RW_HINT:
    case F_GET_FILE_RW_HINT:
    case F_SET_FILE_RW_HINT: return sizeof(uint64_t);
    default: return 0;
    }
}

static long fcntl_here(long descriptor, long command, long value, void *own)
{
    int here = comb_descriptor_here((int)descriptor, &(unsigned){COMB_NO_CELL});
    int answer = own ? fcntl(here, (int)command, own) : fcntl(here, (int)command, value);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? comb_descriptor_given(answer) : answer;
}

int comb_lib_fcntl(int descriptor, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);

    COMB_DESK(desk);
    size_t bytes = fcntl_bytes(command);
    void *own = bytes ? comb_own(&desk, (void *)argument, bytes) : NULL;
    unsigned cell = COMB_NO_CELL;
    long answer;
    comb_descriptor_here(descriptor, &cell);
    if (comb_is_here(cell)) {
        answer = fcntl_here(descriptor, command, argument, own);
    } else {
        struct comb_part parts[] = {
            {.value = descriptor}, {.value = command}, {.value = argument}, {.own = own, .in = bytes, .out = bytes}};
        answer = comb_forward(cell, (void (*)(void))fcntl_here, parts, 4);
    }
    comb_give_back((void *)argument, own, bytes);
    return (int)answer;
}
COMB_SAME_TYPE(fcntl);
COMB_ALIAS(fcntl64, fcntl);

enum { UNKNOWN = -1 };

/* Old requests do not tell the size of what they point to; newer ones have it in the number. */
static ssize_t ioctl_bytes(unsigned long request)
{
    switch (request) {
    case FIONREAD:
    case FIONBIO:
    case FIOASYNC:
    case TIOCOUTQ:
    case TIOCGPGRP:
    case TIOCSPGRP:
    case TIOCGSID:
    case TIOCMGET:
    case TIOCMSET:
    case TIOCMBIS:
    case TIOCMBIC:
    case TIOCGETD:
    case TIOCSETD:
    case FIOSETOWN:
    case FIOGETOWN:
    case SIOCATMARK: return sizeof(int);
    case TIOCGWINSZ:
    case TIOCSWINSZ: return sizeof(struct winsize);
    case TCGETS:
    case TCSETS:
    case TCSETSW:
    case TCSETSF: return 36; /* the kernel's struct termios */
    case FIOCLEX:
    case FIONCLEX:
    case TCSBRK:
    case TCXONC:
    case TCFLSH:
    case TIOCEXCL:
    case TIOCNXCL:
    case TIOCSCTTY:
    case TIOCNOTTY: return 0;
    default: break;
    }
    if (request >= SIOCGIFNAME && request <= SIOCGIFHWADDR && request != SIOCGIFCONF)
        return sizeof(struct ifreq);
    if (_IOC_DIR(request) != _IOC_NONE)
        return _IOC_SIZE(request);
    return UNKNOWN;
}

static long ioctl_here(long descriptor, unsigned long request, long value, void *own)
{
    int here = comb_descriptor_here((int)descriptor, &(unsigned){COMB_NO_CELL});
    return own ? ioctl(here, request, own) : ioctl(here, request, value);
}

int comb_lib_ioctl(int descriptor, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    long argument = va_arg(arguments, long);
    va_end(arguments);

    COMB_DESK(desk);
    ssize_t bytes = ioctl_bytes(request);
    if (bytes == UNKNOWN && comb_is_shared((void *)argument)) {
        /* How much the kernel would read or write there is not known, and it must not touch it. */
        errno = ENOTTY;
        return -1;
    }
    void *own = bytes > 0 && argument ? comb_own(&desk, (void *)argument, (size_t)bytes) : NULL;
    unsigned cell = COMB_NO_CELL;
    long answer;
    comb_descriptor_here(descriptor, &cell);
    if (comb_is_here(cell)) {
        answer = ioctl_here(descriptor, request, argument, own);
    } else {
        struct comb_part parts[] = {{.value = descriptor},
                                    {.value = (long)request},
                                    {.value = argument},
                                    {.own = own, .in = (size_t)bytes, .out = (size_t)bytes}};
        answer = comb_forward(cell, (void (*)(void))ioctl_here, parts, 4);
    }
    if (own)
        comb_give_back((void *)argument, own, (size_t)bytes);
    return (int)answer;
}
COMB_SAME_TYPE(ioctl);
