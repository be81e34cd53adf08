//! Waiting without burning a core for nothing: spin as long as spinning has paid off lately, then sleep.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;

/// A cross-core wake-up costs 15–30 µs here, so spinning for longer than that costs more than it can save.
const LONGEST_SPIN: Duration = Duration::from_micros(40);
/// Below this a spin cannot even catch an answer that is under way.
const SHORTEST_SPIN: Duration = Duration::from_micros(2);

/// With a channel whose transport rings no bell: looks come as often as its timers need.
pub(crate) const LONGEST_SLEEP_WITHOUT_BELL: Duration = Duration::from_micros(200);

/// So many spins in a row that ended just before the answer came say that we held the core that it needed.
const FAILURES_BEFORE_REST: u32 = 4;
/// After that so many waits do not spin, then spinning gets another try.
const RESTING_WAITS: u32 = 256;

/// How long the next spin may take; learnt from the last waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    budget: Duration,
    failures: u32,
    resting: u32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { budget: LONGEST_SPIN, failures: 0, resting: 0 }
    }
}

impl Spin {
    /// Spins until `ready`, or until the budget is used up: `false`.
    #[inline]
    pub(crate) fn until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.resting > 0 {
            self.resting -= 1;
            return false;
        }
        let started = Instant::now();
        loop {
            for _ in 0..64 {
                if ready() {
                    self.failures = 0;
                    return true;
                }
                std::hint::spin_loop();
            }
            if started.elapsed() >= self.budget {
                return false;
            }
        }
    }

    /// Learns from a wait that ended in sleep. Had it been a spin, it would have ended earlier by two wake-ups, ours
    /// and perhaps the peer's: a wait that was short even so was worth a spin. (To learn from failed spins alone is a
    /// trap: once both sides sleep, every answer takes longer than any budget.) But when the longest spins fail again
    /// and again and answers come as soon as we sleep, the peer runs where we spin.
    pub(crate) fn learn(&mut self, waited: Duration) {
        if waited > 3 * LONGEST_SPIN {
            self.budget = (self.budget / 2).max(SHORTEST_SPIN);
        } else if self.budget < LONGEST_SPIN {
            self.budget = LONGEST_SPIN;
        } else {
            self.failures += 1;
            if self.failures >= FAILURES_BEFORE_REST {
                (self.failures, self.resting) = (0, RESTING_WAITS);
            }
        }
    }
}

impl Endpoint {
    /// Waits until there is something to poll, at most `limit`. Returns at once if there is; may return early. With
    /// channels to other hosts it waits for events, and an endpoint that was armed is not afterwards.
    pub fn wait(&mut self, limit: Duration) {
        let came = self.spin(Self::seems_to_have_something);
        if !came {
            let started = Instant::now();
            let limit = if self.has_silent { limit.min(LONGEST_SLEEP_WITHOUT_BELL) } else { limit };
            if self.remote > 0 && self.shared.event_set().is_some() {
                self.wait_for_events(limit);
            } else {
                self.sleep_while(limit, |this| !this.has_something());
            }
            self.learn(started.elapsed());
        }
    }

    /// Sleeps if `idle`, until the bell rings. Peers see that we moved, and the next look tells of those that did not.
    pub(crate) fn sleep_while(&mut self, limit: Duration, mut idle: impl FnMut(&mut Self) -> bool) {
        let shared = Arc::clone(&self.shared);
        self.tick();
        self.keep_up();
        let limit = self.until_timers(limit);
        shared.bell().sleep(limit, || idle(self));
        self.tick();
        self.look_soon();
    }

    /// Prepares for waiting in an event loop: from now on [`Endpoint::event_descriptor`] becomes readable when
    /// something comes. `false`: something is there already, poll first and arm again. Only with
    /// [`crate::EndpointOptions::events`]. The descriptor also becomes readable when nothing came for
    /// [`crate::EndpointOptions::looks_after`]: then poll, which looks for what no event tells, and arm again.
    pub fn arm(&mut self) -> bool {
        self.arm_unless(Self::has_something, false)
    }

