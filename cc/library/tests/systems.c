/* The environment, options, users, signals, random numbers, patterns, directories, memory. */
#include "world.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

static void *blank(size_t bytes)
{
    static char zeros[4096];
    return place_bytes(zeros, bytes);
}

static void forget(void *at, size_t bytes)
{
    static char zeros[4096];
    put(at, zeros, bytes);
}

static void environment(void)
{
    char *name = place_text("COMB_SCENE"), *to = place(300);
    SAY(C(setenv)(name, place_text("value"), 1)); SAY_TEXT(C(getenv)(name)); SAY_TEXT(C(secure_getenv)(name));
    SAY(C(unsetenv)(name)); SAY(C(putenv)(place_text("COMB_SCENE=put"))); SAY_TEXT(C(getenv)(name));
    SAY(C(confstr)(_CS_PATH, to, below(20))); SAY(C(__confstr_chk)(_CS_PATH, to, 50, 300));
    SAY(C(gethostname)(to, 200)); SAY(C(__gethostname_chk)(to, 200, 300)); SAY(C(getdomainname)(to, 200));
    SAY(C(__getdomainname_chk)(to, 200, 300)); SAY_ERRNO(C(gethostname)(to, 0));
    struct utsname *system = blank(sizeof *system);
    SAY(C(uname)(system));
    uid_t *users = blank(12);
    SAY(C(getresuid)(users, users + 1, users + 2)); SAY(C(getresgid)(users, users + 1, users + 2));
    SAY(C(getgroups)(0, NULL)); SAY(C(__getgroups_chk)(0, NULL, 0));
    struct rlimit *limit = blank(sizeof *limit);
    SAY(C(getrlimit)(RLIMIT_NOFILE, limit)); SAY(C(setrlimit)(RLIMIT_NOFILE, limit));
    SAY(C(getrlimit64)(RLIMIT_NOFILE, (struct rlimit64 *)limit)); SAY(C(setrlimit64)(RLIMIT_NOFILE, (struct rlimit64 *)limit));
    SAY(C(prlimit)(0, RLIMIT_NOFILE, NULL, limit)); SAY(C(prlimit64)(0, RLIMIT_NOFILE, NULL, (struct rlimit64 *)limit));
    char *changing = blank(600);
    SAY(C(getrusage)(RUSAGE_SELF, (struct rusage *)changing)); SAY(C(sysinfo)((struct sysinfo *)changing));
    SAY(C(getloadavg)((double *)changing, 3)); SAY(C(getcpu)((unsigned *)changing, (unsigned *)changing + 1));
    forget(changing, 600);
    cpu_set_t *set = blank(sizeof *set);
    SAY(C(sched_getaffinity)(0, sizeof *set, set) == 0); SAY(C(__sched_cpucount)(sizeof *set, set));
    SAY(C(sched_setaffinity)(0, sizeof *set, set));
    struct sched_param *parameters = blank(sizeof *parameters);
    SAY(C(sched_getparam)(0, parameters)); SAY(C(sched_setparam)(0, parameters)); SAY(C(sched_setscheduler)(0, SCHED_OTHER, parameters));
    SAY(C(sched_rr_get_interval)(0, blank(16)));
    int *status = blank(sizeof *status);
    SAY_ERRNO(C(wait)(status)); SAY_ERRNO(C(waitpid)(-1, status, 0)); SAY_ERRNO(C(wait3)(status, 0, NULL));
    SAY_ERRNO(C(wait4)(-1, status, 0, NULL)); SAY_ERRNO(C(waitid)(P_ALL, 0, blank(sizeof(siginfo_t)), WEXITED));
    SAY(C(syscall)(SYS_getppid) > 0);
}

static void options(void)
{
    char *words[] = {place_text("program"), place_text("file"), place_text("-ab"), place_text("value"), place_text("--long=5"),
                     place_text("--flag"), place_text("-z"), NULL};
    char **own = place_bytes(words, sizeof words), *letters = place_text("ab:");
    int *flag = blank(4), *index = blank(4), letter;
    /* Static, so that nothing lies between two members. */
    static struct option list[3];
    list[0].name = place_text("long"), list[0].has_arg = required_argument, list[0].val = 'l';
    list[1].name = place_text("flag"), list[1].flag = flag, list[1].val = 9;
    struct option *own_list = place_bytes(list, sizeof list);
    opterr = 0, optind = 0;
    while ((letter = C(getopt_long)(7, own, letters, own_list, index)) != -1)
        say("%d %d ", letter, optind), say_text(optarg);
    SAY(optind);
    optind = 0;
    while ((letter = C(getopt)(4, own, letters)) != -1)
        say("%d %d ", letter, optind), say_text(optarg);
    optind = 0;
    SAY(C(getopt_long_only)(7, own, letters, own_list, index));
}

