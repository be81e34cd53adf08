// Reads what is not in the page cache, and what is.
#include "expect.h"

#define SIZE (1 << 20)
static char bytes[SIZE];

static void forget(int file) {
  need(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, "forget");
}

int main(int count, char **arguments) {
  need(count == 2 && chdir(arguments[1]) == 0, "the place");
  for (int each = 0; each < SIZE; each++) bytes[each] = each;
  int file = open("data", O_RDWR | O_CREAT, 0600);
  BEGIN();
  need(write(file, bytes, SIZE) == SIZE, "write");
  forget(file);
  for (int at = 0; at < SIZE; at += 4096) need(pread(file, bytes, 4096, at) == 4096, "read what is missing");
  need(pread(file, bytes, SIZE, 0) == SIZE, "read what is there");
  forget(file);
  volatile char *mapped = mmap(0, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
  for (int at = 0; at < SIZE; at += 4096) bytes[0] += mapped[at];
  END();
  return 0;
}
