//! Copy-on-write trees whose nodes are in several cells. (Hive §5.3)
//!
//! Each process stores its own pages in a leaf that is local to it. When it forks, its leaf becomes an inner node that nobody changes
//! any more, and parent and child each get a leaf below it. Whoever looks for a page goes up until a node has it: that is the one
//! that its nearest ancestor stored before it forked.
//!
//! On the way up nothing is changed and nothing is locked, so nodes can be read where they are, in memory of other cells. What is read there is an
//! allegation: a way that is too long or comes back to itself is an error with a cell's name, and never a loop.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
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

/// The nodes of one cell.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tree {
    cell: CellId,
    life: Incarnation,
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

/// One node: what its process stored, and who is below it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    parent: Option<Far>,
    pages: BTreeMap<u64, Place>,
    /// How many nodes of each cell have this one as their parent: what a cell says of its own takes none away from others. None yet, for a
    /// leaf.
    children: Option<BTreeMap<CellId, u32>>,
}

/// Why a node cannot be changed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TreeError {
    /// There is no such node here.
    #[error("there is no node {} in {}", .0.offset, .0.cell)]
    NoNode(Far),
    /// A process has forked from it: it stays what it is.
    #[error("node {} in {} is not a leaf any more", .0.offset, .0.cell)]
    NotALeaf(Far),
    /// That cell has no node below it.
    #[error("{of} has no child below node {} in {}", at.offset, at.cell)]
    NoChild {
        /// Who says that it had.
        of: CellId,
        /// Where.
        at: Far,
    },
}

/// A node that is gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Freed {
    /// Which.
    pub node: Far,
    /// Its pages, which nobody can find any more.
    pub pages: Vec<Place>,
}

/// What goes with a process that ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ended {
    /// The nodes of this cell that nobody needs any more.
    pub freed: Vec<Freed>,
    /// A node of another cell that has lost a child: that cell is to be told, and calls [`Tree::child_ended`].
    pub tell: Option<Far>,
}

impl Tree {
    /// A cell without nodes, in one of its lives.
    pub fn new(cell: CellId, life: Incarnation) -> Self {
        Self { cell, life, nodes: BTreeMap::new(), next: 0 }
    }

    /// The leaf of a process that was not forked.
    pub fn root(&mut self) -> Far {
        self.add(None)
    }

    /// The leaf in this cell of a process that was forked in another: below the node that was its parent's leaf.
    pub fn leaf_below(&mut self, parent: Far) -> Far {
        self.add(Some(parent))
    }

    /// A process forks, and its child will be in this cell. The new leaves of the parent and of the child.
    pub fn split(&mut self, leaf: Far) -> Result<(Far, Far), TreeError> {
        let parent = self.fork(leaf, self.cell)?;
        Ok((parent, self.add(Some(leaf))))
    }

    /// A process forks, and its child will be in some cell: there [`Tree::leaf_below`] makes its leaf below this one. The new leaf of
    /// the parent.
    pub fn fork(&mut self, leaf: Far, child: CellId) -> Result<Far, TreeError> {
        let mut children = BTreeMap::from([(self.cell, 1)]);
        *children.entry(child).or_insert(0) += 1;
        self.leaf(leaf)?.children = Some(children);
        Ok(self.add(Some(leaf)))
    }

    /// A process stores to a page that it has not, and has its own copy now. Where it had one: that is free.
    pub fn store(&mut self, leaf: Far, page: u64, place: Place) -> Result<Option<Place>, TreeError> {
        Ok(self.leaf(leaf)?.pages.insert(page, place))
    }

    /// The process of a leaf ends. Ancestors that it was the last to need go with it.
    pub fn end(&mut self, leaf: Far) -> Result<Ended, TreeError> {
        self.leaf(leaf)?;
        Ok(self.free_up(leaf))
    }

    /// A cell says that a node of its own below this one is gone.
    pub fn child_ended(&mut self, of: CellId, at: Far) -> Result<Ended, TreeError> {
        let has = self.local(at)?.children.as_ref().is_some_and(|children| children.contains_key(&of));
        if of == self.cell || !has {
            return Err(TreeError::NoChild { of, at });
        }
        Ok(self.lose_child(of, at))
    }

    /// A cell is dead, and all its nodes with it. What was here for them alone.
    pub fn dead(&mut self, cell: CellId) -> Vec<Ended> {
        let is_above =
            |node: &Node| node.children.as_ref().is_some_and(|children| children.contains_key(&cell));
        let above = self.nodes.iter().filter(|(_, node)| is_above(node)).map(|(&offset, _)| offset);
        let above: Vec<Far> = above.map(|offset| Far { cell: self.cell, life: self.life, offset }).collect();
        let mut all = Vec::new();
        for at in above {
            while self.count(at, cell) > 0 {
                all.push(self.lose_child(cell, at));
            }
        }
        all.retain(|ended| !ended.freed.is_empty());
        all
    }

