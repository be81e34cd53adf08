//! What a protocol runs on here: [`Tempest`], over this component's memory and its channels.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use comb_coherence::placement::Move;
use comb_coherence::{Access, Block, CellId, Content, Home, Loss, Tempest};
use comb_memory::{Layout, Memory};

use crate::copies::Copies;
use crate::counts::Counts;
use crate::engine::{Mistake, Shape, Want};
use crate::neighbours::Neighbours;
use crate::peers::{Gone, Peers};
use crate::report::Recorder;
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

/// What all allocations have in common.
pub(crate) struct Core {
    pub(crate) me: CellId,
    pub(crate) memory: Arc<Memory>,
    /// None of a program that runs alone.
    pub(crate) peers: Option<Peers>,
    /// Components of the task, as it was told.
    count: u32,
    /// All components share the page frames themselves.
    pub(crate) imports: bool,
    /// The peers are homes of named regions, not components of a task.
    pub(crate) are_homes: bool,
    /// Threads that wait for blocks.
    waiting: Vec<(u64, Block, Waiter)>,
    /// Blocks for which threads need not wait any more, and whether those have slept.
    pub(crate) given: Vec<(u64, Block, bool)>,
    /// Threads of guests that need not wait any more, when no handler runs.
    pub(crate) ready: Vec<(u64, Block, Want)>,
    /// Other components of this host, where they are one to protocols.
    pub(crate) neighbours: Option<Neighbours>,
    /// Threads that wait until what was stored in an allocation is to be found.
    pub(crate) syncing: Vec<(u64, Waiter)>,
    /// Rights that are given and not yet told to the MMU, which takes many at once.
    raised: Option<Raised>,
    /// Who waits for an answer.
    tokens: BTreeMap<u64, Asked>,
    next_token: u64,
    /// Copies of others' memory.
    pub(crate) copies: Copies,
    /// What is to be made of misses, when no handler runs: of which allocation, with which blocks.
    pub(crate) decided: Vec<(u64, Range<u64>, Move)>,
    /// Blocks that lived here until now: their frames are of no more use.
    pub(crate) vacated: Vec<(u64, Block)>,
    pub(crate) counts: Counts,
    /// On whose memory this component depends, by rank: it has asked for some of it. (Hive §2, §5.6)
    pub(crate) depends: Vec<bool>,
    /// Of a task whose launcher wants to know where its memory traffic comes from.
    pub(crate) report: Option<Box<Recorder>>,
    /// Whose message is handled at this moment.
    pub(crate) heard: Option<u32>,
    /// What a block's content is copied to that threads may be storing into.
    content: Vec<u8>,
}

/// A question, and who waits for the answer.
struct Asked {
    of: u32,
    about: Option<u64>,
    slot: Arc<Slot>,
}

/// Who waits for something of an allocation.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A thread of this component.
    Thread(Arc<Slot>),
    /// One of another component of this host.
    Guest(Want),
}

struct Raised {
    layout: Layout,
    blocks: Range<u64>,
    access: Access,
}

/// Something without which this component cannot go on: its memory.
pub(crate) fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("comb: this component cannot go on: {error}");
    std::process::abort()
}

/// The launcher of a task ends all components when one has ended. Who is started without one, or has lost it, ends by itself.
const LAUNCHER_LIMIT: Duration = Duration::from_secs(2);
/// As sysexits' EX_UNAVAILABLE.
const EXIT_WITH_THE_OTHERS: i32 = 69;

