//! Ranges of blocks that a thread wants together: what it has looked for itself, and not found.

use std::sync::Arc;

use comb_coherence::{Block, CellId, Loss};
use comb_memory::Reason;

use super::faults::{Stopped, Waited, ask_by_habit, read_ahead};
use super::{Engine, locate};
use crate::driver::{Driver, Waiter};
use crate::waiting::Slot;
use crate::wire::Kind;

/// How often all that is missing is asked for at once. Two that want the same blocks, each with some of them, would take them from each other for
/// ever: from then on a thread asks for one after the other, in their order, and nobody takes those that it has.
const ROUNDS_AT_ONCE: u32 = 2;

/// A thread, and what it wants.
pub(crate) struct Fetch {
    pub(super) thread: u64,
    pub(super) address: usize,
    bytes: usize,
    is_store: bool,
    /// How often it has waited for blocks.
    rounds: u32,
}

impl Fetch {
    pub(crate) fn new(thread: u64, address: usize, bytes: usize, is_store: bool) -> Self {
        Self { thread, address, bytes: bytes.max(1), is_store, rounds: 0 }
    }
}

impl Engine {
    /// Whether all that is wanted is there, by what stands in the state table; so also of what nobody has to ask for.
    pub(crate) fn has(&mut self, fetch: &Fetch) -> bool {
        let Some((entry, first)) = locate(&mut self.entries, fetch.address) else { return false };
        if entry.shape.imported.is_some() {
            return false;
        }
        if entry.protocol.is_none() {
            return true;
        }
        self.core.raise();
        let layout = &entry.shape.layout;
        let last =
            layout.block_at(fetch.address + fetch.bytes - 1).map_or(layout.blocks() - 1, |last| last.0);
        (first.0..=last).all(|block| self.core.memory.access(layout, Block(block)).allows(fetch.is_store))
    }

    /// What the thread has to wait for.
    pub(crate) fn fetch(&mut self, fetch: &mut Fetch, slot: &Arc<Slot>) -> Stopped {
        let me = self.core.me.0;
        let is_store = fetch.is_store;
        let Some((entry, first)) = locate(&mut self.entries, fetch.address) else { return Stopped::NoMemory };
        if entry.shape.imported.is_some() {
            return self.want(fetch.address, is_store, slot);
        }
        let Some(protocol) = &mut entry.protocol else { return Stopped::Served };
        self.core.raise();
        let layout = entry.shape.layout;
        let offset = layout.offset();
        let last =
            layout.block_at(fetch.address + fetch.bytes - 1).map_or(layout.blocks() - 1, |last| last.0);
        let (mut missing, mut first_missing) = (0, None);
        for block in first.0..=last {
            if let Some(loss) = entry.shape.lost.get(&block) {
                return Stopped::Lost(Reason::Loss(*loss));
            }
            let Some(home) = entry.shape.home(block) else {
                let creator = entry.shape.allocation.creator;
                let extent = entry.shape.homes.extent(block);
                if creator == me {
                    entry.shape.homes.learn(extent, me);
                    return Stopped::Again;
                }
                slot.begin(1);
                let token = self.core.token(creator, slot);
                self.core.say(creator, Kind::WhoseIs, &[token, offset, extent, 0], &[]);
                return Stopped::Waits;
            };
            if home == me {
                entry.shape.claim(&self.core, block);
            } else if !self.core.lives(home) {
                return Stopped::Lost(Reason::Loss(Loss::Home(CellId(home))));
            }
            if !self.core.memory.access(&layout, Block(block)).allows(is_store) {
                missing += 1;
                first_missing.get_or_insert(block);
            }
        }
        let Some(first_missing) = first_missing else { return Stopped::Served };
        fetch.rounds += 1;
        let until = if fetch.rounds > ROUNDS_AT_ONCE {
            self.holds.hold_range(fetch.thread, offset, first.0..first_missing);
            missing = 1;
            first_missing
        } else {
            last
        };
        slot.begin(missing);
        let is_missing = |block: &u64| !self.core.memory.access(&layout, Block(*block)).allows(is_store);
        // Before the first is asked for: its answer may be there at once.
        let blocks: Vec<Block> = (first_missing..=until).filter(is_missing).map(Block).collect();
        self.core.counts.misses += u64::from(missing);
        for &block in &blocks {
            self.core.await_block(offset, block, Waiter::Thread(Arc::clone(slot)));
        }
        let mut driver = Driver::new(&mut self.core, &mut entry.shape);
        for &block in &blocks {
            ask_by_habit(&mut driver, protocol.as_mut(), block, is_store);
        }
        if !is_store && fetch.rounds == 1 && driver.shape().home(last) != Some(me) {
            read_ahead(&mut driver, protocol.as_mut(), first_missing..=last);
        }
        drop(driver);
        self.core.raise();
        Stopped::Waits
    }

