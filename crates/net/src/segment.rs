//! Shared memory between two processes: made by one, sealed, mapped by the other after it looked at the seals.
//!
//! The maker creates the memory, maps it, seals it, and then hands the descriptor over. The seals are what protects
//! the taker: SHRINK so that it never meets SIGBUS, GROW so that the size stays what was checked, SEAL so that this
//! stays true. A window that a peer may only read has FUTURE_WRITE too, so that it cannot be mapped writable.
#![expect(unsafe_code, reason = "maps memory that another process shares, and hands out words of it")]

#[cfg_attr(miri, path = "segment/interpreted.rs")]
mod kernel;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::SealFlags;

use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Words};

/// Who may write a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writers {
    /// Its maker alone: the kernel sees to it.
    Maker,
    /// Its maker and the peer that it is given to.
    Both,
}

impl Writers {
    fn seals(self) -> SealFlags {
        let fixed_size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        match self {
            Self::Maker => fixed_size | SealFlags::FUTURE_WRITE,
            Self::Both => fixed_size,
        }
    }
}

/// Why a segment could not be made or taken.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The kernel refused; nothing was mapped.
    #[error("cannot {action} shared memory: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// What the peer handed over is not a sealable memory file. Nothing was mapped.
    #[error("the peer handed over a descriptor that is not sealed shared memory")]
    NotMemory,
    /// The peer handed over memory without the seals that protect us. Nothing was mapped.
    #[error("the peer's shared memory lacks the seals {missing:?}; it has {found:?}")]
    Seals {
        /// Demanded and absent.
        missing: SealFlags,
        /// Present.
        found: SealFlags,
    },
    /// The peer's memory has another size than it announced. Nothing was mapped.
    #[error("the peer announced {announced} bytes of shared memory and handed over {found}")]
    Size {
        /// As announced.
        announced: u64,
        /// As found.
        found: u64,
    },
}

fn system(action: &'static str) -> impl Fn(rustix::io::Errno) -> SegmentError {
    move |source| SegmentError::System { action, source }
}

/// A mapping of shared memory; unmapped when the last user of it is gone.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: a mapping is an address range; all access to its content goes through atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Self, SegmentError> {
        let base = kernel::map(fd, bytes, writable).map_err(system("map"))?;
        Ok(Self { base, bytes, writable })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours since `new`, and nobody holds a pointer into it without holding the `Arc`.
        unsafe { kernel::unmap(self.base, self.bytes) };
    }
}

