/* say.c: what the runtime has to tell the user. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime.h"

static void say(const char *format, va_list values)
{
    char text[1024] = "comb: ";
    int length = 6 + vsnprintf(text + 6, sizeof text - 7, format, values);
    if (length > (int)sizeof text - 2)
        length = sizeof text - 2;
    text[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, text, (size_t)length);
    (void)written; /* there is nobody else to tell */
}

void comb_say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
}

void comb_die(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
    if (comb_here.program)
        comb_here.program->end(1);
    _exit(1);
}
