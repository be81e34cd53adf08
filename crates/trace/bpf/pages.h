// The page cache: what was missing in it, what mapped files are used for, and what goes back to the disk.
#ifndef COMB_PAGES_H
#define COMB_PAGES_H

#include "files.h"

// The lowest bits of a large folio's second word of flags are the logarithm of how many pages it has.
#define ORDER_MASK 0xff
#define MOST_ORDER 18

INLINE void begin_page_in(struct event *event, struct task_struct *task, struct inode *inode, u64 page) {
  begin(event, task, OPERATION_PAGE_IN);
  identify(inode, &event->about.file);
  event->about.mode = FAST(inode, i_mode);
  event->about.size = FAST(inode, i_size);
  event->about.offset = page * PAGE_BYTES;
  event->asked = PAGE_BYTES;
  event->result = PAGE_BYTES;
  event->start_ns = now_ns();
}

// A page of a mapped file was touched that no page table had, and is looked for; how many had to be read is known when the thread goes on.
SECTION("tp_btf/mm_filemap_fault") int page_faults(u64 *context) {
  struct address_space *mapping = (void *)context[0];
  struct task_struct *task = current_task();
  struct thread *thread = storage(&threads, task, 0, 0);
  // In a call it is that call's, such as a write from mapped memory.
  if (!thread || thread->start_ns) return 0;
  settle(thread);
  begin_page_in(&thread->fault, task, NEXT(mapping, host), context[1]);
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
  settle(thread);
  struct draft *draft_ = draft(DRAFT_OPERATION);
  if (!draft_) return 0;
  begin_page_in(&draft_->event, task, NEXT(mapping, host), page);
  draft_->event.result = (last - page + 1) * PAGE_BYTES;
  tell(draft_);
  return 0;
}

// A page comes into the cache, because it is read, read ahead, or written anew.
SECTION("tp_btf/mm_filemap_add_to_page_cache") int page_comes(u64 *context) {
  struct folio *folio = (void *)context[0];
  struct thread *thread = storage(&threads, current_task(), 0, 0);
  if (!thread) return 0;
  u64 pages = 1, flags = 0;
  if (__builtin_preserve_field_info(folio->_flags_1, 2)) {
    read_kernel(&flags, sizeof flags, folio);
    if (flags >> __builtin_preserve_enum_value(*(enum pageflags *)PG_head, 1) & 1) {
      u64 order = folio->_flags_1 & ORDER_MASK;
      if (order <= MOST_ORDER) pages = 1ul << order;
    }
  }
  thread->pages += pages;
  return 0;
}

SECTION("tp_btf/writeback_single_inode") int inode_written(u64 *context) {
  struct inode *trusted = (void *)context[0], *inode = TYPED(trusted);
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
  // Whoever happens to do it: the kernel does, and no program asked.
  event->thread = 0;
  event->process = 0;
  event->about.file = file;
  event->about.mode = FAST(inode, i_mode);
  event->about.size = FAST(inode, i_size);
  event->about.pages = written;
  event->result = written * PAGE_BYTES;
  event->start_ns = now_ns();
  tell(draft_);
  return 0;
}

#endif
