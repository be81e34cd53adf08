//! What another cell of this host has published, mapped to be read.
#![expect(unsafe_code, reason = "reads a mapping that another process changes or takes away")]

use std::os::fd::{AsFd, BorrowedFd};

use comb_types::{CellId, Incarnation};
use rustix::fs::{FsWord, SealFlags};
use rustix::io::Errno;

use super::{CarefulError, Gone, Source, Taken, routine};
use crate::fault;
use crate::kernel::Protection;
use crate::mapping::Mapping;
use crate::published::SEALS;
use crate::published::format::{self, FRONT_BYTES};
use crate::space::index;

/// What memory files of ordinary pages live on.
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// What another cell of this host has published. Holding it promises nothing: the cell may be dead, or mad.
#[derive(Debug)]
pub struct Peer {
    mapping: Mapping,
    cell: CellId,
    incarnation: Incarnation,
}

impl Peer {
    /// Maps what that life of a cell has published, after a look at what was handed over. From now on this process handles SIGBUS and SIGSEGV, for
    /// the instructions that read such memory; other faults are whose they were.
    ///
    /// Whoever installs handlers for these later hands on what it does not know. No thread that reads has SIGBUS blocked.
    pub fn map(descriptor: impl AsFd, cell: CellId, incarnation: Incarnation) -> Result<Self, CarefulError> {
        let bytes = inspect(descriptor.as_fd(), cell)?;
        let system = |action| move |source| CarefulError::System { cell, action, source };
        fault::install_landings().map_err(system("handle the signals of reads"))?;
        let mapping = Mapping::new(descriptor.as_fd(), bytes, Protection::Loads)
            .map_err(system("map the published memory"))?;
        mapping.advise(libc::MADV_DONTDUMP);
        let peer = Self { mapping, cell, incarnation };
        let said = super::read_header(&peer)?;
        if said != bytes {
            return Err(CarefulError::NotPublished { cell, rule: "it is as long as it says" });
        }
        Ok(peer)
    }
}

/// Looks at seals and length.
fn inspect(file: BorrowedFd<'_>, cell: CellId) -> Result<u64, CarefulError> {
    let not = |rule| CarefulError::NotPublished { cell, rule };
    let system = |source: Errno| CarefulError::System { cell, action: "look at the file", source };
    let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
    if !seals.contains(SEALS) {
        return Err(not("it is sealed against growth, and against all stores but its maker's"));
    }
    if rustix::fs::fstatfs(file).map_err(system)?.f_type != TMPFS_MAGIC {
        return Err(not("it is memory of ordinary pages"));
    }
    let bytes = rustix::fs::fstat(file).map_err(system)?.st_size;
    match u64::try_from(bytes) {
        // Its maker died before we came: the agent was here.
        Ok(0) => Err(CarefulError::BusError { cell, offset: 0 }),
        Ok(bytes) if format::may_be_length(bytes) => Ok(bytes),
        _ => Err(not("it is some pages long, and not too many")),
    }
}

impl Source for Peer {
    #[inline]
    fn cell(&self) -> CellId {
        self.cell
    }

    #[inline]
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    fn copy(&self, offset: u64, into: &mut [u8]) -> Result<(), Gone> {
        // What is in front of the first record is there as long as anything is.
        let from = self.addresses(0, offset, into.len())?;
        // SAFETY: within the mapping, which was made after the landings.
        unsafe { routine::take(from, into) }.map(drop)
    }

    #[inline]
    fn take(&self, record: u64, from: u64, into: &mut [u8]) -> Result<Taken, Gone> {
        let front = record.checked_sub(FRONT_BYTES).ok_or(Gone::BEYOND)?;
        let from = self.addresses(front, record.saturating_add(from), into.len())?;
        // SAFETY: as above.
        unsafe { routine::take(from, into) }
    }

    #[inline]
    fn take_if(&self, record: u64, into: &mut [u8], tag_word: u64) -> Result<bool, Gone> {
        let front = record.checked_sub(FRONT_BYTES).ok_or(Gone::BEYOND)?;
        let from = self.addresses(front, record, into.len())?;
        // SAFETY: as above.
        unsafe { routine::take_if(from, into, tag_word, format::alive(self.incarnation)) }
    }
}

impl Peer {
    /// Of something, and of what is in front of it, there or at the beginning.
    #[inline]
    fn addresses(&self, front: u64, content: u64, bytes: usize) -> Result<routine::Addresses, Gone> {
        if content > self.bytes() || bytes as u64 > self.bytes() - content {
            return Err(Gone::BEYOND);
        }
        let start = self.mapping.address();
        Ok(routine::Addresses {
            front: start + index(front),
            content: start + index(content),
            epoch: start + index(format::EPOCH),
        })
    }
}
