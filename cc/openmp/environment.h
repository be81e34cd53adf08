/* What the environment says, read once. Internal to the runtime. */

#ifndef COMB_OPENMP_ENVIRONMENT_H
#define COMB_OPENMP_ENVIRONMENT_H

#include <stdbool.h>

struct environment {
    int threads;      /* OMP_NUM_THREADS, its first number; else the processors of this machine. */
    int thread_limit; /* OMP_THREAD_LIMIT. */
    bool may_cancel;  /* OMP_CANCELLATION. */
    int schedule;     /* OMP_SCHEDULE: an omp_sched_t. */
    int chunk;        /* 0: as the schedule likes. */
};

const struct environment *environment(void);

/* Processors of this machine. */
int processors(void);

#endif
