//! Copy-on-write children of regions, in any cell. (Hive §5.3)
//!
//! When a region is forked, what it contains at that moment becomes a *node*, which nobody changes any more: where each block of it is, stands in memory that
//! all cells can read. The blocks stay among the region's frames; before the region stores to one for the first time it is put aside for the node. The child begins
//! empty. Whoever wants a block that the child has not got makes its home look for it from node to node, each in its own cell's memory, by careful
//! reference; the nearest that has it is the one, and from there it is copied. Nothing is locked on the way and nobody is asked.
//!
//! | the reader | the node's cell |
//! |---|---|
//! | reads where the block is | |
//! | copies it from there | puts it aside, says so, and only then lets anybody store |
//! | reads again where it is; if that has changed it begins anew | |
//!
//! If a node's cell dies, what a child had not got from there is lost to it. A child that is removed says so to the cell of its parent; a node without
//! children is no more.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comb_containment::CellId;
use comb_containment::tree::{self, Found, LookupError, NodeHead, Nodes, Place};
use comb_memory::careful::{Careful, CarefulError, Peer, Source, careful};
use comb_memory::{Far, Published};
use comb_types::Incarnation;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::shared::Shared;
use super::{Books, Office};
use crate::named::door::Ask;
use crate::named::shown::{MOST_BLOCKS, MOST_NODES, NodeShown, PlaceShown, check_slot};

/// A block that is put aside in the very moment is somewhere else the next.
const TRIES: usize = 16;

/// How the memory of other cells is come by.
pub trait OtherCells: Send + Sync {
    /// What a cell shows; none: nothing is seen of it.
    fn peer(&self, cell: CellId) -> Option<Arc<Peer>>;

    /// Of which cells something is seen.
    fn cells(&self) -> Vec<CellId>;
}

/// Where a node's blocks are read from.
#[derive(Debug)]
pub(super) struct NodeFiles {
    pub(super) frames: OwnedFd,
    pub(super) aside: OwnedFd,
}

/// Why a block was not found.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFound {
    #[error(transparent)]
    Lookup(#[from] LookupError<CarefulError>),
    #[error("a pointer in {holder} leads astray: {source}")]
    Astray { holder: CellId, source: CarefulError },
    #[error("{0} has not let this cell read its frames")]
    NoFiles(tree::Far),
    #[error("{0} is elsewhere each time it is looked for")]
    Restless(tree::Far),
    #[error("cannot read what {0} has: {1}")]
    System(tree::Far, Errno),
}

impl NotFound {
    /// The cell to look at.
    pub(super) fn suspect(&self) -> Suspect {
        let (cell, is_gone) = match self {
            Self::Lookup(LookupError::Unreadable { at, source }) => {
                (at.cell, matches!(source, CarefulError::BusError { .. } | CarefulError::CutOff { .. }))
            }
            Self::Astray { holder, .. } => (*holder, false),
            Self::Lookup(LookupError::Loop { guilty } | LookupError::TooDeep { guilty }) => (*guilty, false),
            Self::NoFiles(at) | Self::Restless(at) | Self::System(at, _) => (at.cell, false),
        };
        Suspect { cell: cell.0, is_gone }
    }
}

/// What a child has above it.
pub(super) struct Ancestors {
    pub(super) parent: tree::Far,
    pub(super) files: BTreeMap<tree::Far, NodeFiles>,
    own: Arc<Published>,
    others: Arc<dyn OtherCells>,
    /// Blocks that were looked for.
    looked: BTreeSet<u64>,
    guilty: Guilty,
}

/// A cell of which something was read that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suspect {
    /// Which.
    pub cell: u32,
    /// There was nothing to be read any more. That may be so of a life that is over, and says nothing about the next.
    pub is_gone: bool,
}

/// Cells of which something was read that cannot be, until somebody takes that in. Not under the home's lock: whoever watches over cells never waits for
/// what a home does.
#[derive(Clone, Default)]
pub(super) struct Guilty(Arc<Mutex<Vec<Suspect>>>);

impl Guilty {
    fn cells(&self) -> MutexGuard<'_, Vec<Suspect>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_any(&self) -> bool {
        !self.cells().is_empty()
    }

    pub(super) fn take(&self) -> Vec<Suspect> {
        std::mem::take(&mut *self.cells())
    }
}

/// The ways to a node: this cell's own memory, and others'.
struct Ways<'a> {
    own: &'a Published,
    others: &'a dyn OtherCells,
}

