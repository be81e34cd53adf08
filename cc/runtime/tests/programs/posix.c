/* A program that asks for POSIX alone gets other functions under the same names: SPLASH's programs do. */
#define _POSIX_C_SOURCE 200112L
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void come(int number)
{
    came += number == SIGUSR1;
}

int main(void)
{
    char *words[] = {"program", "-a", "word", "-b", NULL};
    int option;
    while ((option = getopt(4, words, "ab")) != -1)
        printf("option %c\n", option);
    printf("then %s\n", words[optind]);
    signal(SIGUSR1, come);
    raise(SIGUSR1);
    /* System V's handlers are for once. */
    printf("came %d, then %s\n", (int)came, signal(SIGUSR1, SIG_IGN) == SIG_DFL ? "the default" : "something else");
    return 0;
}
