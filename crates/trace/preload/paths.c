// Calls on names.

#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <utime.h>

#include "preload.h"

#define WRAP(type, name, parameters, arguments, tell) \
  SEEN type name parameters {                         \
    u64 start = begins();                             \
    type result = REAL(name) arguments;               \
    if (start) tell;                                  \
    return result;                                    \
  }

// Whether an open will make the file has to be known before, unless the open itself is to fail otherwise.
static int will_create(int directory, const char *path, int flags) {
  if ((flags & O_TMPFILE) == O_TMPFILE) return 1;
  if (!(flags & O_CREAT)) return 0;
  return flags & O_EXCL || is_missing(directory, path);
}

static int has_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

#define WRAP_OPEN(name)                                                                            \
  SEEN int name(const char *path, int flags, ...) {                                                \
    va_list list;                                                                                  \
    va_start(list, flags);                                                                         \
    mode_t mode = has_mode(flags) ? va_arg(list, mode_t) : 0;                                      \
    va_end(list);                                                                                  \
    int is_new = begins() ? will_create(AT_FDCWD, path, flags) : 0;                                \
    u64 start = begins();                                                                          \
    int result = REAL(name)(path, flags, mode);                                                    \
    if (start) tell_open(start, result, AT_FDCWD, path, flags, is_new);                            \
    return result;                                                                                 \
  }
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_OPEN_AT(name)                                                                         \
  SEEN int name(int directory, const char *path, int flags, ...) {                                 \
    va_list list;                                                                                  \
    va_start(list, flags);                                                                         \
    mode_t mode = has_mode(flags) ? va_arg(list, mode_t) : 0;                                      \
    va_end(list);                                                                                  \
    int is_new = begins() ? will_create(directory, path, flags) : 0;                               \
    u64 start = begins();                                                                          \
    int result = REAL(name)(directory, path, flags, mode);                                         \
    if (start) tell_open(start, result, directory, path, flags, is_new);                           \
    return result;                                                                                 \
  }
WRAP_OPEN_AT(openat)
WRAP_OPEN_AT(openat64)

// As the C library's headers call them where the flags are not known.
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
WRAP(int, __open_2, (const char *path, int flags), (path, flags), tell_open(start, result, AT_FDCWD, path, flags, 0))
WRAP(int, __open64_2, (const char *path, int flags), (path, flags), tell_open(start, result, AT_FDCWD, path, flags, 0))
WRAP(int, __openat_2, (int directory, const char *path, int flags), (directory, path, flags),
     tell_open(start, result, directory, path, flags, 0))
WRAP(int, __openat64_2, (int directory, const char *path, int flags), (directory, path, flags),
     tell_open(start, result, directory, path, flags, 0))

#define WRAP_CREATE(name)                                                                          \
  SEEN int name(const char *path, mode_t mode) {                                                   \
    int is_new = begins() ? is_missing(AT_FDCWD, path) : 0;                                        \
    u64 start = begins();                                                                          \
    int result = REAL(name)(path, mode);                                                           \
    if (start) tell_open(start, result, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, is_new);     \
    return result;                                                                                 \
  }
WRAP_CREATE(creat)
WRAP_CREATE(creat64)

WRAP(int, open_by_handle_at, (int mount, struct file_handle *handle, int flags), (mount, handle, flags),
     tell_open(start, result, mount, "", flags, 0))

// Files with names that nobody else has.
#define TEMPORARY (O_RDWR | O_CREAT | O_EXCL)
WRAP(int, mkstemp, (char *path), (path), tell_open(start, result, AT_FDCWD, path, TEMPORARY, 1))
WRAP(int, mkstemp64, (char *path), (path), tell_open(start, result, AT_FDCWD, path, TEMPORARY, 1))
WRAP(int, mkostemp, (char *path, int flags), (path, flags),
     tell_open(start, result, AT_FDCWD, path, TEMPORARY | flags, 1))
WRAP(int, mkostemp64, (char *path, int flags), (path, flags),
     tell_open(start, result, AT_FDCWD, path, TEMPORARY | flags, 1))
