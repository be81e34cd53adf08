/* Heat on a square plate, by threads: the program of docs/tutorial/README.md. It knows nothing of cells.
 *
 *     heat THREADS [SIDE] [STEPS]
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_THREADS = 64 };

static int threads, side = 1024, steps = 200;
static double *plates[2];
static pthread_barrier_t barrier;

/* What each thread has moved in all: a slot each, and all slots in a row. */
static double moved[MOST_THREADS];

static void step(int thread, int first, int last, const double *from, double *to) {
    for (int row = first; row < last; row++) {
        for (int column = 1; column < side - 1; column++) {
            int at = row * side + column;
            to[at] = 0.25 * (from[at - side] + from[at + side] + from[at - 1] + from[at + 1]);
        }
        /* A row's sum goes to the thread's slot at once. */
        for (int column = 1; column < side - 1; column += 8) moved[thread] += fabs(to[row * side + column] - from[row * side + column]);
    }
}

static void *work(void *argument) {
    int thread = (int)(long)argument;
    int first = 1 + (side - 2) * thread / threads, last = 1 + (side - 2) * (thread + 1) / threads;
    /* Memory comes to live where it is touched first. */
    for (int plate = 0; plate < 2; plate++)
        for (int row = thread == 0 ? 0 : first; row < (thread + 1 == threads ? side : last); row++)
            for (int column = 0; column < side; column++) plates[plate][row * side + column] = row == 0 ? 100.0 : 0.0;
    pthread_barrier_wait(&barrier);
    for (int time = 0; time < steps; time++) {
        step(thread, first, last, plates[time % 2], plates[(time + 1) % 2]);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int count, char **words) {
    threads = count > 1 ? atoi(words[1]) : 0;
    if (count > 2) side = atoi(words[2]);
    if (count > 3) steps = atoi(words[3]);
    if (threads < 1 || threads > MOST_THREADS || side < 8 || steps < 1) {
        fprintf(stderr, "usage: heat THREADS [SIDE] [STEPS]; 1 to %d threads, a side of 8 or more\n", MOST_THREADS);
        return 2;
    }
    for (int plate = 0; plate < 2; plate++) plates[plate] = malloc(sizeof(double) * (size_t)side * (size_t)side);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t thread[MOST_THREADS];
    for (long number = 0; number < threads; number++) pthread_create(&thread[number], NULL, work, (void *)number);
    for (int number = 0; number < threads; number++) pthread_join(thread[number], NULL);
    double sum = 0;
    for (int at = 0; at < side * side; at++) sum += plates[steps % 2][at];
    double all = 0;
    for (int number = 0; number < threads; number++) all += moved[number];
    printf("heat %.6f, moved %.3f\n", sum, all);
    return 0;
}
