// Records every file operation, in the kernel: what a call was asked when it returns, with the file as it then is.
//
// Two programs see every system call, and leave at once if it is none of a file, or its thread not one that is traced. All else hangs on
// tracepoints that few calls reach. Nothing here waits, and nothing here fails a call: what does not fit in the ring is counted as lost.

#include "calls.h"
#include "files.h"
#include "pages.h"
#include "processes.h"
#include "requests.h"
#include "texts.h"

char terms[] SECTION("license") = "GPL";  // the kernel lends some of its functions to no others

#define CALL_OF_OTHER_WORDS 0x40000000  // a 64-bit program's, with 32-bit addresses
#define STATUS_32_BIT 2                  // of a thread that is in a call by a 32-bit program's way, whatever its program is

#define MAP_WITHOUT_FILE 0x20
#define LINK_ITSELF 0x100
#define WRITE_APPENDS 0x10  // of a single write, and that it does not although the file is open so
#define WRITE_APPENDS_NOT 0x20
#define OPEN_OF_CREATE (01 | 0100 | 01000)

// Results that no program sees: the call is made again, or was interrupted after all.
#define FIRST_RESTART 512
#define LAST_RESTART 516
#define INTERRUPTED 4

// A call that was not understood.
FUNCTION int count_foreign(void) {
  struct task_struct *task = current_task();
  if (!traced(task)) return 0;
  struct counters *counted = counters();
  if (counted) counted->foreign++;
  return 0;
}

SECTION("tp_btf/sys_enter") int call_begins(u64 *context) {
  struct pt_regs *registers = (void *)context[0];
  u64 number = context[1];
  struct task_struct *task = current_task();
  if (task->thread_info.status & STATUS_32_BIT) return count_foreign();
  if (number >= CALLS) return number & CALL_OF_OTHER_WORDS ? count_foreign() : 0;
  u8 form = calls_by_number[number & (CALLS - 1)].form;
  if (form == NO_FORM) return 0;
  struct thread *thread = traced(task);
  if (!thread) return 0;
  settle(thread);
  switch (form) {
  case FORM_CLOSE:
    if (!describe(&thread->closed, file_of(task, registers->di))) return 0;
    break;
  case FORM_REPLACE:
  case FORM_REPLACE_FLAGS:
    if (!describe(&thread->closed, file_of(task, registers->si))) thread->closed.handle = 0;
    break;
  case FORM_GO: {
    struct dentry *entry = working_directory(task);
    identify(FAST(entry, d_inode), &thread->closed.file);
    tell_working_directory(task, &thread->closed.file);
    break;
  }
  default: break;
  }
  thread->start_ns = now_ns();
  return 0;
}

#define FCNTL_DUPLICATE 0
#define FCNTL_DUPLICATE_CLOSING 1030
#define OPEN_CLOSING 02000000

// Commands whose argument is a number: the others' is an address, or there is none.
#define FCNTL_NUMBERS (1ul << 0 | 1ul << 2 | 1ul << 4 | 1ul << 8 | 1ul << 10)
#define FCNTL_LINUX 1024
#define FCNTL_LINUX_NUMBERS (1ul << 0 | 1ul << 2 | 1ul << 6 | 1ul << 7 | 1ul << 9)

// Locks and duplicates are commands among others.
INLINE void be_command(struct event *event, u64 command, u64 argument) {
  event->argument = command;
  u64 numbers = command < 64 ? FCNTL_NUMBERS >> command
                : command >= FCNTL_LINUX && command < FCNTL_LINUX + 64 ? FCNTL_LINUX_NUMBERS >> (command - FCNTL_LINUX) : 0;
  if (numbers & 1) event->asked = argument;
  switch (command) {
  case FCNTL_DUPLICATE:
  case FCNTL_DUPLICATE_CLOSING:
    event->operation = OPERATION_DUPLICATE;
    event->argument = argument;
    event->asked = command == FCNTL_DUPLICATE ? 0 : OPEN_CLOSING;
    break;
  case 5:
  case 6:
  case 7:
  case 36:
  case 37:
  case 38: event->operation = OPERATION_LOCK; break;
  default: break;
  }
}

