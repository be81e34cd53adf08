// What is known of descriptors and directories, and how a call on one becomes an event.

#include <sys/mman.h>

#include "preload.h"

// Descriptors beyond are looked at anew in each call, and their files have no handle.
#define MOST_DESCRIPTORS 65536

// Two threads that use and close the same descriptor at the same time find in it what either left: the record is then as confused as they.
static struct open_file table[MOST_DESCRIPTORS];
static u32 highest;
static u64 handles;
static struct folder working;

struct open_file *slot_of(int descriptor) {
  struct borrower *borrower = self.borrower;
  if (borrower)
    for (u32 each = 0; each < borrower->changes; each++)
      if (borrower->descriptors[each] == descriptor) return borrower->files + each;
  if (descriptor >= MOST_DESCRIPTORS) {
    self.spare.kind = KIND_UNKNOWN;
    return &self.spare;
  }
  if (!borrower) {
    if ((u32)descriptor > __atomic_load_n(&highest, __ATOMIC_RELAXED))
      __atomic_store_n(&highest, descriptor, __ATOMIC_RELAXED);
    return table + descriptor;
  }
  if (borrower->changes == MOST_BORROWED) {
    self.spare = table[descriptor];
    self.spare.kind = KIND_UNKNOWN;
    return &self.spare;
  }
  u32 next = borrower->changes++;
  borrower->descriptors[next] = descriptor;
  borrower->files[next] = table[descriptor];
  borrower->files[next].stream = 0;
  return borrower->files + next;
}

// Never the same twice, in whichever process: its number, and microseconds since the machine started, of which no two opens have the same.
u64 new_handle(void) {
  u64 expected = 0;
  __atomic_compare_exchange_n(&handles, &expected, now_ns() / 1000, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  u64 count = __atomic_fetch_add(&handles, 1, __ATOMIC_RELAXED);
  return (u64)self.process << 42 | (count & ((1ull << 42) - 1));
}

u64 position_of(int descriptor) {
  long position = ask(SYS_lseek, descriptor, 0, SEEK_CUR, 0, 0);
  return position < 0 ? 0 : position;
}

INLINE int is_file(u32 mode) { return S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode) || S_ISLNK(mode); }

static int look(int directory, const char *path, int flags, struct statx *status) {
  return ask(SYS_statx, directory, (long)path, flags, STATX_BASIC_STATS | STATX_BTIME, (long)status) == 0;
}

// A number that was a file's before is told from it by when the file was made.
static struct identity identified(const struct statx *status) {
  struct identity identity = {status->stx_ino, status->stx_dev_major << 20 | status->stx_dev_minor, 0};
  if (status->stx_mask & STATX_BTIME)
    identity.generation = (u32)status->stx_btime.tv_sec * 1000000007u ^ status->stx_btime.tv_nsec;
  return identity;
}

struct identity identity_of(int directory, const char *path, int flags, u32 *mode) {
  struct statx status;
  if (!look(directory, path, flags, &status)) return (struct identity){};
  *mode = status.stx_mode;
  return identified(&status);
}

static u32 number_as_text(u32 number, char *text) {
  char digits[10];
  u32 count = 0, written = 0;
  do digits[count++] = '0' + number % 10;
  while (number /= 10);
  while (count) text[written++] = digits[--count];
  text[written] = 0;
  return written;
}

static void reverse(char *text, u32 bytes) {
  for (u32 first = 0, last = bytes; first + 1 < last; first++) {
    char kept = text[first];
    text[first] = text[--last];
    text[last] = kept;
  }
}

// Tells what a file is called, as the kernel knows it; by the working directory if no link leads to it.
void tell_name(const struct identity *file, u32 mode, int directory, const char *link) {
  if (is_named(file)) return;
  char name[MOST_TEXT_BYTES];
  long bytes = link ? ask(SYS_readlinkat, directory, (long)link, (long)name, sizeof name - 1, 0)
                    : ask(SYS_getcwd, (long)name, sizeof name - 1, 0, 0, 0) - 1;
  if (bytes <= 0 || name[0] != '/') return;
  // Innermost first: all is turned round, and then each part.
  char *parts = name + 1;
  u32 length = bytes - 1, start = 0;
  reverse(parts, length);
  for (u32 at = 0; at <= length && length; at++)
    if (at == length || parts[at] == '/') {
      reverse(parts + start, at - start);
      parts[at] = 0;
      start = at + 1;
    }
  struct event event;
  prepare(&event, NOTE_NAME, 0, 0);
  event.about.file = *file;
  event.about.mode = mode;
  struct path path = {{}, parts, length ? length + 1 : 0};
  if (put(&event, &path, 1)) set_named(file);
}

