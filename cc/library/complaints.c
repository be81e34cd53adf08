/* perror, err, warn and error: words for standard error, which is cell 0's. */
#include "every.h"

#include <errno.h>

#include "files.h"
#include "reach.h"

extern FILE *comb_lib_stderr;
extern __typeof__(vasprintf) comb_lib_vasprintf;

/* The words of the program's format, in its own memory, and then all in one call, so that they stay together. */
static char *words(const char *format, va_list list)
{
    COMB_DESK(desk);
    char *made;
    if (!format)
        return NULL;
    if (comb_lib_vasprintf(&made, format, list) < 0)
        return NULL;
    char *own = strdup(comb_own_text(&desk, made));
    comb_lib_free(made);
    return own;
}

static void complain(const char *said, int number)
{
    FILE *file = comb_file_here(comb_lib_stderr);
    if (number >= 0)
        fprintf(file, "%s: %s%s%s\n", program_invocation_short_name, said ? said : "", said ? ": " : "",
                strerror(number));
    else
        fprintf(file, "%s: %s\n", program_invocation_short_name, said ? said : "");
}

void comb_lib_perror(const char *text)
{
    COMB_DESK(desk);
    int number = errno;
    const char *own = comb_own_text(&desk, text);
    int is_empty = !own || !*own;
    fprintf(comb_file_here(comb_lib_stderr), "%s%s%s\n", is_empty ? "" : own, is_empty ? "" : ": ", strerror(number));
    errno = number;
}
COMB_SAME_TYPE(perror);

void comb_lib_vwarn(const char *format, va_list list)
{
    int number = errno;
    char *said = words(format, list);
    complain(said, number);
    free(said);
    errno = number;
}
COMB_SAME_TYPE(vwarn);

void comb_lib_vwarnx(const char *format, va_list list)
{
    char *said = words(format, list);
    complain(said, -1);
    free(said);
}
COMB_SAME_TYPE(vwarnx);

void comb_lib_verr(int status, const char *format, va_list list)
{
    comb_lib_vwarn(format, list);
    comb_lib_exit(status);
}

void comb_lib_verrx(int status, const char *format, va_list list)
{
    comb_lib_vwarnx(format, list);
    comb_lib_exit(status);
}

#define WITH_ARGUMENTS(name, call, ...)   \
    void comb_lib_##name(__VA_ARGS__, ...) \
    {                                     \
        va_list list;                     \
        va_start(list, format);           \
        call;                             \
        va_end(list);                     \
    }                                     \
    COMB_SAME_TYPE(name)
WITH_ARGUMENTS(warn, comb_lib_vwarn(format, list), const char *format);
WITH_ARGUMENTS(warnx, comb_lib_vwarnx(format, list), const char *format);
WITH_ARGUMENTS(err, comb_lib_verr(status, format, list), int status, const char *format);
WITH_ARGUMENTS(errx, comb_lib_verrx(status, format, list), int status, const char *format);

/* glibc's own: flushes standard output first, and counts. */
static void tell(int status, int number, const char *file, unsigned line, const char *format, va_list list)
{
    COMB_DESK(desk);
    extern FILE *comb_lib_stdout;
    char *said = words(format, list);
    FILE *to = comb_file_here(comb_lib_stderr);
    fflush(comb_file_here(comb_lib_stdout));
    flockfile(to);
    if (error_print_progname)
        error_print_progname();
    else
        fprintf(to, "%s:%s", program_invocation_name, file ? "" : " ");
    if (file)
        fprintf(to, "%s:%u: ", comb_own_text(&desk, file), line);
    fprintf(to, "%s", said ? said : "");
    if (number)
        fprintf(to, ": %s", strerror(number));
    fputc('\n', to);
    funlockfile(to);
    error_message_count++;
    free(said);
    if (status)
        comb_lib_exit(status);
}

WITH_ARGUMENTS(error, tell(status, number, NULL, 0, format, list), int status, int number, const char *format);
WITH_ARGUMENTS(error_at_line, tell(status, number, file, line, format, list), int status, int number, const char *file,
               unsigned line, const char *format);
