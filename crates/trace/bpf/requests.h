// What programs ask of the kernel by a ring of io_uring, without a call for each: seen when it is asked, and when it has been done.
#ifndef COMB_REQUESTS_H
#define COMB_REQUESTS_H

#include "calls.h"
#include "texts.h"

enum request_form {
  NO_REQUEST_FORM = 0,
  REQUEST_DATA,
  REQUEST_VECTOR,
  REQUEST_FILE_RANGE,  // a sync's, an allocation's
  REQUEST_ADVICE,
  REQUEST_LENGTH,
  REQUEST_CLOSE,
  REQUEST_SPLICE,
  REQUEST_OPEN,
  REQUEST_STATUS,
  REQUEST_DELETE,
  REQUEST_MAKE_DIRECTORY,
  REQUEST_RENAME,
  REQUEST_SYMBOLIC_LINK,
  REQUEST_LINK,
};

#define REQUESTS 64
#define ROW(number, what, how) [number] = {OPERATION_##what, REQUEST_##how}

static const struct call_row requests_by_number[REQUESTS] = {
    ROW(1, READ, VECTOR),       ROW(2, WRITE, VECTOR),          ROW(3, SYNC, FILE_RANGE),
    ROW(4, READ, DATA),         ROW(5, WRITE, DATA),            ROW(8, SYNC, FILE_RANGE),
    ROW(17, ALLOCATE, FILE_RANGE), ROW(18, OPEN, OPEN),         ROW(19, CLOSE, CLOSE),
    ROW(21, STATUS, STATUS),    ROW(22, READ, DATA),            ROW(23, WRITE, DATA),
    ROW(24, ADVISE, ADVICE),    ROW(28, OPEN, OPEN),            ROW(30, TRANSFER, SPLICE),
    ROW(35, RENAME, RENAME),    ROW(36, DELETE, DELETE),        ROW(37, MAKE_DIRECTORY, MAKE_DIRECTORY),
    ROW(38, LINK, SYMBOLIC_LINK), ROW(39, LINK, LINK),          ROW(55, TRUNCATE, LENGTH),
};

#undef ROW

#define REQUEST_ALLOCATES 17
#define REQUEST_HAS_FIXED_FILE 1      // its descriptor is an index into a table of the ring's own
#define SPLICE_FROM_FIXED (1u << 31)  // the same for the file that is read
#define THREAD_OF_RING 0x10
#define OPEN_LARGE 0100000  // what the kernel adds by itself

// Longer paths of requests are not kept until these are done: such an event has an empty one.
#define MOST_PATH_OF_REQUEST 512
#define REQUEST_TEXT_ROOM (2 * (sizeof(struct text) + MOST_PATH_OF_REQUEST))

struct request_texts {
  u8 text[REQUEST_TEXT_ROOM];
};

struct {
  NUMBER(type, MAP_LRU_HASH);
  NUMBER(max_entries, 1 << 11);
  TYPE(key, u64);
  TYPE(value, struct request_texts);
} requests_texts SECTION(".maps");

// As `add_text`, of a name that the kernel has read already.
FUNCTION int add_request_text(struct draft *draft, struct thread *thread, s32 directory, u64 filename) {
  if (!draft || !thread) return 0;
  u32 at = draft->event.text_bytes;
  if (at > sizeof(struct text) + MOST_PATH_OF_REQUEST) return 0;
  struct text *text = (void *)(draft->text + at);
  u8 *bytes = draft->text + at + sizeof *text;
  __builtin_memset(text, 0, sizeof *text);
  long length = read_kernel_text(bytes, MOST_PATH_OF_REQUEST, FIELD((struct filename *)filename, name));
  if (length < 0 || length >= MOST_PATH_OF_REQUEST) length = 0;
  if (length > 0) length--;  // its end
  text->bytes = length;
  if (length > 0 && bytes[0] != '/') base_of(current_task(), thread, directory, &text->base);
  draft->event.text_bytes = at + sizeof *text + length;
  return length;
}

