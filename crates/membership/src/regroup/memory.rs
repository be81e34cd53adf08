//! What a member must not forget, and a life that goes on in the seat of one that is over.
//!
//! A *seat* is a member as a view names it. A node that comes back is another life; if it remembers what its former life has
//! promised and accepted, it speaks for the seat in everything that is about the end of that view, and takes part in nothing else.
//! Its promise says which life goes on, and the next view names that one.

use alloc::vec::Vec;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::message::{Ballot, Decision, Proposal};
use super::{MOST_MEMBERS, MOST_TOLD, Regroup, Timing};
use crate::order::MOST_POSITION;
use crate::view::{Member, View, ViewEpoch};

/// What a member must have on its disk before anybody hears what it said last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    seat: Member,
    view: View,
    cut: u64,
    promised: Ballot,
    accepted: Option<(Ballot, Proposal)>,
    /// For those who missed them. The last is how the view before this one ended.
    decisions: Vec<Decision>,
}

impl Memory {
    /// In whose name it was written.
    pub fn seat(&self) -> Member {
        self.seat
    }

    /// The view that was decided last.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The position that the view before it ended with.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Who held everything up to the cut.
    pub fn holders(&self) -> Vec<NodeId> {
        match self.decisions.last() {
            Some(decision) => decision.proposal.holders.clone(),
            None => self.view.nodes().collect(),
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        let accepted = self.accepted.as_ref().map(|(ballot, _)| *ballot);
        Mark(self.view.epoch, self.seat, self.promised, accepted)
    }

    /// Whether it can have been written by a member: a disk may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        let is_view = self.view.is_sound() && self.view.members.len() <= MOST_MEMBERS;
        if !is_view || !self.view.members.contains(&self.seat) || self.cut > MOST_POSITION {
            return false;
        }
        let may_be_told = |decision: &Decision| {
            let Proposal { view, cut, .. } = &decision.proposal;
            view.is_sound() && view.epoch > ViewEpoch(1) && *cut <= MOST_POSITION
        };
        let seat = self.seat;
        let machine = Regroup::seated(seat, seat, Timing::default(), Time::ZERO, self.view.clone(), self.cut);
        let may_be_accepted = |(ballot, proposal): &(Ballot, Proposal)| {
            *ballot <= self.promised && machine.check_proposal(seat.node, proposal).is_ok()
        };
        self.decisions.iter().all(may_be_told) && self.accepted.iter().all(may_be_accepted)
    }
}

/// Tells whether a memory is as good as another of the same member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(ViewEpoch, Member, Ballot, Option<Ballot>);

impl Regroup {
    /// `life` goes on where its node's former life was when it wrote this.
    pub fn resuming(life: Member, timing: Timing, now: Time, memory: Memory) -> Self {
        let mut machine = Self::seated(memory.seat, life, timing, now, memory.view, memory.cut);
        machine.promised = memory.promised;
        // Each ballot of the former life was promised by itself first.
        machine.highest = memory.promised.number;
        machine.accepted = memory.accepted;
        machine.history = memory.decisions.into();
        machine.begin_to_speak();
        machine
    }

    /// `life` goes on in the seat of a former life that has never said anything in this view.
    pub fn admitted_before(
        seat: Member,
        life: Member,
        timing: Timing,
        now: Time,
        view: View,
        cut: u64,
    ) -> Self {
        let mut machine = Self::seated(seat, life, timing, now, view, cut);
        machine.begin_to_speak();
        machine
    }

    fn begin_to_speak(&mut self) {
        self.raise();
        self.hear_myself();
        self.arrange();
    }

    /// What it must not forget.
    pub fn memory(&self) -> Memory {
        let forgotten = self.history.len().saturating_sub(MOST_TOLD);
        Memory {
            seat: self.me,
            view: self.view.clone(),
            cut: self.base,
            promised: self.promised,
            accepted: self.accepted.clone(),
            decisions: self.history.iter().skip(forgotten).cloned().collect(),
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        let accepted = self.accepted.as_ref().map(|(ballot, _)| *ballot);
        Mark(self.view.epoch, self.me, self.promised, accepted)
    }

    /// Who it is in its view.
    pub fn seat(&self) -> Member {
        self.me
    }

    /// Whether it goes on for a former life, until the next view names its own.
    pub fn is_back(&self) -> bool {
        self.me != self.life
    }

    /// Who it would be in a view: itself, or any of its node's lives since the one that had its seat. All of these had the same
    /// memory.
    pub(super) fn seat_in(&self, view: &View) -> Option<Member> {
        let lives = self.me.incarnation..=self.life.incarnation;
        view.member(self.me.node).filter(|member| lives.contains(&member.incarnation))
    }
}
