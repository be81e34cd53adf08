//! The side of those who let it in, and of those who are in no group themselves.

use alloc::vec::Vec;

use comb_types::{Incarnation, NodeId};

use super::message::Body;
use super::{Event, Join, Role};
use crate::regroup::MOST_MEMBERS;
use crate::view::{Member, View};
use crate::wire::PeerError;

impl Join {
    /// Somebody looks for a group.
    pub(super) fn greeted(
        &mut self,
        from: NodeId,
        member: Member,
        since: Incarnation,
        wants_word: bool,
    ) -> Result<(), PeerError> {
        check_sender(from, member)?;
        if !self.is_member() {
            if wants_word && self.word.is_none() {
                self.word = Some(member);
            }
            self.send(from, Body::Alone { word: self.word });
            return Ok(());
        }
        if !self.welcome(member, since) {
            self.tell_of_rebirth(member);
            self.send(from, Body::Offer { snapshot: self.snapshot.clone() });
        }
        Ok(())
    }

    /// Somebody is ready to come in.
    pub(super) fn petitioned(
        &mut self,
        from: NodeId,
        member: Member,
        since: Incarnation,
    ) -> Result<(), PeerError> {
        check_sender(from, member)?;
        let Role::Member { view, .. } = &self.role else { return Ok(()) };
        if view.member(from).is_some_and(|now| now.incarnation > member.incarnation) {
            // It was overtaken by its next life, which is in.
            return Ok(());
        }
        if self.welcome(member, since) {
            return Ok(());
        }
        self.tell_of_rebirth(member);
        if self.petitions.len() < MOST_MEMBERS {
            self.petitions.insert(member);
        }
        if self.batch_at.is_none() {
            self.batch_at = Some(self.now.saturating_add(self.config.batch));
        }
        Ok(())
    }

    /// Tells a member that it is one, or that one of its lives since that one is.
    fn welcome(&mut self, member: Member, since: Incarnation) -> bool {
        let Role::Member { view, cut, holders } = &self.role else { return false };
        let lives = since..=member.incarnation;
        let is_in = view.member(member.node).is_some_and(|seat| lives.contains(&seat.incarnation));
        if is_in {
            let body = Body::Welcome { view: view.clone(), cut: *cut, holders: holders.clone() };
            self.send(member.node, body);
        }
        is_in
    }

    fn tell_of_rebirth(&mut self, member: Member) {
        let Role::Member { view, .. } = &self.role else { return };
        if let Some(former) = view.member(member.node)
            && former.incarnation < member.incarnation
        {
            self.events.push_back(Event::Reborn { former });
        }
    }

    pub(super) fn hand_on_petitions(&mut self) {
        self.batch_at = None;
        let petitions = core::mem::take(&mut self.petitions);
        if self.awaited.len() < MOST_MEMBERS {
            self.awaited.extend(&petitions);
        }
        if !petitions.is_empty() {
            self.events.push_back(Event::Admit(petitions.into_iter().collect()));
        }
    }

    /// This node's group has another view.
    pub(super) fn decided(&mut self, view: View, cut: u64, holders: Vec<NodeId>) {
        if !self.is_member() {
            return;
        }
        let (admitted, awaited) = core::mem::take(&mut self.awaited)
            .into_iter()
            .partition(|member| view.member(member.node) == Some(*member));
        self.awaited = awaited;
        self.role = Role::Member { view, cut, holders };
        let admitted: alloc::collections::BTreeSet<Member> = admitted;
        for member in admitted {
            self.welcome(member, member.incarnation);
        }
    }
}

fn check_sender(from: NodeId, member: Member) -> Result<(), PeerError> {
    if member.node == from { Ok(()) } else { Err(PeerError::new(from, "a greeting in the name of another")) }
}
