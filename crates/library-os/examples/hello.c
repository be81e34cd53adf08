/* The smallest program that can be alone in a machine:
 *
 *   cc -static -Wl,--wrap=main,--wrap=exit,--wrap=pthread_create,--wrap=open,--wrap=open64,--wrap=fopen,--wrap=fopen64 -o hello crates/library-os/examples/hello.c target/debug/libcomb_library_os.a
 *   comb vm create hello --from-debian --program hello
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static int runs;
    char line[100];
    runs++;
    if (argc > 1 && strcmp(argv[1], "fail") == 0)
        abort();
    if (argc > 1 && strcmp(argv[1], "exit") == 0)
        exit(3);
    FILE *from = argc > 2 ? fopen(argv[2], "r") : stdin;
    if (from == NULL) {
        perror(argv[2]);
        return 1;
    }
    while (fgets(line, sizeof line, from) != NULL)
        printf("%s says %s", argc > 1 ? argv[1] : "nobody", line);
    printf("this address space has seen %d run\n", runs);
    return 0;
}
