/* One call of a printf: its arguments, and the list that libc gets. */
#ifndef COMB_PRINTING_H
#define COMB_PRINTING_H

#include <stdarg.h>

#include "desk.h"
#include "format.h"

struct comb_printing {
    struct comb_argument *arguments;
    size_t count;
    uint64_t *words;
    union comb_list list;
};

/* `narrow` is the format, each wide character as a byte. */
void comb_printing_lay(struct comb_printing *printing, struct comb_desk *desk, const char *narrow, va_list list,
                       int is_wide);
/* A fresh list for each call of libc's. */
union comb_list *comb_printing_list(struct comb_printing *printing);
/* Gives what %n counted back. */
void comb_printing_count(const struct comb_printing *printing);

/* A wide format as comb_printing_lay wants it. */
char *comb_narrow_format(struct comb_desk *desk, const wchar_t *format);

#endif
