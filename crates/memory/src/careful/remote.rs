//! What a cell of another host has published, got by messages or by its network's gets.

use comb_types::{CellId, Incarnation};

use super::{CarefulError, Gone, Source};
use crate::published::format;

/// What a cell of another host has published. `G` gets bytes from an offset on, as [`Source::copy`] does; a structure costs five of them, in order.
/// Where that is too much, a [`Source`] of one's own has the other host look.
#[derive(Debug)]
pub struct Remote<G> {
    get: G,
    cell: CellId,
    incarnation: Incarnation,
    bytes: u64,
}

impl<G: Fn(u64, &mut [u8]) -> Result<(), Gone>> Remote<G> {
    /// Looks whether that is what that life of a cell has published.
    pub fn new(cell: CellId, incarnation: Incarnation, get: G) -> Result<Self, CarefulError> {
        // Whatever it is, it begins with a page.
        let mut remote = Self { get, cell, incarnation, bytes: format::HEADER_BYTES };
        remote.bytes = super::read_header(&remote)?;
        Ok(remote)
    }
}

impl<G: Fn(u64, &mut [u8]) -> Result<(), Gone>> Source for Remote<G> {
    fn cell(&self) -> CellId {
        self.cell
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn copy(&self, offset: u64, into: &mut [u8]) -> Result<(), Gone> {
        (self.get)(offset, into)
    }
}
