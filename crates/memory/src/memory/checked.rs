//! Rights by software: what changes where a program's own code looks at the state table.
//!
//! | a block is | its state says | its frame contains | its content is |
//! |---|---|---|---|
//! | invalid, in a page that the MMU knows | invalid | [`FLAG`] in each byte | aside, at the same place of the second half of the allocation's offsets |
//! | invalid, in any other page | whatever | its content | in its frame |
//! | read-only or read-write | the same, or of a page that nobody has touched: whatever | its content | in its frame |
//!
//! A page is the MMU's to stop until a thread comes there or a right to it is raised. Then its states are made true, its invalid blocks are
//! flagged, and from then on it is mapped read-write, until its frames are discarded.
//!
//! Flags and content replace each other in whole words: who loads an aligned word sees one or the other.
#![expect(unsafe_code, reason = "words of frames that threads load meanwhile")]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use comb_coherence::{Access, Block};

use super::{Lane, Memory, MemoryError, PAGE};
use crate::access::Run;
use crate::layout::Layout;
use crate::software::FLAG;
use crate::space::{PAGE_BYTES, SMALLEST_BLOCK_BYTES, index};
use crate::{state, threads};

/// As many pages are changed together, with one fence. No block is larger.
const PAGES_TOGETHER: u64 = 64;

const WORD: usize = size_of::<u64>();

/// Frames of one lane that are changed together, and the pages that they are in.
#[derive(Clone, Copy)]
struct Span<'a> {
    layout: &'a Layout,
    /// In the frames.
    start: u64,
    end: u64,
}

impl<'a> Span<'a> {
    fn pages(self) -> impl Iterator<Item = u64> + use<'a> {
        let last = (self.end - 1) / PAGE;
        (self.start / PAGE..=last).map(|page| page * PAGE)
    }

    /// Of all its pages.
    fn addresses(self) -> Range<usize> {
        let address = |frame: u64| self.layout.start() + index(frame - self.layout.offset());
        address(self.start / PAGE * PAGE)..address(self.end.next_multiple_of(PAGE))
    }

    /// The part of it that is in a page.
    fn within(self, page: u64) -> (u64, usize) {
        let start = self.start.max(page);
        (start, index(self.end.min(page + PAGE) - start))
    }
}

impl Memory {
    /// As [`Memory::set`] of a lane whose blocks have one right.
    pub(super) fn change_checked(&self, lane: Lane<'_>, from: Access, to: Access) -> Result<(), MemoryError> {
        let block_bytes = lane.layout.block_bytes() as u64;
        let first = lane.layout.frame(Block(lane.first));
        let end = first + lane.count * block_bytes;
        let mut start = first;
        while start < end {
            // Blocks of many pages stay whole, for an allocation begins at a page.
            let behind = (start - lane.layout.offset()) / PAGE / PAGES_TOGETHER + 1;
            let span = Span {
                layout: lane.layout,
                start,
                end: end.min(lane.layout.offset() + behind * PAGES_TOGETHER * PAGE),
            };
            if to > from {
                self.lower_checked(span, to);
            } else {
                self.raise_checked(span, from, to)?;
            }
            start = span.end;
        }
        Ok(())
    }

    fn lower_checked(&self, span: Span<'_>, to: Access) {
        let mut known = 0_u64;
        for (index, page) in span.pages().enumerate() {
            self.states.own(span.layout, page);
            let (start, bytes) = span.within(page);
            state::write(span.layout, start, bytes, to);
            known |= u64::from(self.states.is_known(page, PAGE_BYTES)) << index;
            self.states.disown(page);
        }
        // Who comes to another page from now on finds the new right.
        if known == 0 {
            return;
        }
        threads::wait_for_accesses_to(span.addresses());
        if to != Access::Invalid {
            return;
        }
        for (index, page) in span.pages().enumerate().filter(|(index, _)| known >> index & 1 == 1) {
            let _ = index;
            let (start, bytes) = span.within(page);
            self.put_aside(span.layout, start, bytes);
        }
    }

