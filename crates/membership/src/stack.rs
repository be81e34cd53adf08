//! The whole of a member as one machine, for drivers: how it comes in, who seems to have failed, views, ordered update, the
//! circles on top of it, and the state that those get who lack too much.
//!
//! What each part has to tell the others is done here; what is left for the driver is [`Event`]. After inputs, poll
//! [`Stack::poll_transmit`] until there is nothing more, and then [`Stack::poll_event`]; behind [`Event::View`] there may be more to be sent.
//! Many inputs may come before that: one batch, or one acknowledgement, then stands for all of them.

mod log;
mod purpose;
#[cfg(test)]
mod tests;
mod watching;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Dice, NodeId, Time};

use crate::circles::{self, Circles};
use crate::detect::lookout::{self, Lookout};
use crate::detect::{Change, Condition, Evidence, Kind, Notice, Source};
use crate::join::{self, Join};
use crate::multicast::Multicast;
use crate::order::{self, Delivery, Level, Order, SubmitError};
use crate::regroup::{self, Regroup, Strength, Stuck, Timing};
use crate::snapshot::{self, Snapshots};
use crate::state::{self, State, WriteError};
use crate::transmit::{Cast, To};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{self, PeerError, Protocol};
pub use log::LogConfig;
use log::Writing;
use purpose::Purpose;
pub use watching::{Watching, WatchingError};

/// Who tells what no detector of ours has seen.
const DRIVER: Source = Source::PlugIn(0);

/// How a member works.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// Of watching the others.
    pub watching: Watching,
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
    /// Of circles. All members have the same.
    pub circles: circles::Config,
    /// Whether those that are left wait if they are no quorum, though the kernel says that all others have ended. Else they go on
    /// (see [`Strength::Fenced`]), and what only the others held is lost, even if it had been promised to them.
    pub needs_quorum: bool,
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
    /// The driver has seen something of whoever is the member at this node, which its own detectors cannot see.
    Noticed(NodeId, Kind),
    /// A plug-in of the driver says something of whoever is the member at a node, or takes it back. Of others, and of this member itself,
    /// nothing is heard.
    Environment {
        /// Which, from 1 on.
        plug_in: u32,
        /// What it says.
        notice: Notice,
    },
    /// The kernel says that this life of a node has ended. What it had agreed to is not known, and so it has failed, but is not fenced.
    Exited(Member),
    /// The kernel says that this life of a node has ended, and what it left says what [`Stack::agreed`] was. Then it is *fenced*, and
    /// need not be there to go on without it: see [`Strength::Fenced`].
    Ended {
        /// Whose.
        life: Member,
        /// The epoch of the last view that it had agreed to.
        agreed: ViewEpoch,
    },
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
    /// This is the view from now on. All that was delivered before was delivered in the one before, and all that follows is not.
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
    /// This is what the detectors make of a node now.
    Condition(Change),
    /// What a node says of itself: see [`Stack::write`].
    Entry {
        /// Whose.
        owner: Member,
        /// Its key.
        key: String,
        /// What it is now; none if it was removed.
        value: Option<Vec<u8>>,
    },
    /// What this member is told of its circles.
    Circle(circles::Event),
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
    lookout: Lookout,
    join: Join,
    snapshots: Snapshots,
    inside: Option<Inside>,
    /// What a joiner has been given.
    given: Option<order::Snapshot>,
    /// A snapshot that lacks nothing but the application's state, which was asked for.
    unfinished: Option<order::Snapshot>,
    /// Views that the program has not been told of, in their order.
    decided: Vec<View>,
    /// Who held everything when the last view ended.
    holders: Vec<NodeId>,
    /// Whose turn to be asked for a snapshot it is, and whether the last one has given any of it.
    turn: usize,
    is_given_some: bool,
    /// The program's, before [`Circles`] have seen them.
    events: VecDeque<Event>,
    circles: Circles,
    /// The circles as of the last [`Event::WantsState`].
    circles_then: Vec<u8>,
    is_out: bool,
    /// How often each peer broke a rule.
    refused: BTreeMap<NodeId, u64>,
    /// Lives that have ended, the newest last, and the epoch of the last view that each had agreed to.
    ends: VecDeque<(Member, ViewEpoch)>,
    writing: Writing,
    /// Whether a taker waits for the unfinished snapshot.
    is_giving: bool,
}

