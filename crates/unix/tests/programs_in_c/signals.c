/* What this prints is the same on the host: signals, their frames, masks, stacks and restarts. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int count;

static void on_fault(int s, siginfo_t *i, void *c) {
    ucontext_t *u = c;
    printf("fault %d code %d write %d stack %d\n", s, i->si_code, i->si_code == SEGV_ACCERR ? (int)(u->uc_mcontext.gregs[REG_ERR] >> 1 & 1) : 0,
           u->uc_stack.ss_flags);
    fflush(stdout);
    siglongjmp(back, 1);
}
static void on_count(int s) { (void)s; count++; }
static void on_info(int s, siginfo_t *i, void *c) {
    (void)c;
    printf("info %d code %d value %d\n", s, i->si_code, i->si_value.sival_int);
}
static void on_step(int s, siginfo_t *i, void *c) {
    (void)s; (void)i;
    ((ucontext_t *)c)->uc_mcontext.gregs[REG_RBX] = 0; /* must not disturb what the compiler keeps elsewhere */
    count += 10;
}
static int overflow(int n) { volatile char big[4096]; big[0] = n; return n ? overflow(n + 1) + big[0] : 0; }

int main(void) {
    struct sigaction a = {0}, old;
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &a, 0);
    sigaction(SIGBUS, &a, 0);
    if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1;
    if (!sigsetjmp(back, 1)) printf("%d\n", *(volatile int *)16);
    char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(back, 1)) *p = 1;
    mprotect(p, 4096, PROT_READ | PROT_WRITE);
    *p = 3;
    mprotect(p, 4096, PROT_NONE);
    if (!sigsetjmp(back, 1)) printf("%d\n", *p);
    FILE *f = tmpfile();
    char *m = mmap(0, 8192, PROT_READ, MAP_SHARED, fileno(f), 0);
    if (!sigsetjmp(back, 1)) printf("%d\n", m[0]);
    stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&st, 0);
    a.sa_flags |= SA_ONSTACK;
    sigaction(SIGSEGV, &a, 0);
    if (!sigsetjmp(back, 1)) printf("%d\n", overflow(1));

    a.sa_handler = on_count;
    a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, 0);
    sigaction(SIGCHLD, &a, &old);
    struct itimerval t = {.it_value = {0, 20000}};
    int pipes[2];
    char c;
    pipe(pipes);
    pid_t child = fork();
    if (!child) { usleep(60000); write(pipes[1], "x", 1); _exit(4); }
    setitimer(ITIMER_REAL, &t, 0);
    printf("read %d after restart\n", (int)read(pipes[0], &c, 1));
    int status;
    waitpid(child, &status, 0);
    printf("status %x count %d\n", status, count >= 2);
    a.sa_flags = 0;
    sigaction(SIGALRM, &a, 0);
    setitimer(ITIMER_REAL, &t, 0);
    printf("read %d", (int)read(pipes[0], &c, 1));
    printf(" errno %d\n", errno);
    setitimer(ITIMER_REAL, &t, 0);
    struct timespec span = {5, 0}, rest = {0, 0};
    printf("sleep %d", nanosleep(&span, &rest));
    printf(" rest %d\n", rest.tv_sec == 4);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, 0);
    a.sa_sigaction = on_info;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGRTMIN + 1, &a, 0);
    for (int i = 0; i < 3; i++) sigqueue(getpid(), SIGRTMIN + 1, (union sigval){i});
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR1);
    sigpending(&set);
    printf("pending %d %d\n", sigismember(&set, SIGUSR1), sigismember(&set, SIGRTMIN + 1));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    siginfo_t info;
    printf("waited %d", sigwaitinfo(&set, &info));
    printf(" code %d\n", info.si_code);
    span = (struct timespec){0, 1000000};
    printf("again %d\n", sigtimedwait(&set, &info, &span));
    sigfillset(&set);
    sigdelset(&set, SIGRTMIN + 1);
    sigsuspend(&set);
    sigprocmask(SIG_SETMASK, 0, &set);
    printf("mask kept %d %d\n", sigismember(&set, SIGUSR1), sigismember(&set, SIGRTMIN + 1));

    a.sa_sigaction = on_step;
    sigaction(SIGUSR2, &a, 0);
    double sum = 0;
    count = 0;
    for (int i = 0; i < 1000; i++) {
        sum += 0.5 * i;
        if (i % 100 == 0) raise(SIGUSR2);
    }
    printf("sum %.1f count %d\n", sum, count);
    signal(SIGUSR2, SIG_DFL);
    child = fork();
    if (!child) { volatile int z = 0; z = 1 / z; _exit(z); }
    waitpid(child, &status, 0);
    printf("division %d\n", WTERMSIG(status));
    child = fork();
    if (!child) { __asm__ volatile("ud2"); }
    waitpid(child, &status, 0);
    printf("illegal %d\n", WTERMSIG(status));
    child = fork();
    if (!child) for (;;) pause();
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    printf("stopped %d %d\n", WIFSTOPPED(status), WSTOPSIG(status));
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    printf("continued %d\n", WIFCONTINUED(status));
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    printf("killed %d\n", WTERMSIG(status));
    child = fork();
    if (!child) for (;;) ;
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("spinning %d\n", WTERMSIG(status));
    return 0;
}
