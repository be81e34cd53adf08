/* Threads of other cells store into one array; main adds up. A component that does not know how the array is guarded finds zeros. */
#include <pthread.h>
#include <stdio.h>

enum { COUNT = 100000, THREADS = 2 };
static int numbers[COUNT];

static void *store(void *first) {
    for (long index = (long)first; index < COUNT; index += THREADS) numbers[index] = (int)index;
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (long thread = 0; thread < THREADS; thread++) pthread_create(&threads[thread], NULL, store, (void *)thread);
    for (int thread = 0; thread < THREADS; thread++) pthread_join(threads[thread], NULL);
    long sum = 0;
    for (int index = 0; index < COUNT; index++) sum += numbers[index];
    printf("%ld\n", sum);
}
