/* Other processes: a program that runs alone has them, one that is spread is told that it cannot. And ioctl(), whose memory the kernel must not
 * touch by itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("wrong at line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static struct {
    int before, waiting, after;
} numbers;
static int is_spread;
extern char **environ;

static void children(void)
{
    int status;
    fflush(stdout);
    errno = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    if (is_spread)
        CHECK(child == -1 && errno == ENOSYS);
    else
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    char *words[] = {"true", NULL};
    int error = posix_spawnp(&child, "true", NULL, NULL, words, environ);
    CHECK(is_spread ? error == ENOSYS : !error && waitpid(child, &status, 0) == child && !status);
    CHECK(!!system(NULL) == !is_spread);
    CHECK(is_spread ? system("exit 4") == -1 && errno == ENOSYS : WEXITSTATUS(system("exit 4")) == 4);
    FILE *piped = popen("echo text", "r");
    char line[16];
    CHECK(is_spread ? !piped && errno == ENOSYS : fgets(line, sizeof line, piped) && !strcmp(line, "text\n") && !pclose(piped));
    if (is_spread) {
        CHECK(execlp("true", "true", NULL) == -1 && errno == ENOSYS);
        CHECK(execv("/bin/true", words) == -1 && errno == ENOSYS);
        CHECK(daemon(0, 0) == -1 && errno == ENOSYS);
    }
}

static void *set_numbers(void *unused)
{
    numbers.before = 1, numbers.waiting = -1, numbers.after = 2;
    return unused;
}

/* Another thread has stored there last. */
static void controls(void)
{
    pthread_t thread;
    int ends[2];
    CHECK(!pipe(ends) && write(ends[1], "12345", 5) == 5);
    CHECK(!pthread_create(&thread, NULL, set_numbers, NULL) && !pthread_join(thread, NULL));
    CHECK(!ioctl(ends[0], FIONREAD, &numbers.waiting));
    CHECK(numbers.before == 1 && numbers.waiting == 5 && numbers.after == 2);
    struct winsize *size = malloc(sizeof *size);
    errno = 0;
    CHECK(ioctl(ends[0], TIOCGWINSZ, size) == -1 && errno == ENOTTY);
    /* Of how many bytes, nobody knows. */
    errno = 0;
    CHECK(ioctl(ends[0], 0x1234, size) == -1 && errno == ENOTTY);
    free(size);
}

int main(void)
{
    is_spread = getenv("COMB_TASK") != NULL;
    children();
    controls();
    printf("what cannot be is refused\n");
    return 0;
}
