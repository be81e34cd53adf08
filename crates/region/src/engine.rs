//! What this component knows and does for all its threads: allocations with their protocols, messages of the others, who waits
//! for what. One thread at a time has it, under [`crate::runtime::Runtime`]'s lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use comb_coherence::release::Release;
use comb_coherence::stache::Stache;
use comb_coherence::{Access, Block, CellId, Home, Loss, Protocol};
use comb_memory::{Grain, Layout, Memory};

use crate::calls::Calls;
use crate::driver::{Core, Driver, Waiter};
use crate::futex::Futexes;
use crate::habits::Habits;
use crate::heap::Heap;
use crate::homes::Homes;
use crate::moving::Moving;
use crate::neighbours::{Neighbours, Role};
use crate::peers::{Gone, Peers};
use crate::synchronise::Synchronisation;
use crate::terms::{Allocation, Sharing};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

mod ahead;
mod ending;
mod faults;
mod fetching;
mod guests;
mod hearing;
mod holding;
mod imported;
mod named;
mod pages;
mod recording;
mod releasing;
#[cfg(test)]
pub(crate) mod scene;
mod tending;

use ahead::Streams;
pub(crate) use ending::end_now;
pub(crate) use faults::{Stopped, Waited};
pub(crate) use fetching::Fetch;
pub(crate) use guests::Want;
pub(crate) use hearing::Mistake;
use holding::Holds;
pub(crate) use holding::OWN;
pub(crate) use imported::Hint;
use imported::Imported;
pub(crate) use named::Named;
use releasing::Releasing;

/// Messages that are taken before the driver looks whether what it waits for has happened.
const MESSAGES_A_TURN: usize = 32;

/// A protocol of the program's own, made anew for each allocation.
pub(crate) type Factory = Arc<dyn Fn() -> Box<dyn Protocol + Send> + Send + Sync>;

/// An allocation as this component has it.
pub(crate) struct Entry {
    pub(crate) shape: Shape,
    /// None where all components share the page frames themselves.
    pub(crate) protocol: Option<Box<dyn Protocol + Send>>,
    /// Messages about extents whose home is not known here yet.
    early: Vec<(u32, Head, Vec<u8>)>,
    /// The same of threads of guests.
    homeless: Vec<(Block, Want)>,
}

/// What of it the protocol's driver needs.
pub(crate) struct Shape {
    pub(crate) allocation: Allocation,
    pub(crate) layout: Layout,
    pub(crate) homes: Homes,
    /// Extents that live here, and whose blocks were given their first right.
    claimed: BTreeSet<u64>,
    pub(crate) lost: BTreeMap<u64, Loss>,
    streams: Streams,
    /// Where a reader may be given more than it asks for.
    habits: Option<Habits>,
    /// Of how many bytes that live elsewhere there are copies here.
    pub(crate) copied_bytes: u64,
    /// Of memory whose blocks may get another home.
    pub(crate) moving: Option<Moving>,
    /// Of a named region, what a task's memory does not have.
    pub(crate) named: Option<Named>,
    /// Another process has its page frames and rights.
    pub(crate) imported: Option<Imported>,
}

/// Why an allocation was refused by a component.
pub(crate) const REFUSED_PROTOCOL: u64 = 1;
pub(crate) const REFUSED_MEMORY: u64 = 2;

pub(crate) struct Engine {
    pub(crate) core: Core,
    pub(crate) entries: BTreeMap<u64, Entry>,
    pub(crate) heap: Heap,
    pub(crate) factories: BTreeMap<u16, Factory>,
    pub(crate) synchronisation: Synchronisation,
    pub(crate) futexes: Futexes,
    pub(crate) calls: Calls,
    /// Allocations of this component's that another one is done with.
    releasing: Vec<Releasing>,
    /// Component 0 has said that the task is over.
    is_ending: bool,
    /// There is or was memory of which others are told when somebody synchronises: a program may have many allocations, and synchronise often.
    has_to_publish: bool,
    /// For whoever has to wait: a thread that faults allocates nothing.
    pub(crate) slots: Vec<Arc<Slot>>,
    pub(crate) generation: u32,
    /// Components that have said that they are done.
    pub(crate) parted: BTreeSet<u32>,
    /// By creator, the number of the last allocation that was heard of.
    newest: BTreeMap<u32, u32>,
    /// What was allocated by all together, in their order.
    pub(crate) together: Vec<u64>,
    /// What a message is read into.
    buffer: Vec<u8>,
    /// The peers that are homes of named regions, by their cells' numbers; none of them is a component of a task.
    pub(crate) homes: BTreeMap<u32, u32>,
    /// Messages about blocks that threads of this component are to have for a moment.
    holds: Holds,
}

