//! How far nodes are from each other. (Galaxy §8.5.1)
//!
//! A node gossips more often with those that are near: so most of what is said stays behind one switch, and a slow way between
//! two halls carries little.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

use comb_types::NodeId;

/// Of two nodes that one may gossip with, it mostly takes the nearer. Each node may have another opinion of what is near.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Distance {
    /// Near numbers are near nodes: numbers are given out host by host and rack by rack.
    #[default]
    Numbers,
    /// Where each node stands, from the outermost in: `hall/row/rack`. The more of it two have in common, the nearer they are. A
    /// node without a place is far from all.
    Places(Arc<BTreeMap<NodeId, String>>),
}

impl Distance {
    /// By what an operator knows of where nodes stand.
    pub fn of_places<P: Into<String>>(places: impl IntoIterator<Item = (NodeId, P)>) -> Self {
        Self::Places(Arc::new(places.into_iter().map(|(node, place)| (node, place.into())).collect()))
    }

    /// Between two nodes; it means something only beside another distance.
    pub(super) fn between(&self, one: NodeId, other: NodeId) -> u32 {
        match self {
            Self::Numbers => u32::BITS - (one.0 ^ other.0).leading_zeros(),
            Self::Places(places) => {
                let [one, other] = [one, other].map(|node| places.get(&node).map_or("", String::as_str));
                let steps = one.split('/').zip(other.split('/'));
                let common = steps.take_while(|(one, other)| one == other && !one.is_empty()).count();
                u32::MAX - u32::try_from(common).unwrap_or(u32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_nearer(distance: &Distance, one: u32, other: u32) -> bool {
        let from = |node| distance.between(NodeId(0), NodeId(node));
        from(one) < from(other)
    }

    #[test]
    fn who_has_more_of_a_place_in_common_is_nearer() {
        let places = ["a/1/x", "a/1/y", "a/2/x", "b/1/x"];
        let places = Distance::of_places((0..).map(NodeId).zip(places));
        for (one, other) in [(1, 2), (2, 3)] {
            assert!(is_nearer(&places, one, other) && !is_nearer(&places, other, one));
        }
        // Neither the fourth nor the fifth has anything in common with it.
        assert!(!is_nearer(&places, 3, 4) && !is_nearer(&places, 4, 3));
        let nowhere = Distance::of_places([(NodeId(1), "a")]);
        assert!(!is_nearer(&nowhere, 1, 2) && !is_nearer(&nowhere, 2, 1));
    }

    #[test]
    fn near_numbers_are_near() {
        assert!(is_nearer(&Distance::Numbers, 1, 2) && is_nearer(&Distance::Numbers, 3, 4));
    }
}
