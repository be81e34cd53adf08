//! The receiver's side.

use super::{Marks, Order, Signal};
use crate::Flow;
use crate::line::Line;
use alloc::vec::Vec;
use comb_types::Time;
use core::time::Duration;
use thiserror::Error;

/// What happened at the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// A message of `bytes` wants to enter `flow`'s queue.
    Arrived {
        /// Whose queue.
        flow: Flow,
        /// Its length with everything that occupies space.
        bytes: u32,
    },
    /// A message of `bytes` has left `flow`'s queue.
    Served {
        /// Whose queue.
        flow: Flow,
        /// As given when it arrived.
        bytes: u32,
    },
    /// The time of `next_timeout` has come. Too early or twice does no harm.
    Timeout,
}

/// The message does not fit: drop it. Either quenches got lost or the source ignores them; only repetition
/// tells the one from the other, so count these for each source before accusing it. The queue is as before
/// the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{flow:?} holds {queued_bytes} bytes and sends {bytes} more, beyond its queue of {capacity_bytes}")]
pub struct Overrun {
    /// Whose queue.
    pub flow: Flow,
    /// What is in it.
    pub queued_bytes: u32,
    /// What does not fit any more.
    pub bytes: u32,
    /// How long a queue may get.
    pub capacity_bytes: u32,
}

/// A signal to carry to the source of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The flow whose source is meant, and nobody else.
    pub flow: Flow,
    /// What to tell it.
    pub signal: Signal,
}

/// A renewal every third of a lease: one may get lost and the next still comes before the lease ends.
const SIGNALS_PER_LEASE: u32 = 3;

/// Watches the queues of all flows into one receiver and signals their sources. It holds no messages, only
/// lengths: the queues may be rings, sockets or lists.
///
/// Constant time for each input, no allocation after [`open`](Quencher::open), and a flow without
/// traffic is never looked at.
#[derive(Debug)]
pub struct Quencher {
    marks: Marks,
    lease: Duration,
    flows: Vec<FlowQueue>,
    /// Quenched flows, by the time of their next renewal. All leases are equally long, so the order in which
    /// flows join is the order in which they are due.
    renewals: Line,
    /// Flows whose source is to be told its present state. A flow that changes twice before the driver polls
    /// stands here once, so that a slow driver sends few signals and not stale ones.
    untold: Line,
}

/// What is known of one flow's queue.
#[derive(Clone, Debug, Default)]
struct FlowQueue {
    open: bool,
    queued_bytes: u32,
    quenched: bool,
    /// The last signal polled was a quench, so an unquench is owed.
    told_to_stop: bool,
    /// Arrived since the last signal was polled, accepted or not.
    unanswered_bytes: u32,
    renew_at: Time,
    signals: u32,
}

impl Quencher {
    /// One set of marks for all flows: they share the receiver, so they share its path.
    ///
    /// `lease` bounds how long a source stands still after this quencher died. Much longer than the feedback
    /// round trip, or renewals arrive too late and sources restart in between.
    ///
    /// # Panics
    /// When `lease` is too short to be divided.
    pub fn new(marks: Marks, lease: Duration) -> Quencher {
        assert!(!(lease / SIGNALS_PER_LEASE).is_zero(), "a lease of {lease:?} cannot be renewed in time");
        Quencher { marks, lease, flows: Vec::new(), renewals: Line::default(), untold: Line::default() }
    }

    /// Begins to watch a flow whose queue is empty and whose source is running.
    ///
    /// # Panics
    /// When it is open already.
    pub fn open(&mut self, flow: Flow) {
        if self.flows.len() <= flow.index() {
            self.flows.resize(flow.index() + 1, FlowQueue::default());
        }
        self.renewals.admit(flow);
        self.untold.admit(flow);
        let queue = &mut self.flows[flow.index()];
        assert!(!queue.open, "{flow:?} is open already");
        // Only the count of signals goes on, in case that the same source comes back under the same flow.
        *queue = FlowQueue { open: true, signals: queue.signals, ..FlowQueue::default() };
    }

    /// Forgets a flow and what is in its queue. Its source gets no further signal: if it stands still, its
    /// lease runs out.
    pub fn close(&mut self, flow: Flow) {
        self.queue(flow).open = false;
        self.renewals.leave(flow);
        self.untold.leave(flow);
    }

