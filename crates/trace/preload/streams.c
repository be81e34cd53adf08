// Streams. What the program reads and writes there is one thing, and what the C library reads and writes for it another: told is the
// latter, as the kernel sees it, though the calls cannot be seen.
//
// Of a stream that is read, the file's position says how much has come since the last look; and that another look is due, the stream's
// buffer, which has changed. Of one that is written, the bytes say it that were given to it and are not in its buffer any more: the
// position would not do, for several processes often write on at the same one. What several threads do to a stream at the same time may
// be told in wrong portions.

#include <stdarg.h>
#include <stdlib.h>

#include "preload.h"

// Where the headers have something shorter.
#undef fread_unlocked
#undef fwrite_unlocked
#undef fgetc_unlocked
#undef getc
#undef getc_unlocked
#undef getchar
#undef getchar_unlocked
#undef putc
#undef putc_unlocked
#undef fputc_unlocked
#undef putchar
#undef putchar_unlocked

static int descriptor_of(FILE *stream) { return stream->_fileno; }

static u64 pending(FILE *stream) { return stream->_IO_write_ptr - stream->_IO_write_base; }

static int is_writing(FILE *stream) { return (stream->_flags & 0x800) != 0; }

struct buffer {
  char *next, *end;
};

static struct buffer buffer_of(FILE *stream) { return (struct buffer){stream->_IO_read_ptr, stream->_IO_read_end}; }

// A file that is seen for the first time is looked at before it is read, so that its position is known.
static u64 begins_reading(FILE *stream) {
  u64 start = begins();
  if (start) file_of(descriptor_of(stream));
  return start;
}

// What has come into the buffer since the file's position was last known.
static void account_read(u64 start, FILE *stream) {
  int descriptor = descriptor_of(stream);
  struct event event;
  prepare(&event, OPERATION_READ, start, 0);
  struct open_file *file = file_of(descriptor);
  if (!file || !S_ISREG(file->mode)) return;
  u64 before = file->position;
  file->position = position_of(descriptor);
  if (file->position <= before) return;
  event.result = file->position - before;
  u64 room = stream->_IO_buf_end - stream->_IO_buf_base;
  event.asked = (u64)event.result > room ? (u64)event.result : room;
  if (file->position > file->size) file->size = file->position;
  describe(&event, descriptor, file);
  event.about.offset = before;
  put(&event, 0, 0);
}

static void has_read(u64 start, FILE *stream, struct buffer before) {
  struct buffer now = buffer_of(stream);
  if (start && (now.end != before.end || now.next < before.next)) account_read(start, stream);
}

enum when { HAS_BEEN, WILL_BE };

static void tell_written(u64 start, FILE *stream, u64 bytes, enum when when) {
  int descriptor = descriptor_of(stream);
  struct event event;
  prepare(&event, OPERATION_WRITE, start, bytes);
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  u64 position = position_of(descriptor);
  // What has been read ahead of the place where the program is, the C library takes back before it writes there.
  u64 offset = when == HAS_BEEN ? position - bytes : position - (stream->_IO_read_end - stream->_IO_write_base);
  file->position = offset + bytes;
  if (file->position > file->size) file->size = file->position;
  describe(&event, descriptor, file);
  event.about.offset = offset;
  event.asked = bytes;
  put(&event, 0, 0);
}

// Of so many bytes that were given, and those that were in the buffer before, some are not there any more.
static void has_written(u64 start, FILE *stream, u64 before, u64 given) {
  u64 after = pending(stream);
  if (before + given > after) tell_written(start, stream, before + given - after, HAS_BEEN);
  struct open_file *file = after ? file_of(descriptor_of(stream)) : 0;
  if (file && file->stream != stream) file->stream = stream;
}

// What a stream does last.
static void account_all(u64 start, FILE *stream) {
  if (!is_writing(stream)) account_read(start, stream);
}

static void end_stream(int descriptor, FILE *stream) {
  u64 left = descriptor_of(stream) == descriptor ? pending(stream) : 0;
  if (left) tell_written(now_ns(), stream, left, WILL_BE);
}

void end_streams(void) { each_written_stream(end_stream); }

// Opening and closing.

static int flags_of(const char *mode) {
  int flags = mode[0] == 'r' ? 0 : mode[0] == 'w' ? O_CREAT | O_TRUNC : O_CREAT | O_APPEND;
  int direction = mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  for (const char *letter = mode + 1; *letter && *letter != ','; letter++) {
    if (*letter == '+') direction = O_RDWR;
    if (*letter == 'x') flags |= O_EXCL;
    if (*letter == 'e') flags |= O_CLOEXEC;
  }
  return flags | direction;
}

