//! Named regions as the processes that attach them know them: their peers are homes, and one of those may die alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use comb_coherence::stache::Stache;
use comb_coherence::{Access, CellId, Loss, Protocol};
use comb_memory::{Memory, MemoryError, Reason};

use super::imported::Imported;
use super::{Engine, Entry, Mistake, Shape, locate};
use crate::homes::Homes;
use crate::named::home::DISCARDED;
use crate::peers::Peers;
use crate::terms::{Allocation, Sharing};

/// What a named region has that a task's memory has not.
#[derive(Debug)]
pub(crate) struct Named {
    cell: u32,
    to_store: bool,
    /// All of it is lost.
    gone: Option<Reason>,
}

impl Named {
    pub(crate) fn new(cell: u32, to_store: bool) -> Self {
        Self { cell, to_store, gone: None }
    }

    /// Why nobody here may touch any of it so.
    pub(super) fn forbids(&self, is_store: bool) -> Option<Reason> {
        let only_read = is_store && !self.to_store;
        self.gone.or(only_read.then_some(Reason::Other("the region is attached for reading only")))
    }
}

impl Engine {
    /// For named regions: peers are their homes.
    pub(crate) fn of_homes(memory: Arc<Memory>, peers: Peers) -> Self {
        let mut engine = Self::new(memory, Some(peers), 0, 1, false);
        engine.core.are_homes = true;
        engine
    }

    /// Makes a region known here that its home has let this process in to; imported ones are mapped already.
    pub(crate) fn install_named(
        &mut self,
        allocation: Allocation,
        named: Named,
        imports: bool,
    ) -> Result<(), MemoryError> {
        let layout = allocation.layout().expect("checked before");
        let block_bytes = layout.block_bytes() as u64;
        let protocol: Option<Box<dyn Protocol + Send>> = if imports {
            None
        } else {
            self.core.memory.guard(&layout, Access::Invalid)?;
            Some(match allocation.terms.sharing {
                Sharing::Migratory => Box::new(Stache::migratory()),
                _ => Box::new(Stache::new()),
            })
        };
        let shape = Shape {
            allocation,
            layout,
            // More than one, or all would be at home here.
            homes: Homes::new(allocation.terms.placement, u32::MAX, block_bytes),
            claimed: std::collections::BTreeSet::new(),
            lost: BTreeMap::new(),
            streams: super::ahead::Streams::default(),
            habits: None,
            copied_bytes: 0,
            moving: None,
            named: Some(named),
            imported: imports.then(|| Imported::of(allocation.creator)),
        };
        self.entries
            .insert(allocation.offset, Entry { shape, protocol, early: Vec::new(), homeless: Vec::new() });
        Ok(())
    }

    /// Whether an address is of a region whose frames are mapped here, and is not lost.
    pub(crate) fn is_imported(&mut self, address: usize) -> bool {
        let shape = locate(&mut self.entries, address).map(|(entry, _)| &entry.shape);
        shape.is_some_and(|shape| {
            shape.imported.is_some() && shape.named.as_ref().is_some_and(|named| named.gone.is_none())
        })
    }

    /// The living home of a region that is attached here.
    pub(crate) fn home_of(&self, offset: u64) -> Option<u32> {
        let shape = &self.entries.get(&offset)?.shape;
        let is_there = shape.named.as_ref().is_some_and(|named| named.gone.is_none());
        shape.home(0).filter(|&home| is_there && self.core.lives(home))
    }

