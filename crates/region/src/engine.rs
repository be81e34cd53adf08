//! What this component knows and does for all its threads: allocations with their protocols, messages of the others, who waits
//! for what. One thread at a time has it, under [`crate::runtime::Runtime`]'s lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_coherence::release::Release;
use comb_coherence::stache::Stache;
use comb_coherence::{Access, Block, CellId, Loss, Protocol};
use comb_memory::{Layout, Memory};

use crate::checkpoint::{Holdings, OwnPage};
use crate::driver::{Core, Driver};
use crate::futex::Futexes;
use crate::heap::Heap;
use crate::homes::Homes;
use crate::peers::{Gone, Peers};
use crate::synchronise::Synchronisation;
use crate::terms::{Allocation, Placement, Sharing};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

mod hearing;

pub(crate) use hearing::Mistake;

const PAGE: u64 = 4096;
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
}

/// What of it the protocol's driver needs.
pub(crate) struct Shape {
    pub(crate) allocation: Allocation,
    pub(crate) layout: Layout,
    pub(crate) homes: Homes,
    /// Extents that live here, and whose blocks were given their first right.
    claimed: BTreeSet<u64>,
    pub(crate) lost: BTreeMap<u64, Loss>,
    ahead: Ahead,
}

/// Misses one behind the other, and how far ahead of them is read.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// The block after the last miss.
    next: u64,
    /// The one that was left out in the middle of what was asked for: who comes to it misses it, and the next are asked for while those
    /// behind it are still on their way.
    marker: u64,
    /// Blocks that are asked for ahead of a miss.
    window: u64,
    /// What was asked for ends here.
    end: u64,
}

/// What is read ahead at most, in bytes: enough to hide a round trip and the mapping of a page.
const MOST_AHEAD_BYTES: u64 = 512 << 10;

/// Why an allocation was refused by a component.
pub(crate) const REFUSED_FULL: u64 = 1;
pub(crate) const REFUSED_PROTOCOL: u64 = 2;
pub(crate) const REFUSED_MEMORY: u64 = 3;

pub(crate) struct Engine {
    pub(crate) core: Core,
    pub(crate) entries: BTreeMap<u64, Entry>,
    pub(crate) heap: Heap,
    pub(crate) factories: BTreeMap<u16, Factory>,
    pub(crate) synchronisation: Synchronisation,
    pub(crate) futexes: Futexes,
    /// For whoever has to wait: a thread that faults allocates nothing.
    pub(crate) slots: Vec<Arc<Slot>>,
    pub(crate) generation: u32,
    /// Components that have said that they are done.
    pub(crate) parted: BTreeSet<u32>,
    /// What was allocated by all together, in their order.
    pub(crate) together: Vec<u64>,
    /// What a message is read into.
    buffer: Vec<u8>,
    /// Messages about a block that a thread of this component is to have for a moment, and until when.
    held: Option<Hold>,
    served: Served,
}

struct Hold {
    offset: u64,
    block: u64,
    until: Instant,
    messages: Vec<(u32, Head, Vec<u8>)>,
}

/// The last thread that was served, where, and when.
#[derive(Default)]
struct Served {
    thread: u64,
    address: usize,
    at: Option<Instant>,
    /// How often it came back at once.
    times: u32,
}

/// A thread that has got a right makes its access within this: it returns from a signal handler, and is back at its instruction.
const SHORTEST_HOLD: Duration = Duration::from_micros(3);
/// Who comes back to the same place so soon has not made its access, because it had to wait for its core: then it is given more.
const AT_ONCE: Duration = Duration::from_micros(8);
const LONGEST_HOLD: Duration = Duration::from_millis(2);

impl Engine {
    pub(crate) fn new(
        memory: Arc<Memory>,
        peers: Option<Peers>,
        rank: u32,
        count: u32,
        imports: bool,
    ) -> Self {
        Self {
            core: Core::new(memory, peers, CellId(rank), imports),
            entries: BTreeMap::new(),
            heap: Heap::slice(rank, count),
            factories: BTreeMap::new(),
            synchronisation: Synchronisation::new(rank, count),
            futexes: Futexes::default(),
            slots: Vec::new(),
            generation: 0,
            parted: BTreeSet::new(),
            together: Vec::new(),
            buffer: Vec::with_capacity(128 << 10),
            held: None,
            served: Served::default(),
        }
    }

