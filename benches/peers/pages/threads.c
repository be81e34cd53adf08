/*
 * The ranks are threads of one process: the programs as they would be on one machine with one memory. PAGES_THREADS says how many (1 to 64; 1
 * if it is not set).
 *
 * The barrier spins for as long as each rank can have a CPU, and then sleeps: pthread_barrier_t sleeps at once, and the wake-up, 15 to 30 µs,
 * would flatter whoever is compared with this.
 */
#define _GNU_SOURCE
#include "shared.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    THREADS_AT_MOST = 64,
    ALLOCATIONS_AT_MOST = 16,
    /* About a millisecond: much longer than it takes to wake somebody, much shorter than what it costs if the last rank has lost its CPU. */
    SPINS = 50000
};

static int threads = 1;
static bool each_has_a_cpu;
static int (*part_of_each)(const void *);
static const void *argument_of_each;

static _Thread_local int own_rank;
static _Thread_local int own_allocations;

/* Whoever comes last sets `arrived` back and counts `round` up, for which the others wait. */
static _Alignas(64) _Atomic int arrived;
static _Alignas(64) _Atomic uint32_t barrier_round;
static _Atomic int sleepers;
static _Alignas(64) double values[THREADS_AT_MOST];
static void *allocations[ALLOCATIONS_AT_MOST];

const char *implementation(void)
{
    return "threads";
}

const char *setting(void)
{
    return "";
}

int rank(void)
{
    return own_rank;
}

int count(void)
{
    return threads;
}

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

void barrier(void)
{
    uint32_t round = atomic_load_explicit(&barrier_round, memory_order_relaxed);
    if (atomic_fetch_add(&arrived, 1) == threads - 1) {
        atomic_store(&arrived, 0);
        atomic_store(&barrier_round, round + 1);
        if (atomic_load(&sleepers) > 0)
            syscall(SYS_futex, &barrier_round, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
        return;
    }
    for (int spin = each_has_a_cpu ? SPINS : 0; spin > 0; spin--) {
        if (atomic_load_explicit(&barrier_round, memory_order_acquire) != round)
            return;
        relax();
    }
    atomic_fetch_add(&sleepers, 1);
    while (atomic_load(&barrier_round) == round)
        syscall(SYS_futex, &barrier_round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
    atomic_fetch_sub(&sleepers, 1);
}

double sum(double value)
{
    values[own_rank] = value;
    barrier();
    double total = 0;
    for (int i = 0; i < threads; i++)
        total += values[i];
    barrier(); /* nobody overwrites a value before all have read it */
    return total;
}

void *allocate(size_t bytes)
{
    int mine = own_allocations++;
    if (mine == ALLOCATIONS_AT_MOST)
        fail("more than %d allocations", ALLOCATIONS_AT_MOST);
    if (own_rank == 0) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            fail("no memory for %zu bytes: %s", bytes, strerror(errno));
        allocations[mine] = memory;
    }
    barrier();
    return allocations[mine];
}

static void *run_thread(void *which)
{
    own_rank = (int)(intptr_t)which;
    return (void *)(intptr_t)part_of_each(argument_of_each);
}

int run_on_all(int (*part)(const void *), const void *argument)
{
    const char *text = getenv("PAGES_THREADS");
    if (text != NULL)
        threads = atoi(text);
    if (threads < 1 || threads > THREADS_AT_MOST)
        fail("PAGES_THREADS is not a number from 1 to %d", THREADS_AT_MOST);
    cpu_set_t cpus;
    each_has_a_cpu = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= threads;
    part_of_each = part;
    argument_of_each = argument;

    pthread_t others[THREADS_AT_MOST];
    for (int i = 1; i < threads; i++)
        if (pthread_create(&others[i], NULL, run_thread, (void *)(intptr_t)i) != 0)
            fail("no thread %d", i);
    int code = part(argument);
    for (int i = 1; i < threads; i++) {
        void *its_code;
        pthread_join(others[i], &its_code);
        code |= (int)(intptr_t)its_code;
    }
    return code;
}
