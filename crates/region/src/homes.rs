//! Where the blocks of an allocation live.

use std::collections::BTreeMap;

use crate::terms::{EXTENT_BYTES, Placement};

/// Homes of extents, as this component knows them.
#[derive(Clone, Debug)]
pub(crate) struct Homes {
    placement: Placement,
    count: u32,
    extent_blocks: u64,
    /// What no rule tells.
    known: BTreeMap<u64, u32>,
}

impl Homes {
    pub(crate) fn new(placement: Placement, count: u32, block_bytes: u64) -> Self {
        Self { placement, count, extent_blocks: (EXTENT_BYTES / block_bytes).max(1), known: BTreeMap::new() }
    }

    /// The number of the extent that a block is in.
    #[inline]
    pub(crate) fn extent(&self, block: u64) -> u64 {
        block / self.extent_blocks
    }

    /// How many blocks get their home together.
    pub(crate) fn extent_blocks(&self) -> u64 {
        self.extent_blocks
    }

    pub(crate) fn blocks_of(&self, extent: u64) -> std::ops::Range<u64> {
        extent * self.extent_blocks..(extent + 1) * self.extent_blocks
    }

    /// Who is home to an extent, if that is known here.
    #[inline]
    pub(crate) fn of(&self, extent: u64) -> Option<u32> {
        self.by_rule(extent).or_else(|| self.known.get(&extent).copied())
    }

    /// Who is home to an extent, if every component knows it from the terms alone.
    #[inline]
    pub(crate) fn by_rule(&self, extent: u64) -> Option<u32> {
        match self.placement {
            Placement::At(rank) => Some(rank),
            Placement::RoundRobin => {
                Some(u32::try_from(extent % u64::from(self.count)).expect("below the count"))
            }
            Placement::FirstTouch if self.count == 1 => Some(0),
            Placement::FirstTouch => None,
        }
    }

    /// Now it is known.
    pub(crate) fn learn(&mut self, extent: u64, home: u32) {
        self.known.insert(extent, home);
    }

    /// All of it lives with this one.
    pub(crate) fn are_all(&self, rank: u32) -> bool {
        self.placement == Placement::At(rank) || self.count == 1
    }

    /// Extents of which only this table says that they live with a component.
    pub(crate) fn known_of(&self, rank: u32) -> Vec<u64> {
        self.known.iter().filter(|&(_, &home)| home == rank).map(|(&extent, _)| extent).collect()
    }
}
