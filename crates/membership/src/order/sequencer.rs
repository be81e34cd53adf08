//! The member that numbers: fair admission, batches, the window, and what the others hold.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use comb_types::{NodeId, Time};

use super::body::Body;
use super::message::{Known, MOST_OVERHEAD_BYTES, Ordered, append};
use super::sender::MOST_BACKOFF;
use super::{Config, Event, Level, Progress};
use crate::view::View;
use crate::wire::PeerError;

/// Below this the window does not fall: a batch of small updates must fit.
const LEAST_WINDOW: u64 = 16;

/// It doubles with every round trip until something is lost.
const FIRST_WINDOW: u64 = 256;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Peer {
    node: NodeId,
    known: Known,
    /// Since when it lacks something that is committed and has not come nearer to it.
    behind_since: Option<Time>,
    /// In the recovery set. (Galaxy §8.4, lesson 2)
    is_lagging: bool,
    /// Its next update's number.
    next: u64,
    /// Its updates that have no position yet.
    pending: BTreeMap<u64, (Level, Body)>,
}

impl Peer {
    fn is_ready(&self) -> bool {
        self.pending.first_key_value().is_some_and(|(&number, _)| number == self.next)
    }
}

/// One update that gets a position.
pub(super) struct Numbered {
    pub place: usize,
    pub number: u64,
    /// Where its body lies among the entries.
    pub body: Range<usize>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sequencer {
    peers: Vec<Peer>,
    /// Whose turn it is.
    turn: usize,
    pending_bytes: usize,
    /// Positions that may be given without being committed.
    window: u64,
    is_window_halved: bool,
    halved_at: Time,
    /// The highest position of an update that waits for all.
    all_wanted: u64,
    /// What the last message to all said.
    told: Progress,
    /// Up to where those who wait were told that it is committed, and when the others are.
    told_waiting: u64,
    tell_at: Option<Time>,
    remind_at: Option<Time>,
    remind_after: Duration,
}

impl Sequencer {
    /// Of a view in which everybody holds everything up to `held`. `next` is given a member's place.
    pub(super) fn new(view: &View, config: &Config, held: u64, next: impl Fn(usize) -> u64) -> Self {
        let peer = |(place, node)| Peer {
            node,
            known: Known { held, committed: 0, stable: 0 },
            behind_since: None,
            is_lagging: false,
            next: next(place),
            pending: BTreeMap::new(),
        };
        Self {
            peers: view.nodes().enumerate().map(peer).collect(),
            turn: 0,
            pending_bytes: 0,
            window: config.window_most.min(FIRST_WINDOW),
            is_window_halved: false,
            halved_at: Time::ZERO,
            all_wanted: 0,
            told: Progress::default(),
            told_waiting: held,
            tell_at: None,
            remind_at: None,
            remind_after: config.resend_after,
        }
    }

    /// Whether a sender may send these.
    pub(super) fn may_admit(
        &self,
        config: &Config,
        place: usize,
        first_number: u64,
        updates: &[(Level, Body)],
    ) -> Result<(), PeerError> {
        let peer = &self.peers[place];
        let end = first_number + updates.len() as u64;
        if end > peer.next + config.outstanding_most as u64 {
            return Err(PeerError::new(peer.node, "more updates than may be outstanding"));
        }
        for (number, (_, body)) in (first_number..).zip(updates) {
            if peer.pending.get(&number).is_some_and(|(_, before)| before != body) {
                return Err(PeerError::new(peer.node, "one number for two updates"));
            }
        }
        Ok(())
    }

    /// A sender's update comes. False if it came before.
    pub(super) fn admit(&mut self, place: usize, number: u64, level: Level, body: Body) -> bool {
        let peer = &mut self.peers[place];
        if number < peer.next || peer.pending.contains_key(&number) {
            return false;
        }
        self.pending_bytes += body.len();
        peer.pending.insert(number, (level, body));
        true
    }

