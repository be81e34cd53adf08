// Records every file operation, in the kernel: what a call was asked when it returns, with the file as it then is.
//
// Two programs see every system call, and leave at once if it is none of a file, or its thread not one that is traced. All else hangs on
// tracepoints that few calls reach. Nothing here waits, and nothing here fails a call: what does not fit in the ring is counted as lost.

#include "calls.h"
#include "kernel.h"

char terms[] SECTION("license") = "GPL";  // the kernel lends some of its functions to no others

// Set before loading.
const volatile u32 everybody = 0;      // whether threads are traced that nobody marked
const volatile u32 own_process = 0;    // never traced: it would record its own recording
const volatile u32 has_cast = 0;       // see TYPED
const volatile u32 head_flag = 0;      // the bit of a page's flags that says that it is the first of several

// What is known of a thread between two programs. It is there only for threads that are traced.
struct thread {
  u64 start_ns;           // of the call that it is in; 0 outside
  u64 pages;              // that were read since then
  struct subject closed;  // what a close closes: afterwards nobody knows
  struct identity base;   // the directory that was told last
  struct event fault;     // a fault on a mapped file, told when it is known how many pages it read; `start_ns` is 0 without
};

struct {
  NUMBER(type, MAP_RING);
  NUMBER(max_entries, 64 << 20);
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

enum {
  TYPE_MASK = 0170000,
  TYPE_DIRECTORY = 0040000,
  TYPE_BLOCK = 0060000,
  TYPE_REGULAR = 0100000,
  TYPE_LINK = 0120000,
};

#define MOST_NAME_BYTES 256
#define MOST_PARTS_OF_NAME 128
#define WORKING_DIRECTORY (-100)
#define MODE_CREATED 0x100000
#define PAGE_BYTES 4096
#define USER_CODE_64 0x33

INLINE struct counters *counters(void) {
  u32 first = 0;
  return lookup(&counts, &first);
}

INLINE struct draft *draft(u32 which) { return lookup(&drafts, &which); }

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

INLINE int is_file(u32 mode) {
  u32 type = mode & TYPE_MASK;
  return type == TYPE_REGULAR || type == TYPE_DIRECTORY || type == TYPE_BLOCK || type == TYPE_LINK;
}

// Of an inode that was come by along pointers that the kernel's checker knows.
INLINE void identify(struct inode *inode, struct identity *identity) {
  struct super_block *system = FAST(inode, i_sb);
  identity->inode = FAST(inode, i_ino);
  identity->generation = FAST(inode, i_generation);
  identity->device = FAST(system, s_dev);
}

INLINE int same(const struct identity *one, const struct identity *other) {
  return one->inode == other->inode && one->device == other->device && one->generation == other->generation;
}

// The file behind a descriptor of the running thread, or nothing.
INLINE struct file *file_of(struct task_struct *task, s32 descriptor) {
  struct fdtable *table = task->files->fdt;
  if (descriptor < 0 || (u32)descriptor >= table->max_fds) return 0;
  struct file *file = 0;
  read_kernel(&file, sizeof file, table->fd + descriptor);
  return file;
}

// What an event says of its file. Zero if there is none, or it is no file but a pipe, a socket, a device.
INLINE int describe(struct subject *about, struct file *open) {
  if (!open) return 0;
  struct file *file = TYPED(open);
  struct inode *inode = FAST(file, f_inode);
  about->mode = FAST(inode, i_mode);
  if (!is_file(about->mode)) return 0;
  about->handle = (u64)open;
  about->size = FAST(inode, i_size);
  about->offset = FAST(file, f_pos);
  identify(inode, &about->file);
  return 1;
}

// Where one is on the way from a file up to the root of what is mounted at the root.
struct walk {
  struct vfsmount *mounted;
  struct dentry *entry;
  u32 bytes;  // that have been written
};

// Writes down one part of a name, or crosses a mount; one when there is nothing above.
static long step_up(u32 number, struct walk *walk) {
  (void)number;
  if (walk->entry == FIELD(walk->mounted, mnt_root)) {
    struct mount *mount = (void *)walk->mounted - __builtin_preserve_field_info(((struct mount *)0)->mnt, 0);
    struct mount *below = FIELD(mount, mnt_parent);
    if (below == mount || !below) return 1;
    walk->entry = FIELD(mount, mnt_mountpoint);
    walk->mounted = __builtin_preserve_access_index(&below->mnt);
    return 0;
  }
  struct dentry *parent = FIELD(walk->entry, d_parent);
  u32 at = walk->bytes;
  struct draft *name = draft(DRAFT_NAME);
  if (parent == walk->entry || !parent || !name || at > MOST_TEXT_BYTES - MOST_NAME_BYTES) return 1;
  long bytes = read_kernel_text(name->text + sizeof(struct text) + at, MOST_NAME_BYTES, FIELD(walk->entry, d_name.name));
  if (bytes <= 0) return 1;
  walk->bytes = at + bytes;
  walk->entry = parent;
  return 0;
}

// Tells a file's name, if that has not been done. Functions like this one are checked once, and not again wherever they are called.
FUNCTION int tell_name(struct identity *file, u64 mounted, u64 entry, u32 mode) {
  if (!file || lookup(&named, file)) return 0;
  struct draft *draft_ = draft(DRAFT_NAME);
  if (!draft_) return 0;
  begin(&draft_->event, current_task(), NOTE_NAME);
  draft_->event.about.file = *file;
  draft_->event.about.mode = mode;
  struct text *text = (void *)draft_->text;
  __builtin_memset(text, 0, sizeof *text);
  struct walk walk = {(void *)mounted, (void *)entry, 0};
  repeat(MOST_PARTS_OF_NAME, step_up, &walk, 0);
  u32 bytes = walk.bytes;
  if (bytes > MOST_TEXT_BYTES) return 0;
  text->bytes = bytes;
  draft_->event.text_bytes = sizeof *text + bytes;
  u8 yes = 1;
  if (tell(draft_)) update(&named, file, &yes, ANY);
  return 0;
}

INLINE void tell_name_of(struct identity *identity, struct file *file, u32 mode) {
  if (lookup(&named, identity)) return;
  tell_name(identity, (u64)FIELD(file, f_path.mnt), (u64)FIELD(file, f_path.dentry), mode);
}

// The directory that a path starts from; its name is told first.
INLINE void base_of(struct task_struct *task, s32 directory, struct identity *base) {
  struct file *file = 0;
  if (directory == WORKING_DIRECTORY) {
    struct dentry *entry = task->fs->pwd.dentry;
    identify(FAST(entry, d_inode), base);
  } else {
    file = file_of(task, directory);
    if (!file) return;
    struct file *typed = TYPED(file);
    identify(FAST(typed, f_inode), base);
  }
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread || same(&thread->base, base)) return;
  thread->base = *base;
  if (directory == WORKING_DIRECTORY)
    tell_name(base, (u64)FIELD(task->fs, pwd.mnt), (u64)FIELD(task->fs, pwd.dentry), TYPE_DIRECTORY);
  else
    tell_name_of(base, file, TYPE_DIRECTORY);
}

