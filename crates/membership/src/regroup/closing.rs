//! Closing and pruning: may this part go on, with whom, and what a quorum makes of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use comb_types::NodeId;

use super::activate::Campaign;
use super::message::{Ballot, Body, Decision, MOST_MEMBERS, Promise, Proposal};
use super::pruning::{BrokenLink, prune};
use super::{Event, Regroup, Stage, Strength, Stuck};
use crate::order::MOST_POSITION;
use crate::quorum::{Basis, Presence, judge};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::PeerError;

impl Regroup {
    /// Nobody else is waited for: go on with those who have promised, if they may.
    pub(super) fn closing(&mut self) {
        let Some(campaign) = &self.campaign else { return };
        let present: BTreeSet<_> = campaign.promises.keys().copied().collect();
        let basis = Basis { fenced: self.dead_for_all(campaign), resource: self.granted == Some(true) };
        let standing = judge(&self.view, &present, &basis);
        let lost = campaign.promises.values().all(|promise| promise.position < self.base);
        match standing {
            Presence::NeedsResource if self.granted.is_none() => {
                self.events.push_back(Event::Acquire { epoch: self.view.epoch, seat: self.me });
            }
            Presence::NeedsResource => self.stuck(Stuck::ResourceTaken),
            Presence::Minority => {
                self.stuck(Stuck::NoQuorum { here: present.len(), members: self.view.members.len() });
            }
            _ if lost => self.stuck(Stuck::CutLost { cut: self.base }),
            _ => self.put_forward(basis),
        }
    }

    /// Proposes what may have been decided already, or else what this coordinator makes of the promises.
    fn put_forward(&mut self, basis: Basis) {
        let Some(campaign) = &self.campaign else { return };
        let accepted = campaign.promises.values().filter_map(|promise| promise.accepted.as_ref());
        let before = accepted.max_by_key(|(ballot, _)| *ballot).map(|(_, proposal)| proposal.clone());
        let proposal = before.unwrap_or_else(|| self.successor(campaign));
        let until = self.now.saturating_add(self.timing.activate);
        let Some(campaign) = &mut self.campaign else { return };
        campaign.until = Some(until);
        campaign.proposed = Some((proposal, basis, BTreeSet::new()));
        self.resend_campaign();
    }

    /// The highest position that may have been committed: those who promised and hold it, with all who are silent, are more than half.
    /// What lies beyond was promised to nobody; were it kept, its only holder could die before anybody has fetched it, and with it
    /// the group.
    fn cut(&self, campaign: &Campaign) -> u64 {
        let mut positions: Vec<_> = campaign.promises.values().map(|promise| promise.position).collect();
        positions.sort_unstable_by(|one, other| other.cmp(one));
        let members = self.view.members.len();
        let silent = members - positions.len();
        let holders = (members / 2 + 1).saturating_sub(silent).max(1);
        positions.get(holders - 1).map_or(self.base, |position| self.base.max(*position))
    }

    fn successor(&self, campaign: &Campaign) -> Proposal {
        // Where there were too few, most did not hear each other, and who hears whom again is not known yet. A link that is still
        // broken will be a reason for the view after this one.
        let broken = if self.was_stuck { BTreeSet::new() } else { broken_links(campaign, self.me.node) };
        let pruned = prune(&broken, self.me.node);
        let stays = campaign.promises.iter().filter(|(node, _)| !pruned.contains(node));
        let mut members: Vec<Member> = stays.map(|(_, promise)| promise.life).collect();
        for &member in self.admit.iter().rev() {
            // Of two lives of one node the later counts: it comes first here.
            if members.len() < MOST_MEMBERS && members.iter().all(|there| there.node != member.node) {
                members.push(member);
            }
        }
        members.sort_unstable();
        let cut = self.cut(campaign);
        let holds_all = |(_, promise): &(&NodeId, &Promise)| promise.position >= cut;
        let holders = campaign.promises.iter().filter(holds_all).map(|(node, _)| *node).collect();
        let epoch = ViewEpoch(self.view.epoch.0 + 1);
        Proposal { view: View { epoch, members, tie_breaker: self.me.node }, cut, holders }
    }