    /// Whether a batch is due: what does not fill one waits for those under way, so that load makes batches larger instead
    /// of more.
    pub(super) fn has_batch(&self, config: &Config, progress: &Progress) -> bool {
        let under_way = progress.last - progress.committed;
        let is_due = under_way == 0 || self.pending_bytes >= config.longest_message;
        is_due && under_way < self.window && self.peers.iter().any(Peer::is_ready)
    }

    /// Takes one update after the other, from one sender after the other, until the batch or the window is full.
    pub(super) fn fill_batch(&mut self, config: &Config, progress: &Progress) -> (Vec<u8>, Vec<Numbered>) {
        let room = self.window.saturating_sub(progress.last - progress.committed);
        let most = config.longest_message - MOST_OVERHEAD_BYTES;
        let mut entries = Vec::with_capacity(config.longest_message);
        let mut numbered = Vec::new();
        let mut idle = 0;
        while idle < self.peers.len() && (numbered.len() as u64) < room {
            let place = self.turn % self.peers.len();
            let peer = &mut self.peers[place];
            let Some(next) = peer.pending.first_entry().filter(|first| *first.key() == peer.next) else {
                idle += 1;
                self.turn = place + 1;
                continue;
            };
            idle = 0;
            let before = entries.len();
            let number = *next.key();
            let place_number = u32::try_from(place).expect("fewer members than that");
            entries = append(entries, &Ordered { place: place_number, number, body: &next.get().1 });
            if before > 0 && entries.len() > most {
                // Its turn is the next batch's first.
                entries.truncate(before);
                break;
            }
            let (level, body) = next.remove();
            peer.next += 1;
            self.pending_bytes -= body.len();
            self.turn = place + 1;
            if level == Level::All {
                self.all_wanted = progress.last + numbered.len() as u64 + 1;
            }
            let end = entries.len();
            numbered.push(Numbered { place, number, body: end - body.len()..end });
        }
        (entries, numbered)
    }

    /// A member tells what it has. True if that is new.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        place: usize,
        known: Known,
        progress: &Progress,
        events: &mut VecDeque<Event>,
    ) -> Result<bool, PeerError> {
        let peer = &mut self.peers[place];
        let told = [known.held <= progress.last, known.committed <= progress.committed];
        if told != [true; 2] || known.stable > progress.stable {
            return Err(PeerError::new(peer.node, "an acknowledgement of what never was"));
        }
        let is_new = known.held > peer.known.held;
        peer.known = Known {
            held: peer.known.held.max(known.held),
            committed: peer.known.committed.max(known.committed),
            stable: peer.known.stable.max(known.stable),
        };
        if is_new {
            peer.behind_since = (peer.known.held < progress.committed).then_some(now);
        }
        if peer.is_lagging && peer.known.held >= progress.committed {
            peer.is_lagging = false;
            events.push_back(Event::CaughtUp { member: peer.node });
        }
        Ok(is_new)
    }

    /// The highest position that a quorum holds: more than half, whatever half survives a split.
    pub(super) fn held_by_quorum(&self) -> u64 {
        let mut held: Vec<u64> = self.peers.iter().map(|peer| peer.known.held).collect();
        let middle = (held.len() - 1) / 2;
        *held.select_nth_unstable(middle).1
    }

    /// The highest position that every member holds.
    pub(super) fn held_by_all(&self) -> u64 {
        self.peers.iter().map(|peer| peer.known.held).min().unwrap_or(0)
    }

    /// Up to where nobody keeps anything: what all have, and what only laggards lack if it is too much.
    pub(super) fn trimmable(&self, config: &Config, progress: &Progress) -> u64 {
        let in_time = self.peers.iter().filter(|peer| !peer.is_lagging).map(|peer| peer.known.held).min();
        let too_much = progress.last.saturating_sub(config.history_most);
        let for_laggards = in_time.unwrap_or(0).min(too_much);
        self.held_by_all().max(for_laggards).min(progress.committed)
    }

