//! Giving another process's memory back to the system for a while: what it has stored goes to swap, what comes from files is dropped, and it gets
//! both back when it touches them. Nothing is lost by it but time.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::kernel;

/// Has the kernel page out a range of a process's addresses: whole pages, mapped there. What others have mapped as well, and what finds no room in swap,
/// stays. Only who may trace the process, and has CAP_SYS_NICE, can do this.
pub fn page_out(process: BorrowedFd<'_>, range: Range<usize>) -> Result<(), Errno> {
    let bytes = range.end.saturating_sub(range.start);
    kernel::page_out_of(process, range.start, bytes).map(drop)
}
