/* Two processes and a line between them, for the libraries that do not start processes themselves. */
#ifndef PAIR_H
#define PAIR_H

#include "peer.h"

struct pair {
    bool asker;
    pid_t answerer;
    int line;
};

/* The asker would spin for a dead answerer's messages until its time is over. */
static void leave_with_answerer(int signal, siginfo_t *death, void *unused)
{
    (void)signal, (void)unused;
    if (death->si_code == CLD_EXITED && death->si_status == 0)
        return;
    static const char message[] = "the answering process failed\n";
    _exit(write(STDERR_FILENO, message, sizeof message - 1) < 0 ? 2 : 1);
}

static struct pair split_in_two(void)
{
    struct sigaction on_death = {.sa_sigaction = leave_with_answerer,
                                 .sa_flags = SA_SIGINFO | SA_NOCLDSTOP | SA_RESTART};
    sigaction(SIGCHLD, &on_death, NULL);
    int lines[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines) != 0)
        die("socketpair: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        die("fork: %s", strerror(errno));
    bool asker = child != 0;
    close(lines[asker]);
    settle_on_cpu(asker ? ASKER_CPU : ANSWERER_CPU);
    return (struct pair){.asker = asker, .answerer = child, .line = lines[!asker]};
}

/* Runs this process's side of the tests. */
static void run_pair(struct pair pair, const char *peer, const char *version)
{
    if (pair.asker)
        run_asker(peer, version);
    else
        run_answerer();
}

/* The asker leaves last. */
static int leave_pair(struct pair pair)
{
    if (pair.asker)
        waitpid(pair.answerer, NULL, 0);
    return 0;
}

/* Sends `mine` and returns the other's, which the caller frees. Both sides call it, so it is also a barrier. */
__attribute__((unused)) static void *exchange(struct pair pair, const void *mine, size_t mine_bytes)
{
    size_t theirs_bytes;
    if (write(pair.line, &mine_bytes, sizeof mine_bytes) != sizeof mine_bytes ||
        write(pair.line, mine, mine_bytes) != (ssize_t)mine_bytes ||
        recv(pair.line, &theirs_bytes, sizeof theirs_bytes, MSG_WAITALL) != sizeof theirs_bytes)
        die("the other process is gone");
    void *theirs = malloc(theirs_bytes);
    if (theirs == NULL || recv(pair.line, theirs, theirs_bytes, MSG_WAITALL) != (ssize_t)theirs_bytes)
        die("the other process is gone");
    return theirs;
}

#endif
