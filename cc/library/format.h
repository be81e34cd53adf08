/* What a format of printf or scanf makes of its arguments, and those arguments laid out anew.
 *
 * libc's v… functions read their arguments from memory in a layout that the x86-64 ABI fixes, so a list can be made: with
 * texts replaced by private copies, and places to write to by private slots. */
#ifndef COMB_FORMAT_H
#define COMB_FORMAT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "desk.h"

enum comb_kind {
    COMB_UNUSED,
    COMB_NUMBER,        /* anything in a general register */
    COMB_DOUBLE,
    COMB_LONG_DOUBLE,
    COMB_TEXT,          /* printf */
    COMB_WIDE_TEXT,
    COMB_RESULT,        /* a pointer to `bytes` that libc writes: %n, and all of scanf's but texts */
    COMB_TEXT_RESULT,   /* scanf: room for a text that libc allocates instead */
    COMB_ALLOCATED,     /* scanf with m: a pointer to a pointer */
};

enum { COMB_NO_ARGUMENT = -1, COMB_NO_LIMIT = -1 };

/* One argument. What is not needed for its kind is 0. */
struct comb_argument {
    enum comb_kind kind;
    int bytes;              /* of what is written; of a character where it is text */
    int limit, limit_from;  /* precision or width, or which argument says it */
    int is_count;           /* %n: not counted among what was converted */
    int order;              /* scanf: how many conversions come before this one */
    int is_unended;         /* %c of scanf: no zero character behind it */
    union {
        uint64_t number;
        double real;
        long double long_real;
        void *pointer;
    } value;
    void *own;              /* the slot */
};

/* Both read the format, which is private, and fill the arguments in their order; they return how many, never more than
 * `comb_arguments_most(format)`. */
size_t comb_arguments_most(const char *format);
size_t comb_printf_arguments(const char *format, struct comb_argument *arguments, size_t most);
/* Rewrites the format: texts are allocated by libc, whose length nothing else bounds. `rewritten` has room for twice the
 * format. */
size_t comb_scanf_arguments(const char *format, char *rewritten, struct comb_argument *arguments, size_t most);

/* Takes the arguments' values from the program's list, which may be shared memory. */
void comb_take_arguments(struct comb_argument *arguments, size_t count, va_list list);
/* Copies texts, and makes slots. */
void comb_own_arguments(struct comb_desk *desk, struct comb_argument *arguments, size_t count, int is_wide);

/* The list for libc. `words` has room for two for each argument, and is aligned for them. */
union comb_list {
    va_list list;
    struct {
        unsigned general, floating;
        void *rest, *saved;
    } fields;
};
void comb_lay_arguments(union comb_list *list, uint64_t *words, const struct comb_argument *arguments, size_t count);

#endif
