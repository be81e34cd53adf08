/* Short ranges under pins, inline: what memcpy, strlen and their like need to be as fast as libc's when all is here.
 * A range that may not be touched goes the long way, through comb_pin. */
#ifndef COMB_PINNED_H
#define COMB_PINNED_H

#include <stdint.h>
#include <string.h>

#include "../access/comb_access.h"
#include "../access/comb_state.h"
#include "../access/comb_thread.h"

enum { COMB_BLOCK_BYTES = 1 << COMB_STATE_SHIFT, COMB_PAGE_BYTES = 4096, COMB_PINNED_MOST = COMB_BATCH_BYTES_MOST };

/* Bits that must be clear in a state byte, repeated: for a load those of 2 and above, for a store all. */
#define COMB_BARS_LOAD 0xfefefefefefefefeull
#define COMB_BARS_STORE 0xffffffffffffffffull

/* Only the thread itself writes its pins; whoever fences makes all threads' writes visible by membarrier, so the
 * compiler's order is enough here. */
static inline void comb_pins_step(void)
{
    __asm__ volatile("incq %0" : "+m"(comb_thread.pins) : : "memory");
}

/* Before `comb_note_count`, and that before what was noted is checked. */
static inline void comb_note(int index, const void *start, size_t bytes, int is_store)
{
    comb_thread.noted[index] = (struct comb_noted){(uintptr_t)start, (uint64_t)bytes << 1 | (unsigned)is_store};
}

static inline void comb_note_count(unsigned count)
{
    comb_thread.noted_count = count;
    __asm__ volatile("" : : : "memory");
}

static inline uint64_t comb_states_at(uintptr_t block)
{
    uint64_t states;
    memcpy(&states, (const void *)(COMB_STATE_TABLE + block), sizeof states);
    return states;
}

/* Whether none of the blocks of these bytes, at least one, has any of the bars. */
static inline int comb_is_allowed(const void *start, size_t bytes, uint64_t bars)
{
    uintptr_t block = (uintptr_t)start >> COMB_STATE_SHIFT;
    uintptr_t count = (((uintptr_t)start + bytes - 1) >> COMB_STATE_SHIFT) - block + 1;
    uint64_t found = 0;
    for (; count > 8; count -= 8, block += 8)
        found |= comb_states_at(block) & bars;
    found |= comb_states_at(block) & bars << (64 - 8 * count) >> (64 - 8 * count);
    return !found;
}

/* Pins one range, of at least one byte and at most COMB_PINNED_MOST. */
static inline void comb_hold(const void *start, size_t bytes, int is_store)
{
    comb_pins_step();
    comb_note(0, start, bytes, is_store);
    comb_note_count(1);
    if (__builtin_expect(comb_is_allowed(start, bytes, is_store ? COMB_BARS_STORE : COMB_BARS_LOAD), 1)) {
        __asm__ volatile("" : : : "memory");
        return;
    }
    comb_pins_step();
    struct comb_need need = {start, bytes, is_store};
    comb_pin(&need, 1);
}

/* Pins two ranges at once, together at most COMB_PINNED_MOST: one to load from, and one to store to, or to load from. */
static inline void comb_hold_both(const void *from, size_t from_bytes, const void *other, size_t other_bytes,
                                  int is_store)
{
    comb_pins_step();
    comb_note(0, from, from_bytes, 0);
    comb_note(1, other, other_bytes, is_store);
    comb_note_count(2);
    if (__builtin_expect(comb_is_allowed(from, from_bytes, COMB_BARS_LOAD) &&
                             comb_is_allowed(other, other_bytes, is_store ? COMB_BARS_STORE : COMB_BARS_LOAD), 1)) {
        __asm__ volatile("" : : : "memory");
        return;
    }
    comb_pins_step();
    struct comb_need needs[2] = {{from, from_bytes, 0}, {other, other_bytes, is_store}};
    comb_pin(needs, 2);
}

static inline void comb_release(void)
{
    comb_pins_step();
}

/* How many bytes from `start` may be loaded, by one look at the states of eight blocks; never beyond the page, because
 * the next one may not be mapped at all. Only right while pins is odd. */
static inline size_t comb_loadable(const void *start)
{
    uintptr_t address = (uintptr_t)start;
    uint64_t barred = comb_states_at(address >> COMB_STATE_SHIFT) & COMB_BARS_LOAD;
    size_t blocks = barred ? (size_t)__builtin_ctzll(barred) / 8 : 8;
    size_t bytes = blocks * COMB_BLOCK_BYTES;
    size_t ahead = bytes ? bytes - (address & (COMB_BLOCK_BYTES - 1)) : 0;
    size_t page = COMB_PAGE_BYTES - (address & (COMB_PAGE_BYTES - 1));
    return ahead < page ? ahead : page;
}

/* Pins what can be loaded from `start` on without waiting, and at least one byte: how the length of something is found
 * of which only its end says where it ends. Returns how many bytes, at most `most` (at least 1). */
static inline size_t comb_hold_run(const void *start, size_t most)
{
    for (;;) {
        comb_pins_step();
        comb_note_count(0);
        size_t bytes = comb_loadable(start);
        if (__builtin_expect(bytes != 0, 1)) {
            bytes = bytes < most ? bytes : most;
            comb_note(0, start, bytes, 0);
            comb_note_count(1);
            return bytes;
        }
        comb_pins_step();
        struct comb_need need = {start, 1, 0};
        comb_pin(&need, 1);
        comb_unpin();
    }
}

/* The same for two places that are compared with each other. */
static inline size_t comb_hold_runs(const void *one, const void *other, size_t most)
{
    for (;;) {
        comb_pins_step();
        comb_note_count(0);
        size_t of_one = comb_loadable(one), of_other = comb_loadable(other);
        size_t bytes = of_one < of_other ? of_one : of_other;
        if (__builtin_expect(bytes != 0, 1)) {
            bytes = bytes < most ? bytes : most;
            comb_note(0, one, bytes, 0);
            comb_note(1, other, bytes, 0);
            comb_note_count(2);
            return bytes;
        }
        comb_pins_step();
        struct comb_need needs[2] = {{one, 1, 0}, {other, 1, 0}};
        comb_pin(needs, 2);
        comb_unpin();
    }
}

#endif