#define WRAP_OPEN(name)                                                                                    \
  SEEN FILE *name(const char *path, const char *mode) {                                                    \
    int flags = 0, is_new = 0;                                                                             \
    if (begins()) {                                                                                        \
      flags = flags_of(mode);                                                                              \
      is_new = flags & O_CREAT && is_missing(AT_FDCWD, path);                                              \
    }                                                                                                      \
    u64 start = begins();                                                                                  \
    FILE *result = REAL(name)(path, mode);                                                                 \
    if (start) tell_open(start, result ? descriptor_of(result) : -1, AT_FDCWD, path, flags, is_new);       \
    return result;                                                                                         \
  }
WRAP_OPEN(fopen)
WRAP_OPEN(fopen64)

#define WRAP_TEMPORARY(name)                                                                                        \
  SEEN FILE *name(void) {                                                                                           \
    u64 start = begins();                                                                                           \
    FILE *result = REAL(name)();                                                                                    \
    if (start) tell_open(start, result ? descriptor_of(result) : -1, AT_FDCWD, "", O_RDWR | O_CREAT | O_EXCL, 1);   \
    return result;                                                                                                  \
  }
WRAP_TEMPORARY(tmpfile)
WRAP_TEMPORARY(tmpfile64)

// Before a stream loses its file. Returns how much is then still written.
static u64 before_end(u64 start, FILE *stream, struct event *event) {
  int descriptor = descriptor_of(stream);
  u64 left = pending(stream);
  account_all(start, stream);
  if (left) tell_written(start, stream, left, WILL_BE);
  before_close(event, descriptor);
  // What is in the buffer is part of the file when it is closed.
  event->about.offset += left;
  if (event->about.size < event->about.offset) event->about.size = event->about.offset;
  return left;
}

SEEN int fclose(FILE *stream) {
  u64 start = begins();
  struct event event;
  if (start) before_end(start, stream, &event);
  int result = REAL(fclose)(stream);
  if (start) tell_close(&event, start, outcome(result));
  return result;
}

// It closes a pipe, and with it a descriptor that is another thing the next time.
SEEN int pclose(FILE *stream) {
  if (begins()) forget(descriptor_of(stream));
  return REAL(pclose)(stream);
}

#define WRAP_REOPEN(name)                                                                                        \
  SEEN FILE *name(const char *path, const char *mode, FILE *stream) {                                            \
    int flags = 0, is_new = 0;                                                                                   \
    u64 start = begins();                                                                                        \
    struct event event;                                                                                          \
    if (start) {                                                                                                 \
      flags = flags_of(mode);                                                                                    \
      is_new = path && flags & O_CREAT && is_missing(AT_FDCWD, path);                                            \
      before_end(start, stream, &event);                                                                         \
    }                                                                                                            \
    FILE *result = REAL(name)(path, mode, stream);                                                               \
    if (!start) return result;                                                                                   \
    int kept = errno;                                                                                            \
    tell_close(&event, start, 0);                                                                                \
    errno = kept;                                                                                                \
    tell_open(start, result ? descriptor_of(result) : -1, AT_FDCWD, path ? path : "", flags, is_new);            \
    return result;                                                                                               \
  }
WRAP_REOPEN(freopen)
WRAP_REOPEN(freopen64)

// Reading. All that is not here, such as `fscanf`, is told with the next that is.

#define WRAP_READ(type, name, parameters, arguments, stream) \
  SEEN type name parameters {                                \
    u64 start = begins_reading(stream);                      \
    struct buffer before = buffer_of(stream);                \
    type result = REAL(name) arguments;                      \
    has_read(start, stream, before);                         \
    return result;                                           \
  }

char *__fgets_chk(char *, size_t, int, FILE *);
char *__fgets_unlocked_chk(char *, size_t, int, FILE *);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
size_t __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);
ssize_t __getdelim(char **, size_t *, int, FILE *);
WRAP_READ(size_t, fread, (void *to, size_t bytes, size_t count, FILE *stream), (to, bytes, count, stream), stream)
WRAP_READ(size_t, fread_unlocked, (void *to, size_t bytes, size_t count, FILE *stream), (to, bytes, count, stream),
          stream)
WRAP_READ(size_t, __fread_chk, (void *to, size_t room, size_t bytes, size_t count, FILE *stream),
          (to, room, bytes, count, stream), stream)
WRAP_READ(size_t, __fread_unlocked_chk, (void *to, size_t room, size_t bytes, size_t count, FILE *stream),
          (to, room, bytes, count, stream), stream)
WRAP_READ(char *, fgets, (char *to, int bytes, FILE *stream), (to, bytes, stream), stream)
WRAP_READ(char *, fgets_unlocked, (char *to, int bytes, FILE *stream), (to, bytes, stream), stream)
WRAP_READ(char *, __fgets_chk, (char *to, size_t room, int bytes, FILE *stream), (to, room, bytes, stream), stream)
WRAP_READ(char *, __fgets_unlocked_chk, (char *to, size_t room, int bytes, FILE *stream), (to, room, bytes, stream),
          stream)
