/* What std::map, std::set, std::list and the unordered containers do in libstdc++'s own library, which is plain code: balancing trees, linking lists, choosing
 * how many buckets there are. Written here under the names that the C++ compiler gives them, by the layout of libstdc++'s nodes, and compiled
 * with the pass, so that every access looks. */
#include <stdbool.h>
#include <stddef.h>

enum colour { RED, BLACK };

/* A node, or the header of a tree: whose parent is the root, and whose children are the first node and the last. */
struct node {
    enum colour colour;
    struct node *parent, *left, *right;
};

static struct node *leftmost(struct node *node)
{
    while (node->left)
        node = node->left;
    return node;
}

static struct node *rightmost(struct node *node)
{
    while (node->right)
        node = node->right;
    return node;
}

static struct node *next(struct node *node)
{
    if (node->right)
        return leftmost(node->right);
    struct node *parent = node->parent;
    while (node == parent->right) {
        node = parent;
        parent = parent->parent;
    }
    /* The last node of a tree whose root has no right child has come to the header by itself. */
    return node->right == parent ? node : parent;
}

static struct node *before(struct node *node)
{
    if (node->colour == RED && node->parent && node->parent->parent == node)
        return node->right;
    if (node->left)
        return rightmost(node->left);
    struct node *parent = node->parent;
    while (node == parent->left) {
        node = parent;
        parent = parent->parent;
    }
    return parent;
}

/* Puts `child` where `node` hangs. */
static void hang(struct node *node, struct node *child, struct node *header)
{
    if (node == header->parent)
        header->parent = child;
    else if (node == node->parent->left)
        node->parent->left = child;
    else
        node->parent->right = child;
    if (child)
        child->parent = node->parent;
}

static void turn_left(struct node *node, struct node *header)
{
    struct node *up = node->right;
    node->right = up->left;
    if (up->left)
        up->left->parent = node;
    hang(node, up, header);
    up->left = node;
    node->parent = up;
}

static void turn_right(struct node *node, struct node *header)
{
    struct node *up = node->left;
    node->left = up->right;
    if (up->right)
        up->right->parent = node;
    hang(node, up, header);
    up->right = node;
    node->parent = up;
}

void comb_lib__ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(bool is_left, struct node *node, struct node *parent,
                                                                                 struct node *header)
{
    *node = (struct node){RED, parent, NULL, NULL};
    if (parent == header) {
        header->parent = header->left = header->right = node;
    } else if (is_left) {
        parent->left = node;
        if (parent == header->left)
            header->left = node;
    } else {
        parent->right = node;
        if (parent == header->right)
            header->right = node;
    }
    /* A red node has no red parent. */
    while (node != header->parent && node->parent->colour == RED) {
        struct node *up = node->parent, *top = up->parent;
        bool up_is_left = up == top->left;
        struct node *uncle = up_is_left ? top->right : top->left;
        if (uncle && uncle->colour == RED) {
            up->colour = uncle->colour = BLACK;
            top->colour = RED;
            node = top;
            continue;
        }
        if (node == (up_is_left ? up->right : up->left)) {
            (up_is_left ? turn_left : turn_right)(up, header);
            up = node;
        }
        up->colour = BLACK;
        top->colour = RED;
        (up_is_left ? turn_right : turn_left)(top, header);
        break;
    }
    header->parent->colour = BLACK;
}

/* The ways through `node`, which may be none, have a black node too few: `parent` is where it hangs. */
static void mend(struct node *node, struct node *parent, struct node *header)
{
    while (node != header->parent && (!node || node->colour == BLACK)) {
        bool is_left = node == parent->left;
        struct node *other = is_left ? parent->right : parent->left;
        if (other->colour == RED) {
            other->colour = BLACK;
            parent->colour = RED;
            (is_left ? turn_left : turn_right)(parent, header);
            other = is_left ? parent->right : parent->left;
        }
        struct node *near = is_left ? other->left : other->right, *far = is_left ? other->right : other->left;
        bool near_is_red = near && near->colour == RED, far_is_red = far && far->colour == RED;
        if (!near_is_red && !far_is_red) {
            other->colour = RED;
            node = parent;
            parent = parent->parent;
            continue;
        }
        if (!far_is_red) {
            near->colour = BLACK;
            other->colour = RED;
            (is_left ? turn_right : turn_left)(other, header);
            far = other;
            other = near;
        }
        other->colour = parent->colour;
        parent->colour = BLACK;
        far->colour = BLACK;
        (is_left ? turn_left : turn_right)(parent, header);
        break;
    }
    if (node)
        node->colour = BLACK;
}

