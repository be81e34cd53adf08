//! What a thread that was stopped has to wait for; and what is asked for before anybody misses it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use comb_coherence::{Access, Block, CellId, Loss, Protocol, Tempest};
use comb_memory::Reason;

use super::ahead::Plan;
use super::{Engine, Hint, locate};
use crate::driver::{Driver, Waiter};
use crate::waiting::Slot;
use crate::wire::Kind;

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
    /// There was; or it may not be touched so.
    Lost(Reason),
}

/// What has become of a thread that has waited.
pub(crate) enum Waited {
    /// It has its right.
    Served,
    /// It is to ask again.
    Again,
    /// It gets none.
    Refused(Reason),
}

/// What is read ahead at most, in bytes: enough to hide a round trip and the mapping of a page.
const MOST_AHEAD_BYTES: u64 = 512 << 10;

impl Engine {
    /// What a thread has to wait for whose access was stopped.
    pub(crate) fn fault(&mut self, address: usize, is_store: bool, slot: &Arc<Slot>) -> Stopped {
        let me = self.core.me.0;
        let Some((entry, block)) = locate(&mut self.entries, address) else { return Stopped::NoMemory };
        if let Some(loss) = entry.shape.lost.get(&block.0) {
            return Stopped::Lost(Reason::Loss(*loss));
        }
        if let Some(reason) = entry.shape.named.as_ref().and_then(|named| named.forbids(is_store)) {
            return Stopped::Lost(reason);
        }
        if entry.shape.imported.is_some() {
            return self.want(address, is_store, slot);
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
            return Stopped::Lost(Reason::Loss(Loss::Home(CellId(home))));
        }
        let layout = entry.shape.layout;
        self.core.raise();
        let access = self.core.memory.access(&layout, block);
        if access.allows(is_store) {
            self.core.memory.repair(&layout, block).unwrap_or_else(|error| crate::driver::fail(&error));
            return Stopped::Served;
        }
        slot.begin(1);
        self.core.counts.misses += 1;
        self.core.await_block(entry.shape.allocation.offset, block, Waiter::Thread(Arc::clone(slot)));
        let mut driver = Driver::new(&mut self.core, &mut entry.shape);
        ask_by_habit(&mut driver, protocol.as_mut(), block, is_store);
        if !is_store && home != me {
            read_ahead(&mut driver, protocol.as_mut(), block.0..=block.0);
        }
        drop(driver);
        self.core.raise();
        Stopped::Waits
    }

    /// Asks for rights to a range of addresses, of which none waits. How many blocks were asked for.
    pub(crate) fn prefetch(&mut self, address: usize, bytes: usize, is_store: bool) -> usize {
        let hint = if is_store { Hint::Store } else { Hint::Load };
        if let Some(asked) = self.hint(hint, address, bytes, None) {
            return asked;
        }
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
            if driver.access(block).allows(is_store) {
                continue;
            }
            ask(&mut driver, protocol.as_mut(), block, is_store);
            drop(driver);
            asked += 1;
        }
        self.core.raise();
        asked
    }

    /// Offers what lives here, or what is here, to others: to one of them, or to all. How many blocks were offered.
    pub(crate) fn push(&mut self, address: usize, bytes: usize, to: Option<u32>) -> usize {
        if let Some(offered) = self.hint(Hint::Push, address, bytes, to) {
            return offered;
        }
        let others = self.core.others();
        let to: Vec<u32> = others.into_iter().filter(|&rank| to.is_none_or(|to| to == rank)).collect();
        let Some((entry, first)) = locate(&mut self.entries, address) else { return 0 };
        let to = self.core.leads_of(to, &entry.shape.homes);
        let last = entry.shape.layout.block_at(address + bytes.saturating_sub(1)).unwrap_or(first);
        let Some(protocol) = &mut entry.protocol else { return 0 };
        let mut offered = 0;
        for block in (first.0..=last.0).map(Block) {
            let Some(home) = entry.shape.home(block.0) else { continue };
            let mut driver = Driver::new(&mut self.core, &mut entry.shape);
            if to.is_empty() || home != driver.rank() && !driver.access(block).may_load() {
                continue;
            }
            to.iter().for_each(|&to| protocol.on_push(&mut driver, block, to));
            offered += 1;
        }
        offered
    }

    #[cfg(test)]
    pub(crate) fn may_store(&mut self, address: usize) -> bool {
        matches!(self.waited(address, true, [0, 0]), Waited::Served)
    }

    /// What has become of a thread that was to wait; the values are what came with the end of that.
    pub(crate) fn waited(&mut self, address: usize, is_store: bool, values: [u64; 2]) -> Waited {
        let Some((entry, block)) = locate(&mut self.entries, address) else { return Waited::Again };
        if entry.shape.imported.is_some() {
            return self.shown(address, is_store, values);
        }
        let layout = entry.shape.layout;
        if self.core.memory.access(&layout, block).allows(is_store) { Waited::Served } else { Waited::Again }
    }
}

/// As if a thread had missed it.
pub(super) fn ask(driver: &mut Driver<'_>, protocol: &mut dyn Protocol, block: Block, is_store: bool) {
    driver.depend_on_home(block);
    if is_store { protocol.on_write_fault(driver, block) } else { protocol.on_read_fault(driver, block) }
}

/// The same for a thread that has missed it.
pub(super) fn ask_by_habit(
    driver: &mut Driver<'_>,
    protocol: &mut dyn Protocol,
    block: Block,
    is_store: bool,
) {
    let has_copy = driver.access(block).may_load();
    let habits = driver.shape().habits.as_mut();
    let asks_to_store = habits.map_or(is_store, |habits| habits.missed(block.0, is_store, has_copy));
    ask(driver, protocol, block, asks_to_store);
}

/// Asks for what probably is read next, as far as somebody else's memory goes.
pub(super) fn read_ahead(driver: &mut Driver<'_>, protocol: &mut dyn Protocol, missed: RangeInclusive<u64>) {
    let (me, is_far) = (driver.rank(), driver.has_far_peers());
    let most = driver.most_ahead().min(MOST_AHEAD_BYTES);
    let shape = driver.shape();
    let mut streams = shape.streams;
    let is_elsewhere =
        |block| block < shape.layout.blocks() && shape.home(block).is_some_and(|home| home != me);
    let plan = streams.missed(missed, most / shape.layout.block_bytes() as u64, is_far, is_elsewhere);
    shape.streams = streams;
    for block in plan.iter().flat_map(Plan::blocks).map(Block) {
        if driver.access(block) == Access::Invalid && !driver.shape().lost.contains_key(&block.0) {
            ask(driver, protocol, block, false);
        }
    }
}
