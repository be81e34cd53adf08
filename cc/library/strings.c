/* str*: an end that only a zero byte tells is found run by run; what is then copied has a length. */
#include "wrap.h"

#include <ctype.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pinned.h"
#include "reach.h"

size_t comb_lib_strnlen(const char *text, size_t most)
{
    for (size_t length = 0; length < most;) {
        size_t piece = comb_hold_run(text + length, most - length);
        size_t more = strnlen(text + length, piece);
        comb_release();
        length += more;
        if (more < piece)
            return length;
    }
    return most;
}
COMB_SAME_TYPE(strnlen);

size_t comb_lib_strlen(const char *text)
{
    return comb_lib_strnlen(text, SIZE_MAX);
}
COMB_SAME_TYPE(strlen);

char *comb_lib_stpcpy(char *restrict to, const char *restrict from)
{
    size_t length = comb_lib_strlen(from);
    comb_lib_memcpy(to, from, length + 1);
    return to + length;
}
COMB_SAME_TYPE(stpcpy);
COMB_ALIAS(__stpcpy, stpcpy);

char *comb_lib_strcpy(char *restrict to, const char *restrict from)
{
    comb_lib_stpcpy(to, from);
    return to;
}
COMB_SAME_TYPE(strcpy);

char *comb_lib_stpncpy(char *restrict to, const char *restrict from, size_t most)
{
    size_t length = comb_lib_strnlen(from, most);
    comb_lib_memcpy(to, from, length);
    comb_lib_memset(to + length, 0, most - length);
    return to + length;
}
COMB_SAME_TYPE(stpncpy);
COMB_ALIAS(__stpncpy, stpncpy);

char *comb_lib_strncpy(char *restrict to, const char *restrict from, size_t most)
{
    comb_lib_stpncpy(to, from, most);
    return to;
}
COMB_SAME_TYPE(strncpy);

char *comb_lib_strcat(char *restrict to, const char *restrict from)
{
    comb_lib_stpcpy(to + comb_lib_strlen(to), from);
    return to;
}
COMB_SAME_TYPE(strcat);

char *comb_lib_strncat(char *restrict to, const char *restrict from, size_t most)
{
    char *end = to + comb_lib_strlen(to);
    size_t length = comb_lib_strnlen(from, most);
    comb_lib_memcpy(end, from, length);
    comb_copy_to(end + length, "", 1);
    return to;
}
COMB_SAME_TYPE(strncat);

/* Two texts up to the first difference or the end of both, by libc's `compare` of at most so many bytes. */
#define COMPARE(compare, one, other, most, ...)                             \
    while (most) {                                                          \
        size_t piece = comb_hold_runs(one, other, most);                    \
        int order = compare(one, other, piece __VA_OPT__(, ) __VA_ARGS__);  \
        int is_over = order || memchr(one, 0, piece);                       \
        comb_release();                                                     \
        if (is_over)                                                        \
            return order;                                                   \
        one += piece, other += piece, most -= piece;                        \
    }                                                                       \
    return 0

int comb_lib_strncmp(const char *one, const char *other, size_t most)
{
    COMPARE(strncmp, one, other, most);
}
COMB_SAME_TYPE(strncmp);

int comb_lib_strcmp(const char *one, const char *other)
{
    return comb_lib_strncmp(one, other, SIZE_MAX);
}
COMB_SAME_TYPE(strcmp);

int comb_lib_strncasecmp(const char *one, const char *other, size_t most)
{
    COMPARE(strncasecmp, one, other, most);
}
COMB_SAME_TYPE(strncasecmp);

int comb_lib_strcasecmp(const char *one, const char *other)
{
    return comb_lib_strncasecmp(one, other, SIZE_MAX);
}
COMB_SAME_TYPE(strcasecmp);

int comb_lib_strncasecmp_l(const char *one, const char *other, size_t most, locale_t locale)
{
    COMPARE(strncasecmp_l, one, other, most, locale);
}
COMB_SAME_TYPE(strncasecmp_l);

int comb_lib_strcasecmp_l(const char *one, const char *other, locale_t locale)
{
    return comb_lib_strncasecmp_l(one, other, SIZE_MAX, locale);
}
COMB_SAME_TYPE(strcasecmp_l);

char *comb_lib_strchrnul(const char *text, int wanted)
{
    for (;;) {
        size_t piece = comb_hold_run(text, SIZE_MAX);
        size_t length = strnlen(text, piece);
        const char *found = memchr(text, wanted, length);
        comb_release();
        if (found || length < piece)
            return (char *)(found ? found : text + length);
        text += piece;
    }
}
COMB_SAME_TYPE(strchrnul);

char *comb_lib_strchr(const char *text, int wanted)
{
    char *found = comb_lib_strchrnul(text, wanted), there;
    comb_copy_from(&there, found, 1);
    return there == (char)wanted ? found : NULL;
}
COMB_SAME_TYPE(strchr);
COMB_ALIAS(index, strchr);

char *comb_lib_strrchr(const char *text, int wanted)
{
    return comb_lib_memrchr(text, wanted, comb_lib_strlen(text) + 1);
}
COMB_SAME_TYPE(strrchr);
COMB_ALIAS(rindex, strrchr);

