// Does by a ring what io_uring can do with files, one request after the other, and says what should be recorded of it.
#include "expect.h"
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <stdatomic.h>

enum { CREATED = 2, POSITIONAL = 4, RING = 8, SECOND = 16, VECTOR = 128 };

static int ring;
static struct io_uring_params how;
static char *queue;
static struct io_uring_sqe *entries;
static char bytes[8192];

#define AT(offset) ((_Atomic unsigned *)(queue + (offset)))

static int make_ring(unsigned flags) {
  memset(&how, 0, sizeof how);
  how.flags = flags;
  ring = syscall(SYS_io_uring_setup, 8, &how);
  if (ring < 0) return 0;
  need(how.features & IORING_FEAT_SINGLE_MMAP, "one mapping for both queues");
  size_t length = how.cq_off.cqes + how.cq_entries * sizeof(struct io_uring_cqe);
  size_t other = how.sq_off.array + how.sq_entries * sizeof(unsigned);
  queue = mmap(0, length > other ? length : other, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
  entries = mmap(0, how.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
  need(queue != MAP_FAILED && (void *)entries != MAP_FAILED, "the ring's memory");
  return 1;
}

// Asks for one thing and waits until it has been done.
static int ask(struct io_uring_sqe asked) {
  unsigned mask = *AT(how.sq_off.ring_mask), tail = *AT(how.sq_off.tail), head = *AT(how.cq_off.head);
  entries[tail & mask] = asked;
  ((unsigned *)(queue + how.sq_off.array))[tail & mask] = tail & mask;
  atomic_store(AT(how.sq_off.tail), tail + 1);
  int wakes = how.flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0;
  while (*AT(how.cq_off.tail) == head)
    need(syscall(SYS_io_uring_enter, ring, wakes ? 0 : 1, 1, IORING_ENTER_GETEVENTS | wakes, 0, 0) >= 0, "io_uring_enter");
  struct io_uring_cqe *done = (struct io_uring_cqe *)(queue + how.cq_off.cqes) + (head & *AT(how.cq_off.ring_mask));
  result = done->res;
  atomic_store(AT(how.cq_off.head), head + 1);
  return result;
}
#define ASK(code, ...) ask((struct io_uring_sqe){.opcode = IORING_OP_##code, __VA_ARGS__})
#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

static void files(void) {
  struct iovec parts[2] = {{bytes, 10}, {bytes + 10, 20}};
  int file = ASK(OPENAT, .fd = AT_FDCWD, .addr = ADDRESS("data"), .open_flags = O_RDWR | O_CREAT, .len = 0600);
  expect("open", "descriptor=%d argument=%d flags=%d path=%s/data", file, O_RDWR | O_CREAT, RING | CREATED, place);
  ASK(WRITE, .fd = file, .addr = ADDRESS(bytes), .len = 5000, .off = 0);
  expect("write", "descriptor=%d asked=5000 offset=0 size=5000 argument=0 flags=%d path=%s/data", file, RING | POSITIONAL, place);
  ASK(WRITE, .fd = file, .addr = ADDRESS(bytes), .len = 100, .off = -1);
  expect("write", "descriptor=%d asked=100 offset=0 size=5000 flags=%d", file, RING);
  ASK(READ, .fd = file, .addr = ADDRESS(bytes), .len = 50, .off = -1);
  expect("read", "asked=50 offset=100 flags=%d", RING);
  ASK(READ, .fd = file, .addr = ADDRESS(bytes), .len = 5000, .off = 4000);
  expect("read", "asked=5000 offset=4000 flags=%d", RING | POSITIONAL);
  ASK(WRITEV, .fd = file, .addr = ADDRESS(parts), .len = 2, .off = 200);
  expect("write", "asked=30 offset=200 flags=%d", RING | POSITIONAL | VECTOR);
  ASK(READV, .fd = file, .addr = ADDRESS(parts), .len = 2, .off = -1);
  expect("read", "asked=30 offset=150 flags=%d", RING | VECTOR);
  struct iovec buffer = {bytes, 4096};
  need(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0, "a buffer");
  ASK(WRITE_FIXED, .fd = file, .addr = ADDRESS(bytes), .len = 300, .off = 1000, .buf_index = 0);
  expect("write", "asked=300 offset=1000 flags=%d", RING | POSITIONAL);
  ASK(READ_FIXED, .fd = file, .addr = ADDRESS(bytes), .len = 400, .off = 1100, .buf_index = 0);
  expect("read", "asked=400 offset=1100 flags=%d", RING | POSITIONAL);
  need(syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &file, 1) == 0, "a file");
  ASK(READ, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = ADDRESS(bytes), .len = 60, .off = 20);
  expect("read", "descriptor=-1 asked=60 offset=20 flags=%d path=%s/data", RING | POSITIONAL, place);
  need(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_FILES, 0, 0) == 0, "no file");
  ASK(FSYNC, .fd = file, .fsync_flags = IORING_FSYNC_DATASYNC);
  expect("sync", "descriptor=%d argument=%d flags=%d", file, IORING_FSYNC_DATASYNC, RING);
  ASK(SYNC_FILE_RANGE, .fd = file, .off = 10, .len = 20, .sync_range_flags = SYNC_FILE_RANGE_WRITE);
  expect("sync", "descriptor=%d offset=10 asked=20 argument=%d flags=%d", file, SYNC_FILE_RANGE_WRITE, RING);
  ASK(FALLOCATE, .fd = file, .off = 0, .addr = 9000, .len = FALLOC_FL_KEEP_SIZE);
  expect("allocate", "descriptor=%d offset=0 asked=9000 argument=%d size=5000 flags=%d", file, FALLOC_FL_KEEP_SIZE, RING);
  ASK(FADVISE, .fd = file, .off = 30, .len = 40, .fadvise_advice = POSIX_FADV_SEQUENTIAL);
  expect("advise", "descriptor=%d offset=30 asked=40 argument=%d flags=%d", file, POSIX_FADV_SEQUENTIAL, RING);
  // IORING_OP_FTRUNCATE, younger than some headers.
  ask((struct io_uring_sqe){.opcode = 55, .fd = file, .off = 4500});
  if (result != -EINVAL) expect("truncate", "descriptor=%d asked=4500 size=4500 flags=%d", file, RING);
  int pair[2];
  need(pipe(pair) == 0, "pipe");
  ASK(SPLICE, .fd = pair[1], .off = -1, .splice_fd_in = file, .splice_off_in = 70, .len = 80);
  expect("transfer", "descriptor=%d asked=80 offset=70 flags=%d", file, RING | POSITIONAL);
  ASK(SPLICE, .fd = file, .off = 90, .splice_fd_in = pair[0], .splice_off_in = -1, .len = 80);
  expect("transfer", "descriptor=%d asked=80 offset=90 flags=%d", file, RING | SECOND | POSITIONAL);
  ASK(READ, .fd = 999, .addr = ADDRESS(bytes), .len = 60, .off = 20);
  ASK(WRITE, .fd = pair[1], .addr = ADDRESS(bytes), .len = 10, .off = -1);
  ASK(CLOSE, .fd = file);
  expect("close", "descriptor=%d size=4500 flags=%d path=%s/data", file, RING, place);
  ASK(CLOSE, .fd = pair[0]);
}

