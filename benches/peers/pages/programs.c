/*
 * PROGRAM SIZE ITERATIONS [--check]: three programs, the same on every implementation of shared.h. Rank 0 prints one line of JSON. With
 * --check each rank computes everything once more, alone, and compares all numbers; a difference is exit code 1.
 *
 * Each goes over a set of rows and makes `to` from `from`; then all wait for each other, and the two change places:
 *
 *   jacobi   SIZE×SIZE numbers; each becomes the mean of its four neighbours. Little to compute; two rows are read from other ranks.
 *   product  to = constant · from, SIZE×SIZE, in blocks of 64. `from` is what the ranks have just computed: each reads all of it anew.
 *   stencil  SIZE×SIZE×SIZE numbers; a reaction that spreads (7 points). Two planes are read from other ranks, and many points are computed.
 *
 * Rows, or planes, are split evenly among the ranks, in their order; each initialises its own. No number depends on how they are split: every sum
 * is made in one rank, in one order, and the compiler may not contract or reorder (no -ffast-math, -ffp-contract=off). So the checksum is the
 * same to the bit for any count of ranks and on any implementation.
 */
#include "shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    BLOCK = 64, /* product: a block of each of the three matrices is 32 KB: all three are in the second cache, one in the first */
    /* Both `from` and `to` have then been read by their neighbours: no page is seen for the first time while the clock runs. */
    WARM_UP_ITERATIONS = 2,
    LARGEST_ITERATIONS = 1000000
};

typedef void sweep_rows(size_t size, size_t first, size_t end, double *restrict to, const double *restrict from,
                        const double *restrict constant);

struct program {
    const char *name;
    size_t dimensions; /* a row is size to the power of this, less one */
    bool constant;     /* whether it has a third array, which does not change */
    size_t largest_size;
    sweep_rows *sweep;
};

struct job {
    const struct program *program;
    size_t size, row, rows; /* `row` numbers in each of `rows` rows */
    int iterations;
    bool check;
};

struct arrays {
    double *from, *to, *constant;
};

/* The rim keeps its value: both grids start with the same. */
static void sweep_jacobi(size_t size, size_t first, size_t end, double *restrict to, const double *restrict from, const double *restrict constant)
{
    (void)constant;
    for (size_t i = first > 1 ? first : 1; i < end && i + 1 < size; i++) {
        const double *restrict here = from + i * size;
        for (size_t j = 1; j + 1 < size; j++)
            to[i * size + j] = 0.25 * (here[j - size] + here[j + size] + here[j - 1] + here[j + 1]);
    }
}

static inline size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* Adds a block's part to one row of a block: four terms at a time, each added on its own. */
static void add_products(size_t size, double *restrict to, const double *restrict from, const double *restrict factors, size_t terms, size_t width)
{
    size_t k = 0;
    for (; k + 4 <= terms; k += 4, from += 4 * size)
        for (size_t j = 0; j < width; j++)
            to[j] = to[j] + factors[k] * from[j] + factors[k + 1] * from[size + j] + factors[k + 2] * from[2 * size + j] +
                    factors[k + 3] * from[3 * size + j];
    for (; k < terms; k++, from += size)
        for (size_t j = 0; j < width; j++)
            to[j] += factors[k] * from[j];
}

static void sweep_product(size_t size, size_t first, size_t end, double *restrict to, const double *restrict from, const double *restrict constant)
{
    for (size_t row = first; row < end; row += BLOCK) {
        size_t row_end = least(row + BLOCK, end);
        memset(to + row * size, 0, (row_end - row) * size * sizeof *to);
        for (size_t term = 0; term < size; term += BLOCK)
            for (size_t column = 0; column < size; column += BLOCK)
                for (size_t i = row; i < row_end; i++)
                    add_products(size, to + i * size + column, from + term * size + column, constant + i * size + term,
                                 least(BLOCK, size - term), least(BLOCK, size - column));
    }
}

/* Nagumo's equation: what is above 0.3 grows to 1, what is below falls to 0, and both spread. */
static void sweep_stencil(size_t size, size_t first, size_t end, double *restrict to, const double *restrict from, const double *restrict constant)
{
    (void)constant;
    size_t plane = size * size;
    for (size_t i = first > 1 ? first : 1; i < end && i + 1 < size; i++)
        for (size_t j = 1; j + 1 < size; j++) {
            const double *restrict here = from + i * plane + j * size;
            double *restrict there = to + i * plane + j * size;
            for (size_t k = 1; k + 1 < size; k++) {
                double u = here[k];
                double around = here[k - plane] + here[k + plane] + here[k - size] + here[k + size] + here[k - 1] + here[k + 1];
                there[k] = u + 0.1 * (around - 6.0 * u) + 0.05 * (u * (1.0 - u) * (u - 0.3));
            }
        }
}

static const struct program PROGRAMS[] = {
    {"jacobi", 2, false, 32768, sweep_jacobi},
    {"product", 2, true, 32768, sweep_product},
    {"stencil", 3, false, 1024, sweep_stencil},
};

/* From 0 to 1, and different from its neighbours. */
static double initial(size_t index)
{
    uint64_t mixed = (uint64_t)index * 0x9e3779b97f4a7c15u;
    return (double)(mixed >> 33) / (double)((uint64_t)1 << 31);
}

