//! What a member does with what others send.
//!
//! A message is judged as a whole before anything changes: the first thing in it that cannot be refuses all of it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use comb_types::NodeId;

use super::history::Held;
use super::message::{
    Copied, Head, Known, MOST_OVERHEAD_BYTES, append, read_copied, read_ordered, read_submitted,
};
use super::sender::MOST_BACKOFF;
use super::{Event, Order, Phase, Progress};
use crate::transmit::To;
use crate::view::{Member, ViewEpoch};
use crate::wire::PeerError;

/// Messages that answer one request. Who lacks more asks again.
const MOST_COPIES: usize = 8;

type Outcome = Result<(), PeerError>;

fn broke<T>(from: NodeId, rule: &'static str) -> Result<T, PeerError> {
    Err(PeerError::new(from, rule))
}

impl Order {
    pub(super) fn message(&mut self, from: NodeId, bytes: &[u8]) -> Outcome {
        let (head, start) = Head::read(from, bytes)?;
        if self.is_frozen() && head.epoch().0 == self.latest.epoch.0 + 1 {
            match head {
                // For the next view, or to agree on it, others need what this member said to hold. It may not be in that one. Of a view that
                // does not follow it knows nothing: what it holds may have been dropped on the way there.
                Head::Fetch { epoch, first, last } => return self.answer_fetch(from, epoch, first, last),
                Head::Copies { first, .. } if self.reach.is_some() => {
                    return self.copies(from, first, bytes, start);
                }
                Head::Trimmed { first, .. } if self.reach.is_some() => return self.trimmed(from, first),
                _ => {}
            }
        }
        let (view, is_changing) = match &self.phase {
            Phase::Normal => (&self.view, false),
            Phase::Changing(change) => (&change.view, true),
            Phase::Joining | Phase::Frozen | Phase::Out => {
                // Whatever it is, there is nothing that may be done for it now.
                self.count_other(head.epoch() <= self.view.epoch);
                return Ok(());
            }
        };
        if head.epoch() != view.epoch {
            let is_stale = head.epoch() < view.epoch;
            self.count_other(is_stale);
            return Ok(());
        }
        let is_holder =
            matches!(&self.phase, Phase::Changing(change) if change.wanted.holders.contains(&from));
        let is_other = (view.contains(from) || is_holder) && from != self.me.node;
        let is_about_cut = matches!(head, Head::Fetch { .. } | Head::Copies { .. } | Head::Trimmed { .. });
        if !is_other && is_about_cut && !is_changing && from != self.me.node {
            // Of one that was left out: it was asked, or asks, for what the view begins with.
            self.counts.stale += 1;
            return Ok(());
        }
        if !is_other {
            return broke(from, "a message from somebody who is no other member");
        }
        let is_from_sequencer = from == view.sequencer();
        match head {
            Head::Fetch { epoch, first, last } => self.answer_fetch(from, epoch, first, last),
            Head::Copies { first, .. } => self.copies(from, first, bytes, start),
            Head::Trimmed { first, .. } => self.trimmed(from, first),
            // Somebody has installed the view before this member.
            _ if is_changing => {
                self.count_other(false);
                Ok(())
            }
            Head::Batch { first, progress, answer, .. } => {
                if !is_from_sequencer {
                    return broke(from, "positions from somebody who is not the sequencer");
                }
                self.batch(from, first, progress, answer, bytes, start)
            }
            Head::Submit { .. } | Head::Ack { .. } if self.sequencer.is_none() => {
                broke(from, "what only the sequencer is told")
            }
            Head::Submit { known, first_number, .. } => {
                self.submitted(from, known, first_number, bytes, start)
            }
            Head::Ack { known, .. } => self.acknowledged(from, known),
        }
    }

    fn count_other(&mut self, is_stale: bool) {
        if is_stale {
            self.counts.stale += 1;
        } else {
            self.counts.ahead += 1;
        }
    }

    fn batch(
        &mut self,
        from: NodeId,
        first: u64,
        progress: Progress,
        answer: bool,
        bytes: &[u8],
        start: usize,
    ) -> Outcome {
        if !progress.is_sound() {
            return broke(from, "a progress that contradicts itself");
        }
        let message: Arc<[u8]> = Arc::from(bytes);
        let entries = read_ordered(from, &self.view, &message, start)?;
        let Some(end) =
            first.checked_add(entries.len() as u64).filter(|&end| first > 0 && end - 1 <= progress.last)
        else {
            return broke(from, "positions beyond the last");
        };
        if progress.last - progress.committed > self.config.window_most || end == u64::MAX {
            return broke(from, "more positions than a window has");
        }
        let has_entries = !entries.is_empty();
        self.take(from, first, entries)?;
        self.progress.merge(progress);
        self.deliver(self.progress.committed);
        self.look_for_gaps();
        if answer || has_entries {
            self.is_ack_due = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(self.now.saturating_add(self.config.resend_after / 2));
        }
        Ok(())
    }

