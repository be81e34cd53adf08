/* str*: random texts of few letters, so that they meet, across blocks and pages. */
#include "world.h"

#include <locale.h>
#include <strings.h>

static void comparisons(const char *one, const char *other)
{
    locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
    size_t most = below(60);
    SAY_SIGN(C(strcmp)(one, other));
    SAY_SIGN(C(strcmp)(one, one));
    SAY_SIGN(C(strncmp)(one, other, most));
    SAY_SIGN(C(strcasecmp)(one, other));
    SAY_SIGN(C(strncasecmp)(one, other, most));
    SAY_SIGN(C(strcasecmp_l)(one, other, locale));
    SAY_SIGN(C(strncasecmp_l)(one, other, most, locale));
    freelocale(locale);
}

static void searches(const char *text)
{
    char *part = place_random_text(4), *set = place_random_text(5);
    int wanted = "abcABC x,\0"[below(10)];
    SAY(C(strlen)(text));
    SAY(C(strnlen)(text, below(300)));
    SAY_PLACE(C(strchr)(text, wanted));
    SAY_PLACE(C(index)(text, wanted));
    SAY_PLACE(C(strchrnul)(text, wanted));
    SAY_PLACE(C(strrchr)(text, wanted));
    SAY_PLACE(C(rindex)(text, wanted));
    SAY(C(strspn)(text, set));
    SAY(C(strcspn)(text, set));
    SAY_PLACE(C(strpbrk)(text, set));
    SAY_PLACE(C(strstr)(text, part));
    SAY_PLACE(C(strcasestr)(text, part));
}

static void copies(const char *text)
{
    char *to = place(1200);
    SAY_PLACE(C(strcpy)(to, text));
    SAY_PLACE(C(strcat)(to, text));
    SAY_PLACE(C(strncat)(to, text, below(30)));
    SAY_PLACE(C(stpcpy)(to, text));
    SAY_PLACE(C(__stpcpy)(to, text));
    SAY_PLACE(C(strncpy)(to, text, below(500)));
    SAY_PLACE(C(stpncpy)(to, text, below(500)));
    SAY_PLACE(C(__stpncpy)(to, text, below(500)));
    char *copy = C(strdup)(text);
    SAY_TEXT(copy);
    C(free)(copy);
    copy = C(strndup)(text, below(100));
    SAY_TEXT(copy);
    C(free)(copy);
    copy = C(__strdup)(text);
    SAY_TEXT(copy);
    C(free)(copy);
    copy = C(__strndup)(text, below(100));
    SAY_TEXT(copy);
    SAY(C(strlen)(C(strfry)(copy)));
    C(free)(copy);
}

static void words(char *text)
{
    char **rest = (char **)place_aligned(sizeof *rest), *word;
    char *again = place_text("a b,, c"), *third = place_text("x yx zx "), *fourth = place_text(" , a, b");
    for (word = C(strtok_r)(text, ", ", rest); word; word = C(strtok_r)(NULL, ", ", rest))
        SAY_TEXT(word);
    put(rest, &again, sizeof again);
    for (int at = 0; at < 8; at++)
        SAY_TEXT(C(strsep)(rest, ", "));
    for (word = C(strtok)(third, "xy"); word; word = C(strtok)(NULL, "xy"))
        SAY_TEXT(word);
    for (word = C(__strtok_r)(fourth, ", ", rest); word; word = C(__strtok_r)(NULL, ", ", rest))
        SAY_TEXT(word);
}

void strings_scene(void)
{
    char *one = place_random_text(below(2) ? 400 : 6), *other = place_random_text(below(2) ? 400 : 6);
    if (below(3) == 0)
        other = place_text("aaaaaaaaaaaaaaa");
    comparisons(one, other);
    searches(one);
    copies(one);
    words(other);
}
