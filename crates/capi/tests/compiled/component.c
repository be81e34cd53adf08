/* A component of a program as combcc's runtime has it: component 0 does what is to be done, all others serve its
 * calls. It has two images, and does by hand what the runtime does.
 * Arguments: the status to end with, and what must be alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comb_program.h"

enum { PAGE = 4096, THREADS = 2, ROUNDS = 50 };

/* Images: nothing else is in their pages. */
struct numbers { _Atomic long of[PAGE / sizeof(long) * 3]; };
static _Alignas(PAGE) struct numbers numbers = {.of = {11, 22, 33}};
static _Alignas(PAGE) struct { _Atomic long of[PAGE / sizeof(long) * 64]; } zeros;

/* Private, as libc's data are. */
static const struct comb_program *comb;
static struct comb_place place;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "component %u, line %d: %s does not hold (%s)\n", place.rank, __LINE__, #condition, \
                    comb->error()); \
            _exit(1); \
        } \
    } while (0)

/* ── services ── */

enum { ECHO = 1, RUN = 2 };

struct run { long (*function)(long); long argument; };

static void serve(struct comb_incoming *incoming) {
    if (incoming->service == ECHO) {
        comb->answer(incoming, (long)incoming->in_bytes, incoming->in, incoming->in_bytes, (int)incoming->from);
        return;
    }
    CHECK(incoming->service == RUN && incoming->in_bytes == sizeof(struct run));
    const struct run *run = incoming->in;
    comb->answer(incoming, run->function(run->argument), NULL, 0, 0);
}

static void *serve_calls(void *unused) {
    (void)unused;
    for (struct comb_incoming incoming; comb->next(&incoming) == 0;) {
        serve(&incoming);
    }
    return NULL;
}

/* Runs a function on a component, which has it at the same address, and waits for its end. */
static long run_on(unsigned rank, long (*function)(long), long argument) {
    struct run run = {function, argument};
    int error = 99;
    long result = comb->call(rank, RUN, &run, sizeof run, NULL, 0, NULL, &error);
    CHECK(error == 0);
    return result;
}

struct task { pthread_t thread; unsigned rank; long (*function)(long); long argument; };

static void *run_task(void *task) {
    struct task *own = task;
    run_on(own->rank, own->function, own->argument);
    return NULL;
}

