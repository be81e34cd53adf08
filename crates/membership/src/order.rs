//! What was agreed, in which order. (MSCS §7.8)
//!
//! The least member of a view, its *sequencer*, gives every update a position, and passes them on in batches. Members
//! acknowledge what they hold without a gap; what a quorum holds is *committed*, and is delivered. `ALGORITHM.md` says why
//! that survives what may happen.
//!
//! A change of the view is the business of `regroup`, which drives this machine through it: [`Input::Freeze`], which is
//! answered by [`Event::Position`]; [`Input::Change`], by [`Event::Flushed`]; and, when all members of the new view have said
//! that, [`Input::Install`].
//!
//! After each input, poll [`Order::poll_transmit`] and then [`Order::poll_event`] until both have nothing more: batches and
//! acknowledgements are made when they are polled for, so that one stands for all that came before.

mod body;
mod flush;
mod history;
mod log;
mod message;
mod receive;
mod sender;
mod sequencer;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::lies::lie;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

pub use body::Body;
use flush::{Change, Wanted};
use history::History;
pub use log::LogError;
use log::Persisting;
use message::{Head, Known, MOST_OVERHEAD_BYTES};
use sender::Outbox;
use sequencer::Sequencer;

use crate::transmit::{Cast, To};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::PeerError;

/// No group comes to half of all numbers. Whoever speaks of a greater one lies, and what is counted on from there would overflow.
pub(crate) const MOST_POSITION: u64 = u64::MAX / 2;

/// How it works. All members of a group have the same, but for the times.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The longest message, envelope included. An update fits one message.
    pub longest_message: usize,
    /// Updates of one sender that were not delivered to it yet.
    pub outstanding_most: usize,
    /// Positions that are not committed yet.
    pub window_most: u64,
    /// Positions that are kept for those who lack them. Who lacks more needs a snapshot.
    pub history_most: u64,
    /// A gap may be filled by a message that was overtaken: so long it is waited for.
    pub gap_after: Duration,
    /// So long without an answer, and it is sent again; then after twice the time.
    pub resend_after: Duration,
    /// A member that lacks something so long and comes no nearer to it goes to the recovery set.
    pub lag_after: Duration,
    /// When something is committed, those whose updates it is hear it at once; the others with the next batch, or after so long.
    /// Zero tells all at once. Where a message wakes a process that others wait behind, fewer at once are sooner there.
    pub tell_after: Duration,
    /// Whether updates are acknowledged only when they are on a disk: see [`Event::Persist`].
    pub has_log: bool,
}

impl Default for Config {
    /// For hosts in one machine room.
    fn default() -> Self {
        Self {
            longest_message: 1400,
            outstanding_most: 256,
            window_most: 4096,
            history_most: 65_536,
            gap_after: Duration::from_millis(2),
            resend_after: Duration::from_millis(20),
            lag_after: Duration::from_millis(500),
            tell_after: Duration::ZERO,
            has_log: false,
        }
    }
}

impl Config {
    /// The longest update that fits a message.
    pub fn longest_update(&self) -> usize {
        self.longest_message.saturating_sub(MOST_OVERHEAD_BYTES)
    }
}

/// How far an update must have come for its sender to go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Level {
    /// It has a position. It may still be lost, with all who hold it; it is then sent again, unless its sender is among them.
    Ordered,
    /// A quorum holds it: every later view has it.
    Majority,
    /// Every member of the view that delivers it holds it.
    All,
}

/// Why an update was not taken. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// It will never fit a message: see [`Config::longest_update`].
    #[error("the update is longer than a message")]
    TooLong,
    /// Try again when one has been delivered, or has reached its level.
    #[error("too many updates are outstanding")]
    Full,
    /// This member is not in the view.
    #[error("this member has left the group")]
    Out,
}

/// What the machine is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// A message came.
    Message {
        /// Whence, as the network below vouches for.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time of [`Order::next_timeout`] has come.
    Timeout,
    /// The view ends: acknowledge nothing more in it.
    Freeze,
    /// The view that was frozen may end at this cut: answer with [`Event::Position`] again when all up to it is held.
    Reach {
        /// The highest position that may belong to it.
        cut: u64,
        /// Who said to hold all up to it.
        holders: Vec<NodeId>,
    },
    /// This is the successor of the view, or of one that was agreed and not installed.
    Change {
        /// The successor.
        view: View,
        /// The highest position that belongs to the view that ends. Never below what was delivered here.
        cut: u64,
        /// Who said to hold all up to it.
        holders: Vec<NodeId>,
    },
    /// All members of the successor have flushed.
    Install(View),
    /// The next [`Event::Persist`], which was for this position, is on the disk. Each is answered, in their order.
    Persisted {
        /// Of the event.
        position: u64,
    },
    /// The application has taken the state from a snapshot: see [`Event::NeedsSnapshot`].
    Snapshot(Snapshot),
}

