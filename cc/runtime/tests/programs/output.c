/* What threads print comes once, whole, and in the order that they synchronise in; so does what is printed before
 * the end, by whoever ends the program. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int turn;

static void at_end(void)
{
    printf("handler of the end\n");
}

static void *speak(void *argument)
{
    int self = (int)(long)argument;
    for (int round = 0; round < 3; round++) {
        pthread_mutex_lock(&mutex);
        while (turn != round * THREADS + self)
            pthread_cond_wait(&condition, &mutex);
        printf("round %d", round);
        printf(" thread %d\n", self);
        turn++;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    pthread_barrier_wait(&barrier);
    if (self == 2) {
        atexit(at_end);
        printf("thread 2 ends the program, ");
        exit(7);
    }
    for (;;)
        pthread_barrier_wait(&barrier); /* where the others wait for an end that never comes by itself */
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    printf("main begins, ");
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, speak, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