WRAP(int, mkstemps, (char *path, int ending), (path, ending), tell_open(start, result, AT_FDCWD, path, TEMPORARY, 1))
WRAP(int, mkstemps64, (char *path, int ending), (path, ending), tell_open(start, result, AT_FDCWD, path, TEMPORARY, 1))
WRAP(int, mkostemps, (char *path, int ending, int flags), (path, ending, flags),
     tell_open(start, result, AT_FDCWD, path, TEMPORARY | flags, 1))
WRAP(int, mkostemps64, (char *path, int ending, int flags), (path, ending, flags),
     tell_open(start, result, AT_FDCWD, path, TEMPORARY | flags, 1))
WRAP(char *, mkdtemp, (char *path), (path),
     tell_path(OPERATION_MAKE_DIRECTORY, start, result ? 0 : -errno, AT_FDCWD, path, 0700, 0))

#define TELL_PATH(operation, argument, asked) \
  tell_path(OPERATION_##operation, start, outcome(result), AT_FDCWD, path, argument, asked)
#define TELL_PATH_AT(operation, argument, asked) \
  tell_path(OPERATION_##operation, start, outcome(result), directory, path, argument, asked)
#define TELL(operation) tell_descriptor(OPERATION_##operation, start, outcome(result), descriptor, 0, 0)

WRAP(int, stat, (const char *path, struct stat *status), (path, status), TELL_PATH(STATUS, 0, 0))
WRAP(int, stat64, (const char *path, struct stat64 *status), (path, status), TELL_PATH(STATUS, 0, 0))
WRAP(int, lstat, (const char *path, struct stat *status), (path, status), TELL_PATH(STATUS, AT_SYMLINK_NOFOLLOW, 0))
WRAP(int, lstat64, (const char *path, struct stat64 *status), (path, status),
     TELL_PATH(STATUS, AT_SYMLINK_NOFOLLOW, 0))

// Whoever looks at a descriptor's file sees how long it is.
static void tell_status(u64 start, int result, int descriptor, u64 size) {
  struct open_file *file = file_of(descriptor);
  if (file && result == 0 && S_ISREG(file->mode)) file->size = size;
  TELL(STATUS);
}

WRAP(int, fstat, (int descriptor, struct stat *status), (descriptor, status),
     tell_status(start, result, descriptor, result ? 0 : status->st_size))
WRAP(int, fstat64, (int descriptor, struct stat64 *status), (descriptor, status),
     tell_status(start, result, descriptor, result ? 0 : status->st_size))
WRAP(int, fstatat, (int directory, const char *path, struct stat *status, int flags), (directory, path, status, flags),
     TELL_PATH_AT(STATUS, flags, 0))
WRAP(int, fstatat64, (int directory, const char *path, struct stat64 *status, int flags),
     (directory, path, status, flags), TELL_PATH_AT(STATUS, flags, 0))
WRAP(int, statx, (int directory, const char *path, int flags, unsigned wanted, struct statx *status),
     (directory, path, flags, wanted, status), TELL_PATH_AT(STATUS, flags, 0))

// As programs call them that were linked with a C library before 2.33.
int __xstat(int, const char *, struct stat *);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat(int, const char *, struct stat *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstat(int, int, struct stat *);
int __fxstat64(int, int, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __fxstatat64(int, int, const char *, struct stat64 *, int);
int __xmknod(int, const char *, mode_t, dev_t *);
int __xmknodat(int, int, const char *, mode_t, dev_t *);
WRAP(int, __xstat, (int version, const char *path, struct stat *status), (version, path, status),
     TELL_PATH(STATUS, 0, 0))
WRAP(int, __xstat64, (int version, const char *path, struct stat64 *status), (version, path, status),
     TELL_PATH(STATUS, 0, 0))
WRAP(int, __lxstat, (int version, const char *path, struct stat *status), (version, path, status),
     TELL_PATH(STATUS, AT_SYMLINK_NOFOLLOW, 0))
WRAP(int, __lxstat64, (int version, const char *path, struct stat64 *status), (version, path, status),
     TELL_PATH(STATUS, AT_SYMLINK_NOFOLLOW, 0))
WRAP(int, __fxstat, (int version, int descriptor, struct stat *status), (version, descriptor, status),
     tell_status(start, result, descriptor, result ? 0 : status->st_size))
WRAP(int, __fxstat64, (int version, int descriptor, struct stat64 *status), (version, descriptor, status),
     tell_status(start, result, descriptor, result ? 0 : status->st_size))
WRAP(int, __fxstatat, (int version, int directory, const char *path, struct stat *status, int flags),
     (version, directory, path, status, flags), TELL_PATH_AT(STATUS, flags, 0))
WRAP(int, __fxstatat64, (int version, int directory, const char *path, struct stat64 *status, int flags),
     (version, directory, path, status, flags), TELL_PATH_AT(STATUS, flags, 0))
WRAP(int, __xmknod, (int version, const char *path, mode_t mode, dev_t *device), (version, path, mode, device),
     TELL_PATH(MAKE, mode, 0))
WRAP(int, __xmknodat, (int version, int directory, const char *path, mode_t mode, dev_t *device),
     (version, directory, path, mode, device), TELL_PATH_AT(MAKE, mode, 0))

WRAP(int, access, (const char *path, int mode), (path, mode), TELL_PATH(ACCESS, mode, 0))
WRAP(int, faccessat, (int directory, const char *path, int mode, int flags), (directory, path, mode, flags),
     TELL_PATH_AT(ACCESS, mode, 0))
WRAP(int, euidaccess, (const char *path, int mode), (path, mode), TELL_PATH(ACCESS, mode, 0))
WRAP(int, eaccess, (const char *path, int mode), (path, mode), TELL_PATH(ACCESS, mode, 0))

ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);
WRAP(ssize_t, readlink, (const char *path, char *text, size_t bytes), (path, text, bytes),
     TELL_PATH(READ_LINK, 0, bytes))
WRAP(ssize_t, readlinkat, (int directory, const char *path, char *text, size_t bytes), (directory, path, text, bytes),
     TELL_PATH_AT(READ_LINK, 0, bytes))
WRAP(ssize_t, __readlink_chk, (const char *path, char *text, size_t bytes, size_t room), (path, text, bytes, room),
     TELL_PATH(READ_LINK, 0, bytes))
WRAP(ssize_t, __readlinkat_chk, (int directory, const char *path, char *text, size_t bytes, size_t room),
     (directory, path, text, bytes, room), TELL_PATH_AT(READ_LINK, 0, bytes))
// One for all the links that were read on the way: how many that were, only the C library knows.
#define TELL_REAL tell_path(OPERATION_READ_LINK, start, result ? 0 : -errno, AT_FDCWD, path, 0, 0)
WRAP(char *, realpath, (const char *path, char *resolved), (path, resolved), TELL_REAL)
WRAP(char *, __realpath_chk, (const char *path, char *resolved, size_t room), (path, resolved, room), TELL_REAL)
WRAP(char *, canonicalize_file_name, (const char *path), (path), TELL_REAL)

// Two names.
static void tell_paths(u8 operation, u64 start, s64 result, int directory, const char *path, int other_directory,
                       const char *other, u64 argument) {
  struct event event;
  prepare(&event, operation, start, outcome(result));
  event.argument = argument;
  struct path paths[2] = {path_at(directory, path), path_at(other_directory, other)};
  put(&event, paths, 2);
}

WRAP(int, rename, (const char *path, const char *other), (path, other),
     tell_paths(OPERATION_RENAME, start, result, AT_FDCWD, path, AT_FDCWD, other, 0))
WRAP(int, renameat, (int directory, const char *path, int to, const char *other), (directory, path, to, other),
     tell_paths(OPERATION_RENAME, start, result, directory, path, to, other, 0))
WRAP(int, renameat2, (int directory, const char *path, int to, const char *other, unsigned flags),
     (directory, path, to, other, flags),
     tell_paths(OPERATION_RENAME, start, result, directory, path, to, other, flags))
WRAP(int, link, (const char *path, const char *other), (path, other),
     tell_paths(OPERATION_LINK, start, result, AT_FDCWD, path, AT_FDCWD, other, 0))
WRAP(int, linkat, (int directory, const char *path, int to, const char *other, int flags),
     (directory, path, to, other, flags),
     tell_paths(OPERATION_LINK, start, result, directory, path, to, other, flags))
WRAP(int, symlink, (const char *text, const char *path), (text, path), TELL_PATH(LINK, 0, 0))
WRAP(int, symlinkat, (const char *text, int directory, const char *path), (text, directory, path),
     TELL_PATH_AT(LINK, 0, 0))
WRAP(int, unlink, (const char *path), (path), TELL_PATH(DELETE, 0, 0))
WRAP(int, unlinkat, (int directory, const char *path, int flags), (directory, path, flags),
     TELL_PATH_AT(DELETE, flags, 0))

// Which of the two it does depends on what is there.
SEEN int remove(const char *path) {
  u32 mode = 0;
  if (begins()) identity_of(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &mode);
  u64 start = begins();
  int result = REAL(remove)(path);
  if (!start) return result;
  if (S_ISDIR(mode))
    TELL_PATH(REMOVE_DIRECTORY, 0, 0);
  else
    TELL_PATH(DELETE, 0, 0);
  return result;
}

WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), TELL_PATH(MAKE_DIRECTORY, mode, 0))
WRAP(int, mkdirat, (int directory, const char *path, mode_t mode), (directory, path, mode),
     TELL_PATH_AT(MAKE_DIRECTORY, mode, 0))
WRAP(int, rmdir, (const char *path), (path), TELL_PATH(REMOVE_DIRECTORY, 0, 0))
WRAP(int, mknod, (const char *path, mode_t mode, dev_t device), (path, mode, device), TELL_PATH(MAKE, mode, 0))
WRAP(int, mknodat, (int directory, const char *path, mode_t mode, dev_t device), (directory, path, mode, device),
     TELL_PATH_AT(MAKE, mode, 0))
WRAP(int, mkfifo, (const char *path, mode_t mode), (path, mode), TELL_PATH(MAKE, mode | S_IFIFO, 0))
WRAP(int, mkfifoat, (int directory, const char *path, mode_t mode), (directory, path, mode),
     TELL_PATH_AT(MAKE, mode | S_IFIFO, 0))
WRAP(int, truncate, (const char *path, off_t bytes), (path, bytes), TELL_PATH(TRUNCATE, 0, bytes))
WRAP(int, truncate64, (const char *path, off64_t bytes), (path, bytes), TELL_PATH(TRUNCATE, 0, bytes))

WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), TELL_PATH(SET_ATTRIBUTES, mode, 0))
WRAP(int, lchmod, (const char *path, mode_t mode), (path, mode), TELL_PATH(SET_ATTRIBUTES, mode, 0))
WRAP(int, fchmodat, (int directory, const char *path, mode_t mode, int flags), (directory, path, mode, flags),
     TELL_PATH_AT(SET_ATTRIBUTES, mode, 0))
