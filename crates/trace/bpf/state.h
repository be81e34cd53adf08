// What the recorder's programs share: their settings, what they remember, and how they tell.
#ifndef COMB_STATE_H
#define COMB_STATE_H

#include "kernel.h"

// Set before loading.
const volatile u32 everybody = 0;    // whether threads are traced that nobody marked
const volatile u32 own_process = 0;  // never traced: it would record its own recording
const volatile u32 has_cast = 0;     // see TYPED

// What is known of a thread between two programs. It is there only for threads that are traced.
struct thread {
  u64 start_ns;           // of the call that it is in; 0 outside
  u64 pages;              // that were read since then
  u64 handle;             // the open file that it dealt with last: its name has been told
  u64 request;            // of a ring, whose asking goes on: pages that come now are for it; 0 without
  struct subject closed;  // what a close closes, or a duplicate replaces, or a change of directory leaves: afterwards nobody knows
  struct identity base;   // the directory that was told last
  struct event fault;     // a fault on a mapped file, told when it is known how many pages it read; `start_ns` is 0 without
};

struct {
  NUMBER(type, MAP_RING);
  NUMBER(max_entries, 64 << 20);  // unless another size is wanted
} ring SECTION(".maps");

struct {
  NUMBER(type, MAP_TASK);
  NUMBER(map_flags, 1);  // no room before it is needed
  TYPE(key, s32);
  TYPE(value, struct thread);
} threads SECTION(".maps");

// Files whose name has been told.
struct {
  NUMBER(type, MAP_LRU_HASH);
  NUMBER(max_entries, 1 << 16);
  TYPE(key, struct identity);
  TYPE(value, u8);
} named SECTION(".maps");

struct {
  NUMBER(type, MAP_PERCPU_ARRAY);
  NUMBER(max_entries, 1);
  TYPE(key, u32);
  TYPE(value, struct counters);
} counts SECTION(".maps");

// What a ring was asked for and has not done yet, by the request's address.
struct request {
  struct event event;
  struct subject closed;  // what a close closes, or a splice reads from
};

// Requests of which nobody hears the end, for they were made so, are forgotten some time.
struct {
  NUMBER(type, MAP_LRU_HASH);
  NUMBER(max_entries, 1 << 13);
  TYPE(key, u64);
  TYPE(value, struct request);
} requests SECTION(".maps");

#define TEXT_ROOM (2 * (sizeof(struct text) + MOST_TEXT_BYTES))

// A record that is being made, and its texts.
struct draft {
  struct event event;
  u8 text[TEXT_ROOM];
};

// One for operations, one for the names that are told before these.
struct {
  NUMBER(type, MAP_PERCPU_ARRAY);
  NUMBER(max_entries, 2);
  TYPE(key, u32);
  TYPE(value, struct draft);
} drafts SECTION(".maps");

enum { DRAFT_OPERATION = 0, DRAFT_NAME = 1 };

#define PAGE_BYTES 4096

INLINE struct counters *counters(void) {
  u32 first = 0;
  return lookup(&counts, &first);
}

INLINE struct draft *draft(u32 which) { return lookup(&drafts, &which); }

INLINE void count_lost(void) {
  struct counters *counted = counters();
  if (counted) counted->lost++;
}

// Whether it got there.
INLINE int tell(struct draft *draft) {
  u64 bytes = draft->event.text_bytes;
  if (bytes > TEXT_ROOM) bytes = TEXT_ROOM;
  int is_lost = output(&ring, draft, sizeof draft->event + bytes, NO_WAKE) != 0;
  struct counters *counted = counters();
  if (counted) {
    if (is_lost)
      counted->lost++;
    else
      counted->recorded++;
  }
  return !is_lost;
}

// Whether pages that come during it are pages that it wanted to read.
INLINE int is_reading(u8 operation) {
  return operation == OPERATION_READ || operation == OPERATION_TRANSFER || operation == OPERATION_LIST ||
         operation == OPERATION_PAGE_IN || operation == OPERATION_EXECUTE;
}

INLINE void count_pages(struct event *event, u64 pages) {
  event->about.pages = pages;
  if (pages && is_reading(event->operation)) event->flags |= FLAG_MISS;
}

// What waited until the thread does something else: a fault on a mapped file, which has been served by now, or the asking of a ring.
INLINE void settle(struct thread *thread) {
  if (thread->fault.start_ns) {
    struct draft *draft_ = draft(DRAFT_OPERATION);
    if (draft_) {
      draft_->event = thread->fault;
      count_pages(&draft_->event, thread->pages);
      tell(draft_);
    }
    thread->fault.start_ns = 0;
  } else if (thread->request) {
    struct request *request = lookup(&requests, &thread->request);
    if (request) request->event.about.pages += thread->pages;
    thread->request = 0;
  }
  thread->pages = 0;
}

INLINE struct thread *traced(struct task_struct *task) {
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread && everybody && (u32)task->tgid != own_process) thread = storage(&threads, task, 0, CREATE);
  return thread;
}

INLINE void begin(struct event *event, struct task_struct *task, u8 operation) {
  __builtin_memset(event, 0, sizeof *event);
  event->operation = operation;
  event->thread = task->pid;
  event->process = task->tgid;
  event->descriptor = -1;
}

#endif
