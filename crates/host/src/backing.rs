//! What the agent keeps of its cells' memory, so that it can take it back when they are gone: second references.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use comb_cell::shown::{self, Condition, Others};
use comb_types::CellId;
use rustix::io::Errno;

/// What a cell shows to others.
#[derive(Debug)]
pub(crate) struct Shown {
    /// By which it is taken back.
    file: OwnedFd,
    to_read: Arc<OwnedFd>,
}

impl Shown {
    pub(crate) fn of(file: OwnedFd) -> Result<Self, Errno> {
        let to_read = Arc::new(shown::reopened_to_read(&file)?);
        Ok(Self { file, to_read })
    }

    /// What others are given. They can neither write nor shorten it.
    pub(crate) fn to_read(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.to_read)
    }

    /// Whoever reads it from now on gets a bus error, and its memory is free.
    pub(crate) fn take_back(self) {
        let _ = rustix::fs::ftruncate(&self.file, 0);
    }

    /// What the cell says of itself.
    pub(crate) fn condition(&self, cell: u32, incarnation: u64, process: u32) -> Option<Condition> {
        let others = Others::default();
        others.see(CellId(cell), incarnation, process, &self.to_read).ok()?;
        others.load(CellId(cell))?.ok()
    }

    /// Whether the agent sees as well that the cell has failed.
    pub(crate) fn has_failed(&self, cell: u32, incarnation: u64, process: u32) -> bool {
        shown::has_failed(&self.to_read, CellId(cell), incarnation, process)
    }
}
