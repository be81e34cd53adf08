//! The classic way, with all its timers, as a baseline. (MSCS, ch. 7)
//!
//! Microsoft's Cluster Service took its algorithms from Tandem's of the early eighties: heartbeats from all to all, a regroup
//! in five phases, a global update that one sender at a time carries to one node after the other. There is no multicast and no
//! concurrency in it; everything is an RPC train or a round of point-to-point datagrams. The thesis measured what that costs with
//! 2 to 32 nodes. Here it is again, so that its figures can be drawn beside those of [`crate::regroup`], [`crate::join`] and
//! [`crate::order`], on one network, with one load.
//!
//! - [`timing`]: every timer, and the sentence that sets it.
//! - `heartbeat`: ClusNet's failure detector (§7.6.1). ClusNet is in the kernel: a loaded user level does not slow it down.
//! - `regroup`, `closing`: the consensus on who is left, its survival rules and its pruning (§7.7.2).
//! - `gup`: the global update protocol with its locker, its waiting list and its five failure cases (§7.8).
//! - `join`, `sponsor`: the six phases of coming in, with their 10 + 7 n serial calls at least (§7.7.1).
//! - `rpc`: serial calls over datagrams that may get lost, come twice or late.
//!
//! What is not here: how a cluster is formed (chapter 5; a driver says who founds it), redundant networks (interfaces are counted
//! for their calls in a join, nothing more), and resources. Where the thesis is silent, the module that had to choose says so.
//! Sent every tick and at no other time, as the thesis says, regroup's states make each of the last three phases wait for a tick:
//! a regroup after one failure takes 3.7 s here, where the thesis measured 3 s in the mean.
//!
//! Nothing here is hardened against a peer that lies within the rules: the original trusted its nodes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::transmit::Transmit;
use crate::view::{Member, ViewEpoch};
use crate::wire::{self, PeerError, Protocol};
use gup::{Act, Gup};
use heartbeat::Heartbeats;
use join::Joiner;
use node_set::MOST_NODES;
use regroup::{Decision, Outcome, Regroup};
use rpc::{CallId, Calls, Reception};
use sponsor::{CallBack, Sponsorship};

mod closing;
mod gup;
mod heartbeat;
mod join;
mod node_set;
mod regroup;
mod rpc;
mod sponsor;
pub mod timing;

pub use gup::{Change, UpdateId};
pub use join::{Discovery, JoinPhase};
pub use node_set::NodeSet;
pub use regroup::Phase;

/// The longest update, in bytes: a call is one datagram, and one that is too long for the network would be sent again for ever,
/// by who holds the lock.
pub const LONGEST_UPDATE: usize = 60_000;

