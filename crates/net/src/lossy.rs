//! A bad network by seed: any transport, with messages lost, doubled, delayed and reordered on their way out.
//!
//! There is no clock in it. Time is counted in calls: each `send`, `receive` and `is_idle` is one step. So the same seed
//! and the same calls do the same harm, and a test that fails can be run again.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use comb_types::Dice;

use crate::life::Cause;
use crate::payload::Payload;
use crate::ring::Breach;
use crate::transport::{Capabilities, SendError, Transport, TransportCounters};

/// What is to happen to how many of a thousand messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Never arrive.
    pub lost_per_mille: u32,
    /// Arrive twice, the second time after a delay.
    pub doubled_per_mille: u32,
    /// Arrive later.
    pub delayed_per_mille: u32,
    /// Arrive after the message that was sent next.
    pub reordered_per_mille: u32,
    /// The longest delay, in steps.
    pub longest_delay: u32,
}

impl Faults {
    /// No faults at all.
    pub const NONE: Self = Self {
        lost_per_mille: 0,
        doubled_per_mille: 0,
        delayed_per_mille: 0,
        reordered_per_mille: 0,
        longest_delay: 0,
    };
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Harm {
    /// Messages that never arrive.
    pub lost: u64,
    /// Messages that were sent twice.
    pub doubled: u64,
    /// Messages that were held back for some steps.
    pub delayed: u64,
    /// Messages that were held back until another had passed.
    pub reordered: u64,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Step(u64),
    AnotherPassed,
}

#[derive(Debug)]
struct Held {
    until: Until,
    kind: u8,
    message: Vec<u8>,
}

/// A transport that does `faults` to what is sent through it.
#[derive(Debug)]
pub struct Lossy<T> {
    inner: T,
    faults: Faults,
    dice: Dice,
    step: u64,
    held: Vec<Held>,
    harm: Harm,
    accepted: u64,
}

impl<T: Transport> Lossy<T> {
    /// Wraps `inner`. Wrap both ends for harm in both directions.
    pub fn new(inner: T, faults: Faults, seed: u64) -> Self {
        Self {
            inner,
            faults,
            dice: Dice::new(seed),
            step: 0,
            held: Vec::new(),
            harm: Harm::default(),
            accepted: 0,
        }
    }

    /// What happened so far.
    pub fn harm(&self) -> Harm {
        self.harm
    }

    /// From now on other faults; what is held back already comes in its time.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The transport below.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    fn delay(&mut self) -> Until {
        let steps = self.dice.below(self.faults.longest_delay.max(1));
        Until::Step(self.step + 1 + u64::from(steps))
    }

    fn hold(&mut self, until: Until, kind: u8, parts: &[&[u8]]) {
        self.held.push(Held { until, kind, message: parts.concat() });
    }

    /// One step: what is due goes out. What finds no room is tried again at the next.
    fn advance(&mut self) {
        self.step += 1;
        self.release(|until, step| matches!(until, Until::Step(due) if due <= step));
    }

    fn release(&mut self, due: impl Fn(Until, u64) -> bool) {
        let mut at = 0;
        while at < self.held.len() {
            let Held { until, kind, message } = &self.held[at];
            if due(*until, self.step) && !matches!(self.inner.send(*kind, &[message]), Err(SendError::Full)) {
                self.held.remove(at);
            } else {
                at += 1;
            }
        }
    }
}

impl<T: Transport> Transport for Lossy<T> {
    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities { can_lose: inner.can_lose || self.faults != Faults::NONE, ..inner }
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        self.advance();
        let (bytes, limit) = (parts.iter().map(|part| part.len()).sum(), self.capabilities().longest_message);
        if bytes > limit {
            return Err(SendError::TooLong { bytes, limit });
        }
        if self.dice.happens(self.faults.lost_per_mille * 1000) {
            self.harm.lost += 1;
        } else if self.dice.happens(self.faults.delayed_per_mille * 1000) {
            self.harm.delayed += 1;
            let until = self.delay();
            self.hold(until, kind, parts);
        } else if self.dice.happens(self.faults.reordered_per_mille * 1000) {
            self.harm.reordered += 1;
            self.hold(Until::AnotherPassed, kind, parts);
        } else {
            self.inner.send(kind, parts)?;
            self.release(|until, _| matches!(until, Until::AnotherPassed));
            if self.dice.happens(self.faults.doubled_per_mille * 1000) {
                self.harm.doubled += 1;
                let until = self.delay();
                self.hold(until, kind, parts);
            }
        }
        self.accepted += 1;
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        self.advance();
        self.inner.receive(sink)
    }

    fn is_idle(&mut self) -> bool {
        self.advance();
        self.inner.is_idle()
    }

    fn has_room(&mut self) -> bool {
        self.inner.has_room()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn settle(&mut self) -> bool {
        self.inner.settle()
    }

    fn peer_closed(&self) -> bool {
        self.inner.peer_closed()
    }

    fn cause(&self) -> Option<Cause> {
        self.inner.cause()
    }

    /// As the one below, but `sent` counts what was taken here, whatever became of it.
    fn counters(&self) -> TransportCounters {
        TransportCounters { sent: self.accepted, ..self.inner.counters() }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readable()
    }
}
