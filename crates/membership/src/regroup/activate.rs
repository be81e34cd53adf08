//! Activate: everybody who has a reason tells it, and a coordinator gathers promises.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use comb_types::{NodeId, Time};

use super::message::{Ballot, Body, Promise, Proposal};
use super::{Event, MOST_BALLOTS_AHEAD, MOST_MEMBERS, Regroup, Stage, Strength, Stuck};
use crate::order::MOST_POSITION;
use crate::quorum::{Basis, judge};
use crate::view::{Member, ViewEpoch};
use crate::wire::PeerError;

/// A ballot, as its coordinator sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Campaign {
    pub(super) ballot: Ballot,
    pub(super) promises: BTreeMap<NodeId, Promise>,
    /// Nobody waits longer for those who do not answer. None when that time is over.
    pub(super) until: Option<Time>,
    /// Whether people were told that it cannot go on.
    pub(super) is_stuck: bool,
    /// What was proposed, on what basis, and who has accepted it.
    pub(super) proposed: Option<(Proposal, Basis, BTreeSet<NodeId>)>,
}

impl Regroup {
    /// There may be a reason to end the view: lead, or tell who leads.
    pub(super) fn raise(&mut self) {
        let is_urgent = self.evidence.values().any(|strength| *strength >= Strength::Failed);
        let is_planned = self.evidence.is_empty() && !self.admit.is_empty();
        let may_begin = match () {
            () if is_urgent || self.is_back() => true,
            () if is_planned => self.stage == Stage::Settled,
            () => !self.evidence.is_empty() && self.now >= self.calm_until,
        };
        if !may_begin || self.is_led() || self.campaign.is_some() || self.is_leaving {
            return;
        }
        let candidate = self.view.nodes().find(|node| !self.evidence.contains_key(node));
        match candidate {
            Some(node) if node != self.me.node => {
                let body = Body::Alarm {
                    evidence: self.evidence_to_tell(),
                    admit: self.admit.iter().copied().chain(self.is_back().then_some(self.life)).collect(),
                };
                self.send(node, body);
            }
            _ => self.begin(),
        }
    }

    /// Whether another's ballot is under way here. Nobody waits for a coordinator that has failed.
    fn is_led(&self) -> bool {
        self.frozen && self.evidence.get(&self.promised.node) < Some(&Strength::Failed)
    }

    /// A member has a reason.
    pub(super) fn alarmed(
        &mut self,
        from: NodeId,
        evidence: &[(NodeId, Strength)],
        admit: &[Member],
    ) -> Result<(), PeerError> {
        if evidence.len() > MOST_MEMBERS || admit.len() > MOST_MEMBERS {
            return Err(PeerError::new(from, "an alarm about more than there can be"));
        }
        if evidence.iter().any(|(node, _)| *node == from || !self.view.contains(*node)) {
            return Err(PeerError::new(from, "an alarm about somebody who is not a member, or itself"));
        }
        // Who has come back tells in its promise which life goes on: nobody waits for the cleanup of a view that it is out of.
        let (own, others): (Vec<Member>, Vec<_>) = admit.iter().partition(|member| member.node == from);
        self.note_wishes(&others);
        let is_back = own.iter().any(|life| self.view.member(from).is_some_and(|seat| seat < *life));
        let heeded: Vec<_> = evidence.iter().filter(|(node, _)| self.accuses(from, *node)).collect();
        let is_urgent = is_back || heeded.iter().any(|(_, strength)| *strength >= Strength::Failed);
        let may_begin = is_urgent || (!heeded.is_empty() && self.now >= self.calm_until);
        if may_begin && !self.is_led() && self.campaign.is_none() {
            self.begin();
        } else {
            self.raise();
        }
        Ok(())
    }

    pub(super) fn wish(&mut self, members: &[Member]) {
        self.note_wishes(members);
        self.raise();
    }

    /// A member is in the way of a later life of its node until it is known here to have failed: anybody could name such a life.
    fn note_wishes(&mut self, members: &[Member]) {
        for &member in members {
            let has_failed = self.evidence.get(&member.node) >= Some(&Strength::Failed);
            let may_follow = |now: Member| now.incarnation < member.incarnation && has_failed;
            let is_new = self.view.member(member.node).is_none_or(may_follow);
            if is_new && self.admit.len() < MOST_MEMBERS {
                self.admit.insert(member);
            }
        }
    }

    /// What this member tells others about whom it does not hear. A proof of death counts only where the view is installed:
    /// before, members of it may have gone on from the one before. (See [`Strength::Fenced`].)
    fn evidence_to_tell(&self) -> Vec<(NodeId, Strength)> {
        let most = if self.stage >= Stage::Installed { Strength::Ended } else { Strength::Failed };
        self.evidence.iter().map(|(node, strength)| (*node, (*strength).min(most))).collect()
    }

