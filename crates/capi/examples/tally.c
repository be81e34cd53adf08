/* Counts how often it was run, in memory that outlives it:
 *
 *     comb up
 *     comb region create tally --size 1M
 *     ./tally                              as often as you like
 */
#include <comb.h>
#include <stdio.h>

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "tally";
    if (comb_init() != 0) {
        fprintf(stderr, "%s\n", comb_error());
        return 1;
    }
    uint64_t *tally = (uint64_t *)comb_attach(name, 0, NULL);
    if (!tally) {
        fprintf(stderr, "%s\n", comb_error());
        return 1;
    }
    /* Any process may do the same at this moment. */
    uint64_t runs = __atomic_add_fetch(tally, 1, __ATOMIC_SEQ_CST);
    printf("run %llu of %s\n", (unsigned long long)runs, name);
    return 0;
}