WRAP(int, chown, (const char *path, uid_t user, gid_t group), (path, user, group), TELL_PATH(SET_ATTRIBUTES, user, 0))
WRAP(int, lchown, (const char *path, uid_t user, gid_t group), (path, user, group), TELL_PATH(SET_ATTRIBUTES, user, 0))
WRAP(int, fchownat, (int directory, const char *path, uid_t user, gid_t group, int flags),
     (directory, path, user, group, flags), TELL_PATH_AT(SET_ATTRIBUTES, user, 0))
WRAP(int, utime, (const char *path, const struct utimbuf *times), (path, times), TELL_PATH(SET_ATTRIBUTES, 0, 0))
WRAP(int, utimes, (const char *path, const struct timeval times[2]), (path, times), TELL_PATH(SET_ATTRIBUTES, 0, 0))
WRAP(int, lutimes, (const char *path, const struct timeval times[2]), (path, times), TELL_PATH(SET_ATTRIBUTES, 0, 0))
WRAP(int, futimes, (int descriptor, const struct timeval times[2]), (descriptor, times), TELL(SET_ATTRIBUTES))
WRAP(int, futimesat, (int directory, const char *path, const struct timeval times[2]), (directory, path, times),
     TELL_PATH_AT(SET_ATTRIBUTES, 0, 0))
