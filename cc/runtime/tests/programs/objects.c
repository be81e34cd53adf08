/* Every object for synchronisation, used by several threads; what comes out is known. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS 4
#define TURNS 500

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("wrong at line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static sem_t semaphore, items;

static long by_normal, by_recursive, by_spin, by_writer, by_semaphore, first_times, serial_threads;
static int queue[8], queued, taken_sum;

static void count_once(void)
{
    first_times++;
}

static struct timespec in_ms(clockid_t clock, long milliseconds)
{
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_nsec += milliseconds * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void use_locks(void)
{
    for (int turn = 0; turn < TURNS; turn++) {
        CHECK(!pthread_mutex_lock(&normal));
        by_normal++;
        CHECK(!pthread_mutex_unlock(&normal));

        CHECK(!pthread_mutex_lock(&recursive));
        CHECK(!pthread_mutex_lock(&recursive));
        by_recursive++;
        CHECK(!pthread_mutex_unlock(&recursive));
        CHECK(!pthread_mutex_trylock(&recursive));
        by_recursive++;
        CHECK(!pthread_mutex_unlock(&recursive));
        CHECK(!pthread_mutex_unlock(&recursive));

        CHECK(!pthread_spin_lock(&spin));
        by_spin++;
        CHECK(!pthread_spin_unlock(&spin));

        CHECK(!pthread_rwlock_wrlock(&rwlock));
        by_writer++;
        CHECK(!pthread_rwlock_unlock(&rwlock));
        CHECK(!pthread_rwlock_rdlock(&rwlock));
        CHECK(by_writer > 0);
        CHECK(!pthread_rwlock_unlock(&rwlock));

        CHECK(!sem_wait(&semaphore));
        by_semaphore++;
        CHECK(!sem_post(&semaphore));
    }
}

static void produce_and_consume(int self)
{
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_mutex_lock(&normal);
        if (self % 2) {
            while (queued == 8)
                pthread_cond_wait(&condition, &normal);
            queue[queued++] = turn;
        } else {
            while (!queued)
                pthread_cond_wait(&condition, &normal);
            taken_sum += queue[--queued];
        }
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&normal);
    }
}

static void *work(void *argument)
{
    int self = (int)(long)argument;
    pthread_once(&once, count_once);
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        __atomic_fetch_add(&serial_threads, 1, __ATOMIC_SEQ_CST);
    use_locks();
    for (int turn = 0; turn < 50; turn++)
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_fetch_add(&serial_threads, 1, __ATOMIC_SEQ_CST);
    produce_and_consume(self);
    return (void *)(long)(self * 10);
}

static int may_let_go;

static void *hold_for_a_while(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&normal);
    pthread_rwlock_wrlock(&rwlock);
    sem_post(&items);
    struct timespec a_while = {0, 1000000};
    while (!__atomic_load_n(&may_let_go, __ATOMIC_SEQ_CST))
        nanosleep(&a_while, NULL);
    pthread_rwlock_unlock(&rwlock);
    pthread_mutex_unlock(&normal);
    return NULL;
}

static void *wait_until_late(void *unused)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 30);
    CHECK(pthread_mutex_trylock(&normal) == EBUSY);
    CHECK(pthread_mutex_timedlock(&normal, &at) == ETIMEDOUT);
    CHECK(pthread_rwlock_tryrdlock(&rwlock) == EBUSY);
    CHECK(pthread_rwlock_trywrlock(&rwlock) == EBUSY);
    at = in_ms(CLOCK_REALTIME, 30);
    CHECK(pthread_rwlock_timedrdlock(&rwlock, &at) == ETIMEDOUT);
    CHECK(sem_trywait(&items) == -1 && errno == EAGAIN);
    at = in_ms(CLOCK_REALTIME, 30);
    CHECK(sem_timedwait(&items, &at) == -1 && errno == ETIMEDOUT);
    __atomic_store_n(&may_let_go, 1, __ATOMIC_SEQ_CST);
    at = in_ms(CLOCK_REALTIME, 10000);
    CHECK(!pthread_mutex_timedlock(&normal, &at));
    at = in_ms(CLOCK_REALTIME, 30);
    CHECK(pthread_cond_timedwait(&condition, &normal, &at) == ETIMEDOUT);
    CHECK(!pthread_mutex_unlock(&normal));
    return unused;
}

static void errors(void)
{
    CHECK(!pthread_mutex_lock(&checking));
    CHECK(pthread_mutex_lock(&checking) == EDEADLK);
    CHECK(!pthread_mutex_unlock(&checking));
    CHECK(pthread_mutex_unlock(&checking) == EPERM);

    pthread_mutexattr_t attributes;
    int type;
    CHECK(!pthread_mutexattr_init(&attributes));
    CHECK(!pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE));
    CHECK(!pthread_mutexattr_gettype(&attributes, &type) && type == PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_t mutex;
    CHECK(!pthread_mutex_init(&mutex, &attributes));
    CHECK(!pthread_mutex_lock(&mutex) && !pthread_mutex_lock(&mutex));
    CHECK(!pthread_mutex_unlock(&mutex) && !pthread_mutex_unlock(&mutex));
    CHECK(!pthread_mutex_destroy(&mutex));

    pthread_condattr_t of_condition;
    pthread_cond_t monotonic;
    CHECK(!pthread_condattr_init(&of_condition));
    CHECK(!pthread_condattr_setclock(&of_condition, CLOCK_MONOTONIC));
    CHECK(!pthread_cond_init(&monotonic, &of_condition));
    pthread_mutex_lock(&normal);
    struct timespec at = in_ms(CLOCK_MONOTONIC, 20);
    CHECK(pthread_cond_timedwait(&monotonic, &normal, &at) == ETIMEDOUT);
    pthread_mutex_unlock(&normal);
    CHECK(!pthread_cond_destroy(&monotonic));
    int value;
    CHECK(!sem_getvalue(&semaphore, &value) && value == 1);
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    sem_init(&semaphore, 0, 1);
    sem_init(&items, 0, 0);
    for (long i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(!pthread_join(threads[i], &result));
        CHECK(result == (void *)(i * 10));
    }
    CHECK(by_normal == THREADS * TURNS);
    CHECK(by_recursive == 2 * THREADS * TURNS);
    CHECK(by_spin == THREADS * TURNS);
    CHECK(by_writer == THREADS * TURNS);
    CHECK(by_semaphore == THREADS * TURNS);
    CHECK(first_times == 1);
    CHECK(serial_threads == 51);
    CHECK(taken_sum == THREADS / 2 * (TURNS * (TURNS - 1) / 2));
    errors();

    pthread_t holder, late;
    CHECK(!pthread_create(&holder, NULL, hold_for_a_while, NULL));
    CHECK(!sem_wait(&items));
    CHECK(!pthread_create(&late, NULL, wait_until_late, NULL));
    CHECK(!pthread_join(late, NULL));
    CHECK(!pthread_join(holder, NULL));
    CHECK(!pthread_barrier_destroy(&barrier));
    printf("all objects hold\n");
    return 0;
}
