//! What a machine wants sent.

use alloc::sync::Arc;
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

/// To whom a [`Cast`] goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum To {
    /// To one node.
    One(NodeId),
    /// To every member but this one of the view that the machine shows at the time of the poll.
    Others,
}

/// One message to one node or to all others: written once, its bytes shared by all that it is sent to, and by the history of
/// whoever wrote it. The fate of each copy is that of a [`Transmit`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cast {
    /// To whom.
    pub to: To,
    /// Its bytes, with their envelope: see [`crate::wire`].
    pub bytes: Arc<[u8]>,
}