    /// What a peer proposes may be anything; this is what it must be.
    pub(super) fn check_proposal(&self, from: NodeId, proposal: &Proposal) -> Result<(), PeerError> {
        let refuse = |rule| Err(PeerError::new(from, rule));
        let view = &proposal.view;
        if view.members.len() > MOST_MEMBERS || !view.is_sound() {
            return refuse("a view that is none");
        }
        if self.view.epoch.0.checked_add(1) != Some(view.epoch.0) {
            return refuse("a view that does not follow");
        }
        let may_be = |member: &Member| {
            let before = self.view.member(member.node);
            before.is_none_or(|before| before.incarnation <= member.incarnation)
        };
        if !view.members.iter().all(may_be) {
            return refuse("a view with a life that was over");
        }
        if !self.view.contains(view.tie_breaker) {
            return refuse("a view with a new member for a tie-breaker");
        }
        let holders_are_members = proposal.holders.iter().all(|node| self.view.contains(*node));
        if proposal.holders.is_empty() || proposal.holders.len() > MOST_MEMBERS || !holders_are_members {
            return refuse("a cut that no member holds");
        }
        if proposal.cut < self.base {
            return refuse("a cut before the last one");
        }
        if proposal.cut > MOST_POSITION {
            return refuse("a cut at no position");
        }
        Ok(())
    }

    /// A coordinator proposes.
    pub(super) fn propose(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        proposal: Proposal,
        basis: &Basis,
    ) -> Result<(), PeerError> {
        self.check_ballot(from, ballot)?;
        self.check_proposal(from, &proposal)?;
        let contradicts =
            |(accepted, before): &&(Ballot, Proposal)| *accepted == ballot && *before != proposal;
        if self.accepted.iter().chain(&self.offered).any(|before| contradicts(&before)) {
            return Err(PeerError::new(from, "two proposals under one ballot"));
        }
        if ballot < self.promised {
            self.send(from, Body::Refuse { promised: self.promised });
            return Ok(());
        }
        if !self.shares(basis) {
            return Ok(());
        }
        self.follow_ballot(ballot);
        self.takeover_at = None;
        if self.offered.is_none() {
            self.offered = Some((ballot, proposal));
            self.reach();
        }
        self.accept_if_reached();
        Ok(())
    }

    /// Asks for what is lacking up to the cut of the proposal.
    pub(super) fn reach(&mut self) {
        if let (Some((_, proposal)), Some(position)) = (&self.offered, self.position)
            && position < proposal.cut
        {
            let (cut, holders) = (proposal.cut, proposal.holders.clone());
            self.events.push_back(Event::Reach { cut, holders });
        }
    }

    /// Who accepts holds everything up to the cut. So where a view has ended, most of its members do: as long as a quorum of them lives,
    /// nothing that the next view begins with is lost.
    pub(super) fn accept_if_reached(&mut self) {
        let has_reached =
            |(_, proposal): &mut (Ballot, Proposal)| self.position.is_some_and(|held| held >= proposal.cut);
        let Some((ballot, proposal)) = self.offered.take_if(has_reached) else { return };
        let body = Body::Accept { ballot, digest: proposal.digest() };
        self.accepted = Some((ballot, proposal));
        self.takeover_at = None;
        self.send(ballot.node, body.clone());
        if self.counts_itself() {
            self.tell_others(&body);
        }
    }

    /// Whether this member holds all proofs of death that a quorum rests on. Who does not must not help to make it one.
    pub(super) fn shares(&self, basis: &Basis) -> bool {
        let says = |node: &NodeId| Some((*node, *self.evidence.get(node)?));
        let held: Option<BTreeMap<_, _>> = basis.fenced.iter().map(says).collect();
        basis.fenced.is_empty()
            || (self.stage >= Stage::Installed
                && held.is_some_and(|held| held == self.that_count_no_more(held.clone())))
    }

    /// Who is dead for all that have promised, and may be left out of account for it.
    fn dead_for_all(&self, campaign: &Campaign) -> Vec<NodeId> {
        let says = |promise: &Promise| -> BTreeMap<NodeId, Strength> {
            let counts = |(_, strength): &&(NodeId, Strength)| promise.installed && strength.is_over();
            promise.evidence.iter().filter(counts).copied().collect()
        };
        let both = |mut one: BTreeMap<_, _>, two: BTreeMap<_, _>| {
            one.retain(|node, strength| two.get(node) == Some(strength));
            one
        };
        let dead = campaign.promises.values().map(says).reduce(both).unwrap_or_default();
        self.that_count_no_more(dead).into_keys().collect()
    }

    /// Of these, the dead; and of those only the fenced, if the others could have decided the next view without anybody that lives.
    /// (If they could not, then whoever lives has part in each quorum that may have decided it, and tells what it has accepted.)
    fn that_count_no_more(&self, mut of: BTreeMap<NodeId, Strength>) -> BTreeMap<NodeId, Strength> {
        let have_agreed =
            of.iter().filter(|(_, strength)| **strength == Strength::Ended).map(|(node, _)| *node);
        let alone = judge(&self.view, &have_agreed.collect(), &Basis { fenced: Vec::new(), resource: true });
        of.retain(|_, strength| match strength {
            Strength::Fenced => true,
            Strength::Ended => !alone.is_quorum(),
            Strength::Suspected | Strength::Unreachable | Strength::Failed => false,
        });
        of
    }

