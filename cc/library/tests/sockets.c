/* Pipes and sockets of two cells, waiting for them, names of hosts and users. */
#include "world.h"

static int pair_ends[2];

static void pairs(void)
{
    int *ends = (int *)place_aligned(8);
    SAY(C(pipe)(ends)); get(pair_ends, ends, 8); C(close)(pair_ends[0]), C(close)(pair_ends[1]);
    SAY(C(pipe2)(ends, 0)); get(pair_ends, ends, 8); C(close)(pair_ends[0]), C(close)(pair_ends[1]);
    SAY(C(socketpair)(AF_UNIX, SOCK_DGRAM, 0, ends));
    get(pair_ends, ends, 8);
    put(ends, &(long){0}, 8);
}

static void talk(int one, int other)
{
    char *text = place_random_text(300), *to = place(400);
    size_t bytes = below(250);
    SAY(C(send)(one, text, bytes, 0)); SAY(C(recv)(other, to, 400, 0));
    SAY(C(sendto)(one, text, bytes, 0, NULL, 0)); SAY(C(recvfrom)(other, to, 30, 0, NULL, NULL));
    SAY(C(send)(one, text, bytes, 0)); SAY(C(__recv_chk)(other, to, 300, 400, 0));
    SAY_ERRNO(C(recv)(other, to, 30, MSG_DONTWAIT));
    struct pollfd *waiting = place_bytes((struct pollfd[]){{one, POLLIN, 0}, {other, POLLOUT, 0}}, 16), blank[2];
    struct timespec *limit = place_bytes(&(struct timespec){0, 0}, 16);
    SAY(C(poll)(waiting, 2, 0)); SAY(C(ppoll)(waiting, 2, limit, NULL)); SAY(C(__poll_chk)(waiting, 2, 0, 16));
    SAY(C(__ppoll_chk)(waiting, 2, limit, NULL, 16));
    get(blank, waiting, 16);
    SAY(blank[0].revents); SAY(blank[1].revents);
    put(waiting, memset(blank, 0, 16), 16);
    int *value = place_bytes(&(int){1}, 4);
    socklen_t *length = place_bytes(&(socklen_t){4}, 4);
    SAY(C(setsockopt)(one, SOL_SOCKET, SO_PASSCRED, value, 4)); SAY(C(getsockopt)(one, SOL_SOCKET, SO_PASSCRED, value, length));
    SAY(C(sockatmark)(one) <= 0);
    SAY(C(shutdown)(one, SHUT_WR));
}

/* A set is of its descriptors' cell. */
static void events_of(int one)
{
    struct timespec *limit = place_bytes(&(struct timespec){0, 0}, 16);
    int set = C(epoll_create1)(0), second = C(epoll_create)(5);
    struct epoll_event *events = place_bytes((struct epoll_event[3]){{EPOLLOUT, {.u64 = 77}}}, 3 * sizeof *events);
    SAY(C(epoll_ctl)(set, EPOLL_CTL_ADD, one, events)); SAY(C(epoll_wait)(set, events, 3, 0));
    SAY(C(epoll_pwait)(set, events, 3, 0, NULL)); SAY(C(epoll_pwait2)(set, events, 3, limit, NULL));
    SAY(C(close)(set)); SAY(C(close)(second));
}

static void messages(int one, int other)
{
    char *text = place_text("gathered"), *to = place(50);
    struct iovec *out = place_bytes((struct iovec[]){{text, 3}, {text + 4, 4}}, 32), *in = place_bytes((struct iovec[]){{to, 2}, {to + 9, 30}}, 32);
    struct mmsghdr *sent = place_bytes(&(struct mmsghdr){.msg_hdr = {.msg_iov = out, .msg_iovlen = 2}}, sizeof *sent);
    struct mmsghdr *got = place_bytes(&(struct mmsghdr){.msg_hdr = {.msg_iov = in, .msg_iovlen = 2}}, sizeof *got);
    SAY(C(sendmsg)(one, &sent->msg_hdr, 0)); SAY(C(recvmsg)(other, &got->msg_hdr, 0));
    SAY(C(sendmmsg)(one, sent, 1, 0)); SAY(C(recvmmsg)(other, got, 1, 0, NULL));
}

static void addresses(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "sock"};
    void *address = place_bytes(&name, sizeof name), *peer = place_aligned(sizeof name);
    socklen_t *length = place_bytes(&(socklen_t){sizeof name}, 4);
    on_cell(below(2));
    int listening = C(socket)(AF_UNIX, SOCK_STREAM, 0), calling = C(socket)(AF_UNIX, SOCK_STREAM, 0);
    on_cell(below(2));
    SAY(C(bind)(listening, address, sizeof name)); SAY(C(listen)(listening, 2)); SAY(C(connect)(calling, address, sizeof name));
    SAY(C(getsockname)(listening, peer, length)); put(length, &(socklen_t){sizeof name}, 4);
    int accepted = C(accept)(listening, peer, length);
    SAY(accepted >= 0); put(length, &(socklen_t){sizeof name}, 4); SAY(C(getpeername)(calling, peer, length));
    put(length, &(socklen_t){sizeof name}, 4);
    int again = C(socket)(AF_UNIX, SOCK_STREAM, 0);
    if (again >> 22 == listening >> 22)
        say("%s", "");
    C(connect)(again, address, sizeof name);
    int fourth = C(accept4)(listening, NULL, NULL, SOCK_CLOEXEC);
    SAY(fourth >= 0);
    C(close)(listening), C(close)(calling), C(close)(accepted), C(close)(again), C(close)(fourth);
    on_cell(0);
    SAY(C(unlink)(place_text("sock")));
}