impl Stack {
    /// A node that wants in, by way of [`join::Config::contacts`].
    pub fn joining(config: Config, me: Member, now: Time) -> Self {
        let join = Join::new(me, config.join.clone(), now);
        let contacts = config.join.contacts.clone();
        Self::new(config, me, join, contacts, now)
    }

    /// A member of a first view that all of its members were configured with.
    pub fn configured(config: Config, me: Member, first: View, now: Time) -> Self {
        let join = Join::within(me, config.join.clone(), now, first.clone());
        let mut stack = Self::new(config.clone(), me, join, first.nodes().collect(), now);
        stack.watch(now, &first, config.watching.starting);
        let order = Order::founding(config.order, me, first.clone());
        let mut regroup = Regroup::joining(me, config.regroup, now, first, 0);
        // There is nothing to be flushed before a first view.
        let _ = regroup.handle(now, regroup::Input::Flushed);
        stack.inside = Some(Inside { order, regroup });
        stack.connect(now);
        stack
    }

    fn new(config: Config, me: Member, join: Join, contacts: Vec<NodeId>, now: Time) -> Self {
        let seed = config.watching.seed;
        let state = config.watching.gossip(me, contacts);
        let buddy = config.watching.pings(me);
        Self {
            me,
            circles: Circles::new(config.circles.clone(), me, Dice::new(seed ^ 2)),
            circles_then: Vec::new(),
            lookout: Lookout::new(state, Some(buddy), now),
            join,
            snapshots: Snapshots::new(config.snapshot),
            config,
            inside: None,
            given: None,
            unfinished: None,
            decided: Vec::new(),
            holders: Vec::new(),
            turn: 0,
            is_given_some: false,
            events: VecDeque::new(),
            is_out: false,
            refused: BTreeMap::new(),
            ends: VecDeque::new(),
            writing: Writing::default(),
            is_giving: false,
        }
    }

    /// Takes an update to be sent, and says its number. [`Event::Reached`] tells when it is as far as `level`.
    pub fn submit(&mut self, now: Time, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        self.submit_for(now, level, Purpose::Program, body)
    }

    fn submit_for(
        &mut self,
        now: Time,
        level: Level,
        purpose: Purpose,
        body: &[u8],
    ) -> Result<u64, SubmitError> {
        match &mut self.inside {
            Some(inside) if !self.is_out && !inside.regroup.is_back() => {
                inside.order.submit(now, level, &[&[purpose as u8], body].concat())
            }
            _ => Err(SubmitError::Out),
        }
    }