    /// A home has died, or has lied: what lives there is lost.
    pub(super) fn home_is_gone(&mut self, rank: u32) {
        let theirs = |entry: &Entry| entry.shape.home(0) == Some(rank);
        let offsets: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| theirs(entry)).map(|(&offset, _)| offset).collect();
        for offset in offsets {
            let named = self.entries[&offset].shape.named.as_ref();
            let cell = named.map_or(u32::MAX, |named| named.cell);
            self.forsake(offset, Reason::Loss(Loss::Home(CellId(cell))));
        }
        self.core.no_answers_of(rank);
        self.homes.retain(|_, home| *home != rank);
        if let Some(peers) = &mut self.core.peers {
            peers.forget(rank);
        }
    }

    /// A home says that a region was removed, or that it is of another generation.
    pub(super) fn take_removed(&mut self, from: u32, offset: u64, why: u64) -> Result<(), Mistake> {
        let entry = self.entries.get(&offset).ok_or(Mistake::NoAllocation(offset))?;
        if entry.shape.home(0) != Some(from) {
            return Err(Mistake::Elsewhere(offset));
        }
        // It answers nothing about it any more.
        self.core.no_answers_about(offset);
        self.forsake(offset, Reason::Other(match why {
            DISCARDED => "pages of the region were discarded, for a cell that could store to them has failed; attached anew it is usable",
            _ => "the region was removed",
        }));
        Ok(())
    }

    /// All of a region is lost. Whoever waits for some of it is told, and so is whoever touches it from now on.
    fn forsake(&mut self, offset: u64, reason: Reason) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        let Some(named) = entry.shape.named.as_mut().filter(|named| named.gone.is_none()) else { return };
        named.gone = Some(reason);
        let layout = entry.shape.layout;
        self.core.forget(offset);
        // Not before: nothing is made readable again.
        self.core.memory.forsake(&layout).unwrap_or_else(|error| crate::driver::fail(&error));
    }
}

#[cfg(test)]
mod tests {
    use comb_coherence::Block;
    use comb_net::Endpoint;
    use comb_net::agent::server::InProcess;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::Stopped;
    use crate::engine::scene::memory;
    use crate::named::ADDRESSES;
    use crate::terms::{Placement, Terms};
    use crate::wire::{self, Kind};

    /// Where the regions of a test are, of which there are copies and imports: no two tests have the same addresses.
    fn places(test: u64) -> [u64; 2] {
        [ADDRESSES.start + ((2 * test) << 30), ADDRESSES.start + ((2 * test + 1) << 30)]
    }

    /// A process with two regions of peer 1, of which it has copies and imports; peer 2 is the home of others.
    fn engine([copied, imported]: [u64; 2]) -> (Engine, Vec<Endpoint>, InProcess) {
        let agent = InProcess::start();
        let connect = |name: &str| agent.connect(name).unwrap().endpoint("regions").unwrap();
        let homes = vec![connect("cell-1"), connect("cell-2")];
        let mut peers = Peers::none_yet(connect("attached-1"));
        for cell in 1..3 {
            let channel = peers.endpoint.open(&format!("cell-{cell}/regions")).unwrap();
            assert_eq!(peers.add(channel), cell);
        }
        let mut engine = Engine::of_homes(memory(), peers);
        for (offset, imports) in [(copied, false), (imported, true)] {
            let terms = Terms { placement: Placement::At(1), ..Terms::default() };
            let allocation =
                Allocation { offset, bytes: 200_000, generation: 7, creator: 1, terms, image: 0 };
            engine.install_named(allocation, Named::new(1, true), imports).unwrap();
        }
        (engine, homes, agent)
    }

    fn take(engine: &mut Engine, from: u32, kind: u8, head: [u64; 4], content: &[u8]) -> Result<(), Mistake> {
        engine.take(from, kind, &[&wire::pack(&head)[..], content].concat())
    }

    /// A thread asked for a page of a region, and its home, which had just been made anew, did not know it any more: the thread waited for ever.
    #[test]
    fn that_a_region_is_no_more_is_an_answer_to_who_waits_for_a_page_of_it() {
        let [copied, imported] = places(4);
        let (mut engine, _homes, _agent) = engine([copied, imported]);
        for offset in [copied, imported] {
            let slot = engine.slot();
            let address = engine.entries[&offset].shape.layout.address(Block(3));
            assert!(matches!(engine.fault(address, false, &slot), Stopped::Waits) && !slot.is_done());
            take(&mut engine, 1, Kind::Freed as u8, [1, offset, 0, 0], &[]).unwrap();
            assert!(slot.is_done());
            assert!(matches!(engine.waited(address, false, slot.values()), crate::engine::Waited::Again));
            assert!(matches!(engine.fault(address, false, &slot), Stopped::Lost(_)));
            engine.remove(offset);
        }
    }

