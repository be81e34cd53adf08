/* What this prints is the same on the host: threads, locks, and an exec and an exit from among them. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/file.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int total, turn;

static void *add(void *x) {
    for (int i = 0; i < 2000; i++) { pthread_mutex_lock(&lock); total++; pthread_mutex_unlock(&lock); }
    return x;
}
static void *pass(void *x) {
    long me = (long)x;
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&lock);
        while (turn % 3 != me) pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
static void *spin(void *x) { for (;;) (*(volatile long *)x)++; return 0; }
static void *runs(void *x) { usleep(5000); execl("/proc/self/exe", "threads", "second", (char *)0); return x; }
static void *dies(void *x) { pthread_mutex_lock(x); return 0; }

int main(int argc, char **argv) {
    if (argc > 1) { printf("%s leader %d\n", argv[1], getpid() == gettid()); return 6; }
    pthread_t t[6];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, add, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    printf("total %d\n", total);
    for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, pass, (void *)i);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    printf("turns %d\n", turn);
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += 10000000;
    if (when.tv_nsec >= 1000000000) when.tv_sec++, when.tv_nsec -= 1000000000;
    pthread_mutex_lock(&lock);
    printf("timed %d\n", pthread_cond_timedwait(&changed, &lock, &when) == ETIMEDOUT);
    pthread_mutexattr_t ma;
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_t robust;
    pthread_mutex_init(&robust, &ma);
    pthread_create(&t[0], 0, dies, &robust);
    pthread_join(t[0], 0);
    printf("robust %d\n", pthread_mutex_lock(&robust) == EOWNERDEAD);
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
    pthread_mutex_t *shared = mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_init(shared, &ma);
    pthread_mutex_lock(shared);
    int *n = (int *)(shared + 1);
    if (!fork()) { pthread_mutex_lock(shared); *n += 5; pthread_mutex_unlock(shared); _exit(0); }
    usleep(10000);
    *n = 1;
    pthread_mutex_unlock(shared);
    int status;
    wait(&status);
    printf("between processes %d\n", *n);
    fflush(stdout);
    long x = 0;
    if (!fork()) { pthread_create(&t[0], 0, spin, &x); pthread_create(&t[1], 0, runs, 0); for (;;) pause(); }
    wait(&status);
    printf("exec %x\n", status);
    fflush(stdout);
    if (!fork()) { for (int i = 0; i < 6; i++) pthread_create(&t[i], 0, spin, &x); usleep(5000); _exit(9); }
    wait(&status);
    printf("exit %x\n", status);
    if (!fork()) { pthread_create(&t[0], 0, spin, &x); pthread_exit(0); }
    else { usleep(10000); printf("lasts %d\n", waitpid(-1, &status, WNOHANG)); kill(0, SIGCONT); }
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    wait(&status);
    printf("term %x\n", status);

    int e = epoll_create1(0), c = eventfd(0, EFD_NONBLOCK), p[2];
    pipe(p);
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 1}, got[4];
    epoll_ctl(e, EPOLL_CTL_ADD, c, &ev);
    ev = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u32 = 2};
    epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev);
    printf("none %d\n", epoll_wait(e, got, 4, 5));
    write(p[1], "abc", 3);
    printf("edge %d", epoll_wait(e, got, 4, 1000));
    printf(" %u", got[0].data.u32);
    printf(" %d\n", epoll_wait(e, got, 4, 5));
    write(p[1], "d", 1);
    printf("edge %d\n", epoll_wait(e, got, 4, 1000));
    uint64_t one = 3;
    write(c, &one, 8);
    printf("level %d", epoll_wait(e, got, 4, 1000));
    printf(" %d\n", epoll_wait(e, got, 4, 1000));
    read(c, &one, 8);
    printf("counter %d then %d\n", (int)one, (int)read(c, &one, 8));
    int tf = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec ts = {.it_value = {0, 5000000}};
    timerfd_settime(tf, 0, &ts, 0);
    struct pollfd pf[3] = {{tf, POLLIN, 0}, {-1, POLLIN, 0}, {77, POLLIN, 0}};
    printf("poll %d %x", poll(pf, 3, 1000), pf[2].revents);
    printf(" %d", poll(pf, 2, 1000));
    printf(" %d\n", (int)read(tf, &one, 8));
    fd_set rs;
    FD_ZERO(&rs);
    FD_SET(p[0], &rs);
    struct timeval tv = {1, 0};
    printf("select %d %d\n", select(p[0] + 1, &rs, 0, 0, &tv), FD_ISSET(p[0], &rs));
    char name[] = "/tmp/comb-unix-locks-XXXXXX";
    int fd = mkstemp(name);
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    fcntl(fd, F_SETLK, &fl);
    if (!fork()) {
        struct flock g = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 12, .l_len = 100};
        printf("lock %d", fcntl(fd, F_SETLK, &g) == -1);
        fcntl(fd, F_GETLK, &g);
        printf(" by parent %d at %d", g.l_pid == getppid(), (int)g.l_start);
        g.l_type = F_WRLCK; g.l_start = 12; g.l_len = 100;
        printf(" then %d\n", fcntl(fd, F_SETLKW, &g));
        fflush(stdout);
        _exit(0);
    }
    usleep(20000);
    close(open(name, O_RDONLY)); /* takes the locks of this process along */
    wait(&status);
    printf("done %x\n", status);
    unlink(name);
    return 0;
}