/// What happens to a node.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message came.
    Message {
        /// Whence, as the network says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time has come that [`Mscs::next_timeout`] said.
    Timeout,
    /// Whether this node now owns the quorum resource: a disk that two nodes share and one can hold. (§7.7.2, rule 3)
    QuorumResource(bool),
    /// This node wants all to apply this, which is no longer than [`LONGEST_UPDATE`]. A joiner keeps it until it has joined.
    Update(&'a [u8]),
}

/// What a node has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A member has missed six heartbeats.
    Suspected(NodeId),
    /// A regroup begins here.
    RegroupStarted {
        /// Which.
        epoch: ViewEpoch,
        /// Whether it waits for the longest in any case.
        is_cautious: bool,
    },
    /// A regroup went on to another phase, or is over.
    Entered(Phase),
    /// The members are these now: all of them install the same ones.
    Installed {
        /// By which regroup.
        epoch: ViewEpoch,
        /// Who is left.
        members: NodeSet,
        /// Who was a member and is none any more.
        removed: NodeSet,
    },
    /// A node has joined, as its sponsor says. It gets updates once it has said so itself.
    Added(NodeId),
    /// An update was applied here.
    Applied {
        /// As which of all: the same everywhere.
        sequence: u64,
        /// Which.
        id: UpdateId,
        /// What it changes.
        change: Change,
        /// Of all up to this one, in their order.
        digest: u64,
    },
    /// An update of this node's was applied by all.
    Completed(UpdateId),
    /// This node comes in, and has reached this phase of it.
    Joining(JoinPhase),
    /// This node has taken another's database over.
    Synchronized {
        /// As of which update.
        sequence: u64,
        /// Of all up to that one.
        digest: u64,
    },
    /// This node is a member, and all know.
    Joined,
    /// This node will try again.
    JoinFailed(&'static str),
    /// This node was the sponsor of a join and has given it up.
    JoinAborted(NodeId),
    /// This node must not go on, and does nothing any more.
    Halted(&'static str),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Message {
    Heartbeat {
        number: u64,
    },
    Regroup(regroup::State),
    /// `epoch` is of the caller's membership.
    Request {
        call: CallId,
        epoch: u64,
        request: rpc::Request,
    },
    Answer {
        call: CallId,
        answer: rpc::Answer,
    },
}

/// One node of the Cluster Service.
#[derive(Debug)]
pub struct Mscs {
    me: NodeId,
    /// How many network interfaces a node has: what a joiner has to enable on each.
    interfaces: u8,
    heartbeats: Heartbeats,
    regroup: Regroup,
    /// Of the membership that is installed; a regroup that goes on counts ahead of it.
    epoch: u64,
    calls: Calls,
    gup: Gup,
    joiner: Option<Joiner>,
    sponsorship: Option<Sponsorship>,
    call_backs: Vec<CallBack>,
    is_halted: bool,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Mscs {
    /// A member of a cluster that runs. All its `members` start with the same ones, of which `me` is one. A cluster of one is
    /// one that was just formed.
    pub fn member(now: Time, me: Member, members: NodeSet) -> Self {
        let node = me.node;
        assert!(members.contains(node), "a member is one of the members");
        let tie_breaker = members.first().unwrap_or(node);
        let mut mscs = Self {
            me: node,
            interfaces: 1,
            heartbeats: Heartbeats::new(now),
            regroup: Regroup::new(now, node, members, 1, tie_breaker),
            epoch: 1,
            calls: Calls::new(me.incarnation.0),
            gup: Gup::member(node, me.incarnation.0, members),
            joiner: None,
            sponsorship: None,
            call_backs: Vec::new(),
            is_halted: false,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        };
        mscs.watch_others(now);
        mscs
    }

    /// A node that looks for a cluster among the `configured` nodes, until it is in.
    pub fn joining(now: Time, me: Member, configured: NodeSet, discovery: Discovery) -> Self {
        Self {
            gup: Gup::joiner(me.node, me.incarnation.0),
            joiner: Some(Joiner::new(now, discovery, configured)),
            ..Self::member(now, me, NodeSet::of(me.node))
        }
    }

    /// With so many network interfaces on each node. One is the least, and what it has if nothing is said.
    #[must_use]
    pub fn with_interfaces(mut self, interfaces: u8) -> Self {
        self.interfaces = interfaces;
        self
    }

    /// How many calls this node has made.
    pub fn calls_made(&self) -> u64 {
        self.calls.made()
    }

    /// How many updates were applied here, and their digest.
    pub fn applied(&self) -> (u64, u64) {
        (self.gup.replica().applied, self.gup.replica().digest)
    }

    /// Whether this node is a member, and all know.
    pub fn has_joined(&self) -> bool {
        self.joiner.is_none()
    }

    /// Whether an update of this node's is not complete yet.
    pub fn is_updating(&self) -> bool {
        self.gup.is_sending()
    }

    /// Who belongs to the cluster, as far as this node knows.
    pub fn members(&self) -> NodeSet {
        self.regroup.members()
    }

    /// By how many regroups the members came to be.
    pub fn epoch(&self) -> ViewEpoch {
        ViewEpoch(self.epoch)
    }

    /// How far a regroup is.
    pub fn phase(&self) -> Phase {
        self.regroup.phase()
    }

    /// Takes one input. Call again at [`Mscs::next_timeout`] even if nothing came.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        if self.is_halted {
            return Ok(());
        }
        self.regroup.locker = self.gup.replica().locker;
        self.regroup.operational = self.gup.replica().operational;
        let outcome = match input {
            Input::Message { from, bytes } => self.receive(now, from, bytes),
            Input::Timeout => {
                self.timeout(now);
                Ok(())
            }
            Input::QuorumResource(is_owned) => {
                self.regroup.owns_quorum_resource = is_owned;
                Ok(())
            }
            Input::Update(data) => {
                assert!(data.len() <= LONGEST_UPDATE, "an update fits into a datagram");
                self.gup.submit(Change::Data(data.to_vec()));
                Ok(())
            }
        };
        self.follow_regroup(now);
        self.follow_updates(now);
        outcome
    }

    /// What is to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// What there is to say.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call even if nothing came.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.is_halted {
            return None;
        }
        let timeouts = [
            Some(self.heartbeats.next_timeout()),
            self.regroup.next_timeout(),
            self.calls.next_timeout(),
            self.joiner.as_ref().and_then(Joiner::next_timeout),
            self.sponsorship.as_ref().and_then(Sponsorship::next_timeout),
        ];
        timeouts.into_iter().flatten().min()
    }

    fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let message = wire::decode(from, Protocol::Mscs, bytes)?;
        if from == self.me || from.0 >= MOST_NODES {
            return Err(PeerError::new(from, "a message from no other node"));
        }
        match message {
            Message::Heartbeat { .. } => {
                self.heartbeats.heard(now, from);
                self.heard_stranger(from);
            }
            // ClusNet filters what comes from nodes that are no members. (§7.7.2, phase 4)
            Message::Regroup(state) if self.members().contains(from) => {
                self.regroup.receive(now, from, state).map_err(|rule| PeerError::new(from, rule))?;
            }
            Message::Regroup(_) => {}
            Message::Request { call, epoch, request } => {
                self.receive_call(now, from, call, epoch, request)?;
            }
            Message::Answer { call, answer } => self.receive_answer(now, from, call, &answer),
        }
        Ok(())
    }

    fn receive_call(
        &mut self,
        now: Time,
        from: NodeId,
        call: CallId,
        epoch: u64,
        request: rpc::Request,
    ) -> Result<(), PeerError> {
        // Between two memberships, callers ask in vain, and ask again.
        let is_member = self.members().contains(from) && epoch == self.epoch;
        if request.is_between_members() && (!is_member || self.is_outside()) {
            return Ok(());
        }
        match self.calls.receive(from, call) {
            Reception::Busy => return Ok(()),
            Reception::Again(answer) => {
                self.send(from, &Message::Answer { call, answer });
                return Ok(());
            }
            Reception::New => {}
        }
        let outcome = match request {
            rpc::Request::Gup(request) => self
                .gup
                .receive(from, call, request)
                .map_err(|rule| PeerError::new(from, rule))
                .map(|()| None),
            rpc::Request::Join(join::Request::Connect) if self.joiner.is_some() => Ok(None),
            rpc::Request::Join(request) => {
                let is_to_joiner = matches!(
                    request,
                    join::Request::InterfaceBack(_)
                        | join::Request::Configure { .. }
                        | join::Request::Inserted { .. }
                );
                if is_to_joiner {
                    self.called_as_joiner(now, from, &request)
                } else if self.is_outside() {
                    Ok(Some(join::Answer::Refused))
                } else {
                    self.called_as_member(now, from, call, &request)
                }
            }
        };
        match outcome {
            Ok(Some(answer)) => self.answer(from, call, rpc::Answer::Join(answer)),
            Ok(None) => {}
            Err(error) => {
                self.calls.forget(from, call);
                return Err(error);
            }
        }
        Ok(())
    }

    fn receive_answer(&mut self, now: Time, from: NodeId, call: CallId, answer: &rpc::Answer) {
        match (self.calls.answered(from, call, answer), answer) {
            (Some(rpc::Request::Gup(request)), rpc::Answer::Gup(answer)) => {
                self.gup.answered(from, &request, answer);
            }
            (Some(rpc::Request::Join(request)), rpc::Answer::Join(answer)) => {
                self.member_answered(now, from, &request, answer);
                self.joiner_answered(now, from, &request, answer);
            }
            _ => {}
        }
    }

    fn call(&mut self, now: Time, to: NodeId, request: rpc::Request, fails_at: Option<Time>) {
        let epoch = self.epoch;
        let call = self.calls.call(now, to, epoch, request.clone(), fails_at);
        self.send(to, &Message::Request { call, epoch, request });
    }

    fn answer(&mut self, to: NodeId, call: CallId, answer: rpc::Answer) {
        self.calls.keep_answer(to, call, &answer);
        self.send(to, &Message::Answer { call, answer });
    }

    fn time_calls(&mut self, now: Time) {
        let (again, failed) = self.calls.timeout(now);
        for (call, pending) in again {
            let (epoch, request) = (pending.epoch, pending.request);
            self.send(pending.to, &Message::Request { call, epoch, request });
        }
        for pending in failed {
            if let rpc::Request::Join(request) = pending.request {
                self.member_call_failed(now, pending.to, &request);
                self.join_call_failed(now, pending.to, &request);
            }
        }
    }

    fn timeout(&mut self, now: Time) {
        if let Some(number) = self.heartbeats.due(now) {
            for node in self.heartbeat_receivers() {
                self.send(node, &Message::Heartbeat { number });
            }
        }
        if self.heartbeats.is_check(now) {
            for node in self.heartbeats.newly_suspected(now) {
                self.events.push_back(Event::Suspected(node));
                if self.is_outside() {
                    self.start_over(now, "the sponsor has failed or given up");
                } else {
                    self.regroup.suspect(now, node);
                }
            }
            self.check_joiner(now);
        }
        self.regroup.timeout(now);
        self.time_calls(now);
        self.joiner_timeout(now);
        self.sponsor_timeout(now);
    }

    /// Takes over what regroup has to send and to say.
    fn follow_regroup(&mut self, now: Time) {
        while let Some((to, state)) = self.regroup.sends.pop_front() {
            self.send(to, &Message::Regroup(state));
        }
        while let Some(outcome) = self.regroup.outcomes.pop_front() {
            let event = match outcome {
                Outcome::Started { epoch, is_cautious } => {
                    Event::RegroupStarted { epoch: ViewEpoch(epoch), is_cautious }
                }
                Outcome::Entered(phase) => Event::Entered(phase),
                Outcome::Installed { epoch, decision, removed } => {
                    self.install(now, epoch, decision, removed);
                    Event::Installed { epoch: ViewEpoch(epoch), members: decision.members, removed }
                }
                Outcome::Halted(why) => {
                    self.is_halted = true;
                    Event::Halted(why)
                }
            };
            self.events.push_back(event);
        }
    }

    fn install(&mut self, now: Time, epoch: u64, decision: Decision, removed: NodeSet) {
        self.epoch = epoch;
        self.watch_others(now);
        self.calls.cancel(|call| call.request.is_between_members() || removed.contains(call.to));
        self.calls.forget_callers(removed);
        self.gup.installed(decision.members, decision.locker);
        self.sponsor_follows_membership(now);
        self.joiner_follows_membership(now);
    }

    /// A joiner is one.
    fn become_member(&mut self, now: Time, epoch: u64, members: NodeSet, tie_breaker: NodeId) {
        let owns_quorum_resource = self.regroup.owns_quorum_resource;
        self.regroup = Regroup::new(now, self.me, members, epoch, tie_breaker);
        self.regroup.owns_quorum_resource = owns_quorum_resource;
        self.epoch = epoch;
        self.watch_others(now);
    }

    /// Does what the global update wants done, which may make it want more.
    fn follow_updates(&mut self, now: Time) {
        while let Some(act) = self.gup.acts.pop_front() {
            match act {
                Act::Call { to, request } => self.call(now, to, rpc::Request::Gup(request), None),
                Act::Answer { to, call, answer } => self.answer(to, call, rpc::Answer::Gup(answer)),
                Act::Applied { sequence, digest, update } => {
                    if let Change::AbortJoin { joiner } = update.change {
                        self.regroup.forget(joiner);
                    }
                    let (id, change) = (update.id, update.change);
                    self.events.push_back(Event::Applied { sequence, id, change, digest });
                }
                Act::Completed { id } => {
                    self.events.push_back(Event::Completed(id));
                    self.sponsor_completed(now, id);
                    self.joiner_completed(id);
                }
                Act::Behind => self.catch_up(now),
            }
        }
    }

    fn watch_others(&mut self, now: Time) {
        let others = self.members().without(NodeSet::of(self.me));
        self.heartbeats.watch(now, others);
    }

    fn send(&mut self, to: NodeId, message: &Message) {
        self.transmits.push_back(Transmit { to, bytes: wire::encode(Protocol::Mscs, message) });
    }
}

