//! What stands in for the kernel's memory files under miri, which knows none: one allocation for each file, shared by
//! all its mappings. So the interpreter sees every access of both sides of a channel. Seals are not looked at.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::EventfdFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;

use super::{SegmentError, system};

struct Memory {
    /// None: it was closed, but is still mapped.
    file: Option<RawFd>,
    base: NonNull<u8>,
    bytes: usize,
    mappings: usize,
}

// SAFETY: whoever uses the pointer is a `Mapping`.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated so by `create`, and kept as long as there are mappings.
        unsafe { dealloc(self.base.as_ptr(), layout(self.bytes)) };
    }
}

static FILES: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4096).expect("sizes of tests")
}

pub(super) fn create(_name: &str, bytes: usize) -> Result<OwnedFd, SegmentError> {
    let fd = rustix::event::eventfd(0, EventfdFlags::empty()).map_err(system("create"))?;
    // SAFETY: segments have at least one byte.
    let base = NonNull::new(unsafe { alloc_zeroed(layout(bytes)) }).expect("memory");
    let file = Some(fd.as_raw_fd());
    let mut files = FILES.lock().unwrap();
    // Whoever had this number before was closed, or it would not be free.
    files.iter_mut().filter(|memory| memory.file == file).for_each(|memory| memory.file = None);
    files.retain(|memory| memory.file.is_some() || memory.mappings > 0);
    files.push(Memory { file, base, bytes, mappings: 0 });
    Ok(fd)
}

pub(super) fn seal(_fd: BorrowedFd<'_>, _seals: SealFlags) -> Result<(), Errno> {
    Ok(())
}

fn with<R>(fd: BorrowedFd<'_>, act: impl FnOnce(&mut Memory) -> R) -> Result<R, Errno> {
    let mut files = FILES.lock().unwrap();
    files.iter_mut().find(|memory| memory.file == Some(fd.as_raw_fd())).map(act).ok_or(Errno::BADF)
}

pub(super) fn inspect(fd: BorrowedFd<'_>, announced: u64, _seals: SealFlags) -> Result<usize, SegmentError> {
    let bytes = with(fd, |memory| memory.bytes).map_err(|_| SegmentError::NotMemory)?;
    let found = bytes as u64;
    if found == announced { Ok(bytes) } else { Err(SegmentError::Size { announced, found }) }
}

pub(super) fn map(fd: BorrowedFd<'_>, bytes: usize, _writable: bool) -> Result<NonNull<u8>, Errno> {
    with(fd, |memory| {
        assert_eq!(memory.bytes, bytes, "a mapping is of the whole");
        memory.mappings += 1;
        memory.base
    })
}

/// # Safety
/// What `map` returned, with its length, and nobody has a pointer into it.
pub(super) unsafe fn unmap(base: NonNull<u8>, _bytes: usize) {
    let mut files = FILES.lock().unwrap();
    let memory = files.iter_mut().find(|memory| memory.base == base).expect("mapped");
    memory.mappings -= 1;
    files.retain(|memory| memory.file.is_some() || memory.mappings > 0);
}

pub(super) fn punch(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    let base = with(fd, |memory| memory.base)?;
    for word in 0..bytes / 8 {
        // SAFETY: within the allocation, which a mapping of the caller's keeps.
        unsafe { base.cast::<AtomicU64>().add(word).as_ref() }.store(0, Ordering::Relaxed);
    }
    Ok(())
}
