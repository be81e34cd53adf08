/* main.c: the program's main(), which the compiler has renamed. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "runtime.h"

int comb_main(int count, char **arguments, char **environment);

/* Copies strings, and the row of pointers to them, to shared memory: main() may hand them to threads of other
 * components. */
static char **share(char **strings, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(strings[i]) + 1;
    char **row = comb_lib_malloc((count + 1) * sizeof *row + bytes);
    if (!row)
        comb_die("no shared memory for the program's arguments");
    char *text = (char *)(row + count + 1);
    for (size_t i = 0; i <= count; i++) {
        char *string = NULL;
        if (i < count) {
            size_t length = strlen(strings[i]) + 1;
            comb_copy_to(text, strings[i], length);
            string = text;
            text += length;
        }
        comb_copy_to(&row[i], &string, sizeof string);
    }
    return row;
}

int main(int count, char **arguments, char **environment)
{
    if (!comb_is_spread())
        return comb_main(count, arguments, environment);
    size_t variables = 0;
    while (environment[variables])
        variables++;
    return comb_main(count, share(arguments, (size_t)count), share(environment, variables));
}
