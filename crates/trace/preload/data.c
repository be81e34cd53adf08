// Calls that move bytes, and others on descriptors.

#include <stdarg.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <dirent.h>

#include "preload.h"

#define NO_OFFSET (-1)

INLINE void sees_size(struct open_file *file, u8 operation, u64 offset, s64 result, u64 asked) {
  if (!S_ISREG(file->mode) || result < 0) return;
  u64 end = offset + result;
  if (operation == OPERATION_WRITE ? end > file->size : (u64)result < asked && (result || end < file->size))
    file->size = end;
}

static void tell_data(u8 operation, u64 start, int descriptor, s64 result, u64 asked, s64 offset, u8 flags) {
  struct event event;
  prepare(&event, operation, start, outcome(result));
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  event.asked = asked;
  event.flags = flags;
  if (offset == NO_OFFSET) {
    file->position = position_of(descriptor);
    offset = result > 0 ? file->position - result : file->position;
  } else {
    event.flags |= FLAG_POSITIONAL;
  }
  sees_size(file, operation, offset, result, asked);
  describe(&event, descriptor, file);
  event.about.offset = offset;
  put(&event, 0, 0);
}

// A function that stands in front of the next one, and tells when that has returned. The result is the caller's, as is the error: telling
// asks the kernel, and nobody else.
#define WRAP(type, name, parameters, arguments, tell) \
  SEEN type name parameters {                         \
    u64 start = begins();                             \
    type result = REAL(name) arguments;               \
    if (start) tell;                                  \
    return result;                                    \
  }

WRAP(ssize_t, read, (int descriptor, void *buffer, size_t bytes), (descriptor, buffer, bytes),
     tell_data(OPERATION_READ, start, descriptor, result, bytes, NO_OFFSET, 0))
WRAP(ssize_t, write, (int descriptor, const void *buffer, size_t bytes), (descriptor, buffer, bytes),
     tell_data(OPERATION_WRITE, start, descriptor, result, bytes, NO_OFFSET, 0))
WRAP(ssize_t, pread, (int descriptor, void *buffer, size_t bytes, off_t offset), (descriptor, buffer, bytes, offset),
     tell_data(OPERATION_READ, start, descriptor, result, bytes, offset, 0))
WRAP(ssize_t, pread64, (int descriptor, void *buffer, size_t bytes, off64_t offset), (descriptor, buffer, bytes, offset),
     tell_data(OPERATION_READ, start, descriptor, result, bytes, offset, 0))
WRAP(ssize_t, pwrite, (int descriptor, const void *buffer, size_t bytes, off_t offset), (descriptor, buffer, bytes, offset),
     tell_data(OPERATION_WRITE, start, descriptor, result, bytes, offset, 0))
WRAP(ssize_t, pwrite64, (int descriptor, const void *buffer, size_t bytes, off64_t offset),
     (descriptor, buffer, bytes, offset), tell_data(OPERATION_WRITE, start, descriptor, result, bytes, offset, 0))

// As the C library's headers call them where the size of a buffer is known.
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);

WRAP(ssize_t, __read_chk, (int descriptor, void *buffer, size_t bytes, size_t room), (descriptor, buffer, bytes, room),
     tell_data(OPERATION_READ, start, descriptor, result, bytes, NO_OFFSET, 0))
WRAP(ssize_t, __pread_chk, (int descriptor, void *buffer, size_t bytes, off_t offset, size_t room),
     (descriptor, buffer, bytes, offset, room), tell_data(OPERATION_READ, start, descriptor, result, bytes, offset, 0))
WRAP(ssize_t, __pread64_chk, (int descriptor, void *buffer, size_t bytes, off64_t offset, size_t room),
     (descriptor, buffer, bytes, offset, room), tell_data(OPERATION_READ, start, descriptor, result, bytes, offset, 0))