impl Core {
    pub(crate) fn new(
        memory: Arc<Memory>,
        peers: Option<Peers>,
        me: CellId,
        count: u32,
        imports: bool,
    ) -> Self {
        Self {
            me,
            memory,
            count,
            depends: vec![false; count as usize],
            report: None,
            heard: None,
            peers,
            imports,
            are_homes: false,
            waiting: Vec::new(),
            given: Vec::new(),
            ready: Vec::new(),
            neighbours: None,
            syncing: Vec::new(),
            raised: None,
            copies: Copies::default(),
            decided: Vec::new(),
            vacated: Vec::new(),
            counts: Counts::default(),
            tokens: BTreeMap::new(),
            next_token: 0,
            content: Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.peers.as_ref().map_or(self.count, Peers::count)
    }

    pub(crate) fn others(&self) -> Vec<u32> {
        self.peers.as_ref().map(Peers::others).unwrap_or_default()
    }

    pub(crate) fn lives(&self, rank: u32) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.lives(rank))
    }

    /// Something of this one's was asked for, or has come from there. (Hive §2, §5.6)
    pub(crate) fn depend_on(&mut self, rank: u32) {
        if let Some(depends) = self.depends.get_mut(rank as usize) {
            *depends = true;
        }
    }

    pub(crate) fn say(&mut self, to: u32, kind: Kind, head: &Head, content: &[u8]) {
        debug_assert_ne!(to, self.me.0, "nobody talks to itself");
        if let Some(peers) = &mut self.peers {
            peers.send(to, kind, head, content);
        }
    }

    /// A number by which the answer of a component finds its slot.
    pub(crate) fn token(&mut self, of: u32, slot: &Arc<Slot>) -> u64 {
        self.token_about(None, of, slot)
    }

    /// The same for a question about an allocation whose home may say that it is no more, which is an answer.
    pub(crate) fn token_about(&mut self, about: Option<u64>, of: u32, slot: &Arc<Slot>) -> u64 {
        self.next_token += 1;
        self.tokens.insert(self.next_token, Asked { of, about, slot: Arc::clone(slot) });
        self.next_token
    }

    /// An answer has come. Of several that share a slot, each counts.
    pub(crate) fn answered(&mut self, from: u32, token: u64, values: [u64; 2]) -> Result<(), Mistake> {
        if self.tokens.get(&token).is_none_or(|asked| asked.of != from) {
            return Err(Mistake::NotAsked);
        }
        let Asked { slot, .. } = self.tokens.remove(&token).expect("just seen");
        if values == [0, 0] {
            let _ = slot.happened();
        } else {
            slot.end(values);
        }
        Ok(())
    }

    /// Nobody answers any more. Whoever waits is told to look again.
    pub(crate) fn no_answers_of(&mut self, gone: u32) {
        self.no_answers_to(|asked| asked.of == gone);
    }

    /// The same of what was asked about an allocation.
    pub(crate) fn no_answers_about(&mut self, offset: u64) {
        self.no_answers_to(|asked| asked.about == Some(offset));
    }

    fn no_answers_to(&mut self, is_over: impl Fn(&Asked) -> bool) {
        for (_, asked) in self.tokens.extract_if(.., |_, asked| is_over(asked)) {
            asked.slot.end([u64::MAX, 0]);
        }
    }

    pub(crate) fn await_block(&mut self, offset: u64, block: Block, waiter: Waiter) {
        self.waiting.push((offset, block, waiter));
    }

    /// How many threads of a guest wait.
    pub(crate) fn wants_of(&self, guest: u32) -> usize {
        let is_its = |waiter: &Waiter| matches!(waiter, Waiter::Guest(want) if want.from == guest);
        self.waiting.iter().filter(|(_, _, waiter)| is_its(waiter)).count()
    }

    /// Tells the MMU of the rights that were given.
    #[inline]
    pub(crate) fn raise(&mut self) {
        if let Some(raised) = self.raised.take() {
            let set = self.memory.set(&raised.layout, raised.blocks, raised.access);
            set.unwrap_or_else(|error| fail(&error));
        }
    }

    /// Nobody waits any more for an allocation that is no more.
    pub(crate) fn forget(&mut self, offset: u64) {
        self.raise();
        self.ready.retain(|(of, ..)| *of != offset);
        let waited: Vec<_> = self.waiting.extract_if(.., |(of, ..)| *of == offset).collect();
        for (_, _, waiter) in waited {
            match waiter {
                Waiter::Thread(slot) => slot.end([0, 0]),
                Waiter::Guest(Want { from, token, .. }) => {
                    self.say(from, Kind::May, &[token, u64::MAX, 0, 0], &[]);
                }
            }
        }
        self.end_syncing(offset);
    }

    /// What was stored in an allocation is to be found.
    fn end_syncing(&mut self, offset: u64) {
        let synced: Vec<_> = self.syncing.extract_if(.., |(of, _)| *of == offset).collect();
        for (_, waiter) in synced {
            match waiter {
                Waiter::Thread(slot) => {
                    slot.happened();
                }
                Waiter::Guest(Want { from, token, .. }) => {
                    self.say(from, Kind::Known, &[token, 0, 0, 0], &[]);
                }
            }
        }
    }
}

