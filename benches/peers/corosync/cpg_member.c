/*
 * A member of a corosync process group, told on standard input what to do and reporting on standard output:
 *
 *   view MEMBERS TIME_NS       whenever the group changes
 *   rate FROM_NS UNTIL_NS      sends 64-byte messages as fast as flow control lets it, and answers, when it has everybody's
 *   rate DELIVERED SENT HASH   last: how many it was delivered in that time, how many it sent, and a hash of all in their order
 *   ping COUNT                 one message at a time until it comes back itself
 *   ping P50_NS P99_NS
 *
 * Every message is numbered by its sender: a lost, doubled or overtaken one ends the program.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { message_bytes = 64, most_members = 128, most_pings = 100000 };

enum kind { kind_rate, kind_last, kind_ping };

struct message {
    uint64_t kind;
    uint64_t sequence;
    uint64_t payload[message_bytes / 8 - 2];
};

struct sender {
    uint32_t node, process;
    uint64_t next;
};

static cpg_handle_t handle;
static uint32_t own_node;
static size_t members;

static struct sender senders[most_members];
static size_t sender_count;

/* Of the rate that is being measured. */
static uint64_t from_ns, until_ns, delivered, hash;
static size_t lasts;

static uint64_t pings_delivered;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static struct sender *sender_of(uint32_t node, uint32_t process) {
    for (size_t i = 0; i < sender_count; i++)
        if (senders[i].node == node && senders[i].process == process)
            return &senders[i];
    if (sender_count == most_members)
        fail("more than %d senders", most_members);
    senders[sender_count] = (struct sender){node, process, 0};
    return &senders[sender_count++];
}

static void on_deliver(cpg_handle_t group, const struct cpg_name *name, uint32_t node, uint32_t process, void *bytes,
                       size_t length) {
    (void)group, (void)name;
    struct message message;
    if (length != sizeof message)
        fail("a message of %zu bytes", length);
    memcpy(&message, bytes, sizeof message);
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof message.payload / sizeof message.payload[0]; i++)
        sum += message.payload[i] - message.sequence;
    struct sender *sender = sender_of(node, process);
    if (message.sequence != sender->next || sum != 0)
        fail("message %" PRIu64 " of node %u instead of %" PRIu64, message.sequence, node, sender->next);
    sender->next++;
    if (message.kind == kind_ping) {
        pings_delivered += node == own_node && process == (uint32_t)getpid();
        return;
    }
    hash = (hash ^ node ^ ((uint64_t)process << 32) ^ (message.sequence << 8)) * 0x100000001b3u;
    if (message.kind == kind_last) {
        lasts++;
        return;
    }
    uint64_t now = now_ns();
    delivered += now >= from_ns && now < until_ns;
}

static void on_change(cpg_handle_t group, const struct cpg_name *name, const struct cpg_address *list, size_t count,
                      const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
                      size_t joined_count) {
    (void)group, (void)name, (void)list, (void)left, (void)left_count, (void)joined, (void)joined_count;
    members = count;
    printf("view %zu %" PRIu64 "\n", count, now_ns());
}

static void dispatch(void) {
    cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ALL);
    if (error != CS_OK && error != CS_ERR_TRY_AGAIN)
        fail("cpg_dispatch: %s", cs_strerror(error));
}

/* Waits for a delivery; for ever is ten milliseconds, because a full queue may empty without one. */
static void await_delivery(void) {
    int fd;
    if (cpg_fd_get(handle, &fd) != CS_OK)
        fail("cpg_fd_get");
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    poll(&poll_fd, 1, 10);
    dispatch();
}

/* Whether the message was taken. It is not while the queues are full. */
static int try_send(enum kind kind) {
    static uint64_t sequence;
    struct message message = {.kind = kind, .sequence = sequence};
    for (size_t i = 0; i < sizeof message.payload / sizeof message.payload[0]; i++)
        message.payload[i] = sequence;
    struct iovec vector = {.iov_base = &message, .iov_len = sizeof message};
    cs_error_t error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &vector, 1);
    if (error == CS_ERR_TRY_AGAIN)
        return 0;
    if (error != CS_OK)
        fail("cpg_mcast_joined: %s", cs_strerror(error));
    sequence++;
    return 1;
}

static void measure_rate(uint64_t from, uint64_t until) {
    from_ns = from, until_ns = until, delivered = 0, hash = 0, lasts = 0;
    size_t expected = members;
    uint64_t sent = 0;
    while (now_ns() < from)
        await_delivery();
    while (now_ns() < until) {
        /* A few between two looks at what came, as a program that does both would. */
        int taken = 0;
        while (taken < 16 && try_send(kind_rate))
            taken++;
        sent += (uint64_t)taken;
        if (taken < 16)
            await_delivery();
        else
            dispatch();
    }
    while (!try_send(kind_last))
        await_delivery();
    while (lasts < expected)
        await_delivery();
    printf("rate %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", delivered, sent, hash);
}

static int by_size(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void measure_ping(size_t count) {
    static uint64_t times[most_pings];
    if (count == 0 || count > most_pings)
        fail("%zu pings", count);
    for (size_t i = 0; i < count; i++) {
        uint64_t began = now_ns(), expected = pings_delivered + 1;
        while (!try_send(kind_ping))
            await_delivery();
        while (pings_delivered < expected)
            await_delivery();
        times[i] = now_ns() - began;
    }
    qsort(times, count, sizeof times[0], by_size);
    printf("ping %" PRIu64 " %" PRIu64 "\n", times[count / 2], times[count - 1 - count / 100]);
}

static void obey(const char *line) {
    uint64_t from, until;
    size_t count;
    if (sscanf(line, "rate %" SCNu64 " %" SCNu64, &from, &until) == 2)
        measure_rate(from, until);
    else if (sscanf(line, "ping %zu", &count) == 1)
        measure_ping(count);
    else
        fail("what is %s", line);
}

int main(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    cpg_callbacks_t callbacks = {.cpg_deliver_fn = on_deliver, .cpg_confchg_fn = on_change};
    struct cpg_name group = {.length = 4, .value = "comb"};
    cs_error_t error;
    if ((error = cpg_initialize(&handle, &callbacks)) != CS_OK)
        fail("cpg_initialize: %s", cs_strerror(error));
    while ((error = cpg_join(handle, &group)) == CS_ERR_TRY_AGAIN)
        usleep(10000);
    if (error != CS_OK)
        fail("cpg_join: %s", cs_strerror(error));
    if ((error = cpg_local_get(handle, &own_node)) != CS_OK)
        fail("cpg_local_get: %s", cs_strerror(error));
    int fd;
    cpg_fd_get(handle, &fd);
    for (;;) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0)
            fail("poll");
        if (fds[0].revents)
            dispatch();
        if (fds[1].revents) {
            char line[128];
            if (fgets(line, sizeof line, stdin) == NULL)
                return 0;
            obey(line);
        }
    }
}
