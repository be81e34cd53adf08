/* Atomic operations of all kinds and widths, by one thread and by several. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint8_t bytes[64];
static uint16_t halves[64];
static uint32_t words[64];
static uint64_t longs[64];
static unsigned __int128 pair __attribute__((aligned(16)));
static _Atomic double real;
static int flag, turn_lock, *shared;

#define ALL(type, p, v)                                                                                            \
    do {                                                                                                           \
        total += __atomic_fetch_add(p, (type)(v), __ATOMIC_SEQ_CST);                                               \
        total += __atomic_sub_fetch(p, (type)(3), __ATOMIC_ACQ_REL);                                               \
        total += __atomic_fetch_or(p, (type)(v), __ATOMIC_RELAXED);                                                \
        total += __atomic_fetch_and(p, (type)(~8ull), __ATOMIC_RELAXED);                                           \
        total += __atomic_fetch_xor(p, (type)(v), __ATOMIC_RELEASE);                                               \
        total += __atomic_fetch_nand(p, (type)(v), __ATOMIC_SEQ_CST);                                              \
        total += __atomic_exchange_n(p, (type)(v), __ATOMIC_SEQ_CST);                                              \
        type expected = __atomic_load_n(p, __ATOMIC_ACQUIRE);                                                      \
        total += __atomic_compare_exchange_n(p, &expected, (type)(v + 1), 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);  \
        expected = 9;                                                                                              \
        total += __atomic_compare_exchange_n(p, &expected, (type)(v + 1), 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);  \
        __atomic_store_n(p, (type)(v * 3), __ATOMIC_SEQ_CST);                                                      \
        __atomic_store_n(p, (type)(v * 5), __ATOMIC_RELEASE);                                                      \
        total += __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                             \
        __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);                                                                \
        __atomic_fetch_or(p, 64, __ATOMIC_SEQ_CST);                                                                \
    } while (0)

static void *work(void *argument)
{
    long own = (long)argument;
    for (int i = 0; i < 5000; i++) {
        __atomic_fetch_add(&longs[1], 1, __ATOMIC_RELAXED);
        while (__atomic_exchange_n(&turn_lock, 1, __ATOMIC_ACQUIRE))
            while (__atomic_load_n(&turn_lock, __ATOMIC_RELAXED))
                __builtin_ia32_pause();
        shared[own % 3]++;
        shared[3]++;
        __atomic_store_n(&turn_lock, 0, __ATOMIC_RELEASE);
        if (own == 0)
            real += 0.5;
    }
    __atomic_fetch_add(&flag, 1, __ATOMIC_RELEASE);
    return NULL;
}

int main(void)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < 6000; i++) {
        ALL(uint8_t, &bytes[i % 64], i);
        ALL(uint16_t, &halves[i % 64], i);
        ALL(uint32_t, &words[i % 64], i);
        ALL(uint64_t, &longs[i % 64], i);
        __sync_fetch_and_max((int *)&words[1], (int)i);
        unsigned __int128 expected = pair, wanted = expected * 3 + i;
        total += __sync_bool_compare_and_swap(&pair, expected, wanted);
    }
    longs[1] = 0;
    total += (uint64_t)(pair >> 64) + (uint64_t)pair;
    shared = calloc(100, sizeof *shared);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("%lu %lu %d %d %d %d %d %f\n", total, longs[1], shared[0], shared[1], shared[2], shared[3], flag, real);
    return 0;
}
