/* Primes by a segmented sieve, with every macro of comb.m4. It prints the same for any number of threads. */
#include <stdio.h>
#include <stdlib.h>
MAIN_ENV
#include "sieve.h"

struct sieve *sieve;

/* A call that would be a word of m4. */
static long shift(long value) { return value % 10; }

long last_digit(long value) { return shift(value); }

static void prepare(long threads) {
    sieve = (struct sieve *)G_MALLOC(sizeof(struct sieve));
    sieve->composite = (char *)NU_MALLOC(LIMIT, 0);
    sieve->threads = threads;
    sieve->names = sieve->reports = sieve->sum = 0;
    for (long i = 0; i < LIMIT; i++) {
        sieve->composite[i] = i < 2;
    }
    for (long i = 0; i < 10; i++) {
        sieve->with_last_digit[i] = 0;
    }
    LOCKINIT(sieve->name_lock)
    ALOCKINIT(sieve->last_digit, 10)
    BARINIT(sieve->start)
    BARINIT(sieve->phase, threads)
    GSINIT(sieve->segments)
    PAUSEINIT(sieve->small_primes_known)
    PAUSEINIT(sieve->counted, MOST_THREADS)
    LOCKINIT(sieve->sum_lock)
    CONDVARINIT(sieve->sum_changed)
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 4;
    unsigned long before, after;
    MAIN_INITENV(,80000000)
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "sieve: 1 to %d threads\n", MOST_THREADS);
        exit(1);
    }
    prepare(threads);
    CLOCK(before)

    /* The older way: others are created, and the creator joins in. */
    for (long i = 1; i < threads; i++) {
        CREATE(sift)
    }
    sift();
    WAIT_FOR_END(threads - 1)

    /* The newer way. */
    sieve->names = 0;
    CREATE(count, threads);
    WAIT_FOR_END(threads);

    CLOCK(after)
    if (after - before > 60000000) {
        printf("the clock counts no microseconds\n");
    }
    long total = 0;
    for (long i = 0; i < 10; i++) {
        printf("ending in %ld: %ld\n", i, sieve->with_last_digit[i]);
        total += sieve->with_last_digit[i];
    }
    printf("primes below %d: %ld, their sum %ld\n", LIMIT, total, sieve->sum);
    G_FREE(sieve->composite);
    G_FREE(sieve);
    MAIN_END
}
