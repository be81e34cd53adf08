/* Characters of several bytes, in UTF-8. */
#include "world.h"

#include <locale.h>
#include <uchar.h>

static const char *const TEXTS[] = {"plain", "gr\xc3\xbc\xc3\x9f", "\xe2\x82\xac 5", "bad\xff", "\xe2\x82", "", "\xf0\x9f\x90\x9d!"};

static void *zeros(size_t bytes)
{
    char own[64] = "";
    return place_bytes(own, bytes);
}

static void single(const char *text, size_t most)
{
    wchar_t *wide = (wchar_t *)place_aligned(sizeof *wide);
    char *to = place(20);
    SAY(C(mblen)(text, most));
    SAY(C(mbtowc)(wide, text, most));
    SAY(C(mbrlen)(text, most, zeros(sizeof(mbstate_t))));
    SAY(C(mbrtowc)(wide, text, most, zeros(sizeof(mbstate_t))));
    SAY(C(mbrtowc)(NULL, text, most, zeros(sizeof(mbstate_t))));
    mbstate_t *state = zeros(sizeof *state);
    char16_t *half = (char16_t *)place_aligned(2);
    char32_t *full = (char32_t *)place_aligned(4);
    SAY(C(mbrtoc16)(half, text, most, state));
    SAY(C(mbrtoc32)(full, text, most, zeros(sizeof *state)));
    SAY(C(mbsinit)(state) != 0);
    SAY(C(wctomb)(to, L'\x20ac'));
    SAY(C(__wctomb_chk)(to, L'\xfc', 20));
    SAY(C(wcrtomb)(to, L'\xfc', zeros(sizeof *state)));
    SAY(C(__wcrtomb_chk)(to, L'\x20ac', zeros(sizeof *state), 20));
    SAY(C(c16rtomb)(to, u'\xfc', zeros(sizeof *state)));
    SAY(C(c32rtomb)(to, U'\x1f41d', zeros(sizeof *state)));
}

static void whole(const char *text, size_t room)
{
    wchar_t *to = (wchar_t *)place_aligned(100 * sizeof *to);
    const char **from = place_bytes(&text, sizeof text);
    SAY(C(mbstowcs)(to, text, room));
    SAY(C(mbstowcs)(NULL, text, 0));
    SAY(C(__mbstowcs_chk)(to, text, room, 100));
    SAY(C(mbsrtowcs)(to, from, room, zeros(sizeof(mbstate_t))));
    put(from, &text, sizeof text);
    SAY(C(__mbsrtowcs_chk)(to, from, room, zeros(sizeof(mbstate_t)), 100));
    put(from, &text, sizeof text);
    SAY(C(mbsnrtowcs)(to, from, 4, room, zeros(sizeof(mbstate_t))));
    put(from, &text, sizeof text);
    SAY(C(__mbsnrtowcs_chk)(to, from, 4, room, zeros(sizeof(mbstate_t)), 100));
    put(from, &(void *){NULL}, sizeof text);
}

static void back(size_t room)
{
    wchar_t *text = place_bytes(L"gr\xfc\xdf \x20ac", sizeof L"gr\xfc\xdf \x20ac");
    const wchar_t **from = place_bytes(&text, sizeof text);
    char *to = place(100);
    SAY(C(wcstombs)(to, text, room));
    SAY(C(wcstombs)(NULL, text, 0));
    SAY(C(__wcstombs_chk)(to, text, room, 100));
    SAY(C(wcsrtombs)(to, from, room, zeros(sizeof(mbstate_t))));
    put(from, &text, sizeof text);
    SAY(C(__wcsrtombs_chk)(to, from, room, zeros(sizeof(mbstate_t)), 100));
    put(from, &text, sizeof text);
    SAY(C(wcsnrtombs)(to, from, 3, room, zeros(sizeof(mbstate_t))));
    put(from, &text, sizeof text);
    SAY(C(__wcsnrtombs_chk)(to, from, 3, room, zeros(sizeof(mbstate_t)), 100));
}

void multibyte_scene(void)
{
    char *name = place_text("C.UTF-8");
    SAY_TEXT(C(setlocale)(LC_CTYPE, name));
    unsigned which = below(7);
    char *text = place_text(TEXTS[which]);
    single(text, below(6));
    /* What a conversion that fails has written is not defined. */
    if (mbstowcs(NULL, TEXTS[which], 0) != (size_t)-1)
        whole(text, below(12));
    back(below(12));
    locale_t made = C(newlocale)(LC_ALL_MASK, name, NULL);
    SAY(made != NULL);
    freelocale(made);
    setlocale(LC_CTYPE, "C");
}
