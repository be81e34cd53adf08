// Processes and threads: where they come from, what they execute, and when they end.
#ifndef COMB_PROCESSES_H
#define COMB_PROCESSES_H

#include "files.h"

#define THREAD_OF_KERNEL 0x200000

INLINE u32 user_of(struct task_struct *task) {
  struct cred *rights = NEXT(task, cred);
  return FAST(rights, uid.val);
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
  if (child->flags & THREAD_OF_KERNEL) return 0;
  if (!storage(&threads, parent, 0, 0)) {
    if (!everybody || (u32)parent->tgid == own_process) return 0;
  }
  storage(&threads, child, 0, CREATE);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  begin(&draft_->event, child, NOTE_PROCESS);
  draft_->event.start_ns = now_ns();
  draft_->event.argument = parent->tgid;
  draft_->event.asked = user_of(child);
  if (NEXT(child, files) == NEXT(parent, files)) draft_->event.flags = FLAG_SHARES;
  add_name(draft_, child);
  tell(draft_);
  return 0;
}

SECTION("tp_btf/sched_process_exit") int process_ends(u64 *context) {
  struct task_struct *task = (void *)context[0];
  struct thread *thread = storage(&threads, task, 0, 0);
  if (!thread) return 0;
  settle(thread);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  begin(&draft_->event, task, NOTE_EXIT);
  draft_->event.start_ns = now_ns();
  struct signal_struct *shared = NEXT(task, signal);
  // It has been counted out by now. The files of a process are closed after this by its last thread.
  draft_->event.argument = FAST(shared, live.counter) + 1;
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
  count_pages(event, thread->pages);
  thread->start_ns = 0;
  thread->pages = 0;
  thread->handle = 0;
  struct file *file = NEXT(program, file);
  if (describe(&event->about, file)) tell_name_of(&event->about.file, file, event->about.mode);
  event->about.handle = 0;
  event->about.offset = 0;
  event->argument = user_of(task);
  add_name(draft_, task);
  tell(draft_);
  return 0;
}

#endif
