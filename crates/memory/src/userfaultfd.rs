//! Access control by userfaultfd, in the mode in which the faulting thread gets SIGBUS and serves itself.
//!
//! | right | what the MMU has |
//! |---|---|
//! | invalid | no entry: a touch is a missing or a minor fault |
//! | read-only | an entry with the write-protect mark |
//! | read-write | an entry without |
//!
//! An entry may be gone although the right allows something: it was never made, or the kernel has swapped its page out. That stops a
//! thread once more than needed. It never lets one through.
#![expect(unsafe_code, reason = "userfaultfd's ioctls name memory by address")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use comb_coherence::Access;
use comb_types::Mechanism;
use rustix::io::Errno;

use crate::access::{AccessControl, Run};
use crate::frames::Frames;
use crate::kernel::{self, Protection};
use crate::memory::MemoryError;
use crate::space::PAGE_BYTES;

const API: u64 = 0xAA;
const UFFDIO_API: u32 = 0xc018_aa3f;
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
const UFFDIO_COPY: u32 = 0xc028_aa03;
const UFFDIO_WRITEPROTECT: u32 = 0xc018_aa06;
const UFFDIO_CONTINUE: u32 = 0xc020_aa07;

/// Faults are reported for stores to protected pages, for absent pages of files in memory, and for present ones without an entry;
/// marks survive where there is no entry; and all of it by SIGBUS.
const FEATURES: u64 = PAGEFAULT_FLAG_WP | MISSING_SHMEM | SIGBUS | MINOR_SHMEM | WP_HUGETLBFS_SHMEM;
const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const EVENT_REMAP: u64 = 1 << 2;
const MISSING_SHMEM: u64 = 1 << 5;
const SIGBUS: u64 = 1 << 7;
const MINOR_SHMEM: u64 = 1 << 10;
const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;

const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WRITEPROTECT: u64 = 1 << 1;
const REGISTER_MINOR: u64 = 1 << 2;
const WRITEPROTECT_ON: u64 = 1 << 0;
const COPY_DONTWAKE: u64 = 1 << 0;
const COPY_WRITEPROTECTED: u64 = 1 << 1;
const CONTINUE_DONTWAKE: u64 = 1 << 0;
const CONTINUE_WRITEPROTECTED: u64 = 1 << 1;
const WRITEPROTECT_DONTWAKE: u64 = 1 << 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    start: u64,
    bytes: u64,
    mode: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    bytes: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct Continue {
    start: u64,
    bytes: u64,
    mode: u64,
    mapped: i64,
}

/// One descriptor of the kernel, for all guarded memory of the process.
#[derive(Debug)]
pub(crate) struct Userfaultfd {
    descriptor: OwnedFd,
}