    fn raise_checked(&self, span: Span<'_>, from: Access, to: Access) -> Result<(), MemoryError> {
        span.pages().for_each(|page| self.states.own(span.layout, page));
        for page in span.pages() {
            let (start, bytes) = span.within(page);
            if from == Access::Invalid && self.states.is_known(page, PAGE_BYTES) {
                self.bring_back(span.layout, start, bytes);
            }
            state::write(span.layout, start, bytes, to);
        }
        let raised = self.show(span);
        if raised.is_err() {
            for page in span.pages().filter(|&page| !self.states.is_known(page, PAGE_BYTES)) {
                let (start, bytes) = span.within(page);
                state::write(span.layout, start, bytes, from);
            }
        }
        span.pages().for_each(|page| self.states.disown(page));
        raised
    }

    /// The content of a block that comes here, and its right.
    pub(super) fn deliver_checked(
        &self,
        layout: &Layout,
        block: Block,
        content: &[u8],
        access: Access,
    ) -> Result<(), MemoryError> {
        let start = layout.frame(block);
        let span = Span { layout, start, end: start + content.len() as u64 };
        span.pages().for_each(|page| self.states.own(layout, page));
        for page in span.pages() {
            let (part, bytes) = span.within(page);
            let content = &content[index(part - start)..][..bytes];
            if self.states.is_known(page, PAGE_BYTES) {
                copy_words(self.frames.at(part, bytes), content.as_ptr(), bytes);
            } else {
                self.frames.copy_in(part, content);
                self.states.mark_filled(page);
            }
            state::write(layout, part, bytes, access);
        }
        let shown = self.show(span);
        span.pages().for_each(|page| self.states.disown(page));
        shown
    }

    /// A thread was stopped although its right allows what it did: the MMU does not know the page. `run` is of whole blocks and pages.
    pub(super) fn repair_checked(&self, layout: &Layout, block: Block, run: Run) -> Result<(), MemoryError> {
        let span = Span { layout, start: run.frame, end: run.frame + run.bytes as u64 };
        span.pages().for_each(|page| self.states.own(layout, page));
        let mut repaired = Ok(());
        if self.access(layout, block) != Access::Invalid {
            let is_known = self.states.is_known(run.frame, run.bytes);
            repaired = self.show(span);
            if is_known && repaired.is_ok() {
                // The kernel has dropped what was there.
                repaired = self.mechanism.repair(&self.frames, run, Access::ReadWrite);
            }
        }
        span.pages().for_each(|page| self.states.disown(page));
        repaired
    }

    /// Has the MMU know the pages of a span that it does not know yet. They are owned, and their states are true.
    fn show(&self, span: Span<'_>) -> Result<(), MemoryError> {
        let is_new = |page: &u64| !self.states.is_known(*page, PAGE_BYTES);
        let mut is_fenced = true;
        for page in span.pages().filter(is_new) {
            if !state::is_all_open(span.layout, page) {
                is_fenced = false;
                self.flag_invalid_parts(span.layout, page);
            }
        }
        if !is_fenced {
            // Somebody may have looked when the table said "whatever", and be about to store.
            threads::wait_for_accesses_to(span.addresses());
        }
        let mut pages = span.pages().filter(is_new).peekable();
        while let Some(first) = pages.next() {
            let mut end = first + PAGE;
            while pages.next_if_eq(&end).is_some() {
                end += PAGE;
            }
            let address = span.layout.start() + index(first - span.layout.offset());
            let run = Run { address, frame: first, bytes: index(end - first) };
            self.mechanism.change(&self.frames, run, Access::Invalid, Access::ReadWrite, false)?;
            self.states.know(first, run.bytes);
        }
        Ok(())
    }

    /// Of a page that the MMU does not know yet.
    fn flag_invalid_parts(&self, layout: &Layout, page: u64) {
        let is_filled = self.states.is_filled(page);
        for part in (0..PAGE).step_by(SMALLEST_BLOCK_BYTES) {
            if state::state(layout, page + part).load(Ordering::Acquire) <= Access::ReadOnly as u8 {
                continue;
            }
            if is_filled {
                self.put_aside(layout, page + part, SMALLEST_BLOCK_BYTES);
            } else {
                flag_words(self.frames.at(page + part, SMALLEST_BLOCK_BYTES), SMALLEST_BLOCK_BYTES);
            }
        }
    }

    /// Takes content out of a frame, and leaves flags.
    fn put_aside(&self, layout: &Layout, frame: u64, bytes: usize) {
        let from = self.frames.at(frame, bytes);
        copy_words(self.frames.at(aside(layout, frame), bytes), from, bytes);
        flag_words(from, bytes);
    }