    /// The first node of another cell on the way up, as far as this cell's nodes tell: the process depends on that cell.
    pub fn leads_to(&self, leaf: Far) -> Option<Far> {
        let mut at = Some(leaf);
        while let Some(here) = at.filter(|here| here.cell == self.cell) {
            at = self.nodes.get(&here.offset)?.parent;
        }
        at
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn add(&mut self, parent: Option<Far>) -> Far {
        let offset = self.next;
        self.next += 1;
        self.nodes.insert(offset, Node { parent, pages: BTreeMap::new(), children: None });
        Far { cell: self.cell, life: self.life, offset }
    }

    fn local(&self, at: Far) -> Result<&Node, TreeError> {
        let is_ours = (at.cell, at.life) == (self.cell, self.life);
        let node = if is_ours { self.nodes.get(&at.offset) } else { None };
        node.ok_or(TreeError::NoNode(at))
    }

    fn leaf(&mut self, at: Far) -> Result<&mut Node, TreeError> {
        if self.local(at)?.children.is_some() {
            return Err(TreeError::NotALeaf(at));
        }
        self.nodes.get_mut(&at.offset).ok_or(TreeError::NoNode(at))
    }

    /// Frees a node, and its ancestors in this cell as far as they had only it.
    fn free_up(&mut self, at: Far) -> Ended {
        let mut ended = Ended { freed: Vec::new(), tell: None };
        let mut next = Some(at);
        while let Some(at) = next {
            let node = self.nodes.remove(&at.offset).expect("looked up before");
            ended.freed.push(Freed { node: at, pages: node.pages.into_values().collect() });
            next = match node.parent {
                Some(parent) if parent.cell == self.cell => self.count_down(self.cell, parent),
                elsewhere => {
                    ended.tell = elsewhere;
                    None
                }
            };
        }
        ended
    }

    fn lose_child(&mut self, of: CellId, at: Far) -> Ended {
        match self.count_down(of, at) {
            Some(at) => self.free_up(at),
            None => Ended { freed: Vec::new(), tell: None },
        }
    }

    /// A node has a child less. The node, if that was the last.
    fn count_down(&mut self, of: CellId, at: Far) -> Option<Far> {
        let children = self.nodes.get_mut(&at.offset)?.children.as_mut()?;
        let count = children.get_mut(&of)?;
        *count -= 1;
        if *count == 0 {
            children.remove(&of);
        }
        children.is_empty().then_some(at)
    }

    /// How many nodes a cell has below this one.
    fn count(&self, at: Far, of: CellId) -> u32 {
        let children = self.nodes.get(&at.offset).and_then(|node| node.children.as_ref());
        children.and_then(|children| children.get(&of)).copied().unwrap_or(0)
    }
}

impl Nodes for Tree {
    type Error = TreeError;

    fn node(&self, at: Far) -> Result<NodeHead, TreeError> {
        Ok(NodeHead { parent: self.local(at)?.parent })
    }

    fn page(&self, at: Far, page: u64) -> Result<Option<Place>, TreeError> {
        Ok(self.local(at)?.pages.get(&page).copied())
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} in {}", self.offset, self.cell)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    /// Enough for what is forked here.
    const DEEP: usize = 200;

    const LIFE: Incarnation = Incarnation(1);

    fn far(cell: u32, offset: u64) -> Far {
        Far { cell: CellId(cell), life: LIFE, offset }
    }

    /// What some cells say of their nodes.
    struct Alleged(BTreeMap<Far, Far>);

    impl Nodes for Alleged {
        type Error = &'static str;

        fn node(&self, at: Far) -> Result<NodeHead, Self::Error> {
            if at.cell == CellId(9) {
                Err("bus error")
            } else {
                Ok(NodeHead { parent: self.0.get(&at).copied() })
            }
        }

        fn page(&self, _: Far, _: u64) -> Result<Option<Place>, Self::Error> {
            Ok(None)
        }
    }

    fn alleged(
        pointers: &[(Far, Far)],
        most_nodes: usize,
    ) -> Result<Option<Found>, LookupError<&'static str>> {
        lookup(&Alleged(pointers.iter().copied().collect()), far(0, 0), 1, most_nodes)
    }

    #[test]
    fn a_child_sees_what_was_stored_before_the_fork_and_no_more() {
        let mut tree = Tree::new(CellId(0), LIFE);
        let before = tree.root();
        tree.store(before, 1, Place(10)).unwrap();
        let (parent, child) = tree.split(before).unwrap();
        tree.store(parent, 1, Place(11)).unwrap();
        tree.store(parent, 2, Place(12)).unwrap();
        let find = |leaf, page| lookup(&tree, leaf, page, DEEP).unwrap();
        assert_eq!(find(child, 1), Some(Found { node: before, place: Place(10) }));
        assert_eq!(find(parent, 1), Some(Found { node: parent, place: Place(11) }));
        assert_eq!((find(child, 2), find(child, 3)), (None, None));
        assert_eq!(tree.store(before, 1, Place(13)), Err(TreeError::NotALeaf(before)));
        assert_eq!(tree.split(before), Err(TreeError::NotALeaf(before)));
        assert_eq!(tree.end(before), Err(TreeError::NotALeaf(before)));
        assert_eq!(tree.store(child, 1, Place(14)), Ok(None));
        assert_eq!(tree.store(child, 1, Place(15)), Ok(Some(Place(14))));
    }