/* Runs a function on all components, by so many threads of each, and waits for all. */
static void run_everywhere(long (*function)(long)) {
    unsigned count = place.count * THREADS;
    struct task *tasks = calloc(count, sizeof *tasks);
    for (unsigned i = 0; i < count; i++) {
        tasks[i] = (struct task){.rank = i % place.count, .function = function, .argument = i};
        CHECK(pthread_create(&tasks[i].thread, NULL, run_task, &tasks[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(tasks[i].thread, NULL);
    }
    free(tasks);
}

static struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static const struct timespec AT_ONCE = {0, 0};

/* ── what is tried ── */

static long sees_images(long rank) {
    CHECK(place.rank == rank);
    CHECK(numbers.of[0] == 11 && numbers.of[1] == 22 && numbers.of[2] == 33 && numbers.of[1024] == 0);
    for (int i = 0; i < 64; i++) {
        CHECK(zeros.of[i * 512] == 0);
    }
    return rank + 100;
}

static long adds(long thread) {
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&numbers.of[3], 1);
        atomic_fetch_add(&zeros.of[(i * 7 % 64) * 512 + 8], 1);
    }
    zeros.of[16 + thread] = thread + 1;
    return 0;
}

static void images(void) {
    for (unsigned rank = 0; rank < place.count; rank++) {
        CHECK(run_on(rank, sees_images, rank) == rank + 100);
    }
    comb->fetch((void *)&zeros, sizeof zeros < 65536 ? sizeof zeros : 65536, 1, NULL);
    comb->fetch((void *)&numbers.of[1], 8, 0, NULL);
    run_everywhere(adds);
    long threads = place.count * THREADS, sum = 0;
    for (int i = 0; i < 64; i++) {
        sum += zeros.of[i * 512 + 8];
    }
    CHECK(numbers.of[3] == threads * ROUNDS && sum == threads * ROUNDS);
    for (long i = 0; i < threads; i++) {
        CHECK(zeros.of[16 + i] == i + 1);
    }
    CHECK(numbers.of[0] == 11 && numbers.of[2] == 33);
}

static long allocates(long bytes) { return (long)comb->allocate((size_t)bytes, -1, 0); }

static long releases(long memory) { return comb->release((void *)memory); }

static long reads(long memory) { return *(_Atomic long *)memory; }

static void memory(void) {
    unsigned last = place.count - 1;
    long *there = (long *)run_on(last, allocates, 100000);
    CHECK(there != NULL && there[5000] == 0 && comb->owner(there) == last && comb->owner(&there) == -1u);
    there[0] = 77;
    for (unsigned rank = 0; rank < place.count; rank++) {
        CHECK(run_on(rank, reads, (long)there) == 77);
    }
    /* By another than its creator, and not twice. Its addresses come back, and zeros with them. */
    CHECK(run_on(0, releases, (long)there) == 0);
    CHECK(run_on(0, releases, (long)there) == -1);
    CHECK(comb->release((void *)&numbers) == -1 && comb->release(&last) == -1);
    CHECK((long *)run_on(last, allocates, 100000) == there && there[0] == 0);
    long *of_last = comb->allocate(1 << 20, (int)last, 0);
    CHECK(of_last != NULL && of_last[100] == 0);
    CHECK(comb->allocate(1, (int)place.count, 0) == NULL && strstr(comb->error(), "no component") != NULL);
    char *objects = comb->allocate(1000 * 100, -1, 100);
    char *first = comb->object(objects, 0), *second = comb->object(objects, 1);
    CHECK(first != NULL && second != NULL && (second < first || second >= first + 100));
    CHECK(comb->object(objects, 100000) == NULL);
    *(long *)second = 5;
    CHECK(run_on(last, reads, (long)second) == 5);
    CHECK(comb->release(objects) == 0);
}

enum { LOCK = 4711, BARRIER = 4712, CONDITION = 3 };

static long locks_and_adds(long thread) {
    (void)thread;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(comb->lock(LOCK, 0, NULL, 0) == 0);
        atomic_store(&numbers.of[4], atomic_load(&numbers.of[4]) + 1);
        CHECK(comb->unlock(LOCK) == 0);
    }
    return 0;
}

static long finds_it_taken(long is_shared) {
    struct timespec soon = in_ms(CLOCK_REALTIME, 20), past = in_ms(CLOCK_MONOTONIC, -1000);
    CHECK(comb->lock(LOCK, (int)is_shared, &AT_ONCE, 1) == EBUSY);
    CHECK(comb->lock(LOCK, (int)is_shared, &soon, 1) == ETIMEDOUT);
    CHECK(comb->lock(LOCK, (int)is_shared, &past, 0) == ETIMEDOUT);
    past.tv_sec = -1;
    past.tv_nsec = 0;
    CHECK(comb->lock(LOCK, (int)is_shared, &past, 0) == ETIMEDOUT);
    CHECK(comb->unlock(LOCK) == EPERM);
    CHECK(comb->wait(LOCK, CONDITION, NULL, 0) == EPERM);
    return 0;
}

static long shares(long unused) {
    (void)unused;
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20);
    CHECK(comb->lock(LOCK, 1, NULL, 0) == 0 && comb->lock(LOCK, 2, &AT_ONCE, 0) == 0);
    CHECK(comb->lock(LOCK, 0, &soon, 0) == EDEADLK);
    CHECK(comb->unlock(LOCK) == 0 && comb->unlock(LOCK) == 0 && comb->unlock(LOCK) == EPERM);
    return 0;
}

