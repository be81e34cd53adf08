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
//! Nothing here is hardened against a peer that lies within the rules: the original trusted its nodes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::transmit::Transmit;
use crate::view::ViewEpoch;
use crate::wire::{self, PeerError, Protocol};
use heartbeat::Heartbeats;
use node_set::MOST_NODES;
use regroup::{Outcome, Regroup};

mod closing;
mod heartbeat;
mod node_set;
mod regroup;
pub mod timing;

pub use node_set::NodeSet;
pub use regroup::Phase;

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
    /// This node must not go on, and does nothing any more.
    Halted(&'static str),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Message {
    Heartbeat { number: u64 },
    Regroup(regroup::State),
}

/// One node of the Cluster Service.
#[derive(Debug)]
pub struct Mscs {
    me: NodeId,
    heartbeats: Heartbeats,
    regroup: Regroup,
    is_halted: bool,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Mscs {
    /// A member of a cluster that runs. All its `members` start with the same ones, of which `me` is one.
    pub fn member(now: Time, me: NodeId, members: NodeSet) -> Self {
        assert!(members.contains(me), "a member is one of the members");
        let tie_breaker = members.first().unwrap_or(me);
        let mut heartbeats = Heartbeats::new(now);
        let mut others = members;
        others.remove(me);
        heartbeats.watch(now, others);
        Self {
            me,
            heartbeats,
            regroup: Regroup::new(now, me, members, 1, tie_breaker),
            is_halted: false,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Who belongs to the cluster, as far as this node knows.
    pub fn members(&self) -> NodeSet {
        self.regroup.members()
    }

    /// By how many regroups the members came to be.
    pub fn epoch(&self) -> ViewEpoch {
        ViewEpoch(self.regroup.epoch())
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
        };
        self.follow_regroup(now);
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
        let timeouts = [Some(self.heartbeats.next_timeout()), self.regroup.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let message = wire::decode(from, Protocol::Mscs, bytes)?;
        if from == self.me || from.0 >= MOST_NODES {
            return Err(PeerError::new(from, "a message from no other node"));
        }
        match message {
            Message::Heartbeat { .. } => self.heartbeats.heard(now, from),
            // ClusNet filters what comes from nodes that are no members. (§7.7.2, phase 4)
            Message::Regroup(state) if self.members().contains(from) => {
                self.regroup.receive(now, from, state).map_err(|rule| PeerError::new(from, rule))?;
            }
            Message::Regroup(_) => {}
        }
        Ok(())
    }

    fn timeout(&mut self, now: Time) {
        if let Some(number) = self.heartbeats.due(now) {
            for node in self.members().iter().filter(|node| *node != self.me).collect::<Vec<_>>() {
                self.send(node, &Message::Heartbeat { number });
            }
        }
        if self.heartbeats.is_check(now) {
            for node in self.heartbeats.newly_suspected(now) {
                self.events.push_back(Event::Suspected(node));
                self.regroup.suspect(now, node);
            }
        }
        self.regroup.timeout(now);
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
                Outcome::Installed { epoch, members, removed } => {
                    self.watch_others(now);
                    Event::Installed { epoch: ViewEpoch(epoch), members, removed }
                }
                Outcome::Halted(why) => {
                    self.is_halted = true;
                    Event::Halted(why)
                }
            };
            self.events.push_back(event);
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
    })
}

/// Whether ClusNet deals with it in the kernel, so that the Cluster Service need not get the processor first. (§7.5)
pub fn is_for_kernel(bytes: &[u8]) -> bool {
    matches!(wire::decode(NodeId(0), Protocol::Mscs, bytes), Ok(Message::Heartbeat { .. }))
}
