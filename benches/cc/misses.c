/* What a miss takes: one thread has stored to every block, another, on another cell, reads a word of each in no order, then stores to it.
 * `misses BYTES` says how far blocks are apart. Who is not measured waits at a barrier. Who reads and stores a third time gets both rights at once: so
 * each array is gone through twice, once to touch it and once by the clock. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 1024, ARRAYS = 5, PASSES = 2, RUNS = ARRAYS * PASSES, LARGEST = 65536 };

static pthread_barrier_t barrier;
static volatile unsigned char *memory;
static size_t block_bytes;
static double least[2] = {1e12, 1e12};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* All of a run's once, each far from the one before. */
static volatile unsigned char *block(int run, int index) {
    return memory + (size_t)(run / PASSES * BLOCKS + index * 389 % BLOCKS) * block_bytes;
}

static void *owner(void *unused) {
    for (int run = 0; run < RUNS; run++) {
        for (int index = 0; index < BLOCKS; index++) *block(run, index) = (unsigned char)run;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

static void *reader(void *wrong) {
    for (int run = 0; run < RUNS; run++) {
        pthread_barrier_wait(&barrier);
        double started = now();
        for (int index = 0; index < BLOCKS; index++)
            if (*block(run, index) != (unsigned char)run) ++*(long *)wrong;
        double read = now();
        for (int index = 0; index < BLOCKS; index++) *block(run, index) = (unsigned char)(run + 1);
        double stored = now();
        int counts = run % PASSES == PASSES - 1;
        if (counts && read - started < least[0]) least[0] = read - started;
        if (counts && stored - read < least[1]) least[1] = stored - read;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int count, char **arguments) {
    block_bytes = count == 2 ? strtoul(arguments[1], NULL, 10) : 0;
    if (block_bytes < 64 || block_bytes > LARGEST || block_bytes % 64 != 0) {
        fprintf(stderr, "usage: misses BYTES, a multiple of 64 up to %d\n", LARGEST);
        return 2;
    }
    memory = aligned_alloc(LARGEST, ARRAYS * BLOCKS * block_bytes);
    if (memory == NULL) return 1;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t threads[2];
    long wrong = 0;
    pthread_create(&threads[0], NULL, owner, NULL);
    pthread_create(&threads[1], NULL, reader, &wrong);
    for (int thread = 0; thread < 2; thread++) pthread_join(threads[thread], NULL);
    if (wrong != 0) {
        fprintf(stderr, "misses: %ld loads found something else than was stored\n", wrong);
        return 1;
    }
    printf("read %.1f\nupgrade %.1f\n", least[0] / BLOCKS, least[1] / BLOCKS);
    return 0;
}