    /// Other marks, and all queues of open flows empty. Afterwards poll [`poll_transmit`](Quencher::poll_transmit): whoever
    /// was told to stop is let go.
    pub fn begin_anew(&mut self, marks: Marks) {
        self.marks = marks;
        for (number, queue) in (0..).zip(&mut self.flows) {
            if queue.open {
                queue.queued_bytes = 0;
                queue.quenched = false;
                self.renewals.leave(Flow(number));
                self.untold.join(Flow(number));
            }
        }
    }

    /// Feeds one input. Afterwards poll [`poll_transmit`](Quencher::poll_transmit) until it returns `None`,
    /// and call again at [`next_timeout`](Quencher::next_timeout) even if nothing arrived.
    ///
    /// # Panics
    /// When the flow is not open, or more is served than is queued: defects of the caller.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Overrun> {
        match input {
            Input::Arrived { flow, bytes } => self.arrived(now, flow, bytes),
            Input::Served { flow, bytes } => {
                self.served(flow, bytes);
                Ok(())
            }
            Input::Timeout => {
                self.renew(now);
                Ok(())
            }
        }
    }

    /// The next signal to send, or `None`. A signal that the network loses needs no repetition by the caller.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        loop {
            let flow = self.untold.first()?;
            self.untold.leave(flow);
            let lease = self.lease;
            let queue = self.queue(flow);
            // Quenched and unquenched again before anybody was told: the source need never know.
            if !queue.quenched && !queue.told_to_stop {
                continue;
            }
            queue.told_to_stop = queue.quenched;
            queue.unanswered_bytes = 0;
            queue.signals = queue.signals.wrapping_add(1);
            let order = if queue.quenched { Order::Quench { lease } } else { Order::Unquench };
            return Some(Transmit { flow, signal: Signal { number: queue.signals, order } });
        }
    }

    /// When to feed [`Input::Timeout`]; `None` while no flow is quenched.
    pub fn next_timeout(&self) -> Option<Time> {
        self.renewals.first().map(|flow| self.flows[flow.index()].renew_at)
    }

    /// The length of one flow's queue.
    pub fn queued_bytes(&self, flow: Flow) -> u32 {
        self.flows[flow.index()].queued_bytes
    }

    /// Whether the flow's source ought to stand still now.
    pub fn is_quenched(&self, flow: Flow) -> bool {
        self.flows[flow.index()].quenched
    }

    fn arrived(&mut self, now: Time, flow: Flow, bytes: u32) -> Result<(), Overrun> {
        let Marks { path_bytes, high_bytes, capacity_bytes, .. } = self.marks;
        let queue = self.queue(flow);
        queue.unanswered_bytes = queue.unanswered_bytes.saturating_add(bytes);
        let queued_bytes = queue.queued_bytes;
        let fits = bytes <= capacity_bytes - queued_bytes;
        if fits {
            queue.queued_bytes += bytes;
        }
        if queue.quenched {
            // More than the path can hold arrived since we told it to stop: it has not heard.
            if queue.unanswered_bytes > path_bytes {
                self.untold.join(flow);
            }
        } else if queue.queued_bytes >= high_bytes {
            // Only ever above the high mark, hence above the low one: a flow quenched with nothing left to
            // serve would never come down to the low mark again.
            self.quench(now, flow);
        }
        if fits { Ok(()) } else { Err(Overrun { flow, queued_bytes, bytes, capacity_bytes }) }
    }

    fn served(&mut self, flow: Flow, bytes: u32) {
        let low_bytes = self.marks.low_bytes;
        let queue = self.queue(flow);
        assert!(bytes <= queue.queued_bytes, "{flow:?}: {bytes} bytes served of {}", queue.queued_bytes);
        queue.queued_bytes -= bytes;
        if queue.quenched && queue.queued_bytes <= low_bytes {
            queue.quenched = false;
            self.renewals.leave(flow);
            self.untold.join(flow);
        }
    }

    fn quench(&mut self, now: Time, flow: Flow) {
        let renew_at = now.saturating_add(self.lease / SIGNALS_PER_LEASE);
        let queue = self.queue(flow);
        queue.quenched = true;
        queue.renew_at = renew_at;
        self.renewals.join(flow);
        self.untold.join(flow);
    }

    fn renew(&mut self, now: Time) {
        while let Some(flow) = self.renewals.first()
            && self.flows[flow.index()].renew_at <= now
        {
            self.renewals.leave(flow);
            self.quench(now, flow);
        }
    }

    fn queue(&mut self, flow: Flow) -> &mut FlowQueue {
        let queue = &mut self.flows[flow.index()];
        assert!(queue.open, "{flow:?} is not open");
        queue
    }
}
