//! The shared heap, as this process has it.
#![expect(unsafe_code, reason = "puts mappings where programs expect them")]

mod checked;

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use comb_coherence::{Access, Block};
use rustix::io::Errno;

use crate::access::{AccessControl, Run};
use crate::fault;
use crate::frames::Frames;
use crate::kernel::{self, Protection};
use crate::layout::{Grain, Layout};
use crate::protections::Protections;
use crate::space::{HEAP_BYTES, HEAP_START, PAGE_BYTES, index};
use crate::state::StateTable;
use crate::threads;
use crate::userfaultfd::Userfaultfd;

const PAGE: u64 = PAGE_BYTES as u64;

/// As far as a repair looks ahead: what the kernel itself maps around a fault of a file.
const REPAIRED_AHEAD_BYTES: usize = 16 * PAGE_BYTES;

/// Who lowers a right waits for repairs nearby only.
const NEIGHBOURHOOD_BYTES: u64 = 2 << 20;
const NEIGHBOURHOODS: usize = 64;

/// How the MMU is to be made to stop threads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Control {
    /// By userfaultfd if this kernel allows it, else by protections.
    #[default]
    Auto,
    /// By userfaultfd or not at all.
    Userfaultfd,
    /// By the protections of mappings: works everywhere, and ends where rights are finely mixed over much memory.
    Protections,
}

/// How the heap is to be.
#[derive(Debug, Default)]
pub struct MemoryOptions {
    /// Frames that another process of this host has made, [`Memory::frames`]; new ones otherwise.
    pub frames: Option<OwnedFd>,
    /// How threads are stopped.
    pub control: Control,
}

/// What could not be done with memory. Unless it says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel refused.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: Errno,
    },
    /// Something else lies there, most likely another heap: a process has one.
    #[error("the addresses of {what} from {address:#x} on are taken by something else in this process")]
    Occupied {
        /// What was to lie there.
        what: &'static str,
        /// Where.
        address: usize,
    },
    /// There is room, but not for this process.
    #[error(
        "no addresses are left to reserve {0}: this process's address space is limited (ulimit -v), or the kernel reserves nothing that \
         it has no memory for (sysctl vm.overcommit_memory, 2)"
    )]
    NoAddresses(&'static str),
    /// The descriptor that was handed over is no frames' file: its sealing or its size is not right. Its giver is at fault.
    #[error("the descriptor that was handed over is not of sealed shared memory as large as a heap")]
    NotFrames,
    /// The frames, which another process may have made, are shorter than the heap.
    #[error("the allocation reaches beyond its frames (a limit on file sizes? see ulimit -f)")]
    BeyondFrames,
    /// Asked for and not to be had.
    #[error("userfaultfd is not to be had: {0}")]
    NoUserfaultfd(&'static str),
    /// The kernel has no further mapping for this process.
    #[error(
        "cannot {0}: the kernel allows this process no more mappings; raise the limit (sysctl -w vm.max_map_count=1000000), use larger \
         blocks, or let the process use userfaultfd, which needs none"
    )]
    NoMoreMappings(&'static str),
    /// There is no memory, or this process may have no more.
    #[error("cannot {0}: there is no memory left")]
    OutOfMemory(&'static str),
    /// Rights cannot be taken from threads that check their accesses themselves.
    #[error(
        "this kernel, or a filter of system calls, has no membarrier: code that checks its own accesses cannot be stopped"
    )]
    NoFence,
    /// Threads may still look at what was to be given back: the caller is at fault.
    #[error("{0} is not invalid, and its frame cannot be given back")]
    InUse(Block),
}

impl MemoryError {
    pub(crate) fn from_reservation(what: &'static str, address: usize, source: Errno) -> Self {
        match source {
            Errno::EXIST => Self::Occupied { what, address },
            Errno::NOMEM => Self::NoAddresses(what),
            source => Self::System { action: "reserve addresses", source },
        }
    }

    pub(crate) fn from_mapping(action: &'static str, source: Errno) -> Self {
        match source {
            Errno::NOMEM => Self::NoMoreMappings(action),
            source => Self::System { action, source },
        }
    }

    pub(crate) fn from_frames(action: &'static str, source: Errno) -> Self {
        match source {
            // The latter where a control group's limit is met.
            Errno::NOMEM | Errno::FAULT | Errno::NOSPC => Self::OutOfMemory(action),
            source => Self::System { action, source },
        }
    }
}

