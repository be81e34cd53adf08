/* cores.h: on which cores the threads are that meet at a barrier. Where there are more threads than cores it matters:
 * who waits for a thread of its own core had better sleep, who waits for those of others need not; and a core with one
 * thread too many is what all wait for, until the kernel sees it, some milliseconds later. */
#ifndef COMB_CORES_H
#define COMB_CORES_H

#include <stdatomic.h>
#include <stdint.h>

/* How many threads are on each core: four bits for each of sixteen; of more cores, every sixteenth is taken for one. */
typedef _Atomic uint64_t comb_cores;

/* Of more threads nobody counts where they are. */
enum { COMB_CORES_THREADS = 15 };

/* Where the calling thread is. */
unsigned comb_core_here(void);

unsigned comb_cores_counted(const comb_cores *cores, unsigned core);
/* Counts one more there: how many that are then. */
unsigned comb_cores_count(comb_cores *cores, unsigned core);

/* The calling thread, which was counted on one core, goes on on this one; if that has more than its share of all
 * `threads`, it goes to one that has fewer. The kernel may move it again at once. */
void comb_cores_go_on(comb_cores *cores, unsigned from, unsigned threads);

#endif
