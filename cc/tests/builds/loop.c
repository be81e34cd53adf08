/* A parallel loop, for links that do not name OpenMP. */
#include <stdio.h>

int main(void) {
    long sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int number = 0; number < 1000; number++) sum += number;
    printf("%ld\n", sum);
}