/// This process's part of the shared heap.
///
/// Every method takes `&self` and may be called by any thread, also in [`fault`] handlers; none allocates or takes a lock on the way of a
/// fault ([`Memory::access`], [`Memory::set`], [`Memory::repair`], and the copies). What the caller sees to:
///
/// - One thread at a time sets, fills or discards a given block. Different blocks need no order, nor do repairs and looks.
/// - One thread at a time maps, guards or unmaps a given allocation, and nobody uses it before or after.
/// - While a thread is in [`Memory::set`] or [`Memory::repair`], no signal handler runs on it that may touch shared memory. In fault
///   handlers that is so; a thread that calls them elsewhere blocks signals, or has no such handlers.
#[derive(Debug)]
pub struct Memory {
    /// The first to go: without the others nothing would guard it.
    _heap: Arc<Heap>,
    control: Control,
    mechanism: Arc<dyn AccessControl>,
    pub(crate) frames: Frames,
    states: Arc<StateTable>,
    repairs: Repairs,
}

impl Memory {
    /// Reserves the heap, and makes the frames or takes over those that are given.
    pub fn reserve(options: MemoryOptions) -> Result<Self, MemoryError> {
        let heap = Arc::new(Heap::reserve()?);
        let states = Arc::new(StateTable::reserve()?);
        let frames = options.frames.map_or_else(Frames::create, Frames::adopt)?;
        let (control, mechanism) = mechanism(options.control)?;
        if control == Control::Protections {
            fault::serve_segmentation_faults();
        }
        Ok(Self { control, mechanism, frames, states, repairs: Repairs::new(), _heap: heap })
    }

    /// The same heap, with frames of its own: for allocations that are not to be seen by those who share the others.
    pub fn beside(&self) -> Result<Self, MemoryError> {
        Ok(Self {
            _heap: Arc::clone(&self._heap),
            control: self.control,
            mechanism: Arc::clone(&self.mechanism),
            frames: Frames::create()?,
            states: Arc::clone(&self.states),
            repairs: Repairs::new(),
        })
    }

    /// How threads are stopped here; never [`Control::Auto`].
    pub fn control(&self) -> Control {
        self.control
    }

