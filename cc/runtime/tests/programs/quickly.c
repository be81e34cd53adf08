/* quick_exit() in a thread, which may be one of another component: its handlers run, those of exit() do not, and what has been printed is out. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void first(void)
{
    printf("the first handler\n");
    fflush(stdout);
}

static void second(void)
{
    printf("the second handler\n");
}

static void never(void)
{
    printf("a handler of exit()\n");
}

static void *leave(void *unused)
{
    printf("a thread leaves\n");
    fflush(stdout);
    quick_exit(7);
    return unused;
}

int main(void)
{
    pthread_t thread;
    atexit(never);
    at_quick_exit(first);
    at_quick_exit(second);
    pthread_create(&thread, NULL, leave, NULL);
    pthread_join(thread, NULL);
    pause();
}
