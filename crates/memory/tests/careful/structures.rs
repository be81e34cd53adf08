//! What the tests publish, and those who read it.

use std::os::fd::OwnedFd;

use comb_memory::{CarefulError, Far, Peer, Published, Structure};
use comb_types::{CellId, Incarnation};
use rustix::fs::{MemfdFlags, SealFlags};
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

/// What a mad cell hands over: these bytes, sealed as they should be.
pub(crate) fn forged(content: &[u8]) -> OwnedFd {
    sealed(content, SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

pub(crate) fn sealed(content: &[u8], seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::write(&file, content), Ok(content.len()));
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

pub(crate) fn map_forged(content: &[u8]) -> Result<Peer, CarefulError> {
    Peer::map(forged(content), CELL, INCARNATION)
}

/// All bytes that a cell has published.
pub(crate) fn image(published: &Published) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
    assert_eq!(rustix::io::pread(published.descriptor(), &mut bytes, 0), Ok(bytes.len()));
    bytes
}

/// A word in such bytes.
pub(crate) fn put(image: &mut [u8], at: u64, word: u64) {
    let at = usize::try_from(at).unwrap();
    image[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

pub(crate) fn word(image: &[u8], at: u64) -> u64 {
    let at = usize::try_from(at).unwrap();
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}