    /// Takes one input. An error names a peer that broke a rule, and nothing has changed.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        if self.is_out {
            return Ok(());
        }
        self.circles.at(now);
        let outcome = self.take(now, input);
        if let Err(error) = &outcome {
            self.refuse(error.from);
        }
        self.tell_who_has_left(now);
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
                    snapshot.state = Circles::with_table(&self.circles_then, state);
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
            Input::Ended { life, agreed } => {
                self.ended(now, life, agreed);
                return Ok(());
            }
            Input::Exited(life) => {
                let evidence = Evidence::new(life, Kind::ProcessExit, DRIVER);
                self.tell_lookout(now, lookout::Input::Evidence(evidence));
                return Ok(());
            }
            _ => {}
        }
        let Some(Inside { regroup, .. }) = &mut self.inside else { return Ok(()) };
        match input {
            Input::Noticed(node, kind) => {
                let confidence = kind.usual_confidence();
                self.noticed(now, DRIVER, Notice::Seen { node, kind, confidence });
                Ok(())
            }
            Input::Environment { plug_in, notice } => {
                self.noticed(now, Source::PlugIn(plug_in), notice);
                Ok(())
            }
            Input::Acquired { epoch, granted } => {
                regroup.handle(now, regroup::Input::Acquired { epoch, granted })
            }
            // They are taken above.
            Input::Message { .. }
            | Input::Timeout
            | Input::Exited(_)
            | Input::State(_)
            | Input::Persisted { .. }
            | Input::Ended { .. } => Ok(()),
        }
    }

    /// The next message to be sent. `To::Others` are those of [`Stack::view`].
    pub fn poll_transmit(&mut self, now: Time) -> Option<Cast> {
        let is_remembered = self.is_remembered();
        let mut transmit = self.snapshots.poll_transmit().or_else(|| self.lookout.poll_transmit());
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
        // Those who are meant are those of the view, which there is if there is anybody to talk to.
        cast.or_else(|| self.circles.poll_transmit().filter(|_| self.inside.is_some()))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.circles.poll_event() {
                return Some(Event::Circle(event));
            }
            let event = self.events.pop_front()?;
            let told = self.tell_circles(event);
            if told.is_some() {
                return told;
            }
        }
    }

    /// When to call [`Stack::handle`] if nothing comes before.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.is_out {
            return None;
        }
        let inside = self.inside.as_ref();
        let order = inside.and_then(|inside| inside.order.next_timeout());
        let regroup = inside.and_then(|inside| inside.regroup.next_timeout());
        let outside = [
            self.join.next_timeout(),
            self.snapshots.next_timeout(),
            self.lookout.next_timeout(),
            self.circles.next_timeout(),
        ];
        [order, regroup].into_iter().chain(outside).flatten().min()
    }

    /// The view that this member works in; none before the first.
    pub fn view(&self) -> Option<&View> {
        self.inside.as_ref().map(|inside| inside.order.view())
    }

    /// The epoch of the last view that this member has agreed to, be it decided or not. The driver leaves word of it before it sends
    /// anything, for those who outlive this process: see [`Input::Ended`].
    pub fn agreed(&self) -> ViewEpoch {
        self.regroup().map_or(ViewEpoch(0), Regroup::agreed)
    }

    /// Ordered update, to look at.
    pub fn order(&self) -> Option<&Order> {
        self.inside.as_ref().map(|inside| &inside.order)
    }

    /// Regroup, to look at.
    pub fn regroup(&self) -> Option<&Regroup> {
        self.inside.as_ref().map(|inside| &inside.regroup)
    }

    /// Says something of this node to all others, or takes it back; they hear of it in a second or two, by gossip, whatever becomes
    /// of views. Each sees its value of now, and may miss those between.
    pub fn write(&mut self, now: Time, key: &str, value: Option<Vec<u8>>) -> Result<(), WriteError> {
        self.lookout.write(now, key, value)
    }

    /// What the nodes say of themselves, to look at.
    pub fn state(&self) -> &State {
        self.lookout.state()
    }

    /// What the detectors make of a life of a node.
    pub fn condition(&self, member: Member) -> Condition {
        self.lookout.condition(member)
    }

    /// Which life of which node this is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// The peers that broke rules, and how often. What they sent then has changed nothing.
    pub fn refused(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.refused.iter().map(|(&node, &count)| (node, count))
    }

    fn refuse(&mut self, from: NodeId) {
        *self.refused.entry(from).or_insert(0) += 1;
    }

    /// A message in words.
    pub fn describe(from: NodeId, bytes: &[u8]) -> String {
        match wire::protocol(from, bytes) {
            Ok(Protocol::Regroup) => regroup::describe(from, bytes),
            Ok(Protocol::Order) => Order::describe(bytes),
            Ok(Protocol::Join) => join::describe(from, bytes),
            Ok(Protocol::Snapshot) => snapshot::describe(from, bytes),
            Ok(Protocol::Circles) => circles::describe(from, bytes),
            Ok(Protocol::Multicast) => Multicast::describe(bytes),
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
            // Who is no member any more gets no answers, so that it asks what has become of the group.
            Protocol::Detect if self.regroup().is_none_or(|regroup| !regroup.view().contains(from)) => Ok(()),
            Protocol::Detect | Protocol::State => {
                self.lookout.handle(now, lookout::Input::Message { from, bytes })
            }
            Protocol::Circles | Protocol::Multicast => self.circles.message(from, bytes),
            Protocol::Mscs => {
                Err(PeerError::new(from, "a message of a protocol that a member does not speak"))
            }
        }
    }

    fn timeout(&mut self, now: Time) -> Result<(), PeerError> {
        let is_due = |wanted: Option<Time>| wanted.is_some_and(|wanted| wanted <= now);
        self.snapshots.timeout(now);
        if is_due(self.circles.next_timeout()) {
            self.circles.timeout();
        }
        if is_due(self.lookout.next_timeout()) {
            self.lookout.handle(now, lookout::Input::Timeout)?;
        }
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
            } else if let Some(event) = self.lookout.poll_event(now) {
                self.seen(now, event);
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
                self.decide(&view);
                self.tell_ends(now);
                self.watch(now, &view, Duration::ZERO);
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
                self.tell_lookout(
                    now,
                    lookout::Input::Evidence(Evidence::new(former, Kind::ProcessExit, DRIVER)),
                );
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
            snapshot::Event::Taken { from, bytes } => {
                match postcard::take_from_bytes::<order::Snapshot>(&bytes) {
                    Ok((snapshot, [])) if snapshot.is_sound() && Circles::is_sound(&snapshot.state) => {
                        self.taken(now, snapshot);
                    }
                    // It is as good as none: it is asked for again, of another.
                    _ => self.refuse(from),
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
            self.take_what_is_ordered(now);
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
            regroup::Event::Reach { cut, holders } => {
                self.tell_order(now, order::Input::Reach { cut, holders });
            }
            regroup::Event::Decided { view, cut, holders } => {
                let decided = join::Input::Decided { view: view.clone(), cut, holders: holders.clone() };
                let heard = self.join.handle(now, decided);
                debug_assert!(heard.is_ok(), "only a peer's message is refused");
                self.holders.clone_from(&holders);
                self.decide(&view);
                self.doubt_anew(now, &view);
                self.tell_ends(now);
                self.watch(now, &view, Duration::ZERO);
                self.remember();
                self.must_flush_again();
                let view = self.as_this_life(view);
                self.tell_order(now, order::Input::Change { view, cut, holders });
            }
            regroup::Event::Installed(view) => self.installed(now, view),
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

    /// What the lookout says is reason enough to regroup: a suspicion costs those who answer nothing but a new view.
    fn seen(&mut self, now: Time, event: lookout::Event) {
        match event {
            lookout::Event::Condition(change) => {
                self.tell_condition(now, change);
                self.events.push_back(Event::Condition(change));
            }
            lookout::Event::State(state::Event::Entry { owner, key, value }) => {
                self.events.push_back(Event::Entry { owner, key, value });
            }
            lookout::Event::State(_) => {}
        }
    }

    fn tell_condition(&mut self, now: Time, Change { subject, condition }: Change) {
        let strength = match condition {
            Condition::Alive => return self.tell_regroup(now, regroup::Input::Heard(subject.node)),
            // One end of a broken link has to go: what a device says of it is not enough for that.
            Condition::Unreachable if self.lookout.gets_no_answer(subject) => Strength::Unreachable,
            Condition::Suspected | Condition::Unreachable => Strength::Suspected,
            Condition::Fenced => self.end_of(subject),
            Condition::Failed => Strength::Failed,
        };
        self.tell_regroup(now, regroup::Input::Suspect(subject, strength));
    }

    fn ended(&mut self, now: Time, life: Member, agreed: ViewEpoch) {
        self.ends.retain(|(other, _)| *other != life);
        if self.ends.len() == regroup::MOST_MEMBERS {
            self.ends.pop_front();
        }
        self.ends.push_back((life, agreed));
        let mut evidence = Vec::from([Evidence::new(life, Kind::Fenced, DRIVER)]);
        // It may have gone on in the seat of a former life, which cannot act without it.
        let seat = self.regroup().and_then(|regroup| regroup.view().member(life.node));
        if let Some(seat) = seat.filter(|seat| seat.incarnation < life.incarnation) {
            evidence.insert(0, Evidence::new(seat, Kind::ProcessExit, DRIVER));
        }
        for evidence in evidence {
            self.tell_lookout(now, lookout::Input::Evidence(evidence));
        }
        // That it is fenced may be known already, and that this is a proof may not.
        self.tell_condition(now, Change { subject: life, condition: Condition::Fenced });
    }

    /// What the end of a life is worth: whether it had agreed to a view later than ours. With logs nobody is proven dead for good:
    /// the next life goes on with what this one has promised.
    fn end_of(&self, life: Member) -> Strength {
        let epoch = self.regroup().map(|regroup| regroup.view().epoch);
        let of_it = self.ends.iter().find(|(ended, _)| *ended == life);
        match of_it.filter(|_| !self.config.needs_quorum && !self.config.order.has_log) {
            None => Strength::Failed,
            Some(&(_, agreed)) if Some(agreed) <= epoch => Strength::Fenced,
            Some(_) => Strength::Ended,
        }
    }

    /// What was no proof in an earlier view may be one in this.
    fn tell_ends(&mut self, now: Time) {
        let ended: Vec<_> = self.ends.iter().map(|(life, _)| *life).collect();
        for subject in ended {
            self.tell_condition(now, Change { subject, condition: Condition::Fenced });
        }
    }

    /// Who was doubted and is in the new view has answered its coordinator, which a dead one could not. If the doubt was about the
    /// way from here to it, that will show again.
    fn doubt_anew(&mut self, now: Time, view: &View) {
        let stays = |change: &Change| view.member(change.subject.node) == Some(change.subject);
        let doubted: Vec<_> = self.lookout.doubted().filter(stays).collect();
        for change in doubted {
            self.tell_lookout(now, lookout::Input::Alive(change.subject));
        }
    }

    fn watch(&mut self, now: Time, view: &View, grace: Duration) {
        let hub = Some(view.sequencer());
        self.lookout.set_jurors(&view.members);
        self.tell_lookout(now, lookout::Input::Members { members: &view.members, hub, grace });
    }

    /// A view that names a former life of this node is none of the program's.
    fn decide(&mut self, view: &View) {
        if view.member(self.me.node) == Some(self.me) {
            self.decided.push(view.clone());
        }
    }

    /// The program hears of each view that was decided, and of what was delivered in it behind that: also of a view that ended before
    /// this member had installed it.
    fn installed(&mut self, now: Time, view: View) {
        let before = self.events.len();
        // A configured one was there from the beginning.
        if self.view() != Some(&view) {
            self.tell_order(now, order::Input::Install(view.clone()));
            self.take_what_is_ordered(now);
        }
        let mut decided = core::mem::take(&mut self.decided);
        if decided.last() != Some(&view) {
            decided.push(view);
        }
        for view in decided {
            let is_in_it =
                |event: &Event| matches!(event, Event::Delivered(update) if update.epoch >= view.epoch);
            let first = self.events.range(before..).position(is_in_it);
            self.events.insert(first.map_or(self.events.len(), |first| before + first), Event::View(view));
        }
    }

    fn take_what_is_ordered(&mut self, now: Time) {
        while let Some(event) = self.inside.as_mut().and_then(|inside| inside.order.poll_event()) {
            self.ordered(now, event);
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
        let Some(Inside { order, regroup }) = &mut self.inside else { return };
        if self.snapshots.giver().is_some() && core::mem::take(&mut self.is_given_some) {
            return;
        }
        let mut others = self.holders.clone();
        for node in order.holders().iter().copied().chain(regroup.view().nodes()) {
            if !others.contains(&node) {
                others.push(node);
            }
        }
        others.retain(|&node| node != self.me.node);
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

    fn tell_lookout(&mut self, now: Time, input: lookout::Input<'_>) {
        let taken = self.lookout.handle(now, input);
        debug_assert!(taken.is_ok(), "only a peer's message is refused");
    }

    fn tell_regroup(&mut self, now: Time, input: regroup::Input<'_>) {
        if let Some(inside) = &mut self.inside {
            let taken = inside.regroup.handle(now, input);
            debug_assert!(taken.is_ok(), "only a peer's message is refused");
        }
    }
}