    /// The frames' file, for other processes of this host that are to share them.
    pub fn frames(&self) -> BorrowedFd<'_> {
        self.frames.file()
    }

    /// Words of the frames that belong to no allocation, for those who share the frames to agree by. None beyond the frames; zero at first.
    pub fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU32]> {
        self.frames.words(offset, count)
    }

    /// Maps an allocation with no control at all: who shares the frames shares the memory, at the kernel's own speed.
    pub fn map(&self, layout: &Layout) -> Result<(), MemoryError> {
        let may_be_large = layout.frame_bytes() >= crate::large::LEAST_BYTES;
        self.place(layout, Protection::LoadsAndStores, may_be_large)
    }

    /// Maps an allocation whose blocks all begin with one right: read-write at their home, invalid elsewhere.
    pub fn guard(&self, layout: &Layout, initial: Access) -> Result<(), MemoryError> {
        if layout.grain().is_checked() && !threads::prepare() {
            return Err(MemoryError::NoFence);
        }
        self.place(layout, Protection::Nothing, false)?;
        self.states.begin(layout.offset(), initial);
        let (address, bytes) = span(layout);
        // Who comes to a checked page first is stopped, whatever its right: then its states are made true.
        let initial = if layout.grain().is_checked() {
            self.states.begin_to_check();
            Access::Invalid
        } else {
            initial
        };
        self.mechanism.guard(address, bytes, initial).inspect_err(|_| {
            self.states.forget(layout);
            let _ = give_up(layout);
        })
    }

    /// An allocation is gone: its addresses are a reservation again, its rights are forgotten and, if `discard`, so is its content,
    /// for everybody who shares the frames.
    pub fn unmap(&self, layout: &Layout, discard: bool) -> Result<(), MemoryError> {
        give_up(layout)?;
        if layout.grain() == Grain::Checked && !discard {
            self.bring_all_back(layout);
        }
        let bytes = if layout.grain() == Grain::Checked { layout.span() } else { layout.frame_bytes() };
        if discard && self.frames.reach(layout.offset(), bytes) {
            self.frames
                .punch(layout.offset(), bytes)
                .map_err(|source| MemoryError::System { action: "give frames back", source })?;
        }
        self.states.forget(layout);
        Ok(())
    }

    /// What threads may do with a block. Everything, if its allocation is not guarded.
    #[inline]
    pub fn access(&self, layout: &Layout, block: Block) -> Access {
        self.states.access(layout, layout.frame(block))
    }

    /// Changes the right to a run of blocks, for all threads at once. When it returns, no load or store that it forbids is still to
    /// come, and the content is as the last store has left it. [`Memory::access`] says the new right a moment before that.
    ///
    /// After an error the blocks before the one that made it have the new right, the others the old one: see [`Memory::access`].
    ///
    /// # Panics
    /// If the allocation has no such blocks.
    pub fn set(&self, layout: &Layout, blocks: Range<u64>, access: Access) -> Result<(), MemoryError> {
        assert!(blocks.end <= layout.blocks(), "{blocks:?} of {} blocks", layout.blocks());
        let views = layout.views();
        let count = blocks.end.saturating_sub(blocks.start);
        for first in blocks.start..blocks.start + count.min(views) {
            // Blocks that are neighbours in the heap: all of them, or those of one view.
            let lane = Lane { layout, first, count: (blocks.end - first).div_ceil(views) };
            self.set_lane(lane, access)?;
        }
        Ok(())
    }

    /// Fills an invalid block with all of its content and raises its right, as [`Memory::fill`] and [`Memory::set`] would: quicker where the
    /// block comes here for the first time. The new right stands in [`Memory::access`] a moment after threads have it.
    ///
    /// # Panics
    /// If the content is not as long as the block, or the block is not invalid.
    pub fn deliver(
        &self,
        layout: &Layout,
        block: Block,
        content: &[u8],
        access: Access,
    ) -> Result<(), MemoryError> {
        assert_eq!(content.len(), layout.block_bytes());
        assert_eq!(self.access(layout, block), Access::Invalid, "{block}: threads may look at it");
        if layout.grain() == Grain::Checked && access != Access::Invalid {
            return self.deliver_checked(layout, block, content, access);
        }
        let lane = Lane { layout, first: block.0, count: 1 };
        let run = lane.run();
        // Stores that are checked find the right in the table, and it is to be there before the page.
        let is_whole = layout.grain() == Grain::Pages
            || layout.grain() == Grain::CheckedStores && access == Access::ReadWrite;
        let is_new = is_whole && !self.states.is_known(run.frame, run.bytes);
        if is_new
            && access != Access::Invalid
            && self.mechanism.deliver(&self.frames, run, content, access)?
        {
            // Not before: a repair that found the right would have mapped an empty frame.
            self.write(lane, access);
            self.states.know(run.frame, run.bytes);
            return Ok(());
        }
        self.fill(layout, block, content);
        self.set(layout, block.0..block.0 + 1, access)
    }

    /// A thread was stopped at a block although its right allows what it did: makes the MMU agree. Where programs go through memory that
    /// was never touched, it does so for what lies ahead too.
    ///
    /// Does nothing if the block is invalid.
    pub fn repair(&self, layout: &Layout, block: Block) -> Result<(), MemoryError> {
        let mut run = Lane { layout, first: block.0, count: 1 }.run();
        if layout.grain() == Grain::Checked {
            if !self.states.is_touched(run.frame) && self.access(layout, block) != Access::Invalid {
                let bytes = self.reach_ahead(layout, run);
                run.bytes = (bytes / layout.block_bytes() * layout.block_bytes()).max(run.bytes);
            }
            return self.repair_checked(layout, block, run);
        }
        let _under_way = self.repairs.begin(run.frame);
        let access = self.access(layout, block);
        if access == Access::Invalid {
            return Ok(());
        }
        if layout.is_in_a_row() && !self.states.is_touched(run.frame) {
            run.bytes = self.reach_ahead(layout, run);
        }
        let is_known = self.states.is_known(run.frame, run.bytes);
        // Before the MMU knows it: who lowers the right is not to believe that there is nothing to do.
        self.states.know(run.frame, run.bytes);
        if layout.grain() == Grain::CheckedStores {
            if !is_known {
                self.make_states_true(layout, run, access);
            }
            return self.mechanism.repair(&self.frames, run, Access::ReadWrite);
        }
        self.mechanism.repair(&self.frames, run, access)
    }

    /// Puts content into a block, whatever threads may do with it.
    ///
    /// # Panics
    /// If the content is longer than the block.
    #[inline]
    pub fn fill(&self, layout: &Layout, block: Block, content: &[u8]) {
        self.patch(layout, block, 0, content);
    }

    /// Copies a block's content as it stands. If threads store to it meanwhile, it is a mixture.
    ///
    /// # Panics
    /// If `into` is longer than the block.
    #[inline]
    pub fn copy_out(&self, layout: &Layout, block: Block, into: &mut [u8]) {
        assert!(into.len() <= layout.block_bytes());
        self.frames.copy_out(self.content_at(layout, block), into);
    }

    /// Stores bytes into a block; threads may store to its other bytes meanwhile.
    ///
    /// # Panics
    /// If they reach beyond the block.
    #[inline]
    pub fn patch(&self, layout: &Layout, block: Block, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= layout.block_bytes()));
        if layout.grain() == Grain::Checked {
            return self.patch_checked(layout, block, offset, bytes);
        }
        self.frames.copy_in(layout.frame(block) + offset as u64, bytes);
    }

    /// Where a block's content stands, for whoever sends it straight from there. It may change at any time, and is there as long as the
    /// memory and the allocation are.
    #[inline]
    pub fn content(&self, layout: &Layout, block: Block) -> *const u8 {
        self.frames.at(self.content_at(layout, block), layout.block_bytes())
    }

    #[inline]
    fn content_at(&self, layout: &Layout, block: Block) -> u64 {
        if layout.grain() == Grain::Checked { self.content_of(layout, block) } else { layout.frame(block) }
    }

    /// Gives the frames of a run of blocks back to the system, for everybody who shares them; of minipages only frames all of whose
    /// blocks are in the run. All of them must be invalid here. Who is granted one later without content finds zeros.
    ///
    /// # Panics
    /// If the allocation has no such blocks.
    pub fn discard(&self, layout: &Layout, blocks: Range<u64>) -> Result<(), MemoryError> {
        assert!(blocks.end <= layout.blocks(), "{blocks:?} of {} blocks", layout.blocks());
        if blocks.is_empty() {
            return Ok(());
        }
        if let Some(block) = blocks.clone().map(Block).find(|&block| self.access(layout, block).may_load()) {
            return Err(MemoryError::InUse(block));
        }
        let start = layout.frame(Block(blocks.start)).next_multiple_of(PAGE);
        let end = if blocks.end == layout.blocks() {
            layout.offset() + layout.frame_bytes()
        } else {
            layout.frame(Block(blocks.end)) / PAGE * PAGE
        };
        if start < end && layout.grain() == Grain::Checked {
            return self.discard_checked(layout, start, end);
        }
        if start < end {
            self.frames
                .punch(start, end - start)
                .map_err(|source| MemoryError::System { action: "give frames back", source })?;
            self.states.unknow(start, index(end - start));
        }
        Ok(())
    }

    /// Whether anybody may have touched a block here since it was allocated.
    pub(crate) fn is_known(&self, layout: &Layout, block: Block) -> bool {
        self.states.is_known(layout.frame(block), layout.block_bytes())
    }

    /// Sees to it that there is a frame for every page of a run of blocks, for others to map.
    pub(crate) fn populate(&self, layout: &Layout, frames: &Range<u64>) -> Result<(), MemoryError> {
        debug_assert!(layout.grain() == Grain::Pages);
        self.frames
            .populate(frames.start, index(frames.end - frames.start))
            .map_err(|source| MemoryError::from_frames("make frames for other processes", source))
    }

    /// How much memory the state table and the pages' notes take; for people, not for every second.
    pub fn metadata_bytes(&self) -> usize {
        self.states.resident_bytes()
    }

    /// Maps the frames of an allocation to its addresses, in each view.
    fn place(&self, layout: &Layout, protection: Protection, may_be_large: bool) -> Result<(), MemoryError> {
        if !self.frames.reach(layout.offset(), layout.span().max(layout.frame_bytes())) {
            return Err(MemoryError::BeyondFrames);
        }
        let (start, span) = span(layout);
        let bytes = index(layout.frame_bytes());
        let placed = (0..span / bytes)
            .try_for_each(|view| {
                let address = start + view * bytes;
                // SAFETY: within the heap, which is ours; the caller says that nobody uses these addresses yet.
                unsafe {
                    kernel::replace_shared(address, bytes, protection, self.frames.file(), layout.offset())
                }
            })
            .and_then(|()| {
                // SAFETY: as above. A forked child would have the memory without its control: it has none of it.
                unsafe { kernel::advise(start, span, libc::MADV_DONTFORK) }
            });
        if let Err(source) = placed {
            let _ = give_up(layout);
            return Err(MemoryError::from_mapping("map shared memory", source));
        }
        // Rights are a page's; a kernel that knows no larger ones refuses the second.
        let of_pages = (!may_be_large).then_some(libc::MADV_NOHUGEPAGE);
        for advice in [libc::MADV_DONTDUMP].into_iter().chain(of_pages) {
            // SAFETY: as above.
            let _ = unsafe { kernel::advise(start, span, advice) };
        }
        Ok(())
    }

    fn set_lane(&self, lane: Lane<'_>, access: Access) -> Result<(), MemoryError> {
        let right = |lane: &Lane<'_>| self.access(lane.layout, Block(lane.first));
        let mut rest = lane;
        while rest.count > 0 {
            let from = right(&rest);
            let mut same = 1;
            while same < rest.count && right(&rest.from(same)) == from {
                same += 1;
            }
            if from != access {
                self.change(Lane { count: same, ..rest }, from, access)?;
            }
            rest = rest.from(same);
        }
        Ok(())
    }

    fn change(&self, lane: Lane<'_>, from: Access, to: Access) -> Result<(), MemoryError> {
        match lane.layout.grain() {
            Grain::Checked => return self.change_checked(lane, from, to),
            Grain::CheckedStores => return self.change_checked_stores(lane, from, to),
            Grain::Pages | Grain::Minipages => {}
        }
        let run = lane.run();
        // What is to hold stands there before the MMU is told: a repair that comes meanwhile finds the new right, or was begun before.
        self.write(lane, to);
        if to > from {
            self.repairs.wait_for_earlier_ones(run);
        }
        let is_known = self.states.is_known(run.frame, run.bytes);
        self.mechanism
            .change(&self.frames, run, from, to, is_known)
            .inspect_err(|_| self.write(lane, from))?;
        if from == Access::Invalid {
            self.states.know(run.frame, run.bytes);
        }
        Ok(())
    }

    /// The MMU stops loads alone; who may not store finds that in the table.
    fn change_checked_stores(&self, lane: Lane<'_>, from: Access, to: Access) -> Result<(), MemoryError> {
        let run = lane.run();
        let is_known = self.states.is_known(run.frame, run.bytes);
        self.write(lane, to);
        if to > from {
            self.repairs.wait_for_earlier_ones(run);
        }
        let may_be_stored_to = if from == Access::Invalid {
            // Somebody may have looked when the table said "whatever", and be about to store.
            !is_known && to == Access::ReadOnly
        } else {
            from == Access::ReadWrite && self.states.is_known(run.frame, run.bytes)
        };
        if may_be_stored_to {
            threads::wait_for_accesses_to(run.addresses());
        }
        let of_mmu = |access: Access| if access.may_load() { Access::ReadWrite } else { access };
        if of_mmu(from) != of_mmu(to) {
            let is_known = self.states.is_known(run.frame, run.bytes);
            self.mechanism
                .change(&self.frames, run, of_mmu(from), of_mmu(to), is_known)
                .inspect_err(|_| self.write(lane, from))?;
        }
        if from == Access::Invalid {
            self.states.know(run.frame, run.bytes);
        }
        Ok(())
    }

    /// The MMU is about to know pages that it did not, and whose states may be those of memory that nobody has touched.
    fn make_states_true(&self, layout: &Layout, run: Run, access: Access) {
        if access != Access::ReadWrite {
            for page in (0..run.bytes).step_by(PAGE_BYTES) {
                self.states.own(layout, run.frame + page as u64);
                self.states.disown(run.frame + page as u64);
            }
            threads::wait_for_accesses_to(run.addresses());
        }
    }

    fn write(&self, lane: Lane<'_>, access: Access) {
        let block_bytes = lane.layout.block_bytes();
        if lane.layout.is_in_a_row() {
            let run = lane.run();
            self.states.set(lane.layout, run.frame, run.bytes, access);
            return;
        }
        for block in 0..lane.count {
            let frame = lane.layout.frame(Block(lane.from(block).first));
            self.states.set_part(lane.layout, frame, block_bytes, access);
        }
    }

    /// How far a repair of an untouched run goes: as many pages ahead as have been touched behind. Memory that is touched here and there
    /// does not fill up with pages that nobody wanted.
    fn reach_ahead(&self, layout: &Layout, run: Run) -> usize {
        let most = REPAIRED_AHEAD_BYTES.saturating_sub(run.bytes);
        let behind = index(run.frame - layout.offset()).min(most) / PAGE_BYTES;
        let touched =
            (1..=behind as u64).take_while(|page| self.states.is_touched(run.frame - page * PAGE)).count();
        let end = (layout.offset() + layout.frame_bytes())
            .min((run.frame / NEIGHBOURHOOD_BYTES + 1) * NEIGHBOURHOOD_BYTES);
        let mut bytes = run.bytes;
        for _ in 0..touched {
            let next = run.frame + bytes as u64;
            if next >= end || self.states.is_touched(next) {
                break;
            }
            bytes += PAGE_BYTES;
        }
        bytes
    }
}