/// The components of a task end together. What ended is the launcher's to say, once; who is still there after the limit says it.
pub(crate) fn end_together(gone: &Gone) -> ! {
    std::thread::sleep(LAUNCHER_LIMIT);
    // In one piece: the others write to the same place.
    let line = format!("comb: component {} is gone: {}; the task ends with it\n", gone.rank, gone.cause);
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    #[expect(unsafe_code, reason = "nothing of a failed task is to run any more, its exit handlers included")]
    // SAFETY: ends the process at once, from any thread.
    unsafe {
        libc::_exit(EXIT_WITH_THE_OTHERS)
    }
}

/// One allocation's protocol at work.
pub(crate) struct Driver<'a> {
    core: &'a mut Core,
    shape: &'a mut Shape,
    /// What came with the message that is handled.
    content: &'a [u8],
    /// A block that is to contain it, as soon as it gets a right: filling and granting are one step for the kernel.
    filled: Option<Block>,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(core: &'a mut Core, shape: &'a mut Shape) -> Self {
        Self::hearing(core, shape, &[])
    }

    /// While a message is handled.
    pub(crate) fn hearing(core: &'a mut Core, shape: &'a mut Shape, content: &'a [u8]) -> Self {
        Self { core, shape, content, filled: None }
    }

    pub(crate) fn shape(&mut self) -> &mut Shape {
        self.shape
    }

    pub(crate) fn rank(&self) -> u32 {
        self.core.me.0
    }

    /// Something of its home's memory is about to be asked for.
    pub(crate) fn depend_on_home(&mut self, block: Block) {
        if let Some(home) = self.shape.home(block.0) {
            self.core.depend_on(home);
        }
    }

    /// Whether components are on several hosts.
    pub(crate) fn has_far_peers(&self) -> bool {
        self.core.peers.as_ref().is_some_and(Peers::are_elsewhere)
    }

    /// How many bytes may be asked for ahead of a miss.
    pub(crate) fn most_ahead(&self) -> u64 {
        self.core.copies.most_ahead()
    }

    /// Counts copies of what lives elsewhere, as they come and go.
    fn count(&mut self, block: Block, old: Access, new: Access) {
        let (was_here, is_here) = (old.may_load(), new.may_load());
        if was_here == is_here || self.home_of(block) == self.core.me {
            return;
        }
        let (offset, bytes) = (self.shape.allocation.offset, self.block_bytes() as u64);
        if is_here {
            self.shape.copied_bytes += bytes;
            self.core.copies.came(offset, block, bytes);
        } else {
            self.shape.copied_bytes -= bytes;
            self.core.copies.went(bytes);
        }
    }

    /// What was to be filled is.
    fn settle(&mut self) {
        if let Some(block) = self.filled.take() {
            self.core.memory.fill(&self.shape.layout, block, self.content);
        }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Tempest for Driver<'_> {
    fn me(&self) -> CellId {
        self.core.me
    }

    fn home_of(&self, block: Block) -> CellId {
        // Known before a protocol hears of a block.
        CellId(self.shape.home(block.0).unwrap_or(u32::MAX))
    }

    fn homes_move(&self) -> bool {
        self.shape.moving.is_some()
    }

    fn home(&self, block: Block) -> Home {
        self.shape.home_and_moves(block).unwrap_or(Home::born(CellId(u32::MAX)))
    }

    fn set_home(&mut self, block: Block, home: Home) {
        let was_here = self.home_of(block) == self.core.me;
        let Some(moving) = &mut self.shape.moving else { return };
        moving.homes.set(block, home);
        let is_here = home.cell == self.core.me;
        if is_here {
            self.core.counts.moved_here += 1;
        } else if was_here {
            self.core.counts.moved_away += 1;
            self.core.vacated.push((self.shape.allocation.offset, block));
        }
    }

    fn missed(&mut self, block: Block, by: CellId, is_store: bool) {
        let home = self.home(block);
        let Some(moving) = &mut self.shape.moving else { return };
        if let Some((blocks, decided)) = moving.pages.missed(block, home, by, is_store) {
            self.core.decided.push((self.shape.allocation.offset, blocks, decided));
        }
    }

    fn blocks(&self) -> u64 {
        self.shape.layout.blocks()
    }

    fn block_bytes(&self) -> usize {
        self.shape.layout.block_bytes()
    }

    #[inline]
    fn access(&self, block: Block) -> Access {
        match &self.core.raised {
            Some(raised) if raised.layout == self.shape.layout && raised.blocks.contains(&block.0) => {
                raised.access
            }
            _ => self.core.memory.access(&self.shape.layout, block),
        }
    }

    fn set_access(&mut self, block: Block, access: Access) {
        let old = self.access(block);
        if old == access {
            return;
        }
        self.count(block, old, access);
        let layout = self.shape.layout;
        if access < old && old == Access::Invalid && self.filled == Some(block) {
            self.filled = None;
            self.core.raise();
            let delivered = self.core.memory.deliver(&layout, block, self.content, access);
            return delivered.unwrap_or_else(|error| fail(&error));
        }
        self.settle();
        if access < old {
            if let Some(raised) = &mut self.core.raised
                && raised.layout == layout
                && raised.access == access
                && raised.blocks.end == block.0
            {
                raised.blocks.end += 1;
                return;
            }
            self.core.raise();
            self.core.raised = Some(Raised { layout, blocks: block.0..block.0 + 1, access });
            return;
        }
        self.core.raise();
        self.core.record_taken(self.shape, block, access);
        self.core.memory.set(&layout, block.0..block.0 + 1, access).unwrap_or_else(|error| fail(&error));
        self.core.lower_for_guests(&layout, block, access);
    }

    fn fill(&mut self, block: Block, content: &[u8]) {
        self.settle();
        self.core.record_received(content.len());
        if std::ptr::eq(content, self.content) && content.len() == self.block_bytes() {
            self.filled = Some(block);
        } else {
            self.core.memory.fill(&self.shape.layout, block, content);
        }
    }

    fn copy_out(&self, block: Block, into: &mut [u8]) {
        self.core.memory.copy_out(&self.shape.layout, block, into);
    }

    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]) {
        self.settle();
        self.core.record_received(bytes.len());
        self.core.memory.patch(&self.shape.layout, block, offset, bytes);
    }

    fn send(&mut self, to: CellId, kind: u8, block: Block, word: u64, content: Content<'_>) {
        let allocation = &self.shape.allocation;
        let first = u64::from(kind) | u64::from(allocation.generation) << 32;
        let head = [first, allocation.offset, block.0, word];
        self.core.record_sent(match content {
            Content::None => 0,
            Content::Bytes(bytes) => bytes.len(),
            Content::Block => self.shape.layout.block_bytes(),
        });
        match content {
            Content::None => self.core.say(to.0, Kind::Protocol, &head, &[]),
            Content::Bytes(bytes) => self.core.say(to.0, Kind::Protocol, &head, bytes),
            Content::Block if self.access(block) != Access::ReadWrite => {
                self.settle();
                let (first, bytes) =
                    (self.core.memory.content(&self.shape.layout, block), self.block_bytes());
                #[expect(unsafe_code, reason = "content straight from its frame")]
                // SAFETY: a block of the allocation; no thread may store into it, and the alias is written by this thread alone.
                let content = unsafe { std::slice::from_raw_parts(first, bytes) };
                self.core.say(to.0, Kind::Protocol, &head, content);
            }
            Content::Block => {
                self.settle();
                let mut content = std::mem::take(&mut self.core.content);
                content.resize(self.block_bytes(), 0);
                self.copy_out(block, &mut content);
                self.core.say(to.0, Kind::Protocol, &head, &content);
                self.core.content = content;
            }
        }
    }

    fn resume(&mut self, block: Block) {
        let offset = self.shape.allocation.offset;
        let is_for_it = |(of, which, _): &(u64, Block, Waiter)| (*of, *which) == (offset, block);
        // Of many that were asked for together the first comes first.
        let Some(first) = self.core.waiting.iter().position(is_for_it) else { return };
        self.core.raise();
        let Core { waiting, ready, given, .. } = &mut *self.core;
        for (_, _, waiter) in waiting.extract_if(first.., |waits| is_for_it(waits)) {
            match waiter {
                Waiter::Thread(slot) => given.push((offset, block, slot.happened())),
                Waiter::Guest(want) => ready.push((offset, block, want)),
            }
        }
    }

    fn synced(&mut self) {
        self.core.end_syncing(self.shape.allocation.offset);
    }

    fn lose(&mut self, block: Block, loss: Loss) {
        self.set_access(block, Access::Invalid);
        self.shape.lost.insert(block.0, loss);
        self.resume(block);
    }
}

