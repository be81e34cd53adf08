//! A lead and the other components of its host: what they may not do they ask it for, and it asks for them as for threads of its own.

use comb_coherence::{Access, Block, CellId};
use comb_memory::Grain;

use super::holding::GUESTS;
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
        super::faults::ask_by_habit(&mut driver, protocol.as_mut(), block, want.is_store);
        if !want.is_store && home != me {
            super::faults::read_ahead(&mut driver, protocol.as_mut(), block.0..=block.0);
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
        let end =
            (block.0 + 1..end.min(layout.blocks())).take_while(is_here).last().map_or(block.0, |last| last)
                + 1;
        let Some(Neighbours { role: Role::Lead(lent), .. }) = &mut self.core.neighbours else { return };
        let let_in = lent.let_in(memory, &layout, block.0..end, (want.from, want.is_store));
        let (outcome, shown) = match let_in {
            Ok(end) => (GRANTED, end - block.0),
            Err(_) => (NO_MEMORY, 0),
        };
        self.core.say(want.from, Kind::May, &[want.token, outcome, pack(shown, home), 0], &[]);
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
        let Some(entry) = self.entries.get_mut(&offset) else {
            // Of an allocation that its lead does not know yet, or no more, a guest has nothing.
            self.core.say(from, Kind::Known, &[token, 0, 0, 0], &[]);
            return Ok(());
        };
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use comb_memory::{Guard as MemoryGuard, Lent};
    use proptest::prelude::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::engine::Engine;
    use crate::engine::scene::{allocation, engine};
    use crate::terms::{Allocation, Guard, Placement, Sharing, Terms};
    use crate::wire;

    /// Component 0, which leads 2; and 1 is on another host. Nothing of what 2 has mapped is there.
    fn lead() -> Engine {
        let guard =
            MemoryGuard::new().expect("as the other tests need it").as_fd().try_clone_to_owned().unwrap();
        let mut lent = Lent::default();
        lent.admit(2, guard, pidfd_open(getpid(), PidfdFlags::empty()).expect("this process lives"));
        let mut engine = engine();
        engine.core.neighbours = Some(Neighbours { leads: vec![0, 1, 0].into(), role: Role::Lead(lent) });
        engine
    }

    fn take(
        engine: &mut Engine,
        from: u32,
        kind: Kind,
        head: [u64; 4],
        content: &[u8],
    ) -> Result<(), Mistake> {
        engine.take(from, kind as u8, &[&wire::pack(&head)[..], content].concat())
    }

    /// Where a test has memory by Stache, by release, of objects, and memory that nobody has touched: no two have the same addresses.
    fn places(test: u64) -> [u64; 4] {
        [0, 1, 2, 40].map(|megabytes| (256 + 64 * test + megabytes) << 20)
    }

    fn install_all(engine: &mut Engine, [stache, release, objects, untouched]: [u64; 4]) {
        for (offset, sharing, guard) in [
            (stache, Sharing::Stache, Guard::Page),
            (release, Sharing::Release, Guard::Page),
            (objects, Sharing::Stache, Guard::Mmu),
        ] {
            engine.install(allocation(offset, sharing, guard)).expect("installed");
        }
        let touched = allocation(untouched, Sharing::Stache, Guard::Page);
        let terms = Terms { placement: Placement::FirstTouch, ..touched.terms };
        engine.install(Allocation { terms, creator: 1, ..touched }).expect("installed");
    }

    fn remove_all(engine: &mut Engine, places: [u64; 4]) {
        places.into_iter().for_each(|offset| engine.remove(offset));
    }

    #[test]
    fn what_a_guest_asks_for_is_what_its_lead_asks_for() {
        let mut engine = lead();
        let places = places(0);
        let [stache, release, _, untouched] = places;
        install_all(&mut engine, places);
        // Blocks 32 to 47 would live with component 2, and so they live here. The first 16 do anyway, and the next with 1.
        let homes: Vec<_> = [0, 16, 32].map(|block| engine.entries[&stache].shape.home(block)).into();
        assert_eq!(homes, [Some(0), Some(1), Some(0)]);
        for (block, waits) in [(0, 0), (32, 0), (16, 1), (17, 2)] {
            take(&mut engine, 2, Kind::Want, [block + 1, stache, block, 1], &[]).expect("of a guest");
            engine.let_ready_in();
            assert_eq!(engine.core.wants_of(2), waits, "block {block}");
        }
        // It comes: protocol's message 7 of the home gives a block to store to.
        for block in [16, 17] {
            take(&mut engine, 1, Kind::Protocol, [7 << 32 | 8, stache, block, 0], &[5; 4096])
                .expect("was asked for");
            engine.let_ready_in();
        }
        assert_eq!(engine.core.wants_of(2), 0);
        // Nobody knows yet where this lives: component 1 is asked, once for an extent.
        for block in [3, 4, 40] {
            take(&mut engine, 2, Kind::Want, [9, untouched, block, 0], &[]).expect("of a guest");
        }
        assert_eq!((engine.core.wants_of(2), engine.entries[&untouched].homeless.len()), (0, 3));
        // What it has stored is published, or was never to be.
        take(&mut engine, 2, Kind::Publish, [7, release, 0, 0], &[]).expect("of a guest");
        remove_all(&mut engine, places);
    }

    #[test]
    fn what_a_guest_may_not_say_is_refused_by_name() {
        let mut engine = lead();
        let places = places(1);
        let [stache, _, objects, _] = places;
        install_all(&mut engine, places);
        let mut refused = |from: u32, kind: Kind, head: [u64; 4]| {
            take(&mut engine, from, kind, head, &[]).expect_err("a lie").to_string()
        };
        let (read, beyond) = (7 << 32, 100_000);
        assert!(refused(1, Kind::Want, [1, stache, 0, 0]).contains("nobody needs to ask"), "it is no guest");
        assert!(refused(2, Kind::Want, [1, stache, beyond, 0]).contains("nobody needs to ask"));
        assert!(refused(2, Kind::Want, [1, objects, 0, 0]).contains("nobody needs to ask"), "it has its own");
        assert!(refused(2, Kind::Want, [1, stache + 4096, 0, 0]).contains("where none is"));
        assert!(
            refused(2, Kind::Protocol, [read, stache, 0, 0]).contains("nobody needs to ask"),
            "it has a lead"
        );
        assert!(refused(1, Kind::Publish, [1, stache, 0, 0]).contains("means nothing"));
        assert!(refused(1, Kind::Hint, [0, stache, 1, 0]).contains("means nothing"));
        assert!(refused(2, Kind::Hint, [4, stache, 1, 0]).contains("means nothing"));
        assert!(refused(2, Kind::Hint, [0, u64::MAX, 1, 0]).contains("means nothing"));
        assert!(refused(2, Kind::Hint, [0, stache, u64::MAX, 0]).contains("means nothing"));
        assert!(refused(2, Kind::Hint, [0, stache, 1, 1 << 40]).contains("means nothing"));
        assert!(refused(2, Kind::May, [1, 0, 0, 0]).contains("not asked"));
        // What its lead does not know yet it cannot have stored to.
        take(&mut engine, 2, Kind::Publish, [1, stache + 4096, 0, 0], &[]).expect("as if it had none");
        // Objects are each component's own.
        take(&mut engine, 2, Kind::Protocol, [read, objects, 0, 0], &[]).expect("it speaks for itself");
        remove_all(&mut engine, places);
    }

    #[test]
    fn any_message_of_a_guest_is_taken_or_refused() {
        let mut engine = lead();
        let places = places(2);
        install_all(&mut engine, places);
        let engine = std::cell::RefCell::new(engine);
        let config = ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() };
        let number = || prop_oneof![0..60_u64, (0..20_u64).prop_map(|kind| 7 << 32 | kind), any::<u64>()];
        let offset = prop_oneof![
            6 => proptest::sample::select(places.to_vec()),
            1 => any::<u64>(),
        ];
        let content =
            prop_oneof![Just(Vec::new()), Just(vec![1; 4096]), prop::collection::vec(any::<u8>(), 0..60)];
        let message = (1..3_u32, 0..18_u8, number(), offset, number(), number(), content);
        // All but that its creator frees an allocation, which ends the game.
        let message = message.prop_filter("ends it", |message| message.1 != Kind::Freed as u8);
        proptest::test_runner::TestRunner::new(config)
            .run(&prop::collection::vec(message, 1..20), |messages| {
                let mut engine = engine.borrow_mut();
                for (from, kind, first, offset, third, fourth, content) in messages {
                    let message = [&wire::pack(&[first, offset, third, fourth])[..], &content].concat();
                    let _ = engine.take(from, kind, &message);
                    engine.let_ready_in();
                }
                prop_assert_eq!(engine.entries.len(), 4);
                Ok(())
            })
            .unwrap();
        remove_all(&mut engine.into_inner(), places);
    }
}
