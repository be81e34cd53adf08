/* Fortified memory, text and wide text: the size of the object is compared first, as libc does. */
#include "every.h"

/* `is_too_long` is known before the call. */
#define CHECKED(result, name, is_too_long, call, ...) \
    result comb_lib_##name(__VA_ARGS__)               \
    {                                                 \
        if (is_too_long)                              \
            __chk_fail();                             \
        return call;                                  \
    }                                                 \
    COMB_SAME_TYPE(name)

#define WRAPPER(name) extern __typeof__(name) comb_lib_##name
WRAPPER(memcpy); WRAPPER(memmove); WRAPPER(mempcpy); WRAPPER(memset); WRAPPER(explicit_bzero);
WRAPPER(strlen); WRAPPER(strnlen); WRAPPER(strcpy); WRAPPER(stpcpy); WRAPPER(strncpy); WRAPPER(stpncpy);
WRAPPER(strcat); WRAPPER(strncat);
WRAPPER(wmemcpy); WRAPPER(wmemmove); WRAPPER(wmempcpy); WRAPPER(wmemset);
WRAPPER(wcslen); WRAPPER(wcsnlen); WRAPPER(wcscpy); WRAPPER(wcpcpy); WRAPPER(wcsncpy); WRAPPER(wcpncpy);
WRAPPER(wcscat); WRAPPER(wcsncat);
WRAPPER(mbstowcs); WRAPPER(wcstombs); WRAPPER(wcrtomb); WRAPPER(wctomb); WRAPPER(mbsrtowcs); WRAPPER(mbsnrtowcs);
WRAPPER(wcsrtombs); WRAPPER(wcsnrtombs);

CHECKED(void *, __memcpy_chk, count > object, comb_lib_memcpy(to, from, count), void *to, const void *from, size_t count,
        size_t object);
CHECKED(void *, __memmove_chk, count > object, comb_lib_memmove(to, from, count), void *to, const void *from,
        size_t count, size_t object);
CHECKED(void *, __mempcpy_chk, count > object, comb_lib_mempcpy(to, from, count), void *to, const void *from,
        size_t count, size_t object);
CHECKED(void *, __memset_chk, count > object, comb_lib_memset(to, byte, count), void *to, int byte, size_t count,
        size_t object);
CHECKED(void, __explicit_bzero_chk, count > object, comb_lib_explicit_bzero(to, count), void *to, size_t count,
        size_t object);

CHECKED(char *, __strcpy_chk, comb_lib_strlen(from) >= object, comb_lib_strcpy(to, from), char *to, const char *from,
        size_t object);
CHECKED(char *, __stpcpy_chk, comb_lib_strlen(from) >= object, comb_lib_stpcpy(to, from), char *to, const char *from,
        size_t object);
CHECKED(char *, __strncpy_chk, count > object, comb_lib_strncpy(to, from, count), char *to, const char *from,
        size_t count, size_t object);
CHECKED(char *, __stpncpy_chk, count > object, comb_lib_stpncpy(to, from, count), char *to, const char *from,
        size_t count, size_t object);
CHECKED(char *, __strcat_chk, comb_lib_strlen(to) + comb_lib_strlen(from) >= object, comb_lib_strcat(to, from), char *to,
        const char *from, size_t object);
CHECKED(char *, __strncat_chk, comb_lib_strlen(to) + comb_lib_strnlen(from, count) >= object,
        comb_lib_strncat(to, from, count), char *to, const char *from, size_t count, size_t object);

/* The size of a wide object is in characters. */
CHECKED(wchar_t *, __wmemcpy_chk, count > object, comb_lib_wmemcpy(to, from, count), wchar_t *to, const wchar_t *from,
        size_t count, size_t object);
CHECKED(wchar_t *, __wmemmove_chk, count > object, comb_lib_wmemmove(to, from, count), wchar_t *to, const wchar_t *from,
        size_t count, size_t object);
CHECKED(wchar_t *, __wmempcpy_chk, count > object, comb_lib_wmempcpy(to, from, count), wchar_t *to, const wchar_t *from,
        size_t count, size_t object);
CHECKED(wchar_t *, __wmemset_chk, count > object, comb_lib_wmemset(to, character, count), wchar_t *to, wchar_t character,
        size_t count, size_t object);
CHECKED(wchar_t *, __wcscpy_chk, comb_lib_wcslen(from) >= object, comb_lib_wcscpy(to, from), wchar_t *to,
        const wchar_t *from, size_t object);
CHECKED(wchar_t *, __wcpcpy_chk, comb_lib_wcslen(from) >= object, comb_lib_wcpcpy(to, from), wchar_t *to,
        const wchar_t *from, size_t object);
CHECKED(wchar_t *, __wcsncpy_chk, count > object, comb_lib_wcsncpy(to, from, count), wchar_t *to, const wchar_t *from,
        size_t count, size_t object);
CHECKED(wchar_t *, __wcpncpy_chk, count > object, comb_lib_wcpncpy(to, from, count), wchar_t *to, const wchar_t *from,
        size_t count, size_t object);
CHECKED(wchar_t *, __wcscat_chk, comb_lib_wcslen(to) + comb_lib_wcslen(from) >= object, comb_lib_wcscat(to, from),
        wchar_t *to, const wchar_t *from, size_t object);
CHECKED(wchar_t *, __wcsncat_chk, comb_lib_wcslen(to) + comb_lib_wcsnlen(from, count) >= object,
        comb_lib_wcsncat(to, from, count), wchar_t *to, const wchar_t *from, size_t count, size_t object);

CHECKED(size_t, __mbstowcs_chk, room > object, comb_lib_mbstowcs(to, from, room), wchar_t *to, const char *from,
        size_t room, size_t object);
CHECKED(size_t, __wcstombs_chk, room > object, comb_lib_wcstombs(to, from, room), char *to, const wchar_t *from,
        size_t room, size_t object);
CHECKED(size_t, __wcrtomb_chk, MB_CUR_MAX > object, comb_lib_wcrtomb(to, character, state), char *to, wchar_t character,
        mbstate_t *state, size_t object);
CHECKED(int, __wctomb_chk, MB_CUR_MAX > object, comb_lib_wctomb(to, character), char *to, wchar_t character,
        size_t object);
CHECKED(size_t, __mbsrtowcs_chk, room > object, comb_lib_mbsrtowcs(to, from, room, state), wchar_t *to, const char **from,
        size_t room, mbstate_t *state, size_t object);
CHECKED(size_t, __mbsnrtowcs_chk, room > object, comb_lib_mbsnrtowcs(to, from, most, room, state), wchar_t *to,
        const char **from, size_t most, size_t room, mbstate_t *state, size_t object);
CHECKED(size_t, __wcsrtombs_chk, room > object, comb_lib_wcsrtombs(to, from, room, state), char *to, const wchar_t **from,
        size_t room, mbstate_t *state, size_t object);
CHECKED(size_t, __wcsnrtombs_chk, room > object, comb_lib_wcsnrtombs(to, from, most, room, state), char *to,
        const wchar_t **from, size_t most, size_t room, mbstate_t *state, size_t object);
