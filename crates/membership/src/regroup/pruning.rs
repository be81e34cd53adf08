//! Whom to prune so that all that stay hear each other.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use comb_types::NodeId;

/// One member does not hear another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BrokenLink {
    pub(super) deaf: NodeId,
    pub(super) unheard: NodeId,
}

/// Choices that are weighed before the search for the fewest gives way to a rule of thumb. Finding the fewest is hard in
/// general (it is vertex cover); a view has few broken links, or a rule of thumb is good enough for it.
const MOST_CHOICES: u32 = 20_000;

/// The fewest nodes that take part in all broken links; of equally few, those of whom more is complained by themselves than
/// by others: one member that lies about another prunes itself. `keep` is never among them.
pub(super) fn prune(links: &BTreeSet<BrokenLink>, keep: NodeId) -> BTreeSet<NodeId> {
    let mut pruned: BTreeSet<NodeId> = BTreeSet::new();
    for link in links {
        if link.deaf == keep {
            pruned.insert(link.unheard);
        } else if link.unheard == keep {
            pruned.insert(link.deaf);
        }
    }
    let rest: Vec<_> = links
        .iter()
        .copied()
        .filter(|link| {
            link.deaf != link.unheard && !pruned.contains(&link.deaf) && !pruned.contains(&link.unheard)
        })
        .collect();
    let mut search = Search { links: &rest, best: by_degree(&rest), choices: MOST_CHOICES };
    search.cover(&mut Vec::new());
    pruned.extend(search.best);
    pruned
}

/// Lower is better: how many, then how little they complain of others, then the greater nodes.
fn cost(links: &[BrokenLink], nodes: &[NodeId]) -> (usize, isize, Vec<core::cmp::Reverse<NodeId>>) {
    let complaints: isize = nodes.iter().map(|&node| complaints(links, node)).sum();
    let mut sorted: Vec<_> = nodes.iter().map(|&node| core::cmp::Reverse(node)).collect();
    sorted.sort_unstable();
    (nodes.len(), -complaints, sorted)
}

/// How much more a node complains than others complain of it.
fn complaints(links: &[BrokenLink], node: NodeId) -> isize {
    let one = |link: &BrokenLink| isize::from(link.deaf == node) - isize::from(link.unheard == node);
    links.iter().map(one).sum()
}

fn uncovered<'a>(links: &'a [BrokenLink], taken: &'a [NodeId]) -> impl Iterator<Item = &'a BrokenLink> {
    links.iter().filter(|link| !taken.contains(&link.deaf) && !taken.contains(&link.unheard))
}

/// Again and again the node with most broken links that are left.
fn by_degree(links: &[BrokenLink]) -> Vec<NodeId> {
    let mut taken = Vec::new();
    while let Some(node) = busiest(links, &taken) {
        taken.push(node);
    }
    taken
}

fn busiest(links: &[BrokenLink], taken: &[NodeId]) -> Option<NodeId> {
    let ends: BTreeSet<_> = uncovered(links, taken).flat_map(|link| [link.deaf, link.unheard]).collect();
    ends.into_iter().max_by_key(|&node| (others(links, taken, node).len(), complaints(links, node), node))
}

/// The other ends of the broken links of a node that are left.
fn others(links: &[BrokenLink], taken: &[NodeId], node: NodeId) -> BTreeSet<NodeId> {
    let other = |link: &BrokenLink| match () {
        () if link.deaf == node => Some(link.unheard),
        () if link.unheard == node => Some(link.deaf),
        () => None,
    };
    uncovered(links, taken).filter_map(other).collect()
}

struct Search<'a> {
    links: &'a [BrokenLink],
    best: Vec<NodeId>,
    choices: u32,
}

impl Search<'_> {
    /// Either the busiest node goes, or all those go that it does not hear or that do not hear it.
    fn cover(&mut self, taken: &mut Vec<NodeId>) {
        if self.choices == 0 || taken.len() > self.best.len() {
            return;
        }
        self.choices -= 1;
        let Some(node) = busiest(self.links, taken) else {
            if cost(self.links, taken) < cost(self.links, &self.best) {
                self.best.clone_from(taken);
            }
            return;
        };
        let others = others(self.links, taken, node);
        let depth = taken.len();
        taken.push(node);
        self.cover(taken);
        taken.truncate(depth);
        taken.extend(others);
        self.cover(taken);
        taken.truncate(depth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn links(pairs: &[(u32, u32)]) -> BTreeSet<BrokenLink> {
        pairs
            .iter()
            .map(|&(deaf, unheard)| BrokenLink { deaf: NodeId(deaf), unheard: NodeId(unheard) })
            .collect()
    }

    fn pruned(pairs: &[(u32, u32)]) -> Vec<u32> {
        prune(&links(pairs), NodeId(0)).into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn the_fewest_go() {
        assert!(pruned(&[]).is_empty());
        assert_eq!(pruned(&[(1, 3), (3, 2), (4, 3)]), [3], "one that nobody hears well");
        assert_eq!(pruned(&[(1, 2), (2, 1), (3, 4), (4, 3)]), [2, 4], "of equals the greater");
    }

    #[test]
    fn who_alone_complains_goes_itself() {
        assert_eq!(pruned(&[(1, 3)]), [1]);
        assert_eq!(pruned(&[(3, 1)]), [3]);
    }

    #[test]
    fn the_coordinator_stays() {
        assert_eq!(pruned(&[(0, 1), (2, 0)]), [1, 2]);
    }

    proptest! {
        /// Compared with trying all sets of seven nodes.
        #[test]
        fn all_that_stay_hear_each_other_and_no_smaller_set_would_do(
            pairs in proptest::collection::vec((1_u32..8, 1_u32..8), 0..14)
        ) {
            let links: BTreeSet<_> = links(&pairs).into_iter().filter(|link| link.deaf != link.unheard).collect();
            let covers = |set: u32| links.iter().all(|link| set & (1 << link.deaf.0 | 1 << link.unheard.0) != 0);
            let pruned = prune(&links, NodeId(0));
            prop_assert!(covers(pruned.iter().map(|node| 1 << node.0).sum()));
            let fewest = (0_u32..256).filter(|set| set & 1 == 0 && covers(*set)).map(u32::count_ones).min();
            prop_assert_eq!(Some(pruned.len()), fewest.map(|fewest| fewest as usize));
        }
    }
}
