/* place.c: where threads begin. Each component counts the threads that it has created, and deals them out beginning
 * with itself: where main() alone creates, as most programs do, main() is the first one dealt to component 0. */
#include "lives.h"

static comb_word created;

/* How many in a row the same component gets. */
static unsigned each(void)
{
    if (comb_here.place.spread == COMB_SPREAD_ROUND_ROBIN)
        return 1;
    return comb_here.place.spread - COMB_SPREAD_FILL + 1;
}

unsigned comb_next_place(void)
{
    const struct comb_place *place = &comb_here.place;
    if (place->count == 1 || place->spread == COMB_SPREAD_HOME)
        return place->rank;
    unsigned nth = atomic_fetch_add(&created, 1) + 1; /* the creator was the first */
    return (place->rank + nth / each()) % place->count;
}