    #[test]
    fn nodes_go_when_nobody_below_them_is_left_wherever_that_is() {
        let (mut here, mut there) = (Tree::new(CellId(0), LIFE), Tree::new(CellId(1), LIFE));
        let root = here.root();
        here.store(root, 1, Place(10)).unwrap();
        let parent = here.fork(root, CellId(1)).unwrap();
        let child = there.leaf_below(root);
        assert_eq!((here.leads_to(parent), there.leads_to(child)), (None, Some(root)));
        let no_child = |of, at| Err(TreeError::NoChild { of, at });
        assert_eq!(here.child_ended(CellId(1), parent), no_child(CellId(1), parent));
        assert_eq!(here.child_ended(CellId(2), root), no_child(CellId(2), root), "it takes none from others");
        assert_eq!(here.child_ended(CellId(0), root), no_child(CellId(0), root), "of ours we know ourselves");
        let mut heir = here.clone();
        let ended = here.end(parent).unwrap();
        assert_eq!(ended, Ended { freed: vec![Freed { node: parent, pages: vec![] }], tell: None });
        let ended = there.end(child).unwrap();
        assert_eq!((ended.freed.len(), ended.tell, there.is_empty()), (1, Some(root), true));
        let ended = here.child_ended(CellId(1), root).unwrap();
        assert_eq!(ended, Ended { freed: vec![Freed { node: root, pages: vec![Place(10)] }], tell: None });
        assert_eq!(
            here.child_ended(CellId(1), root),
            Err(TreeError::NoNode(root)),
            "it was said once too often"
        );
        assert_eq!(here.store(child, 1, Place(1)), Err(TreeError::NoNode(child)));
        assert_eq!(here.len(), 0);
        // The child's cell is dead instead.
        assert_eq!(heir.dead(CellId(1)), []);
        assert_eq!(heir.end(parent).unwrap().freed.len(), 2, "the leaf, and the root that only it needed");
        let mut heir = Tree::new(CellId(0), LIFE);
        let root = heir.root();
        let parent = heir.fork(root, CellId(1)).unwrap();
        heir.end(parent).unwrap();
        assert_eq!(heir.dead(CellId(1)).len(), 1);
        assert!(heir.is_empty());
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

    /// Several cells, each of which reads all others without fault.
    struct Forest(Vec<Tree>);

    impl Nodes for Forest {
        type Error = TreeError;

        fn node(&self, at: Far) -> Result<NodeHead, TreeError> {
            self.0[at.cell.0 as usize].node(at)
        }

        fn page(&self, at: Far, page: u64) -> Result<Option<Place>, TreeError> {
            self.0[at.cell.0 as usize].page(at, page)
        }
    }

    impl Forest {
        fn of(&mut self, at: Far) -> &mut Tree {
            &mut self.0[at.cell.0 as usize]
        }

        /// Ends a process, and tells whoever is to be told.
        fn end(&mut self, leaf: Far) {
            let (mut from, mut ended) = (leaf.cell, self.of(leaf).end(leaf).unwrap());
            while let Some(at) = ended.tell {
                (from, ended) = (at.cell, self.of(at).child_ended(from, at).unwrap());
            }
        }
    }

    proptest! {
        /// The same as if each fork copied all pages. When all processes have ended, nothing is left.
        #[test]
        fn as_if_each_fork_copied_everything(acts in prop::collection::vec((0_u32..8, any::<prop::sample::Index>(), 0_u32..3, 0_u64..6), 0..120)) {
            let mut forest = Forest((0..3).map(|cell| Tree::new(CellId(cell), LIFE)).collect());
            let first = forest.0[0].root();
            let mut processes: Vec<(Far, BTreeMap<u64, Place>)> = vec![(first, BTreeMap::new())];
            let mut next_place = 0;
            for (act, which, cell, page) in acts {
                if processes.is_empty() {
                    break;
                }
                let which = which.index(processes.len());
                let (leaf, pages) = processes[which].clone();
                match act {
                    0 | 1 => {
                        let (parent, child) = if cell == leaf.cell.0 {
                            forest.of(leaf).split(leaf).unwrap()
                        } else {
                            let parent = forest.of(leaf).fork(leaf, CellId(cell)).unwrap();
                            (parent, forest.0[cell as usize].leaf_below(leaf))
                        };
                        processes[which].0 = parent;
                        processes.push((child, pages));
                    }
                    2 => {
                        processes.swap_remove(which);
                        forest.end(leaf);
                    }
                    _ => {
                        next_place += 1;
                        forest.of(leaf).store(leaf, page, Place(next_place)).unwrap();
                        processes[which].1.insert(page, Place(next_place));
                    }
                }
                for (leaf, pages) in &processes {
                    for page in 0..6 {
                        let found = lookup(&forest, *leaf, page, DEEP).unwrap();
                        prop_assert_eq!(found.map(|found| found.place), pages.get(&page).copied());
                    }
                }
            }
            processes.iter().for_each(|(leaf, _)| forest.end(*leaf));
            prop_assert!(forest.0.iter().all(Tree::is_empty));
        }
    }
}
