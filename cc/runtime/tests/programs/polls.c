/* Threads that compute for long without a call, in different ways, while others ask for what lies with them: all is there, and nobody waits for
 * the end of the computation. Loops that poll keep what is in registers and flags. */
#include <pthread.h>
#include <stdio.h>

#define THREADS 4
#define WORDS 4096
#define ROUNDS 300

static long words[THREADS][WORDS];
static double sums[THREADS];
static pthread_barrier_t barrier;

static unsigned long mix(unsigned long seed, long turns)
{
    double a = 1, b = 2, c = 3, d = 4;
    unsigned long low = seed, high = ~seed, third = seed << 7, fourth = seed >> 3;
    for (long turn = 0; turn != turns; turn++) {
        low = low * 6364136223846793005UL + high;
        high ^= low >> 29;
        third += fourth ^ low;
        fourth = fourth << 1 | third >> 63;
        a = a * 0.5 + b;
        b = b * 0.25 + c;
        c = c * 0.125 + d;
        d = d * 0.0625 + (double)(low & 7);
        if (low + high < third)
            fourth++;
    }
    return low ^ high ^ third ^ fourth ^ (unsigned long)(a + b + c + d);
}

static void *compute(void *argument)
{
    long me = (long)argument;
    for (long round = 0; round < ROUNDS; round++) {
        unsigned long mixed = mix((unsigned long)round, 2000 + me * 500);
        /* A chain, which is no strip: each word says where the next is. */
        long at = (long)(mixed % WORDS);
        double sum = 0;
        for (long step = 0; step < 500; step++) {
            long *word = &words[(me + step) % THREADS][at];
            __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
            sum += (double)step;
            at = (at * 5 + 3) % WORDS;
        }
        sums[me] += sum;
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, compute, (void *)index);
    long total = 0;
    double sum = 0;
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
    for (int index = 0; index < THREADS; index++) {
        sum += sums[index];
        for (int word = 0; word < WORDS; word++)
            total += words[index][word];
    }
    printf("%ld %.0f %lx\n", total, sum, mix(1, 100000));
    return 0;
}
