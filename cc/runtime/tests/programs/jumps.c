/* Jumps whose buffers are in shared memory, each beside numbers that other threads store all the time. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("wrong at line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

enum { THREADS = 4, ROUNDS = 300 };

struct place {
    jmp_buf jump;
    int number;
    sigjmp_buf with_mask;
    int other;
};

static struct place *places;
static jmp_buf global[THREADS];

__attribute__((noinline)) static void leave(struct place *place, int value)
{
    if (value > 3)
        leave(place, value - 1);
    else
        longjmp(place->jump, value);
}

/* Of the neighbour: the blocks go to and fro. */
static void disturb(int self, int round)
{
    places[(self + 1) % THREADS].number = round;
    places[(self + 2) % THREADS].other = round;
}

static int jump_around(int self, volatile int round)
{
    struct place *place = &places[self];
    volatile int seen = 0;
    int value = setjmp(place->jump);
    if (value == 0) {
        disturb(self, round);
        leave(place, 3 + round % 5);
    }
    seen += value;
    value = setjmp(global[self]);
    if (value < 5) {
        disturb(self, round + value);
        longjmp(global[self], value + 1);
    }
    return seen * 10 + value;
}

static void jump_with_mask(int self)
{
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    if (!sigsetjmp(places[self].with_mask, 1)) {
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        disturb(self, 1);
        siglongjmp(places[self].with_mask, 1);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    CHECK(!sigismember(&now, SIGUSR1));
}

static void *work(void *argument)
{
    int self = (int)(long)argument;
    for (int round = 0; round < ROUNDS; round++)
        CHECK(jump_around(self, round) == 35);
    jump_with_mask(self);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    places = calloc(THREADS, sizeof *places);
    for (long i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    printf("all jumps are right\n");
    return 0;
}