// Where in a file it was.
enum placing {
  PLACE_OF_FILE,   // where the file's position is
  PLACE_BEHIND,    // the position was there, and has moved along
  PLACE_GIVEN,
};

// An offset that a transfer was given by its address, and that has moved on by as much as was moved.
INLINE u8 place_of(u64 address, s64 result, u64 *offset) {
  if (!address) return PLACE_BEHIND;
  read_user(offset, sizeof *offset, (void *)address);
  if (result > 0) *offset -= result;
  return PLACE_GIVEN;
}

INLINE void place(struct event *event, u8 placing, u64 offset, struct file *file) {
  s64 moved = event->result > 0 ? event->result : 0;
  if (placing == PLACE_BEHIND) event->about.offset -= moved;
  if (placing != PLACE_GIVEN) return;
  event->about.offset = offset;
  if (event->operation == OPERATION_TRANSFER) event->flags |= FLAG_POSITIONAL;
  if (event->operation != OPERATION_WRITE || !moved) return;
  // What is appended is appended, whatever the offset says.
  int appends = FIELD(file, f_flags) & OPEN_APPENDS && !(event->argument & WRITE_APPENDS_NOT);
  if (appends || event->argument & WRITE_APPENDS) event->about.offset = event->about.size - moved;
}

// What is left of a call when its arguments have been understood.
struct ending {
  u64 first, second;  // of its arguments
  u64 offset, other_offset;
  s32 descriptor;     // whose file the event is about
  s32 other;          // a transfer's output
  u8 form;
  u8 has_descriptor, has_other;
  u8 placing, other_placing;
};

// Tells it. Apart from the rest, the checker looks at it once, and not once for each form.
FUNCTION int finish(struct draft *draft, struct thread *thread, struct ending *ending) {
  if (!draft || !thread || !ending) return 0;
  struct event *event = &draft->event;
  struct task_struct *task = current_task();
  // An empty path can mean the working directory. If it fails, it does not mean anything.
  if (ending->has_descriptor && ending->descriptor == WORKING_DIRECTORY && draft->event.text_bytes) {
    ending->has_descriptor = 0;
    if (event->result >= 0) {
      describe_working_directory(&event->about, task);
      tell_working_directory(task, &event->about.file);
    }
  }
  int is_told = 1;
  if (ending->has_descriptor) {
    event->descriptor = ending->descriptor;
    struct file *file = file_of(task, ending->descriptor);
    if (describe(&event->about, file)) {
      int is_new = 0;
      if (event->operation == OPERATION_OPEN && FIELD(file, f_mode) & MODE_CREATED) {
        event->flags |= FLAG_CREATED;
        is_new = 1;
      }
      if (event->about.handle != thread->handle || event->operation == OPERATION_OPEN)
        thread->handle = is_told_of(&event->about, file, is_new) ? event->about.handle : 0;
      place(event, ending->placing, ending->offset, file);
    } else if (event->operation == OPERATION_OPEN) {
      event->flags |= FLAG_NO_FILE;
      if (ending->form == FORM_OPEN || ending->form == FORM_CREATE)
        add_text(draft, thread, WORKING_DIRECTORY, ending->first);
      else if (ending->form != FORM_OPEN_HANDLE)
        add_text(draft, thread, ending->first, ending->second);
    } else if ((ending->form == FORM_REPLACE || ending->form == FORM_REPLACE_FLAGS) && thread->closed.handle && event->result >= 0) {
      event->flags |= FLAG_NO_FILE;
    } else {
      is_told = 0;
    }
  }
  if (is_told) tell(draft);
  if (ending->has_other) {
    event->descriptor = ending->other;
    event->flags = FLAG_SECOND;
    __builtin_memset(&event->about, 0, sizeof event->about);
    struct file *file = file_of(task, ending->other);
    if (!describe(&event->about, file)) return 0;
    place(event, ending->other_placing, ending->other_offset, file);
    tell(draft);
  }
  return 0;
}

