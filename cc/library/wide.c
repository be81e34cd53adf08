/* wmem* and wcs*: the same as for bytes, four at a time. */
#include "wrap.h"

#include <locale.h>
#include <wchar.h>
#include <wctype.h>

#include "pinned.h"
#include "reach.h"

static wchar_t wide_at(const wchar_t *at)
{
    wchar_t there;
    comb_copy_from(&there, at, sizeof there);
    return there;
}

static void set_wide(wchar_t *at, wchar_t character)
{
    comb_copy_to(at, &character, sizeof character);
}

wchar_t *comb_lib_wmemcpy(wchar_t *restrict to, const wchar_t *restrict from, size_t count)
{
    return comb_lib_memcpy(to, from, count * sizeof *to);
}
COMB_SAME_TYPE(wmemcpy);

wchar_t *comb_lib_wmemmove(wchar_t *to, const wchar_t *from, size_t count)
{
    return comb_lib_memmove(to, from, count * sizeof *to);
}
COMB_SAME_TYPE(wmemmove);

wchar_t *comb_lib_wmempcpy(wchar_t *restrict to, const wchar_t *restrict from, size_t count)
{
    return comb_lib_wmemcpy(to, from, count) + count;
}
COMB_SAME_TYPE(wmempcpy);

wchar_t *comb_lib_wmemset(wchar_t *to, wchar_t character, size_t count)
{
    enum { PIECE = COMB_PINNED_MOST / sizeof(wchar_t) };
    for (wchar_t *at = to; count;) {
        size_t piece = count < PIECE ? count : PIECE;
        comb_hold(at, piece * sizeof *at, 1);
        wmemset(at, character, piece);
        comb_release();
        at += piece, count -= piece;
    }
    return to;
}
COMB_SAME_TYPE(wmemset);

/* A run of whole characters, at least one; wide text is aligned, so that none lies across two pages. */
static size_t hold_wide(const wchar_t *at, size_t most)
{
    return comb_hold_run(at, most > SIZE_MAX / sizeof *at ? SIZE_MAX : most * sizeof *at) / sizeof *at;
}

static size_t hold_wides(const wchar_t *one, const wchar_t *other, size_t most)
{
    return comb_hold_runs(one, other, most > SIZE_MAX / sizeof *one ? SIZE_MAX : most * sizeof *one) / sizeof *one;
}

wchar_t *comb_lib_wmemchr(const wchar_t *from, wchar_t wanted, size_t count)
{
    while (count) {
        size_t piece = hold_wide(from, count);
        wchar_t *found = wmemchr(from, wanted, piece);
        comb_release();
        if (found)
            return found;
        from += piece, count -= piece;
    }
    return NULL;
}
COMB_SAME_TYPE(wmemchr);

int comb_lib_wmemcmp(const wchar_t *one, const wchar_t *other, size_t count)
{
    while (count) {
        size_t piece = hold_wides(one, other, count);
        int order = wmemcmp(one, other, piece);
        comb_release();
        if (order)
            return order;
        one += piece, other += piece, count -= piece;
    }
    return 0;
}
COMB_SAME_TYPE(wmemcmp);

size_t comb_lib_wcsnlen(const wchar_t *text, size_t most)
{
    wchar_t *end = comb_lib_wmemchr(text, 0, most);
    return end ? (size_t)(end - text) : most;
}
COMB_SAME_TYPE(wcsnlen);

size_t comb_lib_wcslen(const wchar_t *text)
{
    return (size_t)(comb_lib_wmemchr(text, 0, SIZE_MAX) - text);
}
COMB_SAME_TYPE(wcslen);

wchar_t *comb_lib_wcpcpy(wchar_t *restrict to, const wchar_t *restrict from)
{
    size_t length = comb_lib_wcslen(from);
    comb_lib_wmemcpy(to, from, length + 1);
    return to + length;
}
COMB_SAME_TYPE(wcpcpy);

wchar_t *comb_lib_wcscpy(wchar_t *restrict to, const wchar_t *restrict from)
{
    comb_lib_wcpcpy(to, from);
    return to;
}
COMB_SAME_TYPE(wcscpy);

