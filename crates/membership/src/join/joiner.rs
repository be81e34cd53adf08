//! The side of the node that wants in.

use alloc::vec::Vec;

use comb_types::NodeId;

use super::message::{Body, MOST_SNAPSHOT_BYTES};
use super::{Event, Join, Role};
use crate::order::MOST_POSITION;
use crate::regroup::MOST_MEMBERS;
use crate::view::{Member, View};
use crate::wire::PeerError;

/// Offers that are kept. One is used; the others are for when that sponsor dies.
const MOST_OFFERS: usize = 8;

impl Join {
    /// Asks again for what has not been answered.
    pub(super) fn resend(&mut self) {
        self.resend_at = Some(self.now.saturating_add(self.config.resend));
        match self.role {
            Role::Searching => self.search(),
            Role::Petitioning { sponsor, .. } => {
                self.send(sponsor, Body::Petition { member: self.me, since: self.since });
            }
            Role::Synchronising { .. } => {}
            Role::Member { .. } => self.resend_at = None,
        }
    }

    fn search(&mut self) {
        let is_vain = self.now.since(self.searches_since) >= self.config.search;
        let wants_word = self.config.may_found && is_vain && self.word.is_none_or(|to| to == self.me);
        let others = self.config.contacts.iter().copied().filter(|node| *node != self.me.node);
        let others: Vec<_> = others.collect();
        for node in others {
            self.send(node, Body::Hello { member: self.me, since: self.since, wants_word });
        }
        if wants_word {
            self.word = Some(self.me);
            self.words.insert(self.me.node);
            self.count_words();
        }
    }

    /// A contact is in no group either.
    pub(super) fn heard_alone(&mut self, from: NodeId, word: Option<Member>) -> Result<(), PeerError> {
        if word != Some(self.me) {
            // Another has it, or another life of this node.
            return Ok(());
        }
        if !self.config.contacts.contains(&from) || self.word != Some(self.me) {
            return Err(PeerError::new(from, "a word that was not asked for"));
        }
        self.words.insert(from);
        if self.role == Role::Searching {
            self.count_words();
        }
        Ok(())
    }

    /// With the words of most contacts, itself included, there is no other founder: each has given one word.
    fn count_words(&mut self) {
        let own = usize::from(!self.config.contacts.contains(&self.me.node));
        if 2 * self.words.len() > self.config.contacts.len() + own {
            self.found();
        }
    }

    pub(super) fn found(&mut self) {
        if !self.is_member() {
            let view = View::founded_by(self.me);
            self.become_member(view.clone(), 0, alloc::vec![self.me.node]);
            self.events.push_back(Event::Founded(view));
        }
    }

    pub(super) fn become_member(&mut self, view: View, cut: u64, holders: Vec<NodeId>) {
        self.role = Role::Member { view, cut, holders };
        self.resend_at = None;
        self.offers.clear();
        self.petitioned.clear();
    }

    /// There is a group.
    pub(super) fn offered(&mut self, from: NodeId, snapshot: Vec<u8>) -> Result<(), PeerError> {
        if !self.config.contacts.contains(&from) {
            return Err(PeerError::new(from, "an offer that was not asked for"));
        }
        if snapshot.len() > MOST_SNAPSHOT_BYTES {
            return Err(PeerError::new(from, "a reference that is too long"));
        }
        if self.is_member() {
            return Ok(());
        }
        if self.offers.len() < MOST_OFFERS {
            self.offers.insert(from, snapshot);
        }
        if self.role == Role::Searching {
            self.take_sponsor(from);
        }
        Ok(())
    }

    fn take_sponsor(&mut self, sponsor: NodeId) {
        let Some(snapshot) = self.offers.get(&sponsor).cloned() else { return };
        self.role = Role::Synchronising { sponsor, until: self.patience_ends() };
        self.events.push_back(Event::Synchronise { sponsor, snapshot });
    }

    /// There was no progress with this one.
    pub(super) fn leave_sponsor(&mut self, sponsor: NodeId) {
        self.offers.remove(&sponsor);
        match self.offers.keys().next().copied() {
            Some(next) => self.take_sponsor(next),
            None => {
                self.role = Role::Searching;
                self.resend();
            }
        }
    }

    fn patience_ends(&self) -> comb_types::Time {
        self.now.saturating_add(self.config.patience)
    }

    pub(super) fn progressed(&mut self) {
        let ends = self.patience_ends();
        if let Role::Synchronising { until, .. } = &mut self.role {
            *until = ends;
        }
    }

    pub(super) fn synchronised(&mut self, position: u64) {
        if let Role::Synchronising { sponsor, .. } = self.role {
            self.position = position;
            self.role = Role::Petitioning { sponsor, until: self.patience_ends() };
            self.petitioned.insert(sponsor);
            self.resend();
        }
    }

    /// A sponsor says that this node is in. Every member may say so to one that says hello: its sponsor may have died when
    /// all was done.
    pub(super) fn welcomed(
        &mut self,
        from: NodeId,
        view: View,
        cut: u64,
        holders: Vec<NodeId>,
    ) -> Result<(), PeerError> {
        let is_view = view.is_sound() && view.members.len() <= MOST_MEMBERS;
        let Some(me) = view.member(self.me.node).filter(|_| is_view && view.contains(from)) else {
            return Err(PeerError::new(from, "a welcome to a view that is none of mine and its"));
        };
        if me.incarnation < self.since {
            // It was for a life that has had its say.
            return Ok(());
        }
        if me.incarnation > self.me.incarnation {
            return Err(PeerError::new(from, "a welcome to a life that has not begun"));
        }
        if holders.is_empty() || holders.len() > MOST_MEMBERS || cut > MOST_POSITION {
            return Err(PeerError::new(from, "a welcome to what nobody holds"));
        }
        if self.is_member() || cut < self.position {
            // Or others have gone on from that view without this node, and one of them gave it its snapshot since.
            return Ok(());
        }
        if self.petitioned.is_empty() && me == self.me {
            return Err(PeerError::new(from, "a welcome that was not asked for"));
        }
        self.become_member(view.clone(), cut, holders.clone());
        self.events.push_back(Event::Joined { view, cut, holders });
        Ok(())
    }
}
