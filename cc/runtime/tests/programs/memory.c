/* Memory that threads allocate, hand to each other, and free: nothing is ever given out twice, and all is as it was
 * written. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define THREADS 4
#define OBJECTS 200
#define ROUNDS 4

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("wrong at line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static unsigned char *objects[THREADS][OBJECTS];
static size_t lengths[THREADS][OBJECTS];
static pthread_barrier_t barrier;

static unsigned next(unsigned *seed)
{
    return *seed = *seed * 1103515245 + 12345;
}

static size_t some_length(unsigned *seed)
{
    unsigned kind = next(seed) >> 16;
    size_t most = kind % 64 == 0 ? 300000 : kind % 4 == 0 ? 5000 : 300;
    return next(seed) >> 8 & 0xffffff ? (next(seed) >> 8) % most : 0;
}

static void fill(int owner, int object)
{
    memset(objects[owner][object], owner * 31 + object, lengths[owner][object]);
}

static void check(int owner, int object)
{
    for (size_t i = 0; i < lengths[owner][object]; i++)
        CHECK(objects[owner][object][i] == (unsigned char)(owner * 31 + object));
}

static void *work(void *argument)
{
    int self = (int)(long)argument;
    unsigned seed = (unsigned)self + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < OBJECTS; i++) {
            lengths[self][i] = some_length(&seed);
            objects[self][i] = i % 3 ? malloc(lengths[self][i]) : calloc(1, lengths[self][i]);
            CHECK(objects[self][i] && (uintptr_t)objects[self][i] % 16 == 0);
            CHECK(malloc_usable_size(objects[self][i]) >= lengths[self][i]);
            if (i % 3 == 0)
                for (size_t byte = 0; byte < lengths[self][i]; byte++)
                    CHECK(objects[self][i][byte] == 0);
            fill(self, i);
        }
        pthread_barrier_wait(&barrier);
        /* The next thread's objects are this one's to free, or to make longer and give back. */
        int other = (self + 1) % THREADS;
        for (int i = 0; i < OBJECTS; i++) {
            check(other, i);
            if (i % 5 == 0) {
                size_t longer = lengths[other][i] * 2 + 1;
                objects[other][i] = realloc(objects[other][i], longer);
                CHECK(objects[other][i]);
                check(other, i);
            }
            free(objects[other][i]);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void odd_ones(void)
{
    void *memory;
    for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 2) {
        CHECK(!posix_memalign(&memory, alignment, 100));
        CHECK((uintptr_t)memory % alignment == 0);
        memset(memory, 1, 100);
        free(memory);
        memory = aligned_alloc(alignment, alignment * 2);
        CHECK(memory && (uintptr_t)memory % alignment == 0);
        memset(memory, 1, alignment * 2);
        free(memory);
    }
    CHECK(posix_memalign(&memory, 24, 100) == EINVAL);
    volatile size_t too_much = SIZE_MAX / 2;
    /* The compiler may leave out what it sees nobody use. */
    void *volatile none = malloc(too_much);
    CHECK(!none && errno == ENOMEM);
    none = calloc(too_much, 4);
    CHECK(!none);
    free(NULL);
    memory = realloc(NULL, 10);
    CHECK(memory);
    CHECK(!realloc(memory, 0));
    char *text = malloc(6);
    strcpy(text, "comb!");
    text = realloc(text, 100000);
    CHECK(!strcmp(text, "comb!"));
    text = realloc(text, 3000000);
    CHECK(!strcmp(text, "comb!"));
    text = realloc(text, 6);
    CHECK(!strcmp(text, "comb!"));
    free(text);
}

/* Mappings among what malloc() gives: sqlite3 unmapped a page of the heap once, when mappings of a program alone were cut from it. */
static void mappings(void)
{
    char *objects[16];
    for (int round = 0; round < 16; round++) {
        objects[round] = malloc(5000);
        memset(objects[round], round, 5000);
        char *mapped = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mapped != MAP_FAILED && !mapped[4999]);
        memset(mapped, 7, 5000);
        mapped = mremap(mapped, 5000, 500000, MREMAP_MAYMOVE);
        CHECK(mapped != MAP_FAILED && mapped[4999] == 7 && !mapped[499999]);
        CHECK(!munmap(mapped, 500000));
    }
    for (int round = 0; round < 16; round++) {
        CHECK(objects[round][0] == round && objects[round][4999] == round);
        free(objects[round]);
    }
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    odd_ones();
    mappings();
    for (long i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    printf("all memory is right\n");
    return 0;
}
