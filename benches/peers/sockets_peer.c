/* The kernel's own ways between two processes: a pair of unix sockets, UDP and TCP over loopback. */
#include "pair.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/utsname.h>

enum {
    MESSAGES_AT_ONCE = 32,
    /* UDP drops what the receiver has no room for, so the sender is never more than two credits ahead: 256 messages,
       which, at 4096 bytes and with the kernel's bookkeeping, the receive buffer has room for. */
    CREDIT_MESSAGES = 128,
    CREDITS_AHEAD = 2,
    UDP_BUFFER_BYTES = 2 * 1024 * 1024,
};

static int fd;
static bool is_udp;
static _Alignas(64) unsigned char outgoing[LARGEST_MESSAGE_BYTES], incoming[MESSAGES_AT_ONCE][LARGEST_MESSAGE_BYTES];

static bool must_try_again(ssize_t result, const char *what)
{
    if (result > 0)
        return false;
    if (result < 0 && (errno == EAGAIN || errno == ENOBUFS))
        return true;
    die("%s: %s", what, result == 0 ? "the other process is gone" : strerror(errno));
}

/* One message, one call. A byte stream may take less than all of it. */
static void send_message(size_t bytes, uint64_t first)
{
    write_payload(outgoing, bytes, first);
    for (size_t done = 0; done < bytes;) {
        ssize_t sent = send(fd, outgoing + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (!must_try_again(sent, "send"))
            done += (size_t)sent;
    }
}

/* Spins on the socket: to sleep in the kernel would add a wake-up of the other CPU to every message. */
static uint64_t receive_message(size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t received = recv(fd, incoming[0] + done, bytes - done, MSG_DONTWAIT);
        if (!must_try_again(received, "recv"))
            done += (size_t)received;
    }
    return read_payload(incoming[0], bytes);
}

static void send_stream(size_t bytes, uint64_t count)
{
    uint64_t credits = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (is_udp && i % CREDIT_MESSAGES == 0 && i / CREDIT_MESSAGES >= CREDITS_AHEAD)
            expect(receive_message(sizeof(word)), ++credits);
        send_message(bytes, i);
    }
    while (is_udp && credits < count / CREDIT_MESSAGES)
        expect(receive_message(sizeof(word)), ++credits);
}

/* As many messages as are there with each call, the reading side's only way to keep up with a spinning sender. */
static void receive_datagrams(size_t bytes, uint64_t count)
{
    struct iovec places[MESSAGES_AT_ONCE];
    struct mmsghdr headers[MESSAGES_AT_ONCE] = {0};
    for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
        places[i] = (struct iovec){incoming[i], bytes};
        headers[i].msg_hdr = (struct msghdr){.msg_iov = &places[i], .msg_iovlen = 1};
    }
    for (uint64_t received = 0; received < count;) {
        int taken = recvmmsg(fd, headers, MESSAGES_AT_ONCE, MSG_DONTWAIT, NULL);
        if (must_try_again(taken, "recvmmsg"))
            continue;
        for (int i = 0; i < taken; i++) {
            expect(headers[i].msg_len, bytes);
            expect(read_payload(incoming[i], bytes), received++);
            if (received % CREDIT_MESSAGES == 0)
                send_message(sizeof(word), received / CREDIT_MESSAGES);
        }
    }
}

static void receive_bytes(size_t bytes, uint64_t count)
{
    unsigned char *start = (unsigned char *)incoming;
    size_t held = 0;
    for (uint64_t received = 0; received < count;) {
        ssize_t more = recv(fd, start + held, sizeof incoming - held, MSG_DONTWAIT);
        if (must_try_again(more, "recv"))
            continue;
        held += (size_t)more;
        size_t read = 0;
        for (; held - read >= bytes; read += bytes)
            expect(read_payload(start + read, bytes), received++);
        held -= read;
        memmove(start, start + read, held);
    }
}

static void receive_stream(size_t bytes, uint64_t count)
{
    if (is_udp)
        receive_datagrams(bytes, count);
    else
        receive_bytes(bytes, count);
}

static void set(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof value) != 0)
        die("setsockopt: %s", strerror(errno));
}

static void check(int result, const char *what)
{
    if (result < 0)
        die("%s: %s", what, strerror(errno));
}

static int bound_to_loopback(int type, struct sockaddr_in *address)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    check(fd, "socket");
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof *address;
    check(bind(fd, (struct sockaddr *)address, bytes), "bind");
    check(getsockname(fd, (struct sockaddr *)address, &bytes), "getsockname");
    return fd;
}

static void open_udp(int ends[2])
{
    struct sockaddr_in addresses[2];
    for (int i = 0; i < 2; i++) {
        ends[i] = bound_to_loopback(SOCK_DGRAM, &addresses[i]);
        set(ends[i], SOL_SOCKET, SO_RCVBUF, UDP_BUFFER_BYTES);
    }
    for (int i = 0; i < 2; i++)
        check(connect(ends[i], (struct sockaddr *)&addresses[1 - i], sizeof addresses[i]), "connect");
}

static void open_tcp(int ends[2])
{
    struct sockaddr_in address;
    int listener = bound_to_loopback(SOCK_STREAM, &address);
    check(listen(listener, 1), "listen");
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(connect(ends[0], (struct sockaddr *)&address, sizeof address), "connect");
    ends[1] = accept(listener, NULL, NULL);
    check(ends[1], "accept");
    close(listener);
    for (int i = 0; i < 2; i++)
        set(ends[i], IPPROTO_TCP, TCP_NODELAY, 1);
}

int main(int argc, char **argv)
{
    const char *peer = argc == 2 ? argv[1] : "";
    int ends[2];
    if (strcmp(peer, "unix") == 0)
        /* A byte stream: 5 to 15% faster than SOCK_SEQPACKET in most of the tests. */
        check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    else if (strcmp(peer, "udp") == 0)
        open_udp(ends);
    else if (strcmp(peer, "tcp") == 0)
        open_tcp(ends);
    else
        die("usage: sockets_peer unix|udp|tcp");
    is_udp = strcmp(peer, "udp") == 0;

    /* A socket has no version but the kernel's. */
    struct utsname kernel;
    uname(&kernel);
    struct pair pair = split_in_two();
    fd = ends[!pair.asker];
    close(ends[pair.asker]);
    run_pair(pair, peer, kernel.release);
    return leave_pair(pair);
}
