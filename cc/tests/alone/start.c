/* The least that a program needs to run alone: the state table, and the place of the thread's rseq area. */
#include "comb_access.h"
#include "comb_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/rseq.h>

int comb_main(int count, char **arguments, char **environment);

/* There is one component. */
int comb_runs_constructors(void)
{
    return 1;
}

static void start(void)
{
    void *table = mmap((void *)COMB_STATE_TABLE, COMB_STATE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (table == MAP_FAILED) {
        perror("comb: no room for the table of blocks' states");
        exit(1);
    }
    if (mmap((void *)COMB_MAIL_PAGE, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED) {
        perror("comb: no room for the page of mail");
        exit(1);
    }
    madvise(table, COMB_STATE_BYTES, MADV_NOHUGEPAGE);
    if (__rseq_size > 0)
        comb_rseq_offset = (uint64_t)__rseq_offset;
}

/* Before the constructors of shared libraries, which may be instrumented. */
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = start;

int main(int count, char **arguments, char **environment)
{
    return comb_main(count, arguments, environment);
}
