// Running other programs, and ending.

#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <alloca.h>

#include "preload.h"
#include "processes.h"

extern char **environ;

// On the stack, for a child that borrows its parent's memory would leave there whatever it allocated; unless it is larger than any program
// that is alive would have.
#define MOST_STACK_BYTES (1 << 20)

// The environment for a program that is about to run, in the caller's frame. `variables` stay as they are where nothing is recorded.
#define WITH_LIBRARY(variables, is_same_process)                                                          \
  ({                                                                                                      \
    char *const *given = (variables);                                                                     \
    u64 count;                                                                                            \
    u64 bytes = environment_bytes(given, &count);                                                         \
    bytes > MOST_STACK_BYTES ? (char **)given                                                             \
                             : fill_environment(alloca(bytes), given, count, is_same_process);            \
  })

// Told only if it fails: otherwise nothing of this program is left, and the next one tells.
static int failed(u64 start, int result, int directory, const char *path) {
  if (!start) return result;
  int kept = errno;
  tell_path(OPERATION_EXECUTE, start, outcome(result), directory, path, 0, 0);
  errno = kept;
  return result;
}

SEEN int execve(const char *path, char *const *arguments, char *const *variables) {
  u64 start = begins();
  if (!start && !is_sandboxed) return REAL(execve)(path, arguments, variables);
  return failed(start, REAL(execve)(path, arguments, WITH_LIBRARY(variables, 1)), AT_FDCWD, path);
}

SEEN int execv(const char *path, char *const *arguments) { return execve(path, arguments, environ); }

SEEN int execvpe(const char *path, char *const *arguments, char *const *variables) {
  u64 start = begins();
  if (!start && !is_sandboxed) return REAL(execvpe)(path, arguments, variables);
  return failed(start, REAL(execvpe)(path, arguments, WITH_LIBRARY(variables, 1)), AT_FDCWD, path);
}

SEEN int execvp(const char *path, char *const *arguments) { return execvpe(path, arguments, environ); }

SEEN int fexecve(int descriptor, char *const *arguments, char *const *variables) {
  u64 start = begins();
  if (!start && !is_sandboxed) return REAL(fexecve)(descriptor, arguments, variables);
  return failed(start, REAL(fexecve)(descriptor, arguments, WITH_LIBRARY(variables, 1)), descriptor, "");
}

SEEN int execveat(int directory, const char *path, char *const *arguments, char *const *variables, int flags) {
  u64 start = begins();
  if (!start && !is_sandboxed) return REAL(execveat)(directory, path, arguments, variables, flags);
  return failed(start, REAL(execveat)(directory, path, arguments, WITH_LIBRARY(variables, 1), flags), directory, path);
}

// Arguments in a row, ended by nothing, as a vector in the caller's frame.
#define COLLECT(first, list)                                                  \
  ({                                                                          \
    va_list ahead;                                                            \
    u64 arguments = 1;                                                        \
    va_start(ahead, first);                                                   \
    while (va_arg(ahead, char *)) arguments++;                                \
    va_end(ahead);                                                            \
    char **vector = alloca((arguments + 1) * sizeof(char *));                 \
    vector[0] = (char *)first;                                                \
    for (u64 each = 1; each <= arguments; each++) vector[each] = va_arg(list, char *); \
    vector;                                                                   \
  })

SEEN int execl(const char *path, const char *first, ...) {
  va_list list;
  va_start(list, first);
  char **arguments = COLLECT(first, list);
  va_end(list);
  return execve(path, arguments, environ);
}

SEEN int execlp(const char *path, const char *first, ...) {
  va_list list;
  va_start(list, first);
  char **arguments = COLLECT(first, list);
  va_end(list);
  return execvpe(path, arguments, environ);
}

SEEN int execle(const char *path, const char *first, ...) {
  va_list list;
  va_start(list, first);
  char **arguments = COLLECT(first, list);
  char **variables = va_arg(list, char **);
  va_end(list);
  return execve(path, arguments, variables);
}

// The new process tells itself that it has begun: nobody else knows its number before it runs.
SEEN int posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const *arguments, char *const *variables) {
  if (begins() || is_sandboxed) variables = WITH_LIBRARY(variables, 0);
  return REAL(posix_spawn)(process, path, actions, attributes, arguments, variables);
}

SEEN int posix_spawnp(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const *arguments, char *const *variables) {
  if (begins() || is_sandboxed) variables = WITH_LIBRARY(variables, 0);
  return REAL(posix_spawnp)(process, path, actions, attributes, arguments, variables);
}

// Who locks itself in is not looked at any more. There are two ways in.
#define SECCOMP 317

SEEN int prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long arguments[4];
  for (u32 each = 0; each < 4; each++) arguments[each] = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_SECCOMP) enter_sandbox();
  return REAL(prctl)(option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

SEEN long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (u32 each = 0; each < 6; each++) arguments[each] = va_arg(list, long);
  va_end(list);
  if (number == SECCOMP) enter_sandbox();
  return REAL(syscall)(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

// These do not run what runs at an exit; no stream is written out.
static void ends_now(void) {
  if (!begins()) return;
  struct event event;
  prepare(&event, NOTE_EXIT, 0, 0);
  event.start_ns = now_ns();
  put(&event, 0, 0);
}

SEEN void _exit(int status) {
  ends_now();
  REAL(_exit)(status);
  __builtin_unreachable();
}

SEEN void _Exit(int status) {
  ends_now();
  REAL(_Exit)(status);
  __builtin_unreachable();
}
