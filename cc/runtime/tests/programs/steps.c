/* A signal between any two of the instructions that note a strip's accesses, pin the thread and look: its handler notes ranges of its own, and another
 * thread takes the strip's blocks away meanwhile. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("wrong at line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

/* The processor's flag that has it trap behind each instruction. */
enum { TRAP_FLAG = 0x100 };
enum { COUNT = 256, ROUNDS = 1000, STEPS_MOST = 200 };

static double *angles, *sines;
static int before_pins, is_over;
static char text[300];
/* The stepped thread's own, for what is shared is stored to in sequences that begin again after each signal. */
static _Thread_local volatile int steps, steps_wanted;
static _Thread_local double came_at[STEPS_MOST];

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    *flags = steps < steps_wanted ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
    if (steps < STEPS_MOST)
        came_at[steps] = seconds();
    steps++;
    memset(text, steps % 100, sizeof text);
    CHECK(text[0] == text[299]);
}

/* One strip, long enough for others to come. */
__attribute__((noinline)) static void compute(double *to, const double *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = sin(from[i]);
}

static void compute_by_steps(int count)
{
    steps = 0;
    steps_wanted = count;
    CHECK(!raise(SIGTRAP));
    compute(sines, angles, COUNT);
    /* What was kept comes here at last. */
    steps_wanted = 0;
    CHECK(!raise(SIGTRAP));
}

/* How many instructions come before the thread is pinned: no handler comes before it is through with all. While nobody disturbs, for by steps it takes so
 * long to fetch what is missing that it would be gone again. */
static int steps_before_pins(void)
{
    compute(sines, angles, COUNT);
    compute_by_steps(STEPS_MOST);
    int longest = 1;
    for (int i = 1; i < steps && i < STEPS_MOST; i++)
        if (came_at[i] - came_at[i - 1] > came_at[longest] - came_at[longest - 1])
            longest = i;
    return longest;
}

static void *work(void *unused)
{
    double expected[COUNT];
    compute(sines, angles, COUNT);
    memcpy(expected, sines, sizeof expected);
    for (int round = 0; round < ROUNDS; round++) {
        compute_by_steps(round % before_pins);
        CHECK(!memcmp(expected, sines, sizeof expected));
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void *disturb(void *unused)
{
    do {
        /* What is there already. */
        for (int i = 0; i < COUNT; i += 16) {
            double angle = i;
            __atomic_store(&angles[i], &angle, __ATOMIC_RELAXED);
        }
    } while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST));
    return unused;
}

int main(void)
{
    pthread_t works, disturbs;
    angles = calloc(COUNT, sizeof *angles);
    sines = calloc(COUNT, sizeof *sines);
    for (int i = 0; i < COUNT; i++)
        angles[i] = i;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    CHECK(!sigaction(SIGTRAP, &action, NULL));
    before_pins = steps_before_pins();
    CHECK(!pthread_create(&works, NULL, work, NULL) && !pthread_create(&disturbs, NULL, disturb, NULL));
    CHECK(!pthread_join(works, NULL) && !pthread_join(disturbs, NULL));
    printf("all steps are right\n");
    return 0;
}
