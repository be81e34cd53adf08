/* cores.c: see cores.h. */
#include "cores.h"

#include <sched.h>

#include "words.h"

static unsigned place_of(unsigned core)
{
    return core % 16 * 4;
}

static uint64_t one_on(unsigned core)
{
    return (uint64_t)1 << place_of(core);
}

static unsigned counted(uint64_t cores, unsigned core)
{
    return cores >> place_of(core) & 15;
}

unsigned comb_core_here(void)
{
    int core = sched_getcpu();
    return core < 0 ? 0 : (unsigned)core;
}

unsigned comb_cores_counted(const comb_cores *cores, unsigned core)
{
    return counted(atomic_load_explicit(cores, memory_order_relaxed), core);
}

unsigned comb_cores_count(comb_cores *cores, unsigned core)
{
    return counted(atomic_fetch_add_explicit(cores, one_on(core), memory_order_relaxed), core) + 1;
}

/* The one of those allowed, of which there is one at least, where the fewest are. */
static unsigned emptiest(uint64_t cores, const cpu_set_t *allowed)
{
    unsigned found = 0, fewest = COMB_CORES_THREADS + 1;
    for (unsigned core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, allowed) && counted(cores, core) < fewest) {
            fewest = counted(cores, core);
            found = core;
        }
    }
    return found;
}

static void go_to(unsigned core, const cpu_set_t *allowed)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    if (!sched_setaffinity(0, sizeof only, &only))
        sched_setaffinity(0, sizeof *allowed, allowed);
}

/* A core's part of the threads, where so many may be used. */
static unsigned share_of(unsigned threads, unsigned available)
{
    return (threads + available - 1) / available;
}

/* The calling thread goes from a core with more than its share to one with less, if that is so. How many it may use. */
static unsigned leave_if_crowded(comb_cores *cores, unsigned here, unsigned threads)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || !CPU_COUNT(&allowed))
        return 1;
    unsigned available = (unsigned)CPU_COUNT(&allowed), share = share_of(threads, available), there;
    uint64_t before = atomic_load_explicit(cores, memory_order_relaxed);
    do {
        there = emptiest(before, &allowed);
        if (counted(before, here) <= share || counted(before, there) >= share)
            return available;
    } while (!atomic_compare_exchange_weak_explicit(cores, &before, before - one_on(here) + one_on(there),
                                                    memory_order_relaxed, memory_order_relaxed));
    go_to(there, &allowed);
    return available;
}

void comb_cores_go_on(comb_cores *cores, unsigned from, unsigned threads)
{
    /* As many as there were when a core was crowded, for that changes seldom; at first, as many as any machine has. */
    static comb_word available_then = CPU_SETSIZE;
    unsigned here = comb_core_here(), available = atomic_load_explicit(&available_then, memory_order_relaxed);
    if (here != from)
        atomic_fetch_add_explicit(cores, one_on(here) - one_on(from), memory_order_relaxed);
    if (comb_cores_counted(cores, here) > share_of(threads, available))
        atomic_store_explicit(&available_then, leave_if_crowded(cores, here, threads), memory_order_relaxed);
}