static void initialise(const struct job *job, const struct arrays *arrays, size_t first, size_t end)
{
    for (size_t i = first * job->row; i < end * job->row; i++) {
        arrays->from[i] = initial(i);
        arrays->to[i] = initial(i);
        /* Rows add up to about 1: no power of the matrix overflows. */
        if (job->program->constant)
            arrays->constant[i] = 2.0 * initial(i + 1) / (double)job->size;
    }
}

static void sweep_and_swap(const struct job *job, struct arrays *arrays, size_t first, size_t end)
{
    job->program->sweep(job->size, first, end, arrays->to, arrays->from, arrays->constant);
    double *made = arrays->to;
    arrays->to = arrays->from;
    arrays->from = made;
}

/* Of all bits, and where they stand. */
static uint64_t checksum(const struct job *job, const double *numbers)
{
    uint64_t mixed = 0xcbf29ce484222325u;
    for (size_t i = 0; i < job->rows * job->row; i++) {
        uint64_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        mixed = (mixed ^ bits) * 0x9e3779b97f4a7c15u;
        mixed ^= mixed >> 29;
    }
    return mixed;
}

static double *private_memory(size_t numbers)
{
    double *memory = calloc(numbers, sizeof *memory);
    if (memory == NULL)
        fail("no memory for %zu numbers", numbers);
    return memory;
}

/* Computes everything once more, alone and in memory of its own, and counts the numbers that differ from what this rank finds in `outcome`. */
static double differences(const struct job *job, const double *outcome)
{
    size_t numbers = job->rows * job->row;
    struct arrays own = {private_memory(numbers), private_memory(numbers), job->program->constant ? private_memory(numbers) : NULL};
    initialise(job, &own, 0, job->rows);
    for (int i = 0; i < WARM_UP_ITERATIONS + job->iterations; i++)
        sweep_and_swap(job, &own, 0, job->rows);
    size_t differ = 0;
    for (size_t i = 0; i < numbers; i++)
        differ += memcmp(&own.from[i], &outcome[i], sizeof outcome[i]) != 0;
    free(own.from);
    free(own.to);
    free(own.constant);
    return (double)differ;
}

static int compare_doubles(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void print_outcome(const struct job *job, double seconds, double *each, uint64_t sum_of_all)
{
    qsort(each, (size_t)job->iterations, sizeof *each, compare_doubles);
    printf("{\"program\":\"%s\",\"size\":%zu,\"iterations\":%d,\"count\":%d,\"seconds\":%.9f,\"seconds_each\":%.9f,"
           "\"seconds_median\":%.9f,\"seconds_least\":%.9f,\"checksum\":\"%016" PRIx64 "\",\"peer\":\"%s\",\"setting\":\"%s\"}\n",
           job->program->name, job->size, job->iterations, count(), seconds, seconds / job->iterations, each[job->iterations / 2], each[0],
           sum_of_all, implementation(), setting());
    fflush(stdout);
}

static int run_part(const void *argument)
{
    const struct job *job = argument;
    size_t bytes = job->rows * job->row * sizeof(double);
    struct arrays arrays = {allocate(bytes), allocate(bytes), job->program->constant ? allocate(bytes) : NULL};
    size_t first = job->rows * (size_t)rank() / (size_t)count(), end = job->rows * (size_t)(rank() + 1) / (size_t)count();
    double *each = private_memory((size_t)job->iterations);

    initialise(job, &arrays, first, end);
    barrier();
    for (int i = 0; i < WARM_UP_ITERATIONS; i++) {
        sweep_and_swap(job, &arrays, first, end);
        barrier();
    }
    double start = now_seconds(), last = start;
    for (int i = 0; i < job->iterations; i++) {
        sweep_and_swap(job, &arrays, first, end);
        barrier();
        double now = now_seconds();
        each[i] = now - last;
        last = now;
    }

    if (rank() == 0)
        print_outcome(job, last - start, each, checksum(job, arrays.from));
    free(each);
    double differ = job->check ? sum(differences(job, arrays.from)) : 0;
    if (differ != 0 && rank() == 0)
        fprintf(stderr, "%s: %.0f numbers are not what one rank alone computes\n", implementation(), differ);
    barrier();
    return differ != 0;
}

/* -1 if it is not a number from 1 to `largest`. */
static long number(const char *text, long largest)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno != 0 || end == text || *end != '\0' || value < 1 || value > largest ? -1 : value;
}

static int usage(void)
{
    fprintf(stderr, "usage: PROGRAM SIZE ITERATIONS [--check]\n");
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++)
        fprintf(stderr, "  %s: SIZE from 1 to %zu\n", PROGRAMS[i].name, PROGRAMS[i].largest_size);
    fprintf(stderr, "  ITERATIONS from 1 to %d; %d more come before the clock starts\n", LARGEST_ITERATIONS, WARM_UP_ITERATIONS);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5 || (argc == 5 && strcmp(argv[4], "--check") != 0))
        return usage();
    const struct program *program = NULL;
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++)
        if (strcmp(argv[1], PROGRAMS[i].name) == 0)
            program = &PROGRAMS[i];
    long size = program == NULL ? -1 : number(argv[2], (long)program->largest_size);
    long iterations = number(argv[3], LARGEST_ITERATIONS);
    if (size < 0 || iterations < 0)
        return usage();
    struct job job = {program, (size_t)size, 1, (size_t)size, (int)iterations, argc == 5};
    for (size_t i = 1; i < program->dimensions; i++)
        job.row *= (size_t)size;
    return run_on_all(run_part, &job);
}
