/* once.c: pthread_once(), and the guards of C++ objects that are made when they are first needed. Compiled with
 * -fexceptions: what throws has not happened, and the next one tries again. */
#include <limits.h>
#include <pthread.h>

#include "runtime.h"
#include "words.h"

enum { NOT_YET, RUNNING, DONE };

/* Both are four bytes in the program's memory, zero at first. By messages a lock of their address is held for as
 * long as it takes. */
static uint32_t load(const uint32_t *shared)
{
    uint32_t value;
    if (!comb_is_by_messages(shared))
        return atomic_load_explicit((comb_word *)shared, memory_order_acquire);
    comb_copy_from(&value, shared, sizeof value);
    return value;
}

/* Whether the caller is to do it; otherwise it is done. */
static int begin(uint32_t *shared, uint32_t done)
{
    if (load(shared) == done)
        return 0;
    if (comb_is_by_messages(shared)) {
        if (comb_here.program->lock((uint64_t)shared, 0, NULL, 0))
            comb_die("a thread that initialises an object waits for itself");
        if (load(shared) != done)
            return 1;
        comb_here.program->unlock((uint64_t)shared);
        return 0;
    }
    comb_word *word = (comb_word *)shared;
    for (;;) {
        uint32_t value = 0;
        if (atomic_compare_exchange_strong(word, &value, RUNNING << 8))
            return 1;
        if (value == done)
            return 0;
        comb_word_wait(word, value, COMB_FOR_EVER);
    }
}

static void finish(uint32_t *shared, uint32_t value)
{
    if (comb_is_by_messages(shared)) {
        comb_copy_to(shared, &value, sizeof value);
        comb_here.program->unlock((uint64_t)shared);
        return;
    }
    atomic_store((comb_word *)shared, value);
    comb_word_wake((comb_word *)shared, INT_MAX);
}

struct attempt {
    uint32_t *shared;
    uint32_t outcome;
};

static void finish_attempt(struct attempt *attempt)
{
    finish(attempt->shared, attempt->outcome);
}

int comb_lib_pthread_once(pthread_once_t *once, void (*function)(void))
{
    uint32_t *shared = (uint32_t *)once;
    if (!begin(shared, DONE))
        return 0;
    struct attempt attempt __attribute__((cleanup(finish_attempt))) = {shared, NOT_YET};
    function();
    attempt.outcome = DONE;
    return 0;
}

/* The Itanium ABI's: the first byte says that the object is there, and the compiler's own code looks at nothing
 * else. */
int comb_lib___cxa_guard_acquire(uint64_t *guard)
{
    return begin((uint32_t *)guard, 1);
}

void comb_lib___cxa_guard_release(uint64_t *guard)
{
    finish((uint32_t *)guard, 1);
}

void comb_lib___cxa_guard_abort(uint64_t *guard)
{
    finish((uint32_t *)guard, NOT_YET);
}
