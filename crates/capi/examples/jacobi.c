/* Heat in a plate: each point becomes the mean of its four neighbours, until nothing changes much. Each component has a band of rows; of its
 * neighbours' bands it loads the row beside its own.
 *
 *     comb run -n 4 -- ./jacobi
 */
#include <comb.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 128, STEPS = 2000 };

typedef double row[SIDE];

int main(void) {
    row *from, *to;
    unsigned first, last, y, x, step = 0;
    double change = 1.0;
    struct comb_terms terms;

    if (comb_init() != 0) {
        fprintf(stderr, "jacobi: %s\n", comb_error());
        return 1;
    }
    memset(&terms, 0, sizeof terms);
    terms.sharing = COMB_RELEASE; /* two bands may meet within a page, and both write it */
    from = (row *)comb_alloc_together(SIDE * sizeof(row), &terms);
    to = (row *)comb_alloc_together(SIDE * sizeof(row), &terms);
    if (from == NULL || to == NULL) {
        fprintf(stderr, "jacobi: %s\n", comb_error());
        return 1;
    }
    first = 1 + (SIDE - 2) * comb_rank() / comb_count();
    last = 1 + (SIDE - 2) * (comb_rank() + 1) / comb_count();
    if (comb_rank() == 0) {
        for (x = 0; x < SIDE; x++) { /* the upper edge is hot, and stays so in both grids */
            from[0][x] = to[0][x] = 100.0;
        }
    }
    comb_barrier();
    while (step < STEPS && change > 0.01) {
        row *other = from;
        uint64_t bits;
        change = 0.0;
        for (y = first; y < last; y++) {
            for (x = 1; x + 1 < SIDE; x++) {
                double was = from[y][x];
                to[y][x] = (from[y - 1][x] + from[y + 1][x] + from[y][x - 1] + from[y][x + 1]) / 4.0;
                change = fmax(change, fabs(to[y][x] - was));
            }
        }
        /* A barrier as well: nobody goes on before all have stored their rows. */
        memcpy(&bits, &change, sizeof bits);
        if (comb_reduce(COMB_GREATEST_DOUBLE, &bits, 1) != 0) {
            fprintf(stderr, "jacobi: %s\n", comb_error());
            return 1;
        }
        memcpy(&change, &bits, sizeof bits);
        from = to;
        to = other;
        step++;
    }
    if (comb_rank() == 0) {
        printf("%u steps, the last change %.6f, in the middle %.6f\n", step, change, from[SIDE / 2][SIDE / 2]);
    }
    return 0;
}