static void signals(void)
{
    sigset_t *set = blank(sizeof *set), *other = blank(sizeof *set), *third = blank(sizeof *set);
    SAY(C(sigemptyset)(set)); SAY(C(sigaddset)(set, SIGUSR1)); SAY(C(sigismember)(set, SIGUSR1)); SAY(C(sigisemptyset)(set));
    SAY(C(sigfillset)(other)); SAY(C(sigdelset)(other, SIGUSR2)); SAY(C(sigandset)(third, set, other)); SAY(C(sigorset)(third, set, other));
    SAY(C(sigprocmask)(SIG_BLOCK, set, other)); SAY(C(pthread_sigmask)(SIG_BLOCK, set, other));
    pthread_kill(pthread_self(), SIGUSR1);
    SAY(C(sigpending)(other)); SAY(C(sigismember)(other, SIGUSR1));
    SAY(C(sigwait)(set, blank(4)));
    struct timespec *moment = place_bytes(&(struct timespec){0, 1000}, 16);
    SAY_ERRNO(C(sigtimedwait)(set, NULL, moment));
    pthread_kill(pthread_self(), SIGUSR1);
    siginfo_t *what = blank(sizeof *what);
    SAY(C(sigwaitinfo)(set, what));
    forget(what, sizeof *what), forget(set, sizeof *set), forget(other, sizeof *set), forget(third, sizeof *set);
}

static void chances(void)
{
    unsigned *seed = place_bytes(&(unsigned){5}, 4);
    unsigned short *state = place_bytes((unsigned short[7]){1, 2, 3, 4, 5, 6, 7}, 14);
    struct drand48_data *data = blank(sizeof *data);
    double *real = blank(8);
    long *whole = blank(8);
    SAY(C(rand_r)(seed)); SAY_REAL(C(erand48)(state)); SAY(C(nrand48)(state)); SAY(C(jrand48)(state));
    SAY(C(seed48)(state) != NULL); SAY(lrand48()); C(lcong48)(state); SAY(lrand48());
    SAY(C(srand48_r)(7, data)); SAY(C(drand48_r)(data, real)); SAY(C(lrand48_r)(data, whole)); SAY(C(mrand48_r)(data, whole));
    SAY(C(erand48_r)(state, data, real)); SAY(C(nrand48_r)(state, data, whole)); SAY(C(jrand48_r)(state, data, whole));
    struct random_data *generator = blank(sizeof *generator);
    char *table = blank(128);
    int32_t *number = blank(4);
    SAY(C(initstate_r)(3, table, 128, generator)); SAY(C(random_r)(generator, number)); SAY(C(srandom_r)(9, generator));
    for (int at = 0; at < 40; at++)
        SAY(C(random_r)(generator, number));
    SAY(C(getrandom)(table, 100, 0)); SAY(C(getentropy)(table, 20)); C(arc4random_buf)(table, 128);
    forget(table, 128);
}

static void patterns(void)
{
    SAY(C(fnmatch)(place_text("a*[xy]"), place_text("abcx"), 0));
    regex_t *made = blank(sizeof *made);
    regmatch_t *matches = blank(3 * sizeof *matches);
    SAY(C(regcomp)(made, place_text("(b+)c"), REG_EXTENDED));
    SAY(C(regexec)(made, place_random_text(80), 3, matches, 0)); SAY(C(regexec)(made, place_text("abbc"), 3, matches, 0));
    SAY(C(regerror)(REG_NOMATCH, made, place(60), below(20)));
    C(regfree)(made);
    forget(made, sizeof *made);
    glob_t *found = blank(sizeof *found);
    SAY(C(glob)(place_text("/us[r]"), 0, NULL, found)); C(globfree)(found);
    wordexp_t *words = blank(sizeof *words);
    SAY(C(wordexp)(place_text("a b"), words, 0)); C(wordfree)(words);
    forget(found, sizeof *found), forget(words, sizeof *words);
    iconv_t conversion = C(iconv_open)(place_text("UTF-16LE"), place_text("UTF-8"));
    char *from = place_text("gr\xc3\xbc\xc3\x9f"), *to = place(40);
    char **from_at = place_bytes(&from, 8), **to_at = place_bytes(&to, 8);
    size_t *left = place_bytes(&(size_t){6}, 8), *room = place_bytes(&(size_t){below(20)}, 8);
    SAY(C(iconv)(conversion, from_at, left, to_at, room));
    iconv_close(conversion);
}