    /// A member has accepted a proposal: this coordinator's, or, in a small view, another's.
    pub(super) fn accept(&mut self, from: NodeId, ballot: Ballot, digest: u64) -> Result<(), PeerError> {
        let is_mine = ballot.node == self.me.node;
        if is_mine && ballot.number > self.highest {
            return Err(PeerError::new(from, "an acceptance of a ballot that never was"));
        }
        let is_for_me = is_mine || (self.counts_itself() && self.view.contains(ballot.node));
        if !is_for_me {
            return Err(PeerError::new(from, "an acceptance for somebody else"));
        }
        if is_mine {
            return self.accept_mine(from, ballot, digest);
        }
        let before = self.attested.get(&from).copied();
        if before.is_some_and(|(before, other)| before == ballot && other != digest) {
            return Err(PeerError::new(from, "two acceptances under one ballot"));
        }
        if before.is_none_or(|(before, _)| before < ballot) {
            self.attested.insert(from, (ballot, digest));
            self.reconsider_voices();
        }
        Ok(())
    }

    fn accept_mine(&mut self, from: NodeId, ballot: Ballot, digest: u64) -> Result<(), PeerError> {
        let Some(campaign) = &mut self.campaign else { return Ok(()) };
        if campaign.ballot != ballot {
            return Ok(());
        }
        let Some((proposal, basis, accepters)) = &mut campaign.proposed else {
            return Err(PeerError::new(from, "an acceptance of what was not proposed"));
        };
        if proposal.digest() != digest {
            return Err(PeerError::new(from, "an acceptance of another proposal"));
        }
        accepters.insert(from);
        if judge(&self.view, accepters, basis).is_quorum() {
            let decision = Decision {
                ballot,
                proposal: proposal.clone(),
                accepters: accepters.iter().copied().collect(),
                basis: basis.clone(),
            };
            self.concluded(decision);
        }
        Ok(())
    }

    /// This coordinator's proposal is decided.
    fn concluded(&mut self, decision: Decision) {
        let stays = self.seat_in(&decision.proposal.view).is_some();
        if stays {
            self.decided(decision);
        } else {
            // What an earlier coordinator had got accepted is without this member. It must not be lost with it.
            self.history.push_back(decision);
            self.campaign = None;
            self.flushed.clear();
            self.is_leaving = true;
            self.alone_at = Some(self.now.saturating_add(self.timing.activate));
        }
        self.tell_decision_to_members();
    }

    /// Who is leaving hears from a member of the next view how this one ended: it is installed there, or another has followed.
    pub(super) fn hear_that_they_went_on(&mut self, from: NodeId, body: &Body) {
        let Some(Decision { proposal, .. }) = self.history.back() else { return };
        let have_gone_on = match body {
            Body::Decide(told) => told.proposal == *proposal && proposal.view.contains(from),
            Body::Gone { by } => *by >= proposal.view.epoch,
            _ => false,
        };
        if have_gone_on {
            self.halt(proposal.view.epoch);
        }
    }

    pub(super) fn nobody_went_on(&mut self) {
        self.alone_at = None;
        if let Some(Decision { proposal, .. }) = self.history.back() {
            let reason = Stuck::NoQuorum { here: 0, members: proposal.view.members.len() };
            self.events.push_back(Event::Stuck { reason });
        }
    }

    pub(super) fn ask_whether_they_went_on(&mut self) {
        let Some(Decision { proposal, .. }) = self.history.back() else { return };
        let members: Vec<_> = proposal.view.nodes().collect();
        members.into_iter().for_each(|node| self.send(node, Body::Ask));
    }
}

/// Links between members that have promised, as these say. What goes between them and the coordinator got through both ways.
fn broken_links(campaign: &Campaign, coordinator: NodeId) -> BTreeSet<BrokenLink> {
    let of = |(&deaf, promise): (&NodeId, &Promise)| -> Vec<BrokenLink> {
        let unheard = promise.evidence.iter().filter(|(_, strength)| *strength >= Strength::Unreachable);
        unheard.map(|(unheard, _)| BrokenLink { deaf, unheard: *unheard }).collect()
    };
    let links = campaign.promises.iter().flat_map(of);
    let is_between = |node: &NodeId| *node != coordinator && campaign.promises.contains_key(node);
    links.filter(|link| is_between(&link.deaf) && is_between(&link.unheard)).collect()
}
