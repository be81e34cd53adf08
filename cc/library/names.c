/* Names of hosts, networks, users and groups. What comes back is in libc's memory, or in a buffer of the program's with pointers
 * into itself. */
#include "every.h"

#include <errno.h>

#include "reach.h"

COMB_WRAP(struct hostent *, gethostbyname, TEXT(name));
COMB_WRAP(struct hostent *, gethostbyname2, TEXT(name), VALUE(int, family));
COMB_WRAP(struct hostent *, gethostbyaddr, ARRAY(void, address, bytes), VALUE(socklen_t, bytes), VALUE(int, family));
COMB_WRAP(struct servent *, getservbyname, TEXT(name), TEXT(protocol));
COMB_WRAP(struct servent *, getservbyport, VALUE(int, port), TEXT(protocol));
COMB_WRAP(struct protoent *, getprotobyname, TEXT(name));
COMB_WRAP(struct netent *, getnetbyname, TEXT(name));
COMB_WRAP(struct passwd *, getpwnam, TEXT(name));
COMB_WRAP(struct group *, getgrnam, TEXT(name));
COMB_WRAP(int, initgroups, TEXT(name), VALUE(gid_t, group));
COMB_WRAP(unsigned, if_nametoindex, TEXT(name));
COMB_WRAP(int, inet_aton, TEXT(text), INOUT(struct in_addr, address));
COMB_WRAP(in_addr_t, inet_addr, TEXT(text));
COMB_WRAP(in_addr_t, inet_network, TEXT(text));

/* The address of either family has its own length. */
static size_t address_bytes(int family)
{
    return family == AF_INET ? sizeof(struct in_addr) : family == AF_INET6 ? sizeof(struct in6_addr) : 0;
}

COMB_WRAP(int, inet_pton, VALUE(int, family), TEXT(text), FILLED(void, to, 16, answer == 1 ? address_bytes(family) : 0));

const char *comb_lib_inet_ntop(int family, const void *restrict from, char *restrict to, socklen_t room)
{
    COMB_DESK(desk);
    char own[INET6_ADDRSTRLEN];
    const char *answer = inet_ntop(family, comb_own(&desk, from, address_bytes(family)), own,
                                   room < sizeof own ? room : sizeof own);
    if (!answer)
        return NULL;
    comb_copy_to(to, own, strlen(own) + 1);
    return to;
}
COMB_SAME_TYPE(inet_ntop);

char *comb_lib_if_indextoname(unsigned index, char *to)
{
    char own[IF_NAMESIZE] = "";
    if (!if_indextoname(index, own))
        return NULL;
    comb_copy_to(to, own, sizeof own);
    return to;
}
COMB_SAME_TYPE(if_indextoname);

/* The list is libc's memory, of this cell, and freed by it. */
int comb_lib_getaddrinfo(const char *restrict host, const char *restrict service, const struct addrinfo *restrict hints,
                         struct addrinfo **restrict result)
{
    COMB_DESK(desk);
    struct addrinfo *own = NULL;
    int answer = getaddrinfo(comb_own_text(&desk, host), comb_own_text(&desk, service),
                             comb_own(&desk, hints, sizeof *hints), &own);
    if (answer == 0)
        comb_set_pointer(result, own);
    return answer;
}
COMB_SAME_TYPE(getaddrinfo);

int comb_lib_getnameinfo(const struct sockaddr *restrict address, socklen_t bytes, char *restrict host,
                         socklen_t host_room, char *restrict service, socklen_t service_room, int flags)
{
    COMB_DESK(desk);
    char *own_host = comb_own_room(&desk, host, host_room), *own_service = comb_own_room(&desk, service, service_room);
    int answer = getnameinfo(comb_own(&desk, address, bytes), bytes, own_host, host_room, own_service, service_room,
                             flags);
    comb_give_back(host, own_host, host_room ? comb_text_bytes(own_host, answer == 0) : 0);
    comb_give_back(service, own_service, service_room ? comb_text_bytes(own_service, answer == 0) : 0);
    return answer;
}
COMB_SAME_TYPE(getnameinfo);

