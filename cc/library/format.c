#include "wrap.h"

#include "format.h"

#include <ctype.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reach.h"

/* A conversion's letters between '%' and its own: flags, width, precision, size. */
struct conversion {
    int position;                       /* "%3$…": 2, or COMB_NO_ARGUMENT */
    int width, width_from;
    int precision, precision_from;
    int shorts, longs;                  /* h, hh, l, ll */
    int is_long_double, is_word;        /* L, q; j, z, t */
    int is_suppressed, is_allocating;   /* scanf: '*', 'm' */
    char letter;
};

struct reader {
    const char *at;
    struct comb_argument *arguments;
    size_t most, next, count;
    int converted;
};

size_t comb_arguments_most(const char *format)
{
    size_t most = 1;
    for (; *format; format++)
        most += *format == '%' ? 3 : 0;
    return most;
}

/* An argument that is used for nothing yet, by its place; a format that leaves gaps is the program's mistake. */
static struct comb_argument *argument(struct reader *reader, int position)
{
    size_t place = position == COMB_NO_ARGUMENT ? reader->next++ : (size_t)position;
    if (place >= reader->most)
        place = reader->most - 1;
    if (place >= reader->count)
        reader->count = place + 1;
    return &reader->arguments[place];
}

static int digits(struct reader *reader)
{
    long number = 0;
    while (isdigit((unsigned char)*reader->at))
        number = number < INT_MAX / 10 ? number * 10 + (*reader->at++ - '0') : (reader->at++, INT_MAX);
    return (int)number;
}

/* "3$", or nothing. */
static int position(struct reader *reader)
{
    struct reader ahead = *reader;
    int number = digits(&ahead);
    if (ahead.at == reader->at || *ahead.at != '$')
        return COMB_NO_ARGUMENT;
    reader->at = ahead.at + 1;
    return number - 1;
}

/* A number, or "*", which takes an argument. */
static void limit(struct reader *reader, int *number, int *from)
{
    if (*reader->at != '*') {
        *number = digits(reader);
        return;
    }
    reader->at++;
    struct comb_argument *taken = argument(reader, position(reader));
    taken->kind = COMB_NUMBER;
    *from = (int)(taken - reader->arguments);
}

static void sizes(struct reader *reader, struct conversion *conversion)
{
    for (;; reader->at++) {
        switch (*reader->at) {
        case 'h': conversion->shorts++; break;
        case 'l': conversion->longs++; break;
        case 'L':
        case 'q': conversion->is_long_double = 1; break;
        case 'j':
        case 'z':
        case 'Z':
        case 't': conversion->is_word = 1; break;
        case 'm':
            /* For printf it is a conversion of its own. */
            if (!conversion->is_allocating)
                return;
            conversion->is_allocating = 2;
            break;
        default: return;
        }
    }
}

static int integer_bytes(const struct conversion *conversion)
{
    if (conversion->longs || conversion->is_word || conversion->is_long_double)
        return 8;
    return conversion->shorts == 0 ? 4 : conversion->shorts == 1 ? 2 : 1;
}

/* Behind '%'. */
static struct conversion read_printf(struct reader *reader)
{
    struct conversion conversion = {.position = COMB_NO_ARGUMENT, .width_from = COMB_NO_ARGUMENT,
                                    .precision = COMB_NO_LIMIT, .precision_from = COMB_NO_ARGUMENT};
    conversion.position = position(reader);
    reader->at += strspn(reader->at, "-+ #0'I");
    limit(reader, &conversion.width, &conversion.width_from);
    if (*reader->at == '.') {
        reader->at++;
        limit(reader, &conversion.precision, &conversion.precision_from);
    }
    sizes(reader, &conversion);
    conversion.letter = *reader->at;
    reader->at += *reader->at != 0;
    return conversion;
}

size_t comb_printf_arguments(const char *format, struct comb_argument *arguments, size_t most)
{
    struct reader reader = {format, arguments, most, 0, 0, 0};
    while ((reader.at = strchr(reader.at, '%'))) {
        reader.at++;
        struct conversion conversion = read_printf(&reader);
        if (!conversion.letter || strchr("%m", conversion.letter))
            continue;
        struct comb_argument *taken = argument(&reader, conversion.position);
        taken->limit = conversion.precision, taken->limit_from = conversion.precision_from;
        switch (conversion.letter) {
        case 's': taken->kind = conversion.longs ? COMB_WIDE_TEXT : COMB_TEXT; break;
        case 'S': taken->kind = COMB_WIDE_TEXT; break;
        case 'n':
            taken->kind = COMB_RESULT, taken->is_count = 1, taken->bytes = integer_bytes(&conversion);
            break;
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
        case 'a':
        case 'A': taken->kind = conversion.is_long_double ? COMB_LONG_DOUBLE : COMB_DOUBLE; break;
        default: taken->kind = COMB_NUMBER;
        }
    }
    return reader.count;
}

/* To behind the bracket that ends a set: "[]…]" and "[^]…]" begin with a bracket of the set. */
static const char *behind_set(const char *at)
{
    at += *at == '^';
    at += *at == ']';
    at += strcspn(at, "]");
    return at + (*at == ']');
}