    fn bring_back(&self, layout: &Layout, frame: u64, bytes: usize) {
        copy_words(self.frames.at(frame, bytes), self.frames.at(aside(layout, frame), bytes), bytes);
    }

    /// Where the content of a block of checked memory is, whose pages are all known to the MMU or all not.
    #[inline]
    pub(super) fn content_of(&self, layout: &Layout, block: Block) -> u64 {
        let frame = layout.frame(block);
        let is_aside = self.access(layout, block) == Access::Invalid && self.states.is_known(frame, 1);
        if is_aside { aside(layout, frame) } else { frame }
    }

    /// Stores bytes to a block's content, wherever that is.
    pub(super) fn patch_checked(&self, layout: &Layout, block: Block, offset: usize, bytes: &[u8]) {
        let frame = layout.frame(block);
        let span = Span { layout, start: frame, end: frame + layout.block_bytes() as u64 };
        span.pages().for_each(|page| self.states.own(layout, page));
        for page in span.pages().filter(|&page| !self.states.is_known(page, PAGE_BYTES)) {
            self.states.mark_filled(page);
        }
        self.frames.copy_in(self.content_of(layout, block) + offset as u64, bytes);
        span.pages().for_each(|page| self.states.disown(page));
    }

    /// The allocation ends, and its frames are to contain what its blocks contain.
    pub(super) fn bring_all_back(&self, layout: &Layout) {
        let pages = (layout.offset()..layout.offset() + layout.frame_bytes()).step_by(PAGE_BYTES);
        for page in pages.filter(|&page| self.states.is_known(page, PAGE_BYTES)) {
            let is_invalid =
                |part: &u64| state::state(layout, *part).load(Ordering::Acquire) == Access::Invalid as u8;
            let parts = (page..page + PAGE).step_by(SMALLEST_BLOCK_BYTES).filter(is_invalid);
            parts.for_each(|part| self.bring_back(layout, part, SMALLEST_BLOCK_BYTES));
        }
    }

    /// Gives whole pages of invalid blocks back, and what is aside of them.
    pub(super) fn discard_checked(&self, layout: &Layout, start: u64, end: u64) -> Result<(), MemoryError> {
        let mut first = start;
        while first < end {
            let span = Span { layout, start: first, end: end.min(first + PAGES_TOGETHER * PAGE) };
            let bytes = span.end - first;
            let address = layout.start() + index(first - layout.offset());
            let run = Run { address, frame: first, bytes: index(bytes) };
            span.pages().for_each(|page| self.states.own(layout, page));
            let is_known = self.states.is_known(first, run.bytes);
            // Whoever comes now is stopped, and waits until the pages are nobody's any more.
            let given_back = self
                .mechanism
                .change(&self.frames, run, Access::ReadWrite, Access::Invalid, is_known)
                .and_then(|()| {
                    self.states.unknow(first, run.bytes);
                    let system = |source| MemoryError::System { action: "give frames back", source };
                    self.frames.punch(first, bytes).map_err(system)?;
                    self.frames.punch(aside(layout, first), bytes).map_err(system)
                });
            span.pages().for_each(|page| self.states.disown(page));
            given_back?;
            first = span.end;
        }
        Ok(())
    }
}

/// Where content is put aside.
fn aside(layout: &Layout, frame: u64) -> u64 {
    frame + layout.frame_bytes()
}

fn words(at: *mut u8, bytes: usize) -> impl Iterator<Item = &'static AtomicU64> {
    assert!(at.addr().is_multiple_of(WORD) && bytes.is_multiple_of(WORD));
    // SAFETY: aligned words of the frames, whoever else loads or stores there; callers have them from `Frames::at`, and for no longer
    // than a call.
    (0..bytes / WORD).map(move |word| unsafe { AtomicU64::from_ptr(at.add(word * WORD).cast()) })
}

fn flag_words(at: *mut u8, bytes: usize) {
    words(at, bytes).for_each(|word| word.store(u64::from_ne_bytes([FLAG; WORD]), Ordering::Release));
}

/// `to` is in the frames, `from` there or a slice's.
fn copy_words(to: *mut u8, from: *const u8, bytes: usize) {
    for (index, word) in words(to, bytes).enumerate() {
        // SAFETY: as many bytes as `to` has; nobody stores there meanwhile but as words.
        word.store(unsafe { from.cast::<u64>().add(index).read_unaligned() }, Ordering::Release);
    }
}
