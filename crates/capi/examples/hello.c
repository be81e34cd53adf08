/* Each component stores its rank, and all see all.
 *
 *     comb run -n 4 -- ./hello
 */
#include <comb.h>
#include <stdio.h>

int main(void) {
    unsigned *ranks, rank, count;
    unsigned long sum = 0;

    if (comb_init() != 0) {
        fprintf(stderr, "hello: %s\n", comb_error());
        return 1;
    }
    count = comb_count();
    ranks = (unsigned *)comb_alloc_together(count * sizeof *ranks, NULL);
    if (ranks == NULL) {
        fprintf(stderr, "hello: %s\n", comb_error());
        return 1;
    }
    ranks[comb_rank()] = comb_rank() + 1;
    comb_barrier(); /* what each has stored before, all find after it */
    for (rank = 0; rank < count; rank++) {
        sum += ranks[rank];
    }
    printf("component %u of %u: the sum is %lu\n", comb_rank(), count, sum);
    return 0; /* waits for all others */
}
