//! What is recorded for `comb run --report`, if anybody wants to know.

use std::time::Instant;

use comb_coherence::{Access, Block};

use super::{Engine, Shape, locate};
use crate::driver::Core;
use crate::report::{Kind, Miss};
use crate::terms::Allocation;

/// Blocks of one wait that are told apart; what is asked for with more of them is rare, and its first are told of.
const MOST_BLOCKS: u64 = 64;

/// A thread that may have to wait: how things are before it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    address: usize,
    bytes: usize,
    is_store: bool,
    instruction: usize,
    /// From the block of `address` on, those without the right, and those of them that may be loaded, as bits.
    blocks: u64,
    may_load: u64,
    has_home: bool,
    since: Instant,
}

impl Engine {
    /// A thread is about to ask for what it may not touch: to be handed to [`Engine::has_come`] if it had to wait. Nothing where nobody wants
    /// to know.
    #[inline]
    pub(crate) fn missing(
        &mut self,
        address: usize,
        bytes: usize,
        is_store: bool,
        instruction: usize,
    ) -> Option<Missing> {
        self.core.report.as_ref()?;
        let (entry, first) = locate(&mut self.entries, address)?;
        let mut missing = Missing {
            address,
            bytes: bytes.max(1),
            is_store,
            instruction,
            blocks: 1,
            may_load: 0,
            has_home: true,
            since: Instant::now(),
        };
        // Of what it imports, a guest's lead knows the rights.
        if entry.protocol.is_none() {
            return Some(missing);
        }
        let layout = &entry.shape.layout;
        let last = layout.block_at(address.saturating_add(missing.bytes - 1)).map_or(first.0, |last| last.0);
        let accesses = (first.0..=last.min(first.0 + MOST_BLOCKS - 1)).zip(0_u32..);
        let accesses = accesses.map(|(block, bit)| (self.core.memory.access(layout, Block(block)), bit));
        missing.blocks = 0;
        for (access, bit) in accesses.filter(|(access, _)| !access.allows(is_store)) {
            missing.blocks |= 1 << bit;
            missing.may_load |= u64::from(access.may_load()) << bit;
        }
        missing.has_home = entry.shape.home(first.0).is_some();
        Some(missing)
    }

    /// It has waited until now.
    pub(crate) fn has_come(&mut self, missing: &Missing, thread: u64) {
        let Missing { address, bytes, is_store, instruction, blocks, may_load, has_home, since } = *missing;
        let Some(report) = &mut self.core.report else { return };
        let Some((entry, first)) = locate(&mut self.entries, address) else { return };
        let waited = since.elapsed() / blocks.count_ones().max(1);
        let end = address.saturating_add(bytes) as u64;
        for bit in (0..64).filter(|bit| blocks >> bit & 1 != 0) {
            let block = Block(first.0 + bit);
            let home = entry.shape.home(block.0);
            let kind = match is_store {
                _ if !has_home && home == Some(self.core.me.0) => Kind::Place,
                false => Kind::Read,
                true if may_load >> bit & 1 != 0 => Kind::Upgrade,
                true => Kind::Write,
            };
            let (block, block_bytes, allocation) = place(&entry.shape, block);
            let address = block.max(address as u64);
            report.miss(&Miss {
                address,
                bytes: end.saturating_sub(address),
                instruction: instruction as u64,
                kind,
                waited,
                block,
                block_bytes,
                allocation,
                home,
                thread,
            });
        }
    }

    /// An allocation that this component's program has asked for.
    pub(crate) fn record_allocated(&mut self, allocation: &Allocation) {
        if let (Some(report), Some(entry)) = (&mut self.core.report, self.entries.get(&allocation.offset)) {
            report.allocated(allocation, entry.shape.layout.address(Block(0)) as u64);
        }
    }

    /// Writes it to where the launcher finds it.
    pub(crate) fn hand_in_report(&self) {
        let Some(report) = &self.core.report else { return };
        let start = |shape: &Shape| shape.layout.address(Block(0)) as u64;
        let known = self.entries.values().map(|entry| (&entry.shape.allocation, start(&entry.shape)));
        if let Err(error) = report.hand_in(known) {
            eprintln!("comb: this component's part of the report is lost: {error}");
        }
    }
}

impl Core {
    /// A right is about to be taken. What this component gives up by itself is nobody's doing.
    pub(crate) fn record_taken(&mut self, shape: &Shape, block: Block, left: Access) {
        if let (Some(report), Some(by)) = (&mut self.report, self.heard) {
            let (block, block_bytes, allocation) = place(shape, block);
            report.taken(block, block_bytes, allocation, left, by);
        }
    }

    pub(crate) fn record_received(&mut self, bytes: usize) {
        if let Some(report) = &mut self.report {
            report.received(bytes);
        }
    }

    pub(crate) fn record_sent(&mut self, bytes: usize) {
        if let Some(report) = &mut self.report {
            report.sent(bytes);
        }
    }
}

