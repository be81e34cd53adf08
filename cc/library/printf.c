/* printf and its kin: arguments laid out anew (format.h), then libc's own function. */
#include "wrap.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "files.h"
#include "format.h"
#include "printing.h"
#include "reach.h"
#include "undeclared.h"

extern FILE *comb_lib_stdout;

void comb_printing_lay(struct comb_printing *printing, struct comb_desk *desk, const char *narrow, va_list list,
                       int is_wide)
{
    size_t most = comb_arguments_most(narrow);
    printing->arguments = comb_desk_room(desk, most * sizeof *printing->arguments);
    printing->words = comb_desk_room(desk, 2 * most * sizeof *printing->words);
    memset(printing->arguments, 0, most * sizeof *printing->arguments);
    printing->count = comb_printf_arguments(narrow, printing->arguments, most);
    comb_take_arguments(printing->arguments, printing->count, list);
    comb_own_arguments(desk, printing->arguments, printing->count, is_wide);
}

union comb_list *comb_printing_list(struct comb_printing *printing)
{
    comb_lay_arguments(&printing->list, printing->words, printing->arguments, printing->count);
    return &printing->list;
}

void comb_printing_count(const struct comb_printing *printing)
{
    for (size_t at = 0; at < printing->count; at++) {
        const struct comb_argument *the = &printing->arguments[at];
        uint64_t none = UINT64_MAX;
        if (the->is_count && memcmp(the->own, &none, (size_t)the->bytes) != 0)
            comb_give_back(the->value.pointer, the->own, (size_t)the->bytes);
    }
}

/* Runs `call` with `own_format` and `own_list`, and gives counts back. */
#define PRINT(answer, call)                                              \
    COMB_DESK(desk);                                                     \
    const char *own_format = comb_own_text(&desk, format);               \
    struct comb_printing printing;                                       \
    comb_printing_lay(&printing, &desk, own_format, list, 0);            \
    int answer = call;                                                   \
    comb_printing_count(&printing)
#define own_list comb_printing_list(&printing)->list

int comb_lib_vfprintf(FILE *restrict stream, const char *restrict format, va_list list)
{
    FILE *file = comb_file_here(stream);
    PRINT(length, vfprintf(file, own_format, own_list));
    return length;
}
COMB_SAME_TYPE(vfprintf);

/* Most texts fit in here, and are then made once only. */
enum { SHORT_TEXT = 512 };

int comb_lib_vsnprintf(char *restrict to, size_t room, const char *restrict format, va_list list)
{
    char near[SHORT_TEXT], *made = near;
    PRINT(length, vsnprintf(near, sizeof near, own_format, own_list));
    if (length < 0 || !room)
        return length;
    size_t bytes = (size_t)length < room ? (size_t)length + 1 : room;
    if (bytes > sizeof near) {
        made = comb_desk_room(&desk, bytes);
        vsnprintf(made, bytes, own_format, own_list);
    }
    made[bytes - 1] = 0;
    comb_copy_to(to, made, bytes);
    return length;
}
COMB_SAME_TYPE(vsnprintf);

int comb_lib_vsprintf(char *restrict to, const char *restrict format, va_list list)
{
    return comb_lib_vsnprintf(to, INT_MAX, format, list);
}
COMB_SAME_TYPE(vsprintf);

/* Memory of libc's becomes the program's. */
static int hand_over(char **to, char *made, int length)
{
    char *copy = length < 0 ? NULL : comb_lib_malloc((size_t)length + 1);
    if (copy)
        comb_copy_to(copy, made, (size_t)length + 1);
    if (length >= 0)
        free(made);
    if (!copy)
        return -1;
    comb_set_pointer(to, copy);
    return length;
}

int comb_lib_vasprintf(char **restrict to, const char *restrict format, va_list list)
{
    char *made;
    PRINT(length, vasprintf(&made, own_format, own_list));
    return hand_over(to, made, length);
}
COMB_SAME_TYPE(vasprintf);

int comb_lib_vdprintf(int descriptor, const char *restrict format, va_list list)
{
    char *made;
    PRINT(length, vasprintf(&made, own_format, own_list));
    for (int done = 0; done < length;) {
        ssize_t written = comb_lib_write(descriptor, made + done, (size_t)(length - done));
        if (written < 0) {
            length = -1;
            break;
        }
        done += (int)written;
    }
    free(made);
    return length;
}
COMB_SAME_TYPE(vdprintf);

void comb_lib_vsyslog(int priority, const char *format, va_list list)
{
    char *made;
    PRINT(length, vasprintf(&made, own_format, own_list));
    if (length >= 0) {
        syslog(priority, "%s", made);
        free(made);
    }
}
COMB_SAME_TYPE(vsyslog);
#undef own_list