impl Ways<'_> {
    fn read<R>(
        &self,
        at: tree::Far,
        section: impl Fn(&Careful<'_, dyn Source + '_>, Far<NodeShown>) -> Result<R, CarefulError>,
    ) -> Result<R, CarefulError> {
        let far = Far::alleged(at.cell, at.offset);
        let gone = CarefulError::CutOff { cell: at.cell };
        if at.cell == self.own.cell() {
            if at.life != self.own.incarnation() {
                return Err(gone);
            }
            return careful(self.own as &dyn Source, |c| section(c, far));
        }
        let peer = self.others.peer(at.cell).filter(|peer| peer.incarnation() == at.life).ok_or(gone)?;
        careful(&*peer as &dyn Source, |c| section(c, far))
    }
}

impl Nodes for Ways<'_> {
    type Error = CarefulError;

    fn node(&self, at: tree::Far) -> Result<NodeHead, CarefulError> {
        self.read(at, |c, far| {
            let NodeShown { parent, parent_life, .. } = c.read(far)?;
            let life = Incarnation(parent_life);
            let parent =
                (!parent.is_none()).then(|| tree::Far { cell: parent.cell(), life, offset: parent.offset() });
            Ok(NodeHead { parent })
        })
    }

    fn page(&self, at: tree::Far, block: u64) -> Result<Option<Place>, CarefulError> {
        self.read(at, |c, far| {
            let node = c.read(far)?;
            if block >= node.blocks {
                return Ok(None);
            }
            let element = usize::try_from(block).unwrap_or(usize::MAX);
            let PlaceShown(place) = c.element(node.places, element)?;
            if let Some(slot) = PlaceShown(place).slot() {
                check_slot(c, far, &node, slot)?;
            }
            Ok((place != PlaceShown::NOT_HERE.0).then_some(Place(place)))
        })
    }
}

impl NodeFiles {
    pub(super) fn of(files: Vec<OwnedFd>) -> Option<Self> {
        let [frames, aside] = <[OwnedFd; 2]>::try_from(files).ok()?;
        Some(Self { frames, aside })
    }
}

impl Ancestors {
    pub(super) fn new(
        parent: tree::Far,
        own: Arc<Published>,
        others: Arc<dyn OtherCells>,
        guilty: Guilty,
    ) -> Self {
        Self { parent, files: BTreeMap::new(), own, others, looked: BTreeSet::new(), guilty }
    }

    /// All nodes from the parent upwards.
    pub(super) fn chain(&self) -> Result<Vec<tree::Far>, NotFound> {
        let ways = Ways { own: &self.own, others: &*self.others };
        let (mut chain, mut at) = (Vec::new(), Some(self.parent));
        while let Some(here) = at {
            if chain.contains(&here) {
                return Err(LookupError::Loop { guilty: here.cell }.into());
            }
            if chain.len() == MOST_NODES {
                return Err(LookupError::TooDeep { guilty: here.cell }.into());
            }
            chain.push(here);
            let unreadable = |source| LookupError::Unreadable { at: here, source };
            at = ways.node(here).map_err(unreadable)?.parent;
        }
        Ok(chain)
    }

    /// What a block was when the nearest ancestor was forked that has it; none: nobody had ever stored to it. Only the first time that it is asked for: after
    /// that the child has it.
    pub(super) fn find(&mut self, block: u64, bytes: usize) -> Result<Option<Vec<u8>>, NotFound> {
        if !self.looked.insert(block) {
            return Ok(None);
        }
        let found = self.look(block, bytes).map_err(|error| self.whose(error));
        if let Err(error) = &found {
            self.looked.remove(&block);
            self.guilty.cells().push(error.suspect());
        }
        found
    }

    fn look(&self, block: u64, bytes: usize) -> Result<Option<Vec<u8>>, NotFound> {
        let ways = Ways { own: &self.own, others: &*self.others };
        let mut content = vec![0; bytes];
        for _ in 0..TRIES {
            let Some(Found { node, place }) = tree::lookup(&ways, self.parent, block, MOST_NODES)? else {
                return Ok(None);
            };
            let files = self.files.get(&node).ok_or(NotFound::NoFiles(node))?;
            let (file, at) = match PlaceShown(place.0).slot() {
                Some(slot) => (&files.aside, slot.saturating_mul(bytes as u64)),
                None => (&files.frames, block * bytes as u64),
            };
            read(file, at, &mut content).map_err(|source| NotFound::System(node, source))?;
            // It was there all the time; and so was its cell, whose frames are emptied after what it shows is gone.
            let unreadable = |source| LookupError::Unreadable { at: node, source };
            if ways.page(node, block).map_err(unreadable)? == Some(place) {
                return Ok(Some(content));
            }
        }
        Err(NotFound::Restless(self.parent))
    }

