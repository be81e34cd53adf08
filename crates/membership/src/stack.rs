//! The whole of a member as one machine, for drivers: how it comes in, views, ordered update, and the state that those get who lack
//! too much.
//!
//! What each part has to tell the others is done here; what is left for the driver is [`Event`]. After inputs, poll
//! [`Stack::poll_transmit`] until there is nothing more, and then [`Stack::poll_event`]. Many inputs may come before that: one
//! batch, or one acknowledgement, then stands for all of them.

mod log;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};

use crate::join::{self, Join};
use crate::order::{self, Delivery, Level, Order, SubmitError};
use crate::regroup::{self, Regroup, Strength, Stuck, Timing};
use crate::snapshot::{self, Snapshots};
use crate::transmit::{Cast, To};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{self, PeerError, Protocol};
pub use log::LogConfig;
use log::Writing;

/// How a member works.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Of ordered update.
    pub order: order::Config,
    /// Of view changes.
    pub regroup: Timing,
    /// Of coming in.
    pub join: join::Config,
    /// Of handing over the state.
    pub snapshot: snapshot::Config,
    /// Of the log, if there is one: see [`order::Config::has_log`].
    pub log: LogConfig,
}

/// What a member is told.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message came.
    Message {
        /// Whence, as the network says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time of [`Stack::next_timeout`] has come.
    Timeout,
    /// Somebody knows something bad of whoever is the member at this node.
    Suspect(NodeId, Strength),
    /// A node is heard again.
    Heard(NodeId),
    /// The answer to [`Event::Acquire`].
    Acquired {
        /// Which epoch was asked for.
        epoch: ViewEpoch,
        /// Whether this member has it.
        granted: bool,
    },
    /// The answer to [`Event::WantsState`].
    State(&'a [u8]),
    /// The answer to [`Event::Persist`] and [`Event::Replace`]. One may stand for several.
    Persisted {
        /// As there: this and all before are on the disk.
        number: u64,
    },
}

/// What a member tells its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Apply this update. All members get the same ones in the same order.
    Delivered(Delivery),
    /// An own update is as far as it was to come.
    Reached {
        /// As [`Stack::submit`] said.
        number: u64,
        /// The level that it was sent for.
        level: Level,
    },
    /// This is the view from now on. All that was delivered before was delivered in the one before.
    View(View),
    /// Everybody has installed the view.
    Settled(View),
    /// The group goes on without this member.
    Excluded {
        /// The first view without it.
        by: ViewEpoch,
    },
    /// This part of the group may not go on; it does by itself when enough members are heard again.
    Stuck(Stuck),
    /// Ask the quorum resource, and answer.
    Acquire {
        /// The epoch to ask for.
        epoch: ViewEpoch,
        /// In whose name: the seat in the view, which a life that has come back takes over from a former one.
        seat: Member,
    },
    /// A member does not keep up; nobody waits for it.
    Lagging(NodeId),
    /// It does again.
    CaughtUp(NodeId),
    /// The application's state is this from now on: it had not all updates before, and will not get them.
    Restore {
        /// All up to this are in it.
        position: u64,
        /// What another member's application said in answer to [`Event::WantsState`].
        state: Vec<u8>,
    },
    /// Say what the application's state is, as of all events before this one.
    WantsState,
    /// Write this behind what is in the log, and answer when it will survive a crash.
    Persist {
        /// The how manieth of this and [`Event::Replace`].
        number: u64,
        /// A record for [`Stack::resuming`].
        bytes: Vec<u8>,
    },
    /// Write these in the place of all that is in the log, wholly or not at all, and answer when they will survive a crash.
    Replace {
        /// As for [`Event::Persist`].
        number: u64,
        /// Records for [`Stack::resuming`].
        records: Vec<Vec<u8>>,
    },
}

/// What a node has while it is in a group.
#[derive(Clone, Debug)]
struct Inside {
    order: Order,
    regroup: Regroup,
}

/// One member, or a node that wants to be one.
#[derive(Clone, Debug)]
pub struct Stack {
    me: Member,
    config: Config,
    join: Join,
    snapshots: Snapshots,
    inside: Option<Inside>,
    /// What a joiner has been given.
    given: Option<order::Snapshot>,
    /// A snapshot that lacks nothing but the application's state, which was asked for.
    unfinished: Option<order::Snapshot>,
    /// Who held everything when the last view ended.
    holders: Vec<NodeId>,
    /// Whose turn to be asked for a snapshot it is, and whether the last one has given any of it.
    turn: usize,
    is_given_some: bool,
    events: VecDeque<Event>,
    is_out: bool,
    writing: Writing,
    /// Whether a taker waits for the unfinished snapshot.
    is_giving: bool,
}