static void locks(void) {
    run_everywhere(locks_and_adds);
    CHECK(numbers.of[4] == (long)place.count * THREADS * ROUNDS);
    CHECK(comb->lock(LOCK, 0, NULL, 0) == 0 && comb->lock(LOCK, 0, &AT_ONCE, 0) == EDEADLK);
    for (unsigned rank = 0; rank < place.count; rank++) {
        for (long is_shared = 0; is_shared < 3; is_shared++) {
            run_on(rank, finds_it_taken, is_shared);
        }
    }
    CHECK(comb->unlock(LOCK) == 0);
    CHECK(comb->lock(LOCK, 1, NULL, 0) == 0);
    run_everywhere(shares);
    CHECK(comb->unlock(LOCK) == 0);
}

/* A queue of one: each puts or takes, and waits if it must; every third wait looks at a clock. */
static long passes_on(long thread) {
    for (int i = 0; i < ROUNDS; i++) {
        long wanted = thread % 2;
        CHECK(comb->lock(LOCK, 0, NULL, 0) == 0);
        while (atomic_load(&numbers.of[5]) != wanted) {
            struct timespec soon = in_ms(CLOCK_MONOTONIC, 1);
            int waited = comb->wait(LOCK, (uint64_t)wanted, i % 3 == 0 ? &soon : NULL, 0);
            CHECK(waited == 0 || (i % 3 == 0 && waited == ETIMEDOUT));
        }
        atomic_store(&numbers.of[5], !wanted);
        atomic_fetch_add(&numbers.of[6], 1);
        CHECK(comb->notify(LOCK, (uint64_t)!wanted, 1) == 0);
        CHECK(comb->unlock(LOCK) == 0);
    }
    return 0;
}

static void conditions(void) {
    struct timespec soon = in_ms(CLOCK_REALTIME, 10);
    CHECK(comb->lock(LOCK, 0, NULL, 0) == 0);
    CHECK(comb->wait(LOCK, CONDITION, &soon, 1) == ETIMEDOUT);
    CHECK(comb->wait(LOCK, CONDITION, &soon, 1) == ETIMEDOUT);
    CHECK(comb->wait(LOCK, UINT64_MAX, NULL, 0) == EINVAL);
    CHECK(comb->notify(LOCK, CONDITION, UINT64_MAX) == 0);
    CHECK(comb->unlock(LOCK) == 0);
    /* As many put as take: the number of threads is even. */
    run_everywhere(passes_on);
    CHECK(numbers.of[6] == (long)place.count * THREADS * ROUNDS && numbers.of[5] == 0);
}

static long meets(long thread) {
    (void)thread;
    unsigned threads = place.count * THREADS;
    for (long i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&numbers.of[7], 1);
        int last = comb->barrier(BARRIER, threads);
        CHECK(last == 0 || last == 1);
        atomic_fetch_add(&numbers.of[8], last);
        long here = atomic_load(&numbers.of[7]);
        CHECK(here >= (i + 1) * threads && here < (i + 2) * threads);
    }
    return 0;
}

static void barriers(void) {
    CHECK(comb->barrier(BARRIER, 0) == -1 && comb->barrier(BARRIER, 1) == 1);
    run_everywhere(meets);
    CHECK(numbers.of[8] == ROUNDS);
}

static long echoes(long thread) {
    static _Thread_local char out[COMB_CALL_BYTES], in[COMB_CALL_BYTES];
    const size_t lengths[] = {0, 1, 33, 5000, COMB_CALL_BYTES};
    for (int i = 0; i < ROUNDS; i++) {
        size_t length = lengths[i % 5], came = 1;
        unsigned rank = (unsigned)(thread + i) % place.count;
        int error = 0;
        memset(out, 'a' + i % 26, length);
        long result = comb->call(rank, ECHO, out, length, in, length, &came, &error);
        CHECK(result == (long)length && came == length && error == (int)place.rank);
        CHECK(memcmp(in, out, length) == 0);
    }
    return 0;
}

static void *echoes_all(void *thread) {
    echoes((long)thread);
    return NULL;
}

