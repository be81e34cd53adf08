//! What threads may do with each block, in a byte for every 128 bytes of frames, and what is known of each page.
//!
//! The first table speaks for all addresses that a program can have, by address, for code that looks there itself; the second for pages of
//! frames. Both are reservations; only what was written takes memory. A byte of the state table that was never
//! written says read-write, which is wrong for a page that is homed elsewhere and was never touched: therefore a byte a page says
//! whether the table counts there, and the byte of an allocation's first page says what holds where it does not.
#![expect(unsafe_code, reason = "tables at addresses of their own")]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use comb_coherence::Access;

use crate::kernel::{self, Protection};
use crate::layout::Layout;
use crate::memory::MemoryError;
use crate::software;
use crate::space::{HEAP_BYTES, PAGE_BYTES, SMALLEST_BLOCK_BYTES, TABLE_BYTES, TABLE_START, index};

const NOTES_BYTES: usize = index(HEAP_BYTES) / PAGE_BYTES;

/// The state table counts for this page.
const SET: u8 = 1;
/// The MMU may know the page.
const KNOWN: u8 = 2;
/// Somebody does what one at a time may do to this page: of what the state table says of it for the first time, or of what checked pages contain.
const BUSY: u8 = 4;
/// There may be content of a checked page that the MMU does not know.
const FILLED: u8 = 8;
/// Where the right that an allocation begins with stands in its first page's note: 0 is no guarded allocation.
const INITIAL_SHIFT: u32 = 4;

/// The state table and the pages' notes. A child by `fork` has an empty table, and no notes.
#[derive(Debug)]
pub(crate) struct StateTable {
    notes: usize,
    /// Some memory is checked by the program's own code.
    is_checked: AtomicBool,
}

impl StateTable {
    pub(crate) fn reserve() -> Result<Self, MemoryError> {
        kernel::reserve_at(TABLE_START, TABLE_BYTES, Protection::LoadsAndStores)
            .map_err(|source| MemoryError::from_reservation("the state table", TABLE_START, source))?;
        let notes = match kernel::reserve(NOTES_BYTES, Protection::LoadsAndStores) {
            Ok(notes) => notes,
            Err(source) => {
                // SAFETY: just reserved.
                unsafe { kernel::unmap(TABLE_START, TABLE_BYTES) };
                return Err(MemoryError::from_reservation("the pages' notes", 0, source));
            }
        };
        // A forked child has nothing that is shared, and its code may look all the same.
        let [table, notes_of_pages] =
            [(TABLE_START, TABLE_BYTES, libc::MADV_WIPEONFORK), (notes, NOTES_BYTES, libc::MADV_DONTFORK)];
        for (start, bytes, at_fork) in [table, notes_of_pages] {
            for advice in [at_fork, libc::MADV_NOHUGEPAGE, libc::MADV_DONTDUMP] {
                // SAFETY: our own mappings; nothing is thrown away. A kernel without huge pages refuses the second.
                let _ = unsafe { kernel::advise(start, bytes, advice) };
            }
        }
        Ok(Self { notes, is_checked: AtomicBool::new(false) })
    }

    /// From now on code that is not compiled to check its accesses has to do it, see [`software`].
    pub(crate) fn begin_to_check(&self) {
        if !self.is_checked.swap(true, Ordering::SeqCst) {
            software::begin();
        }
    }

    /// The right to the block whose content is at `frame`.
    #[inline]
    pub(crate) fn access(&self, layout: &Layout, frame: u64) -> Access {
        if self.note(frame).load(Ordering::Acquire) & SET == 0 {
            return self.initial(layout.offset());
        }
        match state(layout, frame).load(Ordering::Acquire) {
            0 => Access::ReadWrite,
            1 => Access::ReadOnly,
            _ => Access::Invalid,
        }
    }

    /// What the allocation at `offset` began with; what is not guarded may be stored to.
    fn initial(&self, offset: u64) -> Access {
        match self.note(offset).load(Ordering::Acquire) >> INITIAL_SHIFT {
            0 | 1 => Access::ReadWrite,
            2 => Access::ReadOnly,
            _ => Access::Invalid,
        }
    }