// Puts a path of the program's behind what is there; the number of its bytes, 0 if it is empty or cannot be read.
FUNCTION int add_path(s32 directory, u64 path) {
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  u32 at = draft_->event.text_bytes;
  if (at > sizeof(struct text) + MOST_TEXT_BYTES) return 0;
  struct text *text = (void *)(draft_->text + at);
  u8 *bytes = draft_->text + at + sizeof *text;
  __builtin_memset(text, 0, sizeof *text);
  long length = read_user_text(bytes, MOST_TEXT_BYTES, (void *)path);
  if (length < 0) length = 0;
  if (length > MOST_TEXT_BYTES) length = MOST_TEXT_BYTES;
  if (length > 0) length--;  // its end
  text->bytes = length;
  if (length > 0 && bytes[0] != '/') base_of(current_task(), directory, &text->base);
  draft_->event.text_bytes = at + sizeof *text + length;
  return length;
}

#define MOST_PARTS 8

// The bytes that a vector asks for: of longer ones, of its first parts.
INLINE u64 vector_bytes(const void *vector, u64 parts) {
  struct {
    u64 at, bytes;
  } part[MOST_PARTS] = {};
  u64 asked = 0;
  if (parts > MOST_PARTS) parts = MOST_PARTS;
  if (read_user(part, sizeof part[0] * parts, vector)) return 0;
  for (u32 each = 0; each < MOST_PARTS; each++)
    if (each < parts) asked += part[each].bytes;
  return asked;
}

