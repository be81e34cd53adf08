//! Page frames that are there, and not yet in this process's page table.
//!
//! Processes that map the same frames have a page table each: the first access of each of them to a page is a fault of its own, though another
//! has filled it long ago, and a store's brings that page alone. Asked for together, such pages take a fifth of that.
#![expect(unsafe_code, reason = "the kernel is asked by address")]

use std::ops::Range;

use crate::kernel;
use crate::memory::Memory;
use crate::space::{HEAP, PAGE_BYTES, index};

impl Memory {
    /// Puts what has a frame into this process's page table; makes no frame. Whole pages of allocations that are mapped by [`Memory::map`]; nothing happens
    /// where none is. For how many bytes there are frames.
    pub fn map_present(&self, addresses: Range<usize>) -> usize {
        let first = addresses.start.max(HEAP.start).next_multiple_of(PAGE_BYTES);
        let end = addresses.end.min(HEAP.end) / PAGE_BYTES * PAGE_BYTES;
        if first >= end {
            return 0;
        }
        let (mut at, end, mut present) = ((first - HEAP.start) as u64, (end - HEAP.start) as u64, 0);
        while let Some(run) = self.frames.filled_from(at, end) {
            let bytes = index(run.end - run.start);
            // Kernels before 5.14 do not know it: then each page comes by its fault.
            // SAFETY: it changes nothing but what the next access to these pages costs.
            let _ = unsafe { kernel::advise(HEAP.start + index(run.start), bytes, libc::MADV_POPULATE_READ) };
            present += bytes;
            at = run.end;
        }
        present
    }
}
