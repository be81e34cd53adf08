/* wmem* and wcs*, and their fortified names. */
#include "world.h"

static wchar_t *random_wide(size_t most)
{
    size_t length = below((unsigned)most);
    wchar_t own[600];
    for (size_t at = 0; at < length; at++)
        own[at] = L"abcABC x,"[below(9)];
    own[length] = 0;
    return place_bytes(own, (length + 1) * sizeof *own);
}

static void say_wide(const wchar_t *text)
{
    wchar_t one;
    for (; text && (get(&one, text, sizeof one), one); text++)
        say("%x ", (unsigned)one);
    say(text ? "\n" : "none\n");
}

static void blocks(wchar_t *to, const wchar_t *from, size_t count)
{
    SAY_PLACE(C(wmemcpy)(to, from, count));
    SAY_PLACE(C(__wmemcpy_chk)(to, from, count, 600));
    SAY_PLACE(C(wmemmove)(to + 3, to, count));
    SAY_PLACE(C(__wmemmove_chk)(to, to + 1, count, 600));
    SAY_PLACE(C(wmempcpy)(to, from, count));
    SAY_PLACE(C(__wmempcpy_chk)(to, from, count, 600));
    SAY_PLACE(C(wmemset)(to, L'b', count / 2));
    SAY_PLACE(C(__wmemset_chk)(to, L'c', count / 3, 600));
    SAY_PLACE(C(wmemchr)(to, L'x', count));
    SAY_SIGN(C(wmemcmp)(to, from, count));
}

static void copies(wchar_t *to, const wchar_t *from)
{
    size_t most = below(40);
    SAY_PLACE(C(wcscpy)(to, from));
    SAY_PLACE(C(__wcscpy_chk)(to, from, 900));
    SAY_PLACE(C(wcscat)(to, from));
    SAY_PLACE(C(__wcscat_chk)(to, L"ab", 900));
    SAY_PLACE(C(wcsncat)(to, from, most));
    SAY_PLACE(C(__wcsncat_chk)(to, from, most, 900));
    SAY_PLACE(C(wcpcpy)(to, from));
    SAY_PLACE(C(__wcpcpy_chk)(to, from, 900));
    SAY_PLACE(C(wcsncpy)(to, from, most));
    SAY_PLACE(C(__wcsncpy_chk)(to, from, most, 900));
    SAY_PLACE(C(wcpncpy)(to, from, most));
    SAY_PLACE(C(__wcpncpy_chk)(to, from, most, 900));
    SAY(C(wcsxfrm)(to, from, most));
    SAY(C(wcsxfrm_l)(to, from, most, newlocale(LC_ALL_MASK, "C", NULL)));
    wchar_t *copy = C(wcsdup)(from);
    say_wide(copy);
    C(free)(copy);
}

static void looks(const wchar_t *one, const wchar_t *other, size_t most)
{
    locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
    wchar_t *set = random_wide(4), wanted = L"abX"[below(3)];
    SAY(C(wcslen)(one));
    SAY(C(wcsnlen)(one, most));
    SAY_SIGN(C(wcscmp)(one, other));
    SAY_SIGN(C(wcsncmp)(one, other, most));
    SAY_SIGN(C(wcscasecmp)(one, other));
    SAY_SIGN(C(wcsncasecmp)(one, other, most));
    SAY_SIGN(C(wcscasecmp_l)(one, other, locale));
    SAY_SIGN(C(wcsncasecmp_l)(one, other, most, locale));
    SAY_SIGN(C(wcscoll)(one, other));
    SAY_SIGN(C(wcscoll_l)(one, other, locale));
    SAY_PLACE(C(wcschr)(one, wanted));
    SAY_PLACE(C(wcschrnul)(one, wanted));
    SAY_PLACE(C(wcsrchr)(one, wanted));
    SAY(C(wcsspn)(one, set));
    SAY(C(wcscspn)(one, set));
    SAY_PLACE(C(wcspbrk)(one, set));
    SAY_PLACE(C(wcsstr)(one, set));
    SAY_PLACE(C(wcswcs)(one, set));
    SAY(C(wcswidth)(one, most));
}

void wide_scene(void)
{
    wchar_t *one = random_wide(below(2) ? 300 : 6), *other = random_wide(below(2) ? 300 : 6);
    wchar_t *to = (wchar_t *)place_aligned(1200 * sizeof *to);
    blocks(to, (wchar_t *)place_aligned(300 * sizeof *to), below(250));
    copies(to, one);
    looks(one, other, below(50));
    wchar_t **rest = (wchar_t **)place_aligned(sizeof *rest), *word;
    for (word = C(wcstok)(other, L", ", rest); word; word = C(wcstok)(NULL, L", ", rest))
        say_wide(word);
    char *name = place_text("alpha"), *upper = place_text("toupper");
    locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
    SAY(iswctype(L'x', C(wctype)(name)) != 0);
    SAY(iswctype(L'5', C(wctype_l)(name, locale)) != 0);
    SAY(towctrans(L'x', C(wctrans)(upper)));
    SAY(towctrans(L'x', C(wctrans_l)(upper, locale)));
}