    /// Begins a ballot of its own.
    pub(super) fn begin(&mut self) {
        self.highest = self.highest.max(self.promised.number).saturating_add(1);
        let ballot = Ballot { number: self.highest, node: self.me.node };
        self.campaign = Some(Campaign {
            ballot,
            promises: BTreeMap::new(),
            until: Some(self.now.saturating_add(self.timing.activate)),
            is_stuck: false,
            proposed: None,
        });
        self.send_prepare(ballot);
    }

    fn send_prepare(&mut self, ballot: Ballot) {
        let Some(campaign) = &self.campaign else { return };
        let is_asked = |node: &NodeId| !campaign.promises.contains_key(node) && !self.is_over(*node);
        let asked: Vec<_> = self.view.nodes().filter(is_asked).collect();
        for node in asked {
            self.send(node, Body::Prepare { ballot });
        }
    }

    /// Once more, of one that may not have understood.
    pub(super) fn ask_for_promise(&mut self, node: NodeId) {
        let asks = |it: &&Campaign| it.proposed.is_none() && !it.promises.contains_key(&node);
        if let Some(campaign) = self.campaign.as_ref().filter(asks)
            && self.view.contains(node)
        {
            self.send(node, Body::Prepare { ballot: campaign.ballot });
        }
    }

    /// A coordinator wants a promise.
    pub(super) fn prepare(&mut self, from: NodeId, ballot: Ballot) -> Result<(), PeerError> {
        self.check_ballot(from, ballot)?;
        if ballot < self.promised {
            self.send(from, Body::Refuse { promised: self.promised });
            return Ok(());
        }
        let is_past = self.accepted.as_ref().is_some_and(|(accepted, _)| *accepted == ballot);
        if is_past {
            // It came late or twice: what it asks for was promised, and used.
            return Ok(());
        }
        self.follow_ballot(ballot);
        self.owed = Some(ballot);
        self.answer();
        Ok(())
    }

    pub(super) fn check_ballot(&self, from: NodeId, ballot: Ballot) -> Result<(), PeerError> {
        if ballot.node != from {
            return Err(PeerError::new(from, "a ballot of another coordinator"));
        }
        self.check_number(from, ballot.number)
    }

    fn check_number(&self, from: NodeId, number: u32) -> Result<(), PeerError> {
        if number == 0 || number > self.highest.saturating_add(MOST_BALLOTS_AHEAD) {
            return Err(PeerError::new(from, "a ballot out of all proportion"));
        }
        Ok(())
    }

    /// From now on nothing is acknowledged in this view, and no lower ballot is followed.
    pub(super) fn follow_ballot(&mut self, ballot: Ballot) {
        if ballot > self.promised {
            self.promised = ballot;
            self.highest = self.highest.max(ballot.number);
            self.takeover_at = None;
            self.offered = None;
            if self.campaign.as_ref().is_some_and(|campaign| campaign.ballot < ballot) {
                self.campaign = None;
            }
        }
        if !self.frozen {
            self.frozen = true;
            self.events.push_back(Event::Freeze { epoch: self.view.epoch });
        }
    }

    pub(super) fn positioned(&mut self, position: u64) {
        if !self.frozen {
            return;
        }
        let is_first = self.position.is_none();
        self.position = Some(self.position.map_or(position, |before| before.max(position)));
        self.answer();
        if is_first {
            self.reach();
        }
        self.accept_if_reached();
    }

    fn answer(&mut self) {
        let (Some(ballot), Some(position)) = (self.owed, self.position) else { return };
        self.owed = None;
        let promise = Promise {
            position,
            accepted: self.accepted.clone(),
            evidence: self.evidence_to_tell(),
            installed: self.stage >= Stage::Installed,
            life: self.life,
        };
        self.send(ballot.node, Body::Promise { ballot, promise });
    }

    /// Somebody is proven dead: it is not there any more, though it may have promised. And the promise that this member gave last says
    /// so now, unless it was used already.
    pub(super) fn proven(&mut self, dead: NodeId) {
        if self.cannot_be_accepted() {
            self.begin();
        } else if let Some(campaign) = self.campaign.as_mut().filter(|campaign| campaign.proposed.is_none()) {
            campaign.promises.remove(&dead);
        }
        let is_past = self.accepted.as_ref().is_some_and(|(accepted, _)| *accepted == self.promised);
        if self.frozen && self.promised != Ballot::NONE && !is_past {
            self.owed = Some(self.promised);
            self.answer();
        }
    }

