// Memory that every process of a recording shares with the recorder: read by `src/preload/ring.rs`, whose tests compare every number below.
//
// Records lie one behind the other in cells, each with a word of state in front. A record is reserved by changing the state of its first
// cell from free to reserved; that says at once how long it is and whose, so that whoever comes next can move the head on, also when the
// one who reserved was killed in the very next instruction. A free cell's state says for which lap it is free: who has been asleep for a
// lap finds another number than expected, and starts anew.
#ifndef COMB_RING_H
#define COMB_RING_H

#include "../bpf/record.h"

#define RING_MAGIC 0x31676e69726d6f63ull

enum ring_size {
  RING_HEADER_BYTES = 4096,
  RING_NAMED = 65536,  // files whose name has been told, as words; behind the header
  RING_CELL_BYTES = 128,
  RING_CELL_ROOM = 120,  // what is left of one behind its state
};

// Words of the header; those that many write are in lines of their own.
enum ring_word {
  RING_WORD_MAGIC = 0,
  RING_WORD_CELLS = 1,
  RING_WORD_HEAD = 8,
  RING_WORD_LOST = 16,
};

// A state's uppermost bits. Below them a free cell has the position at which the lap starts that it is free for; others have their
// position's lower bits, the thread, and the number of cells.
enum ring_state {
  RING_FREE = 0,
  RING_RESERVED = 1,
  RING_PUBLISHED = 2,
};

enum ring_bits {
  RING_STATE_BIT = 62,
  RING_POSITION_BIT = 32,
  RING_POSITION_BITS = 30,
  RING_THREAD_BIT = 8,
  RING_THREAD_BITS = 24,
};

#endif