static void others(void)
{
    fd_set own, *set;
    FD_ZERO(&own);
    struct timeval *limit = place_bytes(&(struct timeval){0, 0}, 16);
    struct timespec *precise = place_bytes(&(struct timespec){0, 0}, 16);
    set = place_bytes(&own, sizeof own);
    on_cell(below(2));
    SAY(C(select)(5, set, NULL, NULL, limit)); SAY(C(pselect)(5, set, NULL, NULL, precise, NULL));
    int event = C(eventfd)(3, 0), timer = C(timerfd_create)(CLOCK_MONOTONIC, 0), watch = C(inotify_init)(), watch1 = C(inotify_init1)(0);
    int memory = C(memfd_create)(place_text("name"), 0);
    on_cell(below(2));
    eventfd_t *value = place_bytes(&(eventfd_t){0}, 8);
    SAY(C(eventfd_write)(event, 4)); SAY(C(eventfd_read)(event, value));
    struct itimerspec *when = place_bytes(&(struct itimerspec){{0, 0}, {0, 0}}, sizeof *when);
    SAY(C(timerfd_settime)(timer, 0, when, when)); SAY(C(timerfd_gettime)(timer, when));
    int number = C(inotify_add_watch)(watch, place_text("."), IN_CREATE);
    SAY(number); SAY(C(inotify_rm_watch)(watch, number));
    SAY(C(fstatfs)(memory, (void *)place_aligned(sizeof(struct statfs))) == 0);
    C(close)(event), C(close)(timer), C(close)(watch), C(close)(watch1), C(close)(memory);
    on_cell(0);
}

static void names(void)
{
    char *to = place(100), *texts = place(2000), nothing[2000] = "";
    struct in_addr *address = (struct in_addr *)place_aligned(4);
    SAY(C(inet_aton)(place_text("10.1.2.3"), address)); SAY(C(inet_addr)(place_text("10.1.2.3"))); SAY(C(inet_network)(place_text("10.1")));
    void *long_address = place_aligned(16);
    SAY(C(inet_pton)(AF_INET6, place_text("fe80::1"), long_address)); SAY_PLACE(C(inet_ntop)(AF_INET6, long_address, to, 80));
    SAY(C(inet_pton)(AF_INET, place_text("bad"), address)); SAY(C(if_nametoindex)(place_text("lo"))); SAY_PLACE(C(if_indextoname)(1, to));
    struct addrinfo *hints = place_bytes(&(struct addrinfo){.ai_flags = AI_NUMERICHOST}, sizeof *hints), **list = (void *)place_aligned(8), *own;
    SAY(C(getaddrinfo)(place_text("127.0.0.1"), place_text("80"), hints, list));
    get(&own, list, 8);
    SAY(C(getnameinfo)(place_bytes(own->ai_addr, own->ai_addrlen), own->ai_addrlen, to, 50, to + 50, 20, NI_NUMERICHOST | NI_NUMERICSERV));
    freeaddrinfo(own);
    put(list, nothing, 8);
    struct passwd *user = place_bytes(nothing, sizeof *user), **result = place_bytes(nothing, 8);
    SAY(C(getpwuid_r)(0, user, texts, 1000, result)); SAY(C(getpwnam_r)(place_text("root"), user, texts, 1000, result));
    struct group *group = place_bytes(nothing, sizeof *group);
    SAY(C(getgrgid_r)(0, group, texts, 1000, (void *)result)); SAY(C(getgrnam_r)(place_text("root"), group, texts, 1000, (void *)result));
    put(texts, nothing, 2000), put(user, nothing, sizeof *user), put(group, nothing, sizeof *group);
    SAY_TEXT(C(getpwnam)(place_text("root"))->pw_name); SAY_TEXT(C(getgrnam)(place_text("root"))->gr_name);
    SAY(C(getgrouplist)(place_text("root"), 0, (gid_t *)place_aligned(40), place_bytes(&(int){10}, 4)));
    struct ifaddrs **interfaces = place_bytes(nothing, 8), *first;
    SAY(C(getifaddrs)(interfaces)); get(&first, interfaces, 8); freeifaddrs(first); put(interfaces, nothing, 8);
}

void sockets_scene(void)
{
    on_cell(below(2));
    pairs();
    events_of(pair_ends[0]);
    messages(pair_ends[0], pair_ends[1]);
    on_cell(below(2));
    talk(pair_ends[0], pair_ends[1]);
    C(close)(pair_ends[0]), C(close)(pair_ends[1]);
    on_cell(0);
    addresses();
    others();
    names();
}
