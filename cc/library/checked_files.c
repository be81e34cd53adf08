/* Fortified calls on descriptors, streams, paths and names: the size of the object is compared first. */
#include "every.h"

#define CHECKED(result, name, is_too_long, call, ...) \
    result comb_lib_##name(__VA_ARGS__)               \
    {                                                 \
        if (is_too_long)                              \
            __chk_fail();                             \
        return call;                                  \
    }                                                 \
    COMB_SAME_TYPE(name)

#define WRAPPER(name) extern __typeof__(name) comb_lib_##name
WRAPPER(read); WRAPPER(pread); WRAPPER(readlink); WRAPPER(readlinkat); WRAPPER(getcwd); WRAPPER(realpath);
WRAPPER(gethostname); WRAPPER(getdomainname); WRAPPER(ttyname_r); WRAPPER(getgroups); WRAPPER(confstr); WRAPPER(poll);
WRAPPER(ppoll); WRAPPER(fgets); WRAPPER(fgets_unlocked); WRAPPER(fgetws); WRAPPER(fgetws_unlocked); WRAPPER(fread);
WRAPPER(fread_unlocked); WRAPPER(open); WRAPPER(openat); WRAPPER(recvfrom);

CHECKED(ssize_t, __read_chk, bytes > object, comb_lib_read(descriptor, to, bytes), int descriptor, void *to, size_t bytes,
        size_t object);
CHECKED(ssize_t, __pread_chk, bytes > object, comb_lib_pread(descriptor, to, bytes, offset), int descriptor, void *to,
        size_t bytes, off_t offset, size_t object);
COMB_ALIAS(__pread64_chk, __pread_chk);
CHECKED(ssize_t, __readlink_chk, room > object, comb_lib_readlink(path, to, room), const char *path, char *to, size_t room,
        size_t object);
CHECKED(ssize_t, __readlinkat_chk, room > object, comb_lib_readlinkat(directory, path, to, room), int directory,
        const char *path, char *to, size_t room, size_t object);
CHECKED(char *, __getcwd_chk, room > object, comb_lib_getcwd(to, room), char *to, size_t room, size_t object);
CHECKED(char *, __realpath_chk, object < PATH_MAX, comb_lib_realpath(path, to), const char *path, char *to, size_t object);
CHECKED(int, __gethostname_chk, room > object, comb_lib_gethostname(to, room), char *to, size_t room, size_t object);
CHECKED(int, __getdomainname_chk, room > object, comb_lib_getdomainname(to, room), char *to, size_t room, size_t object);
CHECKED(int, __ttyname_r_chk, room > object, comb_lib_ttyname_r(descriptor, to, room), int descriptor, char *to,
        size_t room, size_t object);
CHECKED(int, __getgroups_chk, room < 0 || (size_t)room * sizeof(gid_t) > object, comb_lib_getgroups(room, to), int room,
        gid_t *to, size_t object);
CHECKED(size_t, __confstr_chk, room > object, comb_lib_confstr(name, to, room), int name, char *to, size_t room,
        size_t object);
CHECKED(int, __poll_chk, object / sizeof(struct pollfd) < count, comb_lib_poll(descriptors, count, milliseconds),
        struct pollfd *descriptors, nfds_t count, int milliseconds, size_t object);
CHECKED(int, __ppoll_chk, object / sizeof(struct pollfd) < count, comb_lib_ppoll(descriptors, count, limit, mask),
        struct pollfd *descriptors, nfds_t count, const struct timespec *limit, const sigset_t *mask, size_t object);

/* Streams. */
CHECKED(char *, __fgets_chk, room > 0 && (size_t)room > object, comb_lib_fgets(to, room, stream), char *to, size_t object,
        int room, FILE *stream);
CHECKED(char *, __fgets_unlocked_chk, room > 0 && (size_t)room > object, comb_lib_fgets_unlocked(to, room, stream),
        char *to, size_t object, int room, FILE *stream);
CHECKED(wchar_t *, __fgetws_chk, room > 0 && (size_t)room > object, comb_lib_fgetws(to, room, stream), wchar_t *to,
        size_t object, int room, FILE *stream);
CHECKED(wchar_t *, __fgetws_unlocked_chk, room > 0 && (size_t)room > object, comb_lib_fgetws_unlocked(to, room, stream),
        wchar_t *to, size_t object, int room, FILE *stream);
CHECKED(size_t, __fread_chk, bytes && count > object / bytes, comb_lib_fread(to, bytes, count, stream), void *to,
        size_t object, size_t bytes, size_t count, FILE *stream);
CHECKED(size_t, __fread_unlocked_chk, bytes && count > object / bytes, comb_lib_fread_unlocked(to, bytes, count, stream),
        void *to, size_t object, size_t bytes, size_t count, FILE *stream);

/* Without a mode, nothing may be made. */
CHECKED(int, __open_2, flags & O_CREAT, comb_lib_open(path, flags), const char *path, int flags);
COMB_ALIAS(__open64_2, __open_2);
CHECKED(int, __openat_2, flags & O_CREAT, comb_lib_openat(directory, path, flags), int directory, const char *path,
        int flags);
COMB_ALIAS(__openat64_2, __openat_2);

