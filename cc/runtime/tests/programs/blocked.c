/* Signals that a program blocks: in its threads, in handlers, while it waits. What brings memory is not among them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

enum { threads = 6, words = 60000 };

static int shared[words];
static volatile int handled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void touch(int by)
{
    for (int at = 0; at < words; at += 50)
        shared[at] += by;
}

static void handle(int signal)
{
    touch(1000);
    handled += signal == SIGUSR1;
}

static int is_blocked(int signal)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, signal);
}

/* Where all is blocked, memory comes, system calls are served, and what others have asked is answered. */
static void *work(void *argument)
{
    int number = *(int *)argument;
    char *text = calloc(1, 9000);
    int zeros = open("/dev/zero", O_RDONLY);
    int length = (int)read(zeros, text, 9000);
    close(zeros);
    for (int turn = 0; turn < 20; turn++) {
        pthread_mutex_lock(&lock);
        touch(number);
        pthread_mutex_unlock(&lock);
    }
    if (length != 9000 || !is_blocked(SIGUSR1) || !is_blocked(SIGTERM))
        printf("thread %d: %d bytes, %d %d\n", number, length, is_blocked(SIGUSR1), is_blocked(SIGTERM));
    free(text);
    return NULL;
}

/* What the handler touches is elsewhere when it begins. */
static void *send_to(void *argument)
{
    touch(100000);
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
    return NULL;
}

static pthread_t begin_sender(pthread_t *to)
{
    pthread_t sender;
    pthread_create(&sender, NULL, send_to, to);
    return sender;
}

int main(void)
{
    sigset_t all, before;
    struct sigaction action;
    sigfillset(&all);
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_mask = all;
    sigaction(SIGUSR1, &action, NULL);

    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread[threads];
    int number[threads];
    for (int at = 0; at < threads; at++) {
        number[at] = at;
        pthread_create(&thread[at], NULL, work, &number[at]);
    }
    for (int at = 0; at < threads; at++)
        pthread_join(thread[at], NULL);
    printf("worked: %d\n", shared[words - 50]);

    /* A signal that waits is handled while its thread does, and its handler has all blocked. */
    sigset_t but_usr1 = all;
    sigdelset(&but_usr1, SIGUSR1);
    pthread_t self = pthread_self(), sender = begin_sender(&self);
    printf("%d, ", sigsuspend(&but_usr1));
    printf("%s, handled %d\n", errno == EINTR ? "interrupted" : "not interrupted", handled);
    pthread_join(sender, NULL);

    int ends[2], set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (pipe(ends) || epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event))
        return 1;
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    struct timespec limit = {5, 0};
    sender = begin_sender(&self);
    printf("ppoll %d, ", ppoll(&end, 1, &limit, &but_usr1));
    printf("handled %d\n", handled);
    pthread_join(sender, NULL);
    sender = begin_sender(&self);
    printf("pselect %d, ", pselect(0, NULL, NULL, NULL, &limit, &but_usr1));
    printf("handled %d\n", handled);
    pthread_join(sender, NULL);
    sender = begin_sender(&self);
    printf("epoll_pwait %d, ", epoll_pwait(set, &event, 1, 5000, &but_usr1));
    printf("handled %d\n", handled);
    pthread_join(sender, NULL);

    pthread_sigmask(SIG_SETMASK, &before, NULL);
    printf("before: %d, all in all %d\n", is_blocked(SIGUSR1), shared[words - 50]);
}
