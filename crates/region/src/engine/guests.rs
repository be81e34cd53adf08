//! A lead and the other components of its host: what they may not do they ask it for, and it asks for them as for threads of its own.

use comb_coherence::{Access, Block, CellId};
use comb_memory::Grain;

use super::faults::GUESTS;
use super::imported::{ALL, HINTS, Hint, pack};
use super::{Engine, Mistake};
use crate::driver::{Driver, Waiter};
use crate::named::{GRANTED, NO_MEMORY};
use crate::neighbours::{Neighbours, Role};
use crate::wire::{Head, Kind};

/// As many as a guest has threads that can be stopped.
const MOST_WANTS: usize = 65_536;
/// The most that a guest is shown at once.
const MOST_SHOWN_BYTES: u64 = 2 << 20;

/// A guest's thread that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Want {
    pub(crate) from: u32,
    pub(crate) token: u64,
    is_store: bool,
    /// How many blocks it would like to see.
    wishes: u64,
}

impl Engine {
    fn is_guest(&self, rank: u32) -> bool {
        let role = self.core.neighbours.as_ref().map(|neighbours| &neighbours.role);
        matches!(role, Some(Role::Lead(lent)) if lent.has(rank))
    }

    /// Whether a component has a say of its own about an allocation.
    pub(super) fn speaks(&self, rank: u32, offset: u64) -> bool {
        self.entries.get(&offset).is_none_or(|entry| entry.shape.homes.lead(rank) == rank)
    }

