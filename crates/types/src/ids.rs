//! The numbers that name things.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// A cell: the unit of failure. Unique among the cells of one machine room at one time.
    CellId(u32), "cell "
}
id! {
    /// Who takes part in a distributed protocol: a cell, or a host's agent. Where it is reached is its driver's business.
    NodeId(u32), "node "
}
id! {
    /// An endpoint, as its agent counts them. Never used again while the agent lives.
    EndpointId(u32), "endpoint "
}
id! {
    /// A channel, as the agent that brokered it counts them. Both sides know it by this number.
    ChannelId(u32), "channel "
}
id! {
    /// A window for direct access, as its owner counts them within one channel.
    WindowId(u32), "window "
}
id! {
    /// Counts the lives of one named object. What carries an older epoch than its object is stale and refused.
    Epoch(u32), "epoch "
}
id! {
    /// Counts the lives of a process under one name, so that a restarted one is not taken for its predecessor.
    Incarnation(u64), "incarnation "
}

impl Epoch {
    /// The epoch of the next life. Wraps: an object is not kept for 2³² lives.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
