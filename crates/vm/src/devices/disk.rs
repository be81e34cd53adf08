//! Disks of virtual machines: many share one base, which is never written, and each has an overlay with what it wrote; or one has a disk for itself. (Disco §4.2.5)

mod block;
pub mod command;
mod overlay;
mod pieces;
mod ranges;
mod request;
mod telling;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FlockOperation, fadvise, fdatasync, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use block::{Block, Counts};

use super::backend::Backend;
use overlay::{Flaw, Identity, Overlay, punch};
use pieces::Pieces;

/// The unit in which disks are read and written.
pub const SECTOR_BYTES: u64 = 512;
/// A base is known by so many bytes of its beginning: the tables and the first structures of its file system are there.
const FINGERPRINT_BYTES: u64 = 1 << 20;

/// What becomes of what a virtual machine writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Writes {
    /// They go into an overlay in this file, which stays.
    Overlay(PathBuf),
    /// They go into an overlay that is gone with the virtual machine.
    Temporary,
    /// There are none.
    Refused,
    /// They go to the disk itself, which nobody else has meanwhile.
    Exclusive,
}

/// Why a disk can not be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file can not be used.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// Another virtual machine has it: for writing, or we want it for that.
    #[error("{0} is in use by another virtual machine")]
    InUse(PathBuf),
    /// It is no disk.
    #[error("{0} has {1} bytes, and a disk has whole sectors of 512, at least one")]
    Length(PathBuf, u64),
    /// It is an overlay, or was one, and is not as it was left.
    #[error("{0} is damaged: {1}")]
    Damaged(PathBuf, &'static str),
    /// It is an overlay over something else.
    #[error("{0} is an overlay over another base")]
    OtherBase(PathBuf),
}

impl OpenError {
    fn new(path: &Path, flaw: impl Into<Flaw>) -> Self {
        let path = path.to_owned();
        match flaw.into() {
            Flaw::File(error) => OpenError::File(path, error),
            Flaw::InUse => OpenError::InUse(path),
            Flaw::Damaged(what) => OpenError::Damaged(path, what),
            Flaw::OtherBase => OpenError::OtherBase(path),
        }
    }
}

/// Why nothing becomes of a request.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it can not be")]
    Wrong,
    #[error("there is no such thing")]
    Unsupported,
    #[error(transparent)]
    File(#[from] io::Error),
}

/// A disk, as a virtual machine has it.
#[derive(Debug)]
pub struct Disk {
    base: File,
    identity: Identity,
    overlay: Option<Overlay>,
    is_read_only: bool,
    /// A flush has failed: nobody knows what is on the disk of what was written before, and no later one must say that all is well.
    has_failed: bool,
    name: String,
}

impl Disk {
    /// Opens a disk. As long as it is there, nobody else can have what only one may have.
    pub fn open(base: &Path, writes: &Writes) -> Result<Self, OpenError> {
        let is_exclusive = *writes == Writes::Exclusive;
        let opened = || -> Result<(Self, u64), Flaw> {
            let mut file = OpenOptions::new().read(true).write(is_exclusive).open(base)?;
            let lock = if is_exclusive {
                FlockOperation::NonBlockingLockExclusive
            } else {
                FlockOperation::NonBlockingLockShared
            };
            match flock(&file, lock) {
                Err(Errno::WOULDBLOCK) => return Err(Flaw::InUse),
                locked => locked?,
            }
            // A block device's length is known in no other way.
            let bytes = file.seek(io::SeekFrom::End(0))?;
            let identity =
                Identity { sectors: bytes / SECTOR_BYTES, fingerprint: fingerprint(&file, bytes)? };
            let name = base.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_read_only = *writes == Writes::Refused;
            Ok((Self { base: file, identity, overlay: None, is_read_only, has_failed: false, name }, bytes))
        };
        let (mut disk, bytes) = opened().map_err(|flaw| OpenError::new(base, flaw))?;
        if bytes == 0 || bytes % SECTOR_BYTES != 0 {
            return Err(OpenError::Length(base.to_owned(), bytes));
        }
        disk.overlay = match writes {
            Writes::Overlay(path) => Some(Overlay::open(path, disk.identity)?),
            Writes::Temporary => Some(
                Overlay::temporary(disk.identity)
                    .map_err(|flaw| OpenError::new(&std::env::temp_dir(), flaw))?,
            ),
            Writes::Refused | Writes::Exclusive => None,
        };
        Ok(disk)
    }

    fn check(&self, first: u64, sectors: u64) -> Result<Range<u64>, Failure> {
        let end = first.checked_add(sectors).filter(|end| *end <= self.identity.sectors);
        end.map(|end| first..end).ok_or(Failure::Wrong)
    }