/// One update, as every member sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Delivery {
    /// Its place in the one order of all.
    pub position: u64,
    /// The view that it belongs to. It is delivered before the next is installed.
    pub epoch: ViewEpoch,
    /// Whose it is.
    pub sender: Member,
    /// The how manieth of its sender's, from 1.
    pub number: u64,
    /// What it says.
    pub body: Body,
}

/// What the machine tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Apply it. Every member gets the same ones in the same order, each once.
    Delivered(Delivery),
    /// An own update is as far as it was to come.
    Reached {
        /// As [`Order::submit`] said.
        number: u64,
        /// The level that it was sent for.
        level: Level,
    },
    /// The answer to [`Input::Freeze`] and [`Input::Reach`]: every position up to this is held.
    Position(u64),
    /// The answer to [`Input::Change`]: everything up to the cut is held, and nothing beyond.
    Flushed,
    /// Told by the sequencer: a member went to the recovery set. Nobody waits for it, but updates for [`Level::All`].
    Lagging {
        /// Who.
        member: NodeId,
        /// The highest position that it has.
        held: u64,
    },
    /// Told by the sequencer: it has left the recovery set.
    CaughtUp {
        /// Who.
        member: NodeId,
    },
    /// Nobody keeps any more what this member lacks: get a [`Snapshot`] from another, and say [`Input::Snapshot`]. Told again
    /// while that is so.
    NeedsSnapshot {
        /// The first position that it lacks.
        from: u64,
    },
    /// With a log: write this behind what is there, and say [`Input::Persisted`] when it will survive a crash.
    Persist {
        /// The last position in it.
        position: u64,
        /// A record for [`Order::restored`].
        bytes: Vec<u8>,
    },
    /// With a log: write the snapshot of the last [`Input::Snapshot`] in the place of all records, and answer as for
    /// [`Event::Persist`].
    PersistSnapshot {
        /// Of the snapshot.
        position: u64,
    },
}

/// The state at a position, for those who join or have fallen too far behind.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Every update up to this is in it.
    pub position: u64,
    /// The last number that was delivered from each sender, by sender.
    pub numbers: Vec<(Member, u64)>,
    /// The application's state, or where to find it.
    pub state: Vec<u8>,
}

impl Snapshot {
    /// Whether it may be one: what a peer calls so may be anything.
    pub fn is_sound(&self) -> bool {
        let may_be = |number: u64| number <= MOST_POSITION;
        may_be(self.position) && self.numbers.iter().all(|(_, number)| may_be(*number))
    }
}

/// How far everything is, as the sequencer says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// A quorum holds every position up to this.
    pub committed: u64,
    /// Every member does.
    pub stable: u64,
    /// Nobody keeps anything up to this.
    pub trim: u64,
    /// The highest position that was given.
    pub last: u64,
}

impl Progress {
    fn is_sound(&self) -> bool {
        self.stable <= self.committed && self.trim <= self.committed && self.committed <= self.last
    }

    /// The later of the two, each number for itself: messages overtake each other.
    fn merge(&mut self, other: Self) {
        self.committed = self.committed.max(other.committed);
        self.stable = self.stable.max(other.stable);
        self.trim = self.trim.max(other.trim);
        self.last = self.last.max(other.last);
    }
}

/// What happened that nobody was told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// Messages from a view that is over.
    pub stale: u64,
    /// Messages from a view that is not yet.
    pub ahead: u64,
    /// Messages that broke a rule.
    pub refused: u64,
    /// Updates that came again.
    pub doubled: u64,
    /// Times that updates were sent again.
    pub resent: u64,
    /// Times that something was asked for again.
    pub fetched: u64,
    /// Batches made as the sequencer.
    pub batches: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// In no view yet.
    Joining,
    /// In a view.
    Normal,
    /// The view ends, and the next is not known.
    Frozen,
    /// On the way into a view.
    Changing(Change),
    /// Others have gone on without this member.
    Out,
}

/// The last number of each sender.
type Numbers = BTreeMap<Member, u64>;

