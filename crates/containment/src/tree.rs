//! Copy-on-write trees whose nodes are in several cells. (Hive §5.3)
//!
//! What somebody has stored is in a node of its cell. When it forks, that node becomes an inner one that nobody changes any more, and whatever
//! parent and child store from then on is below it. Whoever looks for a page goes up until a node has it: that is the one that its nearest
//! ancestor stored before it forked. Whose nodes there are, and when one is needed no more, is for their cells to know.
//!
//! On the way up nothing is changed and nothing is locked, so nodes can be read where they are, in memory of other cells. What is read there is an
//! allegation: a way that is too long or comes back to itself is an error with a cell's name, and never a loop.

use alloc::collections::BTreeSet;
use core::fmt;

use comb_types::{CellId, Incarnation};

/// A node, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Far {
    /// In which cell.
    pub cell: CellId,
    /// In which life of that: what the next one has in the same place is something else.
    pub life: Incarnation,
    /// Where in it, as the cell counts.
    pub offset: u64,
}

/// Where a node's cell, the data home of its pages, has one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u64);

/// What is to be known of a node on the way up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeHead {
    /// Where the way goes on. None in the root.
    pub parent: Option<Far>,
}

/// Nodes that can be read: this cell's own, and others' by careful reference.
pub trait Nodes {
    /// Why one cannot be read.
    type Error;

    /// Reads a node.
    fn node(&self, at: Far) -> Result<NodeHead, Self::Error>;

    /// Whether a node has a page of its own, and where.
    fn page(&self, at: Far, page: u64) -> Result<Option<Place>, Self::Error>;
}

/// A page that was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Found {
    /// By which node. Its cell is asked for the page.
    pub node: Far,
    /// What it says where the page is.
    pub place: Place,
}

/// Why it is not known whether there is a page. Nothing has changed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LookupError<E> {
    /// A node cannot be read.
    #[error("a node in {} cannot be read: {source}", at.cell)]
    Unreadable {
        /// Which.
        at: Far,
        /// Why.
        source: E,
    },
    /// A node says that its ancestor is one that is below it. It, or another on that way, is corrupt.
    #[error("a node in {guilty} leads back to where we came from")]
    Loop {
        /// Whose word closed the loop: a reason to look at that cell.
        guilty: CellId,
    },
    /// There are more ancestors than there can be.
    #[error("the way up does not end; it was given up at a node in {guilty}")]
    TooDeep {
        /// Whose word went beyond the limit.
        guilty: CellId,
    },
}

/// Looks for a page from a leaf upwards. None: no ancestor has stored it either, and it is what a page is that nobody has stored to. A process that
/// was forked so often that the way is longer than `most_nodes` has to have its pages copied down.
pub fn lookup<N: Nodes>(
    nodes: &N,
    leaf: Far,
    page: u64,
    most_nodes: usize,
) -> Result<Option<Found>, LookupError<N::Error>> {
    let mut seen = BTreeSet::new();
    let (mut at, mut guilty) = (leaf, leaf.cell);
    loop {
        if seen.len() == most_nodes {
            return Err(LookupError::TooDeep { guilty });
        }
        if !seen.insert(at) {
            return Err(LookupError::Loop { guilty });
        }
        let unreadable = |source| LookupError::Unreadable { at, source };
        if let Some(place) = nodes.page(at, page).map_err(unreadable)? {
            return Ok(Some(Found { node: at, place }));
        }
        guilty = at.cell;
        match nodes.node(at).map_err(unreadable)?.parent {
            Some(parent) => at = parent,
            None => return Ok(None),
        }
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} in {}", self.offset, self.cell)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec;

    use super::*;

    /// Enough for what is forked here.
    const DEEP: usize = 200;

    const LIFE: Incarnation = Incarnation(1);

    fn far(cell: u32, offset: u64) -> Far {
        Far { cell: CellId(cell), life: LIFE, offset }
    }

    /// What some cells say of their nodes.
    #[derive(Default)]
    struct Alleged {
        parents: BTreeMap<Far, Far>,
        pages: BTreeMap<(Far, u64), Place>,
    }

    impl Nodes for Alleged {
        type Error = &'static str;

        fn node(&self, at: Far) -> Result<NodeHead, Self::Error> {
            if at.cell == CellId(9) {
                Err("bus error")
            } else {
                Ok(NodeHead { parent: self.parents.get(&at).copied() })
            }
        }

        fn page(&self, at: Far, page: u64) -> Result<Option<Place>, Self::Error> {
            Ok(self.pages.get(&(at, page)).copied())
        }
    }

    fn alleged(
        pointers: &[(Far, Far)],
        most_nodes: usize,
    ) -> Result<Option<Found>, LookupError<&'static str>> {
        let nodes = Alleged { parents: pointers.iter().copied().collect(), ..Alleged::default() };
        lookup(&nodes, far(0, 0), 1, most_nodes)
    }

    #[test]
    fn the_nearest_ancestor_that_has_a_page_is_the_one() {
        let (leaf, parent, root) = (far(0, 0), far(1, 7), far(0, 3));
        let nodes = Alleged {
            parents: [(leaf, parent), (parent, root)].into(),
            pages: [(leaf, 1, 10), (parent, 1, 11), (parent, 2, 12), (root, 2, 13), (root, 3, 14)]
                .map(|(node, page, place)| ((node, page), Place(place)))
                .into(),
        };
        let find = |page| lookup(&nodes, leaf, page, DEEP).unwrap();
        assert_eq!(find(1), Some(Found { node: leaf, place: Place(10) }));
        assert_eq!(find(2), Some(Found { node: parent, place: Place(12) }));
        assert_eq!(find(3), Some(Found { node: root, place: Place(14) }));
        assert_eq!(find(4), None);
    }

    #[test]
    fn a_way_that_comes_back_to_itself_ends_with_a_name() {
        let a_loop = [(far(0, 0), far(1, 0)), (far(1, 0), far(2, 0)), (far(2, 0), far(1, 0))];
        assert_eq!(alleged(&a_loop, DEEP), Err(LookupError::Loop { guilty: CellId(2) }));
        let to_itself = [(far(0, 0), far(1, 0)), (far(1, 0), far(1, 0))];
        assert_eq!(alleged(&to_itself, DEEP), Err(LookupError::Loop { guilty: CellId(1) }));
        let to_the_leaf = [(far(0, 0), far(3, 0)), (far(3, 0), far(0, 0))];
        assert_eq!(alleged(&to_the_leaf, DEEP), Err(LookupError::Loop { guilty: CellId(3) }));
    }

    #[test]
    fn a_way_that_does_not_end_ends_with_a_name() {
        let mut way = vec![(far(0, 0), far(4, 0))];
        way.extend((0..1000).map(|node| (far(4, node), far(4, node + 1))));
        assert_eq!(alleged(&way, 10), Err(LookupError::TooDeep { guilty: CellId(4) }));
        assert_eq!(alleged(&way[..9], 10), Ok(None));
        assert_eq!(alleged(&way[..10], 10), Err(LookupError::TooDeep { guilty: CellId(4) }));
        let unreadable = LookupError::Unreadable { at: far(9, 1), source: "bus error" };
        assert_eq!(alleged(&[(far(0, 0), far(9, 1))], 10), Err(unreadable));
    }
}
