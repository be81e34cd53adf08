/* Waiting until something can be read or written. All descriptors of one call must be of one cell. */
#include "wrap.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "reach.h"

static long ppoll_here(struct pollfd *own, long count, struct timespec *limit, sigset_t *mask)
{
    unsigned cell = COMB_NO_CELL;
    COMB_DESK(desk);
    struct pollfd *here = comb_desk_room(&desk, (size_t)count * sizeof *here);
    memcpy(here, own, (size_t)count * sizeof *here);
    for (long at = 0; at < count; at++)
        here[at].fd = comb_descriptor_here(own[at].fd, &cell);
    int answer = ppoll(here, (nfds_t)count, limit, mask);
    for (long at = 0; at < count; at++)
        own[at].revents = here[at].revents;
    return answer;
}

int comb_lib_ppoll(struct pollfd *descriptors, nfds_t count, const struct timespec *limit, const sigset_t *mask)
{
    COMB_DESK(desk);
    size_t bytes = count * sizeof *descriptors;
    struct pollfd *own = comb_own(&desk, descriptors, bytes);
    void *own_limit = (void *)comb_own(&desk, limit, sizeof *limit);
    void *own_mask = (void *)comb_own_signals(&desk, mask);
    unsigned cell = COMB_NO_CELL;
    for (nfds_t at = 0; at < count; at++)
        comb_descriptor_here(own[at].fd, &cell);
    long answer;
    if (comb_is_here(cell)) {
        answer = ppoll_here(own, (long)count, own_limit, own_mask);
    } else {
        struct comb_part parts[] = {{.own = own, .in = bytes, .out = bytes},
                                    {.value = (long)count},
                                    {.own = own_limit, .in = sizeof *limit},
                                    {.own = own_mask, .in = sizeof *mask}};
        answer = comb_forward(cell, (void (*)(void))ppoll_here, parts, 4);
    }
    /* Only what came out: another thread may change which events it wants meanwhile. */
    for (nfds_t at = 0; at < count && own != descriptors; at++)
        comb_give_back(&descriptors[at].revents, &own[at].revents, sizeof own->revents);
    return (int)answer;
}
COMB_SAME_TYPE(ppoll);

int comb_lib_poll(struct pollfd *descriptors, nfds_t count, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    return comb_lib_ppoll(descriptors, count, milliseconds < 0 ? NULL : &limit, NULL);
}
COMB_SAME_TYPE(poll);

/* Sets of descriptors have room for small numbers only, and those are cell 0's. */
static long select_there(long count, fd_set *in, fd_set *out, fd_set *urgent, struct timeval *limit)
{
    return select((int)count, in, out, urgent, limit);
}

static long pselect_there(long count, fd_set *in, fd_set *out, fd_set *urgent, struct timespec *limit, sigset_t *mask)
{
    return pselect((int)count, in, out, urgent, limit, mask);
}

int comb_lib_select(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict urgent,
                    struct timeval *restrict limit)
{
    COMB_DESK(desk);
    void *sets[] = {in, out, urgent, limit};
    struct comb_part parts[5] = {{.value = count}};
    for (int at = 0; at < 4; at++) {
        size_t bytes = at < 3 ? sizeof *in : sizeof *limit;
        parts[at + 1] = (struct comb_part){.own = comb_own(&desk, sets[at], bytes), .in = bytes, .out = bytes};
    }
    long answer = comb_cell() == 0 ? select_there(count, parts[1].own, parts[2].own, parts[3].own, parts[4].own)
                                   : comb_forward(0, (void (*)(void))select_there, parts, 5);
    for (int at = 0; at < 4; at++)
        comb_give_back(sets[at], parts[at + 1].own, parts[at + 1].out);
    return (int)answer;
}
COMB_SAME_TYPE(select);

int comb_lib_pselect(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict urgent,
                     const struct timespec *restrict limit, const sigset_t *restrict mask)
{
    COMB_DESK(desk);
    fd_set *sets[] = {in, out, urgent};
    struct comb_part parts[6] = {{.value = count}};
    for (int at = 0; at < 3; at++)
        parts[at + 1] = (struct comb_part){
            .own = comb_own(&desk, sets[at], sizeof *in), .in = sizeof *in, .out = sizeof *in};
    parts[4] = (struct comb_part){.own = (void *)comb_own(&desk, limit, sizeof *limit), .in = sizeof *limit};
    parts[5] = (struct comb_part){.own = (void *)comb_own_signals(&desk, mask), .in = sizeof *mask};
    long answer = comb_cell() == 0
                      ? pselect_there(count, parts[1].own, parts[2].own, parts[3].own, parts[4].own, parts[5].own)
                      : comb_forward(0, (void (*)(void))pselect_there, parts, 6);
    for (int at = 0; at < 3; at++)
        comb_give_back(sets[at], parts[at + 1].own, sizeof *in);
    return (int)answer;
}
COMB_SAME_TYPE(pselect);

COMB_WRAP_AT(int, epoll_ctl, DESCRIPTOR(set), VALUE(int, operation), DESCRIPTOR(descriptor),
             INOUT(struct epoll_event, event));
COMB_WRAP_AT(int, epoll_wait, DESCRIPTOR(set), FILLED(struct epoll_event, events, room, answer > 0 ? answer : 0),
             VALUE(int, room), VALUE(int, milliseconds));
COMB_WRAP_AT(int, epoll_pwait, DESCRIPTOR(set), FILLED(struct epoll_event, events, room, answer > 0 ? answer : 0),
             VALUE(int, room), VALUE(int, milliseconds), SIGNALS(mask));
COMB_WRAP_AT(int, epoll_pwait2, DESCRIPTOR(set), FILLED(struct epoll_event, events, room, answer > 0 ? answer : 0),
             VALUE(int, room), IN(struct timespec, limit), SIGNALS(mask));
