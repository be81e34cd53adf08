/* Signals that come at any time, also between accesses that were checked together: their handlers use shared memory, and wait until they may. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("wrong at line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

enum { COUNT = 20000, SIGNALS = 2000 };

static long *numbers, *more, *zeros;
static long handled, others, is_over;
static char text[300];

static void on_signal(int number)
{
    CHECK(number == SIGUSR1);
    handled++;
    /* Several blocks, which the neighbour also stores to. */
    memset(text, (int)(handled % 100), sizeof text);
    CHECK(text[0] == text[299]);
}

/* Strips of checked accesses, one after the other. */
static void *add(void *unused)
{
    for (long round = 1; !__atomic_load_n(&is_over, __ATOMIC_SEQ_CST); round++) {
        for (int i = 0; i < COUNT; i++)
            numbers[i] += more[i] + zeros[i];
        for (int i = 0; i < COUNT; i++)
            CHECK(numbers[i] == round * i);
    }
    return unused;
}

static void *disturb(void *unused)
{
    do {
        others++;
        numbers[COUNT]++;
        /* What is there already, so that several of the ranges of a strip are missed at once: a handler that comes meanwhile looks at others. */
        for (int i = 0; i < COUNT; i += 128) {
            __atomic_store_n(&more[i], i, __ATOMIC_RELAXED);
            __atomic_store_n(&zeros[i], 0, __ATOMIC_RELAXED);
        }
    } while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST));
    return unused;
}

int main(void)
{
    pthread_t adds, disturbs;
    numbers = calloc(COUNT + 1, sizeof *numbers);
    more = calloc(COUNT, sizeof *more);
    zeros = calloc(COUNT, sizeof *zeros);
    for (int i = 0; i < COUNT; i++)
        more[i] = i;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    CHECK(!pthread_create(&adds, NULL, add, NULL) && !pthread_create(&disturbs, NULL, disturb, NULL));
    for (int i = 0; i < SIGNALS; i++) {
        CHECK(!pthread_kill(adds, SIGUSR1));
        usleep(200);
    }
    /* The last has come, at least. */
    while (!__atomic_load_n(&handled, __ATOMIC_SEQ_CST))
        usleep(1000);
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    CHECK(!pthread_join(adds, NULL) && !pthread_join(disturbs, NULL));
    CHECK(handled >= 1 && handled <= SIGNALS && others >= 1);
    printf("all signals are right\n");
    return 0;
}