/* How far `text` consists of bytes with `is_in_set[byte] == wanted`; the zero byte is in no set that is followed. */
static size_t span(const char *text, const unsigned char is_in_set[256], unsigned char wanted)
{
    for (size_t length = 0;;) {
        size_t piece = comb_hold_run(text + length, SIZE_MAX), at = 0;
        while (at < piece && is_in_set[(unsigned char)text[length + at]] == wanted)
            at++;
        comb_release();
        length += at;
        if (at < piece)
            return length;
    }
}

/* The set of the bytes of `set`, which may be long, but of which 256 are enough. */
static void mark(unsigned char is_in_set[256], const char *set)
{
    char piece[256];
    memset(is_in_set, 0, 256);
    for (size_t length = sizeof piece; length == sizeof piece; set += length) {
        length = comb_length(set, sizeof piece);
        comb_copy_from(piece, set, length);
        for (size_t at = 0; at < length; at++)
            is_in_set[(unsigned char)piece[at]] = 1;
    }
}

size_t comb_lib_strspn(const char *text, const char *accept)
{
    unsigned char is_in_set[256];
    mark(is_in_set, accept);
    return span(text, is_in_set, 1);
}
COMB_SAME_TYPE(strspn);

size_t comb_lib_strcspn(const char *text, const char *reject)
{
    unsigned char is_in_set[256];
    mark(is_in_set, reject);
    is_in_set[0] = 1;
    return span(text, is_in_set, 0);
}
COMB_SAME_TYPE(strcspn);

char *comb_lib_strpbrk(const char *text, const char *accept)
{
    char *found = (char *)text + comb_lib_strcspn(text, accept);
    return comb_byte(found) ? found : NULL;
}
COMB_SAME_TYPE(strpbrk);

char *comb_lib_strstr(const char *text, const char *part)
{
    size_t length = comb_lib_strlen(part);
    char first = comb_byte(part);
    if (!length)
        return (char *)text;
    while ((text = comb_lib_strchr(text, first))) {
        if (comb_lib_strncmp(text, part, length) == 0)
            return (char *)text;
        text++;
    }
    return NULL;
}
COMB_SAME_TYPE(strstr);

char *comb_lib_strcasestr(const char *text, const char *part)
{
    size_t length = comb_lib_strlen(part);
    char first = comb_byte(part);
    char either[3] = {(char)tolower((unsigned char)first), (char)toupper((unsigned char)first), 0};
    if (!length)
        return (char *)text;
    while ((text = comb_lib_strpbrk(text, either))) {
        if (comb_lib_strncasecmp(text, part, length) == 0)
            return (char *)text;
        text++;
    }
    return NULL;
}
COMB_SAME_TYPE(strcasestr);

char *comb_lib_strsep(char **restrict rest, const char *restrict delimiters)
{
    char *text = comb_pointer(rest);
    if (!text)
        return NULL;
    char *end = comb_lib_strpbrk(text, delimiters);
    if (end)
        comb_copy_to(end++, "", 1);
    comb_set_pointer(rest, end);
    return text;
}
COMB_SAME_TYPE(strsep);

char *comb_lib_strtok_r(char *restrict text, const char *restrict delimiters, char **restrict rest)
{
    if (!text)
        text = comb_pointer(rest);
    if (!text)
        return NULL;
    text += comb_lib_strspn(text, delimiters);
    char *end = text + comb_lib_strcspn(text, delimiters);
    int is_empty = end == text;
    if (comb_byte(end))
        comb_copy_to(end++, "", 1);
    comb_set_pointer(rest, end);
    return is_empty ? NULL : text;
}
COMB_SAME_TYPE(strtok_r);
COMB_ALIAS(__strtok_r, strtok_r);

char *comb_lib_strtok(char *restrict text, const char *restrict delimiters)
{
    static _Thread_local char *rest;
    return comb_lib_strtok_r(text, delimiters, &rest);
}
COMB_SAME_TYPE(strtok);

char *comb_lib_strndup(const char *text, size_t most)
{
    size_t length = comb_lib_strnlen(text, most);
    char *copy = comb_lib_malloc(length + 1);
    if (copy) {
        comb_lib_memcpy(copy, text, length);
        comb_copy_to(copy + length, "", 1);
    }
    return copy;
}
COMB_SAME_TYPE(strndup);
COMB_ALIAS(__strndup, strndup);

char *comb_lib_strdup(const char *text)
{
    return comb_lib_strndup(text, SIZE_MAX - 1);
}
COMB_SAME_TYPE(strdup);
COMB_ALIAS(__strdup, strdup);

char *comb_lib_strfry(char *text)
{
    size_t length = comb_lib_strlen(text);
    for (size_t left = length; left > 1; left--) {
        char *one = text + random() % (long)left, *other = text + left - 1;
        char of_one = comb_byte(one), of_other = comb_byte(other);
        comb_copy_to(one, &of_other, 1);
        comb_copy_to(other, &of_one, 1);
    }
    return text;
}
COMB_SAME_TYPE(strfry);
