/* Generators whose state is the program's. */
#include "wrap.h"

#include <stdlib.h>

#include "reach.h"

COMB_WRAP(int, rand_r, INOUT(unsigned, seed));

/* Three numbers of 16 bits. */
#define WITH_STATE(result, name)                                   \
    result comb_lib_##name(unsigned short state[3])                \
    {                                                              \
        unsigned short own[3];                                     \
        comb_copy_from(own, state, sizeof own);                    \
        result answer = name(own);                                 \
        comb_copy_to(state, own, sizeof own);                      \
        return answer;                                             \
    }                                                              \
    COMB_SAME_TYPE(name)
WITH_STATE(double, erand48);
WITH_STATE(long, nrand48);
WITH_STATE(long, jrand48);

unsigned short *comb_lib_seed48(unsigned short seed[3])
{
    COMB_DESK(desk);
    return seed48(comb_own(&desk, seed, 3 * sizeof *seed));
}
COMB_SAME_TYPE(seed48);

void comb_lib_lcong48(unsigned short parameters[7])
{
    COMB_DESK(desk);
    lcong48(comb_own(&desk, parameters, 7 * sizeof *parameters));
}
COMB_SAME_TYPE(lcong48);

COMB_WRAP(int, drand48_r, INOUT(struct drand48_data, state), INOUT(double, result));
COMB_WRAP(int, lrand48_r, INOUT(struct drand48_data, state), INOUT(long, result));
COMB_WRAP(int, mrand48_r, INOUT(struct drand48_data, state), INOUT(long, result));
COMB_WRAP(int, srand48_r, VALUE(long, seed), INOUT(struct drand48_data, state));

#define WITH_BOTH(result_type, name)                                                                            \
    int comb_lib_##name(unsigned short state[3], struct drand48_data *parameters, result_type *result)          \
    {                                                                                                           \
        COMB_DESK(desk);                                                                                        \
        unsigned short *own = comb_own(&desk, state, 3 * sizeof *own);                                          \
        struct drand48_data *own_parameters = comb_own(&desk, parameters, sizeof *parameters);                  \
        result_type *own_result = comb_own_room(&desk, result, sizeof *result);                                 \
        int answer = name(own, own_parameters, own_result);                                                     \
        comb_give_back(state, own, 3 * sizeof *own);                                                            \
        comb_give_back(parameters, own_parameters, sizeof *parameters);                                         \
        comb_give_back(result, own_result, sizeof *result);                                                     \
        return answer;                                                                                          \
    }                                                                                                           \
    COMB_SAME_TYPE(name)
WITH_BOTH(double, erand48_r);
WITH_BOTH(long, nrand48_r);
WITH_BOTH(long, jrand48_r);

void comb_lib_arc4random_buf(void *to, size_t bytes)
{
    COMB_DESK(desk);
    void *own = comb_own_room(&desk, to, bytes);
    arc4random_buf(own, bytes);
    comb_give_back(to, own, bytes);
}
COMB_SAME_TYPE(arc4random_buf);

/* Those of random_r have pointers into a table of the program's, of a length that its kind says. */

static size_t table_bytes(int kind)
{
    static const unsigned char words[] = {0, 7, 15, 31, 63};
    return kind >= 0 && kind < 5 ? words[kind] * sizeof(int32_t) : 0;
}

/* The generator with its table in private memory; `table` is where the program has it. */
struct generator {
    struct random_data own;
    int32_t *table, words[64];
};

static void load(struct generator *generator, const struct random_data *state)
{
    struct random_data *own = &generator->own;
    comb_copy_from(own, state, sizeof *own);
    generator->table = own->state;
    if (!own->state)
        return;
    /* The word before the table says kind and place. */
    comb_copy_from(generator->words, own->state - 1, table_bytes(own->rand_type) + sizeof(int32_t));
    own->fptr = generator->words + 1 + (own->fptr - own->state);
    own->rptr = generator->words + 1 + (own->rptr - own->state);
    own->end_ptr = generator->words + 1 + (own->end_ptr - own->state);
    own->state = generator->words + 1;
}

static void store(struct generator *generator, struct random_data *state)
{
    struct random_data *own = &generator->own;
    int32_t *table = generator->table;
    if (!table)
        return;
    comb_copy_to(table - 1, own->state - 1, table_bytes(own->rand_type) + sizeof(int32_t));
    own->fptr = table + (own->fptr - own->state);
    own->rptr = table + (own->rptr - own->state);
    own->end_ptr = table + (own->end_ptr - own->state);
    own->state = table;
    comb_copy_to(state, own, sizeof *own);
}

int comb_lib_random_r(struct random_data *restrict state, int32_t *restrict result)
{
    struct generator generator;
    int32_t own;
    load(&generator, state);
    int answer = random_r(&generator.own, &own);
    store(&generator, state);
    if (answer == 0)
        comb_copy_to(result, &own, sizeof own);
    return answer;
}
COMB_SAME_TYPE(random_r);

int comb_lib_srandom_r(unsigned seed, struct random_data *state)
{
    struct generator generator;
    load(&generator, state);
    int answer = srandom_r(seed, &generator.own);
    store(&generator, state);
    return answer;
}
COMB_SAME_TYPE(srandom_r);

int comb_lib_initstate_r(unsigned seed, char *restrict table, size_t bytes, struct random_data *restrict state)
{
    struct generator generator;
    load(&generator, state);
    int answer = initstate_r(seed, (char *)generator.words, bytes < sizeof generator.words ? bytes : sizeof generator.words,
                             &generator.own);
    if (answer == 0) {
        generator.table = (int32_t *)table + 1;
        store(&generator, state);
    }
    return answer;
}
COMB_SAME_TYPE(initstate_r);
