// Puts records into the memory that is shared with the recorder. Nobody waits here: what finds no room is counted.

#include "preload.h"

// Each try that fails means that another process has got on. Only a ring that somebody has scribbled over has no end of them.
#define MOST_TRIES 10000

static u64 *header;
static u64 *named;
static u8 *cells;
static u64 cell_count;

// Takes a mapped ring into use, if it is one.
int has_ring(void *memory, u64 bytes) {
  u64 *words = memory;
  u64 before = RING_HEADER_BYTES + RING_NAMED * sizeof(u64);
  if (bytes <= before || words[RING_WORD_MAGIC] != RING_MAGIC) return 0;
  u64 count = words[RING_WORD_CELLS];
  if (!count || count & (count - 1) || count > (bytes - before) / RING_CELL_BYTES) return 0;
  header = words;
  named = words + RING_HEADER_BYTES / sizeof(u64);
  cells = (u8 *)memory + before;
  cell_count = count;
  return 1;
}

INLINE u64 *cell_at(u64 position) { return (u64 *)(cells + (position & (cell_count - 1)) * RING_CELL_BYTES); }

INLINE u64 state_word(u64 state, u64 position, u64 thread, u64 count) {
  return state << RING_STATE_BIT | (position & ((1ull << RING_POSITION_BITS) - 1)) << RING_POSITION_BIT |
         (thread & ((1u << RING_THREAD_BITS) - 1)) << RING_THREAD_BIT | count;
}

// What stands in a free cell: where its lap starts. Memory that nobody has touched is free for the first.
INLINE u64 free_word(u64 position) { return position & ~(cell_count - 1); }

INLINE int exchange(u64 *word, u64 expected, u64 wanted) {
  return __atomic_compare_exchange_n(word, &expected, wanted, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

INLINE u64 load(u64 *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

// Reserves so many cells for the thread. Whether it did, and where.
static int reserve(u64 count, u64 thread, u64 *position) {
  for (u32 tries = 0; tries < MOST_TRIES; tries++) {
    u64 head = load(header + RING_WORD_HEAD);
    // They become free in their order: if the last is, all are.
    u64 last = head + count - 1;
    if (load(cell_at(last)) == free_word(last)) {
      u64 state = state_word(RING_RESERVED, head, thread, count);
      if (exchange(cell_at(head), free_word(head), state)) {
        exchange(header + RING_WORD_HEAD, head, head + count);
        *position = head;
        return 1;
      }
    }
    u64 state = load(cell_at(head));
    if (state >> RING_STATE_BIT == RING_FREE) {
      // Free, and yet there was no room behind it; or not free for this lap. If the head is still there, the ring is full.
      if (load(header + RING_WORD_HEAD) == head) return 0;
      continue;
    }
    u64 below = (1ull << RING_POSITION_BITS) - 1;
    if ((state >> RING_POSITION_BIT & below) != (head & below)) {
      if (load(header + RING_WORD_HEAD) == head) return 0;
      continue;
    }
    // Somebody has reserved it and has not moved the head yet, or never will.
    exchange(header + RING_WORD_HEAD, head, head + (state & ((1u << RING_THREAD_BIT) - 1)));
  }
  return 0;
}

// Where the next byte of a record goes.
struct pen {
  u64 position;
  u32 used;
};

static void write_down(struct pen *pen, const void *from, u32 bytes) {
  const u8 *next = from;
  while (bytes) {
    if (pen->used == RING_CELL_ROOM) {
      pen->used = 0;
      pen->position++;
    }
    u32 part = RING_CELL_ROOM - pen->used;
    if (part > bytes) part = bytes;
    memcpy((u8 *)cell_at(pen->position) + sizeof(u64) + pen->used, next, part);
    pen->used += part;
    next += part;
    bytes -= part;
  }
}

int put(struct event *event, const struct path *paths, u32 count) {
  u32 bytes = 0;
  for (u32 each = 0; each < count; each++) bytes += sizeof(struct text) + paths[each].bytes;
  event->text_bytes = bytes;
  u64 wanted = (sizeof *event + bytes + RING_CELL_ROOM - 1) / RING_CELL_ROOM;
  u64 position;
  if (!reserve(wanted, event->thread, &position)) {
    __atomic_fetch_add(header + RING_WORD_LOST, 1, __ATOMIC_RELAXED);
    return 0;
  }
  struct pen pen = {position, 0};
  write_down(&pen, event, sizeof *event);
  for (u32 each = 0; each < count; each++) {
    struct text text = {paths[each].base, paths[each].bytes, 0};
    write_down(&pen, &text, sizeof text);
    write_down(&pen, paths[each].text, paths[each].bytes);
  }
  // If that fails, the recorder has taken this thread for dead, and has counted the record.
  return exchange(cell_at(position), state_word(RING_RESERVED, position, event->thread, wanted),
                  state_word(RING_PUBLISHED, position, event->thread, wanted));
}

INLINE u64 mixed(const struct identity *file) {
  u64 mixed = (file->inode ^ (u64)file->device << 40 ^ (u64)file->generation << 20) * 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
  return (mixed ^ mixed >> 32) | 1;
}

// Whether some process has told the file's name. Of two that share a word each makes the other be told again.
int is_named(const struct identity *file) {
  u64 mark = mixed(file);
  return __atomic_load_n(named + (mark >> 1) % RING_NAMED, __ATOMIC_RELAXED) == mark;
}

void set_named(const struct identity *file) {
  u64 mark = mixed(file);
  __atomic_store_n(named + (mark >> 1) % RING_NAMED, mark, __ATOMIC_RELAXED);
}
