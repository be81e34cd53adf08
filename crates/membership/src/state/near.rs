//! What is known of one node of our zone.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{NodeId, Time};

use super::Event;
use super::entries::Entries;
use crate::view::Member;

#[derive(Clone, Debug)]
pub(super) struct Near {
    pub(super) member: Member,
    /// The latest that was heard of.
    pub(super) version: u32,
    /// Of its entries at that version, as we were told. Of what we hold ourselves, see `entries`.
    pub(super) hash: u32,
    /// When the version was last seen to rise.
    pub(super) risen_at: Time,
    pub(super) is_failed: bool,
    /// Few nodes are doubted at any time.
    pub(super) doubt: Option<Box<Doubted>>,
    pub(super) entries: Entries,
}

/// Who has heard of no later version.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubted {
    /// Since when we are among them.
    pub(super) since: Option<Time>,
    /// In the order of their numbers.
    pub(super) by: Vec<NodeId>,
}

impl Near {
    pub(super) fn new(member: Member, now: Time) -> Self {
        Self {
            member,
            version: 0,
            hash: 0,
            risen_at: now,
            is_failed: false,
            doubt: None,
            entries: Entries::default(),
        }
    }

    /// Our own version, when we gossip or write.
    pub(super) fn raise(&mut self, now: Time) {
        self.version = self.version.checked_add(1).expect("a life has fewer than 2³² rounds");
        self.risen_at = now;
    }

    pub(super) fn is_suspected(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.since.is_some())
    }

    /// Whether its entries, as we have been told that they are, are not those that we hold.
    pub(super) fn is_wanted(&self) -> bool {
        self.hash != self.entries.hash() && !self.is_failed
    }

    /// Time that did not pass for us.
    pub(super) fn stand_still(&mut self, lasting: Duration) {
        self.risen_at = self.risen_at.saturating_add(lasting);
        if let Some(doubt) = &mut self.doubt {
            doubt.since = doubt.since.map(|since| since.saturating_add(lasting));
        }
    }

    /// Its life is over, and with it what it said.
    pub(super) fn forget_entries(&mut self, events: &mut VecDeque<Event>) {
        let owner = self.member;
        let gone = self.entries.iter().map(|(key, _)| (String::from(key), None));
        events.extend(gone.map(|(key, value)| Event::Entry { owner, key, value }));
        self.entries = Entries::default();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let doubt = self.doubt.as_ref().map_or(0, |doubt| size_of::<Doubted>() + doubt.by.capacity() * 4);
        doubt + self.entries.memory_bytes()
    }
}
