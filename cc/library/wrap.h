/* How the library's wrappers are written.
 *
 * A wrapper that only lays arguments out on a desk is one line that says what libc does with each:
 *
 *     COMB_WRAP(ssize_t, readlink, TEXT(path), FILLED(char, buffer, bytes, answer), VALUE(size_t, bytes))
 *
 *     VALUE(type, x)             handed on as it is
 *     TEXT(x)                    a text to read          WIDE(x)    a wide one
 *     IN(type, x)                one `type` to read      ARRAY(type, x, count)    several
 *     INOUT(type, x)             one `type` to read or write, copied both ways
 *     SIGNALS(x)                 a set of signals to block
 *     INOUTS(type, x, count)     several
 *     FILLED(type, x, room, filled)  room for `room` elements, of which `filled` were written; `filled` may use `answer`,
 *                                what libc returned, and `own_x`
 *     DESCRIPTOR(x)              a descriptor: the call is made on the cell that has it (only in COMB_WRAP_AT)
 *
 * Sizes are those of the parameters, so they can be named before they are declared: all parameters come first. */
#ifndef COMB_WRAP_H
#define COMB_WRAP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "descriptors.h"
#include "desk.h"

/* The wrapper of NAME must be called as NAME is. */
#define COMB_SAME_TYPE(name) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), __typeof__(comb_lib_##name)), #name)

