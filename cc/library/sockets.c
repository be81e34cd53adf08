/* Sockets: addresses, messages, options. */
#include "every.h"

#include <errno.h>

#include "reach.h"
#include "services.h"

COMB_WRAP_GIVEN(comb_descriptor_given, int, socket, VALUE(int, family), VALUE(int, type), VALUE(int, protocol));

int comb_lib_socketpair(int family, int type, int protocol, int ends[2])
{
    int own[2], answer = socketpair(family, type, protocol, own);
    if (answer == 0) {
        own[0] = comb_descriptor_given(own[0]), own[1] = comb_descriptor_given(own[1]);
        comb_copy_to(ends, own, sizeof own);
    }
    return answer;
}
COMB_SAME_TYPE(socketpair);

COMB_WRAP_AT(int, listen, DESCRIPTOR(socket), VALUE(int, waiting));
COMB_WRAP_AT(int, shutdown, DESCRIPTOR(socket), VALUE(int, how));
COMB_WRAP_AT(int, sockatmark, DESCRIPTOR(socket));
COMB_WRAP_AT(int, setsockopt, DESCRIPTOR(socket), VALUE(int, level), VALUE(int, name), ARRAY(void, value, bytes),
             VALUE(socklen_t, bytes));

/* An address is a union of pointers for libc's headers in C; here it is bytes with a length. */

static long bind_here(long socket, void *address, long bytes)
{
    return bind(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), address, (socklen_t)bytes);
}

static long connect_here(long socket, void *address, long bytes)
{
    return connect(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), address, (socklen_t)bytes);
}

static int with_address(long (*call)(long, void *, long), int socket, const void *address, socklen_t bytes)
{
    COMB_DESK(desk);
    unsigned cell = COMB_NO_CELL;
    void *own = comb_own(&desk, address, bytes);
    comb_descriptor_here(socket, &cell);
    if (comb_is_here(cell))
        return (int)call(socket, own, bytes);
    struct comb_part parts[] = {{.value = socket}, {.own = own, .in = bytes}, {.value = bytes}};
    return (int)comb_forward(cell, (void (*)(void))call, parts, 3);
}

int comb_lib_bind(int socket, const struct sockaddr *address, socklen_t bytes)
{
    return with_address(bind_here, socket, address, bytes);
}

int comb_lib_connect(int socket, const struct sockaddr *address, socklen_t bytes)
{
    return with_address(connect_here, socket, address, bytes);
}

/* Calls that fill an address, whose length goes both ways, or an option. */
struct filled {
    socklen_t bytes;
    char room[256];
};

static long accept_here(long socket, struct filled *address, long flags)
{
    return comb_descriptor_given(accept4(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}),
                                         (struct sockaddr *)address->room, &address->bytes, (int)flags));
}

static long name_here(long socket, struct filled *address, long flags)
{
    (void)flags;
    return getsockname(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), (struct sockaddr *)address->room,
                       &address->bytes);
}

static long peer_here(long socket, struct filled *address, long flags)
{
    (void)flags;
    return getpeername(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), (struct sockaddr *)address->room,
                       &address->bytes);
}

static long option_here(long socket, struct filled *value, long which)
{
    return getsockopt(comb_descriptor_here((int)socket, &(unsigned){COMB_NO_CELL}), (int)(which >> 32), (int)which,
                      value->room, &value->bytes);
}

static int fill(long (*call)(long, struct filled *, long), int socket, void *to, socklen_t *bytes, long more)
{
    struct filled filled = {.bytes = sizeof filled.room};
    socklen_t room = 0;
    unsigned cell = COMB_NO_CELL;
    if (bytes) {
        comb_copy_from(&room, bytes, sizeof room);
        filled.bytes = room < sizeof filled.room ? room : sizeof filled.room;
    }
    comb_descriptor_here(socket, &cell);
    struct comb_part parts[] = {
        {.value = socket}, {.own = &filled, .in = sizeof filled, .out = sizeof filled}, {.value = more}};
    long answer = comb_is_here(cell) ? call(socket, &filled, more)
                                     : comb_forward(cell, (void (*)(void))call, parts, 3);
    if (answer >= 0 && to && bytes) {
        comb_copy_to(to, filled.room, filled.bytes < room ? filled.bytes : room);
        comb_copy_to(bytes, &filled.bytes, sizeof filled.bytes);
    }
    return (int)answer;
}

int comb_lib_accept4(int socket, struct sockaddr *address, socklen_t *bytes, int flags)
{
    return fill(accept_here, socket, address, bytes, flags);
}

int comb_lib_accept(int socket, struct sockaddr *address, socklen_t *bytes)
{
    return fill(accept_here, socket, address, bytes, 0);
}

int comb_lib_getsockname(int socket, struct sockaddr *address, socklen_t *bytes)
{
    return fill(name_here, socket, address, bytes, 0);
}

int comb_lib_getpeername(int socket, struct sockaddr *address, socklen_t *bytes)
{
    return fill(peer_here, socket, address, bytes, 0);
}

int comb_lib_getsockopt(int socket, int level, int name, void *restrict value, socklen_t *restrict bytes)
{
    return fill(option_here, socket, value, bytes, (long)level << 32 | (unsigned)name);
}
COMB_SAME_TYPE(getsockopt);
