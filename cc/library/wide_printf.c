/* wprintf and its kin. */
#include "wrap.h"

#include <stdarg.h>
#include <stdio.h>
#include <wchar.h>

#include "files.h"
#include "printing.h"
#include "reach.h"
#include "undeclared.h"

extern FILE *comb_lib_stdout;

char *comb_narrow_format(struct comb_desk *desk, const wchar_t *format)
{
    size_t length = wcslen(format);
    char *narrow = comb_desk_room(desk, length + 1);
    for (size_t at = 0; at <= length; at++)
        narrow[at] = format[at] < 128 ? (char)format[at] : '?';
    return narrow;
}

#define PRINT(answer, call)                                                             \
    COMB_DESK(desk);                                                                    \
    const wchar_t *own_format = comb_own_wide(&desk, format);                           \
    struct comb_printing printing;                                                      \
    comb_printing_lay(&printing, &desk, comb_narrow_format(&desk, own_format), list, 1); \
    int answer = call;                                                                  \
    comb_printing_count(&printing)
#define own_list comb_printing_list(&printing)->list

int comb_lib_vfwprintf(FILE *restrict stream, const wchar_t *restrict format, va_list list)
{
    FILE *file = comb_file_here(stream);
    PRINT(length, vfwprintf(file, own_format, own_list));
    return length;
}
COMB_SAME_TYPE(vfwprintf);

/* No character: where libc has not written. */
static const wchar_t UNTOUCHED = -1;

/* It writes what there is room for even where it fails then, so only the room itself tells how much. */
int comb_lib_vswprintf(wchar_t *restrict to, size_t room, const wchar_t *restrict format, va_list list)
{
    PRINT(length, 0);
    wchar_t *own = comb_own_room(&desk, to, room * sizeof *own);
    if (own != to)
        wmemset(own, UNTOUCHED, room);
    length = vswprintf(own, room, own_format, own_list);
    comb_printing_count(&printing);
    size_t written = own == to ? 0 : room;
    while (written && own[written - 1] == UNTOUCHED)
        written--;
    comb_give_back(to, own, written * sizeof *own);
    return length;
}
COMB_SAME_TYPE(vswprintf);
#undef own_list

int comb_lib_vwprintf(const wchar_t *restrict format, va_list list)
{
    return comb_lib_vfwprintf(comb_lib_stdout, format, list);
}
COMB_SAME_TYPE(vwprintf);

int comb_lib___vswprintf_chk(wchar_t *to, size_t room, int flag, size_t object, const wchar_t *format, va_list list)
{
    (void)flag;
    if (room > object)
        __chk_fail();
    return comb_lib_vswprintf(to, room, format, list);
}
COMB_SAME_TYPE(__vswprintf_chk);

int comb_lib___vfwprintf_chk(FILE *stream, int flag, const wchar_t *format, va_list list)
{
    (void)flag;
    return comb_lib_vfwprintf(stream, format, list);
}
COMB_SAME_TYPE(__vfwprintf_chk);

int comb_lib___vwprintf_chk(int flag, const wchar_t *format, va_list list)
{
    (void)flag;
    return comb_lib_vwprintf(format, list);
}
COMB_SAME_TYPE(__vwprintf_chk);

#define WITH_ARGUMENTS(name, call, ...)                              \
    int comb_lib_##name(__VA_ARGS__, const wchar_t *format, ...)     \
    {                                                                \
        va_list list;                                                \
        va_start(list, format);                                      \
        int answer = call;                                           \
        va_end(list);                                                \
        return answer;                                               \
    }                                                                \
    COMB_SAME_TYPE(name)
WITH_ARGUMENTS(fwprintf, comb_lib_vfwprintf(stream, format, list), FILE *stream);
WITH_ARGUMENTS(swprintf, comb_lib_vswprintf(to, room, format, list), wchar_t *to, size_t room);
WITH_ARGUMENTS(__wprintf_chk, comb_lib___vwprintf_chk(flag, format, list), int flag);
WITH_ARGUMENTS(__fwprintf_chk, comb_lib___vfwprintf_chk(stream, flag, format, list), FILE *stream, int flag);
WITH_ARGUMENTS(__swprintf_chk, comb_lib___vswprintf_chk(to, room, flag, object, format, list), wchar_t *to, size_t room,
               int flag, size_t object);

int comb_lib_wprintf(const wchar_t *format, ...)
{
    va_list list;
    va_start(list, format);
    int answer = comb_lib_vwprintf(format, list);
    va_end(list);
    return answer;
}
COMB_SAME_TYPE(wprintf);
