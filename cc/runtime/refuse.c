/* refuse.c: other processes. A component has its frames, its channels and its part of the protocol, which a copy of
 * it would use a second time; a program that runs alone may do what it likes. Each refusal says once what is
 * refused, and sets errno. */
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"
#include "words.h"

static int refuse(comb_word *is_said, const char *name)
{
    if (!atomic_exchange(is_said, 1))
        comb_say("%s() is not supported in a program that runs on several cells", name);
    errno = ENOSYS;
    return ENOSYS;
}

/* One word for each function that calls this. */
#define REFUSE(name)                 \
    ({                               \
        static comb_word is_said;    \
        refuse(&is_said, name);      \
    })

pid_t comb_lib_fork(void)
{
    return comb_is_spread() ? (REFUSE("fork"), -1) : fork();
}

/* A child of vfork() runs on its parent's stack until it executes something: it must not return from here, and so it
 * is one of fork(). */
pid_t comb_lib_vfork(void)
{
    return comb_is_spread() ? (REFUSE("vfork"), -1) : fork();
}

int comb_lib_execve(const char *path, char *const arguments[], char *const environment[])
{
    return comb_is_spread() ? (REFUSE("execve"), -1) : execve(path, arguments, environment);
}

int comb_lib_execv(const char *path, char *const arguments[])
{
    return comb_is_spread() ? (REFUSE("execv"), -1) : execv(path, arguments);
}

int comb_lib_execvp(const char *file, char *const arguments[])
{
    return comb_is_spread() ? (REFUSE("execvp"), -1) : execvp(file, arguments);
}

int comb_lib_execvpe(const char *file, char *const arguments[], char *const environment[])
{
    return comb_is_spread() ? (REFUSE("execvpe"), -1) : execvpe(file, arguments, environment);
}

int comb_lib_fexecve(int descriptor, char *const arguments[], char *const environment[])
{
    return comb_is_spread() ? (REFUSE("fexecve"), -1) : fexecve(descriptor, arguments, environment);
}

/* The forms with a list: an array of it, then the same. More arguments than this are refused as the kernel would. */
#define MOST_ARGUMENTS 1024

static int collect(const char *first, va_list rest, char **arguments)
{
    int count = 0;
    arguments[0] = (char *)first;
    while (arguments[count]) {
        if (++count == MOST_ARGUMENTS)
            return E2BIG;
        arguments[count] = va_arg(rest, char *);
    }
    return 0;
}

int comb_lib_execl(const char *path, const char *first, ...)
{
    char *arguments[MOST_ARGUMENTS];
    va_list rest;
    va_start(rest, first);
    int error = comb_is_spread() ? REFUSE("execl") : collect(first, rest, arguments);
    va_end(rest);
    errno = error;
    return error ? -1 : execv(path, arguments);
}

int comb_lib_execlp(const char *file, const char *first, ...)
{
    char *arguments[MOST_ARGUMENTS];
    va_list rest;
    va_start(rest, first);
    int error = comb_is_spread() ? REFUSE("execlp") : collect(first, rest, arguments);
    va_end(rest);
    errno = error;
    return error ? -1 : execvp(file, arguments);
}

int comb_lib_execle(const char *path, const char *first, ...)
{
    char *arguments[MOST_ARGUMENTS];
    va_list rest;
    va_start(rest, first);
    int error = comb_is_spread() ? REFUSE("execle") : collect(first, rest, arguments);
    char **environment = error ? NULL : va_arg(rest, char **);
    va_end(rest);
    errno = error;
    return error ? -1 : execve(path, arguments, environment);
}

int comb_lib_posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    return comb_is_spread() ? REFUSE("posix_spawn")
                            : posix_spawn(child, path, actions, attributes, arguments, environment);
}

int comb_lib_posix_spawnp(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    return comb_is_spread() ? REFUSE("posix_spawnp")
                            : posix_spawnp(child, file, actions, attributes, arguments, environment);
}

int comb_lib_system(const char *command)
{
    if (!command)
        return !comb_is_spread() && system(NULL);
    return comb_is_spread() ? (REFUSE("system"), -1) : system(command);
}

FILE *comb_lib_popen(const char *command, const char *mode)
{
    return comb_is_spread() ? (REFUSE("popen"), NULL) : popen(command, mode);
}

int comb_lib_pclose(FILE *file)
{
    return comb_is_spread() ? (REFUSE("pclose"), -1) : pclose(file);
}

int comb_lib_daemon(int stays, int keeps)
{
    return comb_is_spread() ? (REFUSE("daemon"), -1) : daemon(stays, keeps);
}

/* Handlers for a fork() that never happens. */
int comb_lib_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    (void)prepare, (void)parent, (void)child;
    return 0;
}