    pub(crate) fn slot(&mut self) -> Arc<Slot> {
        self.slots.pop().unwrap_or_default()
    }

    /// Whether the right to an access is here.
    pub(crate) fn may(&mut self, address: usize, is_store: bool) -> bool {
        let Some((entry, block)) = locate(&mut self.entries, address) else { return false };
        let layout = entry.shape.layout;
        let access = self.core.memory.access(&layout, block);
        if is_store { access.may_store() } else { access.may_load() }
    }

    /// Takes in what has come, a turn's worth. Whether anything had.
    pub(crate) fn drive(&mut self) -> bool {
        let mut came = self.release_held();
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..MESSAGES_A_TURN {
            let Some(peers) = &mut self.core.peers else { break };
            let Some(arrival) = peers.receive(&mut buffer) else { break };
            came = true;
            self.hear(arrival.from, arrival.kind, &buffer);
        }
        self.buffer = buffer;
        self.core.raise();
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
        self.held.as_ref().is_some_and(|held| !held.messages.is_empty())
            || self.core.peers.as_ref().is_some_and(Peers::has_unsent)
    }

    fn gone(&mut self, gone: &Gone) {
        self.futexes.forget(gone.rank);
        if self.parted.contains(&gone.rank) {
            return;
        }
        self.core.end_together(gone);
        let dead = CellId(gone.rank);
        for entry in self.entries.values_mut() {
            if let Some(protocol) = &mut entry.protocol {
                let mut driver = Driver::new(&mut self.core, &mut entry.shape);
                protocol.on_peer_death(&mut driver, dead);
            }
        }
        self.core.wake_all();
    }

    // ── faults ──

    /// What a thread has to wait for whose access was stopped.
    pub(crate) fn fault(&mut self, address: usize, is_store: bool, slot: &Arc<Slot>) -> Stopped {
        let me = self.core.me.0;
        let Some((entry, block)) = locate(&mut self.entries, address) else { return Stopped::NoMemory };
        if let Some(loss) = entry.shape.lost.get(&block.0) {
            return Stopped::Lost(*loss);
        }
        let Some(home) = entry.shape.home(block.0) else {
            let (offset, creator) = (entry.shape.allocation.offset, entry.shape.allocation.creator);
            let extent = entry.shape.homes.extent(block.0);
            if creator == me {
                entry.shape.homes.learn(extent, me);
                return Stopped::Again;
            }
            slot.begin(1);
            let token = self.core.token(creator, slot);
            self.core.say(creator, Kind::WhoseIs, &[token, offset, extent, 0], &[]);
            return Stopped::Waits;
        };
        let Some(protocol) = &mut entry.protocol else { return Stopped::NoMemory };
        if home == me {
            entry.shape.claim(&self.core, block.0);
        } else if !self.core.lives(home) {
            return Stopped::Lost(Loss::Home(CellId(home)));
        } else {
            self.core.depends[home as usize] = true;
        }
        let layout = entry.shape.layout;
        self.core.raise();
        let access = self.core.memory.access(&layout, block);
        if if is_store { access.may_store() } else { access.may_load() } {
            self.core.memory.repair(&layout, block).unwrap_or_else(|error| crate::driver::fail(&error));
            return Stopped::Served;
        }
        slot.begin(1);
        self.core.await_block(entry.shape.allocation.offset, block, slot);
        let mut driver = Driver::new(&mut self.core, &mut entry.shape);
        if is_store {
            protocol.on_write_fault(&mut driver, block);
        } else {
            protocol.on_read_fault(&mut driver, block);
            if home != me {
                Self::read_ahead(&mut driver, protocol.as_mut(), block.0);
            }
        }
        drop(driver);
        self.core.raise();
        Stopped::Waits
    }

