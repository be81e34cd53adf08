//! What a guest asks of its disk, as it stands in a chain of descriptors.

use vm_memory::{Bytes, VolatileSlice};

use super::pieces::Pieces;
use crate::devices::backend::Chain;

/// Type, a reserved word, and the first sector.
const HEADER_BYTES: usize = 16;

/// A request.
pub(super) struct Request<'m> {
    pub(super) kind: u32,
    pub(super) first: u64,
    /// What the guest gives.
    pub(super) given: Pieces<'m>,
    /// Where it wants its answer.
    pub(super) wanted: Pieces<'m>,
    pub(super) status: Status<'m>,
}

/// Where a guest is told what has become of its request.
pub(super) struct Status<'m>(VolatileSlice<'m>);

impl Status<'_> {
    pub(super) fn set(&self, status: u8) {
        // It is one byte long.
        let _ = self.0.write_obj(status, 0);
    }
}

impl<'m> Request<'m> {
    /// Takes a chain as a request. If it is none, there may yet be a place to say so.
    pub(super) fn of(chain: &'m Chain) -> Result<Self, Option<Status<'m>>> {
        let (mut given, mut wanted) = (Pieces::default(), Pieces::default());
        let mut is_right = true;
        let mut goes_on = true;
        for piece in chain.clone() {
            let writes = piece.is_write_only();
            // All that is read stands before all that is written.
            is_right &= writes || wanted.is_empty();
            let pieces = if writes { &mut wanted } else { &mut given };
            is_right &= pieces.push(chain.memory(), piece.addr(), piece.len());
            goes_on = piece.has_next();
        }
        // The last one says that it is the last one: else the chain is a circle, or leads to where there is nothing.
        is_right &= !goes_on;
        let status = wanted.split_last().map(Status);
        let mut header = [0; HEADER_BYTES];
        is_right &= given.take(&mut header);
        match status {
            Some(status) if is_right => {
                let [a, b, c, d, _, _, _, _, first @ ..] = header;
                let (kind, first) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(first));
                Ok(Self { kind, first, given, wanted, status })
            }
            status => Err(status),
        }
    }
}
