/* The environment, options, and what the system says of itself and of the process. The environment is each cell's own. */
#include "every.h"

#include <assert.h>

#include <sys/syscall.h>

#include "reach.h"

COMB_WRAP(char *, getenv, TEXT(name));
COMB_WRAP(char *, secure_getenv, TEXT(name));
COMB_WRAP(int, setenv, TEXT(name), TEXT(value), VALUE(int, replaces));
COMB_WRAP(int, unsetenv, TEXT(name));

/* libc keeps the text, and getenv reads it, so it gets a private copy for good. */
int comb_lib_putenv(char *text)
{
    size_t bytes = comb_lib_strlen(text) + 1;
    char *own = malloc(bytes);
    if (!own)
        return -1;
    comb_copy_from(own, text, bytes);
    return putenv(own);
}
COMB_SAME_TYPE(putenv);

COMB_WRAP(size_t, confstr, VALUE(int, name), FILLED(char, to, room, room && answer ? comb_text_bytes(own_to, 1) : 0),
          VALUE(size_t, room));
COMB_WRAP(int, gethostname, FILLED(char, to, room, comb_text_bytes(own_to, answer == 0)), VALUE(size_t, room));
COMB_WRAP(int, sethostname, ARRAY(char, name, bytes), VALUE(size_t, bytes));
COMB_WRAP(int, getdomainname, FILLED(char, to, room, comb_text_bytes(own_to, answer == 0)), VALUE(size_t, room));
COMB_WRAP(int, uname, INOUT(struct utsname, to));
COMB_WRAP(int, sysinfo, INOUT(struct sysinfo, to));
COMB_WRAP(int, getloadavg, FILLED(double, to, count > 3 ? 3 : count, answer > 0 ? answer : 0), VALUE(int, count));
COMB_WRAP(int, getgroups, VALUE(int, room), FILLED(gid_t, to, room, room && answer > 0 ? answer : 0));
COMB_WRAP(int, setgroups, VALUE(size_t, count), ARRAY(gid_t, from, count));
COMB_WRAP(int, getresuid, INOUT(uid_t, real), INOUT(uid_t, effective), INOUT(uid_t, saved));
COMB_WRAP(int, getresgid, INOUT(gid_t, real), INOUT(gid_t, effective), INOUT(gid_t, saved));
COMB_WRAP(int, getlogin_r, FILLED(char, to, room, comb_text_bytes(own_to, answer == 0)), VALUE(size_t, room));
COMB_WRAP(int, getcpu, INOUT(unsigned, processor), INOUT(unsigned, node));
COMB_WRAP(int, getrlimit, VALUE(__rlimit_resource_t, resource), INOUT(struct rlimit, limit));
COMB_ALIAS(getrlimit64, getrlimit);
COMB_WRAP(int, setrlimit, VALUE(__rlimit_resource_t, resource), IN(struct rlimit, limit));
COMB_ALIAS(setrlimit64, setrlimit);
COMB_WRAP(int, prlimit, VALUE(pid_t, process), VALUE(enum __rlimit_resource, resource), IN(struct rlimit, limit),
          INOUT(struct rlimit, before));
COMB_ALIAS(prlimit64, prlimit);
COMB_WRAP(int, getrusage, VALUE(__rusage_who_t, who), INOUT(struct rusage, to));
COMB_WRAP(pid_t, wait, INOUT(int, status));
COMB_WRAP(pid_t, waitpid, VALUE(pid_t, process), INOUT(int, status), VALUE(int, options));
COMB_WRAP(int, waitid, VALUE(idtype_t, kind), VALUE(id_t, which), INOUT(siginfo_t, to), VALUE(int, options));
COMB_WRAP(pid_t, wait3, INOUT(int, status), VALUE(int, options), INOUT(struct rusage, used));
COMB_WRAP(pid_t, wait4, VALUE(pid_t, process), INOUT(int, status), VALUE(int, options), INOUT(struct rusage, used));
COMB_WRAP(int, sched_getparam, VALUE(pid_t, process), INOUT(struct sched_param, to));
COMB_WRAP(int, sched_setparam, VALUE(pid_t, process), IN(struct sched_param, from));
COMB_WRAP(int, sched_setscheduler, VALUE(pid_t, process), VALUE(int, policy), IN(struct sched_param, from));
COMB_WRAP(int, sched_rr_get_interval, VALUE(pid_t, process), INOUT(struct timespec, to));
COMB_WRAP_VOID(openlog, VALUE(const char *, name), VALUE(int, options), VALUE(int, facility));

/* A failed assertion says where; libc ends the process. */
void comb_lib___assert_fail(const char *what, const char *file, unsigned line, const char *function)
{
    COMB_DESK(desk);
    comb_library_settle();
    __assert_fail(comb_own_text(&desk, what), comb_own_text(&desk, file), line, comb_own_text(&desk, function));
}

/* The set's length is an argument, in bytes. */
int comb_lib_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    COMB_DESK(desk);
    void *own = comb_own(&desk, set, bytes);
    int answer = sched_getaffinity(process, bytes, own);
    comb_give_back(set, own, bytes);
    return answer;
}
COMB_SAME_TYPE(sched_getaffinity);

int comb_lib_sched_setaffinity(pid_t process, size_t bytes, const cpu_set_t *set)
{
    COMB_DESK(desk);
    return sched_setaffinity(process, bytes, comb_own(&desk, set, bytes));
}
COMB_SAME_TYPE(sched_setaffinity);

int comb_lib___sched_cpucount(size_t bytes, const cpu_set_t *set)
{
    COMB_DESK(desk);
    return __sched_cpucount(bytes, comb_own(&desk, set, bytes));
}
COMB_SAME_TYPE(__sched_cpucount);