impl Userfaultfd {
    /// Opens it, if the kernel has all that is needed; otherwise says what is not there.
    pub(crate) fn open_whole() -> Result<Self, &'static str> {
        if Mechanism::Userfaultfd.is_switched_off() || Mechanism::UserfaultfdContinueWp.is_switched_off() {
            return Err("it, or part of it, is switched off by COMB_WITHOUT");
        }
        let userfaultfd = Self::open().map_err(|error| match error {
            Errno::PERM | Errno::ACCESS => "this process may not use it (a container's filter?)",
            _ => "this kernel lacks it, or part of it",
        })?;
        if !userfaultfd.continues_protected() {
            return Err("this kernel cannot map pages write-protected at once (Linux 6.4 can)");
        }
        Ok(userfaultfd)
    }

    /// One for memory that another process guards, once [`Userfaultfd::open_whole`] has found that this kernel has all that is needed.
    ///
    /// Memory that is moved loses its guard, unless whoever has this descriptor is to be told: then it keeps it, and whoever moves it waits until that
    /// one has listened. Nobody does. So it stands still with all in its place, and changes of what is guarded end with EAGAIN: its home
    /// ends it.
    pub(crate) fn open_guard() -> Result<Self, Errno> {
        Self::open_with(FEATURES | EVENT_REMAP)
    }

    pub(crate) fn open() -> Result<Self, Errno> {
        Self::open_with(FEATURES)
    }

    fn open_with(features: u64) -> Result<Self, Errno> {
        let descriptor = kernel::userfaultfd()?;
        let mut api = Api { api: API, features, ioctls: 0 };
        // SAFETY: the structure that this request is defined with; no memory is touched.
        unsafe { kernel::ioctl(descriptor.as_fd(), UFFDIO_API, &mut api) }?;
        Ok(Self { descriptor })
    }

    /// Whether pages can be mapped write-protected at once. Where they cannot, a store could come between the two steps.
    pub(crate) fn continues_protected(&self) -> bool {
        let Ok(frames) = Frames::create_small() else { return false };
        // What one page of the alias is for.
        let Ok(address) = kernel::map_shared(frames.file(), PAGE_BYTES, Protection::LoadsAndStores) else {
            return false;
        };
        let run = Run { address, frame: 0, bytes: PAGE_BYTES };
        let works = self.register(address, PAGE_BYTES).is_ok()
            && self.change(&frames, run, Access::Invalid, Access::ReadOnly, false).is_ok();
        // SAFETY: mapped above, and nobody else knows of it.
        unsafe { kernel::unmap(address, PAGE_BYTES) };
        works
    }

    pub(crate) fn register(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let mode = REGISTER_MISSING | REGISTER_WRITEPROTECT | REGISTER_MINOR;
        let mut register = Register { start: address as u64, bytes: bytes as u64, mode, ioctls: 0 };
        // SAFETY: the structure that this request is defined with; it changes how faults are reported, and no content.
        unsafe { kernel::ioctl(self.descriptor.as_fd(), UFFDIO_REGISTER, &mut register) }
    }

    /// Makes entries for pages that have none; what has one keeps it, and `at_entry` is told.
    fn map(
        &self,
        frames: &Frames,
        run: Run,
        is_protected: bool,
        at_entry: impl Fn(usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut done = 0;
        let mut is_populated = false;
        while done < run.bytes {
            let bytes = run.bytes - done;
            let start = run.address + done;
            match self.try_map(start, bytes, is_protected) {
                (Ok(()), _) => return Ok(()),
                // Stopped on the way, after some pages: what stopped it comes out at the next try.
                (Err(Errno::AGAIN), mapped) => done += mapped,
                (Err(Errno::EXIST), _) => {
                    at_entry(start)?;
                    done += PAGE_BYTES;
                }
                (Err(Errno::FAULT), _) if !is_populated => {
                    frames.populate(run.frame + done as u64, bytes)?;
                    is_populated = true;
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes entries for pages that have frames and no entries, until something is in the way. EAGAIN: so many bytes are done.
    pub(crate) fn try_map(
        &self,
        address: usize,
        bytes: usize,
        is_protected: bool,
    ) -> (Result<(), Errno>, usize) {
        let mode = CONTINUE_DONTWAKE | if is_protected { CONTINUE_WRITEPROTECTED } else { 0 };
        let mut request = Continue { start: address as u64, bytes: bytes as u64, mode, mapped: 0 };
        // SAFETY: the structure that this request is defined with; guarded pages, which get what their frames contain.
        let done = unsafe { kernel::ioctl(self.descriptor.as_fd(), UFFDIO_CONTINUE, &mut request) };
        (done, usize::try_from(request.mapped).unwrap_or(0))
    }

    /// Makes frames with this content, and entries for them, at once. Frames that are there already are filled and mapped as they are.
    fn copy(&self, frames: &Frames, run: Run, content: &[u8], is_protected: bool) -> Result<(), Errno> {
        let mode = COPY_DONTWAKE | if is_protected { COPY_WRITEPROTECTED } else { 0 };
        let mut done = 0;
        while done < run.bytes {
            let to = (run.address + done) as u64;
            let from = content[done..].as_ptr().expose_provenance() as u64;
            let mut request = Copy { to, from, bytes: (run.bytes - done) as u64, mode, copied: 0 };
            // SAFETY: the structure that this request is defined with; guarded pages without entries, and as much content.
            match unsafe { kernel::ioctl(self.descriptor.as_fd(), UFFDIO_COPY, &mut request) } {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => done += usize::try_from(request.copied).unwrap_or(0),
                Err(Errno::EXIST) => {
                    let page = Run {
                        address: run.address + done,
                        frame: run.frame + done as u64,
                        bytes: PAGE_BYTES,
                    };
                    frames.copy_in(page.frame, &content[done..done + PAGE_BYTES]);
                    self.map(frames, page, is_protected, |_| Ok(()))?;
                    done += PAGE_BYTES;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One that another process has opened, for its own memory: an allegation.
    pub(crate) fn of_another(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    fn write_protect(&self, address: usize, bytes: usize, is_protected: bool) -> Result<(), Errno> {
        loop {
            match self.try_write_protect(address, bytes, is_protected) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// EAGAIN: the process whose memory it is changes its mappings right now.
    pub(crate) fn try_write_protect(
        &self,
        address: usize,
        bytes: usize,
        is_protected: bool,
    ) -> Result<(), Errno> {
        let mode = if is_protected { WRITEPROTECT_ON } else { WRITEPROTECT_DONTWAKE };
        let mut request = WriteProtect { start: address as u64, bytes: bytes as u64, mode };
        // SAFETY: the structure that this request is defined with; it changes no content.
        unsafe { kernel::ioctl(self.descriptor.as_fd(), UFFDIO_WRITEPROTECT, &mut request) }
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AccessControl for Userfaultfd {
    fn guard(&self, address: usize, bytes: usize, _initial: Access) -> Result<(), MemoryError> {
        // Registered before anything is allowed: there is no moment in which a touch is not stopped. Every page is stopped at first,
        // whatever its right.
        self.register(address, bytes).map_err(|source| MemoryError::System {
            action: "take over the faults of shared memory",
            source,
        })?;
        // SAFETY: addresses that are to be guarded, as `AccessControl` demands of its caller.
        unsafe { kernel::protect(address, bytes, Protection::LoadsAndStores) }
            .map_err(|source| MemoryError::from_mapping("open shared memory", source))
    }

    #[inline]
    fn change(
        &self,
        frames: &Frames,
        run: Run,
        from: Access,
        to: Access,
        is_known: bool,
    ) -> Result<(), MemoryError> {
        use Access::{Invalid, ReadOnly, ReadWrite};
        let changed = match (from, to) {
            // An entry that is there already was made by a repair, which has found the new right.
            (Invalid, ReadOnly) => self.map(frames, run, true, |_| Ok(())),
            (Invalid, ReadWrite) => self.map(frames, run, false, |_| Ok(())),
            // There is no entry; when there is to be one, a repair will find the new right.
            _ if !is_known => Ok(()),
            (ReadOnly, ReadWrite) => self.write_protect(run.address, run.bytes, false),
            (ReadWrite, ReadOnly) => self.write_protect(run.address, run.bytes, true),
            // SAFETY: guarded addresses; the frames keep the content.
            (_, Invalid) => unsafe { kernel::advise(run.address, run.bytes, libc::MADV_DONTNEED) },
            (ReadWrite, ReadWrite) | (ReadOnly, ReadOnly) => Ok(()),
        };
        changed.map_err(|source| {
            if to < from {
                // What was raised in part is lowered again.
                let _ = match from {
                    // SAFETY: as above.
                    Invalid => unsafe { kernel::advise(run.address, run.bytes, libc::MADV_DONTNEED) },
                    _ => self.write_protect(run.address, run.bytes, true),
                };
            }
            MemoryError::from_frames("change the rights to shared memory", source)
        })
    }

    fn deliver(&self, frames: &Frames, run: Run, content: &[u8], to: Access) -> Result<bool, MemoryError> {
        self.copy(frames, run, content, to == Access::ReadOnly).map(|()| true).map_err(|source| {
            // SAFETY: guarded addresses; what was filled in part is invalid, whatever it contains.
            let _ = unsafe { kernel::advise(run.address, run.bytes, libc::MADV_DONTNEED) };
            MemoryError::from_frames("fill shared memory", source)
        })
    }

    fn repair(&self, frames: &Frames, run: Run, access: Access) -> Result<(), MemoryError> {
        let repaired = match access {
            Access::Invalid => Ok(()),
            Access::ReadOnly => self.map(frames, run, true, |_| Ok(())),
            Access::ReadWrite => {
                // The entry may be one that was made when the right was smaller.
                self.map(frames, run, false, |page| self.write_protect(page, PAGE_BYTES, false))
            }
        };
        repaired.map_err(|source| MemoryError::from_frames("show shared memory to threads", source))
    }
}
