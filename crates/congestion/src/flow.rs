//! What a flow is called here.

/// One stream of messages from one source into this receiver, by the receiver's own table index. The cLAN
/// switch controls congestion for each VCI and nothing coarser; a flow is our VCI. (Thesis §4.3)
///
/// Never made from a number that a peer sent without a look-up: tables are as long as the largest open flow,
/// and a number that is not open is a defect of this process, which panics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow(pub u32);

impl Flow {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