    /// Where sectors are: in files, from their offsets on, so many bytes.
    fn places(&self, sectors: Range<u64>) -> impl Iterator<Item = (&File, u64, u64)> {
        let overlay = self.overlay.as_ref();
        let runs = overlay.map(|overlay| overlay.runs(sectors.clone()));
        let all = overlay.is_none().then_some((sectors, false));
        runs.into_iter().flatten().chain(all).map(move |(run, is_modified)| {
            let bytes = (run.end - run.start) * SECTOR_BYTES;
            match overlay {
                Some(overlay) if is_modified => (overlay.file(), overlay.offset(run.start), bytes),
                _ => (&self.base, run.start * SECTOR_BYTES, bytes),
            }
        })
    }

    /// As many sectors as there is room for. If they are not in memory, that may be said before they are waited for.
    fn read(
        &self,
        first: u64,
        to: &mut Pieces<'_>,
        before_waiting: Option<&dyn Fn()>,
    ) -> Result<(), Failure> {
        let bytes = to.bytes();
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(Failure::Wrong);
        }
        for (file, offset, bytes) in self.places(self.check(first, bytes / SECTOR_BYTES)?) {
            to.read(file, offset, bytes, before_waiting)?;
        }
        Ok(())
    }

    /// So many bytes will be read: they may come into memory meanwhile.
    fn will_read(&self, first: u64, bytes: u64) {
        let Ok(sectors) = self.check(first, bytes / SECTOR_BYTES) else { return };
        for (file, offset, bytes) in self.places(sectors) {
            // It is of no consequence if this is not to be had.
            let _ = fadvise(file, offset, NonZeroU64::new(bytes), Advice::WillNeed);
        }
    }

    fn write(&mut self, first: u64, from: &mut Pieces<'_>) -> Result<(), Failure> {
        let bytes = from.bytes();
        if self.is_read_only || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(Failure::Wrong);
        }
        let sectors = self.check(first, bytes / SECTOR_BYTES)?;
        match &mut self.overlay {
            Some(overlay) => overlay.write(sectors, from)?,
            None => from.write(&self.base, first * SECTOR_BYTES, bytes)?,
        }
        Ok(())
    }

    fn zero(&mut self, first: u64, sectors: u64) -> Result<(), Failure> {
        let sectors = self.check(first, sectors)?;
        let zeroed = match &mut self.overlay {
            _ if self.is_read_only => return Err(Failure::Wrong),
            Some(overlay) => overlay.zero(sectors),
            None => punch(&self.base, sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES),
        };
        zeroed.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => Failure::Unsupported,
            _ => Failure::File(error),
        })
    }

    /// Nobody needs what is in the sectors any more. What is not the virtual machine's own stays.
    fn discard(&mut self, first: u64, sectors: u64) -> Result<(), Failure> {
        let sectors = self.check(first, sectors)?;
        let Some(overlay) = &self.overlay else { return self.zero(first, sectors.end - sectors.start) };
        let runs: Vec<_> = overlay.runs(sectors).filter(|(_, is_modified)| *is_modified).collect();
        runs.into_iter().try_for_each(|(run, _)| self.zero(run.start, run.end - run.start))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.has_failed {
            return Err(io::Error::other("it has failed before").into());
        }
        let flushed = match &mut self.overlay {
            Some(overlay) => overlay.flush(),
            None if self.is_read_only => Ok(()),
            None => fdatasync(&self.base).map_err(io::Error::from),
        };
        self.has_failed = flushed.is_err();
        Ok(flushed?)
    }
}

fn fingerprint(file: &File, bytes: u64) -> io::Result<u32> {
    let mut beginning = vec![0; usize::try_from(bytes.min(FINGERPRINT_BYTES)).map_err(io::Error::other)?];
    file.read_exact_at(&mut beginning, 0)?;
    Ok(crc32fast::hash(&beginning))
}

/// Why a disk is not served any more.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It can not be had.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The socket fails.
    #[error("{0}: {1}")]
    Socket(PathBuf, io::Error),
}

/// Serves a disk at a socket, to one engine after the other, until this process is killed. That may be at any time: what comes in its place goes on.
pub fn serve(socket: &Path, base: &Path, writes: &Writes) -> Result<Infallible, ServeError> {
    let block = Block::new(Disk::open(base, writes)?);
    let fails = |error| ServeError::Socket(socket.to_owned(), error);
    let mut backend = Backend::new(block).map_err(fails)?;
    backend.listen(socket).map_err(fails)?;
    backend.run().map_err(fails)
}
