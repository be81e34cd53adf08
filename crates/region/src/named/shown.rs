//! What a home shows of its regions to other cells: a list, in memory that they read carefully. (Hive §4.1)
//!
//! The regions stand in it by their addresses, one behind the other. So a list that has been damaged shows it: a walk through it comes to what is no region,
//! to addresses that do not grow, or to no end.

use std::collections::BTreeMap;
use std::sync::Arc;

use comb_memory::careful::{Careful, CarefulError, Source};
use comb_memory::{Far, Full, Published, Structure};
use comb_types::Incarnation;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{ADDRESSES, Entry};

/// Regions that a home shows at most. A walk ends there.
pub const MOST_SHOWN: u32 = 4096;
/// Nodes from a leaf to the root. Who forks what was forked so often has its blocks copied down first.
pub const MOST_NODES: usize = 64;
/// A region with more blocks than that has too many places to show.
pub const MOST_BLOCKS: u64 = 1 << 20;

/// The list's beginning.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionsShown {
    /// The region with the lowest addresses.
    pub first: Far<RegionShown>,
    /// How many there are.
    pub count: u64,
    /// Grows before and behind each change; odd meanwhile.
    pub version: u64,
}

impl Structure for RegionsShown {
    const TAG: u32 = u32::from_le_bytes(*b"regs");
}

/// One region.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionShown {
    /// The one with the next higher addresses.
    pub next: Far<RegionShown>,
    /// Where in the heap it begins.
    pub begins: u64,
    /// How long it is.
    pub bytes: u64,
    /// Which generation of it this is.
    pub generation: u64,
    /// What it was when it was forked last.
    pub newest: Far<NodeShown>,
}

impl Structure for RegionShown {
    const TAG: u32 = u32::from_le_bytes(*b"regn");
}

/// Walks through a list: the first rule that it breaks.
pub fn check_regions<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    list: Far<RegionsShown>,
) -> Result<(), CarefulError> {
    walk(c, list, |_| ())
}

/// What a walk comes to.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// A region, and where it stands.
    Region(Far<RegionShown>, RegionShown),
    /// A pointer to another cell's node, and to which life of that cell.
    Elsewhere(Far<NodeShown>, Incarnation),
}

/// Walks through a list, and shows what it comes to. One that changes meanwhile breaks no rule, and may not be seen whole.
pub fn walk<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    list: Far<RegionsShown>,
    see: impl FnMut(Seen),
) -> Result<(), CarefulError> {
    let before = c.read(list)?;
    if before.version % 2 == 1 {
        return Ok(());
    }
    match walk_from(c, &before, see) {
        Err(_) if c.read(list)?.version != before.version => Ok(()),
        walked => walked,
    }
}

fn walk_from<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    &RegionsShown { first, count, .. }: &RegionsShown,
    mut see: impl FnMut(Seen),
) -> Result<(), CarefulError> {
    let broken = |rule| Err(c.broken(rule));
    if count > u64::from(MOST_SHOWN) {
        return broken("a list of regions is no longer than it may be");
    }
    let (mut next, mut behind) = (first, ADDRESSES.start);
    for _ in 0..count {
        let at = next;
        let region = c.read(at)?;
        let ends = region.begins.checked_add(region.bytes);
        if region.begins < behind || region.begins % 4096 != 0 {
            return broken("the regions of a list stand by their addresses");
        }
        if region.bytes == 0 || ends.is_none_or(|ends| ends > ADDRESSES.end) {
            return broken("a region lies where regions are");
        }
        behind = ends.expect("just seen");
        next = region.next;
        walk_up(c, region.newest, &mut see)?;
        see(Seen::Region(at, region));
    }
    if next.is_none() { Ok(()) } else { broken("a list of regions ends behind its last") }
}

/// From node to node, as long as they are in this cell.
fn walk_up<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    newest: Far<NodeShown>,
    see: &mut impl FnMut(Seen),
) -> Result<(), CarefulError> {
    if !newest.is_none() && newest.cell() != c.cell() {
        return Err(c.broken("what a region was when it was forked last is in its own cell"));
    }
    let (mut at, mut life) = (newest, 0);
    for _ in 0..MOST_NODES {
        if at.is_none() {
            return Ok(());
        }
        if at.cell() != c.cell() {
            see(Seen::Elsewhere(at, Incarnation(life)));
            return Ok(());
        }
        let node = c.read(at)?;
        if node.blocks > MOST_BLOCKS {
            return Err(c.broken("a node has no more blocks than it may have"));
        }
        if let Some(last) = node.blocks.checked_sub(1) {
            c.element(node.places, usize::try_from(last).unwrap_or(usize::MAX))?;
        }
        (at, life) = (node.parent, node.parent_life);
    }
    Err(c.broken("the way up from a node comes to an end"))
}

