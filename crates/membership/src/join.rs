//! How a node comes in. (MSCS §7.7.1)
//!
//! MSCS's six phases, without its lock and its sequences: discovery asks all contacts at once; the first that answers is the
//! sponsor and hands over a reference to a snapshot; when the joiner has it, it petitions; the sponsor gathers petitions for a
//! moment, and one view change admits them all. The joiner has four exchanges, however large the group is: hello and offer,
//! petition and welcome, and the two of the cleanup of [`crate::regroup`].
//!
//! A group is founded by one node that people have told to, once, and only when it has searched for a group in vain and most of
//! the contacts have given it their word that they are in none. Each gives its word once in its life. So two founders make one
//! group, or none.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use comb_types::{Incarnation, NodeId, Time};

use crate::transmit::Transmit;
use crate::view::{Member, View};
use crate::wire::{self, PeerError, Protocol};
use message::{Body, MOST_SNAPSHOT_BYTES};

mod joiner;
mod message;
#[cfg(test)]
mod model;
mod sponsor;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::lie;

/// Whom to ask, and how long to wait.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Nodes that may be in the group. All nodes have the same list: the founder counts words among them.
    pub contacts: Vec<NodeId>,
    /// Whether this node may found the group: say so to one node, and when a group is founded for the first time only. A group
    /// that lost its quorum is not founded anew by itself, because the lost part may still live somewhere.
    pub may_found: bool,
    /// How long a founder searches before it asks for the contacts' words.
    pub search: Duration,
    /// A message that was not answered is sent again after so long.
    pub resend: Duration,
    /// A sponsor gathers petitions for so long.
    pub batch: Duration,
    /// A sponsor with which there was no progress for so long is left for another.
    pub patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            contacts: Vec::new(),
            may_found: false,
            search: Duration::from_millis(1000),
            resend: Duration::from_millis(50),
            batch: Duration::from_millis(2),
            patience: Duration::from_millis(2000),
        }
    }
}

/// What happens to a node that wants in, or that lets others in.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A message came.
    Message {
        /// Whence, as the network says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The joiner is nearer to having the snapshot.
    Progress,
    /// The joiner has what [`Event::Synchronise`] asked for.
    Synchronised {
        /// Every update up to this is in it.
        position: u64,
    },
    /// [`crate::regroup::Event::Decided`] of this node: the view, its cut, and who holds everything up to it.
    Decided {
        /// Which view.
        view: View,
        /// Its cut.
        cut: u64,
        /// Of the updates up to the cut.
        holders: Vec<NodeId>,
    },
    /// What this member, as a sponsor, hands to joiners from now on.
    Snapshot(Vec<u8>),
    /// Somebody who knows that there is no group says that this node shall found one.
    Found,
    /// The time of [`Join::next_timeout`] has come.
    Timeout,
}

/// What the driver is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// To a joiner: fetch the snapshot, then say [`Input::Synchronised`]. Another such event replaces it: that sponsor died.
    Synchronise {
        /// Who offers it.
        sponsor: NodeId,
        /// What to fetch, in the words of whoever makes snapshots.
        snapshot: Vec<u8>,
    },
    /// To a joiner: it is in, or one of its lives is that said nothing yet. It makes its [`crate::regroup::Regroup`] of this, fetches
    /// what it lacks up to the cut, and says that it is flushed.
    Joined {
        /// The view.
        view: View,
        /// Its cut.
        cut: u64,
        /// Who holds all updates up to the cut.
        holders: Vec<NodeId>,
    },
    /// To a founder: the group is this node.
    Founded(View),
    /// To a sponsor: for [`crate::regroup::Input::Admit`].
    Admit(Vec<Member>),
    /// To a member: this life of a node is over, for the next has come.
    Reborn {
        /// The life that is over.
        former: Member,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Role {
    /// It asks the contacts.
    Searching,
    /// It fetches the snapshot.
    Synchronising { sponsor: NodeId, until: Time },
    /// It asks its sponsor to be let in.
    Petitioning { sponsor: NodeId, until: Time },
    /// It is in, and lets others in.
    Member { view: View, cut: u64, holders: Vec<NodeId> },
}

/// A node that comes in, and then lets others in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Join {
    me: Member,
    /// The first of this node's lives that have said nothing in any view, though they may have been admitted to one.
    since: Incarnation,
    config: Config,
    now: Time,
    role: Role,
    // As a joiner.
    searches_since: Time,
    /// Sponsors that have offered themselves.
    offers: BTreeMap<NodeId, Vec<u8>>,
    /// Sponsors that were asked to let this node in: any of them may say that it is in.
    petitioned: BTreeSet<NodeId>,
    /// Every update up to this is in the snapshot that this node has.
    position: u64,
    /// To whom this node has given its word that it is in no group.
    word: Option<Member>,
    words: BTreeSet<NodeId>,
    resend_at: Option<Time>,
    // As a sponsor.
    snapshot: Vec<u8>,
    petitions: BTreeSet<Member>,
    batch_at: Option<Time>,
    /// Who was handed on and is not in yet.
    awaited: BTreeSet<Member>,
    out: VecDeque<(NodeId, Body)>,
    events: VecDeque<Event>,
}