int comb_lib_getifaddrs(struct ifaddrs **result)
{
    struct ifaddrs *own;
    int answer = getifaddrs(&own);
    if (answer == 0)
        comb_set_pointer(result, own);
    return answer;
}
COMB_SAME_TYPE(getifaddrs);

/* The …_r functions: an entry, and room for its texts, into which it points. */

static char *moved(char *text, const char *own, char *to)
{
    return text ? to + (text - own) : NULL;
}

#define FINDS_USER(name, type, key, own_key)                                                                        \
    int comb_lib_##name(type key, struct passwd *restrict entry, char *restrict to, size_t room,                    \
                        struct passwd **restrict result)                                                            \
    {                                                                                                               \
        COMB_DESK(desk);                                                                                            \
        struct passwd own, *found = NULL;                                                                           \
        char *texts = comb_desk_room(&desk, room);                                                                  \
        memset(texts, 0, room);                                                                                     \
        int answer = name(own_key, &own, texts, room, &found);                                                      \
        if (found) {                                                                                                \
            own.pw_name = moved(own.pw_name, texts, to), own.pw_passwd = moved(own.pw_passwd, texts, to);           \
            own.pw_gecos = moved(own.pw_gecos, texts, to), own.pw_dir = moved(own.pw_dir, texts, to);               \
            own.pw_shell = moved(own.pw_shell, texts, to);                                                          \
            comb_copy_to(to, texts, room);                                                                          \
            comb_copy_to(entry, &own, sizeof own);                                                                  \
        }                                                                                                           \
        comb_set_pointer(result, found ? entry : NULL);                                                             \
        return answer;                                                                                              \
    }                                                                                                               \
    COMB_SAME_TYPE(name)
FINDS_USER(getpwuid_r, uid_t, id, id);
FINDS_USER(getpwnam_r, const char *restrict, user, comb_own_text(&desk, user));

#define FINDS_GROUP(name, type, key, own_key)                                                                       \
    int comb_lib_##name(type key, struct group *restrict entry, char *restrict to, size_t room,                     \
                        struct group **restrict result)                                                             \
    {                                                                                                               \
        COMB_DESK(desk);                                                                                            \
        struct group own, *found = NULL;                                                                            \
        char *texts = comb_desk_room(&desk, room);                                                                  \
        memset(texts, 0, room);                                                                                     \
        int answer = name(own_key, &own, texts, room, &found);                                                      \
        if (found) {                                                                                                \
            for (char **member = own.gr_mem; *member; member++)                                                     \
                *member = moved(*member, texts, to);                                                                \
            own.gr_name = moved(own.gr_name, texts, to), own.gr_passwd = moved(own.gr_passwd, texts, to);           \
            own.gr_mem = (char **)moved((char *)own.gr_mem, texts, to);                                             \
            comb_copy_to(to, texts, room);                                                                          \
            comb_copy_to(entry, &own, sizeof own);                                                                  \
        }                                                                                                           \
        comb_set_pointer(result, found ? entry : NULL);                                                             \
        return answer;                                                                                              \
    }                                                                                                               \
    COMB_SAME_TYPE(name)
FINDS_GROUP(getgrgid_r, gid_t, id, id);
FINDS_GROUP(getgrnam_r, const char *restrict, group, comb_own_text(&desk, group));

static size_t room_of(const int *count)
{
    int own;
    comb_copy_from(&own, count, sizeof own);
    return own > 0 ? (size_t)own : 0;
}

/* How many there are goes out where there was room for how many. */
COMB_WRAP(int, getgrouplist, TEXT(user), VALUE(gid_t, group), FILLED(gid_t, groups, room_of(count), answer > 0 ? answer : 0), INOUT(int, count));
