//! All detectors of one node as one machine: gossip, buddies, and what the environment shows, weighed together.
//!
//! What one of them says the others hear: a failure that the buddies agree on is spread by gossip, and a version that rises
//! speaks against a broken way.

use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{NodeId, Time};

use super::buddy::{self, Buddy};
use super::{Change, Condition, Evidence, Kind, Source, Verdict, verdict};
use crate::state::{self, State, WriteError};
use crate::transmit::Transmit;
use crate::view::Member;
use crate::wire::{self, PeerError, Protocol};

/// What comes in.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message of [`Protocol::State`] or [`Protocol::Detect`].
    Message {
        /// Whence, as the network says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// Those that watch each other are these now: see [`buddy::Input::Members`].
    Members {
        /// In any order.
        members: &'a [Member],
        /// Who watches all.
        hub: Option<NodeId>,
        /// How much longer those may be silent who are new.
        grace: Duration,
    },
    /// Something outside of the protocols was seen.
    Evidence(Evidence),
    /// It is so no more: see [`verdict::Input::Over`].
    Over {
        /// Of whom.
        subject: Member,
        /// What it was.
        kind: Kind,
        /// Who had seen it.
        source: Source,
    },
    /// It takes part in something that those who cannot reach it could not.
    Alive(Member),
    /// The time of [`Lookout::next_timeout`] has come.
    Timeout,
}

/// What is to be known outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// What the state service says.
    State(state::Event),
    /// What all of them together make of a life of a node.
    Condition(Change),
}

/// The detectors of one node.
#[derive(Clone, Debug)]
pub struct Lookout {
    state: State,
    /// None where gossip does alone.
    buddy: Option<Buddy>,
    verdict: Verdict,
}

impl Lookout {
    /// Nothing is known yet of others than ourselves.
    pub fn new(state: state::Config, buddy: Option<buddy::Config>, now: Time) -> Self {
        let buddy = buddy.map(|config| Buddy::new(config, now));
        Self { state: State::new(state, now), buddy, verdict: Verdict::new() }
    }