// A fault on a mapped file that has been served by now: the thread does something else.
INLINE void end_fault(struct thread *thread) {
  if (!thread->fault.start_ns) return;
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (draft_) {
    draft_->event = thread->fault;
    draft_->event.about.pages = thread->pages;
    if (thread->pages) draft_->event.flags |= FLAG_MISS;
    tell(draft_);
  }
  thread->fault.start_ns = 0;
  thread->pages = 0;
}

SECTION("tp_btf/sys_enter") int call_begins(u64 *context) {
  struct pt_regs *registers = (void *)context[0];
  u64 number = context[1];
  if (number >= CALLS) return 0;
  u8 form = calls_by_number[number & (CALLS - 1)].form;
  if (form == NO_FORM) return 0;
  struct task_struct *task = current_task();
  struct thread *thread = traced(task);
  if (!thread) return 0;
  if (registers->cs != USER_CODE_64) {
    struct counters *counted = counters();
    if (counted) counted->foreign++;
    return 0;
  }
  end_fault(thread);
  thread->pages = 0;
  if (form == FORM_CLOSE && !describe(&thread->closed, file_of(task, registers->di))) return 0;
  thread->start_ns = now_ns();
  return 0;
}

// Locks are commands among others.
INLINE u8 control_operation(u64 number, u64 command) {
  if (number != 72) return 0;
  switch (command) {
  case 0:
  case 1030: return OPERATION_DUPLICATE;
  case 5:
  case 6:
  case 7:
  case 36:
  case 37:
  case 38: return OPERATION_LOCK;
  default: return 0;
  }
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
  event->result = result;
  event->about.pages = thread->pages;
  if (thread->pages) event->flags = FLAG_MISS;
  thread->start_ns = 0;
  thread->pages = 0;

  s32 descriptor = -1;  // whose file the event is about
  s32 other = -1;       // a transfer's output
  switch (row.form) {
  case FORM_DATA:
    descriptor = first;
    event->asked = third;
    break;
  case FORM_VECTOR:
    descriptor = first;
    event->asked = vector_bytes((void *)second, third);
    event->flags |= FLAG_VECTOR;
    break;
  case FORM_POSITIONAL:
    descriptor = first;
    event->asked = third;
    event->argument = fourth;
    event->flags |= FLAG_POSITIONAL;
    break;
  case FORM_VECTOR_POSITIONAL:
    descriptor = first;
    event->asked = vector_bytes((void *)second, third);
    event->argument = fourth;
    event->flags |= FLAG_VECTOR | (fourth == (u64)-1 ? 0 : FLAG_POSITIONAL);
    break;
  case FORM_DESCRIPTOR: descriptor = first; break;
  case FORM_CONTROL:
    descriptor = first;
    event->argument = second;
    event->asked = third;
    u8 meant = control_operation(number, second);
    if (meant) event->operation = meant;
    break;
  case FORM_RANGE:
    descriptor = first;
    event->argument = fourth;
    event->asked = third;
    break;
  case FORM_ALLOCATE:
    descriptor = first;
    event->argument = second;
    event->asked = fourth;
    break;
  case FORM_LENGTH:
    descriptor = first;
    event->asked = second;
    break;
  case FORM_CLOSE:
    event->descriptor = first;
    event->about = thread->closed;
    break;
  case FORM_CLOSE_RANGE:
    event->descriptor = first;
    event->argument = second;
    event->asked = third;
    break;
  case FORM_MAP:
    descriptor = registers->r8;
    if (descriptor < 0) return 0;
    event->asked = second;
    event->argument = third | fourth << 32;
    break;
  case FORM_SEND:
    descriptor = second;
    other = first;
    event->asked = fourth;
    break;
  case FORM_SPLICE:
    descriptor = first;
    other = third;
    event->asked = registers->r8;
    break;
  case FORM_OPEN:
    event->argument = second;
    if (result < 0)
      add_path(WORKING_DIRECTORY, first);
    else
      descriptor = result;
    break;
  case FORM_CREATE:
    event->argument = 01 | 0100 | 01000;
    if (result < 0)
      add_path(WORKING_DIRECTORY, first);
    else
      descriptor = result;
    break;
  case FORM_OPEN_AT:
  case FORM_OPEN_HOW:
    event->argument = third;
    if (row.form == FORM_OPEN_HOW) read_user(&event->argument, sizeof event->argument, (void *)third);
    if (result < 0)
      add_path(first, second);
    else
      descriptor = result;
    break;
  case FORM_PATH:
    event->argument = second;
    add_path(WORKING_DIRECTORY, first);
    break;
  case FORM_PATH_LENGTH:
    event->asked = second;
    add_path(WORKING_DIRECTORY, first);
    break;
  case FORM_PATH_AT:
    event->argument = third;
    if (!add_path(first, second)) descriptor = first;
    break;
  case FORM_PATH_AT_FLAGS:
    event->argument = fourth;
    if (!add_path(first, second)) descriptor = first;
    break;
  case FORM_SECOND_PATH: add_path(WORKING_DIRECTORY, second); break;
  case FORM_SECOND_PATH_AT: add_path(second, third); break;
  case FORM_PATHS:
    add_path(WORKING_DIRECTORY, first);
    add_path(WORKING_DIRECTORY, second);
    break;
  case FORM_PATHS_AT:
    event->argument = registers->r8;
    add_path(first, second);
    add_path(third, fourth);
    break;
  case FORM_EXECUTE:
    if (result >= 0) return 0;  // told when it happened: nothing of the call is left
    add_path(WORKING_DIRECTORY, first);
    break;
  case FORM_EXECUTE_AT:
    if (result >= 0) return 0;
    add_path(first, second);
    break;
  default: break;
  }

  if (descriptor != -1) {
    event->descriptor = descriptor;
    struct file *file = file_of(task, descriptor);
    int is_about_file = describe(&event->about, file);
    if (event->operation == OPERATION_OPEN) {
      if (!is_about_file) event->flags |= FLAG_NO_FILE;
      if (file && FIELD(file, f_mode) & MODE_CREATED) event->flags |= FLAG_CREATED;
      if (file && is_about_file) tell_name_of(&event->about.file, file, event->about.mode);
    } else if (!is_about_file) {
      if (event->operation != OPERATION_TRANSFER) return 0;
      event->flags |= FLAG_NO_FILE;
    }
    if (row.form == FORM_POSITIONAL || (row.form == FORM_VECTOR_POSITIONAL && event->flags & FLAG_POSITIONAL)) {
      event->about.offset = event->argument;
      event->argument = 0;
    } else if (row.form == FORM_DATA || row.form == FORM_VECTOR || row.form == FORM_VECTOR_POSITIONAL ||
               row.form == FORM_SEND || row.form == FORM_SPLICE) {
      // Directories have positions of their own.
      if (result > 0 && event->operation != OPERATION_LIST) event->about.offset -= result;
    } else if (row.form == FORM_RANGE) {
      event->about.offset = second;
    } else if (row.form == FORM_ALLOCATE) {
      event->about.offset = third;
    } else if (row.form == FORM_MAP) {
      event->about.offset = registers->r9;
    }
  }
  if (!(event->flags & FLAG_NO_FILE) || event->operation == OPERATION_OPEN) tell(draft_);
  if (other != -1) {
    event->descriptor = other;
    event->flags = (event->flags & ~(FLAG_NO_FILE | FLAG_MISS)) | FLAG_SECOND;
    event->about.pages = 0;
    if (!describe(&event->about, file_of(task, other))) return 0;
    if (result > 0) event->about.offset -= result;
    tell(draft_);
  }
  return 0;
}

