//! Large page frames, for memory that processes share with no control.
//!
//! Of frames of 4 KB, each process that maps them has an entry for each, which it gets by a fault of its own; and a core has room for few of these entries. The
//! kernel makes large frames of shared memory by itself only where its administrator says so. It also makes them when asked, for a range that is empty yet: then
//! they cost no more than to clear them, a third of what the faults would have.
#![expect(unsafe_code, reason = "the kernel is asked by address")]

use std::ops::Range;
use std::sync::OnceLock;

use crate::kernel;
use crate::space::{HEAP, PAGE_BYTES};

/// What is shorter stays with small frames: it may be room for objects that are not there yet.
pub const LEAST_BYTES: u64 = 16 << 20;

/// What one entry of a page table leads to that is not of its lowest level.
const LARGE: usize = 2 << 20;

/// Fills a range of the heap, which is to be mapped by [`crate::Memory::map`], of [`LEAST_BYTES`] at least, and new, with large frames where they fit in.
/// For how many bytes there are some: fewer where the kernel has none, or no memory for more; none where memory has several nodes,
/// for there whoever uses a page first decides which node it comes from.
pub fn fill(addresses: Range<usize>) -> usize {
    let first = addresses.start.max(HEAP.start).next_multiple_of(LARGE);
    let end = addresses.end.min(HEAP.end) / LARGE * LARGE;
    if first >= end || has_several_nodes() {
        return 0;
    }
    let is_filled = |&at: &usize| {
        // An empty page table has nothing to be collapsed.
        // SAFETY: a page gets its frame, and then that becomes part of a large one: what is there stays, which is zeros.
        unsafe {
            kernel::advise(at, PAGE_BYTES, libc::MADV_POPULATE_READ).is_ok()
                && kernel::advise(at, LARGE, MADV_COLLAPSE).is_ok()
        }
    };
    (first..end).step_by(LARGE).take_while(is_filled).count() * LARGE
}

/// Linux 6.1; older kernels refuse it.
const MADV_COLLAPSE: libc::c_int = 25;

fn has_several_nodes() -> bool {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    *SEVERAL.get_or_init(|| std::path::Path::new("/sys/devices/system/node/node1").exists())
}
