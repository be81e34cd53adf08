//! The frames: one file in memory that contains what all blocks contain, at their offsets in the heap.
//!
//! It may be shared by all processes of a host that have the heap in common. Each maps the whole of it once more, the *alias*,
//! where nothing is guarded: there the protocol fills and reads blocks, whatever threads may do with them.
#![expect(unsafe_code, reason = "raw copies to and from memory that others store to")]

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::kernel::{self, Protection};
use crate::memory::MemoryError;
use crate::space::{HEAP_BYTES, index};

/// Its size does not change: nobody who maps it is ever stopped because another has cut it short.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

pub(crate) struct Frames {
    file: OwnedFd,
    /// Not more than the heap.
    bytes: u64,
    alias: usize,
    /// By which others may read them, and no more: of guarded ones.
    to_read: Option<OwnedFd>,
}

impl Frames {
    pub(crate) fn create() -> Result<Self, MemoryError> {
        Self::create_of(HEAP_BYTES.min(longest_file()) / 4096 * 4096)
    }

    /// Not of the whole heap, but for so many bytes, which are whole pages.
    pub(crate) fn create_of(bytes: u64) -> Result<Self, MemoryError> {
        if bytes > longest_file() {
            return Err(MemoryError::BeyondFrames);
        }
        let system = |action| move |source| MemoryError::System { action, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("comb-frames", flags).map_err(system("make the frames' file"))?;
        rustix::fs::ftruncate(&file, bytes).map_err(system("size the frames' file"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("seal the frames' file"))?;
        Self::map(file, bytes)
    }

    /// As [`Frames::create_of`], for processes that do not have all rights to them. They get the descriptor, map it and close it: none of them can seal
    /// it further, which would keep us from taking frames away, nor open it once more by a name that the kernel has for it.
    pub(crate) fn create_guarded(bytes: u64) -> Result<Self, MemoryError> {
        let mut frames = Self::create_of(bytes)?;
        let by_name = format!("/proc/self/fd/{}", frames.file.as_raw_fd());
        let done = rustix::fs::open(by_name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map(|to_read| frames.to_read = Some(to_read))
            .and_then(|()| rustix::fs::fcntl_add_seals(&frames.file, SealFlags::SEAL))
            .and_then(|()| rustix::fs::fchmod(&frames.file, Mode::empty()));
        done.map_err(|source| MemoryError::System { action: "seal the frames' file", source })?;
        Ok(frames)
    }

    /// One frame, for trying out what the kernel can do.
    pub(crate) fn create_small() -> Result<Self, Errno> {
        let file = rustix::fs::memfd_create("comb-trial", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, 4096)?;
        Self::map(file, 4096).map_err(|_| Errno::NOMEM)
    }

    /// Takes what another process made.
    pub(crate) fn adopt(file: OwnedFd) -> Result<Self, MemoryError> {
        let bytes = check(file.as_fd())?;
        Self::map(file, bytes)
    }

    /// The same, with what their maker reads them by.
    pub(crate) fn read_by(mut self, to_read: OwnedFd) -> Self {
        self.to_read = Some(to_read);
        self
    }

    fn map(file: OwnedFd, bytes: u64) -> Result<Self, MemoryError> {
        let alias = kernel::map_shared(file.as_fd(), index(bytes), Protection::LoadsAndStores)
            .map_err(|source| MemoryError::from_reservation("the frames", 0, source))?;
        let frames = Self { file, bytes, alias, to_read: None };
        // A dump of a process would make a frame of every page of it, and end only when memory does.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
            // SAFETY: our own mapping; these throw nothing away. A kernel without huge pages refuses the last.
            let _ = unsafe { kernel::advise(frames.alias, index(bytes), advice) };
        }
        Ok(frames)
    }

    /// By which others may read them, and neither store to them nor come by another way to do so. Only of guarded ones.
    pub(crate) fn to_read(&self) -> Option<BorrowedFd<'_>> {
        self.to_read.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether frames from `offset` on exist.
    pub(crate) fn reach(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Where `bytes` at `offset` are in the alias.
    #[inline]
    pub(crate) fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        assert!(self.reach(offset, bytes as u64), "beyond the frames");
        std::ptr::with_exposed_provenance_mut(self.alias + index(offset))
    }

    #[inline]
    pub(crate) fn copy_in(&self, offset: u64, content: &[u8]) {
        // SAFETY: `at` has checked the one, the other is a slice; they do not overlap, for nobody has references to frames.
        unsafe { copy(self.at(offset, content.len()), content.as_ptr(), content.len()) };
    }

    #[inline]
    pub(crate) fn copy_out(&self, offset: u64, into: &mut [u8]) {
        // SAFETY: as above.
        unsafe { copy(into.as_mut_ptr(), self.at(offset, into.len()), into.len()) };
    }

    /// Words at `offset` that whoever shares the frames agrees on by atomic accesses alone; none beyond the frames.
    pub(crate) fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU32]> {
        let is_word = offset.is_multiple_of(align_of::<AtomicU32>() as u64);
        if !is_word || !self.reach(offset, 4 * count as u64) {
            return None;
        }
        let first = self.at(offset, 4 * count).cast::<AtomicU32>();
        // SAFETY: mapped as long as `self` lives, by `map`, aligned, and any bits are words. Others may store there: as atomics do, or by `copy`, which
        // the compiler does not see.
        Some(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// Sees to it that there is a frame for every page of a range; new ones contain zeros.
    pub(crate) fn populate(&self, offset: u64, bytes: usize) -> Result<(), Errno> {
        // In the file, not by touching the alias: half the time, for nobody may ever look there.
        kernel::allocate(self.file(), libc::FALLOC_FL_KEEP_SIZE, offset, bytes as u64)
    }

    /// The first run of frames that there are, from `offset` on and before `end`.
    pub(crate) fn filled_from(&self, offset: u64, end: u64) -> Option<Range<u64>> {
        if offset >= end {
            return None;
        }
        // Who shares the file may move where it stands as well: nobody minds.
        let start = rustix::fs::seek(&self.file, SeekFrom::Data(offset)).ok()?.min(end);
        let stop = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).ok()?.min(end);
        (start < stop).then_some(start..stop)
    }

    /// Whether a page is in memory, and not in swap. An older kernel takes for memory what it has not forgotten since that was written to swap.
    pub(crate) fn is_in_memory(&self, offset: u64) -> bool {
        let counted = kernel::in_memory(self.file(), offset, 4096).map(|pages| pages > 0);
        counted.unwrap_or_else(|_| {
            let mut answer = [0];
            // SAFETY: `at` checks the range, and there is a byte for its only page.
            let asked = unsafe { kernel::resident(self.at(offset, 4096).addr(), 4096, &mut answer) };
            asked.is_ok() && answer[0] & 1 != 0
        })
    }

    /// Has frames of whole pages go to swap, where nobody else has them mapped.
    pub(crate) fn page_out(&self, offset: u64, bytes: usize) -> Result<(), Errno> {
        // SAFETY: `at` checks the range; what is there comes back when it is touched.
        unsafe { kernel::advise(self.at(offset, bytes).addr(), bytes, libc::MADV_PAGEOUT) }
    }

    /// Gives the memory of a range of whole pages back. All mappings of it, in all processes, lose it; whoever looks next finds zeros.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        punch(self.file(), offset, bytes)
    }
}

pub(crate) fn punch(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
    kernel::allocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, bytes)
}