static int visit_file(const char *path, const struct stat *status, int kind)
{
    (void)status;
    say("%s %d\n", path, kind);
    return 0;
}

static int visit_more(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    say("%d ", where->level);
    return visit_file(path, status, kind);
}

static int chosen(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void directories(void)
{
    char *path = place_text("d");
    mkdir("d", 0700), mkdir("d/one", 0700);
    DIR *directory = C(opendir)(path);
    SAY(C(dirfd)(directory) > 2);
    struct dirent *entry = blank(300), **result = blank(8);
    SAY(C(readdir_r)(directory, entry, result)); SAY_PLACE((struct dirent *)NULL);
    closedir(directory);
    forget(entry, 300);
    struct dirent ***list = blank(8), **own, *first;
    SAY(C(scandir)(path, list, chosen, C(alphasort)));
    get(&own, list, 8), get(&first, own, 8);
    SAY_TEXT(first->d_name);
    SAY(C(scandir64)(path, (void *)list, (void *)chosen, (void *)C(versionsort)));
    SAY(C(alphasort)((void *)own, (void *)own)); SAY(C(versionsort)((void *)own, (void *)own));
    SAY(C(alphasort64)((void *)own, (void *)own)); SAY(C(versionsort64)((void *)own, (void *)own));
    forget(list, 8);
    SAY(C(ftw)(path, visit_file, 4)); SAY(C(ftw64)(path, (void *)visit_file, 4));
    SAY(C(nftw)(path, visit_more, 4, 0)); SAY(C(nftw64)(path, (void *)visit_more, 4, 0));
    directory = C(fdopendir)(open("d", O_RDONLY));
    SAY(directory != NULL);
    closedir(directory);
    rmdir("d/one"), rmdir("d");
    struct statfs *space = blank(sizeof *space);
    struct statvfs *more = blank(sizeof *more);
    SAY(C(statfs)(place_text("/"), space)); SAY(C(statfs64)(place_text("/"), (void *)space));
    SAY(C(statvfs)(place_text("/"), more)); SAY(C(statvfs64)(place_text("/"), (void *)more));
    forget(space, sizeof *space), forget(more, sizeof *more);
}

static void memory(void)
{
    char *start = C(mmap)(NULL, 10000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte = 5;
    SAY(start != MAP_FAILED);
    put(start + 9999, &byte, 1);
    SAY(C(madvise)(start, 4096, MADV_NORMAL)); SAY(C(mprotect)(start, 4096, PROT_READ | PROT_WRITE));
    SAY(C(posix_madvise)(start, 4096, POSIX_MADV_NORMAL)); SAY(C(msync)(start, 4096, MS_ASYNC));
    SAY(C(mlock)(start, 4096)); SAY(C(munlock)(start, 4096));
    start = C(mremap)(start, 10000, 50000, MREMAP_MAYMOVE);
    get(&byte, start + 9999, 1);
    SAY(byte);
    SAY(C(munmap)(start, 50000));
    int file = open("mapped", O_RDWR | O_CREAT, 0600);
    SAY(write(file, "some content", 12));
    start = C(mmap64)(NULL, 12, PROT_READ, MAP_SHARED, file, 0);
    SAY_TEXT(start);
    SAY(C(munmap)(start, 12));
    close(file), unlink("mapped");
}

void systems_scene(void)
{
    environment();
    say_bytes(ARENA, ARENA_BYTES);
    options();
    say_bytes(ARENA, ARENA_BYTES);
    signals();
    say_bytes(ARENA, ARENA_BYTES);
    chances();
    say_bytes(ARENA, ARENA_BYTES);
    patterns();
    say_bytes(ARENA, ARENA_BYTES);
    directories();
    say_bytes(ARENA, ARENA_BYTES);
    memory();
    say_bytes(ARENA, ARENA_BYTES);
}
