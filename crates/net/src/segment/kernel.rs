//! Memory files, as the kernel has them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{SegmentError, system};

/// What memory files of ordinary pages live on.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

pub(super) fn create(name: &str, bytes: usize) -> Result<OwnedFd, SegmentError> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(system("create"))?;
    rustix::fs::ftruncate(&fd, bytes as u64).map_err(system("size"))?;
    Ok(fd)
}

pub(super) fn seal(fd: BorrowedFd<'_>, seals: SealFlags) -> Result<(), Errno> {
    rustix::fs::fcntl_add_seals(fd, seals)
}

/// Looks at seals and size.
pub(super) fn inspect(fd: BorrowedFd<'_>, announced: u64, seals: SealFlags) -> Result<usize, SegmentError> {
    let found = rustix::fs::fcntl_get_seals(fd).map_err(|_| SegmentError::NotMemory)?;
    let missing = seals - found;
    if !missing.is_empty() {
        return Err(SegmentError::Seals { missing, found });
    }
    // Huge pages can be sealed too, but a hole punched into them may find no page to fill it: SIGBUS here.
    if rustix::fs::fstatfs(fd).map_err(system("inspect"))?.f_type != TMPFS_MAGIC {
        return Err(SegmentError::NotMemory);
    }
    let size = rustix::fs::fstat(fd).map_err(system("inspect"))?.st_size;
    let size = u64::try_from(size).map_err(|_| SegmentError::NotMemory)?;
    if size != announced || size == 0 {
        return Err(SegmentError::Size { announced, found: size });
    }
    usize::try_from(size).map_err(|_| SegmentError::NotMemory)
}

pub(super) fn map(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<NonNull<u8>, Errno> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: a fresh address chosen by the kernel; nothing else is replaced.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0) }?;
    Ok(NonNull::new(base.cast::<u8>()).expect("the kernel maps nothing at address zero"))
}

/// # Safety
/// What `map` returned, with its length, and nobody has a pointer into it.
pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: as promised by the caller.
    let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok());
}

pub(super) fn punch(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, bytes as u64)
}
