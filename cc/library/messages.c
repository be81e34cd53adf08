/* Bytes and messages through sockets. A message is sent and received whole, so there is room for the longest. */
#include "every.h"

#include <errno.h>

#include "reach.h"
#include "services.h"

/* Longer than any datagram; a stream gives a short count. */
enum { MESSAGE_MOST = 1 << 20 };

static size_t at_once(unsigned cell, size_t bytes)
{
    size_t most = comb_is_here(cell) ? MESSAGE_MOST : COMB_CALL_PIECE;
    return bytes < most ? bytes : most;
}

static long send_here(long socket, void *own, long bytes, long flags, void *address, long address_bytes)
{
    return sendto(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), own, (size_t)bytes, (int)flags, address,
                  (socklen_t)address_bytes);
}

static ssize_t send_bytes(int socket, const void *from, size_t bytes, int flags, const void *address, socklen_t address_bytes)
{
    COMB_DESK(desk);
    unsigned cell = COMB_NO_CELL;
    comb_descriptor_here(socket, &cell);
    bytes = at_once(cell, bytes);
    void *own = comb_own(&desk, from, bytes), *own_address = comb_own(&desk, address, address_bytes);
    if (comb_is_here(cell))
        return send_here(socket, own, (long)bytes, flags, own_address, address_bytes);
    struct comb_part parts[] = {{.value = socket}, {.own = own, .in = bytes}, {.value = (long)bytes}, {.value = flags},
                                {.own = own_address, .in = address_bytes}, {.value = address_bytes}};
    return comb_forward(cell, (void (*)(void))send_here, parts, 6);
}

ssize_t comb_lib_send(int socket, const void *from, size_t bytes, int flags)
{
    return send_bytes(socket, from, bytes, flags, NULL, 0);
}
COMB_SAME_TYPE(send);

ssize_t comb_lib_sendto(int socket, const void *from, size_t bytes, int flags, const struct sockaddr *address,
                        socklen_t address_bytes)
{
    return send_bytes(socket, from, bytes, flags, address, address_bytes);
}

static long receive_here(long socket, void *own, long bytes, long flags, void *address, socklen_t *address_bytes)
{
    return recvfrom(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), own, (size_t)bytes, (int)flags, address,
                    address_bytes);
}

ssize_t comb_lib_recvfrom(int socket, void *restrict to, size_t bytes, int flags, struct sockaddr *restrict address,
                          socklen_t *restrict address_bytes)
{
    COMB_DESK(desk);
    unsigned cell = COMB_NO_CELL;
    socklen_t room = 0;
    char own_address[256];
    comb_descriptor_here(socket, &cell);
    bytes = at_once(cell, bytes);
    if (address && address_bytes)
        comb_copy_from(&room, address_bytes, sizeof room);
    room = room < sizeof own_address ? room : sizeof own_address;
    socklen_t filled = room;
    void *own = comb_own_room(&desk, to, bytes), *there = address ? own_address : NULL;
    ssize_t answer;
    if (comb_is_here(cell)) {
        answer = receive_here(socket, own, (long)bytes, flags, there, there ? &filled : NULL);
    } else {
        struct comb_part parts[] = {{.value = socket}, {.own = own, .out = bytes}, {.value = (long)bytes},
                                    {.value = flags}, {.own = there, .out = room},
                                    {.own = there ? &filled : NULL, .in = sizeof filled, .out = sizeof filled}};
        answer = comb_forward(cell, (void (*)(void))receive_here, parts, 6);
    }
    if (answer >= 0) {
        /* With MSG_TRUNC the length is the message's, not that of what was stored. */
        comb_give_back(to, own, (size_t)answer < bytes ? (size_t)answer : bytes);
        if (there) {
            comb_give_back(address, own_address, filled < room ? filled : room);
            comb_give_back(address_bytes, &filled, sizeof filled);
        }
    }
    return answer;
}

ssize_t comb_lib_recv(int socket, void *to, size_t bytes, int flags)
{
    return comb_lib_recvfrom(socket, to, bytes, flags, NULL, NULL);
}
COMB_SAME_TYPE(recv);

ssize_t comb_lib___recv_chk(int socket, void *to, size_t bytes, size_t object, int flags)
{
    if (bytes > object)
        __chk_fail();
    return comb_lib_recv(socket, to, bytes, flags);
}
COMB_SAME_TYPE(__recv_chk);

/* A struct msghdr with all that it points to in private memory. Descriptors that travel in it are the kernel's numbers, so
 * these calls are made where the socket is, and nowhere else. */
struct message {
    struct msghdr own, program;
    size_t total;
    struct iovec whole;
};

