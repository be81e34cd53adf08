/* Three threads say on which processor each is: each has the next, and in a machine of two the third shares the first's. It is linked as hello.c is. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static pthread_barrier_t all;
static int processors[3];

static void *say(void *number) {
  pthread_t next;
  int which = *(int *)number;
  int after = which + 1;
  if (which < 2 && pthread_create(&next, NULL, say, &after)) return NULL;
  pthread_barrier_wait(&all);
  processors[which] = sched_getcpu();
  if (which < 2) pthread_join(next, NULL);
  return NULL;
}

int main(void) {
  int first = 0;
  pthread_barrier_init(&all, NULL, 3);
  say(&first);
  printf("%d %d %d\n", processors[0], processors[1], processors[2]);
  return 0;
}
