/* Sorting, searching and trees, with functions that go to the arena themselves. */
#include "world.h"

static int order(const void *one, const void *other)
{
    int left, right;
    get(&left, one, sizeof left), get(&right, other, sizeof right);
    return (left > right) - (left < right);
}

static int order_r(const void *one, const void *other, void *sign)
{
    return order(one, other) * *(int *)sign;
}

static void visit(const void *node, VISIT moment, int depth)
{
    void *key;
    int value;
    (void)depth;
    get(&key, node, sizeof key);
    get(&value, key, sizeof value);
    if (moment == postorder || moment == leaf)
        say("%d ", value);
}

static void visit_r(const void *node, VISIT moment, void *count)
{
    visit(node, moment, 0);
    ++*(int *)count;
}

static void nothing(void *key)
{
    (void)key;
}

static void trees(int *numbers, size_t count)
{
    void **root = (void **)place_aligned(sizeof *root), *top;
    int calls = 0;
    put(root, &(void *){NULL}, sizeof *root);
    for (size_t at = 0; at < count; at++)
        SAY(C(tsearch)(numbers + at, root, order) != NULL);
    SAY(C(tfind)(numbers, root, order) != NULL);
    for (size_t at = 0; at < count / 2; at++)
        SAY(C(tdelete)(numbers + at, root, order) != NULL);
    get(&top, root, sizeof top);
    C(twalk)(top, visit);
    C(twalk_r)(top, visit_r, &calls);
    C(tdestroy)(top, nothing);
    put(root, &(void *){NULL}, sizeof *root);
}

static void queues(void)
{
    void *nothing_at_all[2] = {NULL, NULL};
    char *one = place_bytes(nothing_at_all, 16), *two = place_bytes(nothing_at_all, 16), *three = place_bytes(nothing_at_all, 16);
    C(insque)(one, NULL), C(insque)(two, one), C(insque)(three, one), C(remque)(three);
}

void sorting_scene(void)
{
    size_t count = below(60) + 1;
    int own[64] = {0}, sign = -1;
    for (size_t at = 0; at < count; at++)
        own[at] = (int)below(50);
    int *numbers = place_bytes(own, sizeof own);
    C(qsort)(numbers, count, sizeof *numbers, order);
    SAY_PLACE(C(bsearch)(&own[0], numbers, count, sizeof *numbers, order) ? numbers : NULL);
    int missing = 1000;
    SAY_PLACE(C(bsearch)(&missing, numbers, count, sizeof *numbers, order));
    C(qsort_r)(numbers, count, sizeof *numbers, order_r, &sign);
    size_t *length = place_bytes(&count, sizeof count);
    SAY_PLACE(C(lfind)(&own[3], numbers, length, sizeof *numbers, order));
    SAY_PLACE(C(lsearch)(&missing, numbers, length, sizeof *numbers, order));
    trees(numbers, count);
    queues();
}
