/* Characters of several bytes. */
#include "wrap.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <uchar.h>
#include <wchar.h>

#include "reach.h"

/* The longest sequence of bytes that is a character in any locale. */
enum { CHARACTER_BYTES = 16 };
_Static_assert(CHARACTER_BYTES >= MB_LEN_MAX, "as glibc has it");

/* At most so many bytes are looked at, and none behind a zero byte. */
static size_t looked_at(const char *from, size_t most)
{
    size_t bound = most < CHARACTER_BYTES ? most : CHARACTER_BYTES;
    size_t length = from ? comb_lib_strnlen(from, bound) : 0;
    return length < bound ? length + 1 : bound;
}

static size_t positive(size_t count)
{
    return count > (size_t)-4 ? 0 : count;
}

COMB_WRAP(int, mblen, ARRAY(char, from, looked_at(from, most)), VALUE(size_t, most));
COMB_WRAP(size_t, mbrlen, ARRAY(char, from, looked_at(from, most)), VALUE(size_t, most), INOUT(mbstate_t, state));
COMB_WRAP(int, mbtowc, FILLED(wchar_t, to, 1, answer > 0 || (answer == 0 && from)), ARRAY(char, from, looked_at(from, most)),
          VALUE(size_t, most));
COMB_WRAP(size_t, mbrtowc, FILLED(wchar_t, to, 1, from && answer <= CHARACTER_BYTES),
          ARRAY(char, from, looked_at(from, most)), VALUE(size_t, most), INOUT(mbstate_t, state));
COMB_WRAP(size_t, mbrtoc16, FILLED(char16_t, to, 1, from && (answer <= CHARACTER_BYTES || answer == (size_t)-3)),
          ARRAY(char, from, looked_at(from, most)), VALUE(size_t, most), INOUT(mbstate_t, state));
COMB_WRAP(size_t, mbrtoc32, FILLED(char32_t, to, 1, from && answer <= CHARACTER_BYTES),
          ARRAY(char, from, looked_at(from, most)), VALUE(size_t, most), INOUT(mbstate_t, state));
COMB_WRAP(int, wctomb, FILLED(char, to, CHARACTER_BYTES, answer > 0 ? answer : 0), VALUE(wchar_t, character));
COMB_WRAP(size_t, wcrtomb, FILLED(char, to, CHARACTER_BYTES, positive(answer)), VALUE(wchar_t, character),
          INOUT(mbstate_t, state));
COMB_WRAP(size_t, c16rtomb, FILLED(char, to, CHARACTER_BYTES, positive(answer)), VALUE(char16_t, character),
          INOUT(mbstate_t, state));
COMB_WRAP(size_t, c32rtomb, FILLED(char, to, CHARACTER_BYTES, positive(answer)), VALUE(char32_t, character),
          INOUT(mbstate_t, state));
COMB_WRAP(int, mbsinit, IN(mbstate_t, state));

/* With the zero character, if it was written. */
static size_t written(size_t answer, size_t room)
{
    return answer == (size_t)-1 ? 0 : answer < room ? answer + 1 : answer;
}

/* A conversion gives at most a character for a byte, so no more room is needed than the text is long. */
static size_t wide_room(const char *from, size_t room)
{
    size_t length = comb_lib_strlen(from) + 1;
    return room < length ? room : length;
}

static size_t narrow_room(const wchar_t *from, size_t room)
{
    size_t length = comb_lib_wcslen(from) * CHARACTER_BYTES + 1;
    return room < length ? room : length;
}

COMB_WRAP(size_t, mbstowcs, FILLED(wchar_t, to, wide_room(from, room), written(answer, room)), TEXT(from),
          VALUE(size_t, room));
/* A character that does not fit whole ends the text early, and then no zero byte follows although one would fit. */
COMB_WRAP(size_t, wcstombs,
          FILLED(char, to, narrow_room(from, room),
                 wcstombs(NULL, own_from, 0) == answer ? written(answer, room) : written(answer, answer)),
          WIDE(from), VALUE(size_t, room));

/* The restartable ones move the pointer that they are given a pointer to: to its end, or NULL where all was read. */
static size_t to_wide(wchar_t *to, const char **from, size_t most, size_t room, mbstate_t *state, int is_bounded)
{
    COMB_DESK(desk);
    const char *start = comb_pointer(from), *own = comb_own_text_most(&desk, start, most), *rest = own;
    wchar_t *own_to = to ? comb_own_room(&desk, to, wide_room(own, room) * sizeof *to) : NULL;
    mbstate_t *own_state = comb_own(&desk, state, sizeof *state);
    size_t answer = is_bounded ? mbsnrtowcs(own_to, &rest, most, room, own_state)
                               : mbsrtowcs(own_to, &rest, room, own_state);
    comb_give_back(state, own_state, sizeof *state);
    if (to) {
        size_t done = answer == (size_t)-1 ? 0 : answer + (!rest && answer < room);
        comb_give_back(to, own_to, done * sizeof *to);
        comb_set_pointer(from, rest ? start + (rest - own) : NULL);
    }
    return answer;
}

size_t comb_lib_mbsnrtowcs(wchar_t *to, const char **from, size_t most, size_t room, mbstate_t *state)
{
    return to_wide(to, from, most, room, state, 1);
}
COMB_SAME_TYPE(mbsnrtowcs);

size_t comb_lib_mbsrtowcs(wchar_t *to, const char **from, size_t room, mbstate_t *state)
{
    return to_wide(to, from, SIZE_MAX - 1, room, state, 0);
}
COMB_SAME_TYPE(mbsrtowcs);

size_t comb_lib_wcsnrtombs(char *to, const wchar_t **from, size_t most, size_t room, mbstate_t *state)
{
    COMB_DESK(desk);
    const wchar_t *start = comb_pointer(from);
    size_t length = comb_lib_wcsnlen(start, most);
    wchar_t *own = comb_desk_room(&desk, (length + 1) * sizeof *own);
    comb_copy_from(own, start, length * sizeof *own);
    own[length] = 0;
    const wchar_t *rest = own;
    char *own_to = to ? comb_own_room(&desk, to, narrow_room(own, room)) : NULL;
    mbstate_t *own_state = comb_own(&desk, state, sizeof *state);
    size_t answer = wcsnrtombs(own_to, &rest, most, room, own_state);
    comb_give_back(state, own_state, sizeof *state);
    if (to) {
        size_t done = answer == (size_t)-1 ? 0 : answer + (!rest && answer < room);
        comb_give_back(to, own_to, done);
        comb_set_pointer(from, rest ? start + (rest - own) : NULL);
    }
    return answer;
}
COMB_SAME_TYPE(wcsnrtombs);

size_t comb_lib_wcsrtombs(char *to, const wchar_t **from, size_t room, mbstate_t *state)
{
    return comb_lib_wcsnrtombs(to, from, SIZE_MAX, room, state);
}
COMB_SAME_TYPE(wcsrtombs);
