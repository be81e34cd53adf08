/* Looks again: what instrumented code could not decide with one comparison.
 *
 * Compiled to general registers only, because instrumented code calls this with values in its vector registers. */
#include "comb_access.h"
#include "comb_state.h"
#include "comb_thread.h"

#include <errno.h>

/* As the pass writes it: bytes << 2 | kind. */
enum kind {
    /* Return with pins odd, so that the caller can load. It calls comb_load_end then. */
    LOAD = 0,
    /* Return when the store may be tried again. */
    STORE = 1,
    /* Pins are odd before and after. */
    LOAD_IN_BATCH = 2,
};

__thread struct comb_thread comb_thread;
struct comb_runtime comb_runtime;

/* `comb-cc --invocation-cost=N` gives this symbol the address N: further turns for each invocation. */
extern char comb_invocation_cost[] __attribute__((weak));

/* Compiled code uses vectors of more than 16 bytes. */
char comb_has_wide_vectors;

/* Called from entry.S. */
void comb_again(uintptr_t address, uint64_t what, void *instruction);
void comb_look_at_batch(void *instruction);
void comb_look_at_mail(void);
void comb_call_saving_vectors(uintptr_t first, uint64_t second, int third, void *fourth, int unused, void *function);

/* A constructor of each file that is compiled for AVX. */
void comb_keep_wide_vectors(void);
void comb_keep_wide_vectors(void)
{
    comb_has_wide_vectors = 1;
}

/* The compiler keeps the order. The processor need not: a fence sends a barrier to every running thread after it wrote the state
 * bytes and before it reads pins, so either it sees the thread pinned, or the thread sees the states. */
static inline void add_pin(void)
{
    __asm__ volatile("incq %0" : "+m"(comb_thread.pins) : : "memory");
}

static inline int is_pinned(void)
{
    return comb_thread.pins & 1;
}

static void spend_invocation_cost(void)
{
    for (uintptr_t turn = 0; turn < (uintptr_t)comb_invocation_cost; turn++)
        __asm__ volatile("");
}

/* Whether one of a range's state bytes forbids; eight at a time, aligned or not. */
static int is_forbidden(uintptr_t start, uint64_t bytes, int is_store)
{
    if (bytes == 0)
        return 0;
    uintptr_t state = (uintptr_t)comb_state_of(start);
    uintptr_t last = (uintptr_t)comb_state_of(start + bytes - 1);
    uint8_t forbidding = is_store ? 0xff : COMB_INVALID;
    uint64_t forbidding_word = forbidding * 0x0101010101010101ULL;
    for (; last - state >= 7 && state <= last; state += 8)
        if (*(volatile uint64_t *)state & forbidding_word)
            return 1;
    for (; state <= last; state++)
        if (*(volatile uint8_t *)state & forbidding)
            return 1;
    return 0;
}

/* The thread is in nobody's work, and not pinned. Who only comes then would otherwise find it so by chance. */
static inline void make_up_for_late(void)
{
    if (comb_thread.has_late && comb_runtime.late)
        comb_call_saving_vectors(0, 0, 0, NULL, 0, (void *)comb_runtime.late);
}

/* Not pinned: a fetch may wait. */
static void fetch(uintptr_t address, uint64_t bytes, int is_store, void *instruction)
{
    if (!comb_runtime.fetch)
        return;
    int error_number = errno;
    comb_call_saving_vectors(address, bytes, is_store, instruction, 0, (void *)comb_runtime.fetch);
    make_up_for_late();
    errno = error_number;
}

static inline uint64_t noted_bytes(int index)
{
    return comb_thread.noted[index].bytes_and_store >> 1;
}

static inline int noted_is_store(int index)
{
    return comb_thread.noted[index].bytes_and_store & 1;
}

/* The first noted range that does not hold, or -1. */
static int first_forbidden(void)
{
    for (int index = 0; index < (int)comb_thread.noted_count; index++)
        if (is_forbidden(comb_thread.noted[index].start, noted_bytes(index), noted_is_store(index)))
            return index;
    return -1;
}

void comb_restore_noted(uintptr_t address, uint64_t bytes, int is_store, void *instruction)
{
    for (;;) {
        int index = first_forbidden();
        int is_own = index < 0 && is_forbidden(address, bytes, is_store);
        if (index < 0 && !is_own)
            return;
        add_pin();
        if (is_own)
            fetch(address, bytes, is_store, instruction);
        else
            fetch(comb_thread.noted[index].start, noted_bytes(index), noted_is_store(index), instruction);
        add_pin();
    }
}

void comb_again(uintptr_t address, uint64_t what, void *instruction)
{
    uint64_t bytes = what >> 2;
    enum kind kind = what & 3;
    if (&comb_invocation_cost[0])
        spend_invocation_cost();
    if (is_pinned()) {
        comb_thread.alone = (struct comb_noted){address, bytes << 1};
        __asm__ volatile("" : : : "memory");
        comb_restore_noted(address, bytes, kind == STORE, instruction);
        return;
    }
    if (kind == STORE) {
        if (is_forbidden(address, bytes, 1))
            fetch(address, bytes, 1, instruction);
        return;
    }
    comb_thread.noted_count = 1;
    comb_thread.noted[0] = (struct comb_noted){address, bytes << 1};
    add_pin();
    comb_restore_noted(0, 0, 0, instruction);
}

/* The thread is pinned, and its ranges are noted. `instruction` is behind the call: the byte before it tells the line. */
void comb_look_at_batch(void *instruction)
{
    comb_restore_noted(0, 0, 0, (char *)instruction - 1);
}

/* There is mail. */
void comb_look_at_mail(void)
{
    if (!comb_runtime.poll || is_pinned())
        return;
    int error_number = errno;
    comb_call_saving_vectors(0, 0, 0, NULL, 0, (void *)comb_runtime.poll);
    make_up_for_late();
    errno = error_number;
}

void comb_pin(const struct comb_need *needs, int count)
{
    for (int index = 0; index < count; index++)
        comb_thread.noted[index] = (struct comb_noted){
            (uintptr_t)needs[index].start, (uint64_t)needs[index].bytes << 1 | (needs[index].is_store != 0)};
    comb_thread.noted_count = (uint64_t)count;
    add_pin();
    comb_look_at_batch(__builtin_return_address(0));
}

void comb_unpin(void)
{
    add_pin();
}
