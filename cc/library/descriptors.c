/* Calls on a descriptor, made on the cell that has it. What blocks here, blocks there on a thread of that cell. */
#include "wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/timerfd.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include "reach.h"

/* Opening. */

/* The mode is only there if a file may be made. */
#define MODE_OF(flags, last)                                    \
    mode_t mode = 0;                                            \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {     \
        va_list arguments;                                      \
        va_start(arguments, last);                              \
        mode = va_arg(arguments, mode_t);                       \
        va_end(arguments);                                      \
    }

int comb_lib_open(const char *path, int flags, ...)
{
    COMB_DESK(desk);
    MODE_OF(flags, flags)
    return comb_descriptor_given(open(comb_own_text(&desk, path), flags, mode));
}
COMB_SAME_TYPE(open);
COMB_ALIAS(open64, open);

int comb_lib_creat(const char *path, mode_t mode)
{
    COMB_DESK(desk);
    return comb_descriptor_given(creat(comb_own_text(&desk, path), mode));
}
COMB_SAME_TYPE(creat);
COMB_ALIAS(creat64, creat);

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
    return comb_descriptor_given(openat(comb_descriptor_here(directory, &(unsigned){COMB_NO_CELL}), path, flags, mode));
}

int comb_lib_openat(int directory, const char *path, int flags, ...)
{
    COMB_DESK(desk);
    MODE_OF(flags, flags)
    unsigned cell = COMB_NO_CELL;
    const char *own = comb_own_text(&desk, path);
    comb_descriptor_here(directory, &cell);
    if (comb_is_here(cell))
        return open_at(directory, own, flags, mode);
    struct comb_part parts[] = {
        {.value = directory}, {.own = (void *)own, .in = comb_text_bytes(own, 1)}, {.value = flags}, {.value = mode}};
    return (int)comb_forward(cell, (void (*)(void))open_at, parts, 4);
}
COMB_SAME_TYPE(openat);
COMB_ALIAS(openat64, openat);

int comb_lib_pipe2(int ends[2], int flags)
{
    int own[2], answer = pipe2(own, flags);
    if (answer == 0) {
        own[0] = comb_descriptor_given(own[0]), own[1] = comb_descriptor_given(own[1]);
        comb_copy_to(ends, own, sizeof own);
    }
    return answer;
}
COMB_SAME_TYPE(pipe2);

int comb_lib_pipe(int ends[2])
{
    return comb_lib_pipe2(ends, 0);
}
COMB_SAME_TYPE(pipe);

#define MAKES(name, parameters, arguments)              \
    int comb_lib_##name parameters                      \
    {                                                   \
        return comb_descriptor_given(name arguments);   \
    }                                                   \
    COMB_SAME_TYPE(name)
MAKES(eventfd, (unsigned value, int flags), (value, flags));
MAKES(epoll_create, (int size), (size));
MAKES(epoll_create1, (int flags), (flags));
MAKES(timerfd_create, (clockid_t clock, int flags), (clock, flags));
MAKES(inotify_init, (void), ());
MAKES(inotify_init1, (int flags), (flags));

int comb_lib_memfd_create(const char *name, unsigned flags)
{
    COMB_DESK(desk);
    return comb_descriptor_given(memfd_create(comb_own_text(&desk, name), flags));
}
COMB_SAME_TYPE(memfd_create);

COMB_WRAP_OPENS(dup, DESCRIPTOR(from));
/* Both numbers must be of one cell: standard output of another cell than 0 is cell 0's. */
COMB_WRAP_OPENS(dup2, DESCRIPTOR(from), DESCRIPTOR(to));
COMB_WRAP_OPENS(dup3, DESCRIPTOR(from), DESCRIPTOR(to), VALUE(int, flags));
COMB_WRAP_OPENS(signalfd, DESCRIPTOR(descriptor), IN(sigset_t, signals), VALUE(int, flags));

/* What they are and where they stand. */

