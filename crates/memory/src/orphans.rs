//! Frames whose home is no more, in the hands of whoever was given a second reference: to them, and to the guards of those who import them.
//!
//! While one such reference to a guard is there, the kernel keeps the marks in the importer's page tables: no store goes through that the home had not
//! granted. What it had granted is taken away together with the frames. They are emptied, and not cut short, though touches beyond the end
//! of a file would be stopped even without a guard: a file that its home can cut short every importer can, which needs no more for it than for its
//! mapping, and then its home dies of a bus error instead of losing a page.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::frames;
use crate::memory::MemoryError;
use crate::space::PAGE_BYTES;
use crate::userfaultfd::Userfaultfd;

/// Frames of another process.
#[derive(Debug)]
pub struct Orphaned {
    file: OwnedFd,
    bytes: u64,
}

impl Orphaned {
    /// An allegation, until it is seen that nobody can change its length.
    pub fn new(file: OwnedFd) -> Result<Self, MemoryError> {
        let bytes = frames::check(file.as_fd())?;
        Ok(Self { file, bytes })
    }

    /// Nobody has any of it any more: entries of all processes are gone when this returns, and whoever is guarded is stopped at the next touch.
    pub fn empty(&self) -> Result<(), MemoryError> {
        frames::punch(self.file.as_fd(), 0, self.bytes)
            .map_err(|source| MemoryError::System { action: "empty frames whose home is gone", source })
    }
}

impl AsFd for Orphaned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A second reference to an importer's guard.
#[derive(Debug)]
pub struct KeptGuard {
    guard: Userfaultfd,
    /// Where the importer has the first frame.
    address: usize,
}

impl KeptGuard {
    /// Of an importer that has its home's first frame at `address`.
    pub fn new(guard: OwnedFd, address: usize) -> Self {
        Self { guard: Userfaultfd::of_another(guard), address }
    }

    /// Where the importer has the first frame.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Whether the importer's process may still touch what is guarded. Only of frames that were emptied: their first page is marked.
    pub fn lives(&self) -> bool {
        self.guard.try_write_protect(self.address, PAGE_BYTES, true) != Err(Errno::SRCH)
    }
}

impl AsFd for KeptGuard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guard.as_fd()
    }
}
