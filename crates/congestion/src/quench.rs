//! Source quench: a receiver stops the one flow that overruns it, at that flow's source.
//!
//! The cLAN switch watches the queue of every VCI; when one grows too long it tells *that VCI's source* to
//! stop, and later to go on. Sources can then be as greedy as they like, and everybody else's traffic through
//! the same links does not notice. (Thesis §4.3; what happens without it is §4.7.)
//!
//! ```text
//!  source                       receiver
//!  Source  <── Quench(lease) ── Quencher     queue above the high mark
//!          <── Quench(lease) ──              every third of a lease while still above the low mark
//!          <── Unquench ──────               queue down to the low mark
//! ```
//!
//! In a switch the feedback is hardware and never lost. Ours can be: the signal, or the whole receiver. So a
//! quench is a *lease*: it stops the source for so long and no longer. Every loss then has a bounded price:
//!
//! | lost | price |
//! |---|---|
//! | a quench | the source sends one more round trip's worth, which makes the receiver repeat it |
//! | a renewal | nothing: the next one comes before the lease ends |
//! | an unquench | the source idles until the lease runs out |
//! | the receiver | its sources are free after one lease |
//!
//! A signal names a flow. There is no signal that names a link.

mod marks;
mod quencher;
mod source;

pub use marks::{BadMarks, Marks};
pub use quencher::{Input as QuencherInput, Overrun, Quencher, Transmit};
pub use source::{Event as SourceEvent, Input as SourceInput, PeerError, Source};

use core::time::Duration;

/// One feedback message, from the receiver of a flow to its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// Counts the signals of this flow, so that one which the network delayed does not undo a later one.
    /// Wraps.
    pub number: u32,
    /// What the source is to do.
    pub order: Order,
}

/// What a [`Signal`] asks of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Send nothing on this flow for `lease` from now on, unless told otherwise before.
    Quench {
        /// How long; counted by the source's clock from the moment of arrival, since clocks do not agree.
        lease: Duration,
    },
    /// Go on.
    Unquench,
}

#[cfg(test)]
mod tests;