    /// Asks for what probably is read next: blocks behind one another, twice as many each time.
    fn read_ahead(driver: &mut Driver<'_>, protocol: &mut dyn Protocol, block: u64) {
        use comb_coherence::Tempest;
        let me = driver.me();
        let shape = driver.shape();
        let ahead = shape.ahead;
        let block_bytes = shape.layout.block_bytes() as u64;
        if block != ahead.next && block != ahead.marker && block != ahead.end {
            shape.ahead = Ahead { next: block + 1, marker: block + 1, window: 0, end: block + 1 };
            return;
        }
        let window = (ahead.window * 2).clamp(2, (MOST_AHEAD_BYTES / block_bytes).max(2));
        // As far as somebody else's memory goes.
        let begin = ahead.end.max(block + 1);
        let end = (block + 1 + window).min(shape.layout.blocks());
        let is_elsewhere = |shape: &Shape, block| shape.home(block).is_some_and(|home| home != me);
        let end = (begin..end).find(|&block| !is_elsewhere(shape, block)).unwrap_or(end.max(begin));
        let marker = begin.max(block + window / 2);
        shape.ahead = Ahead { next: block + 1, marker, window, end };
        for block in (begin..end).filter(|&block| block != marker).map(Block) {
            if driver.access(block) == Access::Invalid && !driver.shape().lost.contains_key(&block.0) {
                protocol.on_read_fault(driver, block);
            }
        }
    }

    /// Asks for rights to a range of addresses, of which none waits. How many blocks were asked for.
    pub(crate) fn prefetch(&mut self, address: usize, bytes: usize, is_store: bool) -> usize {
        let me = self.core.me.0;
        let Some((entry, first)) = locate(&mut self.entries, address) else { return 0 };
        let last = entry.shape.layout.block_at(address + bytes.saturating_sub(1)).unwrap_or(first);
        let Some(protocol) = &mut entry.protocol else { return 0 };
        let mut asked = 0;
        for block in (first.0..=last.0).map(Block) {
            let home = entry.shape.home(block.0);
            if home.is_none_or(|home| home == me || !self.core.lives(home)) {
                continue;
            }
            let mut driver = Driver::new(&mut self.core, &mut entry.shape);
            use comb_coherence::Tempest;
            let access = driver.access(block);
            if if is_store { access.may_store() } else { access.may_load() } {
                continue;
            }
            if is_store {
                protocol.on_write_fault(&mut driver, block);
            } else {
                protocol.on_read_fault(&mut driver, block);
            }
            drop(driver);
            asked += 1;
        }
        self.core.raise();
        asked
    }

    /// A thread that has its right may be robbed of it before it has used it: for a moment nobody can.
    pub(crate) fn served(&mut self, thread: u64, address: usize) {
        let Some((entry, block)) = locate(&mut self.entries, address) else { return };
        let offset = entry.shape.allocation.offset;
        let now = Instant::now();
        let last = &self.served;
        let is_back =
            (last.thread, last.address) == (thread, address) && last.at.is_some_and(|at| now - at < AT_ONCE);
        let times = if is_back { last.times + 1 } else { 0 };
        self.served = Served { thread, address, at: Some(now), times };
        if self.held.as_ref().is_none_or(|held| held.messages.is_empty()) {
            let until = now + LONGEST_HOLD.min(SHORTEST_HOLD * (1 << times.min(10)));
            self.held = Some(Hold { offset, block: block.0, until, messages: Vec::new() });
        }
    }

    fn release_held(&mut self) -> bool {
        if self.held.as_ref().is_none_or(|held| Instant::now() < held.until) {
            return false;
        }
        let held = self.held.take().expect("just seen");
        self.hear_kept(held.messages);
        true
    }