struct node *comb_lib__ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_(struct node *node, struct node *header)
{
    struct node *child, *parent;
    enum colour lost = node->colour;
    if (node->left && node->right) {
        /* The next node, which has no left child, takes its place and colour. */
        struct node *heir = leftmost(node->right);
        lost = heir->colour;
        child = heir->right;
        parent = heir->parent == node ? heir : heir->parent;
        if (parent != heir) {
            hang(heir, child, header);
            heir->right = node->right;
            node->right->parent = heir;
        }
        hang(node, heir, header);
        heir->left = node->left;
        node->left->parent = heir;
        heir->colour = node->colour;
    } else {
        child = node->left ? node->left : node->right;
        parent = node->parent;
        struct node *first = node == header->left ? (node->right ? leftmost(node->right) : parent) : header->left;
        struct node *last = node == header->right ? (node->left ? rightmost(node->left) : parent) : header->right;
        hang(node, child, header);
        header->left = first;
        header->right = last;
    }
    if (lost == BLACK)
        mend(child, parent, header);
    return node;
}

struct node *comb_lib__ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base(struct node *node)
{
    return next(node);
}

const struct node *comb_lib__ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base(const struct node *node)
{
    return next((struct node *)node);
}

struct node *comb_lib__ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base(struct node *node)
{
    return before(node);
}

const struct node *comb_lib__ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base(const struct node *node)
{
    return before((struct node *)node);
}

/* A ring of nodes; a list's own is among them. */
struct link {
    struct link *next, *previous;
};

void comb_lib__ZNSt8__detail15_List_node_base7_M_hookEPS0_(struct link *link, struct link *place)
{
    *link = (struct link){place, place->previous};
    place->previous->next = link;
    place->previous = link;
}

void comb_lib__ZNSt8__detail15_List_node_base9_M_unhookEv(struct link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
}

/* What is from `first` up to `end` comes before `place`. */
void comb_lib__ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_(struct link *place, struct link *first, struct link *end)
{
    if (place == end)
        return;
    struct link *last = end->previous;
    first->previous->next = end;
    end->previous = first->previous;
    first->previous = place->previous;
    place->previous->next = first;
    last->next = place;
    place->previous = last;
}

void comb_lib__ZNSt8__detail15_List_node_base10_M_reverseEv(struct link *ring)
{
    struct link *link = ring;
    do {
        struct link *following = link->next;
        link->next = link->previous;
        link->previous = following;
        link = following;
    } while (link != ring);
}

/* Takes over the ring of another, which was this one's. */
static void take_over(struct link *link, struct link ring, const struct link *old)
{
    if (ring.next == old) {
        link->next = link->previous = link;
        return;
    }
    *link = ring;
    link->next->previous = link;
    link->previous->next = link;
}

void comb_lib__ZNSt8__detail15_List_node_base4swapERS0_S1_(struct link *one, struct link *other)
{
    struct link of_one = *one, of_other = *other;
    take_over(one, of_other, other);
    take_over(other, of_one, one);
}

/* How many buckets an unordered container has. */
struct rehash {
    float most_load;
    size_t next;
};

struct wanted {
    bool is_wanted;
    size_t buckets;
};

static bool is_prime(size_t number)
{
    for (size_t factor = 3; factor <= number / factor; factor += 2)
        if (number % factor == 0)
            return false;
    return number % 2 != 0 || number == 2;
}

size_t comb_lib__ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(struct rehash *policy, size_t least)
{
    size_t number = least < 2 ? 2 : least;
    while (!is_prime(number))
        number++;
    policy->next = (size_t)((double)number * policy->most_load);
    return number;
}

struct wanted comb_lib__ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(struct rehash *policy, size_t buckets,
                                                                                  size_t elements, size_t added)
{
    enum { FEWEST = 11 };
    if (elements + added <= policy->next)
        return (struct wanted){false, 0};
    size_t all = elements + added;
    if (policy->next == 0 && all < FEWEST)
        all = FEWEST;
    double least = (double)all / policy->most_load;
    if (least < (double)buckets) {
        policy->next = (size_t)((double)buckets * policy->most_load);
        return (struct wanted){false, 0};
    }
    size_t more = (size_t)least + 1;
    size_t number = comb_lib__ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(policy, more > 2 * buckets ? more : 2 * buckets);
    return (struct wanted){true, number};
}
