//! What a member makes of a decision that it is told, and what it tells others.
//!
//! In a small view every member sees who accepts what, and counts itself. In a large one the coordinator of a ballot is believed
//! when it names a quorum that this member is not wrongly part of. Whoever else tells a decision, and whoever tells this member that it is out, is one voice: two that say the same are believed, and one if nobody
//! else can be heard, or if this member has found out that it has no quorum to go on with. So no single peer that lies makes a
//! healthy member halt.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use comb_types::NodeId;

use super::message::{Body, Decision, MOST_MEMBERS, Message};
use super::{Event, MOST_THAT_COUNT, MOST_TOLD, Regroup, Stage};
use crate::quorum::judge;
use crate::view::ViewEpoch;
use crate::wire::PeerError;

impl Regroup {
    pub(super) fn told_decision(&mut self, from: NodeId, decision: Decision) -> Result<(), PeerError> {
        self.check_decision(from, &decision)?;
        let stays = self.seat_in(&decision.proposal.view).is_some();
        if stays && decision.ballot.node == from && !self.counts_itself() {
            self.decided(decision);
            return Ok(());
        }
        let is_new = self.voices.insert(from, decision).is_none();
        let ended = self.view.epoch;
        self.reconsider_voices();
        if is_new && !stays && ended == self.view.epoch {
            self.ask_for_voices();
        }
        Ok(())
    }

    /// Whether the view is small enough for every member to see the quorum.
    pub(super) fn counts_itself(&self) -> bool {
        self.view.members.len() <= MOST_THAT_COUNT
    }

    /// Whether this member has seen a quorum accept it. Who tells a decision that it had part in has accepted it.
    fn is_counted(&self, decision: &Decision) -> bool {
        let (ballot, digest) = (decision.ballot, decision.proposal.digest());
        let tells = |node: &NodeId| {
            let told = self.voices.get(node).is_some_and(|told| told == decision);
            told && decision.accepters.contains(node)
        };
        let i_did = self
            .accepted
            .as_ref()
            .is_some_and(|(accepted, proposal)| *accepted == ballot && *proposal == decision.proposal);
        let has_accepted = |node: &NodeId| {
            (*node == self.me.node && i_did)
                || tells(node)
                || self.attested.get(node) == Some(&(ballot, digest))
        };
        let accepters: BTreeSet<_> = self.view.nodes().filter(has_accepted).collect();
        self.shares(&decision.basis) && judge(&self.view, &accepters, &decision.basis).is_quorum()
    }

    fn check_decision(&self, from: NodeId, decision: &Decision) -> Result<(), PeerError> {
        let refuse = |rule| Err(PeerError::new(from, rule));
        self.check_proposal(from, &decision.proposal)?;
        if decision.accepters.len() > MOST_MEMBERS || !self.view.contains(decision.ballot.node) {
            return refuse("a decision of nobody");
        }
        let accepters: BTreeSet<_> = decision.accepters.iter().copied().collect();
        if !judge(&self.view, &accepters, &decision.basis).is_quorum() {
            return refuse("a decision without a quorum");
        }
        let accepted = self.accepted.as_ref();
        let i_did = accepted
            .is_some_and(|(ballot, proposal)| *ballot >= decision.ballot && *proposal == decision.proposal);
        if accepters.contains(&self.me.node) && !i_did {
            return refuse("a decision in my name that I had no part in");
        }
        Ok(())
    }

    /// Believes what enough members say.
    pub(super) fn reconsider_voices(&mut self) {
        let others = || self.view.nodes().filter(|node| *node != self.me.node);
        let says = |node: &NodeId| self.voices.get(node).map(|decision| &decision.proposal);
        let is_stuck = self.campaign.as_ref().is_some_and(|campaign| campaign.is_stuck);
        let believed = self.voices.iter().find(|(_, decision)| {
            let agree = others().filter(|node| says(node) == Some(&decision.proposal)).count();
            let all_speak = others().all(|node| says(&node).is_some() || self.evidence.contains_key(&node));
            let is_checked = !decision.basis.resource || self.granted == Some(false);
            let is_undisputed = agree >= 1 && agree == self.voices.len();
            is_checked
                && (agree >= 2 || self.is_counted(decision) || (is_undisputed && (all_speak || is_stuck)))
        });
        if let Some((_, decision)) = believed {
            let decision = decision.clone();
            self.decided(decision);
        }
    }