    fn copies(&mut self, from: NodeId, first: u64, bytes: &[u8], start: usize) -> Outcome {
        let (may_tell, newest, last) = match self.wanted() {
            Some(wanted) => (wanted.holders.contains(&from), wanted.epoch.0.saturating_sub(1), wanted.cut),
            None => (from == self.view.sequencer(), self.view.epoch.0, u64::MAX),
        };
        if !may_tell {
            // It may have answered in a change that is over.
            self.counts.stale += 1;
            return Ok(());
        }
        let message: Arc<[u8]> = Arc::from(bytes);
        let mut entries = read_copied(from, &message, start)?;
        if first == 0 || first.checked_add(entries.len() as u64).is_none() {
            return broke(from, "positions that cannot be");
        }
        if entries.iter().any(|entry| entry.epoch.0 > newest) {
            return broke(from, "an update from a view that is not yet");
        }
        if first > self.history.held() + 1 {
            return Ok(());
        }
        entries.truncate(usize::try_from(last.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX));
        let before = self.history.held();
        self.take(from, first, entries)?;
        self.is_ack_due = true;
        if self.history.held() > before {
            // There is more where that came from.
            self.fetch_at = None;
            self.fetch_after = self.config.resend_after;
        }
        if self.wanted().is_some() {
            self.check_cuts();
        } else {
            self.deliver(self.progress.committed);
            self.look_for_gaps();
        }
        Ok(())
    }

    /// Holds updates from `first` on, as far as they are new.
    fn take(&mut self, from: NodeId, first: u64, entries: Vec<Held>) -> Outcome {
        let held = self.history.held();
        let furthest = held + self.config.history_most.max(self.config.window_most);
        let mut numbers: BTreeMap<Member, u64> = BTreeMap::new();
        let mut next = held + 1;
        for (position, entry) in (first..).zip(&entries) {
            if let Some(before) = self.history.any(position)
                && before != entry
            {
                return broke(from, "one position for two updates");
            }
            if position == next {
                let last = || self.ordered.get(&entry.sender).copied().unwrap_or(0);
                let number = numbers.entry(entry.sender).or_insert_with(last);
                if entry.number != *number + 1 {
                    return broke(from, "a number out of its turn");
                }
                *number += 1;
                next += 1;
            }
        }
        self.ordered.extend(numbers);
        for (position, entry) in (first..).zip(entries) {
            if position == self.history.held() + 1 {
                self.hold(entry);
            } else if position <= held || position > furthest {
                self.counts.doubled += 1;
            } else {
                self.history.push_early(position, entry);
            }
        }
        self.take_early();
        self.persist_from(held + 1);
        Ok(())
    }

    fn hold(&mut self, entry: Held) {
        if entry.sender == self.me {
            self.outbox.ordered(self.now, &self.config, entry.number, &mut self.events);
        }
        self.history.push(entry);
    }

    /// Holds what came early and now follows. That its numbers are in turn can be seen only here; what is not is fetched
    /// again.
    fn take_early(&mut self) {
        while let Some(entry) = self.history.take_due() {
            let number = self.ordered.entry(entry.sender).or_insert(0);
            if entry.number != *number + 1 {
                self.counts.refused += 1;
                self.history.forget_early();
                return;
            }
            *number += 1;
            self.hold(entry);
        }
    }

