//! Congestion control between cells: pure state machines, no clock, no threads, no sockets.
//!
//! Three answers to three questions, each usable alone:
//!
//! - [`credits`]: may I post another message on this channel, or would I overwrite one that is not read yet?
//! - [`quench`]: a receiver that one flow is overrunning stops *that flow at its source* and lets it go on in
//!   bounded time, whatever is lost on the way. (GigaNet, thesis §4.3)
//! - [`share`]: of all flows with something to deliver, whose turn is it?
//!
//! There is deliberately no way to pause a link: a link is shared by flows that have done nothing wrong, and
//! pausing it spread one congested port over the whole fabric, at half its throughput or less. (Thesis §4.7)
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod credits;
mod flow;
mod line;
pub mod quench;
pub mod share;

pub use flow::Flow;
