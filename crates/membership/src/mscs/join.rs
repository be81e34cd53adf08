//! The joiner's side of coming in: six phases, and every call after the other. (§7.7.1)
//!
//! With `n` active nodes and one network interface each, the serial calls of all sides are, at least:
//!
//! | phase | calls |
//! |---|---|
//! | discovery, by the holder of the cluster IP address | 1 |
//! | lock: asking the sponsor, and its global update (it is the locker itself) | 1 + (n - 1) |
//! | enable network: 5 to the sponsor; to each node one, one back, one for the security context | 5 + 3 n |
//! | petition: asking; identity to all, configuration, alive to all, inserted | 1 + (n - 1) + 1 + (n - 1) + 1 |
//! | database: what there is, and what is new | 2 |
//! | unlock: global update of the joiner, which is not the locker: lock, n - 1 nodes, unlock | n + 1 |
//!
//! In all 10 + 7 n: "Joining the 32nd node to the cluster requires at least 227 sequential RPC's." The thesis gives the sum and
//! the phases; how the sum is made up within the phases is our reading.

use alloc::vec::Vec;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::gup::{Change, Replica, UpdateId};
use super::node_set::NodeSet;
use super::timing::{CONNECT, ENABLE, JOIN_AGAIN};
use super::{Event, Mscs, rpc};
use crate::wire::PeerError;

/// How a joiner looks for a sponsor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discovery {
    /// Out of the box: a connect to every node that is configured, all at once, and waiting until each of them succeeded or
    /// failed. (§7.7.1, phase 1)
    AskAll {
        /// How long a connect to a node that is down takes: [`super::timing::CONNECT`] or
        /// [`super::timing::CONNECT_TUNED`].
        connect_timeout: core::time::Duration,
    },
    /// First to the holder of the cluster IP address; the driver resolves that to a node. If it fails, as above with the
    /// long time-out. (§7.7.1, phase 1)
    AskAddressHolder(NodeId),
}

/// How far a joiner is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum JoinPhase {
    /// Phase 1: looks for nodes.
    Discovery,
    /// Phase 2: has the sponsor take the lock.
    Lock,
    /// Phase 3: calls everybody, and is called.
    EnableNetwork,
    /// Phase 4: becomes a member.
    Petition,
    /// Phase 5: gets the database.
    Database,
    /// Phase 6: says that it is operational.
    Unlock,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Discovery.
    Connect,
    /// To the sponsor: take the lock for me.
    Begin,
    /// To the sponsor: one of five parts of what is known of nodes, networks and interfaces.
    Configuration(u8),
    /// To each node, for each of its interfaces.
    Interface(u8),
    /// Back to the joiner.
    InterfaceBack(u8),
    SecurityContext,
    /// To the sponsor: make me a member.
    Petition,
    /// From the sponsor to each member: who joins. (Step 1)
    Identify {
        joiner: NodeId,
    },
    /// From the sponsor to the joiner: what regroup needs to know. (Step 2)
    Configure {
        epoch: u64,
        members: NodeSet,
    },
    /// From the sponsor to each member: it is a member now. (Step 4)
    Alive {
        joiner: NodeId,
    },
    /// From the sponsor to the joiner: you are. (Step 5)
    Inserted {
        epoch: u64,
        members: NodeSet,
        tie_breaker: NodeId,
        operational: NodeSet,
        locker: NodeId,
    },
    /// How new the database is.
    DatabaseVersion,
    /// What is new in it.
    DatabaseChanges,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Running {
        address_holder: NodeId,
    },
    Done,
    /// Not now, or not any more: start over.
    Refused,
    /// A part of the configuration; all that matters here is who is to be called.
    Configuration {
        members: NodeSet,
        interfaces: u8,
    },
    Version(u64),
    Database(Replica),
}

pub(super) const CONFIGURATION_PARTS: u8 = 5;

#[derive(Debug)]
enum Step {
    /// Waits before it starts over.
    Resting,
    Discovery {
        found: NodeSet,
        asked: NodeSet,
        address_holder: Option<NodeId>,
    },
    Lock,
    Configuration(u8),
    /// Calls each of `left`, the smallest first, for its interfaces from `interface` on.
    Interface {
        left: NodeSet,
        interface: u8,
    },
    SecurityContext {
        left: NodeSet,
    },
    Petition,
    Database,
    Unlock(UpdateId),
}

