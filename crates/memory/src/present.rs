//! Page frames that are there, and not yet in this process's page table.
//!
//! Processes that map the same frames have a page table each: the first access of each of them to a page is a fault of its own, though another
//! has filled it long ago, and a store's brings that page alone. Asked for together, such pages take a fifth of that.
#![expect(unsafe_code, reason = "the kernel is asked by address")]

use std::ops::Range;

use crate::kernel;
use crate::space::{HEAP, PAGE_BYTES};

/// Puts what has a frame into this process's page table; makes no frame. Whole pages of the heap; nothing happens where none is mapped.
/// How many of the pages have one.
pub fn map_present(addresses: Range<usize>) -> usize {
    let first = addresses.start.max(HEAP.start).next_multiple_of(PAGE_BYTES);
    let end = addresses.end.min(HEAP.end) / PAGE_BYTES * PAGE_BYTES;
    if first >= end {
        return 0;
    }
    let mut has_frame = vec![0_u8; (end - first) / PAGE_BYTES];
    // SAFETY: a byte for each page.
    if unsafe { kernel::resident(first, end - first, &mut has_frame) }.is_err() {
        return 0;
    }
    let mut page = 0;
    for run in has_frame.chunk_by(|one, next| one & 1 == next & 1) {
        if run[0] & 1 != 0 {
            // Kernels before 5.14 do not know it: then each page comes by its fault.
            // SAFETY: it changes nothing but what the next access to these pages costs.
            let _ = unsafe {
                kernel::advise(first + page * PAGE_BYTES, run.len() * PAGE_BYTES, libc::MADV_POPULATE_READ)
            };
        }
        page += run.len();
    }
    has_frame.iter().filter(|&&byte| byte & 1 != 0).count()
}