impl Stack {
    /// A node that wants in, by way of [`join::Config::contacts`].
    pub fn joining(config: Config, me: Member, now: Time) -> Self {
        let join = Join::new(me, config.join.clone(), now);
        Self::new(config, me, join)
    }

    /// A member of a first view that all of its members were configured with.
    pub fn configured(config: Config, me: Member, first: View, now: Time) -> Self {
        let mut stack = Self::new(config.clone(), me, Join::within(me, config.join, now, first.clone()));
        let order = Order::founding(config.order, me, first.clone());
        let mut regroup = Regroup::joining(me, config.regroup, now, first, 0);
        // There is nothing to be flushed before a first view.
        let _ = regroup.handle(now, regroup::Input::Flushed);
        stack.inside = Some(Inside { order, regroup });
        stack.connect(now);
        stack
    }

    fn new(config: Config, me: Member, join: Join) -> Self {
        Self {
            me,
            join,
            snapshots: Snapshots::new(config.snapshot),
            config,
            inside: None,
            given: None,
            unfinished: None,
            holders: Vec::new(),
            turn: 0,
            is_given_some: false,
            events: VecDeque::new(),
            is_out: false,
            writing: Writing::default(),
            is_giving: false,
        }
    }

    /// Takes an update to be sent, and says its number. [`Event::Reached`] tells when it is as far as `level`.
    pub fn submit(&mut self, now: Time, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        match &mut self.inside {
            Some(inside) if !self.is_out && !inside.regroup.is_back() => {
                inside.order.submit(now, level, body)
            }
            _ => Err(SubmitError::Out),
        }
    }

