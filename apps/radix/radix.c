/*
 * Radix sort of random keys, as Blelloch and others did it on the CM-2 and SPLASH-2 has it.
 *
 * Each pass sorts by one digit: every thread counts the digits of its share of the keys, all counts together say where
 * each thread's keys of each digit go, and every thread puts its keys there. That is the point of the program: a
 * permutation in which everybody writes into everybody's memory, in runs of a few keys.
 */
#include "program.h"

enum { DIGIT_BITS = 10, DIGITS = 1 << DIGIT_BITS, KEY_BITS = 30, PASSES = KEY_BITS / DIGIT_BITS };

static const long keys_of[SIZES] = {100000, 16000000, 150000000, 1 << 20};

/* The number of a key, not its place, decides what it is: so can any thread make it. */
static uint32_t key_of(long number)
{
    return (uint32_t)(random_bits((uint64_t)number) >> (64 - KEY_BITS));
}

static unsigned digit_of(uint32_t key, int pass)
{
    return key >> (pass * DIGIT_BITS) & (DIGITS - 1);
}

static long keys;
/* The keys before a pass and after it, by turns. */
static uint32_t *sorted[2];
/* For each thread: how many keys of each digit it has; then, where its next key of that digit goes. Each thread
 * allocates its own. */
static long **counts;
/* For each thread: how many keys of the digits of its share all threads have; then, how many come before those. */
static long *before;

static void prepare(enum program_size size)
{
    keys = keys_of[size];
    for (int turn = 0; turn < 2; turn++)
        sorted[turn] = program_allocate((size_t)keys, sizeof *sorted[turn]);
    counts = program_allocate((size_t)program_threads, sizeof *counts);
    before = program_allocate((size_t)program_threads, LINE_BYTES);
}

static long *before_share_of(int thread)
{
    return &before[(size_t)thread * (LINE_BYTES / sizeof *before)];
}

static void set_up(int thread)
{
    struct range own = own_share(keys, thread);
    for (long index = own.first; index < own.end; index++) {
        sorted[0][index] = key_of(index);
        sorted[1][index] = 0;
    }
    counts[thread] = program_allocate(DIGITS, sizeof *counts[thread]);
}

static void count(const uint32_t *from, struct range own, int pass, long *own_counts)
{
    for (int digit = 0; digit < DIGITS; digit++)
        own_counts[digit] = 0;
    for (long index = own.first; index < own.end; index++)
        own_counts[digit_of(from[index], pass)]++;
}

/* Turns counts into places. Each thread does so for its share of the digits, in the order of digits first and
 * threads second, and needs to know only how many keys have digits of an earlier share. */
static void place(int thread)
{
    struct range own = own_share(DIGITS, thread);
    long sum = 0;
    for (long digit = own.first; digit < own.end; digit++) {
        for (int other = 0; other < program_threads; other++)
            sum += counts[other][digit];
    }
    *before_share_of(thread) = sum;
    program_barrier();
    long next = 0;
    for (int other = 0; other < thread; other++)
        next += *before_share_of(other);
    for (long digit = own.first; digit < own.end; digit++) {
        for (int other = 0; other < program_threads; other++) {
            long of_other = counts[other][digit];
            counts[other][digit] = next;
            next += of_other;
        }
    }
}

static void permute(const uint32_t *from, uint32_t *to, struct range own, int pass, long *next)
{
    for (long index = own.first; index < own.end; index++) {
        uint32_t key = from[index];
        to[next[digit_of(key, pass)]++] = key;
    }
}

static void part(int thread)
{
    set_up(thread);
    program_start(thread);
    struct range own = own_share(keys, thread);
    for (int pass = 0; pass < PASSES; pass++) {
        const uint32_t *from = sorted[pass % 2];
        count(from, own, pass, counts[thread]);
        program_barrier();
        place(thread);
        program_barrier();
        permute(from, sorted[(pass + 1) % 2], own, pass, counts[thread]);
        program_barrier();
    }
    program_stop(thread);
}

static void merge(const uint32_t *from, uint32_t *to, long first, long middle, long end)
{
    long left = first, right = middle;
    for (long index = first; index < end; index++) {
        bool take_left = right == end || (left < middle && from[left] <= from[right]);
        to[index] = take_left ? from[left++] : from[right++];
    }
}

static long least(long a, long b)
{
    return a < b ? a : b;
}

/* Sorts by merging ever longer runs: nothing in common with what it is compared with. Returns which of the two
 * arrays is sorted in the end. */
static uint32_t *merge_sort(uint32_t *from, uint32_t *to, long length)
{
    for (long run = 1; run < length; run *= 2) {
        for (long first = 0; first < length; first += 2 * run)
            merge(from, to, first, least(first + run, length), least(first + 2 * run, length));
        uint32_t *merged = to;
        to = from;
        from = merged;
    }
    return from;
}

static bool check(void)
{
    uint32_t *unsorted = program_allocate((size_t)keys, sizeof *unsorted);
    for (long index = 0; index < keys; index++)
        unsorted[index] = key_of(index);
    const uint32_t *expected = merge_sort(unsorted, program_allocate((size_t)keys, sizeof *unsorted), keys);
    const uint32_t *result = sorted[PASSES % 2];
    for (long index = 0; index < keys; index++) {
        if (result[index] != expected[index])
            return program_differs("key %ld is %u, not %u", index, result[index], expected[index]);
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct program radix = {
        .name = "radix",
        .computes = "sorts random keys of 30 bits by three digits of 10",
        .inputs = {"100,000 keys", "16,000,000 keys", "150,000,000 keys", "1,048,576 keys (SPLASH-2)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&radix, argc, argv);
}
