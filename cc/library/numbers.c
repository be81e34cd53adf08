/* Texts to numbers. A number may stand at the beginning of a very long text, and programs read one after the other, so only
 * as much is copied as libc needs to see where the number ends. */
#include "wrap.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#include "reach.h"
#include "undeclared.h"

/* How far libc looks beyond the end of what it accepts: "infinity" without its last letter, "1e+" without a digit. */
enum { LOOKED_AHEAD = 16, FIRST_LOOK = 128 };

/* Text: an opening bracket begins the optional part of "nan(…)", which has no limit. */
static int may_go_on(const char *own, size_t end, size_t length)
{
    return end + LOOKED_AHEAD > length || own[end] == '(';
}

static int may_go_on_wide(const wchar_t *own, size_t end, size_t length)
{
    return end + LOOKED_AHEAD > length || own[end] == L'(';
}

static const char *behind_blanks(const char *text)
{
    char byte;
    while ((byte = comb_byte(text)) && isspace((unsigned char)byte))
        text++;
    return text;
}

static const wchar_t *behind_wide_blanks(const wchar_t *text)
{
    for (wchar_t here;; text++) {
        comb_copy_from(&here, text, sizeof here);
        if (!here || !iswspace((wint_t)here))
            return text;
    }
}

static const char *first_part(struct comb_desk *desk, const char *text, size_t most, size_t *length)
{
    *length = comb_length(text, most);
    return comb_own_text_most(desk, text, most);
}

static const wchar_t *first_wide_part(struct comb_desk *desk, const wchar_t *text, size_t most, size_t *length)
{
    *length = comb_lib_wcsnlen(text, most);
    wchar_t *own = comb_desk_room(desk, (*length + 1) * sizeof *own);
    comb_copy_from(own, text, *length * sizeof *own);
    own[*length] = 0;
    return own;
}

/* `make` is libc's function with what follows the end: CONVERT(long, char, strtol, (own, &end, base), …parameters…) */
#define CONVERT(type, character, name, call, blanks, part, goes_on, ...)                        \
    type comb_lib_##name(const character *restrict text, character **restrict rest, ##__VA_ARGS__) \
    {                                                                                           \
        const character *start = blanks(text);                                                  \
        for (size_t most = FIRST_LOOK;; most *= 8) {                                            \
            COMB_DESK(desk);                                                                    \
            size_t length;                                                                      \
            const character *own = part(&desk, start, most, &length);                           \
            character *end;                                                                     \
            type answer = name call;                                                            \
            size_t used = (size_t)(end - own);                                                  \
            if (length == most && goes_on(own, used, length))                                   \
                continue;                                                                       \
            if (rest)                                                                           \
                comb_set_pointer(rest, used ? start + used : text);                             \
            return answer;                                                                      \
        }                                                                                       \
    }                                                                                           \
    COMB_SAME_TYPE(name)