impl Engine {
    pub(crate) fn new(
        memory: Arc<Memory>,
        peers: Option<Peers>,
        rank: u32,
        count: u32,
        imports: bool,
    ) -> Self {
        Self {
            core: Core::new(memory, peers, CellId(rank), count, imports),
            entries: BTreeMap::new(),
            heap: Heap::slice(rank, count),
            factories: BTreeMap::new(),
            synchronisation: Synchronisation::new(rank, count),
            futexes: Futexes::new(rank),
            calls: Calls::new(rank),
            releasing: Vec::new(),
            is_ending: false,
            has_to_publish: false,
            slots: Vec::new(),
            generation: 0,
            parted: BTreeSet::new(),
            newest: BTreeMap::new(),
            together: Vec::new(),
            buffer: Vec::with_capacity(128 << 10),
            homes: BTreeMap::new(),
            holds: Holds::default(),
        }
    }

    pub(crate) fn slot(&mut self) -> Arc<Slot> {
        self.slots.pop().unwrap_or_default()
    }

    /// Takes in what has come, a turn's worth. Whether anything had.
    pub(crate) fn drive(&mut self) -> bool {
        let mut came = self.release_held();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut taken = 0;
        // No event tells of the rest of what has come together.
        while let Some(peers) = &mut self.core.peers
            && (taken < MESSAGES_A_TURN || peers.has_more())
            && let Some(arrival) = peers.receive(&mut buffer)
        {
            came = true;
            taken += 1;
            self.hear(arrival.from, arrival.kind, &buffer);
            self.let_ready_in();
        }
        self.let_ready_in();
        self.buffer = buffer;
        self.core.raise();
        self.tend();
        if let Some(peers) = &mut self.core.peers {
            peers.flush();
            while let Some(gone) = self.core.peers.as_mut().and_then(Peers::take_gone) {
                came = true;
                self.gone(&gone);
            }
        }
        came
    }

    /// Whether something is left to do that no message announces.
    pub(crate) fn is_owing(&self) -> bool {
        self.holds.are_owing()
            || !self.core.ready.is_empty()
            || self.core.peers.as_ref().is_some_and(Peers::has_unsent)
    }

    fn gone(&mut self, gone: &Gone) {
        self.futexes.forget(gone.rank);
        if self.core.are_homes {
            return self.home_is_gone(gone.rank);
        }
        self.end_with(gone.rank);
        if self.parted.contains(&gone.rank) {
            return;
        }
        // So no protocol of a task hears of a death.
        crate::driver::end_together(gone)
    }