WRAP_READ(ssize_t, getline, (char **to, size_t *room, FILE *stream), (to, room, stream), stream)
WRAP_READ(ssize_t, getdelim, (char **to, size_t *room, int end, FILE *stream), (to, room, end, stream), stream)
WRAP_READ(ssize_t, __getdelim, (char **to, size_t *room, int end, FILE *stream), (to, room, end, stream), stream)

// One character: nothing is to be seen while the buffer has any.
#define WRAP_CHARACTER(name, parameters, arguments, stream)                                  \
  SEEN int name parameters {                                                                 \
    if (stream->_IO_read_ptr < stream->_IO_read_end) return REAL(name) arguments;            \
    u64 start = begins_reading(stream);                                                      \
    struct buffer before = buffer_of(stream);                                                \
    int result = REAL(name) arguments;                                                       \
    /* It may have come to lie where the last one was. */                                    \
    if (result != EOF) before.end = 0;                                                       \
    has_read(start, stream, before);                                                         \
    return result;                                                                           \
  }

int _IO_getc(FILE *);
int __uflow(FILE *);
WRAP_CHARACTER(fgetc, (FILE *stream), (stream), stream)
WRAP_CHARACTER(getc, (FILE *stream), (stream), stream)
WRAP_CHARACTER(_IO_getc, (FILE *stream), (stream), stream)
WRAP_CHARACTER(fgetc_unlocked, (FILE *stream), (stream), stream)
WRAP_CHARACTER(getc_unlocked, (FILE *stream), (stream), stream)
WRAP_CHARACTER(getchar, (void), (), stdin)
WRAP_CHARACTER(getchar_unlocked, (void), (), stdin)
// What becomes of the others where a compiler puts them into the program itself.
WRAP_CHARACTER(__uflow, (FILE *stream), (stream), stream)

// Writing.

#define WRAP_WRITE(type, name, parameters, arguments, stream, given) \
  SEEN type name parameters {                                        \
    u64 start = begins();                                            \
    u64 before = start ? pending(stream) : 0;                        \
    type result = REAL(name) arguments;                              \
    if (start) has_written(start, stream, before, given);            \
    return result;                                                   \
  }

WRAP_WRITE(size_t, fwrite, (const void *from, size_t bytes, size_t count, FILE *stream), (from, bytes, count, stream),
           stream, result * bytes)
WRAP_WRITE(size_t, fwrite_unlocked, (const void *from, size_t bytes, size_t count, FILE *stream),
           (from, bytes, count, stream), stream, result * bytes)
WRAP_WRITE(int, fputs, (const char *text, FILE *stream), (text, stream), stream, result < 0 ? 0 : strlen(text))
WRAP_WRITE(int, fputs_unlocked, (const char *text, FILE *stream), (text, stream), stream, result < 0 ? 0 : strlen(text))
WRAP_WRITE(int, puts, (const char *text), (text), stdout, result < 0 ? 0 : strlen(text) + 1)

#define WRAP_PUT(name, parameters, arguments, stream)                                                   \
  SEEN int name parameters {                                                                            \
    u64 start = stream->_IO_write_ptr < stream->_IO_write_end && pending(stream) ? 0 : begins();        \
    u64 before = start ? pending(stream) : 0;                                                           \
    int result = REAL(name) arguments;                                                                  \
    if (start) has_written(start, stream, before, result != EOF);                                       \
    return result;                                                                                      \
  }
int _IO_putc(int, FILE *);
int __overflow(FILE *, int);
WRAP_PUT(fputc, (int character, FILE *stream), (character, stream), stream)
WRAP_PUT(putc, (int character, FILE *stream), (character, stream), stream)
WRAP_PUT(_IO_putc, (int character, FILE *stream), (character, stream), stream)
WRAP_PUT(fputc_unlocked, (int character, FILE *stream), (character, stream), stream)
WRAP_PUT(putc_unlocked, (int character, FILE *stream), (character, stream), stream)
WRAP_PUT(putchar, (int character), (character), stdout)
WRAP_PUT(putchar_unlocked, (int character), (character), stdout)
WRAP_PUT(__overflow, (FILE *stream, int character), (stream, character), stream)

