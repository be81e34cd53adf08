//! What the tests publish, and those who read it.

use comb_memory::{Far, Peer, Published, Structure};
use comb_types::{CellId, Incarnation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const CELL: CellId = CellId(3);
pub(crate) const INCARNATION: Incarnation = Incarnation(7);
pub(crate) const BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Node {
    pub(crate) next: Far<Node>,
    pub(crate) number: u64,
}

impl Structure for Node {
    const TAG: u32 = 0x4e6f_6465;
}

/// Of a size that is no multiple of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Page(pub(crate) [u8; 3]);

impl Structure for Page {
    const TAG: u32 = 0x5061_6765;
}

/// All alike, or torn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Words<const N: usize>(pub(crate) [u64; N]);

impl<const N: usize> Structure for Words<N> {
    const TAG: u32 = 0x576f_7264;
}

pub(crate) fn published() -> Published {
    Published::create(CELL, INCARNATION, BYTES).unwrap()
}

pub(crate) fn peer(published: &Published) -> Peer {
    Peer::map(published.reading_descriptor().unwrap(), published.cell(), published.incarnation()).unwrap()
}
