//! A stand-in for ordered update: a list of numbers that one member numbers, and all copy.

use std::collections::BTreeMap;

use comb_types::NodeId;

/// Entries in one message.
const MOST_ENTRIES: usize = 500;

/// What one member holds.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The entry at position 1 comes first.
    pub(super) entries: Vec<u64>,
    /// Up to here a majority of some view held it.
    pub(super) committed: u64,
    /// As the sequencer: who holds how much.
    held: BTreeMap<NodeId, u64>,
}

impl Copies {
    /// Up to where this member holds everything.
    pub(super) fn position(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Throws away what lies beyond a cut.
    pub(super) fn truncate(&mut self, cut: u64) {
        self.entries.truncate(usize::try_from(cut).unwrap_or(usize::MAX));
    }

    /// A new view begins: everybody holds everything up to its cut.
    pub(super) fn begin(&mut self, members: impl Iterator<Item = NodeId>) {
        let position = self.position();
        self.committed = position;
        self.held = members.map(|node| (node, position)).collect();
    }

    /// What lies behind a position, up to another.
    pub(super) fn after(&self, position: u64, until: u64) -> Vec<u64> {
        let all = self.entries.get(usize::try_from(position).unwrap_or(usize::MAX)..).unwrap_or_default();
        let wanted = usize::try_from(until.saturating_sub(position)).unwrap_or(usize::MAX);
        all[..all.len().min(wanted).min(MOST_ENTRIES)].to_vec()
    }

    /// Takes what follows what it holds.
    pub(super) fn take(&mut self, after: u64, entries: &[u64]) {
        if after <= self.position() {
            let known = usize::try_from(self.position() - after).unwrap_or(usize::MAX);
            self.entries.extend(entries.iter().skip(known));
        }
    }

    /// The same, up to a cut.
    pub(super) fn take_until(&mut self, cut: u64, after: u64, entries: &[u64]) {
        let most = usize::try_from(cut.saturating_sub(after)).unwrap_or(usize::MAX);
        self.take(after, &entries[..entries.len().min(most)]);
    }

    /// A member holds so much. Says what is committed now, if that is more.
    pub(super) fn holds(&mut self, node: NodeId, position: u64) -> Option<u64> {
        let held = self.held.get_mut(&node)?;
        *held = position.max(*held);
        let mut all: Vec<_> = self.held.values().copied().collect();
        all.sort_unstable();
        // So many hold it that more than half do.
        let committed = all[(all.len() - 1) / 2];
        (committed > self.committed).then(|| {
            self.committed = committed;
            committed
        })
    }

    /// What a member is known to hold.
    pub(super) fn held_by(&self, node: NodeId) -> u64 {
        self.held.get(&node).copied().unwrap_or(0)
    }
}