COMB_WRAP_AT(int, close, DESCRIPTOR(descriptor));
COMB_WRAP_AT(off_t, lseek, DESCRIPTOR(descriptor), VALUE(off_t, offset), VALUE(int, from));
COMB_ALIAS(lseek64, lseek);
COMB_WRAP_AT(int, fstat, DESCRIPTOR(descriptor), INOUT(struct stat, result));
COMB_ALIAS(fstat64, fstat);
COMB_WRAP_AT(int, fstatfs, DESCRIPTOR(descriptor), INOUT(struct statfs, result));
COMB_ALIAS(fstatfs64, fstatfs);
COMB_WRAP_AT(int, fstatvfs, DESCRIPTOR(descriptor), INOUT(struct statvfs, result));
COMB_ALIAS(fstatvfs64, fstatvfs);
COMB_WRAP_AT(long, fpathconf, DESCRIPTOR(descriptor), VALUE(int, name));
COMB_WRAP_AT(int, isatty, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, fsync, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, fdatasync, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, syncfs, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, ftruncate, DESCRIPTOR(descriptor), VALUE(off_t, length));
COMB_ALIAS(ftruncate64, ftruncate);
COMB_WRAP_AT(int, fallocate, DESCRIPTOR(descriptor), VALUE(int, mode), VALUE(off_t, offset), VALUE(off_t, length));
COMB_ALIAS(fallocate64, fallocate);
COMB_WRAP_AT(int, posix_fallocate, DESCRIPTOR(descriptor), VALUE(off_t, offset), VALUE(off_t, length));
COMB_ALIAS(posix_fallocate64, posix_fallocate);
COMB_WRAP_AT(int, posix_fadvise, DESCRIPTOR(descriptor), VALUE(off_t, offset), VALUE(off_t, length), VALUE(int, advice));
COMB_ALIAS(posix_fadvise64, posix_fadvise);
COMB_WRAP_AT(ssize_t, readahead, DESCRIPTOR(descriptor), VALUE(off64_t, offset), VALUE(size_t, bytes));
COMB_WRAP_AT(int, sync_file_range, DESCRIPTOR(descriptor), VALUE(off64_t, offset), VALUE(off64_t, bytes),
             VALUE(unsigned, flags));
COMB_WRAP_AT(int, fchmod, DESCRIPTOR(descriptor), VALUE(mode_t, mode));
COMB_WRAP_AT(int, fchown, DESCRIPTOR(descriptor), VALUE(uid_t, owner), VALUE(gid_t, group));
COMB_WRAP_AT(int, fchdir, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, flock, DESCRIPTOR(descriptor), VALUE(int, operation));
COMB_WRAP_AT(int, lockf, DESCRIPTOR(descriptor), VALUE(int, command), VALUE(off_t, length));
COMB_ALIAS(lockf64, lockf);
COMB_WRAP_AT(int, ttyname_r, DESCRIPTOR(descriptor), FILLED(char, to, room, comb_text_bytes(own_to, answer == 0)),
             VALUE(size_t, room));
COMB_WRAP_AT(int, eventfd_read, DESCRIPTOR(descriptor), INOUT(eventfd_t, value));
COMB_WRAP_AT(int, eventfd_write, DESCRIPTOR(descriptor), VALUE(eventfd_t, value));
COMB_WRAP_AT(int, timerfd_settime, DESCRIPTOR(descriptor), VALUE(int, flags), IN(struct itimerspec, value),
             INOUT(struct itimerspec, before));
COMB_WRAP_AT(int, timerfd_gettime, DESCRIPTOR(descriptor), INOUT(struct itimerspec, value));
COMB_WRAP_AT(int, inotify_add_watch, DESCRIPTOR(descriptor), TEXT(path), VALUE(uint32_t, mask));
COMB_WRAP_AT(int, inotify_rm_watch, DESCRIPTOR(descriptor), VALUE(int, watch));
COMB_WRAP_AT(int, fsetxattr, DESCRIPTOR(descriptor), TEXT(name), ARRAY(void, value, bytes), VALUE(size_t, bytes),
             VALUE(int, flags));
COMB_WRAP_AT(ssize_t, fgetxattr, DESCRIPTOR(descriptor), TEXT(name),
             FILLED(void, value, room, answer > 0 && room ? answer : 0), VALUE(size_t, room));
COMB_WRAP_AT(ssize_t, flistxattr, DESCRIPTOR(descriptor), FILLED(char, list, room, answer > 0 && room ? answer : 0),
             VALUE(size_t, room));
COMB_WRAP_AT(int, fremovexattr, DESCRIPTOR(descriptor), TEXT(name));

char *comb_lib_ttyname(int descriptor)
{
    static _Thread_local char name[64];
    int error = comb_lib_ttyname_r(descriptor, name, sizeof name);
    if (error)
        errno = error;
    return error ? NULL : name;
}
COMB_SAME_TYPE(ttyname);

/* Paths from a directory's descriptor. */

COMB_WRAP_AT(int, faccessat, DESCRIPTOR(directory), TEXT(path), VALUE(int, mode), VALUE(int, flags));
COMB_WRAP_AT(int, fstatat, DESCRIPTOR(directory), TEXT(path), INOUT(struct stat, result), VALUE(int, flags));
COMB_ALIAS(fstatat64, fstatat);
COMB_WRAP_AT(int, statx, DESCRIPTOR(directory), TEXT(path), VALUE(int, flags), VALUE(unsigned, mask),
             INOUT(struct statx, result));