static void paths(void) {
  struct statx status;
  char absolute[5000];
  snprintf(absolute, sizeof absolute, "%s/data", place);
  struct open_how with = {.flags = O_RDONLY | O_CLOEXEC};
  int file = ASK(OPENAT2, .fd = AT_FDCWD, .addr = ADDRESS(absolute), .off = ADDRESS(&with), .len = sizeof with);
  expect("open", "descriptor=%d argument=%d flags=%d path=%s/data", file, O_CLOEXEC, RING, place);
  ASK(OPENAT, .fd = AT_FDCWD, .addr = ADDRESS("missing"), .open_flags = O_RDONLY);
  expect("open", "descriptor=-1 argument=0 flags=%d path=%s/missing", RING, place);
  ASK(STATX, .fd = AT_FDCWD, .addr = ADDRESS("data"), .off = ADDRESS(&status), .len = STATX_SIZE, .statx_flags = AT_SYMLINK_NOFOLLOW);
  expect("status", "descriptor=-1 argument=%d flags=%d path=%s/data", AT_SYMLINK_NOFOLLOW, RING, place);
  ASK(STATX, .fd = file, .addr = ADDRESS(""), .off = ADDRESS(&status), .len = STATX_SIZE, .statx_flags = AT_EMPTY_PATH);
  expect("status", "descriptor=%d argument=%d flags=%d path=%s/data", file, AT_EMPTY_PATH, RING, place);
  ASK(MKDIRAT, .fd = AT_FDCWD, .addr = ADDRESS("folder"), .len = 0755);
  expect("make-directory", "argument=%d flags=%d path=%s/folder", 0755, RING, place);
  int folder = ASK(OPENAT, .fd = AT_FDCWD, .addr = ADDRESS("folder"), .open_flags = O_PATH);
  expect("open", "descriptor=%d path=%s/folder", folder, place);
  ASK(SYMLINKAT, .fd = folder, .addr = ADDRESS("../data"), .addr2 = ADDRESS("soft"));
  expect("link", "flags=%d path=%s/folder/soft", RING, place);
  ASK(LINKAT, .fd = AT_FDCWD, .addr = ADDRESS("data"), .len = folder, .addr2 = ADDRESS("hard"));
  expect("link", "argument=0 flags=%d path=%s/data other=%s/folder/hard", RING, place, place);
  ASK(RENAMEAT, .fd = folder, .addr = ADDRESS("hard"), .len = AT_FDCWD, .addr2 = ADDRESS("moved"), .rename_flags = RENAME_NOREPLACE);
  expect("rename", "argument=%d flags=%d path=%s/folder/hard other=%s/moved", RENAME_NOREPLACE, RING, place, place);
  ASK(UNLINKAT, .fd = folder, .addr = ADDRESS("soft"));
  expect("delete", "argument=0 flags=%d path=%s/folder/soft", RING, place);
  ASK(UNLINKAT, .fd = AT_FDCWD, .addr = ADDRESS("folder"), .unlink_flags = AT_REMOVEDIR);
  expect("delete", "argument=%d flags=%d path=%s/folder", AT_REMOVEDIR, RING, place);
  ASK(CLOSE, .fd = folder);
  expect("close", "descriptor=%d path=%s/folder", folder, place);
  // Longer than what is kept of paths until a request is done.
  char long_path[600];
  memset(long_path, 'l', sizeof long_path);
  long_path[599] = 0;
  ASK(UNLINKAT, .fd = AT_FDCWD, .addr = ADDRESS(long_path));
  expect("delete", "flags=%d path=", RING);
  ASK(CLOSE, .fd = file);
  expect("close", "descriptor=%d path=%s/data", file, place);
}

int main(int count, char **arguments) {
  need(count == 3 && chdir(arguments[2]) == 0 && getcwd(place, sizeof place) != 0, "the place");
  setvbuf(stdout, 0, _IOFBF, 1 << 20);
  umask(0);
  if (!make_ring(strcmp(arguments[1], "polled") == 0 ? IORING_SETUP_SQPOLL : 0)) {
    printf("no io_uring: %s\n", strerror(errno));
    return 0;
  }
  BEGIN();
  files();
  paths();
  END();
  return 0;
}