    pub(super) fn take_want(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, offset, block, word] = *head;
        let entry = self.entries.get(&offset).ok_or(Mistake::NoAllocation(offset))?;
        let is_lent = entry.shape.layout.grain() == Grain::Pages && self.is_guest(from);
        if !is_lent || block >= entry.shape.layout.blocks() {
            return Err(Mistake::Unasked(offset));
        }
        if self.core.wants_of(from) >= MOST_WANTS {
            return Err(Mistake::Nonsense);
        }
        let want = Want { from, token, is_store: word & 1 == 1, wishes: word >> 1 };
        self.show(offset, Block(block), want, false);
        Ok(())
    }

    /// Lets a guest's thread go on, or sees to it that it will be.
    pub(super) fn show(&mut self, offset: u64, block: Block, want: Want, has_waited: bool) {
        let me = self.core.me.0;
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        let extent = entry.shape.homes.extent(block.0);
        let Some(home) = entry.shape.home(block.0) else {
            if entry.shape.allocation.creator == me {
                entry.shape.homes.learn(extent, me);
                return self.show(offset, block, want, has_waited);
            }
            let is_asked = entry.homeless.iter().any(|(of, _)| entry.shape.homes.extent(of.0) == extent);
            entry.homeless.push((block, want));
            if !is_asked {
                self.ask_whose(offset, extent);
            }
            return;
        };
        if home == me {
            entry.shape.claim(&self.core, block.0);
        }
        self.core.raise();
        if self.core.memory.access(&entry.shape.layout, block).allows(want.is_store) {
            let address = entry.shape.layout.address(block);
            self.let_in(offset, block, want);
            if has_waited {
                // As a thread of this component: for a moment nobody takes it.
                self.served(u64::MAX - u64::from(want.from), address, &GUESTS);
            }
            return;
        }
        let Some(protocol) = &mut entry.protocol else { return };
        self.core.counts.misses += 1;
        self.core.await_block(offset, block, Waiter::Guest(want));
        let mut driver = Driver::new(&mut self.core, &mut entry.shape);
        super::faults::ask(&mut driver, protocol.as_mut(), block, want.is_store);
        if !want.is_store && home != me {
            super::faults::read_ahead(&mut driver, protocol.as_mut(), block.0);
        }
        drop(driver);
        self.core.raise();
    }

    fn let_in(&mut self, offset: u64, block: Block, want: Want) {
        let Some(entry) = self.entries.get(&offset) else { return };
        let shape = &entry.shape;
        let layout = shape.layout;
        let home = shape.home(block.0).unwrap_or(self.core.me.0);
        let memory = &self.core.memory;
        let most = (MOST_SHOWN_BYTES / layout.block_bytes() as u64).max(1);
        let end = if want.is_store { block.0 + 1 } else { block.0 + want.wishes.clamp(1, most) };
        let is_here = |&block: &u64| memory.access(&layout, Block(block)) != Access::Invalid;
        let end = (block.0 + 1..end.min(layout.blocks())).take_while(is_here).last().map_or(block.0, |last| last) + 1;
        let Some(Neighbours { role: Role::Lead(lent), .. }) = &mut self.core.neighbours else { return };
        let let_in = lent.let_in(memory, &layout, block.0..end, (want.from, want.is_store));
        let outcome = if let_in.is_ok() { GRANTED } else { NO_MEMORY };
        self.core.say(want.from, Kind::May, &[want.token, outcome, pack(end - block.0, home), 0], &[]);
    }

    /// Guests whose blocks have come.
    pub(super) fn let_ready_in(&mut self) {
        while let Some((offset, block, want)) = self.core.ready.pop() {
            self.show(offset, block, want, true);
        }
    }

    pub(super) fn take_publish(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, offset, ..] = *head;
        if !self.is_guest(from) {
            return Err(Mistake::Nonsense);
        }
        let entry = self.entries.get_mut(&offset).ok_or(Mistake::NoAllocation(offset))?;
        let Some(protocol) = &mut entry.protocol else { return Err(Mistake::Unasked(offset)) };
        self.core.syncing.push((offset, Waiter::Guest(Want { from, token, is_store: false, wishes: 0 })));
        protocol.on_sync(&mut Driver::new(&mut self.core, &mut entry.shape));
        self.core.raise();
        Ok(())
    }

    /// A hint is about memory that may have been freed, and then about nothing.
    pub(super) fn take_hint(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [what, offset, bytes, whom] = *head;
        let hint = usize::try_from(what).ok().and_then(|what| HINTS.get(what)).ok_or(Mistake::Nonsense)?;
        if !self.is_guest(from) || offset >= comb_memory::HEAP_BYTES || bytes > comb_memory::HEAP_BYTES {
            return Err(Mistake::Nonsense);
        }
        let whom = (whom != ALL).then(|| u32::try_from(whom)).transpose().map_err(|_| Mistake::Nonsense)?;
        let index = |number| usize::try_from(number).expect("within the heap");
        let (address, bytes) = (comb_memory::HEAP_START + index(offset), index(bytes));
        match hint {
            Hint::Load => self.prefetch(address, bytes, false),
            Hint::Store => self.prefetch(address, bytes, true),
            Hint::Push => self.push(address, bytes, whom),
            Hint::Move => whom.map_or(0, |whom| self.move_home(address, bytes, whom)),
        };
        Ok(())
    }
}

impl crate::driver::Core {
    /// A block's right was lowered here: so it is for guests, when this returns.
    pub(crate) fn lower_for_guests(&mut self, layout: &comb_memory::Layout, block: Block, access: Access) {
        if layout.grain() == Grain::Pages
            && let Some(Neighbours { role: Role::Lead(lent), .. }) = &mut self.neighbours
        {
            let lowered = lent.lower(&self.memory, layout, block, access);
            lowered.unwrap_or_else(|error| crate::driver::fail(&error));
        }
    }

    /// Guests have nothing any more of an allocation that is no more.
    pub(super) fn forget_of_guests(&mut self, layout: &comb_memory::Layout) {
        if let Some(Neighbours { role: Role::Lead(lent), .. }) = &mut self.neighbours {
            lent.forget(layout);
        }
    }

    /// The leads of others, each once, that something is for.
    pub(super) fn leads_of(&self, ranks: Vec<u32>, homes: &crate::homes::Homes) -> Vec<CellId> {
        let mut leads: Vec<CellId> = ranks.into_iter().map(|rank| CellId(homes.lead(rank))).collect();
        leads.sort_unstable();
        leads.dedup();
        leads.retain(|&lead| lead != self.me);
        leads
    }
}
