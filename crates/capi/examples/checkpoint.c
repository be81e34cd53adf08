/* Counts up, and writes a checkpoint at each step. Killed and started again with --restore, it goes on where it was.
 *
 *     comb run -n 2 --checkpoint /tmp/counted -- ./checkpoint 100
 *     comb run -n 2 --checkpoint /tmp/counted --restore -- ./checkpoint 100
 */
#include <comb.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 100000 };

static int fail(void) {
    fprintf(stderr, "checkpoint: %s\n", comb_error());
    return 1;
}

int main(int count, char **words) {
    unsigned long steps = count > 1 ? strtoul(words[1], NULL, 10) : 100;
    unsigned long *step, *numbers, wrong = 0, index;

    if (comb_init() != 0) {
        return fail();
    }
    /* The same calls in the same order get what they got in the life before. */
    step = (unsigned long *)comb_alloc_together(sizeof *step, NULL);
    numbers = (unsigned long *)comb_alloc_together(LENGTH * sizeof *numbers, NULL);
    if (step == NULL || numbers == NULL) {
        return fail();
    }
    if (comb_rank() == 0) {
        printf(comb_restored() ? "goes on at %lu\n" : "begins at %lu\n", *step);
        fflush(stdout);
    }
    while (*step < steps) {
        for (index = comb_rank(); index < LENGTH; index += 997 * comb_count()) {
            numbers[index]++;
        }
        comb_barrier();
        if (comb_rank() == 0) {
            ++*step;
        }
        if (comb_checkpoint() != 0) { /* all come to it, and find what was stored before */
            return fail();
        }
        if (comb_rank() == 0) {
            printf("step %lu\n", *step);
            fflush(stdout);
        }
        comb_barrier();
    }
    for (index = comb_rank(); index < LENGTH; index += 997 * comb_count()) {
        wrong += numbers[index] != steps;
    }
    if (comb_reduce(COMB_SUM, (uint64_t *)&wrong, 1) != 0) {
        return fail();
    }
    if (comb_rank() == 0) {
        printf("counted to %lu, %lu wrong\n", *step, wrong);
    }
    return 0;
}