#define NARROW(type, name, call, ...) \
    CONVERT(type, char, name, call, behind_blanks, first_part, may_go_on, ##__VA_ARGS__)
#define WIDER(type, name, call, ...) \
    CONVERT(type, wchar_t, name, call, behind_wide_blanks, first_wide_part, may_go_on_wide, ##__VA_ARGS__)
#define WHOLE(macro, type, name) macro(type, name, (own, &end, base), int base)
#define WHOLE_L(macro, type, name) macro(type, name, (own, &end, base, locale), int base, locale_t locale)
#define FLOATING(macro, type, name) macro(type, name, (own, &end))
#define FLOATING_L(macro, type, name) macro(type, name, (own, &end, locale), locale_t locale)

WHOLE(NARROW, long, strtol);
WHOLE(NARROW, long long, strtoll);
WHOLE(NARROW, unsigned long, strtoul);
WHOLE(NARROW, unsigned long long, strtoull);
WHOLE(NARROW, long long, strtoq);
WHOLE(NARROW, unsigned long long, strtouq);
WHOLE(NARROW, intmax_t, strtoimax);
WHOLE(NARROW, uintmax_t, strtoumax);
WHOLE_L(NARROW, long, strtol_l);
WHOLE_L(NARROW, long long, strtoll_l);
WHOLE_L(NARROW, unsigned long, strtoul_l);
WHOLE_L(NARROW, unsigned long long, strtoull_l);
FLOATING(NARROW, double, strtod);
FLOATING(NARROW, float, strtof);
FLOATING(NARROW, long double, strtold);
FLOATING_L(NARROW, double, strtod_l);
FLOATING_L(NARROW, float, strtof_l);
FLOATING_L(NARROW, long double, strtold_l);
WHOLE(WIDER, long, wcstol);
WHOLE(WIDER, long long, wcstoll);
WHOLE(WIDER, unsigned long, wcstoul);
WHOLE(WIDER, unsigned long long, wcstoull);
WHOLE(WIDER, intmax_t, wcstoimax);
WHOLE(WIDER, uintmax_t, wcstoumax);
FLOATING(WIDER, double, wcstod);
FLOATING(WIDER, float, wcstof);
FLOATING(WIDER, long double, wcstold);

COMB_ALIAS(__isoc23_strtol, strtol);
COMB_ALIAS(__isoc23_strtoll, strtoll);
COMB_ALIAS(__isoc23_strtoul, strtoul);
COMB_ALIAS(__isoc23_strtoull, strtoull);

int comb_lib_atoi(const char *text)
{
    return (int)comb_lib_strtol(text, NULL, 10);
}
COMB_SAME_TYPE(atoi);

long comb_lib_atol(const char *text)
{
    return comb_lib_strtol(text, NULL, 10);
}
COMB_SAME_TYPE(atol);

long long comb_lib_atoll(const char *text)
{
    return comb_lib_strtoll(text, NULL, 10);
}
COMB_SAME_TYPE(atoll);

double comb_lib_atof(const char *text)
{
    return comb_lib_strtod(text, NULL);
}
COMB_SAME_TYPE(atof);

/* Numbers to texts. */

COMB_WRAP(int, strfromd, FILLED(char, to, room, room ? comb_text_bytes(own_to, 1) : 0), VALUE(size_t, room), TEXT(format),
          VALUE(double, value));
COMB_WRAP(int, strfromf, FILLED(char, to, room, room ? comb_text_bytes(own_to, 1) : 0), VALUE(size_t, room), TEXT(format),
          VALUE(float, value));
COMB_WRAP(int, strfroml, FILLED(char, to, room, room ? comb_text_bytes(own_to, 1) : 0), VALUE(size_t, room), TEXT(format),
          VALUE(long double, value));
COMB_WRAP(char *, ecvt, VALUE(double, value), VALUE(int, digits), INOUT(int, point), INOUT(int, sign));
COMB_WRAP(char *, fcvt, VALUE(double, value), VALUE(int, digits), INOUT(int, point), INOUT(int, sign));
COMB_WRAP(long, a64l, ARRAY(char, text, comb_lib_strnlen(text, 6) + 1));

/* Its caller has room for the text: at most a sign, a point, an exponent and 17 digits. */
char *comb_lib_gcvt(double value, int digits, char *to)
{
    char own[512];
    gcvt(value, digits, own);
    comb_copy_to(to, own, strlen(own) + 1);
    return to;
}
COMB_SAME_TYPE(gcvt);

static int key_of(char *const *keys, const char *word, size_t length)
{
    for (int at = 0;; at++) {
        const char *key = comb_pointer(keys + at);
        if (!key)
            return -1;
        if (comb_lib_strlen(key) == length && comb_lib_memcmp(key, word, length) == 0)
            return at;
    }
}

/* "key=value,key,…": cuts the first option off, and says which key it has. */
int comb_lib_getsubopt(char **restrict rest, char *const *restrict keys, char **restrict value)
{
    char *word = comb_pointer(rest);
    if (!comb_byte(word))
        return -1;
    size_t bytes = comb_lib_strlen(word);
    char *comma = comb_lib_memchr(word, ',', bytes);
    char *end = comma ? comma : word + bytes;
    char *equals = comb_lib_memchr(word, '=', (size_t)(end - word));
    int key = key_of(keys, word, (size_t)((equals ? equals : end) - word));
    comb_set_pointer(value, key < 0 ? word : equals ? equals + 1 : NULL);
    if (comma)
        comb_copy_to(end++, "", 1);
    comb_set_pointer(rest, end);
    return key;
}
COMB_SAME_TYPE(getsubopt);