static void scanf_argument(struct comb_argument *taken, const struct conversion *conversion)
{
    int is_text = strchr("scSC[", conversion->letter) != NULL;
    int is_floating = strchr("aAeEfFgG", conversion->letter) != NULL;
    if (is_text) {
        int is_wide = conversion->longs || conversion->letter == 'S' || conversion->letter == 'C';
        taken->kind = conversion->is_allocating == 2 ? COMB_ALLOCATED : COMB_TEXT_RESULT;
        taken->bytes = is_wide ? sizeof(wchar_t) : 1;
        taken->is_unended = conversion->letter == 'c' || conversion->letter == 'C';
        taken->limit = conversion->width ? conversion->width : 1;
        return;
    }
    taken->kind = COMB_RESULT;
    taken->is_count = conversion->letter == 'n';
    if (is_floating)
        taken->bytes = conversion->is_long_double ? sizeof(long double) : conversion->longs ? sizeof(double) : sizeof(float);
    else
        taken->bytes = conversion->letter == 'p' ? (int)sizeof(void *) : integer_bytes(conversion);
}

size_t comb_scanf_arguments(const char *format, char *rewritten, struct comb_argument *arguments, size_t most)
{
    struct reader reader = {format, arguments, most, 0, 0, 0};
    for (;;) {
        const char *start = reader.at;
        reader.at += strcspn(reader.at, "%");
        if (!*reader.at)
            return strcpy(rewritten, start), reader.count;
        reader.at++;
        struct conversion conversion = {.position = COMB_NO_ARGUMENT, .is_allocating = 1};
        conversion.position = position(&reader);
        for (; *reader.at && strchr("*'I", *reader.at); reader.at++)
            conversion.is_suppressed |= *reader.at == '*';
        conversion.width = digits(&reader);
        const char *size = reader.at;
        sizes(&reader, &conversion);
        conversion.letter = *reader.at;
        reader.at += *reader.at != 0;
        if (conversion.letter == '[')
            reader.at = behind_set(reader.at);
        int is_stored = conversion.letter && conversion.letter != '%' && !conversion.is_suppressed;
        if (is_stored) {
            struct comb_argument *taken = argument(&reader, conversion.position);
            scanf_argument(taken, &conversion);
            taken->order = taken->is_count ? reader.converted : reader.converted++;
        }
        int is_made = is_stored && strchr("scSC[", conversion.letter) && conversion.is_allocating != 2;
        rewritten = mempcpy(rewritten, start, (size_t)(size - start));
        if (is_made)
            *rewritten++ = 'm';
        rewritten = mempcpy(rewritten, size, (size_t)(reader.at - size));
    }
}

void comb_take_arguments(struct comb_argument *arguments, size_t count, va_list list)
{
    /* The list itself may be on a shared stack; what it points to never is. */
    union comb_list own;
    comb_copy_from(&own, list, sizeof own);
    for (size_t at = 0; at < count; at++) {
        switch (arguments[at].kind) {
        case COMB_DOUBLE: arguments[at].value.real = va_arg(own.list, double); break;
        case COMB_LONG_DOUBLE: arguments[at].value.long_real = va_arg(own.list, long double); break;
        default: arguments[at].value.number = va_arg(own.list, uint64_t);
        }
    }
}

static int limit_of(const struct comb_argument *arguments, const struct comb_argument *of)
{
    return of->limit_from == COMB_NO_ARGUMENT ? of->limit : (int)arguments[of->limit_from].value.number;
}

static void own_text(struct comb_desk *desk, struct comb_argument *text, int most, int is_wide)
{
    /* In wide output a precision counts wide characters, each of which may need several bytes. */
    size_t limit = most < 0 ? SIZE_MAX - 1 : (size_t)most * (is_wide ? 16 : 1);
    text->value.pointer = (void *)comb_own_text_most(desk, text->value.pointer, limit);
}

static void own_wide_text(struct comb_desk *desk, struct comb_argument *text, int most)
{
    const wchar_t *from = text->value.pointer;
    if (!from || !comb_is_shared(from))
        return;
    size_t length = comb_lib_wcsnlen(from, most < 0 ? SIZE_MAX : (size_t)most);
    wchar_t *own = comb_desk_room(desk, (length + 1) * sizeof *own);
    comb_copy_from(own, from, length * sizeof *own);
    own[length] = 0;
    text->value.pointer = own;
}

void comb_own_arguments(struct comb_desk *desk, struct comb_argument *arguments, size_t count, int is_wide)
{
    for (size_t at = 0; at < count; at++) {
        struct comb_argument *the = &arguments[at];
        switch (the->kind) {
        case COMB_TEXT: own_text(desk, the, limit_of(arguments, the), is_wide); break;
        case COMB_WIDE_TEXT: own_wide_text(desk, the, limit_of(arguments, the)); break;
        case COMB_RESULT:
        case COMB_TEXT_RESULT:
        case COMB_ALLOCATED:
            the->own = comb_desk_room(desk, sizeof(long double));
            /* A count of -1 is none: how a %n shows that it was not reached. */
            memset(the->own, the->is_count ? 0xff : 0, sizeof(long double));
            break;
        default: break;
        }
    }
}

void comb_lay_arguments(union comb_list *list, uint64_t *words, const struct comb_argument *arguments, size_t count)
{
    size_t used = 0;
    for (size_t at = 0; at < count; at++) {
        const struct comb_argument *the = &arguments[at];
        if (the->kind == COMB_LONG_DOUBLE) {
            used += used % 2;
            memcpy(words + used, &the->value, sizeof(long double));
            used += 2;
        } else {
            memcpy(words + used++, the->own ? (const void *)&the->own : &the->value, sizeof *words);
        }
    }
    /* No register is left: all come from memory. */
    list->fields.general = 6 * 8;
    list->fields.floating = 6 * 8 + 8 * 16;
    list->fields.rest = words;
    list->fields.saved = NULL;
}
