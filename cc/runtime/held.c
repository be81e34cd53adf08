/* held.c: a thread holds few mutexes at a time: a list that grows. */
#include "held.h"

#include <stdlib.h>

#include "runtime.h"

struct held {
    struct held *next;
    uint64_t number;
    uint64_t depth; /* beyond the first */
};
static _Thread_local struct held *held;

static struct held **find(uint64_t number)
{
    struct held **link = &held;
    while (*link && (*link)->number != number)
        link = &(*link)->next;
    return link;
}

void comb_held_begin(uint64_t number)
{
    struct held *new = malloc(sizeof *new);
    if (!new)
        comb_die("no memory for a mutex that is held");
    *new = (struct held){held, number, 0};
    held = new;
}

int comb_held_again(uint64_t number)
{
    struct held *found = *find(number);
    if (found)
        found->depth++;
    return found != NULL;
}

int comb_held_less(uint64_t number)
{
    struct held **link = find(number), *found = *link;
    if (!found)
        return 0;
    if (found->depth) {
        found->depth--;
        return 1;
    }
    *link = found->next;
    free(found);
    return 0;
}