    fn submitted(
        &mut self,
        from: NodeId,
        known: Known,
        first_number: u64,
        bytes: &[u8],
        start: usize,
    ) -> Outcome {
        let message: Arc<[u8]> = Arc::from(bytes);
        let updates = read_submitted(from, &message, start)?;
        let place = self.place(from).expect("it was seen to be a member");
        let sender = self.view.members[place];
        if first_number == 0 || first_number.checked_add(updates.len() as u64).is_none() {
            return broke(from, "numbers that cannot be");
        }
        if updates.iter().any(|(_, body)| body.len() > self.config.longest_update()) {
            return broke(from, "an update that does not fit a message");
        }
        // What has a position and is not committed is still at hand, and can be compared.
        let known_as = |number| {
            let uncommitted = self.progress.committed + 1..=self.progress.last;
            let held = uncommitted.rev().filter_map(|position| self.history.get(position));
            held.filter(|held| held.sender == sender).find(|held| held.number == number)
        };
        let last = self.ordered.get(&sender).copied().unwrap_or(0);
        for (number, (_, body)) in (first_number..=last).zip(&updates) {
            if known_as(number).is_some_and(|before| before.body != *body) {
                return broke(from, "one number for two updates");
            }
        }
        let Some(sequencer) = &mut self.sequencer else { return Ok(()) };
        sequencer.may_admit(&self.config, place, first_number, &updates)?;
        self.acknowledged(from, known)?;
        let Some(sequencer) = &mut self.sequencer else { return Ok(()) };
        for (number, (level, body)) in (first_number..).zip(updates) {
            if !sequencer.admit(place, number, level, body) {
                self.counts.doubled += 1;
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, from: NodeId, known: Known) -> Outcome {
        let place = self.place(from).expect("it was seen to be a member");
        let Some(sequencer) = &mut self.sequencer else { return Ok(()) };
        if sequencer.acknowledge(self.now, place, known, &self.progress, &mut self.events)? {
            self.advance();
        }
        Ok(())
    }

    /// `epoch` is that of the request: the answer is of use there alone.
    fn answer_fetch(&mut self, from: NodeId, epoch: ViewEpoch, first: u64, last: u64) -> Outcome {
        if first == 0 || first > last {
            return broke(from, "a request for nothing");
        }
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.close_window(self.now, &self.config);
        }
        if first < self.history.first() {
            let head = Head::Trimmed { epoch, first: self.history.first() };
            self.send(To::One(from), head.write());
            return Ok(());
        }
        let most = self.config.longest_message - MOST_OVERHEAD_BYTES;
        let mut position = first;
        for _ in 0..MOST_COPIES {
            let begin = position;
            let mut entries = Vec::new();
            while let Some(held) = self.history.get(position).filter(|_| position <= last) {
                let before = entries.len();
                let (epoch, sender, number) = (held.epoch, held.sender, held.number);
                entries = append(entries, &Copied { epoch, sender, number, body: &held.body });
                if before > 0 && entries.len() > most {
                    entries.truncate(before);
                    break;
                }
                position += 1;
            }
            if position == begin {
                break;
            }
            let (bytes, _) = Head::Copies { epoch, first: begin }.write_with(&entries);
            self.send(To::One(from), bytes);
        }
        Ok(())
    }

    fn trimmed(&mut self, from: NodeId, first: u64) -> Outcome {
        let may_tell = match self.wanted() {
            Some(wanted) => wanted.holders.contains(&from),
            None => from == self.view.sequencer(),
        };
        let lacked = self.history.held() + 1;
        if may_tell && first > lacked && self.lacks().is_some() {
            self.events.push_back(Event::NeedsSnapshot { from: lacked });
        }
        Ok(())
    }

    /// The positions that are known to be there and are not held.
    fn lacks(&mut self) -> Option<(u64, u64)> {
        let first = self.history.held() + 1;
        let is_normal = matches!(self.phase, Phase::Normal);
        let last = match self.wanted() {
            Some(wanted) => wanted.cut,
            None if is_normal => self.progress.last,
            None => return None,
        };
        let last = self.history.first_early().map_or(last, |early| last.min(early - 1));
        (first <= last).then_some((first, last))
    }

    /// Sets the time to ask for what is lacking, or none if nothing is.
    fn look_for_gaps(&mut self) {
        if self.lacks().is_none() {
            self.fetch_at = None;
            self.fetch_after = self.config.resend_after;
        } else if self.fetch_at.is_none() {
            self.fetch_at = Some(self.now.saturating_add(self.config.gap_after));
        }
    }

    pub(super) fn fetch_if_due(&mut self) {
        if self.fetch_at.is_some_and(|at| at <= self.now) {
            if let Some(wanted) = self.wanted() {
                wanted.holder_was_silent();
            }
            self.fetch();
        }
    }

    /// Asks for what is lacking, and sets the time to ask again.
    pub(super) fn fetch(&mut self) {
        self.fetch_at = None;
        let Some((first, last)) = self.lacks() else { return };
        self.fetch_at = Some(self.now.saturating_add(self.fetch_after));
        self.fetch_after = (self.fetch_after * 2).min(self.config.resend_after * MOST_BACKOFF);
        let me = self.me.node;
        let (epoch, whom) = match self.wanted() {
            Some(wanted) => (wanted.epoch, wanted.holder(me)),
            None => (self.view.epoch, Some(self.view.sequencer())),
        };
        let Some(whom) = whom.filter(|&whom| whom != me) else { return };
        self.counts.fetched += 1;
        self.send(To::One(whom), Head::Fetch { epoch, first, last }.write());
    }
}
