//! Who survives: the rules of the closing phase. (§7.7.2, phase 2)

use alloc::collections::BTreeMap;

use comb_types::NodeId;

use super::node_set::NodeSet;

/// The three rules, in the order of the thesis.
pub(super) fn survives(
    original: NodeSet,
    tie_breaker: NodeId,
    current: NodeSet,
    owns_quorum_resource: bool,
) -> bool {
    let (all, left) = (original.len(), current.within(original).len());
    let is_majority = left * 2 > all;
    let is_chosen_half = left * 2 == all && left >= 2 && current.contains(tie_breaker);
    let is_last_of_two = all == 2 && left == 1 && owns_quorum_resource;
    is_majority || is_chosen_half || is_last_of_two
}

/// Whom each node has heard of directly, as far as is known.
pub(super) type Heard = BTreeMap<NodeId, NodeSet>;

fn hears(heard: &Heard, node: NodeId, of: NodeId) -> bool {
    node == of || heard.get(&node).is_some_and(|others| others.contains(of))
}

fn missing(heard: &Heard, among: NodeSet, node: NodeId) -> usize {
    among.iter().filter(|other| !hears(heard, node, *other) || !hears(heard, *other, node)).count()
}

/// Whether each of these hears each other one.
pub(super) fn is_fully_connected(heard: &Heard, nodes: NodeSet) -> bool {
    nodes.iter().all(|node| missing(heard, nodes, node) == 0)
}

/// Takes out the worst connected node until all that are left hear each other; of two equally bad ones the one with the
/// greater number. The thesis says only that members without full connectivity are pruned: dropping all who miss anybody would
/// drop everybody when one node is cut off from the rest.
pub(super) fn prune(heard: &Heard, mut nodes: NodeSet) -> NodeSet {
    loop {
        let worst = nodes.iter().map(|node| (missing(heard, nodes, node), node)).max();
        match worst {
            Some((1.., node)) => nodes.remove(node),
            _ => return nodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
        nodes.into_iter().map(NodeId).collect()
    }

    #[test]
    fn more_than_half_survives() {
        assert!(survives(set(0..5), NodeId(0), set([2, 3, 4]), false));
        assert!(!survives(set(0..5), NodeId(0), set([0, 1]), true));
        assert!(!survives(set(0..5), NodeId(0), set([0, 1, 7, 8]), false), "strangers do not count");
    }

    #[test]
    fn half_survives_if_it_is_two_and_has_the_tie_breaker() {
        assert!(survives(set(0..4), NodeId(1), set([1, 3]), false));
        assert!(!survives(set(0..4), NodeId(1), set([0, 2]), true));
        assert!(!survives(set(0..2), NodeId(1), set([1]), false), "one of two is not two");
    }

    #[test]
    fn the_last_of_two_survives_by_the_quorum_resource() {
        assert!(survives(set(0..2), NodeId(0), set([1]), true));
        assert!(!survives(set(0..3), NodeId(0), set([1]), true));
    }

    fn all_hear_but(nodes: NodeSet, cuts: &[(u32, u32)]) -> Heard {
        let mut heard: Heard = nodes.iter().map(|node| (node, nodes)).collect();
        for (node, of) in cuts {
            heard.entry(NodeId(*node)).or_default().remove(NodeId(*of));
        }
        heard
    }

    #[test]
    fn who_is_cut_off_is_pruned_and_not_those_that_miss_it() {
        let nodes = set(0..5);
        assert!(is_fully_connected(&all_hear_but(nodes, &[]), nodes));
        let heard = all_hear_but(nodes, &[(0, 2), (1, 2), (2, 3)]);
        assert!(!is_fully_connected(&heard, nodes));
        assert_eq!(prune(&heard, nodes), set([0, 1, 3, 4]));
        assert_eq!(prune(&all_hear_but(nodes, &[(1, 3)]), nodes), set([0, 1, 2, 4]), "one way is enough");
    }
}