    /// The thread has waited; the values are what came with the end of that.
    pub(crate) fn fetched(&mut self, fetch: &mut Fetch, values: [u64; 2]) -> Waited {
        let is_imported =
            locate(&mut self.entries, fetch.address).is_some_and(|(entry, _)| entry.shape.imported.is_some());
        if !is_imported {
            return Waited::Again;
        }
        let shown = self.shown(fetch.address, fetch.is_store, values);
        if matches!(shown, Waited::Served) {
            self.go_on_behind(fetch);
            return if fetch.bytes == 0 { Waited::Served } else { Waited::Again };
        }
        shown
    }

    /// Of memory whose rights another process has, a block at a time is asked for.
    fn go_on_behind(&mut self, fetch: &mut Fetch) {
        let end = fetch.address + fetch.bytes;
        let block_bytes = locate(&mut self.entries, fetch.address)
            .map_or(fetch.bytes, |(entry, _)| entry.shape.layout.block_bytes());
        fetch.address = (fetch.address / block_bytes + 1) * block_bytes;
        fetch.bytes = end.saturating_sub(fetch.address);
    }

    /// All was there at once: it may be the last time that somebody took it that was too soon.
    pub(crate) fn found(&mut self, fetch: &Fetch) {
        if self.is_back(fetch.thread, fetch.address) {
            self.end_fetch(fetch);
        }
    }

    /// The thread goes on. What it was given is not taken before it has had the time to look again.
    pub(crate) fn end_fetch(&mut self, fetch: &Fetch) {
        let until = self.served(fetch.thread, fetch.address, &super::OWN);
        let blocks = locate(&mut self.entries, fetch.address).map(|(entry, first)| {
            let layout = &entry.shape.layout;
            let last = layout
                .block_at(fetch.address + fetch.bytes.max(1) - 1)
                .map_or(layout.blocks() - 1, |last| last.0);
            (layout.offset(), first.0..last + 1)
        });
        self.holds.hold_range_until(fetch.thread, blocks.zip(until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use comb_coherence::Access;

    use super::*;
    use crate::engine::scene::{allocation, engine};
    use crate::terms::{Guard, Sharing};
    use crate::wire;

    const OFFSET: u64 = 230 << 20;
    const WRITABLE: u64 = 8;
    const RECALL: u64 = 10;

    /// Another component wants both blocks too, and takes each as soon as it is here: without what this tests, for ever.
    #[test]
    fn who_has_lost_some_of_its_blocks_keeps_what_it_has_until_it_has_the_rest() {
        let mut engine = engine();
        engine.install(allocation(OFFSET, Sharing::Stache, Guard::Check)).expect("installed");
        // They live with component 1.
        let layout = engine.entries[&OFFSET].shape.layout;
        let hear = |engine: &mut Engine, kind: u64, block: u64| {
            let content: &[u8] = if kind == WRITABLE { &[5; 4096] } else { &[] };
            let message = [&wire::pack(&[7 << 32 | kind, OFFSET, block, 0])[..], content].concat();
            engine.take(1, Kind::Protocol as u8, &message).expect("a home's right");
        };
        let is_here =
            |engine: &Engine, block| engine.core.memory.access(&layout, Block(block)) == Access::ReadWrite;
        let slot = engine.slot();
        let mut fetch = Fetch::new(1, layout.address(Block(17)), 8192, true);
        for _ in 0..ROUNDS_AT_ONCE {
            assert!(matches!(engine.fetch(&mut fetch, &slot), Stopped::Waits));
            for block in [17, 18] {
                assert!(!slot.is_done());
                hear(&mut engine, WRITABLE, block);
                hear(&mut engine, RECALL, block);
                while is_here(&engine, block) {
                    engine.drive();
                }
            }
            assert!(slot.is_done());
        }
        for (block, next) in [(17, 18), (18, 19)] {
            assert!(matches!(engine.fetch(&mut fetch, &slot), Stopped::Waits));
            hear(&mut engine, WRITABLE, block);
            assert!(slot.is_done() && !is_here(&engine, next), "it has asked for more than one");
        }
        assert!(matches!(engine.fetch(&mut fetch, &slot), Stopped::Served));
        hear(&mut engine, RECALL, 17);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(5) {
            engine.drive();
        }
        assert!(is_here(&engine, 17) && !engine.is_owing(), "taken before the thread has gone on");
        engine.end_fetch(&fetch);
        while is_here(&engine, 17) {
            engine.drive();
        }
        engine.remove(OFFSET);
    }
}