static void own_message(struct comb_desk *desk, struct message *message, const struct msghdr *from, int is_sent)
{
    comb_copy_from(&message->program, from, sizeof message->program);
    struct msghdr *own = &message->own;
    *own = message->program;
    own->msg_name = comb_own(desk, own->msg_name, own->msg_namelen);
    own->msg_control = comb_own(desk, own->msg_control, own->msg_controllen);
    struct iovec *parts = comb_own(desk, own->msg_iov, own->msg_iovlen * sizeof *parts);
    message->program.msg_iov = parts;
    message->total = 0;
    for (size_t at = 0; at < own->msg_iovlen; at++)
        message->total += parts[at].iov_len;
    char *whole = comb_desk_room(desk, message->total + 1), *to = whole;
    for (size_t at = 0; is_sent && at < own->msg_iovlen; to += parts[at].iov_len, at++)
        comb_copy_from(to, parts[at].iov_base, parts[at].iov_len);
    message->whole = (struct iovec){whole, message->total};
    own->msg_iov = &message->whole;
    own->msg_iovlen = 1;
}

static void give_message(const struct message *message, struct msghdr *to, size_t received)
{
    const char *from = message->whole.iov_base;
    struct msghdr changed = message->program;
    size_t left = received < message->total ? received : message->total;
    for (size_t at = 0; left; at++) {
        const struct iovec *part = &message->program.msg_iov[at];
        size_t piece = left < part->iov_len ? left : part->iov_len;
        comb_copy_to(part->iov_base, from, piece);
        from += piece, left -= piece;
    }
    if (message->program.msg_name)
        comb_give_back(message->program.msg_name, message->own.msg_name,
                       message->own.msg_namelen < message->program.msg_namelen ? message->own.msg_namelen
                                                                                : message->program.msg_namelen);
    comb_give_back(message->program.msg_control, message->own.msg_control, message->own.msg_controllen);
    comb_copy_from(&changed, to, sizeof changed);
    changed.msg_namelen = message->own.msg_namelen;
    changed.msg_controllen = message->own.msg_controllen;
    changed.msg_flags = message->own.msg_flags;
    comb_copy_to(to, &changed, sizeof changed);
}

static int only_here(int socket)
{
    unsigned cell = COMB_NO_CELL;
    int here = comb_descriptor_here(socket, &cell);
    if (comb_is_here(cell))
        return here;
    errno = EXDEV;
    return -1;
}

ssize_t comb_lib_sendmsg(int socket, const struct msghdr *from, int flags)
{
    COMB_DESK(desk);
    struct message message;
    int here = only_here(socket);
    if (here < 0)
        return -1;
    own_message(&desk, &message, from, 1);
    return sendmsg(here, &message.own, flags);
}
COMB_SAME_TYPE(sendmsg);

ssize_t comb_lib_recvmsg(int socket, struct msghdr *to, int flags)
{
    COMB_DESK(desk);
    struct message message;
    int here = only_here(socket);
    if (here < 0)
        return -1;
    own_message(&desk, &message, to, 0);
    ssize_t answer = recvmsg(here, &message.own, flags);
    if (answer >= 0)
        give_message(&message, to, (size_t)answer);
    return answer;
}
COMB_SAME_TYPE(recvmsg);

int comb_lib_sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags)
{
    for (unsigned at = 0; at < count; at++) {
        ssize_t sent = comb_lib_sendmsg(socket, &messages[at].msg_hdr, flags);
        if (sent < 0)
            return at ? (int)at : -1;
        unsigned own = (unsigned)sent;
        comb_copy_to(&messages[at].msg_len, &own, sizeof own);
    }
    return (int)count;
}
COMB_SAME_TYPE(sendmmsg);

/* The time limit is looked at between two messages, as the kernel does. */
int comb_lib_recvmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit)
{
    struct timespec own = {0, 0}, start, now;
    if (limit)
        comb_copy_from(&own, limit, sizeof own);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned at = 0; at < count; at++) {
        int more = flags & ~MSG_WAITFORONE;
        if (at && flags & MSG_WAITFORONE)
            more |= MSG_DONTWAIT;
        ssize_t got = comb_lib_recvmsg(socket, &messages[at].msg_hdr, more);
        if (got < 0)
            return at ? (int)at : -1;
        unsigned length = (unsigned)got;
        comb_copy_to(&messages[at].msg_len, &length, sizeof length);
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t passed = (now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec;
        if (limit && passed >= own.tv_sec * 1000000000L + own.tv_nsec)
            return (int)at + 1;
    }
    return (int)count;
}
COMB_SAME_TYPE(recvmmsg);
