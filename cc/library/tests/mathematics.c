/* <math.h> through pointers, in three precisions. */
#include "world.h"

#define THROUGH(type, end)                                                                      \
    static void with_##type(void)                                                               \
    {                                                                                           \
        int *number = (int *)place_aligned(4);                                                  \
        type *one = (type *)place_aligned(16), *other = (type *)place_aligned(16), x;           \
        memset(&x, 0, sizeof x);                                                                \
        x = (type)below(1000) / 7 - 20;                                                         \
        put(one, &x, sizeof x), put(other, &x, sizeof x);                                       \
        SAY_REAL(C(frexp##end)(x, number));                                                     \
        SAY_REAL(C(modf##end)(x, one));                                                         \
        SAY_REAL(C(remquo##end)(x, 3, number));                                                 \
        SAY_REAL(C(lgamma##end##_r)(x, number));                                                \
        C(sincos##end)(x, one, other);                                                          \
        SAY_REAL(C(nan##end)(place_text("7")));                                                 \
        SAY(C(canonicalize##end)(one, other));                                                  \
        SAY(C(totalorder##end)(one, other));                                                    \
        SAY(C(totalordermag##end)(one, other));                                                 \
        SAY_REAL(C(getpayload##end)(one));                                                      \
        SAY(C(setpayload##end)(one, 5));                                                        \
        SAY(C(setpayloadsig##end)(one, 5));                                                     \
        get(&x, other, sizeof x);                                                               \
        SAY_REAL(x);                                                                            \
        /* What a long double leaves of its 16 bytes is nobody's. */                            \
        put(one, &(char[16]){0}, 16), put(other, &(char[16]){0}, 16);                           \
    }
typedef long double long_double;
THROUGH(double, )
THROUGH(float, f)
THROUGH(long_double, l)

static void widths(void)
{
    int *number = (int *)place_aligned(4);
    double *real = (double *)place_aligned(8), *other = (double *)place_aligned(8);
    float *small = (float *)place_aligned(4);
    SAY_REAL(C(frexpf64)(12.5, number)); SAY_REAL(C(frexpf32)(12.5f, number)); SAY_REAL(C(frexpf32x)(12.5, number));
    SAY_REAL(C(frexpf64x)(12.5L, number));
    SAY_REAL(C(modff64)(12.5, real)); SAY_REAL(C(modff32)(12.5f, small)); SAY_REAL(C(modff32x)(12.5, real));
    SAY_REAL(C(remquof64)(12.5, 5, number)); SAY_REAL(C(remquof32)(12.5f, 5, number));
    SAY_REAL(C(remquof32x)(12.5, 5, number)); SAY_REAL(C(remquof64x)(12.5L, 5, number));
    C(sincosf64)(1, real, other); C(sincosf32x)(1, real, other);
    SAY_REAL(C(nanf64)("")); SAY_REAL(C(nanf32)("")); SAY_REAL(C(nanf32x)("")); SAY_REAL(C(nanf64x)(""));
}

static void environment(void)
{
    fenv_t *saved = (fenv_t *)place_aligned(sizeof *saved), own;
    fexcept_t *flags = (fexcept_t *)place_aligned(sizeof *flags);
    femode_t *mode = (femode_t *)place_aligned(sizeof *mode);
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_INEXACT);
    SAY(C(fegetenv)(saved));
    SAY(C(fegetexceptflag)(flags, FE_ALL_EXCEPT));
    SAY(C(feholdexcept)(saved));
    SAY(fetestexcept(FE_ALL_EXCEPT));
    SAY(C(fesetexceptflag)(flags, FE_ALL_EXCEPT));
    SAY(fetestexcept(FE_INEXACT) != 0);
    SAY(C(fegetmode)(mode));
    fesetround(FE_UPWARD);
    SAY(C(fesetmode)(mode));
    SAY(fegetround());
    SAY(C(feupdateenv)(saved));
    SAY(C(fesetenv)(FE_DFL_ENV));
    SAY(C(fesetenv)(saved));
    memset(&own, 0, sizeof own);
    put(saved, &own, sizeof own), put(mode, &own, sizeof *mode), put(flags, &own, sizeof *flags);
    fesetenv(FE_DFL_ENV);
}

void mathematics_scene(void)
{
    with_double();
    with_float();
    with_long_double();
    widths();
    environment();
}