/// How long frames are that another process made: an allegation, until seals and size are seen.
pub(crate) fn check(file: BorrowedFd<'_>) -> Result<u64, MemoryError> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| MemoryError::NotFrames)?;
    if !seals.contains(SEALS) || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err(MemoryError::NotFrames);
    }
    let status = rustix::fs::fstat(file)
        .map_err(|source| MemoryError::System { action: "look at the frames' file", source })?;
    let bytes = u64::try_from(status.st_size).unwrap_or(0);
    if bytes == 0 || bytes > HEAP_BYTES || !bytes.is_multiple_of(4096) {
        return Err(MemoryError::NotFrames);
    }
    Ok(bytes)
}

/// A limit on file sizes (ulimit -f) is none on memory, but it ends the process that passes it.
fn longest_file() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and pointers into it are not used after their frames, as `Memory::content` demands.
        unsafe { kernel::unmap(self.alias, index(self.bytes)) };
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "frames in descriptor {}, of {} bytes, at {:#x}",
            self.file.as_raw_fd(),
            self.bytes,
            self.alias
        )
    }
}

/// A copy that the compiler cannot see through: others may store to either side meanwhile, and then the result is a mixture of old and
/// new bytes. Touches no byte beside those that it is given.
///
/// # Safety
/// Both ranges are mapped, and do not overlap.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
