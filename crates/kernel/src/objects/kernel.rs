//! What the first kernel grants to another.

use std::collections::VecDeque;

use super::errors::DescriptorError;
use super::groups::Groups;
use super::ids::Tag;
use super::writeback::Writeback;

/// A number of locked objects of each kind: how many a kernel may have, or how many it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Locks {
    /// Only the first kernel loads any. It is locked itself, beside these.
    pub kernels: u32,
    /// Spaces.
    pub spaces: u32,
    /// Threads.
    pub threads: u32,
    /// Records of mappings: a locked mapping with a signal thread takes two, and one more if it is a copy.
    pub mappings: u32,
}

/// What a kernel may use. Only the first kernel can change it. (§2.4, §4.3)
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct KernelDescriptor {
    /// Which frames it may map.
    pub groups: Groups,
    /// How much of each processor's time, in percent. Of those that are not named it has nothing; if none is, all of all.
    pub processor_shares: Vec<u8>,
    /// The highest priority its threads can have.
    pub maximum_priority: u8,
    /// How many of its objects can be locked.
    pub locks: Locks,
}

impl KernelDescriptor {
    pub(super) fn check(&self, frames: u64) -> Result<(), DescriptorError> {
        if self.groups.count() != frames.div_ceil(super::FRAMES_IN_GROUP) {
            return Err(DescriptorError::Groups(self.groups.count()));
        }
        check_shares(&self.processor_shares)
    }
}

pub(super) fn check_shares(shares: &[u8]) -> Result<(), DescriptorError> {
    shares.iter().find(|share| **share > 100).map_or(Ok(()), |share| Err(DescriptorError::Share(*share)))
}

/// A kernel that is loaded.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Kernel<S> {
    pub(super) tag: Tag,
    pub(super) descriptor: KernelDescriptor,
    /// What it has locked.
    pub(super) locked: Locks,
    /// What it has yet to hear.
    pub(super) waiting: VecDeque<Writeback<S>>,
}