// What kind it is stands there last: other threads that look meanwhile find that nothing is known, and learn it themselves.
void learn(int descriptor, struct open_file *file, int flags) {
  struct statx status;
  __atomic_store_n(&file->kind, KIND_UNKNOWN, __ATOMIC_RELEASE);
  if (!look(descriptor, "", AT_EMPTY_PATH, &status)) return;  // it is not open
  struct open_file learnt = {.mode = status.stx_mode};
  u32 kind = KIND_NO_FILE;
  if (is_file(status.stx_mode)) {
    kind = KIND_FILE;
    learnt.file = identified(&status);
    learnt.size = status.stx_size;
    char link[32] = "/proc/self/fd/";
    number_as_text(descriptor, link + 14);
    tell_name(&learnt.file, learnt.mode, AT_FDCWD, link);
    learnt.handle = descriptor < MOST_DESCRIPTORS ? new_handle() : 0;
    // What has just been opened is at its start, unless a stream is to write on.
    if (flags == FLAGS_UNKNOWN || flags & O_APPEND) learnt.position = position_of(descriptor);
    if (flags == FLAGS_UNKNOWN) flags = ask(SYS_fcntl, descriptor, F_GETFL, 0, 0, 0);
    learnt.is_written = !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY;
  }
  *file = learnt;
  __atomic_store_n(&file->kind, kind, __ATOMIC_RELEASE);
}

// What is known of a descriptor's file; nothing if it is none.
struct open_file *file_of(int descriptor) {
  if (descriptor < 0) return 0;
  struct open_file *file = slot_of(descriptor);
  if (UNLIKELY(__atomic_load_n(&file->kind, __ATOMIC_ACQUIRE) == KIND_UNKNOWN))
    learn(descriptor, file, FLAGS_UNKNOWN);
  return file->kind == KIND_FILE ? file : 0;
}

void forget(int descriptor) {
  if (descriptor < 0) return;
  memset(slot_of(descriptor), 0, sizeof(struct open_file));
}

void copy_descriptor(int from, int to) {
  if (from < 0 || to < 0 || from == to) return;
  struct open_file copied = *slot_of(from);
  copied.stream = 0;
  copied.listed = 0;
  *slot_of(to) = copied;
}

// Where a path starts from. Its name has been told, or is told now.
static struct identity base_of(int directory) {
  if (directory != AT_FDCWD) {
    struct open_file *file = file_of(directory);
    return file ? file->file : (struct identity){};
  }
  struct folder *folder = self.borrower ? &self.borrower->working : &working;
  if (!folder->is_known) {
    u32 mode = 0;
    folder->file = identity_of(AT_FDCWD, ".", 0, &mode);
    folder->is_known = 1;
    if (folder->file.inode) tell_name(&folder->file, mode, AT_FDCWD, 0);
  }
  return folder->file;
}

void working_directory_changes(void) {
  struct folder *folder = self.borrower ? &self.borrower->working : &working;
  folder->is_known = 0;
}

// A path as the program gave it. One that the kernel could not read is none.
struct path path_at(int directory, const char *text) {
  struct path path = {{}, text, 0};
  if (!text) return path;
  path.bytes = strnlen(text, MOST_TEXT_BYTES);
  if (path.bytes && text[0] != '/') path.base = base_of(directory);
  return path;
}

void prepare(struct event *event, u8 operation, u64 start, s64 result) {
  memset(event, 0, sizeof *event);
  event->operation = operation;
  event->thread = self.number;
  event->process = self.process;
  event->descriptor = -1;
  event->start_ns = start;
  event->duration_ns = start ? now_ns() - start : 0;
  event->result = result;
}

void describe(struct event *event, int descriptor, const struct open_file *file) {
  event->descriptor = descriptor;
  event->about.handle = file->handle;
  event->about.file = file->file;
  event->about.size = file->size;
  event->about.mode = file->mode;
}

// Whether there is nothing of this name: asked before an open that would make it.
int is_missing(int directory, const char *path) {
  struct stat status;
  return ask(SYS_newfstatat, directory, (long)path, (long)&status, 0, 0) == -ENOENT;
}

void tell_open(u64 start, int result, int directory, const char *path, int flags, int is_created) {
  struct event event;
  prepare(&event, OPERATION_OPEN, start, outcome(result));
  event.argument = (u32)flags;
  if (result < 0) {
    struct path text = path_at(directory, path);
    put(&event, &text, 1);
    return;
  }
  struct open_file *file = slot_of(result);
  learn(result, file, flags);
  event.descriptor = result;
  if (is_created) event.flags |= FLAG_CREATED;
  if (file->kind == KIND_FILE) {
    describe(&event, result, file);
  } else {
    event.flags |= FLAG_NO_FILE;
  }
  put(&event, 0, 0);
}

