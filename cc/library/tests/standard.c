/* Standard input and output, for the time of the scene files. */
#include "world.h"

#include <stdarg.h>
#include <unistd.h>

#ifdef PLAIN
#define IN stdin
#define OUT stdout
#define ERROR stderr
#else
#define IN comb_lib_stdin
#define OUT comb_lib_stdout
#define ERROR comb_lib_stderr
#endif

static void prints(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    SAY(C(vprintf)(format, list));
    va_end(list);
    va_start(list, format);
    SAY(C(__vprintf_chk)(1, format, list));
    va_end(list);
}

static void scans(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    SAY(C(vscanf)(format, list));
    va_end(list);
    va_start(list, format);
    SAY(C(__isoc99_vscanf)(format, list));
    va_end(list);
}

static void complain(const char *format, ...)
{
    va_list list;
    errno = EACCES;
    va_start(list, format);
    C(vwarn)(format, list);
    va_end(list);
    va_start(list, format);
    C(vwarnx)(format, list);
    va_end(list);
}

static void write_all(void)
{
    char *text = place_text("some text");
    SAY(C(puts)(text)); SAY(C(putchar)('c')); SAY(C(putchar_unlocked)('\n')); SAY(C(printf)("%s %d\n", text, 5));
    on_cell(below(2));
    SAY(C(__printf_chk)(1, "%s %d\n", text, 6)); SAY(C(puts)(text));
    on_cell(0);
    prints("%d %s\n", 7, text);
    SAY(C(fflush)(OUT));
}

static void complain_all(void)
{
    char *text = place_text("trouble");
    errno = ENOENT;
    C(perror)(text);
    on_cell(below(2));
    errno = EINVAL;
    C(warn)("%s %d", text, 5), C(warnx)("%s %d", text, 6);
    complain("%s %d", text, 7);
    on_cell(0);
    C(error)(0, ENOENT, "%s", text), C(error_at_line)(0, 0, text, 12, "%d", 8);
    SAY(C(fflush)(ERROR));
}

static void read_all(void)
{
    char *word = place(100);
    int *number = (int *)place_aligned(4);
    SAY(C(getchar)()); SAY(C(getchar_unlocked)());
    SAY(C(scanf)("%d %s", number, word)); SAY(C(__isoc99_scanf)("%d", number));
    scans("%d", number);
}

/* The names of the two programs differ. */
static void say_lines(const char *path)
{
    char line[200];
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        say("%s", colon ? colon : line);
    }
    fclose(file);
    unlink(path);
}

void standard_scene(void)
{
    int kept[3] = {dup(0), dup(1), dup(2)};
    FILE *input = fopen("in.txt", "w");
    fputs("ab12 word 13 14 15", input);
    fclose(input);
    fflush(stdout);
    if (!freopen("in.txt", "r", stdin) || !freopen("out.txt", "w", stdout) || !freopen("err.txt", "w", stderr))
        abort();
    write_all();
    complain_all();
    read_all();
    fflush(NULL);
    dup2(kept[0], 0), dup2(kept[1], 1), dup2(kept[2], 2);
    for (int at = 0; at < 3; at++)
        close(kept[at]);
    say_lines("out.txt");
    say_lines("err.txt");
    unlink("in.txt");
}
