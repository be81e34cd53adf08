//! Direct access: the sender names an offset in a window that the receiver made for it. (Thesis §2.3.6)

use std::os::fd::OwnedFd;

/// A window that a peer shares, as it comes through the agent.
#[derive(Debug)]
pub(crate) struct IncomingWindow {
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    pub(crate) writable: bool,
    pub(crate) memory: OwnedFd,
}
