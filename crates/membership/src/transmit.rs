//! What a machine wants sent.

use alloc::vec::Vec;

use comb_types::NodeId;

/// One message to one node. It may get lost, come twice, late, or after a later one: every protocol here copes with that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// To whom.
    pub to: NodeId,
    /// Its bytes, with their envelope: see [`crate::wire`].
    pub bytes: Vec<u8>,
}
