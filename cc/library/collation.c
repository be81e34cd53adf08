/* Texts as the locale sees them, and names of errors and paths. */
#include "wrap.h"

#include <libgen.h>
#include <libintl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef basename
#include "reach.h"
#include "undeclared.h"

COMB_WRAP(int, strcoll, TEXT(one), TEXT(other));
COMB_WRAP(int, strcoll_l, TEXT(one), TEXT(other), VALUE(locale_t, locale));
COMB_WRAP(size_t, strxfrm, FILLED(char, to, room, answer < room ? answer + 1 : 0), TEXT(from), VALUE(size_t, room));
COMB_WRAP(size_t, strxfrm_l, FILLED(char, to, room, answer < room ? answer + 1 : 0), TEXT(from), VALUE(size_t, room),
          VALUE(locale_t, locale));
COMB_WRAP(int, strverscmp, TEXT(one), TEXT(other));
COMB_WRAP(int, rpmatch, TEXT(response));

int comb_lib___xpg_strerror_r(int number, char *to, size_t room)
{
    COMB_DESK(desk);
    char *own = comb_own_room(&desk, to, room);
    int answer = __xpg_strerror_r(number, own, room);
    comb_give_back(to, own, room ? comb_text_bytes(own, 1) : 0);
    return answer;
}
COMB_SAME_TYPE(__xpg_strerror_r);

/* GNU's: returns libc's own text, or the buffer with one made for an unknown number. */
char *comb_lib_strerror_r(int number, char *to, size_t room)
{
    COMB_DESK(desk);
    char *own = comb_own_room(&desk, to, room);
    char *answer = strerror_r(number, own, room);
    if (answer != own)
        return answer;
    comb_give_back(to, own, room ? comb_text_bytes(own, 1) : 0);
    return to;
}
COMB_SAME_TYPE(strerror_r);

/* GNU's basename only looks. */
char *comb_lib_basename(const char *path)
{
    char *slash = comb_lib_memrchr(path, '/', comb_lib_strlen(path));
    return slash ? slash + 1 : (char *)path;
}

/* These two write into the path, and may return a text of libc's. */
#define INTO_PATH(name)                                                      \
    char *comb_lib_##name(char *path)                                        \
    {                                                                        \
        COMB_DESK(desk);                                                     \
        size_t bytes = path ? comb_lib_strlen(path) + 1 : 0;                 \
        char *own = path ? comb_desk_room(&desk, bytes) : NULL;              \
        if (path)                                                            \
            comb_copy_from(own, path, bytes);                                \
        char *answer = name(own);                                            \
        comb_give_back(path, own, bytes);                                    \
        int is_inside = own && answer >= own && answer < own + bytes;        \
        return is_inside ? path + (answer - own) : answer;                   \
    }                                                                        \
    COMB_SAME_TYPE(name)
INTO_PATH(dirname);
INTO_PATH(__xpg_basename);

COMB_WRAP(char *, setlocale, VALUE(int, category), TEXT(name));
COMB_WRAP(locale_t, newlocale, VALUE(int, mask), TEXT(name), VALUE(locale_t, base));

/* A message that is not translated comes back as the pointer that was handed in. */
#define TRANSLATES(name, parameters, own_arguments)                       \
    char *comb_lib_##name parameters                                      \
    {                                                                     \
        COMB_DESK(desk);                                                  \
        const char *own_message = comb_own_text(&desk, message);          \
        char *answer = name own_arguments;                                \
        return answer == own_message ? (char *)message : answer;          \
    }                                                                     \
    COMB_SAME_TYPE(name)
TRANSLATES(gettext, (const char *message), (own_message));
TRANSLATES(dgettext, (const char *domain, const char *message), (comb_own_text(&desk, domain), own_message));
TRANSLATES(dcgettext, (const char *domain, const char *message, int category),
           (comb_own_text(&desk, domain), own_message, category));

COMB_WRAP(char *, textdomain, TEXT(domain));
COMB_WRAP(char *, bindtextdomain, TEXT(domain), TEXT(directory));
COMB_WRAP(char *, bind_textdomain_codeset, TEXT(domain), TEXT(codeset));

char *comb_lib_ngettext(const char *one, const char *many, unsigned long count)
{
    COMB_DESK(desk);
    const char *own_one = comb_own_text(&desk, one), *own_many = comb_own_text(&desk, many);
    char *answer = ngettext(own_one, own_many, count);
    return answer == own_one ? (char *)one : answer == own_many ? (char *)many : answer;
}
COMB_SAME_TYPE(ngettext);
