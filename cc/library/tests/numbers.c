/* Texts to numbers and back. */
#include "world.h"

#include <inttypes.h>

static const char *const TEXTS[] = {"12",      "  -77xyz", "0x1fG",      "077",   "",      "   ",      "99999999999999999999", "-1e5",
                                    "1.5e-3 ", "inf",      "infinityx", "nan(a)", "0x1.8p3", "1e+",     ".5",                   "+",
                                    "z",       "nan(abc",  "1e",        "  +8"};

#define WHOLE(name)                                            \
    SAY_ERRNO(C(name)(text, rest, base));                      \
    get(&end, rest, sizeof end);                               \
    SAY_PLACE(end)
#define WHOLE_L(name)                                          \
    SAY_ERRNO(C(name)(text, rest, base, locale));              \
    get(&end, rest, sizeof end);                               \
    SAY_PLACE(end)
#define FLOATING(name)                                         \
    SAY_REAL(C(name)(text, rest));                             \
    get(&end, rest, sizeof end);                               \
    SAY_PLACE(end)
#define FLOATING_L(name)                                       \
    SAY_REAL(C(name)(text, rest, locale));                     \
    get(&end, rest, sizeof end);                               \
    SAY_PLACE(end)

static void narrow(const char *text, int base)
{
    locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
    char **rest = (char **)place_aligned(sizeof *rest), *end;
    WHOLE(strtol); WHOLE(strtoll); WHOLE(strtoul); WHOLE(strtoull); WHOLE(strtoq); WHOLE(strtouq); WHOLE(strtoimax);
    WHOLE(strtoumax); WHOLE_L(strtol_l); WHOLE_L(strtoll_l); WHOLE_L(strtoul_l); WHOLE_L(strtoull_l);
    FLOATING(strtod); FLOATING(strtof); FLOATING(strtold); FLOATING_L(strtod_l); FLOATING_L(strtof_l);
    FLOATING_L(strtold_l);
    SAY(C(strtol)(text, NULL, base));
    SAY(C(atoi)(text)); SAY(C(atol)(text)); SAY(C(atoll)(text));
    SAY_REAL(C(atof)(text));
}

static void wide(const char *narrow_text, int base)
{
    wchar_t own[700];
    size_t length = mbstowcs(own, narrow_text, 700);
    wchar_t *text = place_bytes(own, (length + 1) * sizeof *own), **rest = (wchar_t **)place_aligned(sizeof *rest), *end;
    WHOLE(wcstol); WHOLE(wcstoll); WHOLE(wcstoul); WHOLE(wcstoull); WHOLE(wcstoimax); WHOLE(wcstoumax);
    FLOATING(wcstod); FLOATING(wcstof); FLOATING(wcstold);
}

static void back(void)
{
    char *to = place(600), *format = place_text("%.5g");
    int *point = (int *)place_aligned(4), *sign = (int *)place_aligned(4);
    SAY(C(strfromd)(to, below(9), format, 3.14159265));
    SAY(C(strfromf)(to, 50, format, 2.5f));
    SAY(C(strfroml)(to, 50, format, 2.5e30L));
    SAY_PLACE(C(gcvt)(2.75, 6, to));
    say_text(C(ecvt)(-123.456, 8, point, sign));
    say_text(C(fcvt)(123.456, 8, point, sign));
    SAY(C(a64l)(place_text("/.x9")));
}

static void options(void)
{
    char *keys[] = {place_text("ro"), place_text("size"), NULL};
    char **own_keys = place_bytes(keys, sizeof keys), *text = place_text("ro,size=12,what=3,size,,ro");
    char **rest = place_bytes(&text, sizeof text), **value = (char **)place_aligned(sizeof *value), *said;
    for (int turn = 0; turn < 7; turn++) {
        SAY(C(getsubopt)(rest, own_keys, value));
        get(&said, value, sizeof said);
        say_text(said);
    }
    get(&text, rest, sizeof text);
    SAY_PLACE(text);
}

void numbers_scene(void)
{
    const char *text = TEXTS[below(20)];
    static const int bases[] = {0, 10, 16, 36, 8};
    int base = bases[below(5)];
    char own[900] = "";
    /* Sometimes a very long number, or much behind it. */
    if (below(4) == 0)
        memset(own, "0 1"[below(3)], below(500)), own[500] = 0;
    strcat(own, text);
    if (below(3) == 0)
        strcat(own, below(2) ? " and more" : "777777777777777777777777777777777777777777777777777777777777");
    narrow(place_text(own), base);
    wide(own, base);
    back();
    options();
}