    /// The same for who then asks whether the descriptor is readable, as `poll` does, and does not only wait for it to become so. Channels to
    /// other hosts are not looked at, each of which would be a system call: their sockets make the descriptor readable as long as there
    /// is something.
    ///
    /// `polls`: from now on somebody looks at the mail ([`Endpoint::show_mail`]) often, and polls the endpoint as soon as there is some.
    /// Senders of this machine then make the descriptor readable only if that has not happened for some microseconds.
    pub fn arm_to_ask(&mut self, polls: bool) -> bool {
        self.arm_unless(Self::has_something_untold, polls)
    }

    /// Maps the mail at a fixed address, read-only, in place of a page that was there: the byte at [`crate::MAIL_BYTE`] of it is not 0 when
    /// something has come to an endpoint that was armed and polls.
    ///
    /// # Safety
    /// The page is the caller's, and nobody uses what was there.
    #[expect(unsafe_code, reason = "a mapping at an address of the program's own")]
    pub unsafe fn show_mail(&self, page: usize) -> std::io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { crate::segment::show(self.shared.bell_descriptor(), page) }
    }

    /// Whether there is mail.
    pub fn has_mail(&self) -> bool {
        self.shared.bell().has_mail()
    }

    /// Wakes those that poll, have got something, and have not looked since. Whoever waits for one of them calls this when it has done so for some
    /// microseconds.
    pub fn ring_unread(&mut self) {
        self.channels.iter_mut().flatten().for_each(|channel| channel.ring(true));
    }

    /// The same, of those whom this endpoint has sent something. Whoever sends, and does not wait for the answer, calls this before it does something
    /// else.
    pub fn ring_owed(&mut self) {
        if crate::owed::rings_are_owed() {
            self.channels.iter_mut().flatten().for_each(|channel| channel.ring(false));
        }
    }

    /// As if mail had come to this endpoint, which is armed: for what it has read already. And the descriptor becomes readable within this time.
    pub fn remind_within(&mut self, limit: Duration) {
        self.shared.bell().raise_mail();
        self.start_event_timer(limit);
    }

    fn arm_unless(&mut self, has_something: impl FnOnce(&mut Self) -> bool, polls: bool) -> bool {
        assert!(self.shared.options().events, "EndpointOptions::events was not set");
        self.tick();
        self.look_soon();
        self.shared.bell().demand_events(polls);
        let idle = !has_something(self);
        // Not zero, which would stop the timer.
        let next = self.until_timers(self.shared.options().looks_after).max(Duration::from_micros(1));
        self.start_event_timer(next);
        idle
    }

    /// One that fires earlier does as well: the next is set when the endpoint is armed after that. An endpoint that is armed again and again would
    /// otherwise move its timer each time, and where the processor's own timer is emulated that takes longer than a message.
    fn start_event_timer(&mut self, next: Duration) {
        let now = Instant::now();
        let is_soon_enough = |at: &Instant| *at > now && *at <= now + next;
        if !self.timer_at.as_ref().is_some_and(is_soon_enough) {
            self.timer_at = Some(now + next);
            self.shared.start_event_timer(next);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_fell_asleep_learns_to_spin_again() {
        let mut spin = Spin::default();
        for _ in 0..20 {
            spin.learn(Duration::from_millis(50));
        }
        assert_eq!(spin.budget, SHORTEST_SPIN, "long waits are not spun for");
        spin.learn(Duration::from_micros(60));
        assert_eq!(spin.budget, LONGEST_SPIN, "an answer after two wake-ups is one to spin for");
    }

    #[test]
    fn who_spins_on_the_peers_core_stops() {
        let mut spin = Spin::default();
        for _ in 0..FAILURES_BEFORE_REST {
            assert!(!spin.until(|| false));
            spin.learn(Duration::from_micros(60));
        }
        let mut looks = 0;
        assert!(!spin.until(|| {
            looks += 1;
            false
        }));
        assert_eq!(looks, 1, "no spin, one look");
    }
}