wchar_t *comb_lib_wcpncpy(wchar_t *restrict to, const wchar_t *restrict from, size_t most)
{
    size_t length = comb_lib_wcsnlen(from, most);
    comb_lib_wmemcpy(to, from, length);
    comb_lib_wmemset(to + length, 0, most - length);
    return to + length;
}
COMB_SAME_TYPE(wcpncpy);

wchar_t *comb_lib_wcsncpy(wchar_t *restrict to, const wchar_t *restrict from, size_t most)
{
    comb_lib_wcpncpy(to, from, most);
    return to;
}
COMB_SAME_TYPE(wcsncpy);

wchar_t *comb_lib_wcscat(wchar_t *restrict to, const wchar_t *restrict from)
{
    comb_lib_wcpcpy(to + comb_lib_wcslen(to), from);
    return to;
}
COMB_SAME_TYPE(wcscat);

wchar_t *comb_lib_wcsncat(wchar_t *restrict to, const wchar_t *restrict from, size_t most)
{
    wchar_t *end = to + comb_lib_wcslen(to);
    size_t length = comb_lib_wcsnlen(from, most);
    comb_lib_wmemcpy(end, from, length);
    set_wide(end + length, 0);
    return to;
}
COMB_SAME_TYPE(wcsncat);

#define COMPARE(compare, one, other, most)                              \
    while (most) {                                                      \
        size_t piece = hold_wides(one, other, most);                    \
        int order = compare(one, other, piece);                         \
        int is_over = order || wmemchr(one, 0, piece);                  \
        comb_release();                                                 \
        if (is_over)                                                    \
            return order;                                               \
        one += piece, other += piece, most -= piece;                    \
    }                                                                   \
    return 0

int comb_lib_wcsncmp(const wchar_t *one, const wchar_t *other, size_t most)
{
    COMPARE(wcsncmp, one, other, most);
}
COMB_SAME_TYPE(wcsncmp);

int comb_lib_wcscmp(const wchar_t *one, const wchar_t *other)
{
    return comb_lib_wcsncmp(one, other, SIZE_MAX);
}
COMB_SAME_TYPE(wcscmp);

int comb_lib_wcsncasecmp(const wchar_t *one, const wchar_t *other, size_t most)
{
    COMPARE(wcsncasecmp, one, other, most);
}
COMB_SAME_TYPE(wcsncasecmp);

int comb_lib_wcscasecmp(const wchar_t *one, const wchar_t *other)
{
    return comb_lib_wcsncasecmp(one, other, SIZE_MAX);
}
COMB_SAME_TYPE(wcscasecmp);

wchar_t *comb_lib_wcschrnul(const wchar_t *text, wchar_t wanted)
{
    for (;;) {
        size_t piece = hold_wide(text, SIZE_MAX);
        size_t length = wcsnlen(text, piece);
        const wchar_t *found = wmemchr(text, wanted, length);
        comb_release();
        if (found || length < piece)
            return (wchar_t *)(found ? found : text + length);
        text += piece;
    }
}
COMB_SAME_TYPE(wcschrnul);

wchar_t *comb_lib_wcschr(const wchar_t *text, wchar_t wanted)
{
    wchar_t *found = comb_lib_wcschrnul(text, wanted);
    return wide_at(found) == wanted ? found : NULL;
}
COMB_SAME_TYPE(wcschr);

wchar_t *comb_lib_wcsrchr(const wchar_t *text, wchar_t wanted)
{
    for (const wchar_t *at = text + comb_lib_wcslen(text);; at--) {
        if (wide_at(at) == wanted)
            return (wchar_t *)at;
        if (at == text)
            return NULL;
    }
}
COMB_SAME_TYPE(wcsrchr);

size_t comb_lib_wcsspn(const wchar_t *text, const wchar_t *accept)
{
    COMB_DESK(desk);
    const wchar_t *own = comb_own_wide(&desk, accept);
    size_t length = 0;
    for (wchar_t here; (here = wide_at(text + length)) && wcschr(own, here);)
        length++;
    return length;
}
COMB_SAME_TYPE(wcsspn);

