//! The client's side of memory whose frames another process has, and decides about: see [`crate::exports`].
//!
//! A touch of what the home has not shown is stopped, and so is a store that it has not granted: whoever serves the fault asks the home. The
//! descriptor by which that changes is the home's, and nobody here has it.
#![expect(unsafe_code, reason = "puts mappings where programs expect them")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;

use crate::frames;
use crate::kernel::{self, Protection};
use crate::layout::Layout;
use crate::memory::{Memory, MemoryError, give_up, span};
use crate::userfaultfd::Userfaultfd;

/// What imported memory is guarded by: a descriptor for whoever has the frames.
#[derive(Debug)]
pub struct Guard(Userfaultfd);

impl Guard {
    /// An error where the kernel has no userfaultfd: nobody can guard anything.
    pub fn new() -> Result<Self, MemoryError> {
        Userfaultfd::open_whole().map_err(MemoryError::NoUserfaultfd)?;
        let guard = Userfaultfd::open_guard();
        guard.map(Self).map_err(|_| MemoryError::NoUserfaultfd("this kernel lacks a part of it"))
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Memory {
    /// Maps the frames that their home has given. What is returned is for the home, which guards them by it; this process closes it when it
    /// has been handed over. Until [`Memory::open_import`] nothing there may be touched.
    ///
    /// Where the kernel has no userfaultfd, nobody can guard them: an error, and copies are the way.
    pub fn import(&self, layout: &Layout, file: BorrowedFd<'_>) -> Result<OwnedFd, MemoryError> {
        let guard = Guard::new()?;
        self.import_under(&guard, layout, file, 0)?;
        Ok(guard.0.into_descriptor())
    }

    /// The same with a guard that this process keeps, for frames that begin at `offset` of their file.
    pub fn import_under(
        &self,
        guard: &Guard,
        layout: &Layout,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), MemoryError> {
        if offset.checked_add(layout.frame_bytes()).is_none_or(|end| end > frames::check(file).unwrap_or(0)) {
            return Err(MemoryError::BeyondFrames);
        }
        let (address, bytes) = span(layout);
        let mapped = || {
            // SAFETY: within the heap, which is ours; the caller says that nobody uses these addresses yet.
            unsafe {
                kernel::replace_shared(address, bytes, Protection::Nothing, file, offset)?;
                // A forked child would have the memory without its guard.
                kernel::advise(address, bytes, libc::MADV_DONTFORK)?;
                let _ = kernel::advise(address, bytes, libc::MADV_NOHUGEPAGE);
                let _ = kernel::advise(address, bytes, libc::MADV_DONTDUMP);
            }
            guard.0.register(address, bytes)
        };
        mapped().map_err(|source| {
            let _ = give_up(layout);
            MemoryError::from_mapping("map memory of another cell", source)
        })
    }

    /// The home guards it: threads may come. Who is only to read gets no mapping that it could store through, be something granted or not.
    pub fn open_import(&self, layout: &Layout, to_store: bool) -> Result<(), MemoryError> {
        let (address, bytes) = span(layout);
        let protection = if to_store { Protection::LoadsAndStores } else { Protection::Loads };
        // SAFETY: mapped by `import`.
        unsafe { kernel::protect(address, bytes, protection) }
            .map_err(|source| MemoryError::from_mapping("open memory of another cell", source))
    }

    /// All of an allocation is lost: from now on whoever touches it is stopped, and there is no moment in which it is not one or the other.
    pub fn forsake(&self, layout: &Layout) -> Result<(), MemoryError> {
        let system = |source| MemoryError::System { action: "give up lost memory", source };
        // Any touch beyond the end of a file is a bus error.
        let nothing = rustix::fs::memfd_create("comb-lost", MemfdFlags::CLOEXEC).map_err(system)?;
        let (address, bytes) = span(layout);
        // SAFETY: within the heap, which is ours; threads that use it are meant to be stopped.
        unsafe {
            kernel::replace_shared(address, bytes, Protection::LoadsAndStores, nothing.as_fd(), 0)
                .map_err(system)?;
            let _ = kernel::advise(address, bytes, libc::MADV_DONTFORK);
        }
        Ok(())
    }
}
