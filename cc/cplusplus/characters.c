/* std::to_chars() and std::from_chars() of floating point numbers, which are plain code in libstdc++'s own library. */
#include <stddef.h>

#include "comb_access.h"

/* More digits than any number has that is written without a precision of thousands. */
enum { TEXT_BYTES = 6000 };

/* std::to_chars_result and std::from_chars_result. */
struct outcome {
    char *end;
    int error;
};

#define TO_CHARS(name, parameters, ...)                                                    \
    struct outcome real_##name parameters __asm__(#name);                                  \
    struct outcome comb_lib_##name parameters                                              \
    {                                                                                      \
        char text[TEXT_BYTES];                                                             \
        char *const first = start;                                                         \
        size_t room = (size_t)(end - start) < sizeof text ? (size_t)(end - start) : sizeof text; \
        start = text, end = text + room;                                                   \
        struct outcome outcome = real_##name(__VA_ARGS__);                                 \
        if (!outcome.error)                                                                \
            comb_copy_to(first, text, (size_t)(outcome.end - text));                       \
        outcome.end = first + (outcome.end - text);                                        \
        return outcome;                                                                    \
    }

#define ALL_TO_CHARS(letter, type)                                                                          \
    TO_CHARS(_ZSt8to_charsPcS_##letter, (char *start, char *end, type value), start, end, value)            \
    TO_CHARS(_ZSt8to_charsPcS_##letter##St12chars_format, (char *start, char *end, type value, int format), \
             start, end, value, format)                                                                     \
    TO_CHARS(_ZSt8to_charsPcS_##letter##St12chars_formati,                                                  \
             (char *start, char *end, type value, int format, int precision), start, end, value, format, precision)
ALL_TO_CHARS(f, float)
ALL_TO_CHARS(d, double)
ALL_TO_CHARS(e, long double)

#define FROM_CHARS(letter, type)                                                                              \
    struct outcome real_from_##letter(const char *start, const char *end, type *value, int format) __asm__(   \
        "_ZSt10from_charsPKcS0_R" #letter "St12chars_format");                                                \
    struct outcome comb_lib__ZSt10from_charsPKcS0_R##letter##St12chars_format(const char *start, const char *end, type *value, int format) \
    {                                                                                                         \
        char text[TEXT_BYTES];                                                                                \
        size_t bytes = (size_t)(end - start) < sizeof text ? (size_t)(end - start) : sizeof text;             \
        type own;                                                                                             \
        comb_copy_from(text, start, bytes);                                                                   \
        struct outcome outcome = real_from_##letter(text, text + bytes, &own, format);                        \
        if (!outcome.error)                                                                                   \
            comb_copy_to(value, &own, sizeof own);                                                            \
        outcome.end = (char *)start + (outcome.end - text);                                                   \
        return outcome;                                                                                       \
    }
FROM_CHARS(f, float)
FROM_CHARS(d, double)
FROM_CHARS(e, long double)
