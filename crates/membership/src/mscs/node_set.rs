//! Sets of nodes as the bitmasks that regroup and join exchange.

use core::fmt;

use comb_types::NodeId;
use serde::{Deserialize, Serialize};

/// Nodes, one bit each. (MSCS §7.7.2: "The state is a collection of bitmasks")
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeSet(u64);

/// How many nodes a mask has room for. MSCS shipped with 2 and was tested with 32; the thesis asks about 64 (§7.4).
pub(super) const MOST_NODES: u32 = 64;

impl NodeSet {
    /// No nodes.
    pub const EMPTY: Self = Self(0);

    /// One node; nobody if its number has no bit.
    pub const fn of(node: NodeId) -> Self {
        Self(if node.0 < MOST_NODES { 1 << node.0 } else { 0 })
    }

    /// Whether the node is in it.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & Self::of(node).0 != 0
    }

    /// Whether all of these are in the other.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether nobody is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in it.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those that are in both.
    #[must_use]
    pub const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Adds one.
    pub const fn insert(&mut self, node: NodeId) {
        self.0 |= Self::of(node).0;
    }

    /// Takes one out.
    pub const fn remove(&mut self, node: NodeId) {
        self.0 &= !Self::of(node).0;
    }

    /// The one with the smallest number.
    pub const fn first(self) -> Option<NodeId> {
        if self.0 == 0 { None } else { Some(NodeId(self.0.trailing_zeros())) }
    }

    /// The one that follows `node` in the circular list ordered by number; `node` itself if there is no other. (§7.8)
    pub fn after(self, node: NodeId) -> Option<NodeId> {
        let later = Self(self.0 & !(u64::MAX >> (63 - node.0.min(63))));
        later.first().or_else(|| self.first())
    }

    /// All of them, the smallest first.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..MOST_NODES).map(NodeId).filter(move |node| self.contains(*node))
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::EMPTY, |all, node| all.with(Self::of(node)))
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        f.write_str("{")?;
        for node in self.iter() {
            write!(f, "{}{}", if is_first { "" } else { " " }, node.0)?;
            is_first = false;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[u32]) -> NodeSet {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn the_circular_list_wraps_and_ends_where_it_began() {
        let all = set(&[1, 4, 63]);
        assert_eq!(all.after(NodeId(0)), Some(NodeId(1)));
        assert_eq!(all.after(NodeId(1)), Some(NodeId(4)));
        assert_eq!(all.after(NodeId(4)), Some(NodeId(63)));
        assert_eq!(all.after(NodeId(63)), Some(NodeId(1)));
        assert_eq!(set(&[4]).after(NodeId(4)), Some(NodeId(4)));
        assert_eq!(NodeSet::EMPTY.after(NodeId(0)), None);
    }

    #[test]
    fn a_number_without_a_bit_is_in_no_set() {
        let mut all = set(&[2, 64, 99]);
        assert_eq!(all, set(&[2]));
        all.insert(NodeId(64));
        assert!(!all.contains(NodeId(64)) && all.len() == 1);
        assert!(set(&[2]).is_within(set(&[2, 3])) && !set(&[2, 4]).is_within(set(&[2, 3])));
    }
}
