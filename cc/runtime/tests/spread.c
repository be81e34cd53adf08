/* Where threads begin: prints a letter for each, A for the component of main(), and then as they come. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 8 };

static pid_t components[THREADS + 1];

static void *tell(void *place)
{
    components[(long)place] = getpid();
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    components[0] = getpid();
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, tell, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pid_t known[THREADS + 1];
    int count = 0;
    for (int i = 0; i <= THREADS; i++) {
        int which = 0;
        while (which < count && known[which] != components[i])
            which++;
        if (which == count)
            known[count++] = components[i];
        if (i)
            putchar('A' + which);
    }
    putchar('\n');
    return 0;
}