WRAP(int, utimensat, (int directory, const char *path, const struct timespec times[2], int flags),
     (directory, path, times, flags), {
       if (path)
         TELL_PATH_AT(SET_ATTRIBUTES, 0, 0);
       else
         tell_descriptor(OPERATION_SET_ATTRIBUTES, start, outcome(result), directory, 0, 0);
     })

#define WRAP_EXTENDED(follow)                                                                                            \
  WRAP(ssize_t, follow##getxattr, (const char *path, const char *name, void *value, size_t bytes),                       \
       (path, name, value, bytes), TELL_PATH(EXTENDED, 0, bytes))                                                        \
  WRAP(int, follow##setxattr, (const char *path, const char *name, const void *value, size_t bytes, int flags),          \
       (path, name, value, bytes, flags), TELL_PATH(EXTENDED, 0, bytes))                                                 \
  WRAP(ssize_t, follow##listxattr, (const char *path, char *list, size_t bytes), (path, list, bytes),                    \
       TELL_PATH(EXTENDED, 0, bytes))                                                                                    \
  WRAP(int, follow##removexattr, (const char *path, const char *name), (path, name), TELL_PATH(EXTENDED, 0, 0))
WRAP_EXTENDED()
WRAP_EXTENDED(l)

WRAP(int, statfs, (const char *path, struct statfs *status), (path, status), TELL_PATH(FILE_SYSTEM, 0, 0))
WRAP(int, statfs64, (const char *path, struct statfs64 *status), (path, status), TELL_PATH(FILE_SYSTEM, 0, 0))
WRAP(int, statvfs, (const char *path, struct statvfs *status), (path, status), TELL_PATH(FILE_SYSTEM, 0, 0))
WRAP(int, statvfs64, (const char *path, struct statvfs64 *status), (path, status), TELL_PATH(FILE_SYSTEM, 0, 0))
WRAP(int, fstatvfs, (int descriptor, struct statvfs *status), (descriptor, status), TELL(FILE_SYSTEM))
WRAP(int, fstatvfs64, (int descriptor, struct statvfs64 *status), (descriptor, status), TELL(FILE_SYSTEM))

// From where it was given: afterwards that is somewhere else.
#define WRAP_CHANGE(name)                                                                          \
  SEEN int name(const char *path) {                                                                \
    u64 start = begins();                                                                          \
    struct path text = start ? path_at(AT_FDCWD, path) : (struct path){};                          \
    int result = REAL(name)(path);                                                                 \
    if (!start) return result;                                                                     \
    struct event event;                                                                            \
    prepare(&event, OPERATION_CHANGE_DIRECTORY, start, outcome(result));                           \
    put(&event, &text, 1);                                                                         \
    if (result == 0) working_directory_changes();                                                  \
    return result;                                                                                 \
  }
WRAP_CHANGE(chdir)
WRAP_CHANGE(chroot)

// Directories. The C library asks for many entries at once and hands out one by one: how many were read is told when it comes to the end,
// or the directory is closed.
static void tell_listed(u64 start, int descriptor) {
  struct open_file *file = file_of(descriptor);
  if (!file || !file->listed) return;
  u64 bytes = file->listed;
  file->listed = 0;
  tell_descriptor(OPERATION_LIST, start, bytes, descriptor, 0, bytes);
}

#define DIRECTORY_FLAGS (O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC)

WRAP(DIR *, opendir, (const char *path), (path),
     tell_open(start, result ? dirfd(result) : -1, AT_FDCWD, path, DIRECTORY_FLAGS, 0))

#define WRAP_NEXT(name, entry_type)                                                                \
  SEEN struct entry_type *name(DIR *directory) {                                                   \
    u64 start = begins();                                                                          \
    struct entry_type *result = REAL(name)(directory);                                             \
    if (!start) return result;                                                                     \
    struct open_file *file = file_of(dirfd(directory));                                            \
    if (file && result)                                                                            \
      file->listed += result->d_reclen;                                                            \
    else                                                                                           \
      tell_listed(start, dirfd(directory));                                                        \
    return result;                                                                                 \
  }
WRAP_NEXT(readdir, dirent)
WRAP_NEXT(readdir64, dirent64)

SEEN int closedir(DIR *directory) {
  u64 start = begins();
  struct event event;
  if (start) {
    tell_listed(start, dirfd(directory));
    before_close(&event, dirfd(directory));
  }
  int result = REAL(closedir)(directory);
  if (start) tell_close(&event, start, outcome(result));
  return result;
}
