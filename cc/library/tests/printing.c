/* printf's family: all kinds of arguments, in registers and in memory, texts from the arena, counts into it. */
#include "world.h"

#include <stdarg.h>
#include <stdint.h>

#define FORMATS(...)                                                             \
    SAY(C(snprintf)(to, below(300), __VA_ARGS__));                               \
    SAY(C(sprintf)(to + 400, __VA_ARGS__));                                      \
    SAY(C(fprintf)(file, __VA_ARGS__));                                          \
    SAY(C(__snprintf_chk)(to, 300, 1, 400, __VA_ARGS__));                        \
    SAY(C(__sprintf_chk)(to, 1, 2000, __VA_ARGS__));                             \
    SAY(C(__fprintf_chk)(file, 1, __VA_ARGS__))

static int with_list(char *to, size_t room, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    SAY(C(vsnprintf)(to, room, format, list));
    SAY(C(__vsnprintf_chk)(to, room, 0, room, format, again));
    va_end(again);
    va_end(list);
    va_start(list, format);
    SAY(C(vsprintf)(to, format, list));
    va_end(list);
    va_start(list, format);
    SAY(C(__vsprintf_chk)(to, 0, 5000, format, list));
    va_end(list);
    char **made = (char **)place_aligned(sizeof *made);
    char *text;
    va_start(list, format);
    SAY(C(vasprintf)(made, format, list));
    va_end(list);
    get(&text, made, sizeof text);
    SAY_TEXT(text);
    C(free)(text);
    va_start(list, format);
    SAY(C(__vasprintf_chk)(made, 0, format, list));
    va_end(list);
    get(&text, made, sizeof text);
    C(free)(text);
    put(made, &(void *){NULL}, sizeof text);
    return 0;
}

static void into_files(FILE *file, const char *format, ...)
{
    int descriptor = C(fileno)(file);
    C(fflush)(file);
    va_list list;
    va_start(list, format);
    SAY(C(vfprintf)(file, format, list));
    va_end(list);
    va_start(list, format);
    SAY(C(__vfprintf_chk)(file, 0, format, list));
    va_end(list);
    C(fflush)(file);
    va_start(list, format);
    SAY(C(vdprintf)(descriptor, format, list));
    va_end(list);
    va_start(list, format);
    SAY(C(__vdprintf_chk)(descriptor, 0, format, list));
    va_end(list);
    SAY(C(dprintf)(descriptor, "%s\n", format));
    SAY(C(__dprintf_chk)(descriptor, 1, "%s\n", format));
}

static void say_file(FILE *file)
{
    char own[6000];
    C(rewind)(file);
    char *to = place(sizeof own);
    size_t got = C(fread)(to, 1, sizeof own, file);
    get(own, to, got);
    SAY(got);
    say_bytes(own, got);
}

void printing_scene(void)
{
    char *text = place_random_text(100), *to = place(6000), *part = place_text("unended");
    wchar_t *wide = (wchar_t *)place_bytes(L"wide ones", sizeof L"wide ones");
    int *count = (int *)place_aligned(sizeof *count);
    long *long_count = (long *)place_aligned(sizeof *long_count);
    char *format = place_text("%d %s %5.1f %c %n%ls %Lg %lx %08.3e %*d|%-*s|%.*s|%.3s %ln %% %p %zu %hhd %jd\n");
    FILE *file = C(tmpfile)();

    FORMATS("%s", text);
    FORMATS("%d %s %s %i", -5, text, part, 7);
    FORMATS("%.3s|%.*s|%20s|%-9s|", part, (int)below(7), text, part, "near");
    FORMATS("%g %a %Lf %e %s %d", 1.5, 0.1, 3.25L, 1e100, part, 8);
    FORMATS("%f%f%f%f%f%f%f%f%f%Lf%d%d%d%d%d%d%s", 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.L, 1, 2, 3, 4, 5, 6, text);
    FORMATS("%2$s %1$d %2$s %3$*4$d", 5, text, 6, 9);
    FORMATS("%ls|%.4ls|%S", wide, wide, wide);
    FORMATS("%s %p", (char *)NULL, (void *)NULL);
    FORMATS("%hhd %hd %ld %lld %zd %td %jd %qd", 300, 70000, 1L << 40, 1LL << 41, (size_t)42, (ptrdiff_t)43, (intmax_t)44, 45LL);
    FORMATS("plain");
    errno = ENOENT;
    SAY(C(snprintf)(to, 100, "%m"));
    SAY(C(snprintf)(to, 1000, "abc%nde%lnf%hhn%d", count, long_count, (signed char *)to + 3000, 9));
    SAY(C(snprintf)(NULL, 0, "%s", text));
    with_list(to, 600, format, 1, text, 2.5, 'x', count, wide, 1.25L, 255L, 1e-9, 6, 3, 8, part, 2, part, text, long_count,
              (void *)16, (size_t)1, 2, (intmax_t)3);
    into_files(file, format, 1, text, 2.5, 'x', count, wide, 1.25L, 255L, 1e-9, 6, 3, 8, part, 2, part, text, long_count,
               (void *)16, (size_t)1, 2, (intmax_t)3);
    char **made = (char **)place_aligned(sizeof *made), *own;
    SAY(C(asprintf)(made, "<%s>", text));
    get(&own, made, sizeof own);
    SAY_TEXT(own);
    C(free)(own);
    SAY(C(__asprintf_chk)(made, 1, "<%s>", text));
    get(&own, made, sizeof own);
    SAY_TEXT(own);
    C(free)(own);
    put(made, &(void *){NULL}, sizeof own);
    say_file(file);
    SAY(C(fclose)(file));
}