COMB_WRAP_AT(int, fchmodat, DESCRIPTOR(directory), TEXT(path), VALUE(mode_t, mode), VALUE(int, flags));
COMB_WRAP_AT(int, fchownat, DESCRIPTOR(directory), TEXT(path), VALUE(uid_t, owner), VALUE(gid_t, group),
             VALUE(int, flags));
COMB_WRAP_AT(int, linkat, DESCRIPTOR(from), TEXT(path), DESCRIPTOR(to), TEXT(to_path), VALUE(int, flags));
COMB_WRAP_AT(int, symlinkat, TEXT(path), DESCRIPTOR(to), TEXT(to_path));
COMB_WRAP_AT(int, unlinkat, DESCRIPTOR(directory), TEXT(path), VALUE(int, flags));
COMB_WRAP_AT(int, renameat, DESCRIPTOR(from), TEXT(path), DESCRIPTOR(to), TEXT(to_path));
COMB_WRAP_AT(int, renameat2, DESCRIPTOR(from), TEXT(path), DESCRIPTOR(to), TEXT(to_path), VALUE(unsigned, flags));
COMB_WRAP_AT(int, mkdirat, DESCRIPTOR(directory), TEXT(path), VALUE(mode_t, mode));
COMB_WRAP_AT(int, mkfifoat, DESCRIPTOR(directory), TEXT(path), VALUE(mode_t, mode));
COMB_WRAP_AT(int, mknodat, DESCRIPTOR(directory), TEXT(path), VALUE(mode_t, mode), VALUE(dev_t, device));
COMB_WRAP_AT(ssize_t, readlinkat, DESCRIPTOR(directory), TEXT(path), FILLED(char, to, room, answer > 0 ? answer : 0),
             VALUE(size_t, room));

static int change_times(int directory, const char *path, const struct timespec *times, int flags)
{
    int here = comb_descriptor_here(directory, &(unsigned){COMB_NO_CELL});
    return path ? utimensat(here, path, times, flags) : futimens(here, times);
}

int comb_lib_utimensat(int directory, const char *path, const struct timespec times[2], int flags)
{
    COMB_DESK(desk);
    unsigned cell = COMB_NO_CELL;
    const char *own = comb_own_text(&desk, path);
    void *own_times = comb_own(&desk, times, 2 * sizeof *times);
    comb_descriptor_here(directory, &cell);
    if (comb_is_here(cell))
        return change_times(directory, own, own_times, flags);
    struct comb_part parts[] = {{.value = directory},
                                {.own = (void *)own, .in = comb_text_bytes(own, 1)},
                                {.own = own_times, .in = 2 * sizeof *times},
                                {.value = flags}};
    return (int)comb_forward(cell, (void (*)(void))change_times, parts, 4);
}
COMB_SAME_TYPE(utimensat);

int comb_lib_futimens(int descriptor, const struct timespec times[2])
{
    return comb_lib_utimensat(descriptor, NULL, times, 0);
}
COMB_SAME_TYPE(futimens);

/* Terminals. */

COMB_WRAP_AT(int, tcgetattr, DESCRIPTOR(descriptor), INOUT(struct termios, settings));
COMB_WRAP_AT(int, tcsetattr, DESCRIPTOR(descriptor), VALUE(int, when), IN(struct termios, settings));
COMB_WRAP_AT(int, tcsendbreak, DESCRIPTOR(descriptor), VALUE(int, length));
COMB_WRAP_AT(int, tcdrain, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, tcflush, DESCRIPTOR(descriptor), VALUE(int, which));
COMB_WRAP_AT(int, tcflow, DESCRIPTOR(descriptor), VALUE(int, action));
COMB_WRAP_AT(pid_t, tcgetpgrp, DESCRIPTOR(descriptor));
COMB_WRAP_AT(int, tcsetpgrp, DESCRIPTOR(descriptor), VALUE(pid_t, group));
COMB_WRAP_AT(pid_t, tcgetsid, DESCRIPTOR(descriptor));
COMB_WRAP(speed_t, cfgetispeed, IN(struct termios, settings));
COMB_WRAP(speed_t, cfgetospeed, IN(struct termios, settings));
COMB_WRAP(int, cfsetispeed, INOUT(struct termios, settings), VALUE(speed_t, speed));
COMB_WRAP(int, cfsetospeed, INOUT(struct termios, settings), VALUE(speed_t, speed));
COMB_WRAP(int, cfsetspeed, INOUT(struct termios, settings), VALUE(speed_t, speed));
COMB_WRAP_VOID(cfmakeraw, INOUT(struct termios, settings));