    pub(super) fn promise(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        promise: Promise,
    ) -> Result<(), PeerError> {
        if ballot.node != self.me.node || ballot.number > self.highest {
            return Err(PeerError::new(from, "a promise for a ballot that never was"));
        }
        if promise.evidence.len() > MOST_MEMBERS || promise.evidence.iter().any(|(node, _)| *node == from) {
            return Err(PeerError::new(from, "a promise with impossible evidence"));
        }
        if promise.position > MOST_POSITION {
            return Err(PeerError::new(from, "a promise of no position"));
        }
        let is_life = |seat: Member| promise.life.node == from && promise.life >= seat;
        if !self.view.member(from).is_some_and(is_life) {
            return Err(PeerError::new(from, "a promise for a life that is over"));
        }
        if let Some((accepted, proposal)) = &promise.accepted {
            if *accepted >= ballot {
                return Err(PeerError::new(from, "a promise that was broken before it was given"));
            }
            self.check_proposal(from, proposal)?;
        }
        let Some(campaign) = &mut self.campaign else { return Ok(()) };
        if campaign.ballot == ballot && campaign.proposed.is_none() {
            campaign.promises.insert(from, promise);
            self.gathered();
        }
        Ok(())
    }

    /// Somebody promised a higher ballot.
    pub(super) fn refused(&mut self, from: NodeId, promised: Ballot) -> Result<(), PeerError> {
        self.check_number(from, promised.number)?;
        self.highest = self.highest.max(promised.number);
        if self.campaign.as_ref().is_some_and(|campaign| campaign.ballot < promised) {
            self.campaign = None;
            self.takeover_at = None;
            self.attempts += 1;
        }
        Ok(())
    }

    /// Goes on to closing as soon as nobody is worth waiting for.
    pub(super) fn gathered(&mut self) {
        let Some(campaign) = &self.campaign else { return };
        if campaign.proposed.is_some() {
            return;
        }
        let is_awaited = |node| !campaign.promises.contains_key(&node) && !self.is_given_up(campaign, node);
        let is_over = campaign.until.is_none() || !self.view.nodes().any(is_awaited);
        if is_over {
            self.closing();
        }
    }

    /// Early exit: nobody waits for whom this member knows to have failed, or most members do not hear.
    fn is_given_up(&self, campaign: &Campaign, node: NodeId) -> bool {
        let is_unheard = |promise: &Promise| promise.evidence.iter().any(|(unheard, _)| *unheard == node);
        let complaints = campaign.promises.values().filter(|promise| is_unheard(promise)).count();
        self.evidence.get(&node).is_some_and(|strength| *strength >= Strength::Failed)
            || 2 * complaints > self.view.members.len()
    }

    /// Whether too few are left who may accept what was proposed. On the proof of who is not, another ballot may come to an end.
    fn cannot_be_accepted(&self) -> bool {
        let Some((_, basis, accepters)) = self.campaign.as_ref().and_then(|it| it.proposed.as_ref()) else {
            return false;
        };
        let may_accept = self.view.nodes().filter(|node| accepters.contains(node) || !self.is_over(*node));
        !judge(&self.view, &may_accept.collect(), basis).is_quorum()
    }

    pub(super) fn campaign_is_over_time(&mut self) {
        let Some(campaign) = &mut self.campaign else { return };
        if campaign.proposed.is_some() {
            // Too few accept it. Whoever is there now shall say so.
            self.attempts += 1;
            self.begin();
        } else {
            campaign.until = None;
            self.gathered();
        }
    }

    pub(super) fn acquired(&mut self, epoch: ViewEpoch, granted: bool) {
        if epoch == self.view.epoch {
            self.granted = Some(granted);
            if granted {
                // Who says that the other one has it does not say the truth.
                self.voices.clear();
            }
            self.gathered();
            self.reconsider_voices();
        }
    }

    pub(super) fn stuck(&mut self, reason: Stuck) {
        if let Some(campaign) = &mut self.campaign
            && !campaign.is_stuck
        {
            campaign.is_stuck = true;
            self.was_stuck = true;
            self.events.push_back(Event::Stuck { reason });
            self.reconsider_voices();
        }
    }

    pub(super) fn resend_campaign(&mut self) {
        let Some(campaign) = &self.campaign else { return };
        let (ballot, is_stuck) = (campaign.ballot, campaign.is_stuck);
        match &campaign.proposed {
            None => {
                self.send_prepare(ballot);
                // Too few are left of this view. A later life of one that is not may know that the group has gone on.
                let ended = self.view.nodes().filter(|node| is_stuck && self.is_over(*node));
                let ended: Vec<_> = ended.collect();
                ended.into_iter().for_each(|node| self.send(node, Body::Ask));
            }
            Some((proposal, basis, accepters)) => {
                let body = Body::Propose { ballot, proposal: proposal.clone(), basis: basis.clone() };
                let silent = campaign.promises.keys().filter(|node| !accepters.contains(node));
                let silent: Vec<_> = silent.copied().collect();
                silent.into_iter().for_each(|node| self.send(node, body.clone()));
            }
        }
    }
}