/// One member of a group whose updates are ordered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Order {
    config: Config,
    me: Member,
    now: Time,
    phase: Phase,
    view: View,
    /// The view that it was told of last, which may not be installed.
    latest: View,
    /// What is to be reached before it is agreed.
    reach: Option<Wanted>,
    history: History,
    /// The highest position that was delivered.
    delivered: u64,
    /// As of there. Part of the replicated state.
    numbers: Numbers,
    /// As of what is held.
    ordered: Numbers,
    progress: Progress,
    outbox: Outbox,
    sequencer: Option<Sequencer>,
    fetch_at: Option<Time>,
    fetch_after: Duration,
    is_ack_due: bool,
    ack_at: Option<Time>,
    persisting: Persisting,
    /// What follows this is not forgotten: a snapshot of it is being made for the log.
    kept_behind: Option<u64>,
    transmits: VecDeque<Cast>,
    events: VecDeque<Event>,
    counts: Counts,
}

impl Order {
    /// A member of the first view of a group, which has no updates yet. All of its members start so.
    ///
    /// Panics if it is not a member.
    pub fn founding(config: Config, me: Member, view: View) -> Self {
        let mut order = Self::joining(config, me, Snapshot::default());
        order.install(view);
        order
    }

    /// A member that is not in a view yet and has the state of a snapshot. It is driven through the change that takes it in as
    /// all others are, but for [`Input::Freeze`]; or told to install the view at once, if the snapshot is of the cut.
    pub fn joining(config: Config, me: Member, snapshot: Snapshot) -> Self {
        assert!(config.longest_update() > 0, "a message must have room for an update");
        let numbers: Numbers = snapshot.numbers.into_iter().collect();
        Self {
            me,
            now: Time::ZERO,
            phase: Phase::Joining,
            view: View { epoch: ViewEpoch(0), ..View::founded_by(me) },
            latest: View { epoch: ViewEpoch(0), ..View::founded_by(me) },
            reach: None,
            history: History::after(snapshot.position),
            delivered: snapshot.position,
            ordered: numbers.clone(),
            numbers,
            progress: Progress::default(),
            outbox: Outbox::new(),
            sequencer: None,
            fetch_at: None,
            fetch_after: config.resend_after,
            is_ack_due: false,
            ack_at: None,
            persisting: Persisting::new(snapshot.position),
            kept_behind: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
            config,
        }
    }

    /// Takes an update to be sent, and says its number. [`Event::Reached`] tells when it is as far as `level`.
    pub fn submit(&mut self, now: Time, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        if let Phase::Out = self.phase {
            return Err(SubmitError::Out);
        }
        self.now = now;
        let number = self.outbox.submit(&self.config, level, body)?;
        self.admit_own();
        Ok(number)
    }

