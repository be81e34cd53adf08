//! The client's side of memory whose frames another process has, and decides about: see [`crate::exports`].
//!
//! Loads of pages that have a frame are the kernel's business alone. A store that was not granted is stopped, and so is any touch of
//! a page without a frame: whoever serves the fault asks the home. The descriptor that can change that is the home's, and nobody here has it.
#![expect(unsafe_code, reason = "puts mappings where programs expect them")]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use comb_coherence::Block;
use rustix::fs::MemfdFlags;

use crate::frames;
use crate::kernel::{self, Protection};
use crate::layout::Layout;
use crate::memory::{Memory, MemoryError, give_up, span};
use crate::space::index;
use crate::userfaultfd::Userfaultfd;

impl Memory {
    /// Maps the frames that their home has given. What is returned is for the home, which guards them by it; this process closes it when it
    /// has been handed over. Until [`Memory::open_import`] nothing there may be touched.
    ///
    /// Where the kernel has no userfaultfd, nobody can guard them: an error, and copies are the way.
    pub fn import(&self, layout: &Layout, file: BorrowedFd<'_>) -> Result<OwnedFd, MemoryError> {
        if frames::check(file)? < layout.frame_bytes() {
            return Err(MemoryError::BeyondFrames);
        }
        // Only a kernel that has the rest marks pages of files that have no entry yet.
        let guard = Userfaultfd::open_whole().map_err(MemoryError::NoUserfaultfd)?;
        let (address, bytes) = span(layout);
        let mapped = || {
            // SAFETY: within the heap, which is ours; the caller says that nobody uses these addresses yet.
            unsafe {
                kernel::replace_shared(address, bytes, Protection::Nothing, file, 0)?;
                // A forked child would have the memory without its guard.
                kernel::advise(address, bytes, libc::MADV_DONTFORK)?;
                let _ = kernel::advise(address, bytes, libc::MADV_NOHUGEPAGE);
            }
            guard.register_import(address, bytes)
        };
        mapped().map_err(|source| {
            let _ = give_up(layout);
            MemoryError::from_mapping("map memory of another cell", source)
        })?;
        Ok(guard.into_descriptor())
    }

    /// The home guards it: threads may come.
    pub fn open_import(&self, layout: &Layout) -> Result<(), MemoryError> {
        let (address, bytes) = span(layout);
        // SAFETY: mapped by `import`.
        unsafe { kernel::protect(address, bytes, Protection::LoadsAndStores) }
            .map_err(|source| MemoryError::from_mapping("open memory of another cell", source))
    }

    /// Has the kernel show blocks that are said to have frames: one call instead of a fault for each page. A hint.
    pub fn look_ahead(&self, layout: &Layout, blocks: Range<u64>) {
        const MADV_POPULATE_READ: libc::c_int = 22;
        let end = blocks.end.min(layout.blocks());
        if blocks.start < end {
            let bytes = index((end - blocks.start) * layout.block_bytes() as u64);
            // SAFETY: mapped by `import`; it makes entries and no content. An older kernel refuses, and each page faults by itself.
            let _ = unsafe { kernel::advise(layout.address(Block(blocks.start)), bytes, MADV_POPULATE_READ) };
        }
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
