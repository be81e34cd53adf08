// What programs hand over as texts and lists. It is read when the call has been done: the kernel has read it by then, and it is in memory.
#ifndef COMB_TEXTS_H
#define COMB_TEXTS_H

#include "files.h"

// Where a thread was before it went elsewhere.
#define DEPARTED_DIRECTORY (-101)

// Puts a path of the program's behind what is there, with the directory that it starts from; the number of its bytes, 0 if it is empty or
// cannot be read.
FUNCTION int add_text(struct draft *draft, struct thread *thread, s32 directory, u64 path) {
  if (!draft || !thread) return 0;
  u32 at = draft->event.text_bytes;
  if (at > sizeof(struct text) + MOST_TEXT_BYTES) return 0;
  struct text *text = (void *)(draft->text + at);
  u8 *bytes = draft->text + at + sizeof *text;
  __builtin_memset(text, 0, sizeof *text);
  long length = read_user_text(bytes, MOST_TEXT_BYTES, (void *)path);
  if (length < 0) length = 0;
  if (length > MOST_TEXT_BYTES) length = MOST_TEXT_BYTES;
  if (length > 0) length--;  // its end
  text->bytes = length;
  if (length > 0 && bytes[0] != '/') {
    if (directory == DEPARTED_DIRECTORY)
      text->base = thread->closed.file;
    else
      base_of(current_task(), thread, directory, &text->base);
  }
  draft->event.text_bytes = at + sizeof *text + length;
  return length;
}

#define FEW_PARTS 8
#define MOST_PARTS 1024

struct part {
  u64 at, bytes;
};

struct parts {
  u64 vector;
  u64 asked;
};

static long add_part(u32 number, struct parts *parts) {
  struct part part = {};
  if (read_user(&part, sizeof part, (void *)(parts->vector + number * sizeof part))) return 1;
  parts->asked += part.bytes;
  return 0;
}

// The bytes that a vector asks for.
FUNCTION u64 vector_bytes(u64 vector, u64 parts) {
  if (parts > MOST_PARTS) return 0;
  if (parts > FEW_PARTS) {
    struct parts all = {vector, 0};
    repeat(parts, add_part, &all, 0);
    return all.asked;
  }
  struct part part[FEW_PARTS] = {};
  u64 asked = 0;
  if (read_user(part, sizeof part[0] * parts, (void *)vector)) return 0;
  for (u32 each = 0; each < FEW_PARTS; each++) asked += part[each].bytes;
  return asked;
}

#endif