    #[test]
    fn what_a_home_may_not_say_is_refused_by_name() {
        let [copied, imported] = places(1);
        let (mut engine, _homes, _agent) = engine([copied, imported]);
        let (readable, recall) = (7 << 32 | 7, 7 << 32 | 10);
        let mut refused = |from: u32, kind: Kind, head: [u64; 4], content: &[u8]| {
            take(&mut engine, from, kind as u8, head, content).expect_err("a lie").to_string()
        };
        assert!(refused(1, Kind::Allocated, [0; 4], &[]).contains("means nothing"));
        assert!(refused(1, Kind::Want, [0, copied, 0, 0], &[]).contains("means nothing"));
        assert!(refused(1, Kind::May, [5, 0, 0, 0], &[]).contains("not asked"));
        assert!(refused(2, Kind::Freed, [0, copied, 0, 0], &[]).contains("not its own"));
        assert!(refused(1, Kind::Freed, [0, copied + 4096, 0, 0], &[]).contains("where none is"));
        assert!(
            refused(1, Kind::Protocol, [readable, copied, 0, 0], &[1; 4096]).contains("nothing was asked")
        );
        assert!(refused(2, Kind::Protocol, [readable, copied, 0, 0], &[1; 4096]).contains("not homed with"));
        assert!(refused(2, Kind::Protocol, [recall, copied, 0, 0], &[]).contains("not homed with"));
        assert!(refused(1, Kind::Protocol, [7 << 32, copied, 0, 0], &[]).contains("not homed here"));
        assert!(
            refused(1, Kind::Protocol, [readable, imported, 0, 0], &[1; 4096])
                .contains("nobody needs to ask")
        );
        assert!(refused(1, Kind::Protocol, [6 << 32, copied, 0, 0], &[]).contains("another allocation"));
        // One that dies takes its own with it, and nothing else.
        engine.home_is_gone(2);
        assert_eq!((engine.home_of(copied), engine.home_of(imported)), (Some(1), Some(1)));
        engine.home_is_gone(1);
        assert_eq!((engine.home_of(copied), engine.home_of(imported)), (None, None));
        let slot = engine.slot();
        for offset in [copied, imported] {
            let address = engine.entries[&offset].shape.layout.address(Block(3));
            assert!(matches!(engine.fault(address, false, &slot), Stopped::Lost(_)));
            engine.remove(offset);
        }
    }

    #[test]
    fn any_message_of_a_home_is_taken_or_refused() {
        let [copied, imported] = places(2);
        let (engine, _homes, _agent) = engine([copied, imported]);
        let engine = std::cell::RefCell::new(engine);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 1000,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let number = || prop_oneof![0..60_u64, (0..20_u64).prop_map(|kind| 7 << 32 | kind), any::<u64>()];
        let offset = prop_oneof![4 => Just(copied), 4 => Just(imported), 1 => any::<u64>()];
        let content =
            prop_oneof![Just(Vec::new()), Just(vec![1; 4096]), prop::collection::vec(any::<u8>(), 0..60),];
        // All but that a region was removed, which ends the game.
        let message = (1..3_u32, 0..20_u8, number(), offset, number(), number(), content);
        let message = message.prop_filter("ends it", |message| message.1 != Kind::Freed as u8);
        runner
            .run(&prop::collection::vec(message, 1..20), |messages| {
                let mut engine = engine.borrow_mut();
                for (from, kind, first, offset, third, fourth, content) in messages {
                    let _ = take(&mut engine, from, kind, [first, offset, third, fourth], &content);
                    // It asks, now and then.
                    let address = engine.entries[&copied].shape.layout.address(Block(third % 48));
                    engine.prefetch(address, 4096, fourth % 2 == 0);
                }
                prop_assert_eq!(engine.entries.len(), 2);
                Ok(())
            })
            .unwrap();
        let mut engine = engine.into_inner();
        [copied, imported].into_iter().for_each(|offset| engine.remove(offset));
    }
}