static void calls(void) {
    static char much[COMB_CALL_BYTES + 1];
    char little[4] = "....";
    size_t came;
    int error = 0;
    CHECK(comb->call(place.count, ECHO, NULL, 0, NULL, 0, NULL, &error) == -1 && error == ENXIO);
    CHECK(comb->call(0, ECHO, much, sizeof much, NULL, 0, NULL, &error) == -1 && error == EMSGSIZE);
    CHECK(comb->call(place.count - 1, ECHO, "abcdef", 6, little, 3, &came, &error) == 6 && came == 3);
    CHECK(memcmp(little, "abc.", 4) == 0);
    /* Not by threads that serve, which would wait for each other. */
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_create(&threads[i], NULL, echoes_all, (void *)(long)i) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
}

static long sleeps(long unused) {
    (void)unused;
    uint32_t *word = (uint32_t *)&numbers.of[9];
    long waited;
    while ((waited = comb->futex(word, FUTEX_WAIT, 0, NULL, 0)) == 0 && *(_Atomic uint32_t *)word == 0) {}
    CHECK(waited == 0 || waited == -EAGAIN);
    atomic_fetch_add(&numbers.of[10], 1);
    return 0;
}

static void *wakes(void *unused) {
    (void)unused;
    usleep(20000);
    atomic_store(&numbers.of[9], 1);
    while (atomic_load(&numbers.of[10]) < (long)place.count * THREADS) {
        comb->futex((uint32_t *)&numbers.of[9], FUTEX_WAKE, INT32_MAX, NULL, 0);
        usleep(1000);
    }
    return NULL;
}

static void words(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 10);
    uint32_t *word = (uint32_t *)&numbers.of[9];
    CHECK(comb->futex(word, FUTEX_WAIT, 0, &soon, 0) == -ETIMEDOUT);
    CHECK(comb->futex(word, FUTEX_WAIT, 7, NULL, 0) == -EAGAIN);
    CHECK(comb->futex(word, FUTEX_WAKE, 1, NULL, 0) == 0);
    pthread_t waker;
    CHECK(pthread_create(&waker, NULL, wakes, NULL) == 0);
    run_everywhere(sleeps);
    pthread_join(waker, NULL);
}

/* ── the program ── */

static void become_component(const char *build) {
    const char *path = getenv("COMB_LIBRARY");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "no libcomb: %s\n", path == NULL ? "COMB_LIBRARY is not set" : dlerror());
        exit(1);
    }
    typedef const struct comb_program *finder(unsigned version);
    finder *find = (finder *)dlsym(library, "comb_program");
    if (find == NULL || find(COMB_PROGRAM_VERSION + 1) != NULL || (comb = find(COMB_PROGRAM_VERSION)) == NULL) {
        fprintf(stderr, "no table\n");
        exit(1);
    }
    struct comb_image image[] = {{&zeros, sizeof zeros}, {&numbers, sizeof numbers}};
    char own[32];
    snprintf(own, sizeof own, "%d", getpid());
    build = build == NULL ? own : build;
    struct comb_terms_of_program terms = {COMB_PROGRAM_VERSION, COMB_ACCESS_PAGE, 0, 2, image, build, 0};
    if (comb->join(&terms, &place) != 0) {
        fprintf(stderr, "%s\n", comb->error());
        exit(3);
    }
}

int main(int argc, char **argv) {
    int status = argc > 1 ? atoi(argv[1]) : 0;
    become_component(argc > 2 ? argv[2] : NULL);
    CHECK(place.spread == COMB_SPREAD_FILL + 2);
    for (int i = 0; i < 2 * THREADS; i++) {
        pthread_t server;
        CHECK(pthread_create(&server, NULL, serve_calls, NULL) == 0);
    }
    if (place.rank != 0) {
        serve_calls(NULL);
        return 1;
    }
    images();
    memory();
    locks();
    conditions();
    barriers();
    calls();
    words();
    const char *share = place.imports ? ", which share" : "";
    printf("all is well on %u components of %u hosts%s\n", place.count, place.hosts, share);
    fflush(stdout);
    comb->end(status);
}