/// The home's side: keeps the list.
pub(super) struct Showing {
    published: Arc<Published>,
    list: Far<RegionsShown>,
    /// By where they begin.
    regions: BTreeMap<u64, Far<RegionShown>>,
}

impl Showing {
    pub(super) fn begin(published: Arc<Published>) -> Result<Self, Full> {
        let list = published.allocate(RegionsShown { first: Far::NONE, count: 0, version: 0 })?;
        Ok(Self { published, list, regions: BTreeMap::new() })
    }

    pub(super) fn list(&self) -> Far<RegionsShown> {
        self.list
    }

    /// A region is there. An error if there are too many: then it is not shown.
    pub(super) fn show(&mut self, entry: &Entry) -> Result<(), Full> {
        let begins = entry.allocation.offset;
        let generation = u64::from(entry.allocation.generation);
        if self.regions.len() >= MOST_SHOWN as usize {
            return Err(Full { bytes: size_of::<RegionShown>() as u64 });
        }
        let next = self.regions.range(begins..).next().map_or(Far::NONE, |(_, &next)| next);
        let region = RegionShown { next, begins, bytes: entry.allocation.bytes, generation, newest: Far::NONE };
        let region = self.published.allocate(region)?;
        self.change(|this| {
            this.link(begins, region);
            this.regions.insert(begins, region);
        });
        Ok(())
    }

    /// A region is no more.
    pub(super) fn hide(&mut self, begins: u64) {
        let Some(region) = self.regions.remove(&begins) else { return };
        let next = self.published.get(region).next;
        self.change(|this| {
            this.link(begins, next);
            this.published.free(region);
        });
    }

    /// A region is of another generation.
    pub(super) fn renew(&mut self, entry: &Entry) {
        let Some(&region) = self.regions.get(&entry.allocation.offset) else { return };
        let generation = u64::from(entry.allocation.generation);
        self.published.update(region, |shown| shown.generation = generation);
    }

    /// What stands before an address leads there.
    fn link(&self, begins: u64, to: Far<RegionShown>) {
        match self.regions.range(..begins).next_back() {
            Some((_, &before)) => self.published.update(before, |shown| shown.next = to),
            None => self.published.update(self.list, |list| list.first = to),
        }
    }

    /// What stands in the list is about to change, together with what it leads to: nobody finds it broken meanwhile.
    pub(super) fn hold(&mut self) {
        self.published.update(self.list, |list| list.version += 1);
    }

    /// It has: these are the newest nodes of regions.
    pub(super) fn go_on(&mut self, newest: impl IntoIterator<Item = (u64, Far<NodeShown>)>) {
        for (begins, newest) in newest {
            if let Some(&region) = self.regions.get(&begins) {
                self.published.update(region, |shown| shown.newest = newest);
            }
        }
        self.published.update(self.list, |list| list.version += 1);
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        self.published.update(self.list, |list| list.version += 1);
        change(self);
        let count = self.regions.len() as u64;
        self.published.update(self.list, |list| {
            list.count = count;
            list.version += 1;
        });
    }
}

/// What a region was when it was forked: a node of a copy-on-write tree. Nobody changes it any more but to say where a page of it is now. (Hive §5.3)
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NodeShown {
    /// Where whoever does not find a block here looks next; perhaps in another cell.
    pub parent: Far<NodeShown>,
    /// In which life that cell is, or was: the next one has something else in the same place.
    pub parent_life: u64,
    /// Where each block is.
    pub places: Far<PlaceShown>,
    /// How many blocks there are.
    pub blocks: u64,
}

impl Structure for NodeShown {
    const TAG: u32 = u32::from_le_bytes(*b"nodl");
}

/// Where a node has a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PlaceShown(pub u64);

impl Structure for PlaceShown {
    const TAG: u32 = u32::from_le_bytes(*b"plac");
}

impl PlaceShown {
    /// It has not: an ancestor may have.
    pub const NOT_HERE: Self = Self(0);
    /// Among the frames of the region that was forked, which has not stored to it since.
    pub const IN_FRAMES: Self = Self(1);

    /// Put aside, as the how manieth.
    pub const fn aside(slot: u64) -> Self {
        Self(slot + 2)
    }

    /// The how manieth it is of those that were put aside.
    pub const fn slot(self) -> Option<u64> {
        self.0.checked_sub(2)
    }
}
