// So many threads, each of which reads so often: `readers FILE THREADS TIMES`.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int file, times;

static void *reads(void *unused) {
  char buffer[64];
  for (int each = 0; each < times; each++)
    if (pread(file, buffer, sizeof buffer, each % 64) != sizeof buffer) abort();
  return unused;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  file = open(arguments[1], O_RDONLY);
  times = atoi(arguments[3]);
  int number = atoi(arguments[2]);
  pthread_t threads[64];
  for (int each = 0; each < number; each++) pthread_create(threads + each, 0, reads, 0);
  for (int each = 0; each < number; each++) pthread_join(threads[each], 0);
  return close(file);
}
