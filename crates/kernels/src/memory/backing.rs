//! Where pages are kept while they are in no frame.

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fdatasync, fstat, open};
use rustix::io::Errno;
use thiserror::Error;

use super::PAGE_BYTES;
use super::content::{self, Piece};

/// Why pages did not come or go.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BackingError {
    /// What keeps them has ended before.
    #[error("{name} ends before page {page}")]
    Ended {
        /// What keeps them.
        name: String,
        /// Of the segment.
        page: u64,
    },
    /// The host does not read or write.
    #[error("{name}, from page {page} on, cannot be {action}: {error}")]
    Host {
        /// What keeps them.
        name: String,
        /// Of the segment.
        page: u64,
        /// Read, or written.
        action: &'static str,
        /// Why.
        error: Errno,
    },
}

/// Keeps pages. Several threads ask it at a time, none of them of the same pages.
pub trait Backing: Send + Sync + Debug {
    /// How many pages.
    fn pages(&self) -> u64;

    /// Fills the pieces with neighbouring pages.
    fn read(&self, first: u64, into: &[Piece]) -> Result<(), BackingError>;

    /// Keeps what is in the pieces.
    fn write(&self, first: u64, from: &[Piece]) -> Result<(), BackingError>;

    /// What was written stays if the machine does not.
    fn sync(&self) -> Result<(), BackingError>;
}

/// A file of the host, of which the host keeps no copy if its file system lets it be so.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Past the host's page cache, if that can be.
    direct: OwnedFd,
    /// For the last page, if it is not a whole one.
    usual: OwnedFd,
    bytes: u64,
    is_direct: bool,
}

impl File {
    /// Opens it, to be read and perhaps written. It is as long as it is now.
    pub fn open(path: &Path, is_written: bool) -> Result<Self, Errno> {
        let flags = OFlags::CLOEXEC | if is_written { OFlags::RDWR } else { OFlags::RDONLY };
        let usual = open(path, flags, Mode::empty())?;
        let (direct, is_direct) = match open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(direct) => (direct, true),
            Err(Errno::INVAL) => (open(path, flags, Mode::empty())?, false),
            Err(error) => return Err(error),
        };
        let bytes = u64::try_from(fstat(&usual)?.st_size).map_err(|_| Errno::INVAL)?;
        Ok(Self { path: path.to_owned(), direct, usual, bytes, is_direct })
    }

    /// How long it was when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the host keeps no copy of what is read and written here.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Reads its first bytes: how many there are.
    pub fn read_usual(&self, to: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::pread(&self.usual, to, 0)
    }

    fn error(&self, page: u64, action: &'static str) -> impl Fn(Errno) -> BackingError {
        let name = self.path.display().to_string();
        move |error| BackingError::Host { name: name.clone(), page, action, error }
    }
}

const PAGE: u64 = PAGE_BYTES as u64;

impl Backing for File {
    fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }

    fn read(&self, first: u64, into: &[Piece]) -> Result<(), BackingError> {
        let at = first * PAGE;
        let wanted: usize = into.iter().map(Piece::len).sum();
        let read = content::read(self.direct.as_fd(), at, into).map_err(self.error(first, "read"))?;
        let expected = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(wanted);
        if read < expected {
            let name = self.path.display().to_string();
            return Err(BackingError::Ended { name, page: first + (read / PAGE_BYTES) as u64 });
        }
        // Behind the end of a file its last page is zeros.
        let mut before = 0;
        for piece in into {
            if before + piece.len() > read {
                piece.clear(read.saturating_sub(before));
            }
            before += piece.len();
        }
        Ok(())
    }

    fn write(&self, first: u64, from: &[Piece]) -> Result<(), BackingError> {
        let at = first * PAGE;
        let bytes: usize = from.iter().map(Piece::len).sum();
        let error = self.error(first, "written");
        if at + bytes as u64 <= self.bytes {
            return content::write(self.direct.as_fd(), at, from).map_err(error);
        }
        // The file does not grow.
        let mut left = usize::try_from(self.bytes.saturating_sub(at)).expect("less than the pieces have");
        let mut offset = at;
        for piece in from {
            let mut copy = vec![0; piece.len().min(left)];
            piece.copy_out(0, &mut copy);
            let mut rest = &copy[..];
            while !rest.is_empty() {
                let written = rustix::io::pwrite(&self.usual, rest, offset).map_err(&error)?;
                (rest, offset) = (&rest[written..], offset + written as u64);
            }
            left -= copy.len();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BackingError> {
        fdatasync(&self.usual).map_err(self.error(0, "kept"))
    }
}
