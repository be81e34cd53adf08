//! Waiting without burning a core for nothing: spin as long as spinning has paid off lately, then sleep.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::bell::LONGEST_SLEEP;
use crate::endpoint::Endpoint;

/// A cross-core wake-up costs 15–30 µs here, so spinning for longer than that costs more than it can save.
const LONGEST_SPIN: Duration = Duration::from_micros(40);
/// Below this a spin cannot even catch an answer that is under way.
const SHORTEST_SPIN: Duration = Duration::from_micros(2);

/// How long the next spin may take; learnt from the last ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    budget: Duration,
}

impl Default for Spin {
    fn default() -> Self {
        Self { budget: LONGEST_SPIN }
    }
}

impl Spin {
    /// Spins until `ready`, or until the budget is used up: `false`. A spin that paid off doubles the next budget, one
    /// that did not halves it. On a single core nothing can come while we spin.
    pub(crate) fn until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if single_core() {
            return false;
        }
        let started = Instant::now();
        loop {
            for _ in 0..64 {
                if ready() {
                    self.budget = (self.budget * 2).min(LONGEST_SPIN);
                    return true;
                }
                std::hint::spin_loop();
            }
            if started.elapsed() >= self.budget {
                self.budget = (self.budget / 2).max(SHORTEST_SPIN);
                return false;
            }
        }
    }
}

fn single_core() -> bool {
    static SINGLE: OnceLock<bool> = OnceLock::new();
    *SINGLE.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1))
}

impl Endpoint {
    /// Waits until there is something to poll, at most `limit`. Returns at once if there is; may return early.
    pub fn wait(&mut self, limit: Duration) {
        let came =
            self.spin(|this| this.shared.has_news(Ordering::Relaxed) || this.seems_to_have_something());
        if !came {
            let shared = Arc::clone(&self.shared);
            self.tick();
            shared.bell().sleep(limit, || !self.has_something());
            self.tick();
            self.look_soon();
        }
    }

    /// Prepares for waiting in an event loop: from now on [`Endpoint::event_descriptor`] becomes readable when
    /// something comes. `false`: something is there already, poll first and arm again. Only with
    /// [`crate::EndpointOptions::events`]. The descriptor also becomes readable when nothing came for a tenth of a
    /// second: then poll, which looks for what no event tells, and arm again.
    pub fn arm(&mut self) -> bool {
        assert!(self.shared.options().events, "EndpointOptions::events was not set");
        self.tick();
        self.look_soon();
        self.shared.start_event_timer(LONGEST_SLEEP);
        self.shared.bell().demand_events();
        !self.has_something()
    }

    /// Undoes [`Endpoint::arm`]: senders no longer pay for events.
    pub fn disarm(&mut self) {
        self.shared.bell().demand_no_events();
    }

    /// For `select`, `poll`, `epoll` and the event loops on top. `None` without
    /// [`crate::EndpointOptions::events`].
    pub fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.event_set().map(AsFd::as_fd)
    }
}
