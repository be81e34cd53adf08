/*
 * What a program needs to run on several ranks that load and store in one address space. programs.c knows nothing else; threads.c, mpi_pages.c
 * and comb.c each implement all of it, and one of them is linked.
 *
 * The programs keep to this: of two ranks that use the same 8-byte word, one of them storing, a barrier stands between. Nothing smaller than
 * such a word is shared.
 */
#ifndef SHARED_H
#define SHARED_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Starts the ranks, calls part(argument) once in each, and waits for all of them. What it returns is the process's exit code. It is called first
 * and once; on some implementations in each rank's process, on others in one for all. */
int run_on_all(int (*part)(const void *), const void *argument);

/* All below is for use inside `part`. */
int rank(void);  /* which this is, from 0 */
int count(void); /* how many there are */

/* Memory of zeros at one address in all ranks, which call this in the same order. It is never given back. The part of a rank lives with it if
 * the bytes are split evenly, in the order of ranks, and each stores first to its own. Never NULL: what cannot be had ends the program. */
void *allocate(size_t bytes);

/* Waits for all ranks. What each stored before, all find after it. */
void barrier(void);

/* A barrier that adds up, in the order of ranks: all get the same to the bit. */
double sum(double value);

/* What these numbers were measured on, and how it was set. Both go into a JSON string. */
const char *implementation(void);
const char *setting(void);

static inline double now_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#define fail(...) (fprintf(stderr, "%s: ", implementation()), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

#endif