/// A node that comes in.
#[derive(Debug)]
pub(super) struct Joiner {
    discovery: Discovery,
    configured: NodeSet,
    step: Step,
    sponsor: NodeId,
    /// Who is to be called, as the sponsor says.
    to_call: NodeSet,
    interfaces: u8,
    /// When it starts, or gives up and starts over.
    deadline: Option<Time>,
    /// Who gets its heartbeats before it is a member.
    pub(super) heartbeats_to: NodeSet,
}

impl Request {
    /// Whether it goes from member to member, within one epoch.
    pub(super) fn is_between_members(&self) -> bool {
        matches!(
            self,
            Self::Identify { .. } | Self::Alive { .. } | Self::DatabaseVersion | Self::DatabaseChanges
        )
    }
}

impl Joiner {
    pub(super) fn new(now: Time, discovery: Discovery, configured: NodeSet) -> Self {
        Self {
            discovery,
            configured,
            step: Step::Resting,
            sponsor: NodeId(0),
            to_call: NodeSet::EMPTY,
            interfaces: 0,
            deadline: Some(now),
            heartbeats_to: NodeSet::EMPTY,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadline
    }
}

impl Mscs {
    fn join_call(&mut self, now: Time, to: NodeId, request: Request, fails_at: Option<Time>) {
        self.call(now, to, rpc::Request::Join(request), fails_at);
    }

    /// The joiner's own timer: the rest is over, or the sponsor is silent.
    pub(super) fn joiner_timeout(&mut self, now: Time) {
        let Some(joiner) = &self.joiner else { return };
        if joiner.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        if matches!(joiner.step, Step::Resting) {
            self.discover(now, joiner.discovery);
        } else {
            self.start_over(now, "the sponsor is silent");
        }
    }

    /// Not so after the membership: then only the cluster's algorithms take it out again.
    pub(super) fn start_over(&mut self, now: Time, why: &'static str) {
        let Some(joiner) = &mut self.joiner else { return };
        joiner.step = Step::Resting;
        joiner.deadline = Some(now.saturating_add(JOIN_AGAIN));
        joiner.heartbeats_to = NodeSet::EMPTY;
        self.heartbeats.watch(now, NodeSet::EMPTY);
        self.calls.cancel(|_| true);
        self.events.push_back(Event::JoinFailed(why));
    }

    fn enter_join_phase(&mut self, phase: JoinPhase) {
        self.events.push_back(Event::Joining(phase));
    }

    fn set_step(&mut self, step: Step, deadline: Option<Time>) {
        if let Some(joiner) = &mut self.joiner {
            joiner.step = step;
            joiner.deadline = deadline;
        }
    }

    /// Phase 1.
    fn discover(&mut self, now: Time, discovery: Discovery) {
        let Some(joiner) = &self.joiner else { return };
        let (asked, timeout) = match discovery {
            Discovery::AskAll { connect_timeout } => (joiner.configured, connect_timeout),
            Discovery::AskAddressHolder(holder) => (NodeSet::of(holder), CONNECT),
        };
        let asked = asked.without(NodeSet::of(self.me));
        let step = Step::Discovery { found: NodeSet::EMPTY, asked, address_holder: None };
        self.set_step(step, None);
        self.enter_join_phase(JoinPhase::Discovery);
        let fails_at = Some(now.saturating_add(timeout));
        for node in asked.iter() {
            self.join_call(now, node, Request::Connect, fails_at);
        }
        if asked.is_empty() {
            self.start_over(now, "there is nobody to ask");
        }
    }

    fn connected(&mut self, now: Time, node: NodeId, holder: Option<NodeId>) {
        let Some(joiner) = &mut self.joiner else { return };
        let Step::Discovery { found, asked, address_holder } = &mut joiner.step else { return };
        asked.remove(node);
        if let Some(holder) = holder {
            found.insert(node);
            *address_holder = Some(holder);
        }
        if !asked.is_empty() {
            return;
        }
        let found = *found;
        let sponsor = address_holder.filter(|holder| found.contains(*holder)).or(found.first());
        match (sponsor, joiner.discovery) {
            (Some(sponsor), _) => {
                joiner.sponsor = sponsor;
                self.set_step(Step::Lock, Some(now.saturating_add(ENABLE)));
                self.enter_join_phase(JoinPhase::Lock);
                self.join_call(now, sponsor, Request::Begin, None);
            }
            (None, Discovery::AskAddressHolder(holder)) if holder == node => {
                // Nobody holds the address: as out of the box.
                joiner.discovery = Discovery::AskAll { connect_timeout: CONNECT };
                let discovery = joiner.discovery;
                self.discover(now, discovery);
            }
            (None, _) => self.start_over(now, "found nobody"),
        }
    }