/// A message in words, for people who watch.
pub fn describe(bytes: &[u8]) -> Option<alloc::string::String> {
    let message: Message = wire::decode(NodeId(0), Protocol::Mscs, bytes).ok()?;
    Some(match message {
        Message::Heartbeat { number } => alloc::format!("heartbeat {number}"),
        Message::Regroup(state) => state.describe(),
        Message::Request { call, epoch, request } => {
            alloc::format!("call {} of epoch {epoch}: {}", call.number, request.describe())
        }
        Message::Answer { call, answer } => alloc::format!("answer {}: {}", call.number, answer.describe()),
    })
}

/// What it takes to deal with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ClusNet deals with it in the kernel, so the Cluster Service need not get the processor first. (§7.5, §7.6)
    Heartbeat,
    /// A state of regroup.
    Regroup,
    /// A request or an answer.
    Call,
    /// A request that sets up a security context, which is far more work than any other.
    SecurityContext,
}

/// What it takes to deal with a message; none if it is no message.
pub fn kind(bytes: &[u8]) -> Option<Kind> {
    Some(match wire::decode(NodeId(0), Protocol::Mscs, bytes).ok()? {
        Message::Heartbeat { .. } => Kind::Heartbeat,
        Message::Regroup(_) => Kind::Regroup,
        Message::Request { request: rpc::Request::Join(join::Request::SecurityContext), .. } => {
            Kind::SecurityContext
        }
        Message::Request { .. } | Message::Answer { .. } => Kind::Call,
    })
}

#[cfg(test)]
mod tests;