    /// All that this component has stored is to be found by whoever synchronises with it later: begins that.
    pub(crate) fn begin_to_publish(&mut self, slot: &Arc<Slot>) {
        if !self.has_to_publish {
            return slot.begin(0);
        }
        let publishes = |entry: &Entry| {
            entry.shape.allocation.terms.sharing.is_published()
                && (entry.protocol.is_some() || entry.shape.imported.is_some())
        };
        let offsets: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| publishes(entry)).map(|(&offset, _)| offset).collect();
        slot.begin(u32::try_from(offsets.len()).expect("fewer allocations"));
        for offset in &offsets {
            match self.entries[offset].shape.imported {
                // Whoever has the rights does it.
                Some(imported) => {
                    let token = self.core.token(imported.lead(), slot);
                    self.core.say(imported.lead(), Kind::Publish, &[token, *offset, 0, 0], &[]);
                }
                None => self.core.syncing.push((*offset, Waiter::Thread(Arc::clone(slot)))),
            }
        }
        for offset in offsets {
            let Some(entry) = self.entries.get_mut(&offset) else { continue };
            let Some(protocol) = &mut entry.protocol else { continue };
            let mut driver = Driver::new(&mut self.core, &mut entry.shape);
            protocol.on_sync(&mut driver);
        }
        self.core.raise();
    }

    /// Who keeps the queue of those who sleep at a word: its home, or where only asking would tell, who has made the allocation. All
    /// components come to the same.
    pub(crate) fn keeper(&mut self, address: usize) -> Option<u32> {
        let (entry, block) = locate(&mut self.entries, address)?;
        let Shape { homes, allocation, .. } = &entry.shape;
        Some(homes.by_rule(homes.extent(block.0)).unwrap_or(allocation.creator))
    }

    // ── allocations ──

    /// The addresses of each, beside its generation: of the heap, and only where one address means one place.
    pub(crate) fn addresses(&self) -> Vec<(u32, Range<usize>)> {
        let layouts = self.entries.values().map(|entry| (&entry.shape.allocation, &entry.shape.layout));
        let is_plain = |layout: &Layout| layout.grain() != Grain::Minipages;
        let range = |layout: &Layout| {
            let bytes = usize::try_from(layout.frame_bytes()).expect("addresses have 64 bits");
            layout.start()..layout.start() + bytes
        };
        layouts
            .filter(|(allocation, layout)| allocation.image == 0 && is_plain(layout))
            .map(|(allocation, layout)| (allocation.generation, range(layout)))
            .collect()
    }

    /// Makes an allocation known here. An error is a number for the one who asked.
    pub(crate) fn install(&mut self, allocation: Allocation) -> Result<(), u64> {
        let terms = allocation.terms;
        let layout = allocation.layout().map_err(|_| REFUSED_MEMORY)?;
        if !terms.guard.suits(terms.sharing) {
            return Err(REFUSED_PROTOCOL);
        }
        let me = self.core.me.0;
        let homes = self.homes_of(&allocation, &layout);
        let neighbours = self.neighbours_for(&layout);
        let guest = neighbours.and_then(|neighbours| match &neighbours.role {
            Role::Guest(guest) => Some(guest),
            Role::Lead(_) => None,
        });
        let protocol: Option<Box<dyn Protocol + Send>> = if let Some(guest) = guest {
            guest.map(&self.core.memory, &layout).map_err(|_| REFUSED_MEMORY)?;
            None
        } else if self.core.imports {
            self.core.memory.map(&layout).map_err(|_| REFUSED_MEMORY)?;
            None
        } else {
            let protocol: Box<dyn Protocol + Send> = match terms.sharing {
                Sharing::Stache => Box::new(Stache::new()),
                Sharing::Migratory => Box::new(Stache::migratory()),
                Sharing::Release => Box::new(Release::invalidating()),
                Sharing::Update => Box::new(Release::updating()),
                Sharing::Own(number) => self.factories.get(&number).ok_or(REFUSED_PROTOCOL)?(),
            };
            let initial = if homes.are_all(me) { Access::ReadWrite } else { Access::Invalid };
            self.core.memory.guard(&layout, initial).map_err(|_| REFUSED_MEMORY)?;
            Some(protocol)
        };
        let imported = guest.is_some().then(|| Imported::of(homes.lead(me)));
        let moving = (terms.moves && terms.sharing.may_move() && protocol.is_some())
            .then(|| Moving::new(me, homes.extent_blocks()));
        let shape = Shape {
            allocation,
            layout,
            homes,
            claimed: BTreeSet::new(),
            lost: BTreeMap::new(),
            streams: Streams::default(),
            habits: (terms.sharing == Sharing::Stache).then(Habits::default),
            copied_bytes: 0,
            moving,
            named: None,
            imported,
        };
        let newest = self.newest.entry(allocation.creator).or_default();
        *newest = allocation.generation.max(*newest);
        let entry = Entry { shape, protocol, early: Vec::new(), homeless: Vec::new() };
        self.has_to_publish |= terms.sharing.is_published();
        self.entries.insert(allocation.offset, entry);
        Ok(())
    }

    /// Where its blocks live.
    pub(crate) fn homes_of(&self, allocation: &Allocation, layout: &Layout) -> Homes {
        let leads = self.neighbours_for(layout).map(|neighbours| Arc::clone(&neighbours.leads));
        Homes::new(allocation.terms.placement, self.core.count(), layout.block_bytes() as u64).led(leads)
    }

    /// With whom this component is one, to such memory.
    fn neighbours_for(&self, layout: &Layout) -> Option<&Neighbours> {
        self.core.neighbours.as_ref().filter(|_| layout.grain() == Grain::Pages)
    }

    /// Forgets an allocation; its memory is given back.
    pub(crate) fn remove(&mut self, offset: u64) {
        if let Some(entry) = self.entries.remove(&offset) {
            self.core.forget(offset);
            self.core.forget_of_guests(&entry.shape.layout);
            self.core.copies.forget(offset, entry.shape.copied_bytes);
            self.core
                .memory
                .unmap(&entry.shape.layout, true)
                .unwrap_or_else(|error| crate::driver::fail(&error));
        }
    }
}

impl Entry {
    /// Who has made it may say that it is no more.
    pub(crate) fn may_be_freed_by(&self, rank: u32) -> bool {
        self.shape.allocation.creator == rank
    }
}

impl Shape {
    /// Where a block lives, as far as this component knows.
    #[inline]
    pub(crate) fn home(&self, block: u64) -> Option<u32> {
        if self.moving.is_none() {
            return self.homes.of(self.homes.extent(block));
        }
        self.home_and_moves(Block(block)).map(|home| home.cell.0)
    }

    /// The same, and how often it had moved when it came there.
    pub(crate) fn home_and_moves(&self, block: Block) -> Option<Home> {
        let born = CellId(self.homes.of(self.homes.extent(block.0))?);
        Some(self.moving.as_ref().map_or(Home::born(born), |moving| moving.homes.of(block, born)))
    }

    /// Blocks that were born here begin with every right, from when they are first of interest. One that has moved here has its right
    /// already, and its neighbours may live elsewhere.
    pub(crate) fn claim(&mut self, core: &Core, block: u64) {
        let extent = self.homes.extent(block);
        if self.homes.of(extent) != Some(core.me.0)
            || !self.claimed.insert(extent)
            || self.homes.are_all(core.me.0)
        {
            return;
        }
        let blocks = self.homes.blocks_of(extent);
        let blocks = blocks.start..blocks.end.min(self.layout.blocks());
        core.memory
            .set(&self.layout, blocks, Access::ReadWrite)
            .unwrap_or_else(|error| crate::driver::fail(&error));
    }
}

/// The allocation that an address is in, and the block.
fn locate(entries: &mut BTreeMap<u64, Entry>, address: usize) -> Option<(&mut Entry, Block)> {
    let offset = comb_memory::images::place(address)?;
    let (_, entry) = entries.range_mut(..=offset).next_back()?;
    let block = entry.shape.layout.block_at(address)?;
    Some((entry, block))
}