    /// All that this component has stored is to be found by whoever synchronises with it later: begins that.
    pub(crate) fn begin_to_publish(&mut self, slot: &Arc<Slot>) {
        let publishes = |entry: &Entry| {
            !matches!(entry.shape.allocation.terms.sharing, Sharing::Stache | Sharing::Migratory)
                && entry.protocol.is_some()
        };
        let offsets: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| publishes(entry)).map(|(&offset, _)| offset).collect();
        slot.begin(u32::try_from(offsets.len()).expect("fewer allocations"));
        for offset in &offsets {
            self.core.syncing.push((*offset, Arc::clone(slot)));
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

    /// Makes an allocation known here. An error is a number for the one who asked.
    pub(crate) fn install(&mut self, allocation: Allocation) -> Result<(), u64> {
        let terms = allocation.terms;
        let layout = allocation.layout().map_err(|_| REFUSED_MEMORY)?;
        let (me, count) = (self.core.me.0, self.core.count());
        let homes = Homes::new(terms.placement, count, layout.block_bytes() as u64);
        let protocol: Option<Box<dyn Protocol + Send>> = if self.core.imports {
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
        let shape = Shape {
            allocation,
            layout,
            homes,
            claimed: BTreeSet::new(),
            lost: BTreeMap::new(),
            ahead: Ahead::default(),
        };
        self.entries.insert(allocation.offset, Entry { shape, protocol, early: Vec::new() });
        Ok(())
    }

    // ── checkpoints ──

    /// All that is allocated, in what order together, and which extents live here though no rule says so.
    pub(crate) fn holdings(&self, own_pages: &[OwnPage]) -> Holdings {
        let me = self.core.me.0;
        let allocations = self.entries.values().map(|entry| entry.shape.allocation).collect();
        let mut homes: BTreeMap<u64, BTreeSet<u64>> = self
            .entries
            .iter()
            .map(|(&offset, entry)| (offset, entry.shape.homes.known_of(me).into_iter().collect()))
            .collect();
        // Those that were dealt out, too: a task that begins from here may have copies.
        for page in own_pages {
            let Some(entry) = self.entries.get(&page.offset()) else { continue };
            if entry.shape.allocation.terms.placement == Placement::FirstTouch {
                homes.entry(page.offset()).or_default().insert(entry.shape.homes.extent(page.block()));
            }
        }
        let homes = homes.into_iter().map(|(offset, extents)| (offset, extents.into_iter().collect()));
        Holdings { allocations, together: self.together.clone(), homes: homes.collect() }
    }

    /// Makes an allocation of an earlier life again.
    pub(crate) fn reinstall(&mut self, allocation: Allocation) -> Result<(), ()> {
        if self.entries.contains_key(&allocation.offset) {
            return Err(());
        }
        self.install(allocation).map_err(|_| ())?;
        let span = self.entries[&allocation.offset].shape.layout.span();
        let is_own = Heap::owner(allocation.offset, self.core.count()) == self.core.me.0;
        if is_own && !self.heap.take_at(allocation.offset, span) {
            return Err(());
        }
        Ok(())
    }

    /// Says where an extent lived.
    pub(crate) fn rehome(&mut self, offset: u64, extent: u64, home: u32) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.shape.homes.learn(extent, home);
        }
    }

    /// Gives a page its content, before anybody runs.
    pub(crate) fn refill(&mut self, offset: u64, frame: u64, content: &[u8]) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        let layout = entry.shape.layout;
        let step = layout.block_bytes().min(content.len());
        for (part, at) in content.chunks(step).zip((0..).step_by(step)) {
            let behind = frame - offset + at;
            let block_bytes = layout.block_bytes() as u64;
            let block = Block(behind / block_bytes);
            if block.0 >= layout.blocks() {
                return;
            }
            if entry.protocol.is_some() && entry.shape.home(block.0) == Some(self.core.me.0) {
                entry.shape.claim(&self.core, block.0);
            }
            let within = usize::try_from(behind % block_bytes).expect("within a block");
            self.core.memory.patch(&layout, block, within, part);
        }
    }

    /// Pages that may have content and are this component's to keep.
    pub(crate) fn own_pages(&self) -> Vec<OwnPage> {
        let (me, count) = (self.core.me.0, u64::from(self.core.count()));
        let mut pages = Vec::new();
        for entry in self.entries.values() {
            let shape = &entry.shape;
            let layout = shape.layout;
            let frame_of = |block| layout.offset() + block * layout.block_bytes() as u64;
            let within = layout.offset()..frame_of(layout.blocks());
            let mut frames: BTreeSet<u64> =
                touched(self.core.memory.frames(), within.clone()).into_iter().collect();
            if entry.protocol.is_some() {
                frames.extend(shape.blocks_elsewhere(&self.core).flat_map(|block| {
                    (frame_of(block) / PAGE * PAGE..frame_of(block + 1).min(within.end)).step_by(4096)
                }));
            }
            for frame in frames {
                let page = OwnPage { frame, layout, generation: shape.allocation.generation };
                // Where all share the page frames, some have no home: dealt out.
                let extent = shape.homes.extent(page.block());
                let dealt = || entry.protocol.is_none().then(|| u32::try_from(extent % count).ok()).flatten();
                if shape.homes.of(extent).or_else(dealt) == Some(me) {
                    pages.push(page);
                }
            }
        }
        pages
    }

    /// Forgets an allocation; its memory is given back.
    pub(crate) fn remove(&mut self, offset: u64) {
        if let Some(entry) = self.entries.remove(&offset) {
            self.core.forget(offset);
            self.core
                .memory
                .unmap(&entry.shape.layout, true)
                .unwrap_or_else(|error| crate::driver::fail(&error));
        }
    }
}

