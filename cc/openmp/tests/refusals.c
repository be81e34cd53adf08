/* What the runtime refuses ends the program, with a line that says what. The argument says which. */

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    int cells[20] = {0};
    if (strcmp(which, "cancel") == 0) {
        setenv("OMP_CANCELLATION", "true", 1);
#pragma omp parallel
        {
#pragma omp cancel parallel
        }
    } else if (strcmp(which, "doacross") == 0) {
#pragma omp parallel for ordered(1)
        for (int i = 1; i < 20; i++) {
#pragma omp ordered depend(sink : i - 1)
            cells[i] = cells[i - 1] + 1;
#pragma omp ordered depend(source)
        }
    }
    printf("not refused: %s\n", which);
    return 0;
}
