/* tsearch and its kin over the program's memory, so that all cells see one tree: a treap, whose priorities come from a hash
 * of the order of insertion. Nodes begin with the key, as programs expect of what tsearch returns. */
#include "wrap.h"

#include <search.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "reach.h"

struct node {
    const void *key;
    struct node *left, *right;
    uint64_t priority;
};

static struct node load(const struct node *node)
{
    struct node own;
    comb_copy_from(&own, node, sizeof own);
    return own;
}

/* High priorities above; equal ones do no harm. */
static uint64_t next_priority(void)
{
    static _Atomic uint64_t count;
    uint64_t hash = ++count * 0x9e3779b97f4a7c15ull;
    return (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ull;
}

/* Where in the program's memory the pointer to the node is, or would be. */
static void **find(const void *key, void **root, __compar_fn_t order)
{
    for (void **at = root;;) {
        struct node *node = comb_pointer(at);
        if (!node)
            return at;
        int is = order(key, comb_pointer(&node->key));
        if (is == 0)
            return at;
        at = is < 0 ? (void **)&node->left : (void **)&node->right;
    }
}

/* What is before `key` goes to *low, the rest to *high. */
static void split(struct node *node, const void *key, __compar_fn_t order, void **low, void **high)
{
    while (node) {
        struct node own = load(node);
        if (order(key, own.key) < 0) {
            comb_set_pointer(high, node);
            high = (void **)&node->left;
            node = own.left;
        } else {
            comb_set_pointer(low, node);
            low = (void **)&node->right;
            node = own.right;
        }
    }
    comb_set_pointer(low, NULL);
    comb_set_pointer(high, NULL);
}

void *comb_lib_tfind(const void *key, void *const *root, __compar_fn_t order)
{
    return root ? comb_pointer(find(key, (void **)root, order)) : NULL;
}
COMB_SAME_TYPE(tfind);

void *comb_lib_tsearch(const void *key, void **root, __compar_fn_t order)
{
    if (!root)
        return NULL;
    void *found = comb_lib_tfind(key, root, order);
    if (found)
        return found;
    struct node own = {key, NULL, NULL, next_priority()};
    struct node *made = comb_lib_malloc(sizeof own);
    if (!made)
        return NULL;
    comb_copy_to(made, &own, sizeof own);
    void **at = root;
    struct node *below;
    while ((below = comb_pointer(at)) && load(below).priority >= own.priority)
        at = order(key, comb_pointer(&below->key)) < 0 ? (void **)&below->left : (void **)&below->right;
    split(below, key, order, (void **)&made->left, (void **)&made->right);
    comb_set_pointer(at, made);
    return made;
}
COMB_SAME_TYPE(tsearch);

static void merge(struct node *low, struct node *high, void **at)
{
    while (low && high) {
        if (load(low).priority >= load(high).priority) {
            comb_set_pointer(at, low);
            at = (void **)&low->right;
            low = comb_pointer(at);
        } else {
            comb_set_pointer(at, high);
            at = (void **)&high->left;
            high = comb_pointer(at);
        }
    }
    comb_set_pointer(at, low ? low : high);
}

/* Returns the node above, or something that is not NULL where the root was deleted. */
void *comb_lib_tdelete(const void *restrict key, void **restrict root, __compar_fn_t order)
{
    if (!root)
        return NULL;
    void **at = root;
    struct node *above = NULL, *node;
    for (; (node = comb_pointer(at)); above = node) {
        int is = order(key, comb_pointer(&node->key));
        if (is == 0)
            break;
        at = is < 0 ? (void **)&node->left : (void **)&node->right;
    }
    if (!node)
        return NULL;
    struct node own = load(node);
    merge(own.left, own.right, at);
    comb_lib_free(node);
    return above ? (void *)above : (void *)root;
}
COMB_SAME_TYPE(tdelete);

typedef void closure(const void *node, VISIT moment, void *argument);

static void walk(const struct node *node, closure *visit, __action_fn_t visit_plain, void *argument,
                 int depth)
{
    struct node own = load(node);
#define CALL(moment) (visit ? visit(node, moment, argument) : visit_plain(node, moment, depth))
    if (!own.left && !own.right) {
        CALL(leaf);
        return;
    }
    CALL(preorder);
    if (own.left)
        walk(own.left, visit, visit_plain, argument, depth + 1);
    CALL(postorder);
    if (own.right)
        walk(own.right, visit, visit_plain, argument, depth + 1);
    CALL(endorder);
#undef CALL
}

void comb_lib_twalk(const void *root, __action_fn_t visit)
{
    if (root && visit)
        walk(root, NULL, visit, NULL, 0);
}
COMB_SAME_TYPE(twalk);

void comb_lib_twalk_r(const void *root, closure *visit, void *argument)
{
    if (root && visit)
        walk(root, visit, NULL, argument, 0);
}
COMB_SAME_TYPE(twalk_r);

void comb_lib_tdestroy(void *root, __free_fn_t release)
{
    if (!root)
        return;
    struct node own = load(root);
    comb_lib_tdestroy(own.left, release);
    comb_lib_tdestroy(own.right, release);
    release((void *)own.key);
    comb_lib_free(root);
}
COMB_SAME_TYPE(tdestroy);
