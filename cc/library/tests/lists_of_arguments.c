/* The v… forms of wide printf and scanf. */
#include "world.h"

#include <stdarg.h>

static void prints(FILE *file, wchar_t *to, const wchar_t *format, ...)
{
    va_list list;
#define WITH(call)              \
    va_start(list, format);     \
    say("%s = %lld\n", #call, (long long)(call)); \
    va_end(list)
    WITH(C(vfwprintf)(file, format, list));
    WITH(C(__vfwprintf_chk)(file, 1, format, list));
    WITH(C(vswprintf)(to, 90, format, list));
    WITH(C(__vswprintf_chk)(to, 90, 1, 100, format, list));
}

static void scans(FILE *file, const wchar_t *text, const wchar_t *format, ...)
{
    va_list list;
    WITH(C(vswscanf)(text, format, list));
    WITH(C(__isoc99_vswscanf)(text, format, list));
    C(rewind)(file);
    WITH(C(vfwscanf)(file, format, list));
    C(rewind)(file);
    WITH(C(__isoc99_vfwscanf)(file, format, list));
}

void lists_of_arguments_scene(void)
{
    FILE *file = C(tmpfile)();
    wchar_t *to = (wchar_t *)place_aligned(400);
    wchar_t *format = place_bytes(L"%d %ls %s %5.1f %Lg\n", sizeof L"%d %ls %s %5.1f %Lg\n");
    prints(file, to, format, 5, place_bytes(L"wide", sizeof L"wide"), place_text("narrow"), 2.5, 3.5L);
    wchar_t *scanned = place_bytes(L"%d %ls %9s", sizeof L"%d %ls %9s"), *text = place_bytes(L"7 ab cd", sizeof L"7 ab cd");
    char *narrow = place(40), nothing[40] = "";
    scans(file, text, scanned, place_aligned(4), place_aligned(400), narrow);
    /* libc may leave a second zero. */
    SAY_TEXT(narrow);
    put(narrow, nothing, sizeof nothing);
    SAY(C(fclose)(file));
}
