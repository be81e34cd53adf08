//! Cleanup one and two: everybody reaches the cut, then everybody installs the view.

use alloc::vec::Vec;

use comb_types::NodeId;

use super::message::{Ballot, Body, Decision};
use super::{Event, MOST_HISTORY, Regroup, Stage, Strength};
use crate::wire::PeerError;

impl Regroup {
    /// The view has ended. Everything that was about its end is over.
    pub(super) fn decided(&mut self, decision: Decision) {
        if self.history.len() == MOST_HISTORY {
            self.history.pop_front();
        }
        let proposal = decision.proposal.clone();
        self.history.push_back(decision);
        let Some(seat) = self.seat_in(&proposal.view) else {
            self.halt(proposal.view.epoch);
            return;
        };
        let is_out = |node: &NodeId| !proposal.view.contains(*node) && !self.is_over(*node);
        self.left = self.view.nodes().filter(is_out).collect();
        self.count_false_alarms(&proposal.view);
        let former = core::mem::replace(&mut self.view, proposal.view.clone());
        // Who was only suspected and stays has been active in this regroup: a detector that still thinks so says it again.
        self.evidence.retain(|node, strength| {
            *strength > Strength::Suspected && former.member(*node) == proposal.view.member(*node)
        });
        self.me = seat;
        self.base = proposal.cut;
        self.stage = Stage::Flushing;
        self.admit.clear();
        self.calm_until = self.now.saturating_add(self.timing.patience);
        self.promised = Ballot::NONE;
        self.accepted = None;
        self.offered = None;
        self.frozen = false;
        self.was_stuck = false;
        self.position = None;
        self.owed = None;
        self.voices.clear();
        self.asked.clear();
        self.attested.clear();
        self.campaign = None;
        self.highest = 0;
        self.attempts = 0;
        self.granted = None;
        self.flushed.clear();
        self.installed.clear();
        self.takeover_at = None;
        self.events.push_back(Event::Decided {
            view: proposal.view,
            cut: proposal.cut,
            holders: proposal.holders,
        });
    }

    fn leader(&self) -> NodeId {
        self.view.tie_breaker
    }

    fn check_leader(&self, from: NodeId) -> Result<(), PeerError> {
        if from == self.leader() {
            Ok(())
        } else {
            Err(PeerError::new(from, "an order from somebody who does not lead"))
        }
    }

    /// This member has reached the cut.
    pub(super) fn reached_cut(&mut self) {
        if self.stage == Stage::Flushing {
            self.stage = Stage::Flushed;
            self.position = self.position.map(|position| position.max(self.base));
            self.send(self.leader(), Body::Flushed);
            if self.campaign.as_ref().is_some_and(|campaign| campaign.is_stuck) {
                // It may have been for want of this.
                self.begin();
            }
        }
    }

    /// To the leader.
    pub(super) fn flushed_at(&mut self, from: NodeId) -> Result<(), PeerError> {
        if self.leader() != self.me.node {
            return Err(PeerError::new(from, "a report to somebody who does not lead"));
        }
        if self.stage >= Stage::Installed {
            self.send(from, Body::Install);
            return Ok(());
        }
        self.flushed.insert(from);
        if self.view.nodes().all(|node| self.flushed.contains(&node)) {
            // The leader is the first: who has installed the view knows that the leader has.
            self.install(self.me.node)?;
            if self.stage >= Stage::Installed {
                self.tell_others(&Body::Install);
            }
        }
        Ok(())
    }

    /// From the leader. A member that has frozen in this view installs it no more: it has promised to acknowledge nothing. Nor does
    /// one that goes on for a former life, who may have frozen.
    pub(super) fn install(&mut self, from: NodeId) -> Result<(), PeerError> {
        self.check_leader(from)?;
        if self.stage == Stage::Flushing {
            return Err(PeerError::new(from, "an order to install what is not flushed"));
        }
        if (self.frozen || self.is_back()) && self.stage < Stage::Installed {
            return Ok(());
        }
        if self.stage == Stage::Flushed {
            self.stage = Stage::Installed;
            self.events.push_back(Event::Installed(self.view.clone()));
            if self.leader() == self.me.node {
                self.tell_decision_to_the_rest();
            }
        }
        self.send(from, Body::Installed);
        Ok(())
    }

    /// To the leader.
    pub(super) fn installed_at(&mut self, from: NodeId) -> Result<(), PeerError> {
        if self.leader() != self.me.node || !self.flushed.contains(&from) {
            return Err(PeerError::new(from, "a report of what was not ordered"));
        }
        if self.stage == Stage::Settled {
            self.send(from, Body::Settle);
            return Ok(());
        }
        self.installed.insert(from);
        if self.view.nodes().all(|node| self.installed.contains(&node)) {
            self.tell_others(&Body::Settle);
            self.settle(self.me.node)?;
        }
        Ok(())
    }

    /// From the leader.
    pub(super) fn settle(&mut self, from: NodeId) -> Result<(), PeerError> {
        self.check_leader(from)?;
        if self.stage < Stage::Installed {
            return Err(PeerError::new(from, "an order to settle what is not installed"));
        }
        if self.stage == Stage::Installed {
            self.stage = Stage::Settled;
            self.events.push_back(Event::Settled(self.view.clone()));
            self.raise();
        }
        Ok(())
    }

    pub(super) fn tell_others(&mut self, body: &Body) {
        let members: Vec<_> = self.view.nodes().filter(|node| *node != self.me.node).collect();
        members.into_iter().for_each(|node| self.send(node, body.clone()));
    }

    /// Who waits asks again; the leader tells the decision to whom it has not heard of.
    pub(super) fn resend_cleanup(&mut self) {
        let leads = self.leader() == self.me.node;
        match self.stage {
            Stage::Flushed if !leads => self.send(self.leader(), Body::Flushed),
            Stage::Installed if !leads => self.send(self.leader(), Body::Installed),
            Stage::Flushing | Stage::Flushed if leads => self.tell_decision_to_members(),
            _ => {}
        }
    }
}
