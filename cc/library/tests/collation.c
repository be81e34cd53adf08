/* Texts as the locale sees them, paths taken apart, names of errors, fortified text functions. */
#include "world.h"

#include <libintl.h>

static void fortified(char *to, const char *from)
{
    size_t most = below(30);
    SAY_PLACE(C(__memcpy_chk)(to, from, most, 1000));
    SAY_PLACE(C(__memmove_chk)(to + 1, to, most, 1000));
    SAY_PLACE(C(__mempcpy_chk)(to, from, most, 1000));
    SAY_PLACE(C(__memset_chk)(to, 7, most, 1000));
    C(__explicit_bzero_chk)(to, most / 2, 1000);
    SAY_PLACE(C(__strcpy_chk)(to, from, 1000));
    SAY_PLACE(C(__strcat_chk)(to, from, 1000));
    SAY_PLACE(C(__strncat_chk)(to, from, most, 1000));
    SAY_PLACE(C(__stpcpy_chk)(to, from, 1000));
    SAY_PLACE(C(__strncpy_chk)(to, from, most, 1000));
    SAY_PLACE(C(__stpncpy_chk)(to, from, most, 1000));
}

static void paths(void)
{
    static const char *const texts[] = {"/usr/lib/x", "/usr/", "usr", "/", "", ".", "//a//b//"};
    const char *text = texts[below(7)];
    SAY_TEXT(C(dirname)(place_text(text)));
    SAY_TEXT(C(__xpg_basename)(place_text(text)));
    SAY_TEXT(C(dirname)(NULL));
    char *path = place_text(text);
    SAY_PLACE(C(basename)(path));
}

void collation_scene(void)
{
    locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
    char *one = place_random_text(50), *other = place_random_text(50), *to = place(1100);
    SAY_SIGN(C(strcoll)(one, other));
    SAY_SIGN(C(strcoll_l)(one, other, locale));
    SAY(C(strxfrm)(to, one, below(60)));
    SAY(C(strxfrm_l)(to, one, below(60), locale));
    SAY_SIGN(C(strverscmp)(place_text("a10"), place_text(below(2) ? "a9" : "a11")));
    SAY(C(rpmatch)(place_text("yes")));
    SAY(C(__xpg_strerror_r)(ENOENT, to, below(40)));
    SAY_PLACE(C(strerror_r)(9999, to, 40));
    SAY_TEXT(C(strerror_r)(ENOENT, to, 40));
    fortified(to, one);
    paths();
    SAY_PLACE(C(gettext)(one));
    SAY_PLACE(C(dgettext)(other, one));
    SAY_PLACE(C(dcgettext)(other, one, LC_MESSAGES));
    SAY_PLACE(C(ngettext)(one, other, 1));
    SAY_PLACE(C(ngettext)(one, other, 2));
    char *domain = place_text("nothing"), *directory = place_text("/nowhere");
    SAY_TEXT(C(textdomain)(domain));
    SAY_TEXT(C(bindtextdomain)(domain, directory));
    SAY_TEXT(C(bind_textdomain_codeset)(domain, place_text("UTF-8")));
    freelocale(locale);
}
