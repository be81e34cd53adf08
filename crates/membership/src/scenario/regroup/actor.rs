//! A node with `Regroup` and `Join`, and stand-ins for its detector and its ordered update.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Effects, Input};
use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::copies::Copies;
use crate::join::{self, Join};
use crate::quorum::{QuorumResource, ResourceInMemory};
use crate::regroup::{self, Regroup, Stage, Strength, Timing};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{self, PeerError, Protocol};

/// Between two heartbeats.
const BEAT: Duration = Duration::from_millis(50);
/// Silence that makes suspicious.
const SUSPECTED: Duration = Duration::from_millis(200);
const UNREACHABLE: Duration = Duration::from_millis(400);
const FAILED: Duration = Duration::from_millis(1000);

/// What a scenario wants of a node.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// The detector says this of the life of that node that is in the view.
    Suspect(NodeId, Strength),
    /// There is no group: found one.
    Found,
}

/// What a node tells the checkers.
#[derive(Clone)]
pub(super) enum Told {
    /// It has founded a group.
    Founded(View),
    /// It is in.
    Joined(View),
    /// What its regroup says.
    Regroup(regroup::Event),
    /// It has installed a view, and holds this.
    Installed { view: View, entries: Rc<[u64]> },
    /// As the sequencer: a majority of the view holds this much.
    Committed { epoch: ViewEpoch, entries: Rc<[u64]> },
    /// A peer broke a rule, it says.
    Accused(PeerError),
}

struct Members<'a>(&'a View);

