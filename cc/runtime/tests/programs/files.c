/* A file that one thread has opened, and others write to and read from, wherever they run. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, LINES = 20 };

static FILE *file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *write_lines(void *number)
{
    for (int line = 0; line < LINES; line++) {
        pthread_mutex_lock(&mutex);
        fprintf(file, "thread %ld, line %d\n", (long)number, line);
        fflush(file);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *read_lines(void *lines)
{
    char text[80];
    rewind(file);
    while (fgets(text, sizeof text, file))
        ++*(long *)lines;
    return ferror(file) ? lines : NULL;
}

int main(void)
{
    char name[] = "/tmp/comb-files-XXXXXX";
    int descriptor = mkstemp(name);
    file = descriptor < 0 ? NULL : fdopen(descriptor, "w+");
    if (!file) {
        perror(name);
        return 1;
    }
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, write_lines, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    long lines = 0;
    void *failed;
    pthread_create(&threads[0], NULL, read_lines, &lines);
    pthread_join(threads[0], &failed);
    printf("%ld lines%s\n", lines, failed ? ", and an error" : "");
    if (fclose(file) || remove(name))
        perror(name);
    FILE *none = fopen("/nonexistent/file", "r");
    printf("%s\n", none ? "opened" : "not there");
    return 0;
}
