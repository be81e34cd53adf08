/* scanf and its kin: libc stores into slots and allocates texts; what it converted goes where the program wants it. */
#include "wrap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "files.h"
#include "printing.h"
#include "reach.h"
#include "undeclared.h"

extern FILE *comb_lib_stdin;

struct scanning {
    struct comb_argument *arguments;
    size_t count;
    union comb_list list;
};

static void lay(struct scanning *scanning, struct comb_desk *desk, const char *format, char *rewritten, va_list list)
{
    size_t most = comb_arguments_most(format);
    scanning->arguments = comb_desk_room(desk, most * sizeof *scanning->arguments);
    uint64_t *words = comb_desk_room(desk, 2 * most * sizeof *words);
    memset(scanning->arguments, 0, most * sizeof *scanning->arguments);
    scanning->count = comb_scanf_arguments(format, rewritten, scanning->arguments, most);
    comb_take_arguments(scanning->arguments, scanning->count, list);
    comb_own_arguments(desk, scanning->arguments, scanning->count, 0);
    comb_lay_arguments(&scanning->list, words, scanning->arguments, scanning->count);
}

static size_t text_characters(const struct comb_argument *the, const void *made)
{
    if (the->is_unended)
        return (size_t)the->limit;
    return the->bytes == 1 ? strlen(made) + 1 : wcslen(made) + 1;
}

/* A text that libc has allocated: to the program's room, or as memory of the program's. */
static void give_text(const struct comb_argument *the)
{
    char *made;
    memcpy(&made, the->own, sizeof made);
    if (!made)
        return;
    size_t bytes = text_characters(the, made) * (size_t)the->bytes;
    char *to = the->value.pointer;
    if (the->kind == COMB_ALLOCATED) {
        to = comb_lib_malloc(bytes);
        comb_set_pointer(the->value.pointer, to);
    }
    if (to)
        comb_copy_to(to, made, bytes);
    free(made);
}

static void give(const struct scanning *scanning, int converted)
{
    for (size_t at = 0; at < scanning->count; at++) {
        const struct comb_argument *the = &scanning->arguments[at];
        if (!the->own)
            continue;
        if (the->is_count) {
            uint64_t none = UINT64_MAX;
            if (memcmp(the->own, &none, (size_t)the->bytes) != 0)
                comb_copy_to(the->value.pointer, the->own, (size_t)the->bytes);
        } else if (the->kind != COMB_RESULT) {
            give_text(the);
        } else if (the->order < converted) {
            comb_copy_to(the->value.pointer, the->own, (size_t)the->bytes);
        }
    }
}

#define SCAN(answer, call)                                              \
    COMB_DESK(desk);                                                    \
    const char *whole_format = comb_own_text(&desk, format);            \
    char *own_format = comb_desk_room(&desk, 2 * strlen(whole_format) + 1); \
    struct scanning scanning;                                           \
    lay(&scanning, &desk, whole_format, own_format, list);              \
    int answer = call;                                                  \
    give(&scanning, answer)

int comb_lib_vfscanf(FILE *restrict stream, const char *restrict format, va_list list)
{
    FILE *file = comb_file_here(stream);
    SCAN(converted, vfscanf(file, own_format, scanning.list.list));
    return converted;
}
COMB_SAME_TYPE(vfscanf);
COMB_ALIAS(__isoc99_vfscanf, vfscanf);

int comb_lib_vsscanf(const char *restrict text, const char *restrict format, va_list list)
{
    SCAN(converted, vsscanf(comb_own_text(&desk, text), own_format, scanning.list.list));
    return converted;
}
COMB_SAME_TYPE(vsscanf);
COMB_ALIAS(__isoc99_vsscanf, vsscanf);

int comb_lib_vscanf(const char *restrict format, va_list list)
{
    return comb_lib_vfscanf(comb_lib_stdin, format, list);
}
COMB_SAME_TYPE(vscanf);
COMB_ALIAS(__isoc99_vscanf, vscanf);

/* A wide format is rewritten as a narrow one, and widened again; sets of other letters than ASCII's keep them. */
static wchar_t *wide_format(struct comb_desk *desk, const wchar_t *whole, const char *narrow)
{
    wchar_t *wide = comb_desk_room(desk, (strlen(narrow) + 1) * sizeof *wide);
    size_t to = 0;
    for (; *narrow; narrow++) {
        int is_inserted = *narrow == 'm' && *whole != L'm';
        wide[to++] = is_inserted ? L'm' : *whole++;
    }
    wide[to] = 0;
    return wide;
}

#define SCAN_WIDE(answer, call)                                              \
    COMB_DESK(desk);                                                         \
    const wchar_t *whole_format = comb_own_wide(&desk, format);              \
    const char *narrow = comb_narrow_format(&desk, whole_format);            \
    char *rewritten = comb_desk_room(&desk, 2 * strlen(narrow) + 1);         \
    struct scanning scanning;                                                \
    lay(&scanning, &desk, narrow, rewritten, list);                          \
    const wchar_t *own_format = wide_format(&desk, whole_format, rewritten); \
    int answer = call;                                                       \
    give(&scanning, answer)

int comb_lib_vfwscanf(FILE *restrict stream, const wchar_t *restrict format, va_list list)
{
    FILE *file = comb_file_here(stream);
    SCAN_WIDE(converted, vfwscanf(file, own_format, scanning.list.list));
    return converted;
}
COMB_SAME_TYPE(vfwscanf);
COMB_ALIAS(__isoc99_vfwscanf, vfwscanf);

int comb_lib_vswscanf(const wchar_t *restrict text, const wchar_t *restrict format, va_list list)
{
    SCAN_WIDE(converted, vswscanf(comb_own_wide(&desk, text), own_format, scanning.list.list));
    return converted;
}
COMB_SAME_TYPE(vswscanf);
COMB_ALIAS(__isoc99_vswscanf, vswscanf);

int comb_lib_vwscanf(const wchar_t *restrict format, va_list list)
{
    return comb_lib_vfwscanf(comb_lib_stdin, format, list);
}
COMB_SAME_TYPE(vwscanf);
COMB_ALIAS(__isoc99_vwscanf, vwscanf);

#define WITH_ARGUMENTS(name, call, ...)        \
    int comb_lib_##name(__VA_ARGS__, ...)      \
    {                                          \
        va_list list;                          \
        va_start(list, format);                \
        int answer = call;                     \
        va_end(list);                          \
        return answer;                         \
    }                                          \
    COMB_SAME_TYPE(name);                      \
    COMB_ALIAS(__isoc99_##name, name)
WITH_ARGUMENTS(scanf, comb_lib_vscanf(format, list), const char *format);
WITH_ARGUMENTS(fscanf, comb_lib_vfscanf(stream, format, list), FILE *stream, const char *format);
WITH_ARGUMENTS(sscanf, comb_lib_vsscanf(text, format, list), const char *text, const char *format);
WITH_ARGUMENTS(wscanf, comb_lib_vwscanf(format, list), const wchar_t *format);
WITH_ARGUMENTS(fwscanf, comb_lib_vfwscanf(stream, format, list), FILE *stream, const wchar_t *format);
WITH_ARGUMENTS(swscanf, comb_lib_vswscanf(text, format, list), const wchar_t *text, const wchar_t *format);
