// What a kernel's services take, each alone: a line `NAME MICROSECONDS` for each, the least of many short rounds, as what else a host does only adds to it. The same
// program runs on the host and in guests. Only the service is timed, not what prepares the next one.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, PAGES = 256, PAGE = 4096, BYTES = PAGES * PAGE, FILES = 128 };

// Long enough to be timed, and short enough that nothing else happens in most.
static const double LEAST_ROUND_US = 300;

static char *own;
static char path[64];
static int file, shared;
static int ends[2];
static char buffer[PAGE];

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void check(int is_well, const char *what)
{
    if (!is_well) {
        perror(what);
        exit(1);
    }
}

// Each does its service some times and says how long that took; how often is in `times`.

static double touched(char *pages)
{
    double since = now_us();
    for (int page = 0; page < PAGES; page++)
        *(volatile char *)(pages + page * PAGE) = 1;
    return now_us() - since;
}

static char *mapped(int flags, int descriptor)
{
    char *pages = mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    check(pages != MAP_FAILED, "mmap");
    madvise(pages, BYTES, MADV_NOHUGEPAGE);
    return pages;
}

// A page that is nobody's yet.
static double demand_zero(int *times)
{
    char *pages = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    double took = touched(pages);
    munmap(pages, BYTES);
    *times = PAGES;
    return took;
}

// A page that is in memory and not in the table of pages.
static double quick_fault(int *times)
{
    char *pages = mapped(MAP_SHARED, shared);
    double took = touched(pages);
    munmap(pages, BYTES);
    *times = PAGES;
    return took;
}

// A page that is another's as well, until it is written.
static double copy_on_write(int *times)
{
    char *pages = mapped(MAP_PRIVATE, shared);
    for (int page = 0; page < PAGES; page++)
        (void)*(volatile char *)(pages + page * PAGE);
    double took = touched(pages);
    munmap(pages, BYTES);
    *times = PAGES;
    return took;
}

static double opened(int *times)
{
    int descriptors[FILES];
    double since = now_us();
    for (int each = 0; each < FILES; each++)
        descriptors[each] = open(path, O_RDWR);
    double took = now_us() - since;
    for (int each = 0; each < FILES; each++) {
        check(descriptors[each] >= 0, "open");
        close(descriptors[each]);
    }
    *times = FILES;
    return took;
}

static double closed(int *times)
{
    int descriptors[FILES];
    for (int each = 0; each < FILES; each++)
        check((descriptors[each] = open(path, O_RDWR)) >= 0, "open");
    double since = now_us();
    for (int each = 0; each < FILES; each++)
        close(descriptors[each]);
    *times = FILES;
    return now_us() - since;
}

static double stated(int *times)
{
    struct stat about;
    double since = now_us();
    for (int each = 0; each < FILES; each++)
        stat(path, &about);
    *times = FILES;
    return now_us() - since;
}

static double wrote(int *times)
{
    double since = now_us();
    for (int page = 0; page < PAGES; page++)
        check(pwrite(file, buffer, PAGE, page * PAGE) == PAGE, "write");
    *times = PAGES;
    return now_us() - since;
}

static double was_read(int *times)
{
    double since = now_us();
    for (int page = 0; page < PAGES; page++)
        check(pread(file, buffer, PAGE, page * PAGE) == PAGE, "read");
    *times = PAGES;
    return now_us() - since;
}

static double called(int *times)
{
    double since = now_us();
    for (int each = 0; each < 1000; each++)
        syscall(SYS_getppid);
    *times = 1000;
    return now_us() - since;
}

static double executed(int *times)
{
    double since = now_us();
    pid_t child = vfork();
    if (child == 0) {
        execl(own, own, "-", (char *)0);
        _exit(1);
    }
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "execve");
    *times = 1;
    return now_us() - since;
}

static double forked(int *times)
{
    double since = now_us();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    check(child > 0 && waitpid(child, 0, 0) == child, "fork");
    *times = 1;
    return now_us() - since;
}

// From one process to another and back.
static double switched(int *times)
{
    int back[2];
    check(pipe(ends) == 0 && pipe(back) == 0, "pipe");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        close(ends[1]);
        while (read(ends[0], buffer, 1) == 1)
            if (write(back[1], buffer, 1) != 1)
                break;
        _exit(0);
    }
    close(ends[0]);
    check(write(ends[1], buffer, 1) == 1 && read(back[0], buffer, 1) == 1, "pipe");
    double since = now_us();
    for (int each = 0; each < 100; each++)
        check(write(ends[1], buffer, 1) == 1 && read(back[0], buffer, 1) == 1, "pipe");
    double took = now_us() - since;
    close(ends[1]);
    close(back[0]);
    close(back[1]);
    waitpid(child, 0, 0);
    *times = 100;
    return took;
}

static void measure(const char *name, double (*service)(int *times))
{
    double least = 0;
    int times;
    // The first time much is new.
    service(&times);
    for (int round = 0; round < ROUNDS; round++) {
        double took = 0;
        long all = 0;
        while (took < LEAST_ROUND_US) {
            took += service(&times);
            all += times;
        }
        if (round == 0 || took / all < least)
            least = took / all;
    }
    printf("%s %.4f\n", name, least);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    // As the program that is executed: it is that, and no more.
    if (count > 1)
        return 0;
    own = arguments[0];
    snprintf(path, sizeof path, "/dev/shm/comb-services-%d", getpid());
    file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    check(file >= 0, path);
    shared = memfd_create("shared", 0);
    check(shared >= 0 && ftruncate(shared, BYTES) == 0, "memfd_create");
    memset(buffer, 1, sizeof buffer);
    for (int page = 0; page < PAGES; page++)
        check(pwrite(file, buffer, PAGE, page * PAGE) == PAGE && pwrite(shared, buffer, PAGE, page * PAGE) == PAGE, "write");
    measure("DEMAND-ZERO", demand_zero);
    measure("QUICK-FAULT", quick_fault);
    measure("COPY-ON-WRITE", copy_on_write);
    measure("open", opened);
    measure("close", closed);
    measure("stat", stated);
    measure("read", was_read);
    measure("write", wrote);
    measure("execve", executed);
    measure("fork", forked);
    measure("switch", switched);
    measure("call", called);
    unlink(path);
    return 0;
}