SECTION("tp_btf/io_uring_submit_req") int request_begins(u64 *context) {
  struct io_kiocb *asked = (void *)context[0];
  struct task_struct *task = current_task();
  struct thread *thread = traced(task);
  int is_own = 1;
  if (!thread && task->flags & THREAD_OF_RING) {
    // It takes requests from the ring's memory, for the process that it belongs to.
    thread = storage(&threads, task->group_leader, 0, 0);
    is_own = 0;
  }
  if (!thread) return 0;
  if (is_own && !thread->start_ns) settle(thread);
  u8 number = asked->opcode;
  if (number >= REQUESTS) return 0;
  struct call_row row = requests_by_number[number & (REQUESTS - 1)];
  if (row.form == NO_REQUEST_FORM) return 0;
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  struct event *event = &draft_->event;
  u64 key = (u64)asked;
  begin(event, task, row.operation);
  event->flags = FLAG_IO_URING;
  struct subject closed = {};
  if (!(asked->flags & REQUEST_HAS_FIXED_FILE)) event->descriptor = asked->cqe.fd;
  switch (row.form) {
  case REQUEST_DATA:
  case REQUEST_VECTOR: {
    struct io_rw *how = TYPED((struct io_rw *)asked);
    event->about.offset = FAST(how, kiocb.ki_pos);
    event->asked = FAST(how, len);
    if (event->about.offset != (u64)-1) event->flags |= FLAG_POSITIONAL;
    if (row.form == REQUEST_VECTOR) {
      event->flags |= FLAG_VECTOR;
      event->asked = vector_bytes(FAST(how, addr), event->asked);
    }
    break;
  }
  case REQUEST_FILE_RANGE: {
    struct io_sync *how = TYPED((struct io_sync *)asked);
    event->about.offset = FAST(how, off);
    event->asked = FAST(how, len);
    event->argument = number == REQUEST_ALLOCATES ? FAST(how, mode) : FAST(how, flags);
    break;
  }
  case REQUEST_ADVICE: {
    struct io_fadvise *how = TYPED((struct io_fadvise *)asked);
    event->about.offset = FAST(how, offset);
    event->asked = FAST(how, len);
    event->argument = FAST(how, advice);
    break;
  }
  case REQUEST_LENGTH: event->asked = FIELD((struct io_ftrunc *)asked, len); break;
  case REQUEST_CLOSE: {
    struct io_close *how = TYPED((struct io_close *)asked);
    event->descriptor = FAST(how, fd);
    if (FAST(how, file_slot) || !describe(&closed, file_of(task, event->descriptor))) return 0;
    break;
  }
  case REQUEST_SPLICE: {
    struct io_splice *how = TYPED((struct io_splice *)asked);
    event->asked = FAST(how, len);
    event->argument = FAST(how, off_in);
    event->about.offset = FAST(how, off_out);
    s32 input = FAST(how, splice_fd_in);
    if (!(FAST(how, flags) & SPLICE_FROM_FIXED)) describe(&closed, file_of(task, input));
    closed.pages = input;
    break;
  }
  case REQUEST_OPEN: {
    struct io_open *how = TYPED((struct io_open *)asked);
    event->argument = FAST(how, how.flags) & ~OPEN_LARGE;
    event->descriptor = -1;
    add_request_text(draft_, thread, FAST(how, dfd), (u64)FIELD(how, filename));
    break;
  }
  case REQUEST_STATUS: {
    struct io_statx *how = TYPED((struct io_statx *)asked);
    event->argument = FAST(how, flags);
    event->descriptor = -1;
    s32 directory = FAST(how, dfd);
    if (!add_request_text(draft_, thread, directory, (u64)FIELD(how, filename))) event->descriptor = directory;
    break;
  }
  case REQUEST_DELETE: {
    struct io_unlink *how = TYPED((struct io_unlink *)asked);
    event->argument = FAST(how, flags);
    event->descriptor = -1;
    add_request_text(draft_, thread, FAST(how, dfd), (u64)FIELD(how, filename));
    break;
  }
  case REQUEST_MAKE_DIRECTORY: {
    struct io_mkdir *how = TYPED((struct io_mkdir *)asked);
    event->argument = FAST(how, mode);
    event->descriptor = -1;
    add_request_text(draft_, thread, FAST(how, dfd), (u64)FIELD(how, filename));
    break;
  }
  case REQUEST_RENAME: {
    struct io_rename *how = TYPED((struct io_rename *)asked);
    event->argument = FAST(how, flags);
    event->descriptor = -1;
    add_request_text(draft_, thread, FAST(how, old_dfd), (u64)FIELD(how, oldpath));
    add_request_text(draft_, thread, FAST(how, new_dfd), (u64)FIELD(how, newpath));
    break;
  }
  case REQUEST_LINK:
  case REQUEST_SYMBOLIC_LINK: {
    struct io_link *how = TYPED((struct io_link *)asked);
    event->descriptor = -1;
    if (row.form == REQUEST_LINK) {
      event->argument = FAST(how, flags);
      add_request_text(draft_, thread, FAST(how, old_dfd), (u64)FIELD(how, oldpath));
    }
    add_request_text(draft_, thread, FAST(how, new_dfd), (u64)FIELD(how, newpath));
    break;
  }
  default: return 0;
  }
  struct request request;
  event->start_ns = now_ns();
  request.event = *event;
  request.closed = closed;
  if (update(&requests, &key, &request, ANY)) {
    count_lost();
    return 0;
  }
  if (event->text_bytes) update(&requests_texts, &key, draft_->text, ANY);
  if (is_own && !thread->start_ns) thread->request = key;
  return 0;
}

