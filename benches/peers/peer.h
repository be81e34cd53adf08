/*
 * The tests that every peer runs, its clock and the lines it prints, so that peers differ only in how a message
 * travels. A program includes this file, defines the four functions below and calls `run_asker` in one process and
 * `run_answerer` in the other.
 *
 * A payload is a run of 8-byte words: first, first + 1, first + 2 … The sender writes it in full for each message,
 * the receiver adds it up in full and stops the program if the sum is wrong. These loops are compiled for the
 * baseline instruction set (-O3, no -march), as Rust's are, so that they cost every peer the same.
 */
#ifndef PEER_H
#define PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LARGEST_MESSAGE_BYTES = 4096,
    ROUND_TRIPS_PER_BATCH = 100,
    BATCHES_AT_MOST = 16384,
    STREAMS_PER_TEST = 5,
    /* Seven tests of about 115 ms with their warm-up: 0.8 s for a program. */
    WARM_UP_NS = 10 * 1000 * 1000,
    MEASURED_NS = 90 * 1000 * 1000,
    /* A benchmark that hangs must not outlive the one who started it. */
    LIFE_LIMIT_S = 15,
    ASKER_CPU = 0,
    ANSWERER_CPU = 1,
};

/* Writes one payload and sends it. May return before it has arrived, not before the caller may send the next. */
static void send_message(size_t bytes, uint64_t first);
/* Waits, spinning, for one message, reads it in full and returns its first word. */
static uint64_t receive_message(size_t bytes);
/* One way, as fast as the library takes them: `count` messages whose first words count up from 0. */
static void send_stream(size_t bytes, uint64_t count);
static void receive_stream(size_t bytes, uint64_t count);

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* Libraries may deliver a payload at any address. */
typedef uint64_t __attribute__((aligned(1), may_alias)) word;

static inline void write_payload(void *payload, size_t bytes, uint64_t first)
{
    word *words = payload;
    for (size_t i = 0; i < bytes / sizeof(word); i++)
        words[i] = first + i;
}

static inline uint64_t read_payload(const void *payload, size_t bytes)
{
    const word *words = payload;
    uint64_t count = bytes / sizeof(word), sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += words[i];
    if (sum != count * words[0] + count * (count - 1) / 2)
        die("a message of %zu bytes arrived damaged", bytes);
    return words[0];
}

static inline void expect(uint64_t first, uint64_t expected)
{
    if (first != expected)
        die("message %llu arrived in place of %llu", (unsigned long long)first, (unsigned long long)expected);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Called by each process before it touches the library, so that its memory and threads start on its own CPU. */
static void settle_on_cpu(int cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        die("CPU %d is not ours to run on: %s", cpu, strerror(errno));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIFE_LIMIT_S);
}

/* ── the asker: says how many messages come, times them, prints ── */

static void announce(uint64_t count)
{
    send_message(sizeof(word), count);
    expect(receive_message(sizeof(word)), count);
}

static uint64_t time_round_trips(size_t bytes, uint64_t count, uint64_t *batches_ns)
{
    announce(count);
    uint64_t start = now_ns(), batch_start = start;
    for (uint64_t i = 0; i < count; i++) {
        send_message(bytes, i);
        expect(receive_message(bytes), i + 1);
        if ((i + 1) % ROUND_TRIPS_PER_BATCH == 0) {
            uint64_t now = now_ns();
            batches_ns[i / ROUND_TRIPS_PER_BATCH] = now - batch_start;
            batch_start = now;
        }
    }
    return batch_start - start;
}

static uint64_t time_stream(size_t bytes, uint64_t count, uint64_t *unused)
{
    (void)unused;
    announce(count);
    uint64_t start = now_ns();
    send_stream(bytes, count);
    expect(receive_message(sizeof(word)), count);
    return now_ns() - start;
}

