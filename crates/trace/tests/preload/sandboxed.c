// Reads a file, and then again where it may do nothing but read, write and end: `sandboxed FILE`. Returns how much it could read.

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count != 2) return 2;
  int file = open(arguments[1], O_RDONLY);
  char buffer[64];
  if (read(file, buffer, sizeof buffer) != sizeof buffer) return 3;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 4;
  int bytes = read(file, buffer, sizeof buffer);
  // The C library ends a process by a call that is not allowed.
  syscall(SYS_exit, bytes);
  return 5;
}
