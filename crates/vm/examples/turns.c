/* Programs in two machines take turns at a number in a segment that both have: no device, no message, one memory.
 *
 *   cc -O2 -static -o turns crates/vm/examples/turns.c
 *   comb vm clone small -n 2 --segment both=64M
 *   for machine in small-1 small-2; do comb vm exec $machine -- sh -c 'cat > /tmp/turns; chmod +x /tmp/turns' < turns; done
 *   comb vm exec small-1 -- /tmp/turns /dev/segments/both 0 1000 &
 *   comb vm exec small-2 -- /tmp/turns /dev/segments/both 1 1000
 *
 * Whose turn it is says the number itself, so that plain loads and stores are enough, in order. (An atomic addition is one among all machines where
 * the host's processor runs them, or the machine has several processors.)
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
    _Atomic uint32_t *number = mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    if (number == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
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
    return 0;
}