/// Maps the first page of a segment at an address, in place of what was there, to be read.
///
/// # Safety
/// The page at `address` is the caller's, and nobody uses what was there.
pub(crate) unsafe fn show(fd: BorrowedFd<'_>, address: usize) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let (page, flags) = (std::ptr::with_exposed_provenance_mut(address), libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::mmap(page, 4096, libc::PROT_READ, flags, fd.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// A mapped segment. Cheap to clone; the memory goes with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    mapping: Arc<Mapping>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `base` points into `mapping`, which is kept alive beside it.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment, maps it writable and seals it. The descriptor is for handing over.
    pub(crate) fn create(
        name: &str,
        bytes: usize,
        writers: Writers,
    ) -> Result<(Self, OwnedFd), SegmentError> {
        let fd = kernel::create(name, bytes)?;
        // The maker maps before it seals: afterwards nobody can map it writable any more, the maker neither.
        let segment = Self::map(fd.as_fd(), bytes, true)?;
        kernel::seal(fd.as_fd(), writers.seals()).map_err(system("seal"))?;
        Ok((segment, fd))
    }

    /// Takes a segment that a peer made: an allegation until its seals and its size are seen.
    pub(crate) fn adopt(
        fd: BorrowedFd<'_>,
        announced: u64,
        writers: Writers,
        writable: bool,
    ) -> Result<Self, SegmentError> {
        let bytes = Self::inspect(fd, announced, writers)?;
        Self::map(fd, bytes, writable)
    }

    /// Looks at seals and size without mapping: what an agent does with memory that passes through it.
    pub(crate) fn inspect(
        fd: BorrowedFd<'_>,
        announced: u64,
        writers: Writers,
    ) -> Result<usize, SegmentError> {
        kernel::inspect(fd, announced, writers.seals())
    }

    fn map(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Self, SegmentError> {
        let mapping = Mapping::new(fd, bytes, writable)?;
        let base = mapping.base;
        Ok(Self { mapping: Arc::new(mapping), base, bytes })
    }

    /// A part of the segment.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Self {
        assert!(offset.is_multiple_of(8) && offset.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        // SAFETY: `offset` is within the mapping.
        let base = unsafe { self.base.add(offset) };
        Self { mapping: Arc::clone(&self.mapping), base, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The lower half of the word at `index`, for futexes.
    pub(crate) fn word32(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.bytes / 8);
        // SAFETY: as for `word`. Nobody uses both widths for one word.
        unsafe { self.base.cast::<AtomicU32>().add(index * 2).as_ref() }
    }

    /// Asks for the cache line at `offset`, wherever that is.
    #[inline]
    pub(crate) fn prefetch_for_reading(&self, offset: usize) {
        crate::copy::prefetch_for_reading(self.base.as_ptr().wrapping_add(offset));
    }

    /// The byte at `index`.
    pub(crate) fn byte(&self, index: usize) -> &AtomicU8 {
        assert!(index < self.bytes);
        // SAFETY: as for `word`. Words that hold bytes are used in no other way than by `byte` and `glance`.
        unsafe { self.base.cast::<AtomicU8>().add(index).as_ref() }
    }

    /// The eight bytes from eight times `index` on: a hint, for they change meanwhile.
    #[inline]
    pub(crate) fn glance(&self, index: usize) -> u64 {
        assert!(index < self.bytes / 8);
        // SAFETY: within the mapping, as just checked.
        unsafe { crate::copy::glance(self.base.cast::<u64>().add(index).as_ptr()) }
    }

    /// How many blocks of eight words from `index` on are as in `private` before one is not: a hint, as
    /// [`Segment::glance`].
    #[inline]
    pub(crate) fn same_blocks(&self, index: usize, private: &[[u64; 8]]) -> usize {
        assert!(index.checked_add(private.len() * 8).is_some_and(|end| end <= self.bytes / 8));
        // SAFETY: within the mapping, as just checked, and within the slice.
        unsafe {
            let shared = self.base.cast::<u64>().add(index).as_ptr();
            crate::copy::same_blocks(shared, private.as_ptr().cast(), private.len())
        }
    }

    /// Bytes at `offset` as a raw range, checked to lie within the segment.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Option<SharedRange<'_>> {
        (offset.checked_add(bytes)? <= self.bytes).then(|| SharedRange {
            // SAFETY: within the mapping, as just checked.
            base: unsafe { self.base.add(offset) },
            bytes,
            writable: self.mapping.writable,
            segment: std::marker::PhantomData,
        })
    }

    /// Frees the memory behind the segment; later reads on any side see zeros. Works on segments of both writers
    /// only: a FUTURE_WRITE seal forbids it.
    pub(crate) fn punch(&self, fd: BorrowedFd<'_>) -> Result<(), SegmentError> {
        kernel::punch(fd, self.bytes).map_err(system("give back"))
    }
}

impl Words for Segment {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8);
        // SAFETY: aligned (mappings are page-aligned, parts start at multiples of 8) and within the mapping, which
        // lives as long as `self`. Read-only mappings are only loaded from: a store to one is our own fault, and the
        // MMU ends this process for it.
        unsafe { self.base.cast::<AtomicU64>().add(index).as_ref() }
    }

    #[inline]
    fn slot(&self, first: usize) -> &[AtomicU64; 8] {
        assert!(first + 8 <= self.bytes / 8);
        // SAFETY: as for `word`, for eight of them.
        unsafe { self.base.cast::<AtomicU64>().add(first).cast::<[AtomicU64; 8]>().as_ref() }
    }

    #[inline]
    fn ask_for_slot(&self, first: usize) {
        crate::copy::prefetch_for_writing(self.base.as_ptr().wrapping_add(first * 8), 64);
    }
}

/// A range of shared memory that a peer may be writing at this moment. It is read by raw copies only; there is never
/// a Rust reference to its content.
#[derive(Clone, Copy, Debug)]
pub struct SharedRange<'a> {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
    segment: std::marker::PhantomData<&'a Segment>,
}