    /// Feeds one input. Call again at [`Self::next_timeout`] even if nothing came.
    ///
    /// Panics if a view is installed that was not flushed: that would be our own fault.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        self.now = now;
        let outcome = match input {
            Input::Message { from, bytes } => self.message(from, bytes),
            Input::Timeout => Ok(()),
            Input::Freeze => {
                self.freeze();
                Ok(())
            }
            Input::Reach { cut, holders } => {
                self.reach(cut, holders);
                Ok(())
            }
            Input::Change { view, cut, holders } => {
                self.change(view, cut, holders);
                Ok(())
            }
            Input::Install(view) => {
                self.install(view);
                Ok(())
            }
            Input::Persisted { position } => {
                self.persisted(position);
                Ok(())
            }
            Input::Snapshot(snapshot) => {
                self.take_snapshot(snapshot);
                Ok(())
            }
        };
        if outcome.is_err() {
            self.counts.refused += 1;
        }
        self.run_timers();
        outcome
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Cast> {
        if let Some(cast) = self.transmits.pop_front() {
            return Some(cast);
        }
        let Phase::Normal = self.phase else { return None };
        if self.sequencer.is_some() {
            self.sequence();
        } else {
            self.report();
        }
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle`] if nothing comes before.
    pub fn next_timeout(&self) -> Option<Time> {
        let sequencer = self.sequencer.as_ref().and_then(Sequencer::next_timeout);
        [self.fetch_at, self.ack_at, self.outbox.next_timeout(), sequencer].into_iter().flatten().min()
    }

    /// Those who may hold what this member lacks of a cut, the likeliest first.
    pub(crate) fn holders(&mut self) -> &[NodeId] {
        self.wanted().map_or(&[], |wanted| &wanted.holders)
    }

    /// The view that it is in; before the first, one of epoch 0.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The state as of all that was delivered. `state` is the application's, which must have taken all events before.
    pub fn snapshot(&self, state: Vec<u8>) -> Snapshot {
        let numbers = self.numbers.iter().map(|(&member, &number)| (member, number)).collect();
        Snapshot { position: self.delivered, numbers, state }
    }

    /// The highest position that was delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The highest position that is held without a gap.
    pub fn held(&self) -> u64 {
        self.history.held()
    }

    /// Who sent the update that is held last. Where messages leave one after the other, it is to be told first: it waits.
    pub fn last_sender(&self) -> Option<NodeId> {
        self.history.get(self.history.held()).map(|held| held.sender.node)
    }

    /// Own updates that were not delivered here yet.
    pub fn outstanding(&self) -> usize {
        self.outbox.outstanding()
    }

    /// Updates that are kept for others.
    pub fn kept(&self) -> usize {
        self.history.len()
    }

    /// The positions that may be given without being committed; none if this is not the sequencer.
    pub fn window(&self) -> Option<u64> {
        self.sequencer.as_ref().map(Sequencer::window)
    }

    /// The members of the recovery set, as the sequencer sees it; none if this is another.
    pub fn laggards(&self) -> Vec<NodeId> {
        self.sequencer.iter().flat_map(Sequencer::laggards).collect()
    }

    /// What happened that nobody was told of.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A message in words.
    pub fn describe(bytes: &[u8]) -> String {
        match Head::read(NodeId(u32::MAX), bytes) {
            Ok((head, start)) => alloc::format!("{head}, {} bytes of updates", bytes.len() - start),
            Err(error) => alloc::format!("no message of ordered update: {}", error.rule),
        }
    }

    /// What this member says of itself.
    fn known(&self) -> Known {
        let held = self.persisting.limit(&self.config, self.history.held());
        Known { held, committed: self.progress.committed.min(held), stable: self.progress.stable }
    }

    fn send(&mut self, to: To, bytes: impl Into<alloc::sync::Arc<[u8]>>) {
        self.transmits.push_back(Cast { to, bytes: bytes.into() });
    }

    /// Does what is due.
    fn run_timers(&mut self) {
        self.fetch_if_due();
        let Phase::Normal = self.phase else { return };
        if self.ack_at.is_some_and(|at| at <= self.now) {
            self.is_ack_due = true;
            self.ack_at = None;
        }
        if self.outbox.resend_if_due(self.now, &self.config) {
            self.counts.resent += 1;
        }
        self.remind();
    }

    /// As a member that does not number: updates to the sequencer, and what it holds. An acknowledgement that is due rides
    /// with updates if there are any.
    fn report(&mut self) {
        let (epoch, known) = (self.view.epoch, self.known());
        let to = To::One(self.view.sequencer());
        if let Some(bytes) = self.outbox.take_message(self.now, &self.config, epoch, known) {
            self.send(to, bytes);
        } else if self.is_ack_due {
            self.send(to, Head::Ack { epoch, known }.write());
        } else {
            return;
        }
        self.is_ack_due = false;
        self.ack_at = None;
    }

    /// Delivers what is committed and held.
    fn deliver(&mut self, committed: u64) {
        let until = committed.min(self.history.held());
        while self.delivered < until {
            let position = self.delivered + 1;
            let held = self.history.get(position).expect("what is not delivered is not trimmed");
            let delivery = Delivery {
                position,
                epoch: held.epoch,
                sender: held.sender,
                number: held.number,
                body: held.body.clone(),
            };
            self.delivered = position;
            self.numbers.insert(delivery.sender, delivery.number);
            if delivery.sender == self.me {
                self.outbox.delivered(delivery.number, position, &mut self.events);
            }
            self.events.push_back(Event::Delivered(delivery));
        }
        self.outbox.held_by_all(self.progress.stable.min(self.delivered), &mut self.events);
        // Who waits for a commit is found by what is kept.
        let told = self.sequencer.as_ref().map_or(u64::MAX, Sequencer::told_to_senders);
        let trim = self.progress.trim.min(self.delivered).min(told);
        let kept = self.kept_behind.filter(|kept| self.delivered - kept <= self.config.history_most);
        self.history.trim(kept.map_or(trim, |kept| trim.min(kept)));
    }
}

/// As the sequencer.
impl Order {
    fn my_place(&self) -> usize {
        self.place(self.me.node).expect("who is in normal work is a member")
    }

    fn place(&self, node: NodeId) -> Option<usize> {
        self.view.members.binary_search_by_key(&node, |member| member.node).ok()
    }

    /// Hands the sequencer, if this is it, this member's own updates.
    fn admit_own(&mut self) {
        let Phase::Normal = self.phase else { return };
        let Some(sequencer) = &mut self.sequencer else { return };
        let me = self.view.members.binary_search(&self.me).expect("the sequencer is a member");
        while let Some((number, level, body)) = self.outbox.take_unsent() {
            sequencer.admit(me, number, level, body);
        }
    }

    /// Makes the next batch, if there is one to be made, or tells how far everything is, if that is news.
    fn sequence(&mut self) {
        let Some(sequencer) = &mut self.sequencer else { return };
        if sequencer.has_batch(&self.config, &self.progress) {
            let (entries, numbered) = sequencer.fill_batch(&self.config, &self.progress);
            let first = self.progress.last + 1;
            self.progress.last += numbered.len() as u64;
            let progress = self.progress;
            let head = Head::Batch { epoch: self.view.epoch, first, progress, answer: false };
            let (bytes, head_bytes) = head.write_with(&entries);
            for update in numbered {
                let place = head_bytes + update.body.start..head_bytes + update.body.end;
                let sender = self.view.members[update.place];
                self.hold_own(sender, update.number, Body::within(&bytes, place));
            }
            self.counts.batches += 1;
            self.persist_from(first);
            self.send_to_others(bytes);
            self.advance();
        } else if sequencer.has_news(&self.progress) {
            match sequencer.tell_first(self.now, &self.config, &self.progress) {
                None => self.send_progress(To::Others, false),
                Some(positions) => self.tell_senders(positions),
            }
        }
    }

    /// Those whose updates these are hear how far everything is.
    fn tell_senders(&mut self, positions: RangeInclusive<u64>) {
        let senders = positions.filter_map(|position| Some(self.history.get(position)?.sender.node));
        let waiting: BTreeSet<NodeId> = senders.filter(|&node| node != self.me.node).collect();
        waiting.into_iter().for_each(|node| self.send_progress(To::One(node), false));
    }

    /// The sequencer holds what it has numbered.
    fn hold_own(&mut self, sender: Member, number: u64, body: Body) {
        if sender == self.me {
            self.outbox.ordered(self.now, &self.config, number, &mut self.events);
        }
        self.ordered.insert(sender, number);
        self.history.push(history::Held { epoch: self.view.epoch, sender, number, body });
    }

    fn send_progress(&mut self, to: To, answer: bool) {
        let (epoch, progress) = (self.view.epoch, self.progress);
        let head = Head::Batch { epoch, first: progress.last + 1, progress, answer };
        let bytes = head.write();
        match to {
            To::Others => self.send_to_others(bytes),
            To::One(_) => self.send(to, bytes),
        }
    }

    /// Sends what says how far everything is.
    fn send_to_others(&mut self, bytes: impl Into<alloc::sync::Arc<[u8]>>) {
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.told(self.now, &self.config, self.progress);
        }
        if self.view.members.len() > 1 {
            self.send(To::Others, bytes);
        }
    }

    /// Something was acknowledged: how far is everything now?
    fn advance(&mut self) {
        let (known, place) = (self.known(), self.my_place());
        let Some(sequencer) = &mut self.sequencer else { return };
        let own = Known { committed: self.progress.committed, ..known };
        sequencer
            .acknowledge(self.now, place, own, &self.progress, &mut self.events)
            .expect("the sequencer knows what it gave");
        let committed = sequencer.held_by_quorum();
        if committed > self.progress.committed {
            sequencer.open_window(&self.config, committed - self.progress.committed);
            self.progress.committed = committed;
        }
        self.progress.stable = self.progress.stable.max(sequencer.held_by_all().min(self.progress.committed));
        sequencer.survey(self.now, &self.config, &self.progress, &mut self.events);
        self.progress.trim = self.progress.trim.max(sequencer.trimmable(&self.config, &self.progress));
        let known =
            Known { committed: self.progress.committed, stable: self.progress.stable, held: known.held };
        sequencer
            .acknowledge(self.now, place, known, &self.progress, &mut self.events)
            .expect("the sequencer knows what it gave");
        self.deliver(self.progress.committed);
    }

    /// Tells those who seem not to know it how far everything is; they fetch what they lack.
    fn remind(&mut self) {
        let Some(sequencer) = &mut self.sequencer else { return };
        if sequencer.next_timeout().is_none_or(|at| at > self.now) {
            return;
        }
        sequencer.survey(self.now, &self.config, &self.progress, &mut self.events);
        let whom = sequencer.remind(self.now, &self.config, &self.progress);
        for node in whom {
            if node != self.me.node {
                self.send_progress(To::One(node), true);
            }
        }
    }
}
