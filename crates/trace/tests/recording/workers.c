// Programs that wait to be told what to do, a letter a line, and answer each with a line when it has been done.
#include "expect.h"
#include <pthread.h>

static char bytes[4096];

static void answer(void) {
  printf("done\n");
  fflush(stdout);
}

// Reads as often as is said, from a file that it keeps open; opens files and goes elsewhere.
static int steadily(void) {
  static char line[256];
  int file = open("data", O_RDWR | O_CREAT, 0600);
  need(file >= 0 && pwrite(file, bytes, sizeof bytes, 0) == sizeof bytes, "data");
  // No page is missing from now on.
  need(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
  answer();
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (line[0] == 'r')
      for (int left = atoi(line + 2); left > 0; left--) CALL(pread64, file, bytes, 8, left % 4000L);
    else if (line[0] == 'o')
      close(open(line + 2, O_RDWR | O_CREAT, 0600));
    else if (line[0] == 'c')
      CALL(chdir, line + 2);
    else if (line[0] == 'a')
      CALL(access, line + 2, 0);
    answer();
  }
  return 0;
}

static pthread_barrier_t start, end;

static void *work(void *number) {
  char path[64];
  pthread_barrier_wait(&start);
  snprintf(path, sizeof path, "/comb-thread-%ld", (long)number);
  CALL(access, path, 0);
  // One ends before the others do.
  if ((long)number != 0) pthread_barrier_wait(&end);
  return 0;
}

#define WORKERS 4

// Has threads when it is found, and makes others and a process afterwards.
static int with_threads(void) {
  pthread_t threads[WORKERS], late;
  pthread_barrier_init(&start, 0, WORKERS + 1);
  pthread_barrier_init(&end, 0, WORKERS);
  for (long each = 0; each < WORKERS; each++) pthread_create(&threads[each], 0, work, (void *)each);
  int file = open("kept", O_RDWR | O_CREAT, 0600);
  answer();
  getchar();
  CALL(pread64, file, bytes, 1, 0L);
  pthread_barrier_wait(&start);
  pthread_join(threads[0], 0);
  CALL(pread64, file, bytes, 1, 0L);
  if (fork() == 0) {
    CALL(access, "/comb-child", 0);
    _exit(0);
  }
  wait(0);
  pthread_barrier_wait(&end);
  for (long each = 1; each < WORKERS; each++) pthread_join(threads[each], 0);
  pthread_barrier_init(&start, 0, 1);
  pthread_barrier_init(&end, 0, 1);
  pthread_create(&late, 0, work, (void *)7);
  pthread_join(late, 0);
  CALL(close, file);
  return 0;
}

// Calls by the way of 32-bit programs.
static int foreign(void) {
  char *path = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  strcpy(path, "/comb-foreign");
  BEGIN();
  long is;
  asm volatile("int $0x80" : "=a"(is) : "a"(20) : "memory", "r8", "r9", "r10", "r11");                    // getpid
  asm volatile("int $0x80" : "=a"(is) : "a"(33), "b"(path), "c"(0) : "memory", "r8", "r9", "r10", "r11"); // access
  asm volatile("int $0x80" : "=a"(is) : "a"(5), "b"(path), "c"(0) : "memory", "r8", "r9", "r10", "r11");  // open
  asm volatile("int $0x80" : "=a"(is) : "a"(3), "b"(-1), "c"(path), "d"(1) : "memory", "r8", "r9", "r10", "r11");  // read
  END();
  return 0;
}

int main(int count, char **arguments) {
  need(count == 3 && chdir(arguments[2]) == 0, "the place");
  switch (arguments[1][0]) {
  case 's': return steadily();
  case 't': return with_threads();
  case 'f': return foreign();
  }
  return 9;
}
