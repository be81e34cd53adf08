//! A member as a sender: its own updates, until they have reached the level that they were sent for.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::Time;

use super::body::Body;
use super::message::{Head, Known, MOST_OVERHEAD_BYTES, Submitted, append};
use super::{Config, Event, Level, SubmitError};
use crate::view::ViewEpoch;

/// Silence doubles the time until a message is sent again, up to so many times the first.
pub(super) const MOST_BACKOFF: u32 = 16;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Outstanding {
    number: u64,
    level: Level,
    body: Body,
    /// Whether its level was told. An update may get a position twice, in two views.
    is_told: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Outbox {
    /// Of the next update.
    next: u64,
    /// Those that were not delivered here, by number.
    outstanding: VecDeque<Outstanding>,
    /// The highest number that was sent to this view's sequencer.
    sent: u64,
    /// The highest number that has a position in this view.
    ordered: u64,
    /// Delivered, not yet held by all: numbers and positions.
    awaiting_all: VecDeque<(u64, u64)>,
    resend_at: Option<Time>,
    resend_after: Duration,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            next: 1,
            outstanding: VecDeque::new(),
            sent: 0,
            ordered: 0,
            awaiting_all: VecDeque::new(),
            resend_at: None,
            resend_after: Duration::ZERO,
        }
    }

    pub(super) fn submit(&mut self, config: &Config, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        if body.len() > config.longest_update() {
            return Err(SubmitError::TooLong);
        }
        // A laggard may hold up those for all, and no others.
        let is_waiting = level == Level::All && self.awaiting_all.len() >= config.outstanding_most;
        if is_waiting || self.outstanding.len() >= config.outstanding_most {
            return Err(SubmitError::Full);
        }
        let number = self.next;
        self.next += 1;
        self.outstanding.push_back(Outstanding { number, level, body: Body::from(body), is_told: false });
        Ok(number)
    }

    /// How many were not delivered yet.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The next that the sequencer, who is this very member, has not been given.
    pub(super) fn take_unsent(&mut self) -> Option<(u64, Level, Body)> {
        let next = self.unsent()?;
        let update = &self.outstanding[next];
        self.sent = update.number;
        Some((update.number, update.level, update.body.clone()))
    }

    /// The next message with updates for the sequencer. What does not fill one waits while others are under way: so a busy
    /// sender fills its messages, and an idle one does not wait.
    pub(super) fn take_message(
        &mut self,
        now: Time,
        config: &Config,
        epoch: ViewEpoch,
        known: Known,
    ) -> Option<Arc<[u8]>> {
        let first = self.unsent()?;
        let most = config.longest_message - MOST_OVERHEAD_BYTES;
        let mut entries = Vec::with_capacity(most);
        let mut is_full = false;
        let mut sent = self.sent;
        for update in self.outstanding.range(first..) {
            let before = entries.len();
            entries = append(entries, &Submitted { level: update.level, body: &update.body });
            if before > 0 && entries.len() > most {
                entries.truncate(before);
                is_full = true;
                break;
            }
            sent = update.number;
        }
        if !is_full && self.sent > self.ordered {
            return None;
        }
        self.sent = sent;
        if self.resend_at.is_none() {
            self.resend_after = config.resend_after;
            self.resend_at = Some(now.saturating_add(self.resend_after));
        }
        let first_number = self.outstanding[first].number;
        Some(Head::Submit { epoch, known, first_number }.write_with(&entries).0)
    }

    /// The place of the first that was not sent.
    fn unsent(&self) -> Option<usize> {
        let first = self.outstanding.front()?.number;
        let place = usize::try_from((self.sent + 1).saturating_sub(first)).ok()?;
        (place < self.outstanding.len()).then_some(place)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.resend_at
    }

    /// The sequencer is silent about something: it is all sent again.
    pub(super) fn resend_if_due(&mut self, now: Time, config: &Config) -> bool {
        if self.resend_at.is_none_or(|at| at > now) {
            return false;
        }
        self.resend_after = (self.resend_after * 2).min(config.resend_after * MOST_BACKOFF);
        self.resend_at = Some(now.saturating_add(self.resend_after));
        self.sent = self.ordered;
        true
    }

    /// An own update has a position.
    pub(super) fn ordered(&mut self, now: Time, config: &Config, number: u64, events: &mut VecDeque<Event>) {
        self.ordered = self.ordered.max(number);
        self.sent = self.sent.max(number);
        self.resend_after = config.resend_after;
        self.resend_at = match self.resend_at {
            Some(_) if self.sent > self.ordered => Some(now.saturating_add(self.resend_after)),
            _ => None,
        };
        let Some(first) = self.outstanding.front().map(|update| update.number) else { return };
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        let Some(update) = place.and_then(|place| self.outstanding.get_mut(place)) else { return };
        if update.level == Level::Ordered && !update.is_told {
            update.is_told = true;
            events.push_back(Event::Reached { number, level: Level::Ordered });
        }
    }

    /// Own updates up to a number were delivered, the last of them at a position.
    pub(super) fn delivered(&mut self, number: u64, position: u64, events: &mut VecDeque<Event>) {
        while self.outstanding.front().is_some_and(|update| update.number <= number)
            && let Some(update) = self.outstanding.pop_front()
        {
            let Outstanding { number, level, is_told, .. } = update;
            match level {
                Level::Ordered | Level::Majority if !is_told => {
                    events.push_back(Event::Reached { number, level });
                }
                Level::All => self.awaiting_all.push_back((number, position)),
                Level::Ordered | Level::Majority => {}
            }
        }
    }

    /// All members hold everything up to a position.
    pub(super) fn held_by_all(&mut self, position: u64, events: &mut VecDeque<Event>) {
        while self.awaiting_all.front().is_some_and(|&(_, at)| at <= position)
            && let Some((number, _)) = self.awaiting_all.pop_front()
        {
            events.push_back(Event::Reached { number, level: Level::All });
        }
    }

    /// There is another sequencer, who knows nothing but what was delivered.
    pub(super) fn start_over(&mut self) {
        let delivered = self.outstanding.front().map_or(self.next - 1, |update| update.number - 1);
        self.sent = delivered;
        self.ordered = delivered;
        self.resend_at = None;
    }

    /// Nothing is sent until [`Self::start_over`].
    pub(super) fn freeze(&mut self) {
        self.resend_at = None;
    }
}