int comb_lib_vprintf(const char *restrict format, va_list list)
{
    return comb_lib_vfprintf(comb_lib_stdout, format, list);
}
COMB_SAME_TYPE(vprintf);

/* Fortified: sizes are compared, and flags need nothing. */

int comb_lib___vsnprintf_chk(char *to, size_t room, int flag, size_t object, const char *format, va_list list)
{
    (void)flag;
    if (room > object)
        __chk_fail();
    return comb_lib_vsnprintf(to, room, format, list);
}
COMB_SAME_TYPE(__vsnprintf_chk);

int comb_lib___vsprintf_chk(char *to, int flag, size_t object, const char *format, va_list list)
{
    (void)flag;
    int length = comb_lib_vsnprintf(to, object, format, list);
    if (length >= 0 && (size_t)length >= object)
        __chk_fail();
    return length;
}
COMB_SAME_TYPE(__vsprintf_chk);

int comb_lib___vfprintf_chk(FILE *stream, int flag, const char *format, va_list list)
{
    (void)flag;
    return comb_lib_vfprintf(stream, format, list);
}
COMB_SAME_TYPE(__vfprintf_chk);

int comb_lib___vprintf_chk(int flag, const char *format, va_list list)
{
    (void)flag;
    return comb_lib_vprintf(format, list);
}
COMB_SAME_TYPE(__vprintf_chk);

int comb_lib___vdprintf_chk(int descriptor, int flag, const char *format, va_list list)
{
    (void)flag;
    return comb_lib_vdprintf(descriptor, format, list);
}
COMB_SAME_TYPE(__vdprintf_chk);

int comb_lib___vasprintf_chk(char **to, int flag, const char *format, va_list list)
{
    (void)flag;
    return comb_lib_vasprintf(to, format, list);
}
COMB_SAME_TYPE(__vasprintf_chk);

void comb_lib___vsyslog_chk(int priority, int flag, const char *format, va_list list)
{
    (void)flag;
    comb_lib_vsyslog(priority, format, list);
}
COMB_SAME_TYPE(__vsyslog_chk);

/* With arguments of their own. */

#define WITH_ARGUMENTS(name, call, ...)                           \
    int comb_lib_##name(__VA_ARGS__, const char *format, ...)     \
    {                                                             \
        va_list list;                                             \
        va_start(list, format);                                   \
        int answer = call;                                        \
        va_end(list);                                             \
        return answer;                                            \
    }                                                             \
    COMB_SAME_TYPE(name)
WITH_ARGUMENTS(fprintf, comb_lib_vfprintf(stream, format, list), FILE *stream);
WITH_ARGUMENTS(dprintf, comb_lib_vdprintf(descriptor, format, list), int descriptor);
WITH_ARGUMENTS(sprintf, comb_lib_vsprintf(to, format, list), char *to);
WITH_ARGUMENTS(snprintf, comb_lib_vsnprintf(to, room, format, list), char *to, size_t room);
WITH_ARGUMENTS(asprintf, comb_lib_vasprintf(to, format, list), char **to);
COMB_ALIAS(__asprintf, asprintf);
WITH_ARGUMENTS(__printf_chk, comb_lib___vprintf_chk(flag, format, list), int flag);
WITH_ARGUMENTS(__fprintf_chk, comb_lib___vfprintf_chk(stream, flag, format, list), FILE *stream, int flag);
WITH_ARGUMENTS(__dprintf_chk, comb_lib___vdprintf_chk(descriptor, flag, format, list), int descriptor, int flag);
WITH_ARGUMENTS(__sprintf_chk, comb_lib___vsprintf_chk(to, flag, object, format, list), char *to, int flag, size_t object);
WITH_ARGUMENTS(__snprintf_chk, comb_lib___vsnprintf_chk(to, room, flag, object, format, list), char *to, size_t room,
               int flag, size_t object);
WITH_ARGUMENTS(__asprintf_chk, comb_lib___vasprintf_chk(to, flag, format, list), char **to, int flag);

int comb_lib_printf(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int answer = comb_lib_vprintf(format, list);
    va_end(list);
    return answer;
}
COMB_SAME_TYPE(printf);

void comb_lib_syslog(int priority, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    comb_lib_vsyslog(priority, format, list);
    va_end(list);
}
COMB_SAME_TYPE(syslog);

void comb_lib___syslog_chk(int priority, int flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    comb_lib___vsyslog_chk(priority, flag, format, list);
    va_end(list);
}
COMB_SAME_TYPE(__syslog_chk);