void tell_descriptor(u8 operation, u64 start, s64 result, int descriptor, u64 argument, u64 asked) {
  struct event event;
  prepare(&event, operation, start, result);
  struct open_file *file = file_of(descriptor);
  if (!file) return;
  describe(&event, descriptor, file);
  event.argument = argument;
  event.asked = asked;
  event.about.offset = file->position;
  put(&event, 0, 0);
}

void tell_path(u8 operation, u64 start, s64 result, int directory, const char *path, u64 argument, u64 asked) {
  struct event event;
  prepare(&event, operation, start, result);
  event.argument = argument;
  event.asked = asked;
  struct path text = path_at(directory, path);
  struct open_file *file = text.bytes || directory == AT_FDCWD ? 0 : file_of(directory);
  if (file) describe(&event, directory, file);
  put(&event, &text, 1);
}

void before_close(struct event *event, int descriptor) {
  memset(event, 0, sizeof *event);
  event->descriptor = descriptor;
  struct open_file *file = file_of(descriptor);
  if (!file) {
    if (descriptor >= 0) forget(descriptor);
    return;
  }
  // What was written elsewhere, or by mapped memory, is seen here at last.
  struct stat status;
  if (file->is_written && ask(SYS_fstat, descriptor, (long)&status, 0, 0, 0) == 0) file->size = status.st_size;
  describe(event, descriptor, file);
  event->about.offset = file->position;
  event->operation = OPERATION_CLOSE;
  // Before, not after: by then another thread may have opened the next file by this number.
  forget(descriptor);
}

void tell_close(struct event *event, u64 start, s64 result) {
  if (event->operation != OPERATION_CLOSE) return;
  struct event told;
  prepare(&told, OPERATION_CLOSE, start, result);
  told.descriptor = event->descriptor;
  told.about = event->about;
  put(&told, 0, 0);
}

// For the program that this process becomes: the handles of what stays open, as `descriptor:handle:inode,`.
u32 handles_as_text(char *text, u32 room) {
  static const char digits[] = "0123456789abcdef";
  u32 used = 0;
  for (u32 descriptor = 0; descriptor <= highest && descriptor < MOST_DESCRIPTORS; descriptor++) {
    struct open_file *known = table + descriptor;
    if (self.borrower)
      for (u32 each = 0; each < self.borrower->changes; each++)
        if (self.borrower->descriptors[each] == (s32)descriptor) known = self.borrower->files + each;
    if (known->kind != KIND_FILE || !known->handle) continue;
    long flags = ask(SYS_fcntl, descriptor, F_GETFD, 0, 0, 0);
    if (flags < 0 || flags & FD_CLOEXEC) continue;
    if (used + 3 * 17 + 1 > room) break;
    u64 numbers[3] = {descriptor, known->handle, known->file.inode};
    for (u32 each = 0; each < 3; each++) {
      int is_written = 0;
      for (int shift = 60; shift >= 0; shift -= 4) {
        u32 digit = numbers[each] >> shift & 15;
        if (digit || is_written || !shift) text[used++] = digits[digit], is_written = 1;
      }
      text[used++] = each == 2 ? ',' : ':';
    }
  }
  text[used] = 0;
  return used;
}

static const char *read_number(const char *text, u64 *number) {
  *number = 0;
  for (;; text++) {
    if (*text >= '0' && *text <= '9')
      *number = *number << 4 | (*text - '0');
    else if (*text >= 'a' && *text <= 'f')
      *number = *number << 4 | (*text - 'a' + 10);
    else
      return text;
  }
}

// And in that program: what was open before has the handle that it had.
void take_handles(const char *text) {
  while (*text) {
    u64 descriptor, handle, inode;
    text = read_number(text, &descriptor);
    if (*text++ != ':') return;
    text = read_number(text, &handle);
    if (*text++ != ':') return;
    text = read_number(text, &inode);
    if (*text++ != ',' || descriptor >= MOST_DESCRIPTORS) return;
    struct open_file *file = file_of(descriptor);
    if (file && file->file.inode == inode) file->handle = handle;
  }
}

// Hands over every descriptor through which a stream has written.
void each_written_stream(void (*end)(int descriptor, FILE *stream)) {
  for (u32 descriptor = 0; descriptor <= highest && descriptor < MOST_DESCRIPTORS; descriptor++)
    if (table[descriptor].kind == KIND_FILE && table[descriptor].stream) end(descriptor, table[descriptor].stream);
}

u32 highest_descriptor(void) { return highest; }
