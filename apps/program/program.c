#include "program.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Far more than anybody has processors: a larger number is a slip of the hand. */
enum { THREADS_AT_MOST = 1024 };

struct options {
    enum program_size size;
    bool check;
    bool time;
};

/* A thread's numbers for program_largest, on lines of their own. Two of them, by turns: a fast thread may be asked
 * again before a slow one has read. */
struct numbers {
    _Alignas(LINE_BYTES) double value[2];
    unsigned turn;
};

/* In front of each piece of memory: the one allocated before it. */
struct allocation {
    struct allocation *next;
};

struct worker {
    pthread_t handle;
    int thread;
};

int program_threads = 1;

static const char *const size_names[SIZES] = {"small", "medium", "large", "paper"};
static const struct program *running;
static enum program_size running_size;
static pthread_barrier_t barrier;
static struct numbers *numbers;
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;
static double started_at;
static double seconds;

static void print_help(const struct program *program)
{
    printf("%s: %s\n\nUsage: %s [-p THREADS] [-s small|medium|large|paper] [--check] [--time]\n\n", program->name,
           program->computes, program->name);
    printf("  -p THREADS   how many threads compute, 1 to %d (1 if not said)\n", THREADS_AT_MOST);
    printf("  -s SIZE      which input (small if not said):\n");
    for (int size = 0; size < SIZES; size++)
        printf("                 %-7s %s\n", size_names[size], program->inputs[size]);
    printf("  --check      compute again without threads and compare: says ok, or what differs (exit status 1)\n");
    printf("  --time       print how many seconds the threads computed, without set-up and check\n");
    printf("  -h, --help   this text\n");
}

static _Noreturn void refuse(const struct program *program, const char *problem, const char *word)
{
    fprintf(stderr, "%s: %s%s; %s -h lists what can be said\n", program->name, problem, word, program->name);
    exit(2);
}

static int parse_threads(const struct program *program, const char *text)
{
    char *end;
    errno = 0;
    long threads = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || threads < 1 || threads > THREADS_AT_MOST)
        refuse(program, "-p wants a number of threads from 1 to 1024, not ", text);
    return (int)threads;
}

static enum program_size parse_size(const struct program *program, const char *text)
{
    for (int size = 0; size < SIZES; size++) {
        if (strcmp(text, size_names[size]) == 0)
            return (enum program_size)size;
    }
    refuse(program, "-s wants small, medium, large or paper, not ", text);
}

/* The value of the option at *index, which is the rest of its word (-p4) or the next one (-p 4). */
static const char *value_of(const struct program *program, int argc, char **argv, int *index)
{
    const char *option = argv[*index];
    if (option[2] != '\0')
        return option + 2;
    if (*index + 1 == argc)
        refuse(program, "a value is missing after ", option);
    return argv[++*index];
}

static struct options parse(const struct program *program, int argc, char **argv)
{
    struct options options = {SIZE_SMALL, false, false};
    for (int index = 1; index < argc; index++) {
        const char *word = argv[index];
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            print_help(program);
            exit(0);
        } else if (strcmp(word, "--check") == 0) {
            options.check = true;
        } else if (strcmp(word, "--time") == 0) {
            options.time = true;
        } else if (strncmp(word, "-p", 2) == 0) {
            program_threads = parse_threads(program, value_of(program, argc, argv, &index));
        } else if (strncmp(word, "-s", 2) == 0) {
            options.size = parse_size(program, value_of(program, argc, argv, &index));
        } else {
            refuse(program, "unknown: ", word);
        }
    }
    return options;
}

static void *run_part(void *argument)
{
    const struct worker *worker = argument;
    running->part(worker->thread);
    return NULL;
}

static void set_up_threads(int threads)
{
    program_threads = threads;
    int error = pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    if (error != 0) {
        fprintf(stderr, "%s: no barrier for %d threads: %s\n", running->name, threads, strerror(error));
        exit(1);
    }
    numbers = program_allocate_zeros((size_t)threads, sizeof *numbers);
}

static void run_parts(void)
{
    struct worker *workers = program_allocate((size_t)program_threads, sizeof *workers);
    for (int thread = 1; thread < program_threads; thread++) {
        workers[thread].thread = thread;
        int error = pthread_create(&workers[thread].handle, NULL, run_part, &workers[thread]);
        if (error != 0) {
            fprintf(stderr, "%s: only %d of %d threads could be started: %s; try a smaller -p\n", running->name, thread,
                    program_threads, strerror(error));
            exit(1);
        }
    }
    running->part(0);
    for (int thread = 1; thread < program_threads; thread++)
        pthread_join(workers[thread].handle, NULL);
}

void program_compute_alone(void)
{
    int threads = program_threads;
    pthread_barrier_destroy(&barrier);
    set_up_threads(1);
    running->prepare(running_size);
    running->part(0);
    program_threads = threads;
}

void program_barrier(void)
{
    pthread_barrier_wait(&barrier);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Always the same thread looks at the clock: others may be on a machine where it shows something else. */
void program_start(int thread)
{
    program_barrier();
    if (thread == 0)
        started_at = now();
    program_barrier();
}

void program_stop(int thread)
{
    program_barrier();
    if (thread == 0)
        seconds = now() - started_at;
}

double program_largest(int thread, double value)
{
    unsigned turn = numbers[thread].turn++ % 2;
    numbers[thread].value[turn] = value;
    program_barrier();
    double largest = value;
    for (int other = 0; other < program_threads; other++)
        largest = fmax(largest, numbers[other].value[turn]);
    return largest;
}

/* Rounded up at the end as well, so that the next allocation is on none of its lines. */
static void *allocate(size_t count, size_t bytes, bool zeros)
{
    size_t alignment = count * bytes < PAGE_BYTES ? LINE_BYTES : PAGE_BYTES;
    size_t all = sizeof(struct allocation) + count * bytes + 2 * alignment;
    struct allocation *allocation = zeros ? calloc(1, all) : malloc(all);
    if (allocation == NULL) {
        fprintf(stderr, "%s: no memory for %zu things of %zu bytes; try a smaller -s\n", running->name, count, bytes);
        exit(1);
    }
    pthread_mutex_lock(&allocations_lock);
    allocation->next = allocations;
    allocations = allocation;
    pthread_mutex_unlock(&allocations_lock);
    char *memory = (char *)(allocation + 1);
    return memory + (alignment - (uintptr_t)memory % alignment) % alignment;
}

void *program_allocate(size_t count, size_t bytes)
{
    return allocate(count, bytes, false);
}

void *program_allocate_zeros(size_t count, size_t bytes)
{
    return allocate(count, bytes, true);
}

static void free_all(void)
{
    while (allocations != NULL) {
        struct allocation *freed = allocations;
        allocations = freed->next;
        free(freed);
    }
}

bool program_differs(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: differs: ", running->name);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    return false;
}

int program_main(const struct program *program, int argc, char **argv)
{
    struct options options = parse(program, argc, argv);
    running = program;
    running_size = options.size;
    set_up_threads(program_threads);
    program->prepare(options.size);
    run_parts();
    if (options.time)
        printf("seconds %.6f\n", seconds);
    bool right = !options.check || program->check();
    if (options.check && right)
        printf("%s: ok\n", program->name);
    if (!options.check && !options.time)
        printf("%s: %s input computed by %d threads; --check compares, --time measures\n", program->name,
               size_names[options.size],
               program_threads);
    free_all();
    return right ? 0 : 1;
}