/// Where a block begins, its length, and where its allocation begins.
fn place(shape: &Shape, block: Block) -> (u64, u32, u64) {
    let address = |block| shape.layout.address(block) as u64;
    // Blocks are 64 KB at most.
    let bytes = u32::try_from(shape.layout.block_bytes()).unwrap_or(u32::MAX);
    (address(block), bytes, address(Block(0)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;
    use crate::engine::Stopped;
    use crate::engine::scene::{WANTS_TO_WRITE, allocation, ask, engine};
    use crate::report::{BlockPart, Part, Recorder};
    use crate::terms::{Guard, Sharing};
    use crate::wire::{self, Kind as Says};

    /// Component 0 of three, with an allocation of which every third extent lives here; and where its report goes.
    fn recording(offset: u64) -> (Engine, OwnedFd) {
        let mut engine = engine();
        engine.install(allocation(offset, Sharing::Stache, Guard::Page)).expect("installed");
        let file = rustix::fs::memfd_create("part", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        let own = rustix::io::dup(&file).expect("another");
        engine.core.report = Some(Box::new(Recorder::new(0, false, own)));
        (engine, file)
    }

    fn address(engine: &Engine, offset: u64, block: u64) -> usize {
        engine.entries[&offset].shape.layout.address(Block(block))
    }

    /// A thread of this component's that misses, and what its home says.
    fn waits(engine: &mut Engine, offset: u64, block: u64, is_store: bool, answer: u64, content: &[u8]) {
        let address = address(engine, offset, block) + 24;
        let slot = engine.slot();
        let missing = engine.missing(address, 8, is_store, 77).expect("somebody wants to know");
        assert!(matches!(engine.fault(address, is_store, &Arc::clone(&slot)), Stopped::Waits));
        let message = [&wire::pack(&[7 << 32 | answer, offset, block, 0])[..], content].concat();
        engine.take(1, Says::Protocol as u8, &message).expect("asked for");
        engine.has_come(&missing, 5);
    }

    fn handed_in(engine: &Engine, file: &OwnedFd) -> Part {
        engine.hand_in_report();
        let mut bytes = vec![0; 1 << 20];
        let length = rustix::io::pread(file, &mut bytes, 0).expect("readable");
        Part::decode(&bytes[..length]).expect("a part")
    }

    fn block_at(part: &Part, address: usize) -> &BlockPart {
        part.blocks.iter().find(|block| block.start == address as u64).expect("recorded")
    }

    #[test]
    fn a_miss_is_of_the_kind_that_it_was_before_it_was_served() {
        const OFFSET: u64 = 300 << 20;
        const READABLE: u64 = 7;
        const UPGRADED: u64 = 9;
        let (mut engine, file) = recording(OFFSET);
        waits(&mut engine, OFFSET, 17, false, READABLE, &[5; 4096]);
        waits(&mut engine, OFFSET, 17, true, UPGRADED, &[]);
        let part = handed_in(&engine, &file);
        let mut kinds: Vec<_> =
            part.sites.iter().map(|site| (site.kind, site.count, site.instruction)).collect();
        kinds.sort();
        assert_eq!(kinds, [(Kind::Read, 1, 77), (Kind::Upgrade, 1, 77)]);
        let block = block_at(&part, address(&engine, OFFSET, 17));
        assert_eq!((block.home, block.loaded_words(), block.stored_words()), (Some(1), vec![3], vec![3]));
        assert_eq!((part.bytes_in, part.bytes_out, part.allocations.len()), (4096, 0, 1));
        engine.remove(OFFSET);
    }

    #[test]
    fn what_another_takes_is_recorded_and_what_is_given_up_is_not() {
        const OFFSET: u64 = 301 << 20;
        let (mut engine, file) = recording(OFFSET);
        // It lives here.
        engine.entries.get_mut(&OFFSET).expect("installed").shape.claim(&engine.core, 3);
        ask(&mut engine, OFFSET, 3, WANTS_TO_WRITE);
        let part = handed_in(&engine, &file);
        let block = block_at(&part, address(&engine, OFFSET, 3));
        assert_eq!((block.taken, &block.taken_by[..], block.misses()), (1, &[(1, 1)][..], 0));
        assert_eq!((part.bytes_in, part.bytes_out), (0, 4096));
        assert!(part.sites.is_empty());
        let entry = engine.entries.get_mut(&OFFSET).expect("installed");
        let mut driver = crate::driver::Driver::new(&mut engine.core, &mut entry.shape);
        comb_coherence::Tempest::set_access(&mut driver, Block(4), Access::Invalid);
        drop(driver);
        assert_eq!(handed_in(&engine, &file).blocks.len(), 1);
        engine.remove(OFFSET);
    }

    #[test]
    fn where_nobody_wants_to_know_nothing_is_looked_at() {
        assert!(engine().missing(comb_memory::HEAP_START, 8, true, 77).is_none());
    }
}
