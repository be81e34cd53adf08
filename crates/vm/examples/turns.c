/* Programs in two machines take turns at a number in a segment that both have: no device, no message, one memory.
 *
 *   cc -O2 -static -o turns crates/vm/examples/turns.c
 *   comb vm clone small -n 2 --cpus 2 --segment both=64M
 *   for machine in small-1 small-2; do comb vm exec $machine -- sh -c 'cat > /tmp/turns; chmod +x /tmp/turns' < turns; done
 *   comb vm exec small-1 -- /tmp/turns /dev/segments/both 0 1000 &
 *   comb vm exec small-2 -- /tmp/turns /dev/segments/both 1 1000
 *
 * Whose turn it is says the number itself. When the turns are over, both add to another number as fast as they can, and none of that is lost.
 * (A clone that is translated needs two processors for that; what has booted does not.)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

/* A device of pages maps them in pieces of this, from a multiple of it. */
enum { PIECE_BYTES = 2 << 20 };

/* The number that takes turns, where both meet, and the sum, each in a cache line of its own. */
enum { NUMBER = 0, MET = 16, SUM = 32 };

enum { ADDITIONS = 1000000 };

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "turns SEGMENT 0|1 TURNS\n");
        return 2;
    }
    unsigned own = (unsigned)atoi(argv[2]), turns = (unsigned)atoi(argv[3]);
    int segment = open(argv[1], O_RDWR);
    if (segment < 0) {
        perror(argv[1]);
        return 1;
    }
    _Atomic uint32_t *piece = mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    if (piece == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    _Atomic uint32_t *number = piece + NUMBER, *met = piece + MET, *sum = piece + SUM;
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (unsigned turn = 0; turn < turns; turn++) {
        uint32_t now;
        while ((now = atomic_load_explicit(number, memory_order_acquire)) % 2 != own)
            ;
        atomic_store_explicit(number, now + 1, memory_order_release);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) * 1e-9;
    printf("%u turns in %.3f s; the number is %u\n", turns, seconds, (unsigned)atomic_load(number));
    /* Two come and two go each time, so that it can be done again. */
    uint32_t meeting = atomic_fetch_add(met, 1) / 4 * 4;
    while (atomic_load(met) < meeting + 2)
        ;
    for (unsigned count = 0; count < ADDITIONS; count++)
        atomic_fetch_add(sum, 1);
    atomic_fetch_add(met, 1);
    while (atomic_load(met) < meeting + 4)
        ;
    unsigned all = (unsigned)atomic_load(sum), wanted = (meeting / 4 + 1) * 2u * ADDITIONS;
    printf("%u additions, %u were lost\n", all, wanted - all);
    return 0;
}