int __vfprintf_chk(FILE *, int, const char *, va_list);
int __vprintf_chk(int, const char *, va_list);
int __fprintf_chk(FILE *, int, const char *, ...);
int __printf_chk(int, const char *, ...);
#define GIVEN (result < 0 ? 0 : result)
WRAP_WRITE(int, vfprintf, (FILE *stream, const char *format, va_list list), (stream, format, list), stream, GIVEN)
WRAP_WRITE(int, vprintf, (const char *format, va_list list), (format, list), stdout, GIVEN)
WRAP_WRITE(int, __vfprintf_chk, (FILE *stream, int flag, const char *format, va_list list),
           (stream, flag, format, list), stream, GIVEN)
WRAP_WRITE(int, __vprintf_chk, (int flag, const char *format, va_list list), (flag, format, list), stdout, GIVEN)

#define WRAP_FORMAT(name, parameters, call) \
  SEEN int name parameters {                \
    va_list list;                           \
    va_start(list, format);                 \
    int result = call;                      \
    va_end(list);                           \
    return result;                          \
  }
WRAP_FORMAT(fprintf, (FILE *stream, const char *format, ...), vfprintf(stream, format, list))
WRAP_FORMAT(printf, (const char *format, ...), vfprintf(stdout, format, list))
WRAP_FORMAT(__fprintf_chk, (FILE *stream, int flag, const char *format, ...), __vfprintf_chk(stream, flag, format, list))
WRAP_FORMAT(__printf_chk, (int flag, const char *format, ...), __vfprintf_chk(stdout, flag, format, list))

// The stream's position is another now, and nothing was read.
static void after_seek(FILE *stream) {
  struct open_file *file = file_of(descriptor_of(stream));
  if (file) file->position = position_of(descriptor_of(stream));
}

#define WRAP_FLUSH(name)                                                     \
  SEEN int name(FILE *stream) {                                              \
    u64 start = begins();                                                    \
    if (!start) return REAL(name)(stream);                                   \
    if (!stream) {                                                           \
      end_streams();                                                         \
      return REAL(name)(stream);                                             \
    }                                                                        \
    u64 before = pending(stream);                                            \
    account_all(start, stream);                                              \
    int result = REAL(name)(stream);                                         \
    if (before)                                                              \
      has_written(start, stream, before, 0);                                 \
    else                                                                     \
      after_seek(stream);                                                    \
    return result;                                                           \
  }

WRAP_FLUSH(fflush)
WRAP_FLUSH(fflush_unlocked)

// Before a stream goes elsewhere. Returns whether it was written to: then nothing in its buffer is of any use there.
static int before_seek(u64 start, FILE *stream) {
  int was_writing = is_writing(stream);
  u64 left = pending(stream);
  account_all(start, stream);
  if (left) tell_written(start, stream, left, WILL_BE);
  return was_writing;
}

static void has_sought(u64 start, FILE *stream, int was_writing, int result) {
  int descriptor = descriptor_of(stream);
  struct event event;
  prepare(&event, OPERATION_SEEK, start, outcome(result));
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  u64 last = file->position;
  file->position = position_of(descriptor);
  // Within the buffer the file's position does not change, and no call was made.
  if (last == file->position && !was_writing) return;
  // Behind it, the C library goes to the start of a block, and reads that.
  u64 block = result == 0 && !is_writing(stream) ? stream->_IO_read_end - stream->_IO_read_base : 0;
  if (block > file->position) block = 0;
  u64 place = file->position - block;
  if (result == 0) event.result = place;
  describe(&event, descriptor, file);
  event.argument = event.about.offset = place;
  put(&event, 0, 0);
  if (!block) return;
  event.operation = OPERATION_READ;
  event.result = block;
  event.argument = 0;
  event.asked = stream->_IO_buf_end - stream->_IO_buf_base;
  put(&event, 0, 0);
}

#define WRAP_SEEK(type, name, parameters, arguments)              \
  SEEN type name parameters {                                     \
    u64 start = begins();                                         \
    if (!start) return REAL(name) arguments;                      \
    int was_writing = before_seek(start, stream);                 \
    type result = REAL(name) arguments;                           \
    has_sought(start, stream, was_writing, result);               \
    return result;                                                \
  }

WRAP_SEEK(int, fseek, (FILE *stream, long offset, int whence), (stream, offset, whence))
WRAP_SEEK(int, fseeko, (FILE *stream, off_t offset, int whence), (stream, offset, whence))
WRAP_SEEK(int, fseeko64, (FILE *stream, off64_t offset, int whence), (stream, offset, whence))
WRAP_SEEK(int, fsetpos, (FILE *stream, const fpos_t *place), (stream, place))
WRAP_SEEK(int, fsetpos64, (FILE *stream, const fpos64_t *place), (stream, place))

SEEN void rewind(FILE *stream) {
  u64 start = begins();
  int was_writing = start ? before_seek(start, stream) : 0;
  REAL(rewind)(stream);
  if (start) has_sought(start, stream, was_writing, 0);
}