INLINE void add_name(struct draft *draft, struct task_struct *task) {
  struct text *text = (void *)draft->text;
  __builtin_memset(text, 0, sizeof *text);
  text->bytes = sizeof task->comm;
  read_kernel(draft->text + sizeof *text, sizeof task->comm, __builtin_preserve_access_index(&task->comm));
  draft->event.text_bytes = sizeof *text + sizeof task->comm;
}

SECTION("tp_btf/sched_process_fork") int process_begins(u64 *context) {
  struct task_struct *parent = (void *)context[0], *child = (void *)context[1];
  if (!storage(&threads, parent, 0, 0)) {
    if (!everybody || (u32)parent->tgid == own_process) return 0;
  }
  storage(&threads, child, 0, CREATE);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  begin(&draft_->event, child, NOTE_PROCESS);
  draft_->event.start_ns = now_ns();
  draft_->event.argument = parent->tgid;
  draft_->event.asked = child->cred->uid.val;
  if (child->files == parent->files) draft_->event.flags = FLAG_SHARES;
  add_name(draft_, child);
  tell(draft_);
  return 0;
}

SECTION("tp_btf/sched_process_exit") int process_ends(u64 *context) {
  struct task_struct *task = (void *)context[0];
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread) return 0;
  end_fault(thread);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  begin(&draft_->event, task, NOTE_EXIT);
  draft_->event.start_ns = now_ns();
  tell(draft_);
  return 0;
}