/// Blocks of an allocation that are neighbours in the heap: each `views` further than the one before.
#[derive(Clone, Copy)]
struct Lane<'a> {
    layout: &'a Layout,
    first: u64,
    count: u64,
}

impl Lane<'_> {
    /// Without its first blocks.
    fn from(self, block: u64) -> Self {
        Self { first: self.first + block * self.layout.views(), count: self.count - block, ..self }
    }

    /// The pages by which they are guarded.
    fn run(self) -> Run {
        let block = Block(self.first);
        Run {
            address: self.layout.address(block) / PAGE_BYTES * PAGE_BYTES,
            frame: self.layout.frame(block) / PAGE * PAGE,
            bytes: index(self.count) * self.layout.block_bytes().max(PAGE_BYTES),
        }
    }
}

/// Repairs that are under way, by neighbourhood.
///
/// A repair looks at rights and then tells the MMU; who lowers a right writes it down, and waits here until nobody is left who may have
/// looked before. No lock: repairs do not wait, neither for each other nor for those.
#[derive(Debug)]
struct Repairs {
    under_way: [Neighbourhood; NEIGHBOURHOODS],
}

/// In a line of cache of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Neighbourhood(AtomicU32);

struct UnderWay<'a>(&'a AtomicU32);

impl Repairs {
    fn new() -> Self {
        Self { under_way: std::array::from_fn(|_| Neighbourhood::default()) }
    }

