/* What a miss takes: one thread has stored to every block, another, on another cell, reads a word of each in no order, then stores to it.
 * `misses BYTES` says how far blocks are apart. Who is not measured waits at a barrier. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 1024, RUNS = 7, LARGEST = 65536 };

static pthread_barrier_t barrier;
static volatile unsigned char *memory;
static size_t block_bytes;
static double least[2] = {1e12, 1e12};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* All of them once, each far from the one before. */
static volatile unsigned char *block(int index) { return memory + (size_t)(index * 389 % BLOCKS) * block_bytes; }

static void *owner(void *unused) {
    for (int run = 0; run < RUNS; run++) {
        for (int index = 0; index < BLOCKS; index++) *block(index) = (unsigned char)run;
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
            if (*block(index) != (unsigned char)run) ++*(long *)wrong;
        double read = now();
        for (int index = 0; index < BLOCKS; index++) *block(index) = (unsigned char)(run + 1);
        double stored = now();
        if (read - started < least[0]) least[0] = read - started;
        if (stored - read < least[1]) least[1] = stored - read;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int count, char **arguments) {
    block_bytes = count == 2 ? strtoul(arguments[1], NULL, 10) : 0;
    if (block_bytes < 64 || block_bytes > LARGEST) {
        fprintf(stderr, "usage: misses BYTES, from 64 to %d\n", LARGEST);
        return 2;
    }
    memory = aligned_alloc(LARGEST, BLOCKS * block_bytes < LARGEST ? LARGEST : BLOCKS * block_bytes / LARGEST * LARGEST);
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
