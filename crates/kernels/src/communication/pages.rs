//! Frames that others write, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use comb_kernel::calls::Calls;
use comb_kernel::frames::GROUP_FRAMES;
use comb_kernel::host::Shared;
use thiserror::Error;

/// Neighbouring frames that a kernel was granted, as memory that others may change at any time.
#[derive(Clone, Debug)]
pub struct Pages {
    memory: Arc<Shared>,
    first: u32,
    count: u32,
}

/// The kernel that asked for it may not write a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("frame {0} was not granted to this kernel")]
pub struct NotGranted(pub u32);

impl Pages {
    /// So many frames, from this one on.
    pub fn new(calls: &(impl Calls + ?Sized), first: u32, count: u32) -> Result<Self, NotGranted> {
        let end = first.checked_add(count).ok_or(NotGranted(u32::MAX))?;
        for frame in first..end {
            let group = frame / GROUP_FRAMES;
            if group >= calls.groups() || !calls.may_write(group) {
                return Err(NotGranted(frame));
            }
        }
        Ok(Self { memory: calls.kept_memory(), first, count })
    }

    /// The first frame.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// How many frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, offset: usize, bytes: usize) -> usize {
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= self.count as usize * 4096);
        assert!(is_within, "within these pages");
        self.first as usize * 4096 + offset
    }

    /// A word.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        self.memory.word(self.at(offset, 4))
    }

    /// A long word.
    pub fn long(&self, offset: usize) -> &AtomicU64 {
        self.memory.long(self.at(offset, 8))
    }

    /// Copies what is there now.
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        self.memory.copy_out(self.at(offset, to.len()), to);
    }

    /// Writes there.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        self.memory.copy_in(self.at(offset, from.len()), from);
    }
}
