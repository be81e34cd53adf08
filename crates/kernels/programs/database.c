/* A table in a B-tree in a file: leaves in the order of their keys, and index pages behind them. Queries read all rows of a range of keys, again and again; between them
 * single rows are looked up, and some of these changed.
 *
 *   database make FILE LEAVES
 *   database run FILE SCANS LEAVES_A_LOOKUP ADVICE
 */
#include "host.h"

/* The first page of the file. The kernel of this program reads it as well. */
struct header {
    u64 magic, first_leaf_page, leaf_pages, first_index_page, index_pages, root_page;
};

enum { ROWS = 255 };

struct row {
    u64 key, value;
};

/* A leaf has rows; an index page has the first key of each page below, and where that is. */
struct node {
    u32 count, is_leaf;
    u64 next;
    struct row rows[ROWS];
};

_Static_assert(sizeof(struct node) == PAGE, "a node is a page");

static const u64 magic = 0x3165736162617464ul;

/* Keys are not dense. */
enum { KEY_STEP = 3 };

static int make(const char *path, u64 leaves)
{
    struct header header = {.magic = magic, .first_leaf_page = 1, .leaf_pages = leaves, .first_index_page = 1 + leaves};
    for (u64 below = leaves; below > 1; header.index_pages += below)
        below = (below + ROWS - 1) / ROWS;
    u64 bytes = (header.first_index_page + header.index_pages) * PAGE;
    u8 *file = map_file(open_file(path, &bytes), bytes);
    struct node *pages = (struct node *)file;
    for (u64 leaf = 0; leaf < leaves; leaf++) {
        struct node *node = &pages[1 + leaf];
        node->count = ROWS;
        node->is_leaf = 1;
        node->next = leaf + 1 < leaves ? 2 + leaf : 0;
        for (u64 row = 0; row < ROWS; row++) {
            u64 key = (leaf * ROWS + row) * KEY_STEP;
            node->rows[row] = (struct row){key, mix(key)};
        }
    }
    u64 first = 1, count = leaves, at = header.first_index_page;
    while (count > 1) {
        u64 level = at;
        for (u64 child = 0; child < count; child++) {
            struct node *node = &pages[level + child / ROWS];
            node->rows[node->count++] = (struct row){pages[first + child].rows[0].key, first + child};
        }
        at = level + (count + ROWS - 1) / ROWS;
        first = level;
        count = at - level;
    }
    header.root_page = first;
    *(struct header *)file = header;
    keep(file, bytes);
    return 0;
}

/* The last row of a page whose key is not greater. */
static u32 find(const struct node *node, u64 key)
{
    u32 low = 0, high = node->count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (node->rows[middle].key <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static u64 leaf_of(const struct node *pages, u64 root, u64 key)
{
    u64 page = root;
    while (!pages[page].is_leaf)
        page = pages[page].rows[find(&pages[page], key)].value;
    return page;
}

static int query(const char *path, u64 scans, u64 leaves_a_lookup, u64 has_advice)
{
    u64 bytes = 0;
    int file = open_file(path, &bytes);
    u8 *at = map_file(file, bytes);
    const struct node *scanned = (struct node *)at;
    struct header header = *(struct header *)at;
    if (header.magic != magic || leaves_a_lookup == 0)
        fail("no file of this program's");
    struct node *searched = (struct node *)at;
    if (has_advice) {
        /* Addresses have advice, not pages: rows are looked up at others. */
        u8 *second = map_file(file, bytes);
        searched = (struct node *)second;
        advise(at, bytes, ADVICE_SEQUENTIAL);
        advise(second, bytes, ADVICE_RANDOM);
        advise(second + header.first_index_page * PAGE, header.index_pages * PAGE, ADVICE_NEEDED);
    }
    u64 sum = 0, rows = header.leaf_pages * ROWS, chance = 1, lookups = 0;
    for (u64 scan = 0; scan < scans; scan++) {
        u64 seen = 0;
        for (u64 page = leaf_of(searched, header.root_page, 0); page != 0; page = scanned[page].next) {
            for (u32 row = 0; row < scanned[page].count; row++)
                sum += scanned[page].rows[row].value ^ scanned[page].rows[row].key;
            if (++seen % leaves_a_lookup != 0)
                continue;
            chance = mix(chance + 1);
            u64 key = chance % rows * KEY_STEP;
            struct node *leaf = &searched[leaf_of(searched, header.root_page, key)];
            struct row *row = &leaf->rows[find(leaf, key)];
            if (row->key != key)
                fail("a row is not there");
            sum = sum * 31 + row->value;
            if (++lookups % 8 == 0)
                row->value += lookups;
        }
    }
    keep(at, bytes);
    say_result(sum);
    return 0;
}

int run(int count, char **arguments)
{
    if (count == 4 && is(arguments[1], "make"))
        return make(arguments[2], number(arguments[3]));
    if (count == 6 && is(arguments[1], "run"))
        return query(arguments[2], number(arguments[3]), number(arguments[4]), number(arguments[5]));
    fail("usage: database make FILE LEAVES | database run FILE SCANS LEAVES_A_LOOKUP ADVICE");
    return 2;
}