size_t comb_lib_wcscspn(const wchar_t *text, const wchar_t *reject)
{
    COMB_DESK(desk);
    const wchar_t *own = comb_own_wide(&desk, reject);
    size_t length = 0;
    for (wchar_t here; (here = wide_at(text + length)) && !wcschr(own, here);)
        length++;
    return length;
}
COMB_SAME_TYPE(wcscspn);

wchar_t *comb_lib_wcspbrk(const wchar_t *text, const wchar_t *accept)
{
    const wchar_t *found = text + comb_lib_wcscspn(text, accept);
    return wide_at(found) ? (wchar_t *)found : NULL;
}
COMB_SAME_TYPE(wcspbrk);

wchar_t *comb_lib_wcsstr(const wchar_t *text, const wchar_t *part)
{
    size_t length = comb_lib_wcslen(part);
    wchar_t first = wide_at(part);
    if (!length)
        return (wchar_t *)text;
    for (; (text = comb_lib_wcschr(text, first)); text++) {
        if (comb_lib_wcsncmp(text, part, length) == 0)
            return (wchar_t *)text;
    }
    return NULL;
}
COMB_SAME_TYPE(wcsstr);
COMB_ALIAS(wcswcs, wcsstr);

wchar_t *comb_lib_wcstok(wchar_t *restrict text, const wchar_t *restrict delimiters, wchar_t **restrict rest)
{
    if (!text)
        text = comb_pointer(rest);
    if (!text)
        return NULL;
    text += comb_lib_wcsspn(text, delimiters);
    wchar_t *end = text + comb_lib_wcscspn(text, delimiters);
    int is_empty = end == text, is_last = !wide_at(end);
    if (!is_last)
        set_wide(end++, 0);
    comb_set_pointer(rest, is_last ? NULL : end);
    return is_empty ? NULL : text;
}
COMB_SAME_TYPE(wcstok);

wchar_t *comb_lib_wcsdup(const wchar_t *text)
{
    size_t bytes = (comb_lib_wcslen(text) + 1) * sizeof *text;
    wchar_t *copy = comb_lib_malloc(bytes);
    if (copy)
        comb_lib_memcpy(copy, text, bytes);
    return copy;
}
COMB_SAME_TYPE(wcsdup);

COMB_WRAP(int, wcscoll, WIDE(one), WIDE(other));
COMB_WRAP(int, wcscoll_l, WIDE(one), WIDE(other), VALUE(locale_t, locale));
COMB_WRAP(size_t, wcsxfrm, FILLED(wchar_t, to, room, answer < room ? answer + 1 : 0), WIDE(from), VALUE(size_t, room));
COMB_WRAP(size_t, wcsxfrm_l, FILLED(wchar_t, to, room, answer < room ? answer + 1 : 0), WIDE(from), VALUE(size_t, room),
          VALUE(locale_t, locale));
COMB_WRAP(int, wcscasecmp_l, WIDE(one), WIDE(other), VALUE(locale_t, locale));

/* With its end, where that is within `most`. */
static size_t with_end(const wchar_t *text, size_t most)
{
    size_t length = comb_lib_wcsnlen(text, most);
    return length < most ? length + 1 : most;
}

COMB_WRAP(int, wcsncasecmp_l, ARRAY(wchar_t, one, with_end(one, most)), ARRAY(wchar_t, other, with_end(other, most)),
          VALUE(size_t, most), VALUE(locale_t, locale));
COMB_WRAP(int, wcswidth, ARRAY(wchar_t, text, with_end(text, most)), VALUE(size_t, most));
COMB_WRAP(wctype_t, wctype, TEXT(name));
COMB_WRAP(wctype_t, wctype_l, TEXT(name), VALUE(locale_t, locale));
COMB_WRAP(wctrans_t, wctrans, TEXT(name));
COMB_WRAP(wctrans_t, wctrans_l, TEXT(name), VALUE(locale_t, locale));