    /// Asks the others whether it is true.
    pub(super) fn ask_for_voices(&mut self) {
        if self.voices.is_empty() {
            return;
        }
        if self.voices.values().any(|decision| decision.basis.resource) && self.granted.is_none() {
            self.events.push_back(Event::Acquire { epoch: self.view.epoch, seat: self.me });
        }
        let silent =
            self.view.nodes().filter(|node| *node != self.me.node && !self.voices.contains_key(node));
        let silent: Vec<_> = silent.collect();
        silent.into_iter().for_each(|node| self.send(node, Body::Ask));
    }

    /// Somebody is in a view that has ended.
    pub(super) fn tell_how_it_ended(&mut self, message: &Message) {
        let wants_to_know = matches!(
            message.body,
            Body::Alarm { .. }
                | Body::Prepare { .. }
                | Body::Propose { .. }
                | Body::Ask
                | Body::Flushed
                | Body::Installed
        );
        if !wants_to_know {
            return;
        }
        let is_known = self.history.iter().any(|decision| ended(decision) == message.epoch);
        if !is_known {
            self.tell_that_it_is_over(message);
            return;
        }
        let missed = self.history.iter().filter(|decision| ended(decision) >= message.epoch);
        let may_know = |decision: &&Decision| {
            // Who is pruned may hold what others still fetch, and stays until they have it.
            let view = &decision.proposal.view;
            // A later life may be there to go on for this one.
            view.member(message.sender.node).is_some_and(|member| member >= message.sender)
                || view.epoch < self.view.epoch
                || self.stage >= Stage::Installed
        };
        let told: Vec<_> = missed.filter(may_know).take(MOST_TOLD).cloned().collect();
        for decision in told {
            self.send_about(ended(&decision), message.sender.node, Body::Decide(decision));
        }
        // What it was asked in this view it could not answer.
        self.ask_for_promise(message.sender.node);
    }

    /// The members that knew how it ended may all have left since.
    fn tell_that_it_is_over(&mut self, message: &Message) {
        let is_out = self.view.member(message.sender.node) != Some(message.sender);
        if is_out && self.stage >= Stage::Installed {
            let by = self.view.epoch;
            self.send_about(message.epoch, message.sender.node, Body::Gone { by });
        }
    }

    /// Somebody, perhaps a life that this member does not know, says that the group is far ahead. That cannot be checked; but a
    /// member that has no quorum loses nothing by coming in anew.
    pub(super) fn gone(&mut self, from: NodeId, by: ViewEpoch) -> Result<(), PeerError> {
        if by <= self.view.epoch {
            return Err(PeerError::new(from, "an end that comes before the beginning"));
        }
        if self.campaign.as_ref().is_some_and(|campaign| campaign.is_stuck) {
            self.halt(by);
        }
        Ok(())
    }

    /// Tells the last decision to those who stay.
    pub(super) fn tell_decision_to_members(&mut self) {
        let Some(decision) = self.history.back() else { return };
        let is_asked = |node: &NodeId| *node != self.me.node && !self.flushed.contains(node);
        let members: Vec<_> = decision.proposal.view.nodes().filter(is_asked).collect();
        let (epoch, body) = (ended(decision), Body::Decide(decision.clone()));
        members.into_iter().for_each(|node| self.send_about(epoch, node, body.clone()));
    }

    /// Tells it to those who do not.
    pub(super) fn tell_decision_to_the_rest(&mut self) {
        let Some(decision) = self.history.back() else { return };
        let (epoch, body) = (ended(decision), Body::Decide(decision.clone()));
        for node in core::mem::take(&mut self.left) {
            self.send_about(epoch, node, body.clone());
        }
    }
}

/// Which view a decision ended.
fn ended(decision: &Decision) -> ViewEpoch {
    ViewEpoch(decision.proposal.view.epoch.0 - 1)
}