    /// An allocation begins whose blocks all have one right.
    pub(crate) fn begin(&self, offset: u64, initial: Access) {
        self.note(offset).store((initial as u8 + 1) << INITIAL_SHIFT, Ordering::Release);
    }

    /// Writes what holds for a range of whole blocks of a page or more. One thread at a time writes a block.
    #[inline]
    pub(crate) fn set(&self, layout: &Layout, frame: u64, bytes: usize, access: Access) {
        write(layout, frame, bytes, access);
        for page in 0..bytes / PAGE_BYTES {
            self.mark(frame + (page * PAGE_BYTES) as u64, SET);
        }
    }

    /// Writes what holds for a block smaller than a page. Others may write other blocks of the page meanwhile.
    #[inline]
    pub(crate) fn set_part(&self, layout: &Layout, frame: u64, bytes: usize, access: Access) {
        let page = frame / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        if self.note(page).load(Ordering::Acquire) & SET == 0 {
            self.own(layout, page);
            self.disown(page);
        }
        write(layout, frame, bytes, access);
    }

    /// What one thread at a time may do to a page: from now on nobody else, until [`StateTable::disown`]. No signal handler comes in between
    /// that needs the page, as `Memory` demands, so that this is short. The state table counts there from now on.
    pub(crate) fn own(&self, layout: &Layout, page: u64) {
        let note = self.note(page);
        while note.fetch_or(BUSY, Ordering::Acquire) & BUSY != 0 {
            std::hint::spin_loop();
        }
        if note.load(Ordering::Relaxed) & SET == 0 {
            // Who comes first says what holds for the whole page.
            write(layout, page, PAGE_BYTES, self.initial(layout.offset()));
            note.fetch_or(SET, Ordering::Release);
        }
    }

    pub(crate) fn disown(&self, page: u64) {
        self.note(page).fetch_and(!BUSY, Ordering::Release);
    }

    /// Content was put into a page that the MMU does not know.
    pub(crate) fn mark_filled(&self, page: u64) {
        self.mark(page, FILLED);
    }

    pub(crate) fn is_filled(&self, page: u64) -> bool {
        self.note(page).load(Ordering::Acquire) & FILLED != 0
    }

    /// Whether the MMU may know one of the pages of a range.
    #[inline]
    pub(crate) fn is_known(&self, frame: u64, bytes: usize) -> bool {
        let first = frame / PAGE_BYTES as u64;
        let pages = bytes.div_ceil(PAGE_BYTES) as u64;
        (first..first + pages)
            .any(|page| self.note(page * PAGE_BYTES as u64).load(Ordering::Acquire) & KNOWN != 0)
    }

    /// The MMU is told of a range's pages.
    #[inline]
    pub(crate) fn know(&self, frame: u64, bytes: usize) {
        for page in 0..bytes.div_ceil(PAGE_BYTES) {
            self.mark(frame + (page * PAGE_BYTES) as u64, KNOWN);
        }
    }

    /// The frames of a range of invalid pages are gone: whatever comes next is the first.
    pub(crate) fn unknow(&self, frame: u64, bytes: usize) {
        for page in 0..bytes / PAGE_BYTES {
            let note = self.note(frame + (page * PAGE_BYTES) as u64);
            if note.load(Ordering::Acquire) & (KNOWN | FILLED) != 0 {
                note.fetch_and(!(KNOWN | FILLED), Ordering::AcqRel);
            }
        }
    }

    /// Whether anything was ever done to a page: the MMU was told of it, or its right was set.
    #[inline]
    pub(crate) fn is_touched(&self, frame: u64) -> bool {
        self.note(frame).load(Ordering::Acquire) & (KNOWN | SET) != 0
    }

    /// All of an allocation's range is as if nobody had ever touched it.
    pub(crate) fn forget(&self, layout: &Layout) {
        let (frame, bytes) = (layout.offset(), index(layout.frame_bytes()));
        clear(layout.state(frame), bytes / SMALLEST_BLOCK_BYTES);
        clear(self.notes + index(frame) / PAGE_BYTES, bytes / PAGE_BYTES);
    }