    /// A call that this node made as a joiner has failed.
    pub(super) fn join_call_failed(&mut self, now: Time, to: NodeId, request: &Request) {
        if let Request::Connect = request {
            self.connected(now, to, None);
        }
    }

    /// An answer to a call that this node made as a joiner.
    pub(super) fn joiner_answered(&mut self, now: Time, from: NodeId, request: &Request, answer: &Answer) {
        let is_outside = self.is_outside();
        let Some(joiner) = &mut self.joiner else { return };
        let (sponsor, patience) = (joiner.sponsor, Some(now.saturating_add(ENABLE)));
        if *answer == Answer::Refused && is_outside {
            return self.start_over(now, "refused");
        }
        match (request, &mut joiner.step, answer) {
            (Request::Connect, Step::Discovery { .. }, Answer::Running { address_holder }) => {
                self.connected(now, from, Some(*address_holder));
            }
            (Request::Begin, Step::Lock, Answer::Done) => {
                self.set_step(Step::Configuration(0), patience);
                self.enter_join_phase(JoinPhase::EnableNetwork);
                self.join_call(now, sponsor, Request::Configuration(0), None);
            }
            (
                Request::Configuration(part),
                Step::Configuration(step),
                Answer::Configuration { members, interfaces },
            ) if part == step => {
                let next = *step + 1;
                if next < CONFIGURATION_PARTS {
                    self.set_step(Step::Configuration(next), patience);
                    self.join_call(now, sponsor, Request::Configuration(next), None);
                } else {
                    joiner.to_call = *members;
                    joiner.interfaces = *interfaces;
                    self.call_interface(now, *members, 0);
                }
            }
            (Request::Interface(called), Step::Interface { left, interface }, Answer::Done)
                if called == interface && left.first() == Some(from) =>
            {
                let (left, next) = (*left, interface.saturating_add(1));
                self.call_interface(now, left, next);
            }
            (Request::SecurityContext, Step::SecurityContext { left }, Answer::Done)
                if left.first() == Some(from) =>
            {
                let left = left.without(NodeSet::of(from));
                self.set_up_security(now, left);
            }
            (Request::DatabaseVersion, Step::Database, Answer::Version(_)) => {
                self.join_call(now, from, Request::DatabaseChanges, None);
            }
            (Request::DatabaseChanges, Step::Database, Answer::Database(replica)) => {
                self.synchronized(replica.clone());
                let id = self.gup.submit_first(Change::UnlockJoin { joiner: self.me });
                self.set_step(Step::Unlock(id), None);
                self.enter_join_phase(JoinPhase::Unlock);
            }
            (Request::DatabaseChanges, Step::Unlock(_), Answer::Database(replica)) => {
                self.synchronized(replica.clone());
                self.gup.go_on();
            }
            _ => {}
        }
    }

    fn synchronized(&mut self, replica: Replica) {
        self.events.push_back(Event::Synchronized { sequence: replica.applied, digest: replica.digest });
        self.gup.synchronize(self.members(), replica);
    }

    fn call_interface(&mut self, now: Time, left: NodeSet, interface: u8) {
        let Some(joiner) = &self.joiner else { return };
        let (interfaces, to_call) = (joiner.interfaces, joiner.to_call);
        let mut at = (left, interface);
        if interface >= interfaces {
            at = (left.without(left.first().map_or(NodeSet::EMPTY, NodeSet::of)), 0);
        }
        match at.0.first() {
            Some(node) if interfaces > 0 => {
                let step = Step::Interface { left: at.0, interface: at.1 };
                self.set_step(step, Some(now.saturating_add(ENABLE)));
                self.join_call(now, node, Request::Interface(at.1), None);
            }
            _ => self.set_up_security(now, to_call),
        }
    }