/* Another name for the same function: large-file names, old names, names of fortified headers without their checks. */
#define COMB_ALIAS(alias_name, name) \
    __typeof__(comb_lib_##name) comb_lib_##alias_name __attribute__((alias("comb_lib_" #name)))

/* One argument is written KIND(…); each of the following takes it apart in another way. */
#define COMB_JOIN(one, other) COMB_JOIN_NOW(one, other)
#define COMB_JOIN_NOW(one, other) one##other

#define COMB_PARAMETER_VALUE(type, x) type x
#define COMB_PARAMETER_TEXT(x) const char *x
#define COMB_PARAMETER_WIDE(x) const wchar_t *x
#define COMB_PARAMETER_IN(type, x) const type *x
#define COMB_PARAMETER_SIGNALS(x) const sigset_t *x
#define COMB_PARAMETER_ARRAY(type, x, count) const type *x
#define COMB_PARAMETER_INOUT(type, x) type *x
#define COMB_PARAMETER_INOUTS(type, x, count) type *x
#define COMB_PARAMETER_FILLED(type, x, room, filled) type *x
#define COMB_PARAMETER_DESCRIPTOR(x) int x

#define COMB_LAY_VALUE(type, x) type own_##x = x;
#define COMB_LAY_TEXT(x) const char *own_##x = comb_own_text(&desk, x);
#define COMB_LAY_WIDE(x) const wchar_t *own_##x = comb_own_wide(&desk, x);
#define COMB_LAY_IN(type, x) const type *own_##x = comb_own(&desk, x, sizeof(type));
#define COMB_LAY_SIGNALS(x) const sigset_t *own_##x = comb_own_signals(&desk, x);
#define COMB_LAY_ARRAY(type, x, count) const type *own_##x = comb_own(&desk, x, (count) * sizeof(type));
#define COMB_LAY_INOUT(type, x) type *own_##x = comb_own(&desk, x, sizeof(type));
#define COMB_LAY_INOUTS(type, x, count) type *own_##x = comb_own(&desk, x, (count) * sizeof(type));
#define COMB_LAY_FILLED(type, x, room, filled) type *own_##x = comb_own_room(&desk, x, (room) * sizeof(type));
#define COMB_LAY_DESCRIPTOR(x) int own_##x = comb_descriptor_here(x, &cell);

#define COMB_OWN_VALUE(type, x) own_##x
#define COMB_OWN_TEXT(x) own_##x
#define COMB_OWN_WIDE(x) own_##x
#define COMB_OWN_IN(type, x) own_##x
#define COMB_OWN_SIGNALS(x) own_##x
#define COMB_OWN_ARRAY(type, x, count) own_##x
#define COMB_OWN_INOUT(type, x) own_##x
#define COMB_OWN_INOUTS(type, x, count) own_##x
#define COMB_OWN_FILLED(type, x, room, filled) own_##x
#define COMB_OWN_DESCRIPTOR(x) own_##x

#define COMB_BACK_VALUE(type, x)
#define COMB_BACK_TEXT(x)
#define COMB_BACK_WIDE(x)
#define COMB_BACK_IN(type, x)
#define COMB_BACK_SIGNALS(x)
#define COMB_BACK_ARRAY(type, x, count)
#define COMB_BACK_INOUT(type, x) comb_give_back(x, own_##x, sizeof(type));
#define COMB_BACK_INOUTS(type, x, count) comb_give_back(x, own_##x, (count) * sizeof(type));
#define COMB_BACK_FILLED(type, x, room, filled) comb_give_back(x, own_##x, (size_t)(filled) * sizeof(type));
#define COMB_BACK_DESCRIPTOR(x)

/* What goes to another cell with the call, and comes back: struct comb_part in descriptors.h. */
#define COMB_PART_VALUE(type, x) {.value = (long)own_##x}
#define COMB_PART_TEXT(x) {.own = (void *)own_##x, .in = comb_text_bytes(own_##x, 1)}
#define COMB_PART_IN(type, x) {.own = (void *)own_##x, .in = sizeof(type)}
#define COMB_PART_SIGNALS(x) {.own = (void *)own_##x, .in = sizeof(sigset_t)}
#define COMB_PART_ARRAY(type, x, count) {.own = (void *)own_##x, .in = (count) * sizeof(type)}
#define COMB_PART_INOUT(type, x) {.own = own_##x, .in = sizeof(type), .out = sizeof(type)}
#define COMB_PART_INOUTS(type, x, count) {.own = own_##x, .in = (count) * sizeof(type), .out = (count) * sizeof(type)}
#define COMB_PART_FILLED(type, x, room, filled) {.own = own_##x, .out = (room) * sizeof(type)}
#define COMB_PART_DESCRIPTOR(x) {.value = x}

#define COMB_EACH(make, between, ...) COMB_EACH_NOW(COMB_COUNT(__VA_ARGS__), make, between, __VA_ARGS__)
#define COMB_EACH_NOW(count, make, between, ...) COMB_JOIN(COMB_EACH_, count)(make, between, __VA_ARGS__)
#define COMB_COUNT(...) COMB_COUNT_NOW(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1)
#define COMB_COUNT_NOW(a, b, c, d, e, f, g, h, count, ...) count
#define COMB_COMMA() ,
#define COMB_NOTHING()
#define COMB_EACH_1(make, between, a) make##a
#define COMB_EACH_2(make, between, a, ...) make##a between() COMB_EACH_1(make, between, __VA_ARGS__)
#define COMB_EACH_3(make, between, a, ...) make##a between() COMB_EACH_2(make, between, __VA_ARGS__)
#define COMB_EACH_4(make, between, a, ...) make##a between() COMB_EACH_3(make, between, __VA_ARGS__)
#define COMB_EACH_5(make, between, a, ...) make##a between() COMB_EACH_4(make, between, __VA_ARGS__)
#define COMB_EACH_6(make, between, a, ...) make##a between() COMB_EACH_5(make, between, __VA_ARGS__)
#define COMB_EACH_7(make, between, a, ...) make##a between() COMB_EACH_6(make, between, __VA_ARGS__)
#define COMB_EACH_8(make, between, a, ...) make##a between() COMB_EACH_7(make, between, __VA_ARGS__)

#define COMB_PARAMETERS(...) COMB_EACH(COMB_PARAMETER_, COMB_COMMA, __VA_ARGS__)
#define COMB_LAY(...) COMB_EACH(COMB_LAY_, COMB_NOTHING, __VA_ARGS__)
#define COMB_OWN(...) COMB_EACH(COMB_OWN_, COMB_COMMA, __VA_ARGS__)
#define COMB_BACK(...) COMB_EACH(COMB_BACK_, COMB_NOTHING, __VA_ARGS__)
#define COMB_PARTS(...) COMB_EACH(COMB_PART_, COMB_COMMA, __VA_ARGS__)

#define COMB_WRAP(result, name, ...)                  \
    result comb_lib_##name(COMB_PARAMETERS(__VA_ARGS__)) \
    {                                                 \
        COMB_DESK(desk);                              \
        COMB_LAY(__VA_ARGS__)                         \
        result answer = name(COMB_OWN(__VA_ARGS__));  \
        COMB_BACK(__VA_ARGS__)                        \
        return answer;                                \
    }                                                 \
    COMB_SAME_TYPE(name)

#define COMB_WRAP_VOID(name, ...)                     \
    void comb_lib_##name(COMB_PARAMETERS(__VA_ARGS__))   \
    {                                                 \
        COMB_DESK(desk);                              \
        COMB_LAY(__VA_ARGS__)                         \
        name(COMB_OWN(__VA_ARGS__));                  \
        COMB_BACK(__VA_ARGS__)                        \
    }                                                 \
    COMB_SAME_TYPE(name)

/* With a descriptor: where another cell has it, that cell calls its wrapper. `given` is applied to libc's answer:
 * comb_descriptor_given where it is a new descriptor, nothing otherwise. */
#define COMB_WRAP_GIVEN(given, result, name, ...)                                                              \
    result comb_lib_##name(COMB_PARAMETERS(__VA_ARGS__))                                                       \
    {                                                                                                          \
        COMB_DESK(desk);                                                                                       \
        unsigned cell = COMB_NO_CELL;                                                                          \
        COMB_LAY(__VA_ARGS__)                                                                                  \
        result answer;                                                                                         \
        if (__builtin_expect(comb_is_here(cell), 1)) {                                                         \
            answer = given(name(COMB_OWN(__VA_ARGS__)));                                                       \
        } else {                                                                                               \
            struct comb_part parts[] = {COMB_PARTS(__VA_ARGS__)};                                              \
            answer = (result)comb_forward(cell, (void (*)(void))comb_lib_##name, parts,                        \
                                          sizeof parts / sizeof *parts);                                       \
        }                                                                                                      \
        COMB_BACK(__VA_ARGS__)                                                                                 \
        return answer;                                                                                         \
    }                                                                                                          \
    COMB_SAME_TYPE(name)
#define COMB_WRAP_AT(result, name, ...) COMB_WRAP_GIVEN(, result, name, __VA_ARGS__)
#define COMB_WRAP_OPENS(name, ...) COMB_WRAP_GIVEN(comb_descriptor_given, int, name, __VA_ARGS__)

#endif
