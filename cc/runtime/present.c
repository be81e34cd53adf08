/* present.c: what the program's other components have set up is mapped here before it is used, where page frames are
 * shared. Programs set up at their beginning: so after a thread's birth and after barriers, ever more seldom. */
#include "words.h"

#include "runtime.h"

void comb_look_what_is_present(void)
{
    static comb_word occasions;
    if (!comb_is_spread() || !comb_here.place.imports)
        return;
    uint32_t occasion = atomic_fetch_add_explicit(&occasions, 1, memory_order_relaxed) + 1;
    if ((occasion & (occasion - 1)) == 0)
        comb_here.program->map_present();
}