    fn set_up_security(&mut self, now: Time, left: NodeSet) {
        let Some(joiner) = &self.joiner else { return };
        let sponsor = joiner.sponsor;
        let patience = Some(now.saturating_add(ENABLE));
        match left.first() {
            Some(node) => {
                self.set_step(Step::SecurityContext { left }, patience);
                self.join_call(now, node, Request::SecurityContext, None);
            }
            None => {
                // No timer bounds this phase (§7.7.1, phase 4). That the sponsor failed, or has given up, shows in that its
                // heartbeats do not come.
                self.set_step(Step::Petition, None);
                self.heartbeats.watch(now, NodeSet::of(sponsor));
                self.enter_join_phase(JoinPhase::Petition);
                self.join_call(now, sponsor, Request::Petition, None);
            }
        }
    }

    /// A call that the joiner receives: from its sponsor, or back from a node that it called.
    pub(super) fn called_as_joiner(
        &mut self,
        now: Time,
        from: NodeId,
        request: &Request,
    ) -> Result<Option<Answer>, PeerError> {
        let Some(joiner) = &mut self.joiner else {
            return Err(PeerError::new(from, "takes a member for a joiner"));
        };
        match request {
            Request::InterfaceBack(_) => Ok(Some(Answer::Done)),
            // It has given that join up, and its sponsor has not heard of it.
            _ if from != joiner.sponsor || !matches!(joiner.step, Step::Petition) => {
                Ok(Some(Answer::Refused))
            }
            Request::Configure { members, .. } => {
                joiner.heartbeats_to = *members;
                Ok(Some(Answer::Done))
            }
            Request::Inserted { epoch, members, tie_breaker, operational, locker } => {
                let all = members.with(NodeSet::of(self.me));
                let is_sound = members.contains(from)
                    && all.contains(*tie_breaker)
                    && all.contains(*locker)
                    && operational.is_within(all);
                if !is_sound {
                    return Err(PeerError::new(from, "a membership that is none"));
                }
                joiner.heartbeats_to = NodeSet::EMPTY;
                self.become_member(now, *epoch, all, *tie_breaker);
                self.gup.acquaint(all, *operational, *locker);
                self.ask_for_database(now);
                Ok(Some(Answer::Done))
            }
            _ => Err(PeerError::new(from, "asks a joiner for what members do")),
        }
    }

    fn ask_for_database(&mut self, now: Time) {
        let Some(joiner) = &mut self.joiner else { return };
        let sponsor = joiner.sponsor;
        self.set_step(Step::Database, None);
        self.enter_join_phase(JoinPhase::Database);
        self.join_call(now, sponsor, Request::DatabaseVersion, None);
    }

    /// Other updates came between our database and our lock.
    pub(super) fn catch_up(&mut self, now: Time) {
        let locker = self.gup.replica().locker;
        self.join_call(now, locker, Request::DatabaseChanges, None);
    }

    /// A membership was installed that this node is in, and all its calls have ended.
    pub(super) fn joiner_follows_membership(&mut self, now: Time) {
        let others = self.gup.replica().operational.without(NodeSet::of(self.me));
        let Some(joiner) = &mut self.joiner else { return };
        if !others.contains(joiner.sponsor) {
            joiner.sponsor = others.first().unwrap_or(joiner.sponsor);
        }
        if matches!(joiner.step, Step::Database) {
            if others.is_empty() {
                // Nobody is left to have a newer one.
                self.end_join();
            } else {
                self.ask_for_database(now);
            }
        }
    }

    /// One of our updates is complete.
    pub(super) fn joiner_completed(&mut self, id: UpdateId) {
        if let Some(Joiner { step: Step::Unlock(unlock), .. }) = &self.joiner
            && *unlock == id
        {
            self.end_join();
        }
    }

    fn end_join(&mut self) {
        self.joiner = None;
        self.events.push_back(Event::Joined);
    }

    /// Whether this node is on its way in and not a member yet.
    pub(super) fn is_outside(&self) -> bool {
        self.joiner.as_ref().is_some_and(|joiner| !matches!(joiner.step, Step::Database | Step::Unlock(_)))
    }

    /// Who gets heartbeats.
    pub(super) fn heartbeat_receivers(&self) -> Vec<NodeId> {
        let outside = self.joiner.as_ref().filter(|_| self.is_outside());
        let inside = || self.members().with(self.regroup.joining());
        let all = outside.map_or_else(inside, |joiner| joiner.heartbeats_to);
        all.iter().filter(|node| *node != self.me).collect()
    }
}
