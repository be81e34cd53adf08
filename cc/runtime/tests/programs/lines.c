/* What threads of several cells print into one file: a thread's lines stood in pieces between those of others, for they went to the
 * opener when a buffer was full. And a line of a file that is buffered by lines is there when printf() returns. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, LINES = 2000 };

static FILE *file;
static atomic_int said;

static void *print(void *thread)
{
    for (int line = 0; line < LINES; line++)
        fprintf(file, "thread %ld line %d\n", (long)thread, line);
    return NULL;
}

/* In whole lines, and each thread's in its order. */
static int are_whole(void)
{
    int next[THREADS] = {0}, count = 0;
    char text[256];
    rewind(file);
    while (fgets(text, sizeof text, file)) {
        int thread, line, length = 0;
        if (sscanf(text, "thread %d line %d\n%n", &thread, &line, &length) != 2 || length != (int)strlen(text) || line != next[thread]++) {
            printf("torn: %s", text);
            return 0;
        }
        count++;
    }
    return count == THREADS * LINES;
}

static void *say(void *unused)
{
    fprintf(file, "one line\n");
    atomic_store(&said, 1);
    while (atomic_load(&said) != 2)
        sched_yield();
    fprintf(file, "half a line");
    fflush(file);
    atomic_store(&said, 3);
    while (atomic_load(&said) != 4)
        sched_yield();
    return unused;
}

static long length_of(const char *name)
{
    char text[64];
    FILE *again = fopen(name, "r");
    size_t length = again ? fread(text, 1, sizeof text, again) : 0;
    if (again)
        fclose(again);
    return (long)length;
}

int main(void)
{
    pthread_t threads[THREADS];
    file = tmpfile();
    if (!file)
        return 2;
    for (long thread = 0; thread < THREADS; thread++)
        pthread_create(&threads[thread], NULL, print, (void *)thread);
    for (int thread = 0; thread < THREADS; thread++)
        pthread_join(threads[thread], NULL);
    puts(are_whole() ? "whole" : "not whole");
    fclose(file);

    char name[] = "/tmp/comb-lines.XXXXXX";
    int descriptor = mkstemp(name);
    file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!file)
        return 2;
    setvbuf(file, NULL, _IOLBF, 0);
    pthread_create(&threads[0], NULL, say, NULL);
    while (atomic_load(&said) != 1)
        sched_yield();
    printf("%ld bytes\n", length_of(name));
    atomic_store(&said, 2);
    while (atomic_load(&said) != 3)
        sched_yield();
    printf("%ld bytes\n", length_of(name));
    atomic_store(&said, 4);
    pthread_join(threads[0], NULL);
    fclose(file);
    remove(name);
    return 0;
}