SECTION("tp_btf/sys_exit") int call_ends(u64 *context) {
  struct pt_regs *registers = (void *)context[0];
  s64 result = context[1];
  u64 number = registers->orig_ax;
  if (number >= CALLS) return 0;
  struct call_row row = calls_by_number[number & (CALLS - 1)];
  if (row.form == NO_FORM) return 0;
  struct task_struct *task = current_task();
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread || !thread->start_ns) return 0;
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  struct event *event = &draft_->event;
  u64 first = registers->di, second = registers->si, third = registers->dx, fourth = registers->r10;
  begin(event, task, row.operation);
  event->start_ns = thread->start_ns;
  event->duration_ns = now_ns() - thread->start_ns;
  event->result = result <= -FIRST_RESTART && result >= -LAST_RESTART ? -INTERRUPTED : result;
  u64 pages = thread->pages;
  thread->start_ns = 0;
  thread->pages = 0;

  struct ending ending = {};
  ending.form = row.form;
  ending.first = first;
  ending.second = second;
  ending.has_descriptor = 1;
  ending.descriptor = first;
  ending.placing = PLACE_OF_FILE;
  ending.other_placing = PLACE_BEHIND;
  switch (row.form) {
  case FORM_DATA:
    event->asked = third;
    // Directories have positions of their own.
    if (row.operation != OPERATION_LIST) ending.placing = PLACE_BEHIND;
    break;
  case FORM_VECTOR:
    event->asked = vector_bytes(second, third);
    event->flags |= FLAG_VECTOR;
    ending.placing = PLACE_BEHIND;
    break;
  case FORM_POSITIONAL:
    event->asked = third;
    event->flags |= FLAG_POSITIONAL;
    ending.placing = PLACE_GIVEN;
    ending.offset = fourth;
    break;
  case FORM_VECTOR_FLAGS: event->argument = registers->r9; __attribute__((fallthrough));
  case FORM_VECTOR_POSITIONAL:
    event->asked = vector_bytes(second, third);
    event->flags |= FLAG_VECTOR;
    if (row.form == FORM_VECTOR_FLAGS && fourth == (u64)-1) {
      ending.placing = PLACE_BEHIND;
    } else {
      event->flags |= FLAG_POSITIONAL;
      ending.placing = PLACE_GIVEN;
      ending.offset = fourth;
    }
    break;
  case FORM_DUPLICATE:
  case FORM_DESCRIPTOR: break;
  case FORM_ARGUMENTS: event->asked = third; __attribute__((fallthrough));
  case FORM_ARGUMENT: event->argument = second; break;
  case FORM_COMMAND: be_command(event, second, third); break;
  case FORM_REPLACE_FLAGS: event->asked = third; __attribute__((fallthrough));
  case FORM_REPLACE: event->argument = second; break;
  case FORM_RANGE: event->argument = fourth; __attribute__((fallthrough));
  case FORM_STRETCH:
    event->asked = third;
    ending.placing = PLACE_GIVEN;
    ending.offset = second;
    break;
  case FORM_ALLOCATE:
    event->argument = second;
    event->asked = fourth;
    ending.placing = PLACE_GIVEN;
    ending.offset = third;
    break;
  case FORM_LENGTH: event->asked = second; break;
  case FORM_CLOSE:
    ending.has_descriptor = 0;
    event->descriptor = first;
    event->about = thread->closed;
    break;
  case FORM_CLOSE_RANGE:
    ending.has_descriptor = 0;
    event->descriptor = first;
    event->argument = second;
    event->asked = third;
    break;
  case FORM_MAP:
    if (fourth & MAP_WITHOUT_FILE) return 0;
    ending.descriptor = registers->r8;
    event->asked = second;
    event->argument = third | fourth << 32;
    // Where it is in memory is of no concern.
    if (result > 0) event->result = 0;
    ending.placing = PLACE_GIVEN;
    ending.offset = registers->r9;
    break;
  case FORM_SEND:
    ending.descriptor = second;
    ending.placing = place_of(third, result, &ending.offset);
    ending.has_other = 1;
    ending.other = first;
    event->asked = fourth;
    break;
  case FORM_SPLICE:
    ending.placing = place_of(second, result, &ending.offset);
    ending.has_other = 1;
    ending.other = third;
    ending.other_placing = place_of(fourth, result, &ending.other_offset);
    event->asked = registers->r8;
    break;
  case FORM_OPEN:
    event->argument = second;
    ending.descriptor = result;
    if (result < 0) {
      ending.has_descriptor = 0;
      add_text(draft_, thread, WORKING_DIRECTORY, first);
    }
    break;
  case FORM_CREATE:
    event->argument = OPEN_OF_CREATE;
    ending.descriptor = result;
    if (result < 0) {
      ending.has_descriptor = 0;
      add_text(draft_, thread, WORKING_DIRECTORY, first);
    }
    break;
  case FORM_OPEN_HOW:
  case FORM_OPEN_AT:
    event->argument = third;
    if (row.form == FORM_OPEN_HOW && read_user(&event->argument, sizeof event->argument, (void *)third)) event->argument = 0;
    ending.descriptor = result;
    if (result < 0) {
      ending.has_descriptor = 0;
      add_text(draft_, thread, first, second);
    }
    break;
  case FORM_OPEN_HANDLE:
    event->argument = third;
    ending.descriptor = result;
    ending.has_descriptor = result >= 0;
    break;
  case FORM_PATH_ARGUMENTS: event->asked = third; __attribute__((fallthrough));
  case FORM_PATH_ARGUMENT: event->argument = second; __attribute__((fallthrough));
  case FORM_PATH:
    ending.has_descriptor = 0;
    add_text(draft_, thread, WORKING_DIRECTORY, first);
    break;
  case FORM_PATH_ITSELF:
    ending.has_descriptor = 0;
    event->argument = LINK_ITSELF;
    add_text(draft_, thread, WORKING_DIRECTORY, first);
    break;
  case FORM_PATH_LENGTH:
    ending.has_descriptor = 0;
    event->asked = second;
    add_text(draft_, thread, WORKING_DIRECTORY, first);
    break;
  case FORM_GO:
    ending.has_descriptor = 0;
    add_text(draft_, thread, DEPARTED_DIRECTORY, first);
    if (result == 0) describe_working_directory(&event->about, task);
    break;
  case FORM_PATH_AT_ARGUMENTS: event->asked = fourth; __attribute__((fallthrough));
  case FORM_PATH_AT_ARGUMENT: event->argument = third; __attribute__((fallthrough));
  case FORM_PATH_AT: ending.has_descriptor = !add_text(draft_, thread, first, second); break;
  case FORM_PATH_AT_FLAGS:
    event->argument = fourth;
    ending.has_descriptor = !add_text(draft_, thread, first, second);
    break;
  case FORM_SECOND_PATH:
    ending.has_descriptor = 0;
    add_text(draft_, thread, WORKING_DIRECTORY, second);
    break;
  case FORM_SECOND_PATH_AT:
    ending.has_descriptor = 0;
    add_text(draft_, thread, second, third);
    break;
  case FORM_PATHS:
    ending.has_descriptor = 0;
    add_text(draft_, thread, WORKING_DIRECTORY, first);
    add_text(draft_, thread, WORKING_DIRECTORY, second);
    break;
  case FORM_PATHS_AT_FLAGS: event->argument = registers->r8; __attribute__((fallthrough));
  case FORM_PATHS_AT:
    ending.has_descriptor = !add_text(draft_, thread, first, second);
    add_text(draft_, thread, third, fourth);
    break;
  case FORM_EXECUTE:
    if (result >= 0) return 0;  // told when it happened: nothing of the call is left
    ending.has_descriptor = 0;
    add_text(draft_, thread, WORKING_DIRECTORY, first);
    break;
  case FORM_EXECUTE_AT:
    if (result >= 0) return 0;
    ending.has_descriptor = !add_text(draft_, thread, first, second);
    break;
  default: ending.has_descriptor = 0; break;
  }

  count_pages(event, pages);
  return finish(draft_, thread, &ending);
}
