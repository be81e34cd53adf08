/* C11's threads: what <threads.h> has, by threads wherever they run. */
#include <stdio.h>
#include <threads.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 200 };

static mtx_t mutex, again;
static cnd_t changed;
static once_flag once = ONCE_FLAG_INIT;
static tss_t own;
static int count, made, turn, ended;

static void make(void)
{
    made++;
}

static void end_of_own(void *value)
{
    mtx_lock(&mutex);
    ended += *(int *)value;
    mtx_unlock(&mutex);
}

static int work(void *argument)
{
    int number = *(int *)argument;
    call_once(&once, make);
    tss_set(own, argument);
    for (int round = 0; round < ROUNDS; round++) {
        mtx_lock(&mutex);
        count++;
        mtx_unlock(&mutex);
    }
    mtx_lock(&again);
    mtx_lock(&again);
    mtx_unlock(&again);
    mtx_unlock(&again);
    /* One after the other, by number. */
    mtx_lock(&mutex);
    while (turn != number)
        cnd_wait(&changed, &mutex);
    turn++;
    cnd_broadcast(&changed);
    mtx_unlock(&mutex);
    return *(int *)tss_get(own) * 10;
}

int main(void)
{
    thrd_t threads[THREADS];
    int numbers[THREADS], sum = 0;
    if (mtx_init(&mutex, mtx_plain) != thrd_success || mtx_init(&again, mtx_recursive) != thrd_success || cnd_init(&changed) != thrd_success ||
        tss_create(&own, end_of_own) != thrd_success)
        return 1;
    for (int number = 0; number < THREADS; number++) {
        numbers[number] = number;
        if (thrd_create(&threads[number], work, &numbers[number]) != thrd_success)
            return 1;
    }
    for (int number = 0; number < THREADS; number++) {
        int result;
        thrd_join(threads[number], &result);
        sum += result;
    }
    struct timespec soon;
    timespec_get(&soon, TIME_UTC);
    mtx_lock(&mutex);
    int waited = cnd_timedwait(&changed, &mutex, &soon);
    mtx_unlock(&mutex);
    printf("%d counted, made %d times, results %d, ends %d, %s\n", count, made, sum, ended, waited == thrd_timedout ? "late" : "not late");
    return 0;
}
