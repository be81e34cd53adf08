/* signals.c: handlers of the program. What one component sets holds in all: a signal is handled where it arrives, or
 * where the thread runs that pthread_kill() names.
 *
 * A handler is instrumented code, and may meet its thread between accesses that were checked together
 * (comb_thread.pins is odd), where it must neither wait nor pin, or in the middle of libcomb's work for a miss. That
 * lasts microseconds: the signal is kept, and comes again when that work is over, or by a timer. Signals of the MMU are
 * Comb's own in a task. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "comb_signals.h"
#include "lives.h"
#include "services.h"

#define MOST_SIGNAL 64
enum { again_after_ns = 20000 };

/* What the program has asked for; under the lock, but for handlers, which only run once it is there. */
static struct sigaction wanted[MOST_SIGNAL + 1];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Of the signal that came too early. Whoever takes `is_kept` away lets it come. */
static _Thread_local siginfo_t kept[MOST_SIGNAL + 1];
static _Thread_local char is_kept[MOST_SIGNAL + 1];

static const struct itimerspec soon = {.it_value = {0, again_after_ns}};

static void keep_timer(timer_t timer)
{
    if (timer_settime(timer, 0, &soon, NULL))
        comb_die("a signal cannot be kept until later: %s", strerror(errno));
}

/* Sends a signal to this thread once, a little later. Async-signal-safe: system calls alone. */
static void send_later(int number)
{
    struct sigevent event;
    timer_t timer;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = number;
    event.sigev_value.sival_ptr = &kept[number]; /* by which it is known when it comes */
    event._sigev_un._tid = gettid();
    if (timer_create(CLOCK_MONOTONIC, &event, &timer))
        comb_die("a signal cannot be kept until later: %s", strerror(errno));
    keep_timer(timer);
}

static int may_handle(void)
{
    return !(comb_thread.pins & 1) && !(comb_here.by_messages && comb_here.program->is_inside());
}

static void keep(int number, const siginfo_t *info)
{
    /* A second one is one with the first, as signals are that wait. */
    if (is_kept[number])
        return;
    kept[number] = *info;
    is_kept[number] = 1;
    comb_thread.has_late |= 1ULL << (number - 1);
    send_later(number);
}

/* Lets all that are kept come. Their timers find nothing. */
static void release(void)
{
    uint64_t late = __atomic_exchange_n(&comb_thread.has_late, 0, __ATOMIC_SEQ_CST);
    for (; late; late &= late - 1) {
        int number = __builtin_ctzll(late) + 1;
        if (__atomic_exchange_n(&is_kept[number], 0, __ATOMIC_SEQ_CST))
            syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, &kept[number]);
    }
}

/* A handler that is for one signal, in this component. The kernel would forget it when the signal came too early, too. */
static void forget(int number)
{
    wanted[number] = (struct sigaction){.sa_handler = SIG_DFL};
    sigaction(number, &wanted[number], NULL);
}

static void handle(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    int comes_again = info->si_code == SI_TIMER && info->si_value.sival_ptr == &kept[number];
    timer_t timer = (timer_t)(intptr_t)info->si_timerid;
    int may_run = may_handle();
    if (comes_again && is_kept[number] && !may_run) {
        keep_timer(timer);
    } else if (comes_again) {
        timer_delete(timer);
        may_run = __atomic_exchange_n(&is_kept[number], 0, __ATOMIC_SEQ_CST);
    } else if (!may_run) {
        keep(number, info);
    }
    if (!may_run) {
        errno = saved;
        return;
    }
    siginfo_t first = comes_again ? kept[number] : *info;
    /* The thread may be where it makes no accesses: the handler does. And it notes what it looks at. */
    uint64_t away = __atomic_exchange_n(&comb_thread.away, 0, __ATOMIC_SEQ_CST);
    uint64_t noted_count = comb_thread.noted_count;
    struct comb_noted noted[COMB_NOTED_MOST];
    memcpy(noted, comb_thread.noted, sizeof noted);
    const struct sigaction action = wanted[number];
    if (action.sa_flags & (int)SA_RESETHAND)
        forget(number);
    if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction(number, &first, context);
    else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
        action.sa_handler(number);
    memcpy(comb_thread.noted, noted, sizeof noted);
    comb_thread.noted_count = noted_count;
    __atomic_store_n(&comb_thread.away, away, __ATOMIC_SEQ_CST);
    errno = saved;
}

/* Those by which Comb brings memory and covers system calls. */
static int is_ours(int number)
{
    return comb_here.program && (number == SIGSEGV || number == SIGBUS || number == SIGSYS);
}

static int act_here(int number, const struct sigaction *action)
{
    struct sigaction ours = *action;
    comb_spare_ours(&ours.sa_mask);
    int is_handled = action->sa_flags & SA_SIGINFO || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
    pthread_mutex_lock(&lock);
    struct sigaction before = wanted[number];
    wanted[number] = *action;
    if (is_handled) {
        comb_runtime.late = release;
        ours.sa_flags = (ours.sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
        ours.sa_sigaction = handle;
    }
    int error = sigaction(number, &ours, NULL) ? errno : 0;
    if (error)
        wanted[number] = before;
    pthread_mutex_unlock(&lock);
    return error;
}

struct request {
    int64_t number;
    struct sigaction action;
};

long comb_serve_signal(const struct comb_request *call)
{
    struct request request;
    return comb_request_read(call, &request, sizeof request) ? act_here((int)request.number, &request.action) : EINVAL;
}

static int act(int number, const struct sigaction *action)
{
    struct request request = {number, *action};
    int error = act_here(number, action);
    for (unsigned rank = 0; rank < comb_here.place.count && !error; rank++)
        if (rank != comb_here.place.rank)
            error = comb_ask(rank, COMB_CALL_SIGNAL, &request, sizeof request, NULL, 0);
    return error;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

int comb_lib_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    if (number < 1 || number > MOST_SIGNAL)
        return fail(EINVAL);
    if (action && is_ours(number)) {
        comb_say("a handler for signal %d is not supported in a task: it is how Comb brings memory", number);
        return fail(ENOTSUP);
    }
    pthread_mutex_lock(&lock);
    struct sigaction was = wanted[number];
    pthread_mutex_unlock(&lock);
    if (action) {
        struct sigaction new;
        comb_copy_from(&new, action, sizeof new);
        int error = act(number, &new);
        if (error)
            return fail(error);
    }
    if (before)
        comb_copy_to(before, &was, sizeof was);
    return 0;
}

static sighandler_t set(int number, sighandler_t handler, int flags)
{
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    return comb_lib_sigaction(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

sighandler_t comb_lib_signal(int number, sighandler_t handler)
{
    return set(number, handler, SA_RESTART);
}

/* signal() of a program that asks for ISO C or POSIX alone. */
sighandler_t comb_lib___sysv_signal(int number, sighandler_t handler)
{
    return set(number, handler, (int)SA_RESETHAND | SA_NODEFER);
}

/* To the calling thread, as libc has it. */
int comb_lib_raise(int number)
{
    return raise(number);
}

/* To the process: to the component that calls. Others have other numbers. */
int comb_lib_kill(pid_t process, int number)
{
    return kill(process, number);
}