    /// Who is too far behind, or has stood still for too long, goes to the recovery set.
    pub(super) fn survey(
        &mut self,
        now: Time,
        config: &Config,
        progress: &Progress,
        events: &mut VecDeque<Event>,
    ) {
        for peer in &mut self.peers {
            if peer.known.held >= progress.committed {
                peer.behind_since = None;
                continue;
            }
            let since = *peer.behind_since.get_or_insert(now);
            let is_far = progress.last - peer.known.held > config.history_most;
            if !peer.is_lagging && (is_far || now.since(since) >= config.lag_after) {
                peer.is_lagging = true;
                events.push_back(Event::Lagging { member: peer.node, held: peer.known.held });
            }
        }
    }

    /// The members of the recovery set.
    pub(super) fn laggards(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.iter().filter(|peer| peer.is_lagging).map(|peer| peer.node)
    }

    /// So many positions were committed, which is what the window grows by until something is lost, and by one from then on.
    pub(super) fn open_window(&mut self, config: &Config, committed: u64) {
        let more = if self.is_window_halved { committed.min(1) } else { committed };
        self.window = (self.window + more).min(config.window_most);
    }

    /// Somebody lacks something. One loss is told by many, so the window is halved once in a while only.
    pub(super) fn close_window(&mut self, now: Time, config: &Config) {
        if !self.is_window_halved || now.since(self.halved_at) >= config.resend_after {
            self.is_window_halved = true;
            self.halved_at = now;
            self.window = (self.window / 2).max(LEAST_WINDOW.min(config.window_most));
        }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Whether all should hear at once how far everything is.
    pub(super) fn has_news(&self, progress: &Progress) -> bool {
        let all_wait = self.told.stable < self.all_wanted && self.told.stable < progress.stable;
        self.told.committed < progress.committed || all_wait
    }

    /// There is news, and no batch to tell it with. The positions of whose senders are to hear it now; none if all are.
    pub(super) fn tell_first(
        &mut self,
        now: Time,
        config: &Config,
        progress: &Progress,
    ) -> Option<RangeInclusive<u64>> {
        let all_wait = self.told.stable < self.all_wanted && self.told.stable < progress.stable;
        let tell_at = *self.tell_at.get_or_insert(now.saturating_add(config.tell_after));
        if all_wait || tell_at <= now {
            return None;
        }
        let first = self.told_to_senders() + 1;
        self.told_waiting = progress.committed;
        Some(first..=progress.committed)
    }

    /// Up to where those who sent the updates were told that they are committed.
    pub(super) fn told_to_senders(&self) -> u64 {
        self.told_waiting.max(self.told.committed)
    }

    /// It was said to all.
    pub(super) fn told(&mut self, now: Time, config: &Config, progress: Progress) {
        self.told = progress;
        self.tell_at = None;
        self.remind_after = config.resend_after;
        if self.peers.len() > 1 {
            self.remind_at.get_or_insert(now.saturating_add(config.resend_after));
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        [self.remind_at, self.tell_at].into_iter().flatten().min()
    }

    /// Whom to remind now: those who lack something, or may not know that all have it. Laggards are reminded as seldom as
    /// can be.
    pub(super) fn remind(&mut self, now: Time, config: &Config, progress: &Progress) -> Vec<NodeId> {
        if self.remind_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let up_to_date =
            Known { held: progress.last, committed: progress.committed, stable: progress.stable };
        let behind = self.peers.iter().filter(|peer| peer.known != up_to_date);
        let most = config.resend_after * MOST_BACKOFF;
        let is_last_resort = self.remind_after >= most;
        let whom: Vec<_> =
            behind.clone().filter(|peer| is_last_resort || !peer.is_lagging).map(|peer| peer.node).collect();
        self.remind_at = (behind.count() > 0).then(|| now.saturating_add(self.remind_after));
        self.remind_after = (self.remind_after * 2).min(most);
        whom
    }
}
