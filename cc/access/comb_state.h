/* The state table: one byte for each 128 bytes of memory below 2^47. */
#ifndef COMB_STATE_H
#define COMB_STATE_H

#include <stdint.h>

#define COMB_STATE_TABLE 0x2fe000000000ULL
#define COMB_STATE_SHIFT 7
#define COMB_STATE_BYTES (1ULL << (47 - COMB_STATE_SHIFT))

#define COMB_HEAP_START 0x100000000000ULL
#define COMB_HEAP_END 0x2fe000000000ULL

/* A byte that code looks at in its loops: not 0, and somebody has asked for something. Its page is below 2 GiB, where an
 * instruction can name it without a register, and below all executables. */
#define COMB_MAIL_PAGE 0x100000UL
#define COMB_MAIL (COMB_MAIL_PAGE + 96)

/* 0 is right for private memory, which nobody ever writes a state for. */
enum comb_state { COMB_LOADS_AND_STORES = 0, COMB_LOADS = 1, COMB_INVALID = 2 };

/* What every byte of an invalid block reads. */
#define COMB_FLAG 0xf1

static inline volatile uint8_t *comb_state_of(uintptr_t address)
{
    return (volatile uint8_t *)(COMB_STATE_TABLE + (address >> COMB_STATE_SHIFT));
}

#endif