    /// Takes one input. An error names a peer that broke a rule, and nothing has changed.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        if self.is_out {
            return Ok(());
        }
        let outcome = self.take(now, input);
        self.connect(now);
        outcome
    }

    fn take(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        match input {
            Input::Message { from, bytes } => return self.message(now, from, bytes),
            Input::Timeout => return self.timeout(now),
            Input::State(_) if self.is_unwanted_state() => return Ok(()),
            Input::State(state) => {
                if let Some(mut snapshot) = self.unfinished.take() {
                    snapshot.state = state.to_vec();
                    self.compact(&snapshot);
                    if core::mem::take(&mut self.is_giving) {
                        let bytes =
                            postcard::to_allocvec(&snapshot).expect("our own snapshot can be written");
                        self.snapshots.give(now, &bytes);
                    }
                }
                return Ok(());
            }
            Input::Persisted { number } => {
                self.persisted(now, number);
                return Ok(());
            }
            _ => {}
        }
        // The next life of a fenced member may come back with its log, and vote.
        let most = if self.config.order.has_log { Strength::Failed } else { Strength::Fenced };
        let Some(Inside { regroup, .. }) = &mut self.inside else { return Ok(()) };
        match input {
            Input::Suspect(node, strength) => match regroup.view().member(node) {
                Some(member) => regroup.handle(now, regroup::Input::Suspect(member, strength.min(most))),
                None => Ok(()),
            },
            Input::Heard(node) => regroup.handle(now, regroup::Input::Heard(node)),
            Input::Acquired { epoch, granted } => {
                regroup.handle(now, regroup::Input::Acquired { epoch, granted })
            }
            Input::Message { .. } | Input::Timeout | Input::State(_) | Input::Persisted { .. } => Ok(()),
        }
    }

    /// The next message to be sent. `To::Others` are those of [`Stack::view`].
    pub fn poll_transmit(&mut self, now: Time) -> Option<Cast> {
        let is_remembered = self.is_remembered();
        let mut transmit = self.snapshots.poll_transmit();
        if transmit.is_none() && is_remembered {
            let regroup = || self.inside.as_mut().and_then(|inside| inside.regroup.poll_transmit());
            transmit = self.join.poll_transmit().or_else(regroup);
        }
        if let Some(transmit) = transmit {
            return Some(Cast { to: To::One(transmit.to), bytes: transmit.bytes.into() });
        }
        let cast = self.inside.as_mut().and_then(|inside| inside.order.poll_transmit());
        if cast.is_none() {
            // What was committed by making the last batch.
            self.connect(now);
        }
        cast
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Stack::handle`] if nothing comes before.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.is_out {
            return None;
        }
        let inside = self.inside.as_ref();
        let order = inside.and_then(|inside| inside.order.next_timeout());
        let regroup = inside.and_then(|inside| inside.regroup.next_timeout());
        let outside = [self.join.next_timeout(), self.snapshots.next_timeout()];
        [order, regroup].into_iter().chain(outside).flatten().min()
    }

    /// The view that this member works in; none before the first.
    pub fn view(&self) -> Option<&View> {
        self.inside.as_ref().map(|inside| inside.order.view())
    }

    /// Ordered update, to look at.
    pub fn order(&self) -> Option<&Order> {
        self.inside.as_ref().map(|inside| &inside.order)
    }

    /// Regroup, to look at.
    pub fn regroup(&self) -> Option<&Regroup> {
        self.inside.as_ref().map(|inside| &inside.regroup)
    }

    /// Which life of which node this is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// A message in words.
    pub fn describe(from: NodeId, bytes: &[u8]) -> String {
        match wire::protocol(from, bytes) {
            Ok(Protocol::Regroup) => regroup::describe(from, bytes),
            Ok(Protocol::Order) => Order::describe(bytes),
            Ok(Protocol::Join) => join::describe(from, bytes),
            Ok(Protocol::Snapshot) => snapshot::describe(from, bytes),
            Ok(other) => alloc::format!("{other:?}, {} bytes", bytes.len()),
            Err(error) => String::from(error.rule),
        }
    }

    fn message(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        match wire::protocol(from, bytes)? {
            Protocol::Join => self.join.handle(now, join::Input::Message { from, bytes }),
            Protocol::Snapshot => self.snapshots.receive(now, from, bytes),
            Protocol::Order => match &mut self.inside {
                Some(inside) => inside.order.handle(now, order::Input::Message { from, bytes }),
                None => Ok(()),
            },
            Protocol::Regroup => match &mut self.inside {
                Some(inside) => inside.regroup.handle(now, regroup::Input::Message { from, bytes }),
                None => Ok(()),
            },
            _ => Err(PeerError::new(from, "a message of a protocol that a member does not speak")),
        }
    }

    fn timeout(&mut self, now: Time) -> Result<(), PeerError> {
        let is_due = |wanted: Option<Time>| wanted.is_some_and(|wanted| wanted <= now);
        self.snapshots.timeout(now);
        if is_due(self.join.next_timeout()) {
            self.join.handle(now, join::Input::Timeout)?;
        }
        let Some(Inside { order, regroup }) = &mut self.inside else { return Ok(()) };
        if is_due(order.next_timeout()) {
            order.handle(now, order::Input::Timeout)?;
        }
        if is_due(regroup.next_timeout()) {
            regroup.handle(now, regroup::Input::Timeout)?;
        }
        Ok(())
    }

    /// Tells each part what the others have to say, until none has more.
    fn connect(&mut self, now: Time) {
        loop {
            if let Some(event) = self.join.poll_event() {
                self.joined(now, event);
            } else if let Some(event) = self.snapshots.poll_event() {
                self.handed_over(now, event);
            } else if let Some(event) = self.inside.as_mut().and_then(|inside| inside.regroup.poll_event()) {
                self.regrouped(now, event);
            } else if let Some(event) = self.inside.as_mut().and_then(|inside| inside.order.poll_event()) {
                self.ordered(now, event);
            } else {
                self.remember();
                return self.ask_for_state();
            }
        }
    }

    fn joined(&mut self, now: Time, event: join::Event) {
        match event {
            join::Event::Synchronise { sponsor, snapshot: _ } => self.snapshots.take(now, sponsor),
            join::Event::Joined { view, cut, holders } => {
                // A life that goes on for a former one may have been given the state of a later view than that one was let in to.
                let given = self.given.take().filter(|snapshot| snapshot.position <= cut);
                let snapshot = given.unwrap_or_default();
                let (position, state) = (snapshot.position, snapshot.state.clone());
                self.events.push_back(Event::Restore { position, state });
                self.holders.clone_from(&holders);
                let order = Order::joining(self.config.order.clone(), self.me, snapshot.clone());
                let seat = view.member(self.me.node).unwrap_or(self.me);
                let (timing, there) = (self.config.regroup, view.clone());
                let regroup = if seat == self.me {
                    Regroup::joining(seat, timing, now, there, cut)
                } else {
                    Regroup::admitted_before(seat, self.me, timing, now, there, cut)
                };
                self.inside = Some(Inside { order, regroup });
                self.write_joined(snapshot);
                let view = self.as_this_life(view);
                self.tell_order(now, order::Input::Change { view, cut, holders });
            }
            join::Event::Founded(view) => {
                let order = Order::founding(self.config.order.clone(), self.me, view.clone());
                let regroup = Regroup::founding(self.me, self.config.regroup, now);
                self.inside = Some(Inside { order, regroup });
                self.events.extend([Event::View(view.clone()), Event::Settled(view)]);
            }
            join::Event::Admit(members) => self.tell_regroup(now, regroup::Input::Admit(members)),
            join::Event::Reborn { former } => {
                self.tell_regroup(now, regroup::Input::Suspect(former, Strength::Failed));
            }
        }
    }

    fn handed_over(&mut self, now: Time, event: snapshot::Event) {
        match event {
            snapshot::Event::Make => {
                self.is_giving = true;
            }
            snapshot::Event::Progress => {
                self.is_given_some = true;
                let heard = self.join.handle(now, join::Input::Progress);
                debug_assert!(heard.is_ok(), "only a peer's message is refused");
            }
            snapshot::Event::Taken { bytes, .. } => {
                // What cannot be read is as good as none: it is asked for again, of another.
                if let Ok((snapshot, [])) = postcard::take_from_bytes::<order::Snapshot>(&bytes) {
                    self.taken(now, snapshot);
                }
            }
        }
    }

    fn taken(&mut self, now: Time, snapshot: order::Snapshot) {
        let Some(delivered) = self.order().map(Order::delivered) else {
            self.given = Some(snapshot);
            return self.synchronised(now);
        };
        if snapshot.position > delivered {
            // What was delivered before comes before.
            while let Some(event) = self.inside.as_mut().and_then(|inside| inside.order.poll_event()) {
                self.ordered(now, event);
            }
            let (position, state) = (snapshot.position, snapshot.state.clone());
            self.adopts(&snapshot);
            self.tell_order(now, order::Input::Snapshot(snapshot));
            // One from beyond the cut is of no use, and the program must not have it.
            if self.order().map(Order::delivered) >= Some(position) {
                self.events.push_back(Event::Restore { position, state });
            }
        }
    }

    fn regrouped(&mut self, now: Time, event: regroup::Event) {
        match event {
            regroup::Event::Freeze { .. } => self.tell_order(now, order::Input::Freeze),
            regroup::Event::Decided { view, cut, holders } => {
                let decided = join::Input::Decided { view: view.clone(), cut, holders: holders.clone() };
                let heard = self.join.handle(now, decided);
                debug_assert!(heard.is_ok(), "only a peer's message is refused");
                self.holders.clone_from(&holders);
                self.remember();
                self.must_flush_again();
                let view = self.as_this_life(view);
                self.tell_order(now, order::Input::Change { view, cut, holders });
            }
            regroup::Event::Installed(view) => {
                self.events.push_back(Event::View(view.clone()));
                // A configured one was there from the beginning.
                if self.view() != Some(&view) {
                    self.tell_order(now, order::Input::Install(view));
                }
            }
            regroup::Event::Settled(view) => self.events.push_back(Event::Settled(view)),
            regroup::Event::Acquire { epoch, seat } => self.events.push_back(Event::Acquire { epoch, seat }),
            regroup::Event::Stuck { reason } => self.events.push_back(Event::Stuck(reason)),
            regroup::Event::Excluded { .. } if self.is_back() => self.join_anew(now),
            regroup::Event::Excluded { by } => {
                self.is_out = true;
                self.events.push_back(Event::Excluded { by });
            }
        }
    }

    fn ordered(&mut self, now: Time, event: order::Event) {
        self.events.push_back(match event {
            order::Event::Position(position) => {
                return self.tell_regroup(now, regroup::Input::Position(position));
            }
            order::Event::Flushed => return self.flushed(now),
            order::Event::NeedsSnapshot { .. } => return self.look_for_snapshot(now),
            order::Event::Delivered(delivery) => Event::Delivered(delivery),
            order::Event::Reached { number, level } => Event::Reached { number, level },
            order::Event::Lagging { member, .. } => Event::Lagging(member),
            order::Event::CaughtUp { member } => Event::CaughtUp(member),
            order::Event::Persist { position, bytes } => return self.write_updates(position, &bytes),
            order::Event::PersistSnapshot { position } => return self.write_adopted(position),
        });
    }

    /// Asks the members for a snapshot in turn, first those who must have one; the next when the last has given nothing since.
    fn look_for_snapshot(&mut self, now: Time) {
        let Some(Inside { regroup, .. }) = &self.inside else { return };
        if self.snapshots.giver().is_some() && core::mem::take(&mut self.is_given_some) {
            return;
        }
        let holders = self.holders.iter().copied();
        let members = regroup.view().nodes().filter(|node| !self.holders.contains(node));
        let others: Vec<_> = holders.chain(members).filter(|&node| node != self.me.node).collect();
        if others.is_empty() {
            return;
        }
        let giver = others[self.turn % others.len()];
        self.turn += 1;
        self.snapshots.take(now, giver);
    }

    fn tell_order(&mut self, now: Time, input: order::Input<'_>) {
        if let Some(inside) = &mut self.inside {
            let taken = inside.order.handle(now, input);
            debug_assert!(taken.is_ok(), "only a peer's message is refused");
        }
    }

    fn tell_regroup(&mut self, now: Time, input: regroup::Input<'_>) {
        if let Some(inside) = &mut self.inside {
            let taken = inside.regroup.handle(now, input);
            debug_assert!(taken.is_ok(), "only a peer's message is refused");
        }
    }
}