    /// From now on until the answer is dropped, who lowers a right nearby waits.
    #[inline]
    fn begin(&self, frame: u64) -> UnderWay<'_> {
        let count = &self.under_way[index(frame / NEIGHBOURHOOD_BYTES) % NEIGHBOURHOODS].0;
        count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the one below: either we see the lowered right, or we are seen.
        fence(Ordering::SeqCst);
        UnderWay(count)
    }

    #[inline]
    fn wait_for_earlier_ones(&self, run: Run) {
        fence(Ordering::SeqCst);
        let first = index(run.frame / NEIGHBOURHOOD_BYTES);
        let last = index((run.frame + run.bytes as u64 - 1) / NEIGHBOURHOOD_BYTES);
        for neighbourhood in first..=last.min(first + NEIGHBOURHOODS - 1) {
            let count = &self.under_way[neighbourhood % NEIGHBOURHOODS].0;
            let mut spins = 0_u32;
            while count.load(Ordering::SeqCst) != 0 {
                spins += 1;
                if spins.is_multiple_of(64) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

impl Drop for UnderWay<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The heap's addresses.
#[derive(Debug)]
struct Heap;

impl Heap {
    fn reserve() -> Result<Self, MemoryError> {
        kernel::reserve_at(HEAP_START, index(HEAP_BYTES), Protection::Nothing)
            .map(|()| Self)
            .map_err(|source| MemoryError::from_reservation("the heap", HEAP_START, source))
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: reserved by `reserve`; allocations live as long as the memory does.
        unsafe { kernel::unmap(HEAP_START, index(HEAP_BYTES)) };
    }
}

fn mechanism(control: Control) -> Result<(Control, Arc<dyn AccessControl>), MemoryError> {
    if control != Control::Protections {
        match Userfaultfd::open_whole() {
            Ok(userfaultfd) => return Ok((Control::Userfaultfd, Arc::new(userfaultfd))),
            Err(why) if control == Control::Userfaultfd => return Err(MemoryError::NoUserfaultfd(why)),
            Err(_) => {}
        }
    }
    Ok((Control::Protections, Arc::new(Protections)))
}

pub(crate) fn span(layout: &Layout) -> (usize, usize) {
    (layout.start(), index(layout.mapped_bytes()))
}

pub(crate) fn give_up(layout: &Layout) -> Result<(), MemoryError> {
    let (address, bytes) = span(layout);
    // SAFETY: within the heap, which is ours; the caller says that nobody uses the allocation any more.
    unsafe { kernel::replace_by_nothing(address, bytes) }
        .map_err(|source| MemoryError::from_mapping("give up shared memory", source))
}
