/* main.c: the program's main(), which the compiler has renamed. */
#include <stdlib.h>
#include <string.h>

#include "classes.h"
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
    bytes += (count + 1) * sizeof(char *);
    /* An object of its own: the report names what small objects lie together after the first of them, which is the program's. */
    char **row = comb_lib_malloc(bytes > COMB_LARGEST_SMALL ? bytes : COMB_LARGEST_SMALL + 1);
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
    if (comb_is_spread()) {
        size_t variables = 0;
        while (environment[variables])
            variables++;
        arguments = share(arguments, (size_t)count);
        environment = share(environment, variables);
    }
    int status = comb_main(count, arguments, environment);
    comb_locals_end();
    return status;
}
