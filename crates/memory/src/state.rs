//! What threads may do with each block, in a byte for every 128 bytes of frames, and what is known of each page.
//!
//! Both tables are reservations as long as the heap is; only what was written takes memory. A byte of the state table that was never
//! written says read-write, which is wrong for a page that is homed elsewhere and was never touched: therefore a byte a page says
//! whether the table counts there, and the byte of an allocation's first page says what holds where it does not.
#![expect(unsafe_code, reason = "tables at addresses of their own")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use comb_coherence::Access;

use crate::kernel::{self, Protection};
use crate::memory::MemoryError;
use crate::space::{HEAP_BYTES, PAGE_BYTES, SMALLEST_BLOCK_BYTES, STATE_START, index};

const STATE_BYTES: usize = index(HEAP_BYTES) / SMALLEST_BLOCK_BYTES;
const NOTES_BYTES: usize = index(HEAP_BYTES) / PAGE_BYTES;

/// The state table counts for this page.
const SET: u8 = 1;
/// The MMU may know the page.
const KNOWN: u8 = 2;
/// Somebody writes what the state table says of this page for the first time.
const BUSY: u8 = 4;
/// Where the right that an allocation begins with stands in its first page's note: 0 is no guarded allocation.
const INITIAL_SHIFT: u32 = 4;

/// The state table and the pages' notes. A child by `fork` does not have them.
#[derive(Debug)]
pub(crate) struct StateTable {
    notes: usize,
}

impl StateTable {
    pub(crate) fn reserve() -> Result<Self, MemoryError> {
        kernel::reserve_at(STATE_START, STATE_BYTES, Protection::LoadsAndStores)
            .map_err(|source| MemoryError::from_reservation("the state table", STATE_START, source))?;
        let notes = match kernel::reserve(NOTES_BYTES, Protection::LoadsAndStores) {
            Ok(notes) => notes,
            Err(source) => {
                // SAFETY: just reserved.
                unsafe { kernel::unmap(STATE_START, STATE_BYTES) };
                return Err(MemoryError::from_reservation("the pages' notes", 0, source));
            }
        };
        for (start, bytes) in [(STATE_START, STATE_BYTES), (notes, NOTES_BYTES)] {
            for advice in [libc::MADV_DONTFORK, libc::MADV_NOHUGEPAGE] {
                // SAFETY: our own mappings; nothing is thrown away. A kernel without huge pages refuses the second.
                let _ = unsafe { kernel::advise(start, bytes, advice) };
            }
        }
        Ok(Self { notes })
    }

    /// The right to the block whose content is at `frame`, of the allocation that begins at `offset`.
    #[inline]
    pub(crate) fn access(&self, offset: u64, frame: u64) -> Access {
        if self.note(frame).load(Ordering::Acquire) & SET == 0 {
            return self.initial(offset);
        }
        match Self::state(frame).load(Ordering::Acquire) {
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
    pub(crate) fn set(&self, frame: u64, bytes: usize, access: Access) {
        Self::write(frame, bytes, access);
        for page in 0..bytes / PAGE_BYTES {
            self.mark(frame + (page * PAGE_BYTES) as u64, SET);
        }
    }

    /// Writes what holds for a block smaller than a page. Others may write other blocks of the page meanwhile.
    #[inline]
    pub(crate) fn set_part(&self, offset: u64, frame: u64, bytes: usize, access: Access) {
        let page = frame / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let note = self.note(page);
        if note.load(Ordering::Acquire) & SET == 0 {
            // Who comes first says what holds for the whole page. No signal handler comes in between that needs the page, as `Memory`
            // demands, so that this is short.
            while note.fetch_or(BUSY, Ordering::Acquire) & BUSY != 0 {
                std::hint::spin_loop();
            }
            if note.load(Ordering::Relaxed) & SET == 0 {
                Self::write(page, PAGE_BYTES, self.initial(offset));
                note.fetch_or(SET, Ordering::Release);
            }
            note.fetch_and(!BUSY, Ordering::Release);
        }
        Self::write(frame, bytes, access);
    }

    fn write(frame: u64, bytes: usize, access: Access) {
        let states = bytes / SMALLEST_BLOCK_BYTES;
        let value = access as u8;
        if states < 8 {
            for state in 0..states {
                let byte = Self::state(frame + (state * SMALLEST_BLOCK_BYTES) as u64);
                byte.store(value, Ordering::Release);
            }
            return;
        }
        let word = u64::from_ne_bytes([value; 8]);
        for eight in 0..states / 8 {
            let at = STATE_START + index(frame) / SMALLEST_BLOCK_BYTES + eight * 8;
            // SAFETY: within the table, which is mapped as long as anybody has `self`; `frame` is a multiple of eight blocks here,
            // since blocks of so many bytes begin at multiples of their size or of a page.
            let states = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
            // Memory that was never written stays without a frame as long as it says the same.
            if states.load(Ordering::Relaxed) != word {
                states.store(word, Ordering::Release);
            }
        }
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
            if note.load(Ordering::Acquire) & KNOWN != 0 {
                note.fetch_and(!KNOWN, Ordering::AcqRel);
            }
        }
    }

    /// Whether anything was ever done to a page: the MMU was told of it, or its right was set.
    #[inline]
    pub(crate) fn is_touched(&self, frame: u64) -> bool {
        self.note(frame).load(Ordering::Acquire) & (KNOWN | SET) != 0
    }

    /// All of an allocation's range is as if nobody had ever touched it.
    pub(crate) fn forget(&self, frame: u64, bytes: u64) {
        clear(STATE_START + index(frame) / SMALLEST_BLOCK_BYTES, index(bytes) / SMALLEST_BLOCK_BYTES);
        clear(self.notes + index(frame) / PAGE_BYTES, index(bytes) / PAGE_BYTES);
    }

    /// How much memory the tables take.
    pub(crate) fn resident_bytes(&self) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let starts = [STATE_START, self.notes].map(|start| format!("{start:x}-"));
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

    #[inline]
    fn state(frame: u64) -> &'static AtomicU8 {
        assert!(frame < HEAP_BYTES);
        let at = STATE_START + index(frame) / SMALLEST_BLOCK_BYTES;
        // SAFETY: within the table, as just checked; whoever calls this has a `StateTable`, and uses it no longer.
        unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
    }
}

impl Drop for StateTable {
    fn drop(&mut self) {
        // SAFETY: reserved by `reserve`, and nobody has references into them without having `self`.
        unsafe {
            kernel::unmap(STATE_START, STATE_BYTES);
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
