/*
 * What the programs here have in common: their command line, their threads, a barrier, the largest of the threads'
 * numbers, and random numbers that do not depend on who asks.
 *
 * A program describes itself by a `struct program` and calls program_main. The main thread is thread 0 and works like
 * the others. Memory is shared as in any program with threads: globals, and what malloc returns.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum program_size { SIZE_SMALL, SIZE_MEDIUM, SIZE_LARGE, SIZE_PAPER, SIZES };

/* The longest stretch of memory that a machine or a library is likely to hand from processor to processor as one.
 * What one thread writes and another does not starts at a multiple of it. */
enum { LINE_BYTES = 128, PAGE_BYTES = 4096 };

struct program {
    const char *name;
    /* One line each, for people. */
    const char *computes;
    const char *inputs[SIZES];
    /* Chooses the input of that size, and allocates what belongs to no thread. Only the main thread runs. */
    void (*prepare)(enum program_size size);
    /* One thread's work: sets up its own share of the data, calls program_start, computes, calls program_stop. */
    void (*part)(int thread);
    /* Computes again without threads, and compares; says what differs by program_differs. Only the main thread runs. */
    bool (*check)(void);
};

int program_main(const struct program *program, int argc, char **argv);

/* How many threads there are. Set before `prepare`, and constant from then on. */
extern int program_threads;

/* Every thread calls it, and none returns before all have. */
void program_barrier(void);

/* Between a thread's set-up and its work, and after its work: barriers between which time is measured. */
void program_start(int thread);
void program_stop(int thread);

/* For a check that computes again what the threads have computed, after it has put their result aside: calls
 * `prepare` for the same size, and `part` as the only thread. */
void program_compute_alone(void);

/* The largest of all threads' values, for each of them. A barrier too. Not the sum: that would depend on the order. */
double program_largest(int thread, double value);

/* Memory for one thread's share, or for everybody: freed when the program ends, not written yet (who writes a page
 * first decides where it is), starting a page if it is as long as one, else a line. Ends the program if there is
 * none. */
void *program_allocate(size_t count, size_t bytes);

/* The same, but all zero. */
void *program_allocate_zeros(size_t count, size_t bytes);

/* Says what is wrong, like printf, after the program's name; returns false, for a check to return. */
__attribute__((format(printf, 1, 2))) bool program_differs(const char *format, ...);

struct range {
    long first, end;
};

/* A thread's share of `count` things in a row. Shares differ by one thing at most; some are empty if there are more
 * threads than things. */
static inline struct range share_of(long count, int part, int parts)
{
    return (struct range){count * part / parts, count * (part + 1) / parts};
}

static inline struct range own_share(long count, int thread)
{
    return share_of(count, thread, program_threads);
}

/* Whose share of `count` things that one is in. */
static inline int owner_of(long index, long count, int parts)
{
    return (int)(((index + 1) * parts - 1) / count);
}

/* A random number for this seed: the same on every thread, in any order (the finalizer of splitmix64, by Steele, Lea
 * and Flood). */
static inline uint64_t random_bits(uint64_t seed)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    seed = (seed ^ (seed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ (seed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return seed ^ (seed >> 31);
}

/* At least 0, less than 1. */
static inline double random_unit(uint64_t seed)
{
    return (double)(random_bits(seed) >> 11) * 0x1p-53;
}

#endif