/* Warms up with more and more messages and returns how many fill `wanted_ns`. */
static uint64_t fitting_count(uint64_t (*timed)(size_t, uint64_t, uint64_t *), size_t bytes, uint64_t wanted_ns,
                              uint64_t *scratch)
{
    for (uint64_t count = 1000;; count *= 2) {
        uint64_t ns = timed(bytes, count, scratch);
        if (ns >= WARM_UP_NS)
            return count * wanted_ns / ns + 1;
    }
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The part that all lines begin with. */
static void print_line(const char *peer, const char *version, const char *test, size_t bytes)
{
    printf("{\"peer\":\"%s\",\"version\":\"%s\",\"test\":\"%s\",\"bytes\":%zu,", peer, version, test, bytes);
}

static uint64_t batches_ns[BATCHES_AT_MOST];

static void test_round_trip(const char *peer, const char *version, size_t bytes)
{
    uint64_t batches =
        fitting_count(time_round_trips, bytes, MEASURED_NS, batches_ns) / ROUND_TRIPS_PER_BATCH + 1;
    if (batches > BATCHES_AT_MOST)
        batches = BATCHES_AT_MOST;
    time_round_trips(bytes, batches * ROUND_TRIPS_PER_BATCH, batches_ns);
    announce(0);
    qsort(batches_ns, batches, sizeof *batches_ns, by_value);
    print_line(peer, version, "round_trip", bytes);
    printf("\"median_ns\":%.1f,\"p10_ns\":%.1f}\n", (double)batches_ns[batches / 2] / ROUND_TRIPS_PER_BATCH,
           (double)batches_ns[batches / 10] / ROUND_TRIPS_PER_BATCH);
}

/* The median of several streams: one that another process disturbed does not count. */
static double messages_per_second(size_t bytes)
{
    uint64_t count = fitting_count(time_stream, bytes, MEASURED_NS / STREAMS_PER_TEST, NULL);
    uint64_t streams_ns[STREAMS_PER_TEST];
    for (int i = 0; i < STREAMS_PER_TEST; i++)
        streams_ns[i] = time_stream(bytes, count, NULL);
    announce(0);
    qsort(streams_ns, STREAMS_PER_TEST, sizeof *streams_ns, by_value);
    return (double)count * 1e9 / (double)streams_ns[STREAMS_PER_TEST / 2];
}

static const size_t ROUND_TRIP_BYTES[] = {8, 56, 1024, 4096};
static const size_t BANDWIDTH_BYTES[] = {1024, 4096};
enum { ROUND_TRIP_TESTS = 4, BANDWIDTH_TESTS = 2, RATE_BYTES = 64 };

static void run_asker(const char *peer, const char *version)
{
    for (int i = 0; i < ROUND_TRIP_TESTS; i++)
        test_round_trip(peer, version, ROUND_TRIP_BYTES[i]);
    double per_second = messages_per_second(RATE_BYTES);
    print_line(peer, version, "rate", RATE_BYTES);
    printf("\"per_second\":%.0f}\n", per_second);
    for (int i = 0; i < BANDWIDTH_TESTS; i++) {
        size_t bytes = BANDWIDTH_BYTES[i];
        double bytes_per_second = messages_per_second(bytes) * (double)bytes;
        print_line(peer, version, "bandwidth", bytes);
        printf("\"bytes_per_second\":%.0f}\n", bytes_per_second);
    }
    fflush(stdout);
}

/* ── the answerer: the same tests in the same order, each until a count of 0 ── */

static uint64_t announced(void)
{
    uint64_t count = receive_message(sizeof(word));
    send_message(sizeof(word), count);
    return count;
}

static void answer_round_trips(size_t bytes)
{
    for (uint64_t count; (count = announced()) != 0;) {
        for (uint64_t i = 0; i < count; i++) {
            expect(receive_message(bytes), i);
            send_message(bytes, i + 1);
        }
    }
}

static void answer_streams(size_t bytes)
{
    for (uint64_t count; (count = announced()) != 0;) {
        receive_stream(bytes, count);
        send_message(sizeof(word), count);
    }
}

static void run_answerer(void)
{
    for (int i = 0; i < ROUND_TRIP_TESTS; i++)
        answer_round_trips(ROUND_TRIP_BYTES[i]);
    answer_streams(RATE_BYTES);
    for (int i = 0; i < BANDWIDTH_TESTS; i++)
        answer_streams(BANDWIDTH_BYTES[i]);
}

#endif
