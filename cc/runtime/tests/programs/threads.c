/* What a program may do with threads: join in all ways, detach, exit, keys with destructors, names, signals,
 * attributes. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
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

static pthread_key_t key, plain_key;
static int destroyed, detached_done, may_end, signals;
static pthread_t selves[8];

static void destroy(void *value)
{
    __atomic_fetch_add(&destroyed, *(int *)value, __ATOMIC_SEQ_CST);
    free(value);
}

static void *with_value(void *argument)
{
    int *value = malloc(sizeof *value);
    *value = (int)(long)argument;
    CHECK(pthread_getspecific(key) == NULL);
    CHECK(!pthread_setspecific(key, value));
    CHECK(!pthread_setspecific(plain_key, argument));
    CHECK(pthread_getspecific(key) == value);
    CHECK(pthread_getspecific(plain_key) == argument);
    selves[(long)argument] = pthread_self();
    return argument;
}

static void exit_deep(int depth)
{
    if (!depth)
        pthread_exit((void *)77L);
    exit_deep(depth - 1);
}

static void *exits(void *unused)
{
    (void)unused;
    exit_deep(10);
    return NULL;
}

static void *waits(void *unused)
{
    while (!__atomic_load_n(&may_end, __ATOMIC_SEQ_CST))
        usleep(1000);
    return unused;
}

static void *detached(void *unused)
{
    __atomic_store_n(&detached_done, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void on_signal(int number)
{
    if (number == SIGUSR1)
        __atomic_fetch_add(&signals, 1, __ATOMIC_SEQ_CST);
}

static void *creates_more(void *argument)
{
    long depth = (long)argument;
    pthread_t child;
    void *result = NULL;
    if (depth) {
        CHECK(!pthread_create(&child, NULL, creates_more, (void *)(depth - 1)));
        CHECK(!pthread_join(child, &result));
    }
    return (void *)((long)result + depth);
}

static void *reads_attributes(void *unused)
{
    pthread_attr_t attributes;
    size_t bytes;
    CHECK(!pthread_getattr_np(pthread_self(), &attributes));
    CHECK(!pthread_attr_getstacksize(&attributes, &bytes));
    CHECK(bytes >= 1 << 20);
    pthread_attr_destroy(&attributes);
    char name[16];
    CHECK(!pthread_setname_np(pthread_self(), "worker"));
    CHECK(!pthread_getname_np(pthread_self(), name, sizeof name) && !strcmp(name, "worker"));
    CHECK(pthread_setname_np(pthread_self(), "a name that is too long") == ERANGE);
    return unused;
}

static int cleaned;

static void clean(void *digit)
{
    cleaned = cleaned * 10 + (int)(long)digit;
}

__attribute__((noinline)) static void exits_within(void)
{
    pthread_cleanup_push(clean, (void *)3L);
    pthread_cleanup_push(clean, (void *)9L);
    pthread_cleanup_pop(0);
    pthread_exit((void *)55L);
    pthread_cleanup_pop(0);
}

static void *cleans_up(void *unused)
{
    pthread_cleanup_push(clean, (void *)1L);
    pthread_cleanup_push(clean, (void *)2L);
    pthread_cleanup_pop(1);
    exits_within();
    pthread_cleanup_pop(0);
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[8];
    void *result;
    CHECK(count >= 1 && strlen(arguments[0]) > 0);
    CHECK(!pthread_key_create(&key, destroy));
    CHECK(!pthread_key_create(&plain_key, NULL));
    for (long i = 0; i < 8; i++)
        CHECK(!pthread_create(&threads[i], NULL, with_value, (void *)i));
    for (long i = 0; i < 8; i++)
        CHECK(!pthread_join(threads[i], &result) && result == (void *)i);
    CHECK(destroyed == 28);
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_equal(selves[i], threads[i]));
        CHECK(!pthread_equal(selves[i], pthread_self()));
        CHECK(pthread_join(threads[i], NULL) == ESRCH);
    }
    CHECK(!pthread_key_delete(key));
    pthread_key_t next;
    CHECK(!pthread_key_create(&next, NULL));
    CHECK(next != key && pthread_getspecific(next) == NULL);

    CHECK(!pthread_create(&threads[0], NULL, exits, NULL));
    CHECK(!pthread_join(threads[0], &result) && result == (void *)77L);

    CHECK(!pthread_create(&threads[0], NULL, cleans_up, NULL));
    CHECK(!pthread_join(threads[0], &result) && result == (void *)55L && cleaned == 231);

    for (int i = 0; i < 4; i++) {
        may_end = 0;
        CHECK(!pthread_create(&threads[0], NULL, waits, NULL));
        CHECK(pthread_tryjoin_np(threads[0], NULL) == EBUSY);
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        CHECK(pthread_timedjoin_np(threads[0], NULL, &at) == ETIMEDOUT);
        CHECK(pthread_kill(threads[0], 0) == 0);
        CHECK(signal(SIGUSR1, on_signal) == (i ? on_signal : SIG_DFL));
        CHECK(pthread_kill(threads[0], SIGUSR1) == 0);
        while (__atomic_load_n(&signals, __ATOMIC_SEQ_CST) != i + 1)
            usleep(1000);
        __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
        CHECK(!pthread_join(threads[0], NULL));
    }

    pthread_attr_t attributes;
    int state;
    CHECK(!pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    CHECK(!pthread_attr_getdetachstate(&attributes, &state) && state == PTHREAD_CREATE_DETACHED);
    CHECK(!pthread_attr_setstacksize(&attributes, 1 << 20));
    CHECK(!pthread_create(&threads[0], &attributes, detached, NULL));
    while (!__atomic_load_n(&detached_done, __ATOMIC_SEQ_CST))
        usleep(1000);
    CHECK(pthread_attr_setdetachstate(&attributes, 17) == EINVAL);
    CHECK(!pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_JOINABLE));
    CHECK(!pthread_create(&threads[0], &attributes, reads_attributes, NULL));
    CHECK(!pthread_join(threads[0], NULL));
    CHECK(!pthread_attr_destroy(&attributes));

    CHECK(!pthread_create(&threads[0], NULL, creates_more, (void *)6L));
    CHECK(!pthread_join(threads[0], &result) && result == (void *)21L);
    CHECK(pthread_join(pthread_self(), NULL) == EDEADLK);
    CHECK(pthread_cancel(pthread_self()) == ENOSYS);
    printf("all threads are right\n");
    return 0;
}
