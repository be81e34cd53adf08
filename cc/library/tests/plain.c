/* The world without Comb: what libc does with ordinary memory. */
#include "world.h"

#include <sys/mman.h>

void world_begin(void)
{
    void *arena = mmap(ARENA, ARENA_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (arena != ARENA)
        abort();
}

void world_end(void)
{
}

void put(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void get(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void theft(void)
{
}
