/* Functions that call the program back: nothing is pinned while they do, and what they hand over may be anywhere. */
#include "every.h"

#include "reach.h"

/* Sorted in private memory, as glibc itself sorts in a copy when there is room for one: the program's function gets pointers
 * into it. */
#define SORTS(name, order_type, call, ...)                                                              \
    void comb_lib_##name(void *from, size_t count, size_t bytes, order_type order, ##__VA_ARGS__)       \
    {                                                                                                   \
        COMB_DESK(desk);                                                                                \
        if (count < 2 || !bytes)                                                                        \
            return;                                                                                     \
        void *own = comb_own(&desk, from, count * bytes);                                               \
        call;                                                                                           \
        comb_give_back(from, own, count * bytes);                                                       \
    }                                                                                                   \
    COMB_SAME_TYPE(name)
SORTS(qsort, __compar_fn_t, qsort(own, count, bytes, order));
SORTS(qsort_r, __compar_d_fn_t, qsort_r(own, count, bytes, order, argument), void *argument);

void *comb_lib_bsearch(const void *key, const void *from, size_t count, size_t bytes, __compar_fn_t order)
{
    for (size_t low = 0, high = count; low < high;) {
        size_t middle = low + (high - low) / 2;
        const char *at = (const char *)from + middle * bytes;
        int is = order(key, at);
        if (is == 0)
            return (void *)at;
        if (is < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
COMB_SAME_TYPE(bsearch);

void *comb_lib_lfind(const void *key, const void *from, size_t *count, size_t bytes, __compar_fn_t order)
{
    size_t own_count;
    comb_copy_from(&own_count, count, sizeof own_count);
    for (size_t at = 0; at < own_count; at++) {
        const char *element = (const char *)from + at * bytes;
        if (order(key, element) == 0)
            return (void *)element;
    }
    return NULL;
}
COMB_SAME_TYPE(lfind);

void *comb_lib_lsearch(const void *key, void *from, size_t *count, size_t bytes, __compar_fn_t order)
{
    void *found = comb_lib_lfind(key, from, count, bytes, order);
    if (found)
        return found;
    size_t own_count;
    comb_copy_from(&own_count, count, sizeof own_count);
    found = comb_lib_memcpy((char *)from + own_count * bytes, key, bytes);
    own_count++;
    comb_copy_to(count, &own_count, sizeof own_count);
    return found;
}
COMB_SAME_TYPE(lsearch);

/* Lists of the program's: each element begins with two pointers. */

struct link {
    struct link *next, *before;
};

void comb_lib_insque(void *element, void *behind)
{
    struct link *next = behind ? comb_pointer(&((struct link *)behind)->next) : NULL;
    struct link own = {next, behind};
    comb_copy_to(element, &own, sizeof own);
    if (next)
        comb_set_pointer(&next->before, element);
    if (behind)
        comb_set_pointer(&((struct link *)behind)->next, element);
}
COMB_SAME_TYPE(insque);

void comb_lib_remque(void *element)
{
    struct link own;
    comb_copy_from(&own, element, sizeof own);
    if (own.next)
        comb_set_pointer(&own.next->before, own.before);
    if (own.before)
        comb_set_pointer(&own.before->next, own.next);
}
COMB_SAME_TYPE(remque);
