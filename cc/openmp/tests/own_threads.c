/* A program's own threads open regions at the same time: each gets a team of its own, if only of itself. */

#include "check.h"
#include <omp.h>
#include <pthread.h>

static void *open_regions(void *result) {
    long total = 0;
    for (int round = 0; round < 50; round++) {
        int sum = 0, size = 0;
#pragma omp parallel reduction(+ : sum)
        {
#pragma omp single
            size = omp_get_num_threads();
#pragma omp for schedule(dynamic, 5)
            for (int i = 0; i < 100; i++) {
                sum += i;
            }
        }
        total += sum == 4950 && size >= 1;
    }
    *(long *)result = total;
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    long results[4];
    for (int i = 0; i < 4; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, open_regions, &results[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQUAL(results[i], 50);
    }
    return failures != 0;
}
