//! System calls on addresses of shared memory.
//!
//! All of this crate's own ones go through [`call`]: a process may run under a filter that stops system calls which are
//! given such addresses, and lets pass what comes from there.
#![expect(unsafe_code, reason = "mappings are changed by address")]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// What threads may do with a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    Nothing,
    Loads,
    LoadsAndStores,
}

impl Protection {
    fn bits(self) -> usize {
        let bits = match self {
            Self::Nothing => libc::PROT_NONE,
            Self::Loads => libc::PROT_READ,
            Self::LoadsAndStores => libc::PROT_READ | libc::PROT_WRITE,
        };
        bits.cast_unsigned() as usize
    }
}

/// A system call as it stands.
///
/// # Safety
/// As the call itself.
#[inline]
unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let result = unsafe { crate::syscalls::raw(number, arguments) };
    if result < 0 {
        // The kernel's error numbers are smaller than 4096.
        return Err(Errno::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO)));
    }
    Ok(result.cast_unsigned())
}

/// Takes addresses that nobody has, for anonymous memory that is not accounted until it is touched.
pub(crate) fn reserve_at(address: usize, bytes: usize, protection: Protection) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that is there is changed.
    let got = unsafe {
        call(
            libc::SYS_mmap,
            [address, bytes, protection.bits(), flags.cast_unsigned() as usize, usize::MAX, 0],
        )
    }?;
    if got != address {
        // Kernels before 4.17 take the address for a hint.
        // SAFETY: it was just mapped, and nobody knows of it.
        let _ = unsafe { call(libc::SYS_munmap, [got, bytes, 0, 0, 0, 0]) };
        return Err(Errno::EXIST);
    }
    Ok(())
}

/// As [`reserve_at`], wherever there is room.
pub(crate) fn reserve(bytes: usize, protection: Protection) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new addresses.
    unsafe {
        call(libc::SYS_mmap, [0, bytes, protection.bits(), flags.cast_unsigned() as usize, usize::MAX, 0])
    }
}

/// Maps a file's memory, shared, wherever there is room.
pub(crate) fn map_shared(file: BorrowedFd<'_>, bytes: usize, protection: Protection) -> Result<usize, Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: new addresses.
    unsafe {
        call(
            libc::SYS_mmap,
            [
                0,
                bytes,
                protection.bits(),
                flags.cast_unsigned() as usize,
                file.as_raw_fd().cast_unsigned() as usize,
                0,
            ],
        )
    }
}

/// Maps a file's memory, shared, in place of what is there.
///
/// # Safety
/// The addresses are part of what the caller has reserved, and no Rust object lies there.
pub(crate) unsafe fn replace_shared(
    address: usize,
    bytes: usize,
    protection: Protection,
    file: BorrowedFd<'_>,
    offset: u64,
) -> Result<(), Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let offset = crate::space::index(offset);
    let file = file.as_raw_fd().cast_unsigned() as usize;
    // SAFETY: the caller's promise.
    unsafe {
        call(
            libc::SYS_mmap,
            [address, bytes, protection.bits(), flags.cast_unsigned() as usize, file, offset],
        )
    }
    .map(drop)
}

/// Makes addresses mere reservations again.
///
/// # Safety
/// As for [`replace_shared`].
pub(crate) unsafe fn replace_by_nothing(address: usize, bytes: usize) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the caller's promise.
    unsafe {
        call(
            libc::SYS_mmap,
            [address, bytes, Protection::Nothing.bits(), flags.cast_unsigned() as usize, usize::MAX, 0],
        )
    }
    .map(drop)
}

/// Gives a mapping back.
///
/// # Safety
/// It is the caller's, and nobody uses it any more.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]) };
}

/// Changes what threads may do. Done for all of them when it returns.
///
/// # Safety
/// The addresses are part of what the caller has mapped.
pub(crate) unsafe fn protect(address: usize, bytes: usize, protection: Protection) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mprotect, [address, bytes, protection.bits(), 0, 0, 0]) }.map(drop)
}

/// Gives the kernel advice; some of it is an order.
///
/// # Safety
/// The addresses are part of what the caller has mapped, and it can do without what the advice throws away.
pub(crate) unsafe fn advise(address: usize, bytes: usize, advice: libc::c_int) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_madvise, [address, bytes, advice.cast_unsigned() as usize, 0, 0, 0]) }.map(drop)
}

/// Pages out what another process has at some addresses: for that process nothing changes but time. How many bytes were looked at.
pub(crate) fn page_out_of(process: BorrowedFd<'_>, address: usize, bytes: usize) -> Result<usize, Errno> {
    let range = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes };
    let (process, ranges) = (process.as_raw_fd().cast_unsigned() as usize, (&raw const range).addr());
    let advice = libc::MADV_PAGEOUT.cast_unsigned() as usize;
    // SAFETY: the kernel reads one range, which lives; the addresses are of another process, and nothing there changes its content.
    unsafe { call(libc::SYS_process_madvise, [process, ranges, 1, advice, 0, 0]) }
}

/// Which pages have a frame, whoever has made it: bit 0 of a byte each.
///
/// # Safety
/// `answers` has a byte for each of the pages.
pub(crate) unsafe fn resident(address: usize, bytes: usize, answers: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mincore, [address, bytes, answers.as_mut_ptr().addr(), 0, 0, 0]) }.map(drop)
}

/// How many pages of a file's range are in memory, not counting what is on its way to swap or there: since Linux 6.5.
pub(crate) fn in_memory(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, Errno> {
    /// Not in `libc` yet; the same everywhere.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, bytes];
    // In memory, dirty, being written, in swap, in swap since a short time.
    let mut counts = [0_u64; 5];
    let file = file.as_raw_fd().cast_unsigned() as usize;
    // SAFETY: the kernel reads two numbers and writes five, all of which live.
    unsafe { call(SYS_CACHESTAT, [file, range.as_ptr().addr(), counts.as_mut_ptr().addr(), 0, 0, 0]) }?;
    Ok(counts[0])
}

/// Makes memory of a file, or gives it back. Not with an address, but with offsets that are as large.
pub(crate) fn allocate(
    file: BorrowedFd<'_>,
    mode: libc::c_int,
    offset: u64,
    bytes: u64,
) -> Result<(), Errno> {
    let file = file.as_raw_fd().cast_unsigned() as usize;
    let arguments =
        [file, mode.cast_unsigned() as usize, crate::space::index(offset), crate::space::index(bytes), 0, 0];
    loop {
        // SAFETY: what is given back was shared, and nobody relies on what it contains.
        match unsafe { call(libc::SYS_fallocate, arguments) } {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// A descriptor by which page faults of user mode are taken over. Needs no privilege.
pub(crate) fn userfaultfd() -> Result<OwnedFd, Errno> {
    const USER_MODE_ONLY: i32 = 1;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: makes a descriptor.
    let got = unsafe { call(libc::SYS_userfaultfd, [flags.cast_unsigned() as usize, 0, 0, 0, 0, 0]) }?;
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(got).expect("descriptors are small")) })
}

/// An ioctl with a structure that the kernel reads and writes.
///
/// # Safety
/// `argument` is of the type that the request is defined with, and the request does nothing to memory that Rust relies on.
#[inline]
pub(crate) unsafe fn ioctl<T>(file: BorrowedFd<'_>, request: u32, argument: &mut T) -> Result<(), Errno> {
    let file = file.as_raw_fd().cast_unsigned() as usize;
    let argument = std::ptr::from_mut(argument).expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_ioctl, [file, request as usize, argument, 0, 0, 0]) }.map(drop)
}
