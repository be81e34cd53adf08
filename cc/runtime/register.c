/* register.c: which threads of the program live in this component, by number. */
#include <pthread.h>
#include <stdlib.h>

#include "start.h"
#include "lives.h"

#define ROWS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comb_life *rows[ROWS];
static uint64_t serial;
static _Thread_local struct comb_life *own;
static pthread_key_t key_of_end;
comb_word comb_living;

static struct comb_life **row_of(uint64_t number)
{
    return &rows[(number >> COMB_RANK_BITS) % ROWS];
}

void comb_register_lock(void)
{
    pthread_mutex_lock(&lock);
}

void comb_register_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void comb_register_add(struct comb_life *life)
{
    comb_register_lock();
    life->number = ++serial << COMB_RANK_BITS | (comb_here.place.rank + 1);
    struct comb_life **row = row_of(life->number);
    life->next = *row;
    *row = life;
    comb_register_unlock();
}

/* The rest of these is for who has the lock. */
struct comb_life *comb_register_find(uint64_t number)
{
    struct comb_life *life = *row_of(number);
    while (life && life->number != number)
        life = life->next;
    return life;
}

void comb_register_remove(struct comb_life *life)
{
    struct comb_life **link = row_of(life->number);
    while (*link != life)
        link = &(*link)->next;
    *link = life->next;
}

/* libc calls comb_end_thread() for this thread when all else that it calls at a thread's end is done. */
void comb_life_begins(struct comb_life *life)
{
    own = life;
    life->native = pthread_self();
    pthread_setspecific(key_of_end, life);
}

static struct comb_life *adopt(void)
{
    struct comb_life *life = calloc(1, sizeof *life);
    if (!life)
        comb_die("no memory for a thread");
    life->is_detached = 1;
    comb_register_add(life);
    own = life;
    life->native = pthread_self();
    return life;
}

struct comb_life *comb_life(void)
{
    return own ? own : adopt();
}

uint64_t comb_self(void)
{
    return comb_life()->number;
}

void comb_begin_main_thread(void)
{
    pthread_key_create(&key_of_end, comb_end_thread);
    struct comb_life *life = comb_life();
    life->is_detached = 0;
    if (comb_stack_take(8 << 20, &life->stack))
        comb_die("no shared memory for the first thread's stack");
    comb_enter_program(&life->stack);
}