impl fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.nodes().map(|node| node.0)).finish()
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use regroup::Event;
        match self {
            Self::Founded(view) => write!(f, "** founds a group: {} is {:?}", view.epoch, Members(view)),
            Self::Joined(view) => write!(f, "** is let in: {} is {:?}", view.epoch, Members(view)),
            Self::Regroup(Event::Freeze { epoch }) => write!(f, "** freezes in {epoch}"),
            Self::Regroup(Event::Reach { cut, .. }) => write!(f, "** is to reach {cut}"),
            Self::Regroup(Event::Acquire { epoch, .. }) => {
                write!(f, "** asks the quorum resource for {epoch}")
            }
            Self::Regroup(Event::Decided { view, cut, holders }) => {
                let holders = holders.iter().map(|node| node.0).collect::<Vec<_>>();
                write!(f, "** decided: {} is {:?}, cut {cut}, held by {holders:?}", view.epoch, Members(view))
            }
            Self::Regroup(Event::Installed(view)) => write!(f, "** installs {}", view.epoch),
            Self::Regroup(Event::Settled(view)) => {
                write!(f, "** settled: {} is {:?}", view.epoch, Members(view))
            }
            Self::Regroup(Event::Excluded { by }) => write!(f, "** is out: {by} is without it"),
            Self::Regroup(Event::Stuck { reason }) => write!(f, "** is stuck: {reason:?}"),
            Self::Installed { view, entries } => {
                write!(f, "holds {} entries in {}", entries.len(), view.epoch)
            }
            Self::Committed { epoch, entries } => write!(f, "committed {} in {epoch}", entries.len()),
            Self::Accused(error) => write!(f, "refuses: {error}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Beat(Member);

#[derive(Serialize, Deserialize)]
enum Copying {
    /// From the sequencer of a view.
    Append {
        epoch: ViewEpoch,
        after: u64,
        entries: Vec<u64>,
        committed: u64,
    },
    /// To the sequencer.
    Held {
        epoch: ViewEpoch,
        position: u64,
    },
    /// To a holder of a cut, or to a sponsor, who gives what is committed only.
    Fetch {
        /// Of the view that is to begin there.
        epoch: ViewEpoch,
        after: u64,
        until: u64,
    },
    Fetched {
        after: u64,
        entries: Vec<u64>,
    },
}

/// What it lacks, and who has it.
struct Flush {
    cut: u64,
    holders: Vec<NodeId>,
    /// Of the view that is to begin there; none for a joiner that copies what is committed.
    epoch: Option<ViewEpoch>,
    tries: usize,
}

/// See the module.
pub(super) struct Node {
    me: Member,
    join: Join,
    regroup: Option<Regroup>,
    copies: Copies,
    flush: Option<Flush>,
    /// What is to be reached before it is agreed.
    reach: Option<Flush>,
    /// The members of the view that was decided last.
    there: Vec<NodeId>,
    heard: BTreeMap<NodeId, Time>,
    suspected: BTreeMap<NodeId, Strength>,
    beat_at: Time,
    resource: Rc<RefCell<ResourceInMemory>>,
    /// Messages of the regroup that it has sent.
    pub(super) regroup_sent: u64,
    /// Exchanges that it began until it was let in: a hello to all contacts is one.
    pub(super) exchanges: u32,
}

/// The holders, and then those who may be.
fn with(mut holders: Vec<NodeId>, others: &[NodeId]) -> Vec<NodeId> {
    for other in others {
        if !holders.contains(other) {
            holders.push(*other);
        }
    }
    holders
}

type Fx<'a, 'b> = &'a mut Effects<'b, Told>;

impl Node {
    /// The program of a node among so many.
    pub(super) fn new(
        boot: &Boot<'_>,
        nodes: u32,
        may_found: bool,
        resource: Rc<RefCell<ResourceInMemory>>,
    ) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        let contacts = (0..nodes).map(NodeId).collect();
        let config = join::Config { contacts, may_found, ..join::Config::default() };
        Self {
            me,
            join: Join::new(me, config, boot.now),
            regroup: None,
            copies: Copies::default(),
            flush: None,
            reach: None,
            there: Vec::new(),
            heard: BTreeMap::new(),
            suspected: BTreeMap::new(),
            beat_at: boot.now,
            resource,
            regroup_sent: 0,
            exchanges: 0,
        }
    }

    /// The view that was decided last here, and how far it is.
    pub(super) fn view(&self) -> Option<(&View, Stage)> {
        self.regroup.as_ref().map(|regroup| (regroup.view(), regroup.stage()))
    }

    /// The views that it knows to have been decided, of late.
    pub(super) fn decided_views(&self) -> impl Iterator<Item = &View> {
        self.regroup.iter().flat_map(Regroup::decided_views)
    }

    /// Whether it works normally in that view.
    pub(super) fn is_settled(&self) -> bool {
        self.regroup.as_ref().is_some_and(|regroup| regroup.stage() == Stage::Settled && !regroup.is_frozen())
    }

    /// Hands an input to the regroup, and does what it says.
    fn regroup(&mut self, effects: Fx<'_, '_>, input: regroup::Input<'_>) {
        let Some(regroup) = &mut self.regroup else { return };
        if let Err(error) = regroup.handle(effects.now(), input) {
            effects.tell(Told::Accused(error));
        }
        self.drain_regroup(effects);
    }

    fn drain_regroup(&mut self, effects: Fx<'_, '_>) {
        loop {
            let Some(regroup) = &mut self.regroup else { return };
            while let Some(transmit) = regroup.poll_transmit() {
                self.regroup_sent += 1;
                effects.send(transmit.to, transmit.bytes);
            }
            let Some(event) = regroup.poll_event() else { return };
            self.obey(effects, event);
        }
    }

    fn obey(&mut self, effects: Fx<'_, '_>, event: regroup::Event) {
        use regroup::Event;
        effects.tell(Told::Regroup(event.clone()));
        match event {
            Event::Freeze { .. } => {
                let position = regroup::Input::Position(self.copies.position());
                self.regroup(effects, position);
            }
            Event::Reach { cut, holders } => {
                let epoch = self.view().map(|(view, _)| ViewEpoch(view.epoch.0 + 1));
                let holders = with(holders, &self.there);
                self.reach = Some(Flush { cut, holders, epoch, tries: 0 });
                self.go_on_flushing(effects);
            }
            Event::Acquire { epoch, .. } => {
                let granted = self.resource.borrow_mut().try_acquire(epoch, self.me);
                self.regroup(effects, regroup::Input::Acquired { epoch, granted });
            }
            Event::Decided { view, cut, holders } => {
                let decided = join::Input::Decided { view, cut, holders: holders.clone() };
                self.join(effects, decided);
                self.begin_flush(effects, cut, holders);
            }
            Event::Installed(view) => {
                self.copies.begin(view.nodes());
                effects.tell(Told::Installed { view, entries: self.copies.entries.as_slice().into() });
            }
            Event::Excluded { .. } => effects.halt(),
            Event::Settled(_) | Event::Stuck { .. } => {}
        }
    }

    fn begin_flush(&mut self, effects: Fx<'_, '_>, cut: u64, holders: Vec<NodeId>) {
        self.copies.truncate(cut);
        self.reach = None;
        let now = effects.now();
        if let Some(regroup) = &self.regroup {
            let view = regroup.view();
            let former = std::mem::replace(&mut self.there, view.nodes().collect());
            let holders = with(with(holders, &former), &self.there);
            self.flush = Some(Flush { cut, holders, epoch: Some(view.epoch), tries: 0 });
            self.heard.retain(|node, _| view.contains(*node));
            self.suspected.retain(|node, _| view.contains(*node));
            for node in view.nodes() {
                self.heard.entry(node).or_insert(now);
            }
        }
        self.go_on_flushing(effects);
    }

    fn go_on_flushing(&mut self, effects: Fx<'_, '_>) {
        let position = self.copies.position();
        let is_there = |flush: &mut Flush| flush.epoch.is_some() && position >= flush.cut;
        if self.flush.take_if(is_there).is_some() {
            self.regroup(effects, regroup::Input::Flushed);
        }
        if self.reach.take_if(is_there).is_some() {
            self.regroup(effects, regroup::Input::Position(position));
        }
        let Some(flush) = self.reach.as_mut().or(self.flush.as_mut()) else { return };
        let others: Vec<_> = flush.holders.iter().filter(|node| **node != self.me.node).collect();
        if let Some(holder) = others.get(flush.tries % others.len().max(1)) {
            flush.tries += 1;
            let epoch = flush.epoch.unwrap_or(ViewEpoch(0));
            let fetch = Copying::Fetch { epoch, after: position, until: flush.cut };
            effects.send(**holder, wire::encode(Protocol::Order, &fetch));
        }
    }

    fn join(&mut self, effects: Fx<'_, '_>, input: join::Input<'_>) {
        if let Err(error) = self.join.handle(effects.now(), input) {
            effects.tell(Told::Accused(error));
        }
        self.drain_join(effects);
    }

    fn drain_join(&mut self, effects: Fx<'_, '_>) {
        let mut asks = false;
        while let Some(transmit) = self.join.poll_transmit() {
            asks |= self.regroup.is_none();
            effects.send(transmit.to, transmit.bytes);
        }
        self.exchanges += u32::from(asks);
        while let Some(event) = self.join.poll_event() {
            match event {
                join::Event::Synchronise { sponsor, .. } => {
                    self.copies = Copies::default();
                    self.flush = Some(Flush { cut: u64::MAX, holders: vec![sponsor], epoch: None, tries: 0 });
                    self.go_on_flushing(effects);
                }
                join::Event::Joined { view, cut, holders } => {
                    effects.tell(Told::Joined(view.clone()));
                    self.regroup =
                        Some(Regroup::joining(self.me, Timing::default(), effects.now(), view, cut));
                    self.beat_at = effects.now();
                    self.begin_flush(effects, cut, holders);
                }
                join::Event::Founded(view) => {
                    effects.tell(Told::Founded(view));
                    self.regroup = Some(Regroup::founding(self.me, Timing::default(), effects.now()));
                    self.copies = Copies::default();
                    self.copies.begin([self.me.node].into_iter());
                    self.flush = None;
                    self.drain_regroup(effects);
                }
                join::Event::Admit(members) => self.regroup(effects, regroup::Input::Admit(members)),
                join::Event::Reborn { former } => {
                    self.suspected.insert(former.node, Strength::Failed);
                    self.regroup(effects, regroup::Input::Suspect(former, Strength::Failed));
                }
            }
        }
    }

    fn beat(&mut self, effects: Fx<'_, '_>) {
        let now = effects.now();
        self.beat_at = now.saturating_add(BEAT);
        let Some(regroup) = &self.regroup else { return };
        let others: Vec<_> =
            regroup.view().members.iter().copied().filter(|member| *member != self.me).collect();
        for member in others {
            effects.send(member.node, wire::encode(Protocol::Detect, &Beat(self.me)));
            let silence = now.since(self.heard.get(&member.node).copied().unwrap_or(now));
            let strength = match silence {
                silence if silence >= FAILED => Strength::Failed,
                silence if silence >= UNREACHABLE => Strength::Unreachable,
                silence if silence >= SUSPECTED => Strength::Suspected,
                _ => continue,
            };
            if self.suspected.get(&member.node).is_none_or(|before| *before < strength) {
                self.suspected.insert(member.node, strength);
                self.regroup(effects, regroup::Input::Suspect(member, strength));
            }
        }
        self.go_on_flushing(effects);
        self.append(effects);
    }

    fn hear(&mut self, effects: Fx<'_, '_>, from: NodeId, member: Member) {
        let is_member = |regroup: &Regroup| regroup.view().member(from) == Some(member);
        if !self.regroup.as_ref().is_some_and(is_member) {
            return;
        }
        self.heard.insert(from, effects.now());
        if self.suspected.remove(&from).is_some() {
            self.regroup(effects, regroup::Input::Heard(from));
        }
    }

    /// The sequencer makes an entry, and tells everybody what that one lacks.
    fn append(&mut self, effects: Fx<'_, '_>) {
        let Some(regroup) = self.regroup.as_ref().filter(|regroup| !regroup.is_frozen()) else { return };
        let view = regroup.view().clone();
        if view.sequencer() != self.me.node {
            return;
        }
        let entry =
            view.epoch.0 << 32 | u64::from(self.me.node.0) << 24 | (self.copies.position() & 0xff_ffff);
        self.copies.entries.push(entry);
        self.held(effects, self.me.node, view.epoch, self.copies.position());
        for node in view.nodes().filter(|node| *node != self.me.node) {
            let after = self.copies.held_by(node);
            let entries = self.copies.after(after, u64::MAX);
            let append =
                Copying::Append { epoch: view.epoch, after, entries, committed: self.copies.committed };
            effects.send(node, wire::encode(Protocol::Order, &append));
        }
    }

    fn held(&mut self, effects: Fx<'_, '_>, node: NodeId, epoch: ViewEpoch, position: u64) {
        if let Some(committed) = self.copies.holds(node, position) {
            let entries = &self.copies.entries[..usize::try_from(committed).unwrap_or(usize::MAX)];
            effects.tell(Told::Committed { epoch, entries: entries.into() });
        }
    }

    fn copy(&mut self, effects: Fx<'_, '_>, from: NodeId, message: Copying) {
        let now_in = |epoch: ViewEpoch| {
            let works = |regroup: &&Regroup| !regroup.is_frozen() && regroup.view().epoch == epoch;
            self.regroup.as_ref().filter(works).is_some()
        };
        match message {
            Copying::Append { epoch, after, entries, committed } if now_in(epoch) => {
                self.copies.take(after, &entries);
                self.copies.committed = committed.min(self.copies.position());
                let held = Copying::Held { epoch, position: self.copies.position() };
                effects.send(from, wire::encode(Protocol::Order, &held));
            }
            Copying::Held { epoch, position } if now_in(epoch) => self.held(effects, from, epoch, position),
            Copying::Fetch { epoch, after, until } => {
                // Who does not know the view that ends may hold what was dropped on the way there.
                let knows =
                    epoch == ViewEpoch(0) || self.view().is_some_and(|(view, _)| view.epoch.0 + 1 >= epoch.0);
                let until = if until == u64::MAX { self.copies.committed } else { until };
                let until = if knows { until } else { 0 };
                let fetched = Copying::Fetched { after, entries: self.copies.after(after, until) };
                effects.send(from, wire::encode(Protocol::Order, &fetched));
            }
            Copying::Fetched { after, entries } => self.fetched(effects, from, after, &entries),
            Copying::Append { .. } | Copying::Held { .. } => {}
        }
    }

    fn fetched(&mut self, effects: Fx<'_, '_>, from: NodeId, after: u64, entries: &[u64]) {
        let Some(flush) = self.reach.as_ref().or(self.flush.as_ref()) else { return };
        if !flush.holders.contains(&from) {
            return;
        }
        let (cut, is_snapshot) = (flush.cut, flush.epoch.is_none());
        self.copies.take_until(cut, after, entries);
        if is_snapshot && entries.is_empty() {
            self.flush = None;
            // What is beyond a cut is dropped when it is heard of.
            self.join(effects, join::Input::Synchronised { position: 0 });
        } else {
            if is_snapshot {
                self.join(effects, join::Input::Progress);
            }
            // Who has nothing more now is asked again with the next heartbeat.
            if !entries.is_empty() {
                self.go_on_flushing(effects);
            }
        }
    }

    fn message(&mut self, effects: Fx<'_, '_>, from: NodeId, bytes: &[u8]) {
        match wire::protocol(from, bytes) {
            Ok(Protocol::Regroup) => self.regroup(effects, regroup::Input::Message { from, bytes }),
            Ok(Protocol::Join) => self.join(effects, join::Input::Message { from, bytes }),
            Ok(Protocol::Detect) => {
                if let Ok(Beat(member)) = wire::decode(from, Protocol::Detect, bytes) {
                    self.hear(effects, from, member);
                }
            }
            Ok(Protocol::Order) => {
                if let Ok(message) = wire::decode(from, Protocol::Order, bytes) {
                    self.copy(effects, from, message);
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn due(&mut self, effects: Fx<'_, '_>) {
        let now = effects.now();
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.join.next_timeout()) {
            self.join(effects, join::Input::Timeout);
        }
        if is_due(self.regroup.as_ref().and_then(Regroup::next_timeout)) {
            self.regroup(effects, regroup::Input::Timeout);
        }
        if self.beat_at <= now {
            self.beat(effects);
        }
    }
}

impl Actor for Node {
    type Command = Command;
    type Event = Told;

    fn handle(&mut self, input: Input<'_, Command>, effects: Fx<'_, '_>) {
        match input {
            Input::Started => self.drain_join(effects),
            Input::Message { from, bytes } => self.message(effects, from, bytes),
            Input::Timeout => self.due(effects),
            Input::Command(Command::Found) => self.join(effects, join::Input::Found),
            Input::Command(Command::Suspect(node, strength)) => {
                let member = self.view().and_then(|(view, _)| view.member(node));
                if let Some(member) = member {
                    self.suspected.insert(node, strength);
                    self.regroup(effects, regroup::Input::Suspect(member, strength));
                }
            }
            Input::Synced { .. } => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let regroup = self.regroup.as_ref().and_then(Regroup::next_timeout);
        [Some(self.beat_at), regroup, self.join.next_timeout()].into_iter().flatten().min()
    }

    fn describe(message: &[u8]) -> String {
        // Who sent it is in the line already; this is for what cannot be read.
        let somebody = NodeId(u32::MAX);
        match wire::protocol(somebody, message) {
            Ok(Protocol::Regroup) => regroup::describe(somebody, message),
            Ok(Protocol::Join) => join::describe(somebody, message),
            Ok(Protocol::Detect) => "I am here".to_owned(),
            Ok(Protocol::Order) => match wire::decode(somebody, Protocol::Order, message) {
                Ok(Copying::Append { after, entries, .. }) => {
                    format!("entries {} to {}", after + 1, after + entries.len() as u64)
                }
                Ok(Copying::Held { position, .. }) => format!("I hold up to {position}"),
                Ok(Copying::Fetch { after, .. }) => format!("what comes after {after}?"),
                Ok(Copying::Fetched { after, entries }) => format!("{} entries after {after}", entries.len()),
                Err(error) => error.to_string(),
            },
            Ok(other) => format!("{other:?}, {} bytes", message.len()),
            Err(error) => error.to_string(),
        }
    }
}
