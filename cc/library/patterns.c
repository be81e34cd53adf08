/* Regular expressions, file names with stars, directories and conversions between character sets: objects that libc fills with
 * pointers to its own memory are kept as they are, and only what the program hands in or reads is copied. */
#include "every.h"

#include "reach.h"

COMB_WRAP(int, fnmatch, TEXT(pattern), TEXT(text), VALUE(int, flags));

/* What regcomp makes is libc's memory behind a structure of the program's. */
COMB_WRAP(int, regcomp, INOUT(regex_t, made), TEXT(pattern), VALUE(int, flags));
COMB_WRAP_VOID(regfree, INOUT(regex_t, made));
COMB_WRAP(size_t, regerror, VALUE(int, error), IN(regex_t, made),
          FILLED(char, to, room, room ? comb_text_bytes(own_to, 1) : 0), VALUE(size_t, room));

int comb_lib_regexec(const regex_t *restrict made, const char *restrict text, size_t count,
                     regmatch_t matches[restrict], int flags)
{
    COMB_DESK(desk);
    regex_t own_made;
    regmatch_t *own = comb_own(&desk, matches, count * sizeof *matches);
    const char *own_text;
    comb_copy_from(&own_made, made, sizeof own_made);
    if (flags & REG_STARTEND) {
        /* The first match says where the text begins and ends; no zero byte has to. */
        size_t end = (size_t)own[0].rm_eo;
        own_text = comb_own(&desk, text, end);
    } else {
        own_text = comb_own_text(&desk, text);
    }
    int answer = regexec(&own_made, own_text, count, own, flags);
    if (answer == 0 && !(own_made.no_sub))
        comb_give_back(matches, own, count * sizeof *matches);
    return answer;
}
COMB_SAME_TYPE(regexec);

/* Paths that libc found stay in its memory until globfree. The error function is the program's, and gets libc's text. */
typedef int glob_error(const char *path, int error);
COMB_WRAP(int, glob, TEXT(pattern), VALUE(int, flags), VALUE(glob_error *, complain), INOUT(glob_t, found));
COMB_WRAP_VOID(globfree, INOUT(glob_t, found));
COMB_ALIAS(glob64, glob);
COMB_ALIAS(globfree64, globfree);
COMB_WRAP(int, wordexp, TEXT(words), INOUT(wordexp_t, found), VALUE(int, flags));
COMB_WRAP_VOID(wordfree, INOUT(wordexp_t, found));

COMB_WRAP(iconv_t, iconv_open, TEXT(to), TEXT(from));

/* Both pointers move on by what was converted. */
size_t comb_lib_iconv(iconv_t conversion, char **restrict from, size_t *restrict left, char **restrict to,
                      size_t *restrict room)
{
    COMB_DESK(desk);
    char *start = from ? comb_pointer(from) : NULL, *to_start = to ? comb_pointer(to) : NULL;
    size_t bytes = 0, has = 0;
    if (left)
        comb_copy_from(&bytes, left, sizeof bytes);
    if (room)
        comb_copy_from(&has, room, sizeof has);
    char *own = comb_own(&desk, start, bytes), *own_from = own;
    char *made = comb_own_room(&desk, to_start, has), *own_to = made;
    size_t bytes_left = bytes, room_left = has;
    size_t answer = iconv(conversion, from ? &own_from : NULL, left ? &bytes_left : NULL, to ? &own_to : NULL,
                          room ? &room_left : NULL);
    if (to) {
        comb_give_back(to_start, made, has - room_left);
        comb_set_pointer(to, to_start ? to_start + (has - room_left) : NULL);
        comb_give_back(room, &room_left, sizeof room_left);
    }
    if (from) {
        comb_set_pointer(from, start ? start + (bytes - bytes_left) : NULL);
        comb_give_back(left, &bytes_left, sizeof bytes_left);
    }
    return answer;
}
COMB_SAME_TYPE(iconv);