    /// Where nothing is that somebody's pointer leads to, the pointer is to blame, unless all of that memory is gone.
    fn whose(&self, error: NotFound) -> NotFound {
        let NotFound::Lookup(LookupError::Unreadable { at, source }) = error else { return error };
        if at == self.parent || matches!(source, CarefulError::BusError { .. } | CarefulError::CutOff { .. })
        {
            return error;
        }
        let ways = Ways { own: &self.own, others: &*self.others };
        let (mut here, mut left) = (self.parent, MOST_NODES);
        while let Ok(NodeHead { parent: Some(parent) }) = ways.node(here) {
            if parent == at || left == 0 {
                return NotFound::Astray { holder: here.cell, source };
            }
            here = parent;
            left -= 1;
        }
        error
    }

    /// How many blocks were looked for already.
    pub(super) fn has_looked(&self, block: u64) -> bool {
        self.looked.contains(&block)
    }

    /// The cells that what has not been looked for depends on.
    pub(super) fn cells(&self) -> BTreeSet<u32> {
        self.files.keys().map(|node| node.cell.0).collect()
    }
}

/// The last block of a region may be longer than its frames: what is beyond is nothing.
fn read(file: &OwnedFd, mut at: u64, mut into: &mut [u8]) -> Result<(), Errno> {
    while !into.is_empty() {
        match rustix::io::pread(file, &mut *into, at) {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                into = &mut into[bytes..];
                at += bytes as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The same file, for who may only read it.
fn to_read(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// What a region has below it.
#[derive(Default)]
pub(super) struct Forks {
    published: Option<Arc<Published>>,
    /// By where they are shown.
    nodes: BTreeMap<u64, Node>,
    /// The same, the newest last: it has all the others above it.
    order: Vec<u64>,
    /// Blocks among the region's frames that belong to a node: which.
    in_frames: BTreeMap<u64, u64>,
    /// Blocks that the region has stored to since it was forked last.
    since: BTreeSet<u64>,
}

struct Node {
    shown: Far<NodeShown>,
    places: Far<PlaceShown>,
    aside: OwnedFd,
    slots: u64,
    /// How many children each cell has below it.
    children: BTreeMap<u32, u32>,
}

impl Forks {
    pub(super) fn new(published: Option<Arc<Published>>) -> Self {
        let mut forks = Self::default();
        forks.published = published;
        forks
    }

    /// A block is about to change: whether somebody wants to know what it is now.
    pub(super) fn wants(&mut self, block: u64) -> bool {
        self.since.insert(block);
        self.in_frames.contains_key(&block)
    }

    /// This it is. Who stores to it may do so when this returns.
    pub(super) fn put_aside(&mut self, block: u64, content: &[u8]) -> Result<(), Errno> {
        let Some(node) = self.in_frames.remove(&block) else { return Ok(()) };
        let (Some(published), Some(node)) = (&self.published, self.nodes.get_mut(&node)) else {
            return Ok(());
        };
        let slot = node.slots;
        let (mut at, mut left) = (slot * content.len() as u64, content);
        while !left.is_empty() {
            let written = rustix::io::pwrite(&node.aside, left, at)?;
            left = &left[written..];
            at += written as u64;
        }
        node.slots += 1;
        published.update(node.shown, |shown| shown.slots = node.slots);
        let element = usize::try_from(block).expect("fewer than can be shown");
        published.update_element(node.places, element, |place| *place = PlaceShown::aside(slot));
        Ok(())
    }

    /// What the region has stored to since the last time becomes a node, below which a cell has a child. `parent` is where the region itself looks for
    /// what it has not got.
    pub(super) fn split(
        &mut self,
        blocks: u64,
        parent: Option<tree::Far>,
        child: u32,
    ) -> Result<u64, String> {
        let published = self.published.clone().ok_or("this home shows nothing to other cells")?;
        if blocks > MOST_BLOCKS {
            return Err(format!("it has more than {MOST_BLOCKS} blocks: make it of larger ones (--block)"));
        }
        let (above, life) = match (self.order.last().map(|newest| &self.nodes[newest]), parent) {
            (Some(node), _) => (node.shown, published.incarnation()),
            (None, Some(parent)) => (Far::alleged(parent.cell, parent.offset), parent.life),
            (None, None) => (Far::NONE, Incarnation(0)),
        };
        let mut places = vec![PlaceShown::NOT_HERE; usize::try_from(blocks).expect("few")];
        for &block in &self.since {
            places[usize::try_from(block).expect("few")] = PlaceShown::IN_FRAMES;
        }
        let full = |error: comb_memory::Full| error.to_string();
        let aside =
            rustix::fs::memfd_create("comb-aside", MemfdFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let places = published.allocate_array(&places).map_err(full)?;
        let shown =
            published.allocate(NodeShown { parent: above, parent_life: life.0, places, blocks, slots: 0 });
        let shown = shown.inspect_err(|_| published.free(places)).map_err(full)?;
        if let Some(node) = self.nodes.get_mut(&above.offset()) {
            *node.children.entry(shown.cell().0).or_default() += 1;
        }
        let node = Node { shown, places, aside, slots: 0, children: BTreeMap::from([(child, 1)]) };
        self.nodes.insert(shown.offset(), node);
        self.order.push(shown.offset());
        self.in_frames
            .extend(std::mem::take(&mut self.since).into_iter().map(|block| (block, shown.offset())));
        Ok(shown.offset())
    }

    /// A child in that cell is no more, or all of them: their cell is dead. Whether there was one.
    pub(super) fn child_ended(&mut self, node: u64, cell: u32, all: bool) -> bool {
        let Some(children) = self.nodes.get_mut(&node).map(|node| &mut node.children) else { return false };
        let Some(count) = children.get_mut(&cell) else { return false };
        *count = if all { 0 } else { *count - 1 };
        if *count == 0 {
            children.remove(&cell);
        }
        self.free_up(node);
        true
    }

    /// A node without children is no more, and its parent has one less.
    fn free_up(&mut self, mut node: u64) {
        while self.nodes.get(&node).is_some_and(|node| node.children.is_empty()) {
            let (Some(gone), Some(published)) = (self.nodes.remove(&node), self.published.clone()) else {
                return;
            };
            self.order.retain(|&other| other != node);
            let parent = published.get(gone.shown).parent;
            published.free(gone.shown);
            published.free(gone.places);
            let own: Vec<u64> =
                self.in_frames.iter().filter(|(_, of)| **of == node).map(|(&block, _)| block).collect();
            for block in own {
                self.in_frames.remove(&block);
                // Should it be forked again, it is the next node's.
                self.since.insert(block);
            }
            let Some(above) =
                self.nodes.get_mut(&parent.offset()).filter(|_| parent.cell() == gone.shown.cell())
            else {
                return;
            };
            if let Some(count) = above.children.get_mut(&gone.shown.cell().0) {
                *count -= 1;
            }
            above.children.retain(|_, count| *count > 0);
            node = parent.offset();
        }
    }

    /// A cell is dead, and all that it had below.
    pub(super) fn cell_ended(&mut self, cell: u32) {
        let nodes: Vec<u64> = self.nodes.keys().copied().collect();
        for node in nodes {
            self.child_ended(node, cell, true);
        }
    }

    /// By what a node's blocks can be read.
    pub(super) fn files(&self, node: u64, frames: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, String> {
        let node = self.nodes.get(&node).ok_or("there is no such node")?;
        let files = rustix::io::fcntl_dupfd_cloexec(frames, 0)
            .and_then(|frames| Ok(vec![frames, to_read(&node.aside)?]));
        files.map_err(|error| format!("its home has no descriptor left: {error}"))
    }

    /// Whether a node is one of this region's.
    pub(super) fn has(&self, node: u64) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The newest node.
    pub(super) fn newest(&self) -> Far<NodeShown> {
        self.order.last().map_or(Far::NONE, |newest| self.nodes[newest].shown)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        let Some(published) = &self.published else { return };
        for node in self.nodes.values() {
            published.free(node.shown);
            published.free(node.places);
        }
    }
}

impl Books {
    /// Nodes come and go, and nobody who looks at them meanwhile finds anything broken.
    pub(super) fn with_nodes<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        if let Some(showing) = &mut self.showing {
            showing.hold();
        }
        let changed = change(self);
        let newest = self.regions.iter().map(|(&begins, region)| (begins, region.body.forks.newest()));
        if let Some(showing) = &mut self.showing {
            showing.go_on(newest);
        }
        changed
    }
}

impl Office {
    /// A child is no more, or never was: its parent's home is told, if it is there.
    pub(super) fn leave_parent(&self, ancestors: &Ancestors) {
        let parent = ancestors.parent;
        let _ = Ask::at(&self.options.runtime, parent.cell.0)
            .and_then(|door| door.fork_ended(parent, self.options.cell));
    }
}

impl Shared {
    /// Who is forked again and again gets all that it has not got, before the way up is too long.
    pub(super) fn is_too_deep(&self) -> bool {
        let chain =
            self.body.ancestors.as_ref().map(|ancestors| ancestors.chain().map_or(0, |chain| chain.len()));
        chain.is_some_and(|nodes| nodes + self.body.forks.count() + 2 >= MOST_NODES)
    }

    /// What it needs no more: its parent's home is to be told. An error if what was forked from it needs that still.
    pub(super) fn stay_shallow(&mut self) -> Result<Option<Ancestors>, String> {
        let nodes = self.body.forks.count();
        if nodes + 2 >= MOST_NODES || nodes > 0 && self.is_too_deep() {
            return Err(format!(
                "{} has children of {nodes} moments: fork one of them instead, or remove some",
                self.entry.name
            ));
        }
        if !self.is_too_deep() {
            return Ok(None);
        }
        self.get_all_from_ancestors();
        Ok(self.body.ancestors.take())
    }
}
