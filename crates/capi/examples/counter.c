/* A lock and a condition: all count, and component 0 waits until the last has.
 *
 *     comb run -n 4 -- ./counter
 */
#include <comb.h>
#include <stdio.h>

enum { TIMES = 200, LOCK = 1, FULL = 1 };

static int fail(void) {
    fprintf(stderr, "counter: %s\n", comb_error());
    return 1;
}

int main(void) {
    unsigned long *counter, all;
    int time;

    if (comb_init() != 0) {
        return fail();
    }
    counter = (unsigned long *)comb_alloc_together(sizeof *counter, NULL);
    if (counter == NULL) {
        return fail();
    }
    all = (unsigned long)TIMES * comb_count();
    for (time = 0; time < TIMES; time++) {
        if (comb_lock(LOCK) != 0) {
            return fail();
        }
        (*counter)++;
        if (*counter == all) {
            comb_notify(LOCK, FULL, 1);
        }
        comb_unlock(LOCK);
    }
    if (comb_rank() == 0) {
        if (comb_lock(LOCK) != 0) {
            return fail();
        }
        while (*counter < all) {
            comb_wait(LOCK, FULL);
        }
        printf("counted to %lu\n", *counter);
        comb_unlock(LOCK);
    }
    return 0;
}
