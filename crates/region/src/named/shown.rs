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

/// Of a node with more than that, a walk looks at the last place alone.
const MOST_PLACES_WALKED: u64 = 4096;

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

/// Walks through a list, and shows what it comes to. One that changes meanwhile breaks no rule, and may not be seen whole; one that is within a change
/// is not stable.
pub fn walk<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    list: Far<RegionsShown>,
    see: impl FnMut(Seen),
) -> Result<(), CarefulError> {
    let before = c.read(list)?;
    if before.version % 2 == 1 {
        let (cell, offset, version) = (c.cell(), list.offset(), before.version);
        return Err(CarefulError::Unstable { cell, offset, version });
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
        if node.blocks <= MOST_PLACES_WALKED {
            check_places(c, at, &node)?;
        } else {
            c.element(node.places, usize::try_from(node.blocks - 1).unwrap_or(usize::MAX))?;
        }
        (at, life) = (node.parent, node.parent_life);
    }
    Err(c.broken("the way up from a node comes to an end"))
}

/// Each place is one.
fn check_places<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    at: Far<NodeShown>,
    node: &NodeShown,
) -> Result<(), CarefulError> {
    let places = c.array(node.places, usize::try_from(node.blocks).unwrap_or(usize::MAX))?;
    if places.len() as u64 != node.blocks {
        return Err(c.broken("a node has a place for each block"));
    }
    match places.into_iter().filter_map(PlaceShown::slot).max() {
        Some(last) => check_slot(c, at, node, last),
        None => Ok(()),
    }
}

/// What a place says was put aside, was. `node`: what the node was before, or after, the place was read.
pub(super) fn check_slot<S: Source + ?Sized>(
    c: &Careful<'_, S>,
    at: Far<NodeShown>,
    node: &NodeShown,
    slot: u64,
) -> Result<(), CarefulError> {
    // It may have grown meanwhile.
    if slot < node.slots || slot < c.read(at)?.slots {
        return Ok(());
    }
    Err(c.broken("a block that was put aside is one of those that were"))
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
        let region =
            RegionShown { next, begins, bytes: entry.allocation.bytes, generation, newest: Far::NONE };
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
    /// How many of them were put aside. It grows before a place says so.
    pub slots: u64,
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

#[cfg(test)]
mod tests {
    use comb_memory::careful::careful;
    use comb_types::CellId;

    use super::*;

    const OWN: CellId = CellId(1);

    /// What a home shows that has one region, of three blocks, which was forked once from another cell's.
    struct Scene {
        published: Published,
        list: Far<RegionsShown>,
        region: Far<RegionShown>,
        node: Far<NodeShown>,
        places: Far<PlaceShown>,
    }

    impl Scene {
        fn new() -> Self {
            let published = Published::create(OWN, Incarnation(7), 1 << 20).unwrap();
            let places = [PlaceShown::NOT_HERE, PlaceShown::IN_FRAMES, PlaceShown::aside(1)];
            let places = published.allocate_array(&places).unwrap();
            let parent = Far::alleged(CellId(2), 4112);
            let node = NodeShown { parent, parent_life: 3, places, blocks: 3, slots: 2 };
            let node = published.allocate(node).unwrap();
            let (begins, bytes, generation) = (ADDRESSES.start, 3 * 4096, 1);
            let region = RegionShown { next: Far::NONE, begins, bytes, generation, newest: node };
            let region = published.allocate(region).unwrap();
            let list = published.allocate(RegionsShown { first: region, count: 1, version: 2 }).unwrap();
            Self { published, list, region, node, places }
        }

        fn walk(&self) -> Result<Vec<Seen>, CarefulError> {
            let mut all = Vec::new();
            careful(&self.published, |c| walk(c, self.list, |seen| all.push(seen)))?;
            Ok(all)
        }
    }

    /// What a pointer meant that led to a life of a cell that is over was looked for in the next one, and not found: whoever had it was ended for that.
    #[test]
    fn a_pointer_to_another_cell_says_to_which_life_of_it() {
        let scene = Scene::new();
        let all = scene.walk().unwrap();
        let [Seen::Elsewhere(node, life), Seen::Region(region, _)] = all[..] else { panic!("{all:?}") };
        assert_eq!((node.cell(), node.offset(), life), (CellId(2), 4112, Incarnation(3)));
        assert_eq!(region, scene.region);
    }

    #[test]
    fn the_newest_node_of_a_region_is_in_its_own_cell() {
        let scene = Scene::new();
        scene.published.update(scene.region, |region| region.newest = Far::alleged(CellId(2), 4112));
        assert!(matches!(scene.walk(), Err(CarefulError::Broken { cell: OWN, .. })));
    }

    /// A store to anywhere hit a place of a node: children read zeros where there had been nothing.
    #[test]
    fn no_place_leads_beyond_what_was_put_aside() {
        let scene = Scene::new();
        let set =
            |slot| scene.published.update_element(scene.places, 2, |place| *place = PlaceShown::aside(slot));
        set(2);
        assert!(matches!(scene.walk(), Err(CarefulError::Broken { cell: OWN, .. })));
        scene.published.update(scene.node, |node| node.slots = 3);
        assert!(scene.walk().is_ok(), "it was put aside meanwhile");
    }
}