    /// How much memory the tables take.
    pub(crate) fn resident_bytes(&self) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let starts = [TABLE_START, self.notes].map(|start| format!("{start:x}-"));
        let mut is_ours = false;
        let mut kibibytes = 0;
        for line in maps.lines() {
            if line.split(' ').next().is_some_and(|range| range.contains('-')) {
                is_ours = starts.iter().any(|start| line.starts_with(start));
            } else if is_ours && let Some(rest) = line.strip_prefix("Rss:") {
                kibibytes += rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0);
            }
        }
        kibibytes * 1024
    }

    #[inline]
    fn mark(&self, frame: u64, bit: u8) {
        let note = self.note(frame);
        if note.load(Ordering::Acquire) & bit == 0 {
            note.fetch_or(bit, Ordering::AcqRel);
        }
    }

    #[inline]
    fn note(&self, frame: u64) -> &AtomicU8 {
        assert!(frame < HEAP_BYTES);
        let at = self.notes + index(frame) / PAGE_BYTES;
        // SAFETY: within the notes, as just checked, which are mapped as long as anybody has `self`.
        unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
    }
}

/// The byte of the state table for what is at `frame`. Whoever calls this has a [`StateTable`], and uses the byte no longer.
#[inline]
pub(crate) fn state(layout: &Layout, frame: u64) -> &'static AtomicU8 {
    let at = layout.state(frame);
    assert!((TABLE_START..TABLE_START + TABLE_BYTES).contains(&at));
    // SAFETY: within the table, as just checked; the caller has seen to it that there is one.
    unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

/// Writes what holds for a range of whole blocks.
pub(crate) fn write(layout: &Layout, frame: u64, bytes: usize, access: Access) {
    let states = bytes / SMALLEST_BLOCK_BYTES;
    let value = access as u8;
    let first = layout.state(frame);
    if states < 8 || !first.is_multiple_of(8) {
        for step in 0..states {
            state(layout, frame + (step * SMALLEST_BLOCK_BYTES) as u64).store(value, Ordering::Release);
        }
        return;
    }
    let word = u64::from_ne_bytes([value; 8]);
    for eight in 0..states / 8 {
        let states = states_of_eight(first + eight * 8);
        // Memory that was never written stays without a frame as long as it says the same.
        if states.load(Ordering::Relaxed) != word {
            states.store(word, Ordering::Release);
        }
    }
    for step in states / 8 * 8..states {
        state(layout, frame + (step * SMALLEST_BLOCK_BYTES) as u64).store(value, Ordering::Release);
    }
}

/// Whether all blocks of a page may be stored to, by what the table says.
pub(crate) fn is_all_open(layout: &Layout, page: u64) -> bool {
    let first = layout.state(page);
    (0..PAGE_BYTES / SMALLEST_BLOCK_BYTES / 8)
        .all(|eight| states_of_eight(first + eight * 8).load(Ordering::Acquire) == 0)
}

fn states_of_eight(at: usize) -> &'static AtomicU64 {
    assert!(at.is_multiple_of(8) && (TABLE_START..TABLE_START + TABLE_BYTES).contains(&at));
    // SAFETY: within the table, as just checked, and aligned; callers have seen to it that there is one.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

impl Drop for StateTable {
    fn drop(&mut self) {
        if *self.is_checked.get_mut() {
            software::end();
        }
        // SAFETY: reserved by `reserve`, and nobody has references into them without having `self`.
        unsafe {
            kernel::unmap(TABLE_START, TABLE_BYTES);
            kernel::unmap(self.notes, NOTES_BYTES);
        }
    }
}

/// Zeros, and memory given back where whole pages are meant.
fn clear(start: usize, bytes: usize) {
    let end = start + bytes;
    let (first, last) = (start.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
    if first < last {
        // SAFETY: our own private memory, and zeros are what it is to be.
        let given_back = unsafe { kernel::advise(first, last - first, libc::MADV_DONTNEED) };
        if given_back.is_ok() {
            zero(start, first - start);
            zero(last, end - last);
            return;
        }
    }
    zero(start, bytes);
}

fn zero(start: usize, bytes: usize) {
    for at in start..start + bytes {
        // SAFETY: part of a table, as the callers see to.
        let byte = unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
        if byte.load(Ordering::Relaxed) != 0 {
            byte.store(0, Ordering::Relaxed);
        }
    }
}
