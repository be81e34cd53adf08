/* A hash table, a tree, a sort and copies of many lengths: pointers everywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    unsigned key;
    char name[20];
    int count;
};

struct tree {
    struct tree *left, *right;
    int key;
};

static struct entry *table[127];
static struct tree *root;
static char buffer[5000], second[5000];

static struct entry *find(unsigned key)
{
    struct entry **place = &table[key % 127];
    while (*place && (*place)->key != key)
        place = &(*place)->next;
    if (!*place) {
        *place = calloc(1, sizeof **place);
        (*place)->key = key;
        for (int i = 0; i < 19; i++)
            (*place)->name[i] = (char)('a' + (key + (unsigned)i) % 26);
    }
    return *place;
}

static void insert(struct tree **place, int key)
{
    while (*place) {
        if ((*place)->key == key)
            return;
        place = key < (*place)->key ? &(*place)->left : &(*place)->right;
    }
    *place = calloc(1, sizeof **place);
    (*place)->key = key;
}

static long depth_sum(const struct tree *tree, int depth)
{
    return tree ? tree->key + depth + depth_sum(tree->left, depth + 1) + depth_sum(tree->right, depth + 1) : 0;
}

static void sort(int *a, int low, int high)
{
    if (low >= high)
        return;
    int pivot = a[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (a[i] < pivot)
            i++;
        while (a[j] > pivot)
            j--;
        if (i <= j) {
            int t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
    }
    sort(a, low, j);
    sort(a, i, high);
}

int main(void)
{
    unsigned state = 1;
    long total = 0;
    for (int i = 0; i < 20000; i++) {
        state = state * 1103515245 + 12345;
        struct entry *entry = find(state >> 20);
        entry->count++;
        struct entry copy = *entry;
        total += copy.count * copy.name[i % 19];
        if (i % 4 == 0)
            insert(&root, (int)(state >> 16));
    }
    total += depth_sum(root, 0);
    int *numbers = malloc(4000 * sizeof *numbers);
    for (int i = 0; i < 4000; i++)
        numbers[i] = (int)((state = state * 1103515245 + 12345) >> 8);
    sort(numbers, 0, 3999);
    for (int i = 1; i < 4000; i++)
        total += numbers[i - 1] <= numbers[i];
    for (int round = 0; round < 1500; round++) {
        size_t length = (size_t)round % 1300;
        memset(buffer + round % 64, round, length);
        memcpy(second + round % 50, buffer, length);
        memmove(second + 7 + round % 13, second + round % 29, length);
        memcpy(second, buffer + round % 9, 24);
        memset(buffer + round, 0, 40);
        total += second[round % 1400];
    }
    for (int i = 0; i < 5000; i++)
        total = total * 31 + buffer[i] + second[i];
    printf("%ld\n", total);
    return 0;
}
