/* What a check costs where nothing is missed: loads and stores at places that no compiler foresees, in memory that is in the
 * cache. `comb bench cc` compiles this plainly and with checks; the difference is the lookup. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORDS = 1 << 11, TIMES = 1 << 25, RUNS = 5 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The next place hangs on no load, so that several are under way at once, as in ordinary code. */
static uint32_t next(uint32_t state) { return state * 1664525u + 1013904223u; }

static double loads(const uint64_t *words, uint64_t *sum) {
    uint32_t state = 1;
    double started = now();
    for (int time = 0; time < TIMES; time++) {
        state = next(state);
        *sum += words[state >> 21];
    }
    return (now() - started) / TIMES;
}

static double stores(uint64_t *words) {
    uint32_t state = 1;
    double started = now();
    for (int time = 0; time < TIMES; time++) {
        state = next(state);
        words[state >> 21] = state;
    }
    return (now() - started) / TIMES;
}

int main(void) {
    uint64_t *words = calloc(WORDS, sizeof *words);
    if (words == NULL) return 1;
    uint64_t sum = 0;
    double load = 1e9, store = 1e9;
    for (int run = 0; run < RUNS; run++) {
        double took = loads(words, &sum);
        load = took < load ? took : load;
        took = stores(words);
        store = took < store ? took : store;
    }
    printf("load %.4f\nstore %.4f\nsum %llu\n", load, store, (unsigned long long)sum);
    free(words);
    return 0;
}