impl SharedRange<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies the first `into.len()` bytes out. Panics if there are fewer.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) {
        self.copy_part(0, into);
    }

    /// As [`SharedRange::copy_to`], from byte `at` on.
    #[inline]
    pub(crate) fn copy_part(&self, at: usize, into: &mut [u8]) {
        assert!(at <= self.bytes && into.len() <= self.bytes - at);
        // SAFETY: both ranges are valid for the length; `into` is private memory, so they do not overlap.
        unsafe { crate::copy::copy_out(into.as_mut_ptr(), self.base.add(at).as_ptr(), into.len()) }
    }

    /// The 64-bit word at byte `offset`, read once. Panics outside.
    #[inline]
    pub fn word(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: within the range; ranges handed out by this crate start at multiples of 8; a volatile read is not
        // assumed to be stable.
        unsafe { self.base.add(offset).cast::<u64>().read_volatile() }
    }

    /// Asks for the lines before they are written.
    #[inline]
    pub(crate) fn prefetch_for_writing(&self) {
        crate::copy::prefetch_for_writing(self.base.as_ptr(), self.bytes);
    }

    /// Its whole 64-bit words in order, each read once.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.bytes / 8).map(|index| {
            // SAFETY: within the range; see `word`.
            unsafe { self.base.cast::<u64>().add(index).read_volatile() }
        })
    }

    /// Copies `from` in. Panics if it is longer than the range or the mapping is read-only.
    #[inline]
    pub(crate) fn copy_from(&self, from: &[u8]) {
        assert!(from.len() <= self.bytes && self.writable);
        // SAFETY: both ranges are valid for the length; `from` is private memory, so they do not overlap.
        unsafe { crate::copy::copy_in(self.base.as_ptr(), from.as_ptr(), from.len()) }
    }

    /// As [`SharedRange::copy_from`], past the cache: there for the reader after [`crate::copy::settle`].
    #[inline]
    pub(crate) fn copy_from_past_cache(&self, from: &[u8]) {
        assert!(from.len() <= self.bytes && self.writable);
        // SAFETY: as for `copy_from`.
        unsafe { crate::copy::copy_past_cache(self.base.as_ptr(), from.as_ptr(), from.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_the_maker_writes_the_peer_reads_and_cannot_write() {
        let (own, fd) = Segment::create("comb-test", 8192, Writers::Maker).unwrap();
        let theirs = Segment::adopt(fd.as_fd(), 8192, Writers::Maker, false).unwrap();
        own.word(3).store(42, Ordering::Release);
        assert_eq!(theirs.word(3).load(Ordering::Acquire), 42);
        let writable = Mapping::new(fd.as_fd(), 8192, true);
        assert!(writable.is_err(), "FUTURE_WRITE forbids a second writable mapping");
        assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "SHRINK forbids truncation");
    }

    #[test]
    fn wrong_seals_and_wrong_sizes_are_refused_before_mapping() {
        let (_own, fd) = Segment::create("comb-test", 4096, Writers::Both).unwrap();
        assert!(matches!(
            Segment::adopt(fd.as_fd(), 4096, Writers::Maker, false),
            Err(SegmentError::Seals { missing, .. }) if missing == SealFlags::FUTURE_WRITE
        ));
        assert!(matches!(
            Segment::adopt(fd.as_fd(), 8192, Writers::Both, false),
            Err(SegmentError::Size { announced: 8192, found: 4096 })
        ));
        let unsealed = rustix::fs::memfd_create("comb-test", MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(
            Segment::adopt(unsealed.as_fd(), 4096, Writers::Maker, false),
            Err(SegmentError::Seals { .. })
        ));
        let huge = rustix::fs::memfd_create("comb-test", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB);
        // Absent where the kernel has no huge pages: then nobody can hand one over either.
        if let Ok(huge) = huge {
            rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
            rustix::fs::fcntl_add_seals(&huge, Writers::Both.seals()).unwrap();
            assert!(matches!(
                Segment::inspect(huge.as_fd(), 2 << 20, Writers::Both),
                Err(SegmentError::NotMemory)
            ));
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(matches!(
            Segment::adopt(reader.as_fd(), 4096, Writers::Maker, false),
            Err(SegmentError::NotMemory)
        ));
    }

    #[test]
    fn miri_a_punched_segment_reads_zero() {
        let (own, fd) = Segment::create("comb-test", 4096, Writers::Both).unwrap();
        own.range(0, 4).unwrap().copy_from(b"data");
        own.punch(fd.as_fd()).unwrap();
        let mut back = [1; 4];
        own.range(0, 4).unwrap().copy_to(&mut back);
        assert_eq!(back, [0; 4]);
    }

    #[test]
    fn miri_a_range_never_leaves_its_segment() {
        let (own, _fd) = Segment::create("comb-test", 4096, Writers::Maker).unwrap();
        assert!(own.range(4090, 7).is_none());
        assert!(own.range(usize::MAX, 2).is_none());
        assert!(own.range(4096, 0).is_some());
    }
}
