/* How much slower the wrappers are than libc's functions when everything is here: ratios in one run, best of several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../pinned.h"
#include "../../reach.h"

__thread struct comb_thread comb_thread;

static void never(void)
{
    abort();
}
void comb_pin(const struct comb_need *needs, int count)
{
    (void)needs, (void)count, never();
}
void comb_unpin(void)
{
    never();
}
void comb_copy_from(void *own, const void *shared, size_t bytes)
{
    comb_hold(shared, bytes, 0);
    memcpy(own, shared, bytes);
    comb_release();
}
void comb_copy_to(void *shared, const void *own, size_t bytes)
{
    comb_hold(shared, bytes, 1);
    memcpy(shared, own, bytes);
    comb_release();
}

size_t comb_length(const char *shared, size_t most)
{
    return strnlen(shared, most);
}
void *comb_lib_malloc(size_t bytes)
{
    return malloc(bytes);
}

static void *(*volatile copies[2])(void *restrict, const void *restrict, size_t) = {memcpy, comb_lib_memcpy};
static void *(*volatile sets[2])(void *, int, size_t) = {memset, comb_lib_memset};
static size_t (*volatile lengths[2])(const char *) = {strlen, comb_lib_strlen};
static int (*volatile orders[2])(const char *, const char *) = {strcmp, comb_lib_strcmp};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static char *from, *to;
static volatile size_t sink;

static double once(int what, int is_ours, size_t bytes, unsigned long times)
{
    double start = now();
    for (unsigned long count = 0; count < times; count++) {
        switch (what) {
        case 0: copies[is_ours](to, from, bytes); break;
        case 1: sets[is_ours](to, 1, bytes); break;
        case 2: sink = lengths[is_ours](from); break;
        default: sink = (size_t)orders[is_ours](from, to);
        }
    }
    return (now() - start) / (double)times * 1e9;
}

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (mmap((void *)COMB_STATE_TABLE, COMB_STATE_BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0) !=
        (void *)COMB_STATE_TABLE)
        return 1;
    enum { ROOM = 256 << 20 };
    from = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, flags, -1, 0);
    to = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, flags, -1, 0);
    memset(from, 1, ROOM), memset(to, 1, ROOM);
    static const char *const names[] = {"memcpy", "memset", "strlen", "strcmp"};
    static const size_t sizes[] = {8, 64, 256, 1024, 4096, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 200 << 20};
    for (int what = 0; what < 4; what++) {
        for (unsigned at = 0; at < sizeof sizes / sizeof *sizes; at++) {
            size_t bytes = sizes[at];
            from[bytes] = to[bytes] = 0;
            memset(from, 1, bytes), memset(to, 1, bytes);
            unsigned long times = 1 + (40 << 20) / (bytes + 400);
            double best[2] = {1e18, 1e18};
            for (int round = 0; round < 8; round++) {
                for (int is_ours = 0; is_ours < 2; is_ours++) {
                    double took = once(what, is_ours, bytes, times);
                    best[is_ours] = took < best[is_ours] ? took : best[is_ours];
                }
            }
            printf("%s %9zu bytes: %12.1f ns, libc %12.1f ns, ratio %.2f\n", names[what], bytes, best[1], best[0],
                   best[1] / best[0]);
            from[bytes] = to[bytes] = 1;
        }
    }
}
