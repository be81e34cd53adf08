//! Pages without a file: what they begin as, until they had to go for the first time.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::content::{self, Piece};
use super::{Backing, BackingError, PAGE_BYTES};

/// Zeros, behind what is said to be at their beginning; and a file without a name for what was modified and is in no frame.
#[derive(Debug)]
pub struct Anonymous {
    pages: u64,
    beginning: Vec<u8>,
    swap: OwnedFd,
    /// What is in that file.
    kept: Mutex<BTreeSet<u64>>,
}

impl Anonymous {
    /// So many pages, which begin with these bytes. Their file is in this directory.
    pub fn new(pages: u64, beginning: Vec<u8>, directory: &Path) -> Result<Self, Errno> {
        if beginning.len() as u64 > pages.saturating_mul(PAGE_BYTES as u64) {
            return Err(Errno::INVAL);
        }
        let flags = OFlags::CLOEXEC | OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let swap = match open(directory, flags | OFlags::DIRECT, mode) {
            Err(Errno::INVAL) => open(directory, flags, mode)?,
            swap => swap?,
        };
        Ok(Self { pages, beginning, swap, kept: Mutex::default() })
    }

    fn error(first: u64, action: &'static str) -> impl Fn(Errno) -> BackingError {
        move |error| BackingError::Host {
            name: "memory without a file".to_owned(),
            page: first,
            action,
            error,
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Backing for Anonymous {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&self, first: u64, into: &[Piece]) -> Result<(), BackingError> {
        let count = into.iter().map(Piece::len).sum::<usize>() / PAGE_BYTES;
        let kept: Vec<u64> = self.kept().range(first..first + count as u64).copied().collect();
        if !kept.is_empty() {
            // Where the file has a hole or an end, pages are as they began.
            let read = content::read(self.swap.as_fd(), first * PAGE_BYTES as u64, into);
            read.map_err(Self::error(first, "read"))?;
        }
        let mut page = first;
        for piece in into {
            for offset in (0..piece.len()).step_by(PAGE_BYTES) {
                if kept.binary_search(&page).is_err() {
                    let start = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(PAGE_BYTES);
                    let start = start.min(self.beginning.len());
                    let end = (start + PAGE_BYTES).min(self.beginning.len());
                    let mut bytes = [0; PAGE_BYTES];
                    bytes[..end - start].copy_from_slice(&self.beginning[start..end]);
                    piece.fill(offset, &bytes);
                }
                page += 1;
            }
        }
        Ok(())
    }

    fn write(&self, first: u64, from: &[Piece]) -> Result<(), BackingError> {
        let written = content::write(self.swap.as_fd(), first * PAGE_BYTES as u64, from);
        written.map_err(Self::error(first, "written"))?;
        let count = from.iter().map(Piece::len).sum::<usize>() / PAGE_BYTES;
        self.kept().extend(first..first + count as u64);
        Ok(())
    }

    /// Nobody finds them again.
    fn sync(&self) -> Result<(), BackingError> {
        Ok(())
    }
}
