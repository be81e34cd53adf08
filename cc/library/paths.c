/* Calls that name a file by its path. Paths are those of the calling thread's cell. */
#include "wrap.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include "reach.h"

COMB_WRAP(int, access, TEXT(path), VALUE(int, mode));
COMB_WRAP(int, euidaccess, TEXT(path), VALUE(int, mode));
COMB_WRAP(int, eaccess, TEXT(path), VALUE(int, mode));
COMB_WRAP(int, stat, TEXT(path), INOUT(struct stat, result));
COMB_WRAP(int, lstat, TEXT(path), INOUT(struct stat, result));
COMB_WRAP(int, stat64, TEXT(path), INOUT(struct stat64, result));
COMB_WRAP(int, lstat64, TEXT(path), INOUT(struct stat64, result));
COMB_WRAP(int, statfs, TEXT(path), INOUT(struct statfs, result));
COMB_WRAP(int, statfs64, TEXT(path), INOUT(struct statfs64, result));
COMB_WRAP(int, statvfs, TEXT(path), INOUT(struct statvfs, result));
COMB_WRAP(int, statvfs64, TEXT(path), INOUT(struct statvfs64, result));
COMB_WRAP(int, chmod, TEXT(path), VALUE(mode_t, mode));
COMB_WRAP(int, lchmod, TEXT(path), VALUE(mode_t, mode));
COMB_WRAP(int, chown, TEXT(path), VALUE(uid_t, owner), VALUE(gid_t, group));
COMB_WRAP(int, lchown, TEXT(path), VALUE(uid_t, owner), VALUE(gid_t, group));
COMB_WRAP(int, truncate, TEXT(path), VALUE(off_t, length));
COMB_WRAP(int, truncate64, TEXT(path), VALUE(off64_t, length));
COMB_WRAP(int, utime, TEXT(path), IN(struct utimbuf, times));
COMB_WRAP(int, link, TEXT(from), TEXT(to));
COMB_WRAP(int, symlink, TEXT(from), TEXT(to));
COMB_WRAP(int, unlink, TEXT(path));
COMB_WRAP(int, rmdir, TEXT(path));
COMB_WRAP(int, remove, TEXT(path));
COMB_WRAP(int, rename, TEXT(from), TEXT(to));
COMB_WRAP(int, mkdir, TEXT(path), VALUE(mode_t, mode));
COMB_WRAP(int, mkfifo, TEXT(path), VALUE(mode_t, mode));
COMB_WRAP(int, mknod, TEXT(path), VALUE(mode_t, mode), VALUE(dev_t, device));
COMB_WRAP(int, chdir, TEXT(path));
COMB_WRAP(int, chroot, TEXT(path));
COMB_WRAP(int, acct, TEXT(path));
COMB_WRAP(long, pathconf, TEXT(path), VALUE(int, name));
COMB_WRAP(ssize_t, readlink, TEXT(path), FILLED(char, to, room, answer > 0 ? answer : 0), VALUE(size_t, room));
COMB_WRAP(key_t, ftok, TEXT(path), VALUE(int, project));
COMB_WRAP(int, mount, TEXT(source), TEXT(target), TEXT(type), VALUE(unsigned long, flags), VALUE(const void *, data));
COMB_WRAP(int, umount, TEXT(path));
COMB_WRAP(int, umount2, TEXT(path), VALUE(int, flags));

int comb_lib_utimes(const char *path, const struct timeval times[2])
{
    COMB_DESK(desk);
    return utimes(comb_own_text(&desk, path), comb_own(&desk, times, 2 * sizeof *times));
}
COMB_SAME_TYPE(utimes);

int comb_lib_lutimes(const char *path, const struct timeval times[2])
{
    COMB_DESK(desk);
    return lutimes(comb_own_text(&desk, path), comb_own(&desk, times, 2 * sizeof *times));
}
COMB_SAME_TYPE(lutimes);