SECTION("tp_btf/sched_process_exec") int program_begins(u64 *context) {
  struct task_struct *task = (void *)context[0];
  struct linux_binprm *program = (void *)context[2];
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread) return 0;
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  struct event *event = &draft_->event;
  begin(event, task, OPERATION_EXECUTE);
  u64 now = now_ns();
  event->start_ns = thread->start_ns ? thread->start_ns : now;
  event->duration_ns = now - event->start_ns;
  event->about.pages = thread->pages;
  if (thread->pages) event->flags = FLAG_MISS;
  thread->start_ns = 0;
  thread->pages = 0;
  struct file *file = program->file;
  if (describe(&event->about, file)) tell_name_of(&event->about.file, file, event->about.mode);
  event->about.handle = 0;
  event->about.offset = 0;
  event->argument = task->cred->uid.val;
  add_name(draft_, task);
  tell(draft_);
  return 0;
}

// A page of a mapped file was touched that no page table had, and is looked for; how many had to be read is known when the thread goes on.
SECTION("tp_btf/mm_filemap_fault") int page_faults(u64 *context) {
  struct address_space *mapping = (void *)context[0];
  u64 page = context[1];
  struct task_struct *task = current_task();
  struct thread *thread = storage(&threads, task, 0, 0);
  // In a call it is that call's, such as a write from mapped memory.
  if (!thread || thread->start_ns) return 0;
  end_fault(thread);
  struct inode *inode = mapping->host;
  begin(&thread->fault, task, OPERATION_PAGE_IN);
  identify(inode, &thread->fault.about.file);
  thread->fault.about.mode = inode->i_mode;
  thread->fault.about.size = inode->i_size;
  thread->fault.about.offset = page * PAGE_BYTES;
  thread->fault.asked = PAGE_BYTES;
  thread->fault.result = PAGE_BYTES;
  thread->fault.start_ns = now_ns();
  thread->pages = 0;
  return 0;
}

// Pages of a mapped file that were in the cache are put into a page table, around the one that was touched.
SECTION("tp_btf/mm_filemap_map_pages") int pages_are_mapped(u64 *context) {
  struct address_space *mapping = (void *)context[0];
  u64 page = context[1], last = context[2];
  struct task_struct *task = current_task();
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread || thread->start_ns) return 0;
  end_fault(thread);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  struct event *event = &draft_->event;
  struct inode *inode = mapping->host;
  begin(event, task, OPERATION_PAGE_IN);
  identify(inode, &event->about.file);
  event->about.mode = inode->i_mode;
  event->about.size = inode->i_size;
  event->about.offset = page * PAGE_BYTES;
  event->asked = PAGE_BYTES;
  event->result = (last - page + 1) * PAGE_BYTES;
  event->start_ns = now_ns();
  tell(draft_);
  return 0;
}

// A page comes into the cache, because it is read, read ahead, or written anew.
SECTION("tp_btf/mm_filemap_add_to_page_cache") int page_comes(u64 *context) {
  struct folio *folio = (void *)context[0];
  struct thread *thread = storage(&threads, current_task(), 0, 0);
  if (!thread) return 0;
  u32 pages = 1;
  if (head_flag && folio->flags & 1ul << head_flag) pages = 1u << (folio->_flags_1 & 31);
  thread->pages += pages;
  return 0;
}

SECTION("tp_btf/writeback_single_inode") int inode_written(u64 *context) {
  struct inode *inode = (void *)context[0];
  struct writeback_control *control = (void *)context[1];
  s64 wanted = context[2];
  s64 written = wanted - control->nr_to_write;
  if (written <= 0) return 0;
  struct identity file = {};
  identify(inode, &file);
  // Files of which nothing was said are of no concern.
  if (!lookup(&named, &file)) return 0;
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  struct event *event = &draft_->event;
  begin(event, current_task(), OPERATION_WRITE_BACK);
  event->about.file = file;
  event->about.mode = inode->i_mode;
  event->about.size = inode->i_size;
  event->about.pages = written;
  event->result = written * PAGE_BYTES;
  event->start_ns = now_ns();
  tell(draft_);
  return 0;
}