// Tells what a request has done. All has been said that the request itself knew; of its file, what it is now.
FUNCTION int request_is_done(u64 key, s64 result) {
  struct request *request = lookup(&requests, &key);
  if (!request) return 0;
  struct task_struct *task = current_task();
  struct thread *thread = storage(&threads, task, 0, 0);
  if (thread && thread->request == key && !thread->start_ns) settle(thread);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  struct event *event = &draft_->event;
  *event = request->event;
  struct subject closed = request->closed;
  forget(&requests, &key);
  if (event->text_bytes) {
    struct request_texts *texts = lookup(&requests_texts, &key);
    if (texts)
      read_kernel(draft_->text, sizeof *texts, texts);
    else
      event->text_bytes = 0;
    forget(&requests_texts, &key);
  }
  event->result = result;
  event->duration_ns = now_ns() - event->start_ns;
  count_pages(event, event->about.pages);
  u64 offset = event->about.offset;
  u32 pages = event->about.pages;
  s64 moved = result > 0 ? result : 0;
  struct file *file = 0;
  switch (event->operation) {
  case OPERATION_CLOSE:
    event->about = closed;
    break;
  case OPERATION_OPEN:
    if (result < 0) break;
    event->descriptor = result;
    if ((u32)task->tgid == event->process) file = file_of(task, result);
    if (describe(&event->about, file)) {
      int is_new = (FIELD(file, f_mode) & MODE_CREATED) != 0;
      if (is_new) event->flags |= FLAG_CREATED;
      is_told_of(&event->about, file, is_new);
      event->text_bytes = 0;
    } else {
      event->flags |= FLAG_NO_FILE;
    }
    break;
  case OPERATION_STATUS:
    if (event->descriptor == -1) break;
    if ((u32)task->tgid == event->process && event->descriptor >= 0) file = file_of(task, event->descriptor);
    if (!describe(&event->about, file)) return 0;
    break;
  case OPERATION_TRANSFER: {
    s32 output = event->descriptor;
    u64 offset_in = event->argument;
    event->argument = 0;
    if (closed.handle) {
      event->descriptor = closed.pages;
      event->about = closed;
      event->about.pages = pages;
      if (offset_in != (u64)-1) {
        event->about.offset = offset_in;
        event->flags |= FLAG_POSITIONAL;
      }
      tell(draft_);
    }
    event->flags = FLAG_IO_URING | FLAG_SECOND;
    event->descriptor = output;
    file = FIELD((struct io_kiocb *)key, file);
    if (!describe(&event->about, file)) return 0;
    if (offset != (u64)-1) {
      event->about.offset = offset;
      event->flags |= FLAG_POSITIONAL;
    } else {
      event->about.offset -= moved;
    }
    event->about.pages = 0;
    break;
  }
  case OPERATION_RENAME:
  case OPERATION_DELETE:
  case OPERATION_MAKE_DIRECTORY:
  case OPERATION_LINK: break;
  default:
    file = FIELD((struct io_kiocb *)key, file);
    if (!describe(&event->about, file)) return 0;
    is_told_of(&event->about, file, 0);
    if (event->flags & FLAG_POSITIONAL || (event->operation != OPERATION_READ && event->operation != OPERATION_WRITE))
      event->about.offset = event->operation == OPERATION_TRUNCATE ? event->about.offset : offset;
    else
      event->about.offset -= moved;
    break;
  }
  tell(draft_);
  return 0;
}

SECTION("tp_btf/io_uring_complete") int request_ends(u64 *context) {
  struct io_uring_cqe *done = (void *)context[2];
  return context[1] ? request_is_done(context[1], done->res) : 0;
}

// As kernels before 6.10 tell it.
SECTION("tp_btf/io_uring_complete") int request_ends_in_numbers(u64 *context) {
  return context[1] ? request_is_done(context[1], (s32)context[3]) : 0;
}

#endif
