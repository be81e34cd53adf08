/* scanf's family: numbers of all sizes and texts with and without width; what is not reached stays as it was. */
#include "world.h"

#include <stdarg.h>

static int with_list(const char *text, FILE *file, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    SAY(C(vsscanf)(text, format, list));
    va_end(list);
    va_start(list, format);
    SAY(C(__isoc99_vsscanf)(text, format, list));
    va_end(list);
    C(rewind)(file);
    va_start(list, format);
    SAY(C(vfscanf)(file, format, list));
    va_end(list);
    C(rewind)(file);
    va_start(list, format);
    SAY(C(__isoc99_vfscanf)(file, format, list));
    va_end(list);
    return 0;
}

#define SCANS(...)                             \
    SAY(C(sscanf)(text, __VA_ARGS__));         \
    SAY(C(__isoc99_sscanf)(text, __VA_ARGS__)); \
    C(rewind)(file);                           \
    SAY(C(fscanf)(file, __VA_ARGS__));         \
    C(rewind)(file);                           \
    SAY(C(__isoc99_fscanf)(file, __VA_ARGS__))

void scanning_scene(void)
{
    static const char *const texts[] = {"12 34 word 5.5 rest of it", "7 x", "", "   -8 0x1f wwwwwwwwwwwwwwww 1e3 [abc] zz",
                                        "1 2 3 4 5 6 7 8 9", "12 34 word", "+5 ]]x y 4 q"};
    char *text = place_text(texts[below(7)]), *word = place(100), *other = place(100);
    int *number = (int *)place_aligned(4), *more = (int *)place_aligned(4), *count = (int *)place_aligned(4);
    long *long_number = (long *)place_aligned(8);
    short *short_number = (short *)place_aligned(2);
    double *real = (double *)place_aligned(8);
    float *small = (float *)place_aligned(4);
    wchar_t *wide = (wchar_t *)place_aligned(400);
    char **made = (char **)place_aligned(8), *own;
    FILE *file = C(tmpfile)();
    SAY(C(fputs)(text, file) >= 0);

    SCANS("%d", number);
    SCANS("%d %i %99s %lf%n", number, more, word, real, count);
    SCANS("%hd %ld %5s", short_number, long_number, word);
    SCANS("%d%*d %s %f %[^]]", number, word, small, other);
    SCANS("%3c%c", word, other);
    SCANS("%*s %n%ls %x", count, wide, (unsigned *)number);
    SCANS("%[]0-9 ]%[a-z]", word, other);
    SCANS("%2$d %1$d", number, more);
    SCANS("%d%%", number);
    put(made, &(void *){NULL}, 8);
    SAY(C(sscanf)(text, "%*d %ms", made));
    get(&own, made, 8);
    SAY_TEXT(own);
    C(free)(own);
    put(made, &(void *){NULL}, 8);
    with_list(text, file, "%d %i %s %lg %n", number, more, word, real, count);
    SAY(C(fclose)(file));
}
