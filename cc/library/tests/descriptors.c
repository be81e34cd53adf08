/* Files by path and by descriptor, also on another cell: what is read is what was written. */
#include "world.h"

#include <sys/sendfile.h>
#include <unistd.h>

static const char *const PATH = "file.txt";

static void *status_of(size_t bytes)
{
    char nothing[300] = "";
    return place_bytes(nothing, bytes);
}

/* Of what the kernel says, only what two runs have in common. */
#define STATUS_AFTER(call, status)                      \
    say("%s = %lld\n", #call, (long long)(call));         \
    get(&own, status, sizeof own);                      \
    SAY(own.st_size);                                   \
    memset(&own, 0, sizeof own);                        \
    put(status, &own, sizeof own)

static void paths(void)
{
    char *path = place_text(PATH), *other = place_text("other.txt"), *link_path = place_text("link"), *to = place(300);
    char *directory = place_text("made"), *at = place_text("made/in");
    struct stat own, *status = status_of(sizeof own);
    STATUS_AFTER(C(stat)(path, status), status);
    STATUS_AFTER(C(stat64)(path, (struct stat64 *)status), status);
    SAY(C(symlink)(path, link_path));
    STATUS_AFTER(C(lstat)(link_path, status), status);
    STATUS_AFTER(C(lstat64)(link_path, (struct stat64 *)status), status);
    SAY(C(readlink)(link_path, to, below(20))); SAY(C(__readlink_chk)(link_path, to, 100, 300));
    SAY(C(readlinkat)(AT_FDCWD, link_path, to, 100)); SAY(C(__readlinkat_chk)(AT_FDCWD, link_path, to, 100, 300));
    SAY(C(unlink)(link_path));
    SAY(C(access)(path, R_OK)); SAY(C(euidaccess)(path, R_OK)); SAY(C(eaccess)(path, R_OK));
    SAY(C(faccessat)(AT_FDCWD, path, R_OK, 0));
    SAY_ERRNO(C(access)(other, R_OK));
    SAY(C(link)(path, other)); SAY(C(rename)(other, link_path)); SAY(C(unlink)(link_path));
    SAY(C(linkat)(AT_FDCWD, path, AT_FDCWD, other, 0)); SAY(C(renameat)(AT_FDCWD, other, AT_FDCWD, link_path));
    SAY(C(renameat2)(AT_FDCWD, link_path, AT_FDCWD, other, 0)); SAY(C(unlinkat)(AT_FDCWD, other, 0));
    SAY(C(symlinkat)(path, AT_FDCWD, other)); SAY(C(unlink)(other));
    SAY(C(chmod)(path, 0644)); SAY(C(fchmodat)(AT_FDCWD, path, 0600, 0)); SAY_ERRNO(C(lchmod)(place_text("no"), 0600));
    SAY(C(chown)(path, (uid_t)-1, (gid_t)-1)); SAY(C(lchown)(path, (uid_t)-1, (gid_t)-1));
    SAY(C(fchownat)(AT_FDCWD, path, (uid_t)-1, (gid_t)-1, 0));
    SAY(C(mkdir)(directory, 0755)); SAY(C(mkfifo)(at, 0600)); SAY(C(unlink)(at));
    SAY(C(mkfifoat)(AT_FDCWD, at, 0600)); SAY(C(unlink)(at)); SAY(C(mkdirat)(AT_FDCWD, at, 0700)); SAY(C(rmdir)(at));
    SAY(C(mknod)(at, S_IFREG | 0600, 0)); SAY(C(unlink)(at)); SAY(C(mknodat)(AT_FDCWD, at, S_IFREG | 0600, 0));
    SAY(C(remove)(at));
    SAY(C(chdir)(directory)); SAY(C(chdir)(place_text(".."))); SAY(C(rmdir)(directory));
    SAY(C(truncate)(path, 300)); SAY(C(truncate64)(path, 200)); SAY(C(pathconf)(path, _PC_NAME_MAX));
    SAY(C(ftok)(path, 1) != -1);
    struct utimbuf *times = place_bytes(&(struct utimbuf){5, 6}, sizeof *times);
    struct timeval *values = place_bytes((struct timeval[]){{7, 0}, {8, 0}}, 32);
    struct timespec *specs = place_bytes((struct timespec[]){{9, 0}, {10, 0}}, 32);
    SAY(C(utime)(path, times)); SAY(C(utimes)(path, values)); SAY(C(lutimes)(path, values));
    SAY(C(utimensat)(AT_FDCWD, path, specs, 0));
    SAY(C(stat)(path, status));
    get(&own, status, sizeof own);
    SAY(own.st_mtime);
    put(status, memset(&own, 0, sizeof own), sizeof own);
    SAY(C(setxattr)(path, place_text("user.comb"), place_text("value"), 5, 0) <= 0);
    SAY(C(getxattr)(path, place_text("user.none"), to, 20)); SAY(C(lgetxattr)(path, place_text("user.none"), to, 20));
    SAY(C(lsetxattr)(path, place_text("nonsense"), to, 1, 0)); SAY(C(removexattr)(path, place_text("user.none")));
    SAY(C(lremovexattr)(path, place_text("user.none")));
    SAY(C(listxattr)(place_text("nofile"), to, 20)); SAY(C(llistxattr)(place_text("nofile"), to, 20));
}

static void names(void)
{
    char *to = place(5000), *template = place_text("aXXXXXX"), *ended = place_text("bXXXXXX.c"), nothing[300] = "";
    SAY(C(getcwd)(to, 5000) == to); SAY(C(__getcwd_chk)(to, 5000, 5000) == to);
    SAY(C(realpath)(place_text("/usr/../tmp/."), to) == to); SAY_TEXT(to);
    SAY(C(__realpath_chk)(place_text("/usr/.."), to, 5000) == to);
    SAY_ERRNO(C(realpath)(place_text("/nowhere/x"), to) == NULL);
    char *made = C(realpath)(place_text("/usr/.."), NULL);
    SAY_TEXT(made);
    C(free)(made);
    made = C(canonicalize_file_name)(place_text("/usr/."));
    SAY_TEXT(made);
    C(free)(made);
    made = C(get_current_dir_name)();
    SAY(made != NULL);
    C(free)(made);
    put(to, nothing, 300);
#define MADE(call, name, template_text)                \
    put_text(name, template_text);                     \
    say("%s = %d\n", #call, C(close)(call));            \
    SAY(C(unlink)(name));                              \
    put_text(name, template_text)
    MADE(C(mkstemp)(template), template, "aXXXXXX"); MADE(C(mkstemp64)(template), template, "aXXXXXX");
    MADE(C(mkostemp)(template, 0), template, "aXXXXXX"); MADE(C(mkostemp64)(template, 0), template, "aXXXXXX");
    MADE(C(mkstemps)(ended, 2), ended, "bXXXXXX.c"); MADE(C(mkstemps64)(ended, 2), ended, "bXXXXXX.c");
    MADE(C(mkostemps)(ended, 2, 0), ended, "bXXXXXX.c"); MADE(C(mkostemps64)(ended, 2, 0), ended, "bXXXXXX.c");
    SAY(C(mkdtemp)(template) == template); SAY(C(rmdir)(template));
    put_text(template, "aXXXXXX");
}

static void states(int file)
{
    struct stat own, *status = status_of(sizeof own);
    STATUS_AFTER(C(fstat)(file, status), status);
    STATUS_AFTER(C(fstat64)(file, (struct stat64 *)status), status);
    STATUS_AFTER(C(fstatat)(AT_FDCWD, place_text(PATH), status, 0), status);
    STATUS_AFTER(C(fstatat64)(AT_FDCWD, place_text(PATH), (struct stat64 *)status, 0), status);
    struct statx *extended = status_of(sizeof *extended);
    SAY(C(statx)(AT_FDCWD, place_text(PATH), 0, STATX_SIZE, extended));
    put(extended, memset(&(char[sizeof *extended]){0}, 0, sizeof *extended), sizeof *extended);
    SAY(C(lseek)(file, 5, SEEK_SET)); SAY(C(lseek64)(file, 5, SEEK_CUR)); SAY(C(isatty)(file)); SAY(C(fsync)(file));
    SAY(C(fdatasync)(file)); SAY(C(syncfs)(file)); SAY(C(ftruncate)(file, 150)); SAY(C(ftruncate64)(file, 140));
    SAY(C(fchmod)(file, 0644)); SAY(C(fchown)(file, (uid_t)-1, (gid_t)-1)); SAY(C(flock)(file, LOCK_EX));
    SAY(C(flock)(file, LOCK_UN)); SAY(C(lockf)(file, F_TEST, 0)); SAY(C(lockf64)(file, F_TEST, 0));
    SAY(C(posix_fadvise)(file, 0, 0, POSIX_FADV_NORMAL)); SAY(C(posix_fadvise64)(file, 0, 0, POSIX_FADV_NORMAL));
    SAY(C(fallocate)(file, 0, 0, 10) <= 0); SAY(C(fallocate64)(file, 0, 0, 10) <= 0);
    SAY(C(posix_fallocate)(file, 0, 10)); SAY(C(posix_fallocate64)(file, 0, 10)); SAY(C(readahead)(file, 0, 10));
    SAY(C(sync_file_range)(file, 0, 0, 0)); SAY(C(fpathconf)(file, _PC_NAME_MAX));
    SAY(C(futimens)(file, place_bytes((struct timespec[]){{9, 0}, {10, 0}}, 32)));
    SAY(C(fgetxattr)(file, place_text("user.none"), place(20), 20)); SAY(C(flistxattr)(-1, place(20), 20));
    SAY(C(fremovexattr)(file, place_text("user.none"))); SAY(C(fsetxattr)(file, place_text("bad"), place(3), 1, 0));
    SAY(C(ttyname)(file) == NULL); SAY(C(ttyname_r)(file, place(50), 50)); SAY(C(__ttyname_r_chk)(file, place(50), 50, 50));
    struct flock *lock = place_bytes(&(struct flock){.l_type = F_WRLCK}, sizeof *lock);
    SAY(C(fcntl)(file, F_GETFL) & O_ACCMODE); SAY(C(fcntl64)(file, F_GETLK, lock)); SAY(C(fcntl)(file, F_SETLK, lock));
    int copy = C(fcntl)(file, F_DUPFD, 10);
    SAY(C(close)(copy));
    int *count = (int *)place_aligned(4);
    SAY(C(ioctl)(file, FIONREAD, count)); SAY_ERRNO(C(ioctl)(file, TIOCGWINSZ, place(8)));
}

static void transfers(int file)
{
    size_t room = below(4) ? 400 : 200000 / 4;
    char *from = place(room), *to = place(room);
    int other = C(dup)(file), third = C(dup2)(file, file), fourth = C(dup3)(file, file + 9, 0);
    SAY(third == file);
    SAY(C(close)(fourth));
    SAY(C(write)(other, from, room)); SAY(C(pwrite)(file, from, room / 2, 7)); SAY(C(pwrite64)(file, from, 3, 1));
    SAY(C(lseek)(file, 0, SEEK_SET));
    SAY(C(read)(other, to, room)); SAY(C(pread)(file, to, room, 5)); SAY(C(pread64)(file, to, 9, 5));
    SAY_ERRNO(C(pread)(file, to, 9, -5));
    SAY(C(__pread_chk)(file, to, 9, 5, room)); SAY(C(__pread64_chk)(file, to, 9, 5, room));
    SAY(C(lseek)(file, 0, SEEK_SET)); SAY(C(__read_chk)(file, to, 10, room));
    struct iovec *parts = place_bytes((struct iovec[]){{to, 5}, {to + 20, 0}, {to + 30, room / 2}}, 48);
    SAY(C(writev)(file, parts, 3)); SAY(C(pwritev)(file, parts, 3, 2)); SAY(C(pwritev64)(file, parts, 2, 2));
    SAY(C(pwritev2)(file, parts, 3, 2, 0)); SAY(C(pwritev64v2)(file, parts, 3, -1, 0));
    SAY(C(lseek)(file, 0, SEEK_SET)); SAY(C(readv)(file, parts, 3)); SAY(C(preadv)(file, parts, 3, 2));
    SAY(C(preadv64)(file, parts, 3, 2)); SAY(C(preadv2)(file, parts, 3, 2, 0)); SAY(C(preadv64v2)(file, parts, 3, 2, 0));
    SAY_ERRNO(C(read)(-1, to, 5));
    int target = C(dup)(file);
    off_t *offset = place_bytes(&(off_t){3}, 8);
    SAY(C(sendfile)(target, file, offset, 50)); SAY(C(sendfile64)(target, file, offset, 50));
    SAY(C(copy_file_range)(file, offset, target, NULL, 20, 0));
    SAY(C(close)(target));
    SAY(C(close)(other));
}

void descriptors_scene(void)
{
    char *path = place_text(PATH), *text = place_text("content of the file");
    on_cell(below(2));
    int file = C(open)(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    on_cell(below(2));
    SAY(C(write)(file, text, 19));
    paths();
    states(file);
    transfers(file);
    on_cell(0);
    names();
    SAY(C(close)(file));
    SAY(C(close)(C(open64)(path, O_RDONLY)));
    SAY(C(close)(C(creat)(path, 0600))); SAY(C(close)(C(creat64)(path, 0600)));
    SAY(C(close)(C(openat64)(AT_FDCWD, path, O_RDONLY)));
    SAY(C(close)(C(openat)(AT_FDCWD, path, O_RDONLY)));
    SAY(C(close)(C(__open_2)(path, O_RDONLY))); SAY(C(close)(C(__open64_2)(path, O_RDONLY)));
    SAY(C(close)(C(__openat_2)(AT_FDCWD, path, O_RDONLY))); SAY(C(close)(C(__openat64_2)(AT_FDCWD, path, O_RDONLY)));
    SAY(C(unlink)(path));
}
