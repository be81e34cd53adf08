//! Where the blocks of an allocation live.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::terms::{EXTENT_BYTES, Placement};

/// Homes of extents, as this component knows them.
#[derive(Clone, Debug)]
pub(crate) struct Homes {
    placement: Placement,
    count: u32,
    extent_blocks: u64,
    /// What no rule tells.
    known: BTreeMap<u64, u32>,
    /// Who has memory for whom, by rank. None: each component for itself.
    leads: Option<Arc<[u32]>>,
}

impl Homes {
    pub(crate) fn new(placement: Placement, count: u32, block_bytes: u64) -> Self {
        let extent_blocks = (EXTENT_BYTES / block_bytes).max(1);
        Self { placement, count, extent_blocks, known: BTreeMap::new(), leads: None }
    }

    /// The same, where components of a host are one: what would live with any of them lives with its lead.
    pub(crate) fn led(self, leads: Option<Arc<[u32]>>) -> Self {
        Self { leads, ..self }
    }

    /// With whom that lives which is placed with a component.
    pub(crate) fn lead(&self, rank: u32) -> u32 {
        self.leads.as_ref().and_then(|leads| leads.get(rank as usize)).copied().unwrap_or(rank)
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
        let placed = match self.placement {
            Placement::At(rank) => rank,
            Placement::RoundRobin => u32::try_from(extent % u64::from(self.count)).expect("below the count"),
            Placement::FirstTouch if self.count == 1 => 0,
            Placement::FirstTouch => return None,
        };
        Some(self.lead(placed))
    }

    /// Now it is known.
    pub(crate) fn learn(&mut self, extent: u64, home: u32) {
        self.known.insert(extent, self.lead(home));
    }

    /// All of it lives with this one.
    pub(crate) fn are_all(&self, rank: u32) -> bool {
        match self.placement {
            Placement::At(at) => self.lead(at) == rank,
            Placement::RoundRobin | Placement::FirstTouch => self.count == 1,
        }
    }

    /// Extents of which only this table says that they live with a component.
    pub(crate) fn known_of(&self, rank: u32) -> Vec<u64> {
        self.known.iter().filter(|&(_, &home)| home == rank).map(|(&extent, _)| extent).collect()
    }
}