/* Extended attributes. */
COMB_WRAP(int, setxattr, TEXT(path), TEXT(name), ARRAY(void, value, bytes), VALUE(size_t, bytes), VALUE(int, flags));
COMB_WRAP(int, lsetxattr, TEXT(path), TEXT(name), ARRAY(void, value, bytes), VALUE(size_t, bytes), VALUE(int, flags));
COMB_WRAP(ssize_t, getxattr, TEXT(path), TEXT(name), FILLED(void, value, room, answer > 0 && room ? answer : 0),
          VALUE(size_t, room));
COMB_WRAP(ssize_t, lgetxattr, TEXT(path), TEXT(name), FILLED(void, value, room, answer > 0 && room ? answer : 0),
          VALUE(size_t, room));
COMB_WRAP(ssize_t, listxattr, TEXT(path), FILLED(char, list, room, answer > 0 && room ? answer : 0), VALUE(size_t, room));
COMB_WRAP(ssize_t, llistxattr, TEXT(path), FILLED(char, list, room, answer > 0 && room ? answer : 0),
          VALUE(size_t, room));
COMB_WRAP(int, removexattr, TEXT(path), TEXT(name));
COMB_WRAP(int, lremovexattr, TEXT(path), TEXT(name));

/* Paths that come back. Where the program gives no room, it gets memory of its own to free. */

static char *for_the_program(char *made)
{
    char *copy = NULL;
    if (made && (copy = comb_lib_malloc(strlen(made) + 1)))
        comb_copy_to(copy, made, strlen(made) + 1);
    free(made);
    return copy;
}

char *comb_lib_getcwd(char *to, size_t room)
{
    if (!to)
        return for_the_program(getcwd(NULL, room));
    COMB_DESK(desk);
    char *own = comb_own_room(&desk, to, room);
    char *answer = getcwd(own, room);
    comb_give_back(to, own, comb_text_bytes(own, answer != NULL));
    return answer ? to : NULL;
}
COMB_SAME_TYPE(getcwd);

char *comb_lib_get_current_dir_name(void)
{
    return for_the_program(get_current_dir_name());
}
COMB_SAME_TYPE(get_current_dir_name);

char *comb_lib_realpath(const char *restrict path, char *restrict to)
{
    COMB_DESK(desk);
    char own[PATH_MAX];
    const char *own_path = comb_own_text(&desk, path);
    if (!to)
        return for_the_program(realpath(own_path, NULL));
    /* Also where the path cannot be resolved, the part that can is there. */
    own[0] = 0;
    char *answer = realpath(own_path, own);
    comb_give_back(to, own, comb_text_bytes(own, answer != NULL));
    return answer ? to : NULL;
}
COMB_SAME_TYPE(realpath);

char *comb_lib_canonicalize_file_name(const char *path)
{
    return comb_lib_realpath(path, NULL);
}
COMB_SAME_TYPE(canonicalize_file_name);

/* Templates: "…XXXXXX" becomes the name that was free. */
#define MAKES(result, given, name, parameters, own_arguments)              \
    result comb_lib_##name parameters                                      \
    {                                                                      \
        COMB_DESK(desk);                                                   \
        size_t bytes = comb_lib_strlen(path) + 1;                          \
        char *own = comb_desk_room(&desk, bytes);                          \
        comb_copy_from(own, path, bytes);                                  \
        result answer = given(name own_arguments);                         \
        comb_give_back(path, own, bytes);                                  \
        return answer;                                                     \
    }                                                                      \
    COMB_SAME_TYPE(name)
#define IN_PLACE(answer) (answer) ? path : NULL
MAKES(int, comb_descriptor_given, mkstemp, (char *path), (own));
MAKES(int, comb_descriptor_given, mkostemp, (char *path, int flags), (own, flags));
MAKES(int, comb_descriptor_given, mkstemps, (char *path, int behind), (own, behind));
MAKES(int, comb_descriptor_given, mkostemps, (char *path, int behind, int flags), (own, behind, flags));
COMB_ALIAS(mkstemp64, mkstemp);
COMB_ALIAS(mkostemp64, mkostemp);
COMB_ALIAS(mkstemps64, mkstemps);
COMB_ALIAS(mkostemps64, mkostemps);
MAKES(char *, IN_PLACE, mkdtemp, (char *path), (own));