#[cfg(test)]
mod tests {
    use comb_coherence::Access::{self, Invalid, ReadOnly, ReadWrite};

    use super::*;
    use crate::engine::scene::{allocation, engine};
    use crate::terms::{Guard, Sharing};

    /// Rights are told to the MMU in runs; each block gets its own, be it beside others with another right, of another allocation, or taken again
    /// before the MMU has heard of it.
    #[test]
    fn each_block_gets_the_right_that_it_was_given() {
        const OFFSETS: [u64; 2] = [32 << 20, 33 << 20];
        let mut engine = engine();
        for offset in OFFSETS {
            engine.install(allocation(offset, Sharing::Stache, Guard::Page)).expect("installed");
            let layout = engine.entries[&offset].shape.layout;
            engine.core.memory.set(&layout, 0..layout.blocks(), Invalid).expect("set");
        }
        let given: &[(usize, u64, Access)] = &[
            (0, 1, ReadOnly),
            (0, 2, ReadOnly),
            (0, 3, ReadOnly),
            (0, 4, ReadWrite),
            (0, 5, ReadWrite),
            (0, 7, ReadWrite),
            (1, 8, ReadWrite),
            (1, 9, ReadWrite),
            (1, 9, Invalid),
            (1, 2, ReadOnly),
            (1, 2, ReadWrite),
        ];
        let mut expected = [[Invalid; 12]; 2];
        for &(of, block, access) in given {
            let entry = engine.entries.get_mut(&OFFSETS[of]).expect("installed");
            let mut driver = Driver::new(&mut engine.core, &mut entry.shape);
            driver.set_access(Block(block), access);
            expected[of][usize::try_from(block).expect("small")] = access;
            for (block, expected) in (0..).map(Block).zip(expected[of]) {
                assert_eq!(driver.access(block), expected, "{block:?}, the MMU told of it or not");
            }
        }
        engine.core.raise();
        for (offset, expected) in OFFSETS.into_iter().zip(expected) {
            let layout = engine.entries[&offset].shape.layout;
            let found: Vec<_> =
                (0..12).map(|block| engine.core.memory.access(&layout, Block(block))).collect();
            assert_eq!(found, expected);
            engine.remove(offset);
        }
    }
}
