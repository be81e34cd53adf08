// A library of the program's: its variables are one for all cells, and each side frees what the other one has allocated.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int counted;
char *copied(const char *text, void (*told)(const char *));
int turns_made(void);

static char heard[64];
static void hear(const char *text) { strcpy(heard, text); }

static void *work(void *text) {
  char *copy = copied(text, hear);
  char *result = strdup(copy);
  free(copy);
  return result;
}

int main(void) {
  const char *texts[] = {"one", "three", "seven"};
  for (int i = 0; i < 3; i++) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, work, (void *)texts[i]);
    pthread_join(thread, &result);
    printf("%s %s %d\n", (char *)result, heard, counted);
    free(result);
  }
  printf("%d turns\n", turns_made());
  return 0;
}