impl Shape {
    #[inline]
    pub(crate) fn home(&self, block: u64) -> Option<u32> {
        self.homes.of(self.homes.extent(block))
    }

    /// Blocks that live here begin with every right, from when they are first of interest.
    pub(crate) fn claim(&mut self, core: &Core, block: u64) {
        let extent = self.homes.extent(block);
        if !self.claimed.insert(extent) || self.homes.are_all(core.me.0) {
            return;
        }
        let blocks = self.homes.blocks_of(extent);
        let blocks = blocks.start..blocks.end.min(self.layout.blocks());
        core.memory
            .set(&self.layout, blocks, Access::ReadWrite)
            .unwrap_or_else(|error| crate::driver::fail(&error));
    }
}

impl Shape {
    /// Blocks that live here and that another component may have the only content of: frames that were never touched here do not
    /// mean that there is none.
    fn blocks_elsewhere<'a>(&'a self, core: &'a Core) -> impl Iterator<Item = u64> + 'a {
        let blocks = self.claimed.iter().flat_map(|&extent| self.homes.blocks_of(extent));
        let blocks = blocks.filter(|&block| block < self.layout.blocks());
        blocks.filter(|&block| !core.memory.access(&self.layout, Block(block)).may_load())
    }
}

/// Pages of the frames that have content, as the kernel knows.
fn touched(frames: std::os::fd::BorrowedFd<'_>, within: std::ops::Range<u64>) -> Vec<u64> {
    use rustix::fs::{SeekFrom, seek};
    let mut pages = Vec::new();
    // The last page may be used in part: one that is looked for from its middle on is found for ever.
    let within = within.start..within.end.next_multiple_of(PAGE);
    let mut at = within.start;
    // Others who share the frames seek, too: each call says where from.
    while let Ok(data) = seek(frames, SeekFrom::Data(at)) {
        let hole = seek(frames, SeekFrom::Hole(data)).unwrap_or(within.end);
        let data = data / 4096 * 4096..hole.min(within.end);
        if data.start >= within.end {
            break;
        }
        at = data.end;
        pages.extend(data.step_by(4096));
    }
    pages
}

/// The allocation that an address is in, and the block.
fn locate(entries: &mut BTreeMap<u64, Entry>, address: usize) -> Option<(&mut Entry, Block)> {
    let offset = (address as u64).checked_sub(comb_memory::HEAP_START as u64)?;
    let (_, entry) = entries.range_mut(..=offset).next_back()?;
    let block = entry.shape.layout.block_at(address)?;
    Some((entry, block))
}

/// Why a thread was stopped, or what becomes of it.
pub(crate) enum Stopped {
    /// It may try again at once.
    Served,
    /// It is to ask again.
    Again,
    /// Its slot will tell.
    Waits,
    /// There is no such memory.
    NoMemory,
    /// There was.
    Lost(Loss),
}
