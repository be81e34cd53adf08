// Adds and takes turns in memory that it maps by its name, with all who do the same: whoever they are, and wherever. It says what came of it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

struct board {
    // In the first page.
    atomic_int begun;
    atomic_int numbers;
    pthread_mutex_t mutex;
    pthread_barrier_t barrier;
    sem_t turns[2];
    char rest[4096 - 512];
    // In the second: neighbours in a block, each of somebody else; and what all add to.
    long own[8];
    long all;
};

static struct board *board;

static void begin(unsigned cells)
{
    int nobody = 0;
    if (atomic_compare_exchange_strong(&board->begun, &nobody, 1)) {
        pthread_mutexattr_t mutex;
        pthread_mutexattr_init(&mutex);
        pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&board->mutex, &mutex);
        pthread_barrierattr_t barrier;
        pthread_barrierattr_init(&barrier);
        pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&board->barrier, &barrier, cells);
        sem_init(&board->turns[0], 1, 0);
        sem_init(&board->turns[1], 1, 0);
        atomic_store(&board->begun, 2);
    }
    while (atomic_load(&board->begun) != 2)
        usleep(1000);
}

static void add(int number, long times)
{
    for (long i = 0; i < times; i++) {
        board->own[number]++;
        pthread_mutex_lock(&board->mutex);
        board->all++;
        pthread_mutex_unlock(&board->mutex);
    }
}

// Has calls write to two pages at a time, which others write to meanwhile: whether what was written is there.
static int is_filled(int number, long times)
{
    // Some need the one first, and some the other.
    char *slots[] = { (char *)board + (8 + number % 2) * 4096 + 256 * number, (char *)board + (9 - number % 2) * 4096 + 256 * number };
    struct iovec pieces[] = { { slots[0], 200 }, { slots[1], 200 } };
    FILE *file = tmpfile();
    for (long i = 0; i < times; i++) {
        char text[400];
        memset(text, 'a' + (int)(i % 26), sizeof text);
        if (pwrite(fileno(file), text, sizeof text, 0) != sizeof text)
            return 0;
        if (preadv(fileno(file), pieces, 2, 0) != sizeof text)
            return 0;
        if (memcmp(slots[0], text, 200) != 0 || memcmp(slots[1], text, 200) != 0)
            return 0;
    }
    fclose(file);
    return 1;
}

// What is stored in a copy is not seen by others, nor what they store then in it.
static int is_copied(int file, int number)
{
    struct board *copy = mmap(0, sizeof *copy, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (copy == MAP_FAILED)
        return 0;
    long all = copy->all;
    pthread_barrier_wait(&board->barrier);
    copy->all = -number;
    pthread_barrier_wait(&board->barrier);
    if (number == 0)
        board->all++;
    pthread_barrier_wait(&board->barrier);
    return copy->all == -number && board->all == all + 1 && copy->own[number] == board->own[number];
}

static sigjmp_buf lost;

static void jump(int signal)
{
    siglongjmp(lost, signal);
}

static int is_lost(volatile char *at)
{
    if (sigsetjmp(lost, 1))
        return 1;
    (void)*at;
    return 0;
}

// One outlives the other: of three pages it has written the first, and the other the second, which lives there, and the third, which does not.
static int outlive(volatile char *pages, int number)
{
    if (number != 0) {
        pages[4096] = 8;
        pages[2 * 4096] = 9;
        atomic_fetch_add(&board->numbers, 1);
        for (;;)
            pause();
    }
    pages[0] = 7;
    while (atomic_load(&board->numbers) < 3)
        usleep(1000);
    puts("waits");
    fflush(stdout);
    signal(SIGBUS, jump);
    while (!is_lost(pages + 4096))
        usleep(1000);
    printf("lost %d, here %d, counted %d\n", is_lost(pages + 2 * 4096), pages[0], board->numbers);
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 4)
        return 2;
    // Who waits for nobody ends.
    alarm(240);
    unsigned cells = (unsigned)atoi(arguments[2]);
    long times = atol(arguments[3]);
    int file = shm_open(arguments[1], O_RDWR, 0);
    struct stat stat;
    if (file < 0 || fstat(file, &stat) != 0)
        return 3;
    board = mmap(0, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (board == MAP_FAILED)
        return 4;
    begin(cells);
    int number = atomic_fetch_add(&board->numbers, 1);
    if (count > 4)
        return outlive((volatile char *)board + 2 * 4096, atoi(arguments[4]));

    int is_well = is_filled(number, times / 10);

    // A child is one more of those who share it.
    int child = fork();
    add(2 * number + (child == 0), times);
    if (child == 0)
        _exit(0);
    int status;
    waitpid(child, &status, 0);

    for (long i = 0; i < times / 10 && cells == 2; i++) {
        if (number == 0)
            sem_post(&board->turns[1]);
        sem_wait(&board->turns[number]);
        if (number == 1)
            sem_post(&board->turns[0]);
    }
    pthread_barrier_wait(&board->barrier);
    long own = 0;
    for (unsigned i = 0; i < 2 * cells; i++)
        own += board->own[i];
    printf("%ld %ld %d\n", own, board->all, status);
    return is_copied(file, number) && is_well ? 0 : 5;
}