static void tell_vector(u8 operation, u64 start, int descriptor, s64 result, const struct iovec *parts, int count,
                        s64 offset) {
  u64 asked = 0;
  // Who gave a wrong vector has got an error, and no look is taken at it.
  for (int each = 0; each < count && result >= 0; each++) asked += parts[each].iov_len;
  tell_data(operation, start, descriptor, result, asked, offset, FLAG_VECTOR);
}

WRAP(ssize_t, readv, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count),
     tell_vector(OPERATION_READ, start, descriptor, result, parts, count, NO_OFFSET))
WRAP(ssize_t, writev, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count),
     tell_vector(OPERATION_WRITE, start, descriptor, result, parts, count, NO_OFFSET))

#define WRAP_VECTORS(operation, name, offset_type)                                                  \
  WRAP(ssize_t, name, (int descriptor, const struct iovec *parts, int count, offset_type offset),   \
       (descriptor, parts, count, offset),                                                          \
       tell_vector(OPERATION_##operation, start, descriptor, result, parts, count, offset))
#define WRAP_VECTORS_FLAGS(operation, name, offset_type)                                                      \
  WRAP(ssize_t, name, (int descriptor, const struct iovec *parts, int count, offset_type offset, int flags),  \
       (descriptor, parts, count, offset, flags),                                                             \
       tell_vector(OPERATION_##operation, start, descriptor, result, parts, count, offset))

WRAP_VECTORS(READ, preadv, off_t)
WRAP_VECTORS(READ, preadv64, off64_t)
WRAP_VECTORS(WRITE, pwritev, off_t)
WRAP_VECTORS(WRITE, pwritev64, off64_t)
WRAP_VECTORS_FLAGS(READ, preadv2, off_t)
WRAP_VECTORS_FLAGS(READ, preadv64v2, off64_t)
WRAP_VECTORS_FLAGS(WRITE, pwritev2, off_t)
WRAP_VECTORS_FLAGS(WRITE, pwritev64v2, off64_t)

// One record for the file that is read, and one for that which is written.
static void tell_transfer(u64 start, s64 result, int input, s64 input_offset, int output, s64 output_offset, u64 asked) {
  struct event event;
  prepare(&event, OPERATION_TRANSFER, start, outcome(result));
  event.asked = asked;
  u64 moved = result > 0 ? result : 0;
  for (u32 side = 0; side < 2; side++) {
    int descriptor = side ? output : input;
    s64 offset = side ? output_offset : input_offset;
    struct open_file *file = file_of(descriptor);
    if (!file) continue;
    event.flags = side ? FLAG_SECOND : 0;
    if (offset == NO_OFFSET)
      offset = (file->position = position_of(descriptor)) - moved;
    else
      event.flags |= FLAG_POSITIONAL;
    sees_size(file, side ? OPERATION_WRITE : OPERATION_READ, offset, result, result);
    describe(&event, descriptor, file);
    event.about.offset = offset;
    put(&event, 0, 0);
  }
}

// The kernel moves an offset that it was given on: it is read before.
#define WRAP_SEND(name, offset_type)                                                                           \
  SEEN ssize_t name(int output, int input, offset_type *offset, size_t bytes) {                                \
    u64 start = begins();                                                                                      \
    s64 from = start && offset ? *offset : NO_OFFSET;                                                          \
    ssize_t result = REAL(name)(output, input, offset, bytes);                                                 \
    if (start) tell_transfer(start, result, input, from, output, NO_OFFSET, bytes);                            \
    return result;                                                                                             \
  }
WRAP_SEND(sendfile, off_t)
WRAP_SEND(sendfile64, off64_t)

#define WRAP_SPLICE(name, flags_type)                                                                               \
  SEEN ssize_t name(int input, off64_t *input_offset, int output, off64_t *output_offset, size_t bytes,             \
                    flags_type flags) {                                                                             \
    u64 start = begins();                                                                                           \
    s64 from = start && input_offset ? *input_offset : NO_OFFSET;                                                   \
    s64 to = start && output_offset ? *output_offset : NO_OFFSET;                                                   \
    ssize_t result = REAL(name)(input, input_offset, output, output_offset, bytes, flags);                          \
    if (start) tell_transfer(start, result, input, from, output, to, bytes);                                        \
    return result;                                                                                                  \
  }
WRAP_SPLICE(copy_file_range, unsigned)
WRAP_SPLICE(splice, unsigned)

static void tell_seek(u64 start, int descriptor, s64 result, int whence, u64 offset) {
  struct event event;
  prepare(&event, OPERATION_SEEK, start, outcome(result));
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  if (result >= 0) file->position = result;
  describe(&event, descriptor, file);
  event.asked = whence;
  event.argument = offset;
  event.about.offset = file->position;
  put(&event, 0, 0);
}

WRAP(off_t, lseek, (int descriptor, off_t offset, int whence), (descriptor, offset, whence),
     tell_seek(start, descriptor, result, whence, offset))
WRAP(off64_t, lseek64, (int descriptor, off64_t offset, int whence), (descriptor, offset, whence),
     tell_seek(start, descriptor, result, whence, offset))

static void tell_map(u64 start, const void *result, u64 bytes, u64 protection, u64 flags, int descriptor, u64 offset) {
  struct event event;
  prepare(&event, OPERATION_MAP, start, result == MAP_FAILED ? -errno : (s64)result);
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  describe(&event, descriptor, file);
  event.asked = bytes;
  event.argument = protection | flags << 32;
  event.about.offset = offset;
  put(&event, 0, 0);
}

#define WRAP_MAP(name, offset_type)                                                                                  \
  SEEN void *name(void *address, size_t bytes, int protection, int flags, int descriptor, offset_type offset) {      \
    u64 start = descriptor < 0 || flags & MAP_ANONYMOUS ? 0 : begins();                                              \
    void *result = REAL(name)(address, bytes, protection, flags, descriptor, offset);                                \
    if (start) tell_map(start, result, bytes, protection, flags, descriptor, offset);                                \
    return result;                                                                                                   \
  }
WRAP_MAP(mmap, off_t)
WRAP_MAP(mmap64, off64_t)

SEEN int close(int descriptor) {
  u64 start = begins();
  struct event event;
  if (start) before_close(&event, descriptor);
  int result = REAL(close)(descriptor);
  if (start) tell_close(&event, start, outcome(result));
  return result;
}

static void tell_close_range(u64 start, unsigned first, unsigned last, int flags, int result) {
  struct event event;
  prepare(&event, OPERATION_CLOSE, start, outcome(result));
  event.descriptor = first;
  event.argument = last;
  event.asked = flags;
  put(&event, 0, 0);
}

static void forget_all(unsigned first, unsigned last);

SEEN int close_range(unsigned first, unsigned last, int flags) {
  u64 start = begins();
  if (start && !(flags & 4)) forget_all(first, last);  // 4: they are only to be closed when another program runs
  int result = REAL(close_range)(first, last, flags);
  if (start) tell_close_range(start, first, last, flags, result);
  return result;
}

SEEN void closefrom(int first) {
  u64 start = begins();
  if (start) forget_all(first, ~0u);
  REAL(closefrom)(first);
  if (start) tell_close_range(start, first, ~0u, 0, 0);
}

static void forget_all(unsigned first, unsigned last) {
  unsigned highest = highest_descriptor();
  for (unsigned each = first; each <= last && each <= highest; each++) forget(each);
}

static void tell_duplicate(u64 start, int from, int to, int result, u64 wanted, u64 flags) {
  struct event event;
  prepare(&event, OPERATION_DUPLICATE, start, outcome(result));
  struct open_file *file = file_of(from);
  if (result >= 0) copy_descriptor(from, to);
  if (!file) return;
  describe(&event, from, file);
  event.argument = wanted;
  event.asked = flags;
  event.about.offset = file->position;
  put(&event, 0, 0);
}

WRAP(int, dup, (int descriptor), (descriptor), tell_duplicate(start, descriptor, result, result, 0, 0))
WRAP(int, dup2, (int descriptor, int wanted), (descriptor, wanted),
     tell_duplicate(start, descriptor, wanted, result, wanted, 0))
WRAP(int, dup3, (int descriptor, int wanted, int flags), (descriptor, wanted, flags),
     tell_duplicate(start, descriptor, wanted, result, wanted, flags))

static void tell_control(u64 start, int descriptor, int command, u64 argument, int result) {
  switch (command) {
  case F_DUPFD:
  case F_DUPFD_CLOEXEC:
    tell_duplicate(start, descriptor, result, result, argument, command == F_DUPFD_CLOEXEC ? O_CLOEXEC : 0);
    break;
  case F_GETLK:
  case F_SETLK:
  case F_SETLKW:
  case F_OFD_GETLK:
  case F_OFD_SETLK:
  case F_OFD_SETLKW: tell_descriptor(OPERATION_LOCK, start, outcome(result), descriptor, command, argument); break;
  default: tell_descriptor(OPERATION_CONTROL, start, outcome(result), descriptor, command, argument);
  }
}

// What follows is a number, an address, or nothing; whatever it is, it is handed on.
#define WRAP_CONTROL(name, command_type, tell)                         \
  SEEN int name(int descriptor, command_type command, ...) {           \
    va_list list;                                                      \
    va_start(list, command);                                           \
    void *argument = va_arg(list, void *);                             \
    va_end(list);                                                      \
    u64 start = begins();                                              \
    int result = REAL(name)(descriptor, command, argument);            \
    if (start) tell;                                                   \
    return result;                                                     \
  }
WRAP_CONTROL(fcntl, int, tell_control(start, descriptor, command, (u64)argument, result))
WRAP_CONTROL(fcntl64, int, tell_control(start, descriptor, command, (u64)argument, result))
WRAP_CONTROL(ioctl, unsigned long,
             tell_descriptor(OPERATION_CONTROL, start, outcome(result), descriptor, command, (u64)argument))

#define TELL(operation, argument, asked) \
  tell_descriptor(OPERATION_##operation, start, outcome(result), descriptor, argument, asked)

WRAP(int, flock, (int descriptor, int command), (descriptor, command), TELL(LOCK, command, 0))
WRAP(int, lockf, (int descriptor, int command, off_t bytes), (descriptor, command, bytes), TELL(LOCK, command, bytes))
WRAP(int, lockf64, (int descriptor, int command, off64_t bytes), (descriptor, command, bytes),
     TELL(LOCK, command, bytes))
WRAP(int, fsync, (int descriptor), (descriptor), TELL(SYNC, 0, 0))
WRAP(int, fdatasync, (int descriptor), (descriptor), TELL(SYNC, 0, 0))
WRAP(int, syncfs, (int descriptor), (descriptor), TELL(SYNC, 0, 0))
WRAP(int, fchmod, (int descriptor, mode_t mode), (descriptor, mode), TELL(SET_ATTRIBUTES, mode, 0))
WRAP(int, fchown, (int descriptor, uid_t user, gid_t group), (descriptor, user, group),
     TELL(SET_ATTRIBUTES, user, group))
WRAP(int, futimens, (int descriptor, const struct timespec times[2]), (descriptor, times), TELL(SET_ATTRIBUTES, 0, 0))
WRAP(int, fstatfs, (int descriptor, struct statfs *status), (descriptor, status), TELL(FILE_SYSTEM, 0, 0))
WRAP(int, fstatfs64, (int descriptor, struct statfs64 *status), (descriptor, status), TELL(FILE_SYSTEM, 0, 0))
WRAP(ssize_t, fgetxattr, (int descriptor, const char *name, void *value, size_t bytes), (descriptor, name, value, bytes),
     TELL(EXTENDED, 0, bytes))
WRAP(int, fsetxattr, (int descriptor, const char *name, const void *value, size_t bytes, int flags),
     (descriptor, name, value, bytes, flags), TELL(EXTENDED, 0, bytes))
WRAP(ssize_t, flistxattr, (int descriptor, char *list, size_t bytes), (descriptor, list, bytes),
     TELL(EXTENDED, 0, bytes))
WRAP(int, fremovexattr, (int descriptor, const char *name), (descriptor, name), TELL(EXTENDED, 0, 0))

// With a place in the file.
static void tell_range(u8 operation, u64 start, s64 result, int descriptor, u64 argument, u64 offset, u64 asked) {
  struct event event;
  prepare(&event, operation, start, result);
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  if (operation == OPERATION_ALLOCATE && result == 0 && !(argument & 1) && offset + asked > file->size)
    file->size = offset + asked;
  describe(&event, descriptor, file);
  event.argument = argument;
  event.asked = asked;
  event.about.offset = offset;
  put(&event, 0, 0);
}

static void tell_length(u64 start, int descriptor, int result, u64 bytes) {
  struct event event;
  prepare(&event, OPERATION_TRUNCATE, start, outcome(result));
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  if (result == 0) file->size = bytes;
  describe(&event, descriptor, file);
  event.asked = bytes;
  event.about.offset = file->position;
  put(&event, 0, 0);
}

WRAP(int, ftruncate, (int descriptor, off_t bytes), (descriptor, bytes), tell_length(start, descriptor, result, bytes))
WRAP(int, ftruncate64, (int descriptor, off64_t bytes), (descriptor, bytes),
     tell_length(start, descriptor, result, bytes))
WRAP(int, fallocate, (int descriptor, int mode, off_t offset, off_t bytes), (descriptor, mode, offset, bytes),
     tell_range(OPERATION_ALLOCATE, start, outcome(result), descriptor, mode, offset, bytes))
WRAP(int, fallocate64, (int descriptor, int mode, off64_t offset, off64_t bytes), (descriptor, mode, offset, bytes),
     tell_range(OPERATION_ALLOCATE, start, outcome(result), descriptor, mode, offset, bytes))
WRAP(int, sync_file_range, (int descriptor, off64_t offset, off64_t bytes, unsigned flags),
     (descriptor, offset, bytes, flags),
     tell_range(OPERATION_SYNC, start, outcome(result), descriptor, flags, offset, bytes))
WRAP(ssize_t, readahead, (int descriptor, off64_t offset, size_t bytes), (descriptor, offset, bytes),
     tell_range(OPERATION_ADVISE, start, outcome(result), descriptor, 0, offset, bytes))
// These return their error instead of leaving it.
WRAP(int, posix_fallocate, (int descriptor, off_t offset, off_t bytes), (descriptor, offset, bytes),
     tell_range(OPERATION_ALLOCATE, start, -result, descriptor, 0, offset, bytes))
WRAP(int, posix_fallocate64, (int descriptor, off64_t offset, off64_t bytes), (descriptor, offset, bytes),
     tell_range(OPERATION_ALLOCATE, start, -result, descriptor, 0, offset, bytes))
WRAP(int, posix_fadvise, (int descriptor, off_t offset, off_t bytes, int advice), (descriptor, offset, bytes, advice),
     tell_range(OPERATION_ADVISE, start, -result, descriptor, advice, offset, bytes))
WRAP(int, posix_fadvise64, (int descriptor, off64_t offset, off64_t bytes, int advice),
     (descriptor, offset, bytes, advice),
     tell_range(OPERATION_ADVISE, start, -result, descriptor, advice, offset, bytes))

WRAP(int, fchdir, (int descriptor), (descriptor), {
  if (result == 0) working_directory_changes();
  TELL(CHANGE_DIRECTORY, 0, 0);
})

SEEN void sync(void) {
  u64 start = begins();
  REAL(sync)();
  if (!start) return;
  struct event event;
  prepare(&event, OPERATION_SYNC, start, 0);
  put(&event, 0, 0);
}

WRAP(ssize_t, getdents64, (int descriptor, void *buffer, size_t bytes), (descriptor, buffer, bytes),
     TELL(LIST, 0, bytes))
