//! Mappings of a space by userfaultfd: what has no entry stops whoever touches it, by SIGBUS, and entries are made from outside.
//!
//! Stores to a page for the first time are noted by the host's kernel and do not stop. When the entry goes, the note stays behind: who asks then
//! learns whether the page was modified, and no store can come between the two.
#![expect(unsafe_code, reason = "ioctls that no crate wraps")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use comb_types::Mechanism;
use rustix::io::Errno;

use crate::host::ioctl;
use crate::stub::layout::PAGE_BYTES;

const UFFDIO_API: u32 = 0xc018_aa3f;
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
const UFFDIO_CONTINUE: u32 = 0xc020_aa07;
const PAGEMAP_SCAN: u32 = 0xc060_6610;

const API: u64 = 0xAA;
const MISSING_SHMEM: u64 = 1 << 5;
const SIGBUS: u64 = 1 << 7;
const MINOR_SHMEM: u64 = 1 << 10;
const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const WP_UNPOPULATED: u64 = 1 << 13;
const WP_ASYNC: u64 = 1 << 15;
const FEATURES: u64 = MISSING_SHMEM | SIGBUS | MINOR_SHMEM;
/// With these, first stores are noted.
const NOTES: u64 = WP_HUGETLBFS_SHMEM | WP_UNPOPULATED | WP_ASYNC;

const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WRITEPROTECT: u64 = 1 << 1;
const REGISTER_MINOR: u64 = 1 << 2;
const CONTINUE_DONTWAKE: u64 = 1 << 0;
const CONTINUE_WRITEPROTECTED: u64 = 1 << 1;

const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Continue {
    start: u64,
    bytes: u64,
    mode: u64,
    mapped: i64,
}

#[repr(C)]
#[derive(Default)]
struct Scan {
    bytes: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    most_pages: u64,
    inverted: u64,
    wanted: u64,
    wanted_any: u64,
    returned: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// A space's, made by its mapper.
#[derive(Debug)]
pub(crate) struct Userfaultfd {
    descriptor: OwnedFd,
    /// Whether the host's kernel notes first stores.
    notes: bool,
}

impl Userfaultfd {
    /// Agrees with the host's kernel on how faults are told.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let agree = |features| {
            let mut api = Api { api: API, features, ioctls: 0 };
            // SAFETY: the structure that this request is defined with; no memory is touched.
            unsafe { ioctl(&descriptor, UFFDIO_API, &mut api) }.map(drop)
        };
        // Who is refused may ask again for less.
        let notes = !Mechanism::PagemapScan.is_switched_off() && agree(FEATURES | NOTES).is_ok();
        if !notes {
            agree(FEATURES)?;
        }
        Ok(Self { descriptor, notes })
    }

    /// Whether it is known which pages were stored to.
    pub(crate) fn notes(&self) -> bool {
        self.notes
    }

    /// What it is asked, and by which call, so that what has no entry there stops whoever touches it from then on. Its space asks, for it has to be between two other calls.
    pub(crate) fn registration(&self, start: u64, bytes: u64, request: u64) -> ([u64; 3], [u64; 8]) {
        let mode = REGISTER_MISSING | REGISTER_MINOR | if self.notes { REGISTER_WRITEPROTECT } else { 0 };
        let descriptor = u64::from(self.descriptor.as_raw_fd().cast_unsigned());
        let ioctl = libc::SYS_ioctl.cast_unsigned();
        ([start, bytes, mode], [ioctl, descriptor, UFFDIO_REGISTER.into(), request, 0, 0, 0, 0])
    }

    /// Makes entries for pages that have none; of those that count as stored to, first stores are not noted any more. How many bytes it did, and what stopped it.
    pub(crate) fn map(&self, start: u64, bytes: u64, is_stored: bool) -> (u64, Result<(), Errno>) {
        let mode = CONTINUE_DONTWAKE | if self.notes && !is_stored { CONTINUE_WRITEPROTECTED } else { 0 };
        let mut request = Continue { start, bytes, mode, mapped: 0 };
        // SAFETY: the structure that this request is defined with; a space's memory, of which Rust knows nothing.
        let result = unsafe { ioctl(&self.descriptor, UFFDIO_CONTINUE, &mut request) };
        (u64::try_from(request.mapped).unwrap_or(0), result.map(drop))
    }
}

/// What a page of a space has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// An entry.
    Present,
    /// None; it had one, and nobody stored there.
    Clean,
}

/// Tells all of a range that have an entry, or had one and were not modified, in stretches. What is not told has none, and was.
pub(crate) fn scan(
    pagemap: impl AsFd,
    start: u64,
    bytes: u64,
    mut each: impl FnMut(u64, u64, Entry),
) -> Result<(), Errno> {
    let end = start + bytes;
    let mut at = start;
    while at < end {
        let mut regions = [Region::default(); 64];
        let mut scan = Scan {
            bytes: size_of::<Scan>() as u64,
            start: at,
            end,
            regions: regions.as_mut_ptr().addr() as u64,
            regions_length: regions.len() as u64,
            wanted_any: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            returned: PAGE_IS_PRESENT | PAGE_IS_SWAPPED | PAGE_IS_WRITTEN,
            ..Scan::default()
        };
        // SAFETY: the structure that this request is defined with, with room for as many regions as it says.
        let found = unsafe { ioctl(pagemap.as_fd(), PAGEMAP_SCAN, &mut scan) }?;
        for region in &regions[..found.min(regions.len())] {
            let entry = if region.categories & PAGE_IS_PRESENT != 0 {
                Entry::Present
            } else if region.categories & PAGE_IS_WRITTEN == 0 {
                Entry::Clean
            } else {
                continue;
            };
            each(region.start / PAGE_BYTES, (region.end - region.start) / PAGE_BYTES, entry);
        }
        if scan.walk_end <= at {
            break;
        }
        at = scan.walk_end;
    }
    Ok(())
}

/// The same without notes: which pages have an entry, one by one.
pub(crate) fn look(
    pagemap: impl AsFd,
    start: u64,
    bytes: u64,
    mut each: impl FnMut(u64, u64, Entry),
) -> Result<(), Errno> {
    const PRESENT: u64 = 1 << 63;
    let first = start / PAGE_BYTES;
    let mut entries = vec![0; usize::try_from(bytes / PAGE_BYTES * 8).map_err(|_| Errno::INVAL)?];
    let read = rustix::io::pread(pagemap, &mut entries, first * 8)?;
    for (page, entry) in (first..).zip(entries[..read].chunks_exact(8)) {
        if u64::from_le_bytes(entry.try_into().expect("eight bytes")) & PRESENT != 0 {
            each(page, 1, Entry::Present);
        }
    }
    Ok(())
}