impl Join {
    /// A node that wants in. It begins at once: drain [`Join::poll_transmit`].
    pub fn new(me: Member, config: Config, now: Time) -> Self {
        let mut join = Self {
            me,
            since: me.incarnation,
            config,
            now,
            role: Role::Searching,
            searches_since: now,
            offers: BTreeMap::new(),
            petitioned: BTreeSet::new(),
            position: 0,
            word: None,
            words: BTreeSet::new(),
            resend_at: None,
            snapshot: Vec::new(),
            petitions: BTreeSet::new(),
            batch_at: None,
            awaited: BTreeSet::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
        };
        join.resend();
        join
    }

    /// A node whose former lives, from `since` on, have asked to be let in and then crashed. One of them may be in a view, in which
    /// none has said anything; this one then goes on in its seat.
    pub fn again(me: Member, since: Incarnation, config: Config, now: Time) -> Self {
        let mut join = Self::new(me, config, now);
        join.since = since.min(me.incarnation);
        join.out.clear();
        join.resend();
        join
    }

    /// A member of a first view that all of its members were configured with: it lets others in.
    pub fn within(me: Member, config: Config, now: Time, view: View) -> Self {
        let mut join = Self::new(me, config, now);
        join.out.clear();
        let holders = view.nodes().collect();
        join.become_member(view, 0, holders);
        join
    }

    /// The first of this node's lives that have said nothing in any view.
    pub(crate) fn since(&self) -> Incarnation {
        self.since
    }

    /// Whether it is in.
    pub fn is_member(&self) -> bool {
        matches!(self.role, Role::Member { .. })
    }

    /// Takes one input. Then drain [`Join::poll_transmit`] and [`Join::poll_event`] before the next. An error names a peer that
    /// broke a rule; nothing has changed then.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        self.now = now;
        match input {
            Input::Message { from, bytes } => self.receive(from, bytes)?,
            Input::Progress => self.progressed(),
            Input::Synchronised { position } => self.synchronised(position),
            Input::Decided { view, cut, holders } => self.decided(view, cut, holders),
            Input::Snapshot(snapshot) => {
                assert!(snapshot.len() <= MOST_SNAPSHOT_BYTES, "a reference, not the snapshot itself");
                self.snapshot = snapshot;
            }
            Input::Found => self.found(),
            Input::Timeout => self.due(),
        }
        Ok(())
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let (to, body) = self.out.pop_front()?;
        Some(Transmit { to, bytes: wire::encode(Protocol::Join, &body) })
    }

    /// The next thing to tell the driver.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Join::handle`] even if nothing arrives.
    pub fn next_timeout(&self) -> Option<Time> {
        let until = match &self.role {
            Role::Synchronising { until, .. } | Role::Petitioning { until, .. } => Some(*until),
            Role::Searching | Role::Member { .. } => None,
        };
        [self.resend_at, self.batch_at, until].into_iter().flatten().min()
    }

    fn receive(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let body: Body = wire::decode(from, Protocol::Join, bytes)?;
        match body {
            Body::Hello { member, since, wants_word } => self.greeted(from, member, since, wants_word),
            Body::Offer { snapshot } => self.offered(from, snapshot),
            Body::Alone { word } => self.heard_alone(from, word),
            Body::Petition { member, since } => self.petitioned(from, member, since),
            Body::Welcome { view, cut, holders } => self.welcomed(from, view, cut, holders),
        }
    }

    fn send(&mut self, to: NodeId, body: Body) {
        self.out.push_back((to, body));
    }

    fn due(&mut self) {
        let is_due = |at: Option<Time>, now: Time| at.is_some_and(|at| at <= now);
        match self.role {
            Role::Synchronising { sponsor, until } | Role::Petitioning { sponsor, until }
                if until <= self.now =>
            {
                self.leave_sponsor(sponsor);
            }
            _ => {}
        }
        if is_due(self.resend_at, self.now) {
            self.resend();
        }
        if is_due(self.batch_at, self.now) {
            self.hand_on_petitions();
        }
    }
}

/// A message in words, for logs.
pub fn describe(from: NodeId, bytes: &[u8]) -> String {
    match wire::decode::<Body>(from, Protocol::Join, bytes) {
        Ok(body) => body.to_string(),
        Err(error) => error.to_string(),
    }
}
