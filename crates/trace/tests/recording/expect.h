// What a program of these tests says of each thing that it does, to be compared with what was recorded: a line for each operation, in order.
// It goes to a pipe, which is no file, so that nothing of this is recorded.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

// Younger than some libraries.
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

// The result as the kernel gave it: libc makes two of it.
static long result;
#define CALL(name, ...) (result = syscall(SYS_##name, ##__VA_ARGS__), result = result == -1 ? -errno : result)

__attribute__((format(printf, 2, 3), unused)) static void expect(const char *operation, const char *rest, ...) {
  va_list values;
  va_start(values, rest);
  printf("%s result=%ld ", operation, result);
  vprintf(rest, values);
  printf("\n");
  va_end(values);
}

// What stands between these two is compared.
static void mark(const char *path) {
  fflush(stdout);
  syscall(SYS_access, path, 0);
}
#define BEGIN() mark("/comb-begin")
#define END() mark("/comb-end")

static void need(int is_so, const char *what) {
  if (is_so) return;
  perror(what);
  exit(9);
}

// The directory of the test.
__attribute__((unused)) static char place[4096];
