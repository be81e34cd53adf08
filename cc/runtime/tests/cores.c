/* How threads find a core that is not crowded, whatever the kernel does with this one meanwhile. Says what is wrong. */
#include "../cores.h"

#include <sched.h>
#include <stdio.h>

enum { CORES = 16, ROUNDS = 1000 };

static unsigned wrong;

static unsigned other_core(const cpu_set_t *allowed, unsigned than)
{
    for (unsigned core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, allowed) && core % CORES != than % CORES)
            return core;
    return than;
}

/* All are counted as many times as there are threads, and none has more than so many. */
static void expect(const char *what, const comb_cores *cores, unsigned threads, unsigned most)
{
    unsigned all = 0, largest = 0;
    for (unsigned core = 0; core < CORES; core++) {
        unsigned here = comb_cores_counted(cores, core);
        all += here;
        largest = here > largest ? here : largest;
    }
    if (all != threads || largest > most) {
        printf("%s: %u threads, and %u on one core\n", what, all, largest);
        wrong++;
    }
}

static void count(comb_cores *cores, unsigned core, unsigned times)
{
    while (times--)
        comb_cores_count(cores, core);
}

int main(void)
{
    cpu_set_t allowed, after;
    sched_getaffinity(0, sizeof allowed, &allowed);
    unsigned available = (unsigned)CPU_COUNT(&allowed);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned here = comb_core_here(), other = other_core(&allowed, here);
        comb_cores crowded = 0, even = 0, many = 0;
        count(&crowded, here, 3);
        count(&crowded, other, 1);
        comb_cores_go_on(&crowded, here, 4);
        expect("three on one and one on the other", &crowded, 4, available > 1 ? 2 : 4);
        count(&even, here, 2);
        count(&even, other, 2);
        comb_cores_go_on(&even, here, 4);
        expect("two on each", &even, 4, other == here ? 4 : 3);
        count(&many, here, COMB_CORES_THREADS);
        comb_cores_go_on(&many, here, COMB_CORES_THREADS);
        expect("all on one", &many, COMB_CORES_THREADS, other == here ? COMB_CORES_THREADS : COMB_CORES_THREADS - 1);
    }
    sched_getaffinity(0, sizeof after, &after);
    if (!CPU_EQUAL(&allowed, &after)) {
        printf("the thread is bound\n");
        wrong++;
    }
    return wrong > 0;
}
