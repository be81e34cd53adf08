//! The sender's side.

use super::{Order, Signal};
use comb_types::Time;
use core::time::Duration;
use thiserror::Error;

/// What happened at the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// A signal from the receiver arrived.
    Signal(Signal),
    /// The time of `next_timeout` has come. Too early or twice does no harm.
    Timeout,
}

/// What the receiver did that no correct receiver does. The source's state is as before the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// Both sides know the longest lease; a longer one would stop this source for longer than a dead
    /// receiver may.
    #[error("the receiver quenched for {lease:?}, longer than the {limit:?} that it may")]
    LeaseTooLong {
        /// What it asked for.
        lease: Duration,
        /// What it may ask for.
        limit: Duration,
    },
}

/// A change that the driver has not been told yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Stop taking messages of this flow from the program.
    Stopped,
    /// Go on; wake whoever waits to send.
    Resumed,
}

/// Whether one flow may send.
#[derive(Clone, Debug)]
pub struct Source {
    lease_limit: Duration,
    stopped_until: Option<Time>,
    last_number: Option<u32>,
    reported_stopped: bool,
    leases_run_out: u64,
}

impl Source {
    /// A source that runs. `lease_limit` is the longest lease that it accepts.
    pub fn new(lease_limit: Duration) -> Source {
        Source {
            lease_limit,
            stopped_until: None,
            last_number: None,
            reported_stopped: false,
            leases_run_out: 0,
        }
    }

    /// Feeds one input. Afterwards poll [`poll_event`](Source::poll_event), and call again at
    /// [`next_timeout`](Source::next_timeout) even if nothing arrived: that is what wakes a flow whose
    /// receiver died.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), PeerError> {
        match input {
            Input::Signal(signal) => self.obey(now, signal)?,
            Input::Timeout => {}
        }
        if self.stopped_until.is_some_and(|until| until <= now) {
            self.stopped_until = None;
            self.leases_run_out += 1;
        }
        Ok(())
    }

    /// Whether a message may leave now. Correct even if the timeout is late.
    pub fn may_send(&self, now: Time) -> bool {
        self.stopped_until.is_none_or(|until| until <= now)
    }

    /// The next change, or `None`. A stop and a resumption between two polls cancel out.
    pub fn poll_event(&mut self) -> Option<Event> {
        let stopped = self.stopped_until.is_some();
        if stopped == self.reported_stopped {
            return None;
        }
        self.reported_stopped = stopped;
        Some(if stopped { Event::Stopped } else { Event::Resumed })
    }

    /// When to feed [`Input::Timeout`]; `None` while running.
    pub fn next_timeout(&self) -> Option<Time> {
        self.stopped_until
    }

    /// How often nobody said anything until the lease ran out: a receiver that died, or an unquench that got
    /// lost.
    pub fn leases_run_out(&self) -> u64 {
        self.leases_run_out
    }

    fn obey(&mut self, now: Time, signal: Signal) -> Result<(), PeerError> {
        if let Order::Quench { lease } = signal.order
            && lease > self.lease_limit
        {
            return Err(PeerError::LeaseTooLong { lease, limit: self.lease_limit });
        }
        // A signal that another overtook, or a copy of the last: a delayed quench must not stop a flow that
        // was let go since, and a copy must not lengthen a lease.
        if self.last_number.is_some_and(|last| !is_newer(signal.number, last)) {
            return Ok(());
        }
        self.last_number = Some(signal.number);
        self.stopped_until = match signal.order {
            Order::Quench { lease } => Some(now.saturating_add(lease)),
            Order::Unquench => None,
        };
        Ok(())
    }
}

/// Whether `number` counts on from `last`; numbers wrap, so half of all are newer.
fn is_newer(number: u32, last: u32) -> bool {
    let ahead = number.wrapping_sub(last);
    ahead != 0 && ahead <= u32::MAX / 2
}
