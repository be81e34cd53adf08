/* Functions of <math.h> that return something through a pointer. */
#include "wrap.h"

#include <complex.h>
#include <fenv.h>
#include <math.h>

#define FOR_EACH_PRECISION(make) make(double, ) make(float, f) make(long double, l)

#define THROUGH_POINTERS(type, end)                                                               \
    COMB_WRAP(type, frexp##end, VALUE(type, x), INOUT(int, exponent));                            \
    COMB_WRAP(type, modf##end, VALUE(type, x), INOUT(type, whole));                               \
    COMB_WRAP(type, remquo##end, VALUE(type, x), VALUE(type, y), INOUT(int, quotient));           \
    COMB_WRAP(type, lgamma##end##_r, VALUE(type, x), INOUT(int, sign));                           \
    COMB_WRAP_VOID(sincos##end, VALUE(type, x), INOUT(type, sine), INOUT(type, cosine));          \
    COMB_WRAP(type, nan##end, TEXT(tag));                                                         \
    COMB_WRAP(int, canonicalize##end, INOUT(type, to), IN(type, from));                           \
    COMB_WRAP(int, totalorder##end, IN(type, one), IN(type, other));                              \
    COMB_WRAP(int, totalordermag##end, IN(type, one), IN(type, other));                           \
    COMB_WRAP(type, getpayload##end, IN(type, from));                                             \
    COMB_WRAP(int, setpayload##end, INOUT(type, to), VALUE(type, payload));                       \
    COMB_WRAP(int, setpayloadsig##end, INOUT(type, to), VALUE(type, payload));
FOR_EACH_PRECISION(THROUGH_POINTERS)


/* The same functions under the names of types with a width. */
#define WITH_WIDTH(name)                      \
    COMB_ALIAS(name##f32, name##f);           \
    COMB_ALIAS(name##f64, name);              \
    COMB_ALIAS(name##f32x, name);             \
    COMB_ALIAS(name##f64x, name##l);
WITH_WIDTH(frexp) WITH_WIDTH(modf) WITH_WIDTH(remquo) WITH_WIDTH(sincos) WITH_WIDTH(nan)

/* The floating point environment. */
COMB_WRAP(int, fegetenv, INOUT(fenv_t, environment));
COMB_WRAP(int, feholdexcept, INOUT(fenv_t, environment));
COMB_WRAP(int, fegetexceptflag, INOUT(fexcept_t, flags), VALUE(int, which));
COMB_WRAP(int, fesetexceptflag, IN(fexcept_t, flags), VALUE(int, which));
COMB_WRAP(int, fegetmode, INOUT(femode_t, mode));

/* Addresses that stand for environments of libc's are near the end of the address space, and so not shared. */
COMB_WRAP(int, fesetenv, IN(fenv_t, environment));
COMB_WRAP(int, feupdateenv, IN(fenv_t, environment));
COMB_WRAP(int, fesetmode, IN(femode_t, mode));