    /// Takes one input. Then ask [`Lookout::poll_event`] until there is nothing more: what it says may make messages. An error
    /// names the peer that sent what it may not; nothing has changed.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        match input {
            Input::Message { from, bytes } => match (wire::protocol(from, bytes)?, &mut self.buddy) {
                (Protocol::Detect, Some(buddy)) => {
                    return buddy.handle(now, buddy::Input::Message { from, bytes });
                }
                _ => return self.state.handle(now, state::Input::Message { from, bytes }),
            },
            Input::Members { members, hub, grace } => {
                if let Some(buddy) = &mut self.buddy {
                    buddy.handle(now, buddy::Input::Members { members, hub, grace })?;
                }
            }
            Input::Evidence(evidence) => self.verdict.handle(now, verdict::Input::Evidence(evidence)),
            Input::Over { subject, kind, source } => {
                self.verdict.handle(now, verdict::Input::Over { subject, kind, source });
            }
            Input::Alive(member) => {
                self.verdict.handle(now, verdict::Input::Answered(member));
                if let Some(buddy) = &mut self.buddy {
                    buddy.handle(now, buddy::Input::Alive(member))?;
                }
            }
            Input::Timeout => {
                self.state.handle(now, state::Input::Timeout)?;
                if let Some(buddy) = &mut self.buddy {
                    buddy.handle(now, buddy::Input::Timeout)?;
                }
                self.verdict.handle(now, verdict::Input::Timeout);
                self.tell_who_is_heard(now);
            }
        }
        Ok(())
    }

    /// The next thing to be known. Ask until there is none.
    pub fn poll_event(&mut self, now: Time) -> Option<Event> {
        loop {
            if let Some(event) = self.state.poll_event() {
                self.heard_of_state(now, &event);
                return Some(Event::State(event));
            }
            if let Some(event) = self.buddy.as_mut().and_then(Buddy::poll_event) {
                let input = match event {
                    buddy::Event::Evidence(evidence) => verdict::Input::Evidence(evidence),
                    buddy::Event::Answered(member) => verdict::Input::Answered(member),
                };
                self.verdict.handle(now, input);
                continue;
            }
            let change = self.verdict.poll_event()?;
            match change.condition {
                Condition::Failed => self.state.fail(now, change.subject),
                Condition::Fenced => self.state.fence(now, change.subject),
                _ => {}
            }
            return Some(Event::Condition(change));
        }
    }

    /// The next message to be sent. Ask until there is none.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.state.poll_transmit().or_else(|| self.buddy.as_mut().and_then(Buddy::poll_transmit))
    }

    /// When [`Lookout::handle`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        let buddy = self.buddy.as_ref().and_then(Buddy::next_timeout);
        [self.state.next_timeout(), buddy, self.verdict.next_timeout()].into_iter().flatten().min()
    }

    /// What every node says of itself.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Writes an entry of this node: see [`State::write`].
    pub fn write(&mut self, now: Time, key: &str, value: Option<Vec<u8>>) -> Result<(), WriteError> {
        self.state.write(now, key, value)
    }

    /// Who belongs to this node's group: see [`State::set_jurors`].
    pub fn set_jurors(&mut self, members: &[Member]) {
        self.state.set_jurors(members);
    }

    /// Those that this node pings.
    pub fn watched(&self) -> impl Iterator<Item = Member> {
        self.buddy.iter().flat_map(Buddy::watched)
    }

    /// What is to be said of a life of a node.
    pub fn condition(&self, member: Member) -> Condition {
        self.verdict.condition(member)
    }

    /// Whether we ourselves get no answers from it, whatever else is so.
    pub fn gets_no_answer(&self, member: Member) -> bool {
        self.verdict.gets_no_answer(member)
    }

    /// Those against whom something speaks, and what is to be said of them.
    pub fn doubted(&self) -> impl Iterator<Item = Change> {
        let change = |subject| Change { subject, condition: self.verdict.condition(subject) };
        self.verdict.subjects().map(change)
    }

    fn is_observed(&self, member: Member) -> bool {
        self.buddy.as_ref().is_some_and(|buddy| buddy.is_in_ring(member))
    }

    /// Of those against whom something speaks, gossip may have brought a later version a moment ago.
    fn tell_who_is_heard(&mut self, now: Time) {
        let subjects: Vec<_> = self.verdict.subjects().collect();
        for subject in
            subjects.into_iter().filter(|&subject| self.state.member(subject.node) == Some(subject))
        {
            let heard_at = self.state.heard_of(subject.node);
            if heard_at.is_some_and(|at| now.since(at) < self.state.threshold() / 2) {
                self.verdict.handle(now, verdict::Input::Heard(subject));
            }
        }
    }

    fn heard_of_state(&mut self, now: Time, event: &state::Event) {
        let evidence =
            |subject, kind| verdict::Input::Evidence(Evidence::new(subject, kind, Source::Ourselves));
        let input = match *event {
            // Its observers would know sooner. Gossip alone can only say that enough others agree.
            state::Event::Suspected(member) | state::Event::Lost(member) if self.is_observed(member) => {
                return;
            }
            state::Event::Suspected(member) | state::Event::Lost(member) => evidence(member, Kind::Silence),
            state::Event::Cleared(member) => verdict::Input::Heard(member),
            state::Event::Failed(member) => evidence(member, Kind::Gossip),
            state::Event::Fenced(member) => evidence(member, Kind::Fenced),
            state::Event::Refuted(member) => verdict::Input::Refuted(member),
            state::Event::Joined(_) | state::Event::ZoneJoined { .. } | state::Event::Entry { .. } => return,
        };
        self.verdict.handle(now, input);
    }
}

#[cfg(test)]
mod tests;
