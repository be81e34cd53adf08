//! What other components say. All of it is an allegation: what is refused ends the one who said it, by name, and has changed nothing.

use comb_coherence::{Block, CellId, Message, PeerError};

use super::Engine;
use crate::driver::Driver;
use crate::heap::Heap;
use crate::peers::Gone;
use crate::terms::Allocation;
use crate::wire::{self, Head, Kind};

/// Messages about extents whose home a component is about to learn: as many as others can have under way.
const MOST_EARLY: usize = 65_536;

/// What a peer said that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("a message that means nothing")]
    Nonsense,
    #[error("an allocation at {0:#x}, where none is")]
    NoAllocation(u64),
    #[error("another allocation at {0:#x} than there is")]
    Other(u64),
    #[error("memory at {0:#x}, for which nobody needs to ask")]
    Unasked(u64),
    #[error("an allocation at {0:#x} that is not its own to decide about")]
    Elsewhere(u64),
    #[error("an allocation at {0:#x}, where one is")]
    Occupied(u64),
    #[error("an answer to what it was not asked")]
    NotAsked,
    #[error("{error} ({what}, allocation at {offset:#x})")]
    Protocol { error: PeerError, what: String, offset: u64 },
    #[error(transparent)]
    Synchronise(#[from] crate::synchronise::Mistake),
    #[error(transparent)]
    Futex(#[from] crate::futex::Mistake),
    #[error(transparent)]
    Call(#[from] crate::calls::Mistake),
}

impl Engine {
    /// What a peer says, or its end.
    pub(super) fn hear(&mut self, from: u32, kind: u8, message: &[u8]) {
        if let Err(mistake) = self.take(from, kind, message) {
            self.accuse(from, &mistake);
        }
    }

    /// Messages that had to wait.
    pub(super) fn hear_kept(&mut self, messages: Vec<(u32, Head, Vec<u8>)>) {
        for (from, head, content) in messages {
            if let Err(mistake) = self.take_protocol(from, &head, &content) {
                self.accuse(from, &mistake);
            }
        }
    }

    /// A peer is cut off, as if it had died.
    fn accuse(&mut self, from: u32, mistake: &Mistake) {
        if let Some(peers) = &mut self.core.peers {
            peers.cut(from);
        }
        let cause = format!("it was cut off, for it spoke of {mistake}");
        self.gone(&Gone { rank: from, cause });
    }

    pub(super) fn take(&mut self, from: u32, kind: u8, message: &[u8]) -> Result<(), Mistake> {
        let (Some(kind), Some((head, content))) = (Kind::of(kind), wire::split(message)) else {
            return Err(Mistake::Nonsense);
        };
        if self.core.are_homes {
            return match kind {
                Kind::Protocol => self.take_protocol(from, &head, content),
                Kind::May => self.core.answered(from, head[0], [head[1], head[2]]),
                Kind::Freed => self.take_removed(from, head[1], head[0]),
                _ => Err(Mistake::Nonsense),
            };
        }
        match kind {
            Kind::Protocol => self.take_protocol(from, &head, content),
            Kind::Allocated => self.take_allocated(from, &head, content),
            Kind::Known => self.core.answered(from, head[0], [head[1], head[2]]),
            Kind::Freed => self.take_freed(from, &head),
            Kind::WhoseIs => self.take_whose(from, &head),
            Kind::ItIs => self.take_home(from, &head),
            Kind::Synchronise => Ok(self.synchronisation.take(&mut self.core, from, &head, content)?),
            Kind::Futex => Ok(self.futexes.take(&mut self.core, from, &head)?),
            Kind::Want => self.take_want(from, &head),
            Kind::May => self.core.answered(from, head[0], [head[1], head[2]]),
            Kind::Publish => self.take_publish(from, &head),
            Kind::Hint => self.take_hint(from, &head),
            Kind::Call => Ok(self.calls.hear(from, &head, content)?),
            Kind::CallAnswer => Ok(self.calls.hear_answer(&mut self.core, from, &head, content)?),
            Kind::Release => self.take_release(from, &head),
            Kind::End => self.take_end(from, &head),
            Kind::Checkpoint | Kind::Enter | Kind::Leave | Kind::Together => Err(Mistake::Nonsense),
            Kind::Bye => {
                self.futexes.forget(from);
                self.parted.insert(from);
                Ok(())
            }
        }
    }

    fn take_protocol(&mut self, from: u32, head: &Head, content: &[u8]) -> Result<(), Mistake> {
        let [word, offset, block, _] = *head;
        if !self.speaks(from, offset) {
            return Err(Mistake::Unasked(offset));
        }
        if self.holds.keep(from, head, content) {
            return Ok(());
        }
        if self.was_freed(offset, word >> 32) {
            return Ok(());
        }
        let entry = self.entries.get_mut(&offset).ok_or(Mistake::NoAllocation(offset))?;
        if (word >> 32) != u64::from(entry.shape.allocation.generation) {
            return Err(Mistake::Other(offset));
        }
        let protocol = entry.protocol.as_mut().ok_or(Mistake::Unasked(offset))?;
        if block < entry.shape.layout.blocks() {
            match entry.shape.home(block) {
                Some(home) if home == self.core.me.0 => entry.shape.claim(&self.core, block),
                Some(_) => {}
                // Its creator has told the sender before it has told us, or the sender offers what nobody here has touched.
                None if entry.early.len() < MOST_EARLY
                    && entry.shape.allocation.creator != self.core.me.0 =>
                {
                    let extent = |block| entry.shape.homes.extent(block);
                    let is_asked =
                        entry.early.last().is_some_and(|(_, early, _)| extent(early[2]) == extent(block));
                    let extent = extent(block);
                    entry.early.push((from, *head, content.to_vec()));
                    if !is_asked {
                        self.ask_whose(offset, extent);
                    }
                    return Ok(());
                }
                None => return Err(Mistake::Nonsense),
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "the first byte")]
        let kind = word as u8;
        let message = Message { kind, block: Block(block), word: head[3], content };
        self.core.heard = Some(from);
        let mut driver = Driver::hearing(&mut self.core, &mut entry.shape, content);
        let heard = protocol.on_message(&mut driver, CellId(from), message);
        drop(driver);
        self.core.heard = None;
        // Whoever asked may have been sent on, and was not the thread that missed it.
        if let Some(home) = entry.shape.home(block).filter(|&home| home == from && !content.is_empty()) {
            self.core.depend_on(home);
        }
        let heard = match heard {
            // What it had under way when it was declared dead.
            Ok(()) | Err(PeerError::Dead(_)) => Ok(()),
            Err(error) => Err(Mistake::Protocol { error, what: protocol.describe(kind), offset }),
        };
        self.hold_given();
        heard
    }

    /// Whether a message is about an allocation that this component has heard is no more. Who sent it had not: it may have answered what was
    /// asked ahead of anybody's need, and who asked does not wait for that before it forgets.
    fn was_freed(&self, offset: u64, generation: u64) -> bool {
        if self.core.are_homes {
            return false;
        }
        let creator = Heap::owner(offset, self.core.count());
        let there = self.entries.get(&offset).map(|entry| entry.shape.allocation.generation);
        let newer = there.map(u64::from).or_else(|| {
            let newest = self.newest.get(&creator)?;
            Some(u64::from(*newest) + 1)
        });
        newer.is_some_and(|newer| generation < newer)
    }

    /// Asks where an extent lives, for messages that wait for that. The creator may be asked twice.
    pub(super) fn ask_whose(&mut self, offset: u64, extent: u64) {
        let creator = self.entries[&offset].shape.allocation.creator;
        let slot = self.slot();
        slot.begin(1);
        let token = self.core.token(creator, &slot);
        self.core.say(creator, Kind::WhoseIs, &[token, offset, extent, 0], &[]);
    }

    fn take_allocated(&mut self, from: u32, head: &Head, content: &[u8]) -> Result<(), Mistake> {
        let count = self.core.count();
        let allocation = postcard::from_bytes::<Allocation>(content).map_err(|_| Mistake::Nonsense)?;
        let layout = allocation.layout().map_err(|_| Mistake::Nonsense)?;
        let last = allocation.offset + layout.span() - 1;
        let is_its_own = |offset| Heap::owner(offset, count) == from;
        let is_in_heap = allocation.image == 0;
        if !is_its_own(allocation.offset) || !is_its_own(last) || allocation.creator != from || !is_in_heap {
            return Err(Mistake::Elsewhere(allocation.offset));
        }
        let before = self.entries.range(..=last).next_back();
        if before.is_some_and(|(&offset, entry)| offset + entry.shape.layout.span() > allocation.offset) {
            return Err(Mistake::Occupied(allocation.offset));
        }
        let outcome = self.install(allocation).err().unwrap_or(0);
        self.core.say(from, Kind::Known, &[head[0], outcome, 0, 0], &[]);
        Ok(())
    }

    fn take_freed(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, offset, ..] = *head;
        let entry = self.entries.get(&offset).ok_or(Mistake::NoAllocation(offset))?;
        if !entry.may_be_freed_by(from) {
            return Err(Mistake::Elsewhere(offset));
        }
        self.remove(offset);
        self.core.say(from, Kind::Known, &[token, 0, 0, 0], &[]);
        Ok(())
    }

    fn take_whose(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, offset, extent, _] = *head;
        let me = self.core.me.0;
        let entry = self.entries.get_mut(&offset).ok_or(Mistake::NoAllocation(offset))?;
        let is_there = extent <= entry.shape.homes.extent(entry.shape.layout.blocks() - 1);
        if entry.shape.allocation.creator != me || !is_there {
            return Err(Mistake::Elsewhere(offset));
        }
        let home = entry.shape.homes.of(extent).unwrap_or(from);
        entry.shape.homes.learn(extent, home);
        self.core.say(from, Kind::ItIs, &[token, offset, extent, u64::from(home)], &[]);
        Ok(())
    }

    fn take_home(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [token, offset, extent, home] = *head;
        let count = self.core.count();
        let home = u32::try_from(home).ok().filter(|&home| home < count).ok_or(Mistake::Nonsense)?;
        let Some(entry) = self.entries.get_mut(&offset) else {
            // It was freed meanwhile.
            return self.core.answered(from, token, [0, 0]);
        };
        if entry.shape.allocation.creator != from {
            return Err(Mistake::Elsewhere(offset));
        }
        self.core.answered(from, token, [0, 0])?;
        entry.shape.homes.learn(extent, home);
        let homes = &entry.shape.homes;
        let early = std::mem::take(&mut entry.early);
        let (now, later) = early.into_iter().partition(|(_, head, _)| homes.extent(head[2]) == extent);
        entry.early = later;
        let homeless = std::mem::take(&mut entry.homeless);
        self.hear_kept(now);
        homeless.into_iter().for_each(|(block, want)| self.show(offset, block, want, false));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use comb_coherence::Access;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::scene::{WANTS_TO_WRITE, allocation, ask, engine};
    use crate::terms::{Guard, Placement, Sharing, Terms};

    /// Memory whose blocks move.
    fn moving(offset: u64, sharing: Sharing, born: u32) -> Allocation {
        let stays = allocation(offset, sharing, Guard::Page);
        Allocation { terms: Terms { moves: true, placement: Placement::At(born), ..stays.terms }, ..stays }
    }

    /// Whatever a peer sends, it is taken or refused, and what is refused leaves this component as it was, as far as can be told.
    #[test]
    fn any_message_is_taken_or_refused() {
        let engine = std::cell::RefCell::new(engine());
        // Objects are further apart than others.
        static PLACES: [u64; 7] = [0, 1 << 20, 2 << 20, 3 << 20, 128 << 20, 4 << 20, 5 << 20];
        let places = &PLACES;
        {
            let mut engine = engine.borrow_mut();
            engine.core.copies.limit(4096);
            let sharings = [Sharing::Stache, Sharing::Migratory, Sharing::Release, Sharing::Update];
            for (&offset, sharing) in places.iter().zip(sharings) {
                engine.install(allocation(offset, sharing, Guard::Page)).expect("installed");
            }
            engine.install(allocation(places[4], Sharing::Stache, Guard::Mmu)).expect("installed");
            engine.install(moving(places[5], Sharing::Stache, 1)).expect("installed");
            engine.install(moving(places[6], Sharing::Migratory, 0)).expect("installed");
        }
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 3000,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let number = || {
            prop_oneof![0..40_u64, Just(7 << 32), (0..16_u64).prop_map(|kind| 7 << 32 | kind), any::<u64>()]
        };
        let offset = prop_oneof![proptest::sample::select(&PLACES[..]), any::<u64>()];
        let content = prop_oneof![
            Just(Vec::new()),
            Just(vec![1; 4096]),
            prop::collection::vec(any::<u8>(), 0..60),
            Just(postcard::to_stdvec(&allocation(0, Sharing::Stache, Guard::Page)).expect("plain")),
        ];
        // Not that anything is to be given back: it would be.
        let calls = [Kind::Call, Kind::CallAnswer, Kind::End].map(|kind| kind as u8);
        let kinds = prop_oneof![12 => 0..12_u8, 3 => proptest::sample::select(calls.to_vec())];
        let anything = (1..3_u32, kinds, number(), offset, number(), number(), content);
        // What a peer would say, at another time.
        let plausible = (
            1..3_u32,
            Just(Kind::Protocol as u8),
            (0..16_u64).prop_map(|kind| 7 << 32 | kind),
            proptest::sample::select(&PLACES[..]),
            0..40_u64,
            0..3_u64,
            prop_oneof![Just(Vec::new()), Just(vec![2; 4096])],
        );
        let message = prop_oneof![1 => anything, 3 => plausible];
        runner
            .run(&prop::collection::vec(message, 1..12), |messages| {
                let mut engine = engine.borrow_mut();
                for (from, kind, first, second, third, fourth, content) in messages {
                    let head = wire::pack(&[first, second, third, fourth]);
                    let before = engine.entries.len();
                    if engine.take(from, kind, &[&head[..], &content].concat()).is_err() {
                        prop_assert_eq!(engine.entries.len(), before);
                    }
                    let _ = engine.take(from, kind, &head[..usize::from(kind)]);
                    engine.tend();
                }
                Ok(())
            })
            .unwrap();
        let mut engine = engine.into_inner();
        let counts = engine.core.counts;
        assert!(counts.moved_here > 0 && counts.evicted > 0, "hardly anything was taken: {counts:?}");
        // What was born with component 1 it may give to us; what was born here, nobody can.
        let given = |place: u64, block: u64| [7 << 32 | 13, place, block, 9];
        let content = [&wire::pack(&given(places[5], 60))[..], &[5; 4096]].concat();
        engine.take(1, Kind::Protocol as u8, &content).expect("its own");
        let address = comb_memory::HEAP_START + usize::try_from(places[5]).expect("small") + 60 * 4096;
        assert_eq!(engine.home_at(address), Some(0));
        assert_eq!(engine.keeper(address), Some(1), "of sleepers, as all others know");
        for offset in places {
            assert!(engine.entries.contains_key(offset), "nobody else can free it");
        }
        // By name, what each lie is.
        let mut refused = |kind: Kind, head: [u64; 4], content: &[u8]| {
            engine
                .take(1, kind as u8, &[&wire::pack(&head)[..], content].concat())
                .expect_err("a lie")
                .to_string()
        };
        let read = 7 << 32;
        assert!(refused(Kind::Protocol, [8 << 32, 0x5000, 0, 0], &[]).contains("where none is"));
        assert!(refused(Kind::Protocol, [8 << 32, 0, 0, 0], &[]).contains("another allocation"));
        assert!(refused(Kind::Protocol, [read, 0, 1 << 40, 0], &[]).contains("beyond the allocation"));
        assert!(refused(Kind::Protocol, given(places[6], 60), &[5; 4096]).contains("cannot be given to us"));
        assert!(refused(Kind::Protocol, given(places[3], 60), &[5; 4096]).contains("kind 13"));
        assert!(refused(Kind::Freed, [0, 0, 0, 0], &[]).contains("not its own"));
        assert!(refused(Kind::Known, [99, 0, 0, 0], &[]).contains("not asked"));
        let others = Allocation { creator: 1, ..allocation(0, Sharing::Stache, Guard::Page) };
        let others = postcard::to_stdvec(&others).expect("plain");
        assert!(refused(Kind::Allocated, [0; 4], &others).contains("not its own"));
    }

    /// All who are notified at once get the lock one after the other: before its turn, nobody holds what it could give back.
    #[test]
    fn who_waited_for_a_condition_has_the_lock_alone() {
        const WRITE: u64 = 3;
        const UNLOCK: u64 = 5;
        const AWAIT: u64 = 6 | 9 << 8;
        const NOTIFY: u64 = 7 | 9 << 8;
        let mut engine = engine();
        // Lock 0 lives with component 0.
        let mut say = |from: u32, word: u64, token: u64, more: u64| {
            engine.take(from, Kind::Synchronise as u8, &wire::pack(&[word, 0, token, more]))
        };
        for from in [1, 2] {
            assert_eq!(say(from, WRITE, 1, 0), Ok(()));
            assert_eq!(say(from, AWAIT, 2, 1), Ok(()));
        }
        assert_eq!(say(2, NOTIFY, u64::MAX, 0), Ok(()));
        assert!(say(2, UNLOCK, 2, 0).is_err(), "both have it");
        assert_eq!((say(1, UNLOCK, 2, 0), say(2, UNLOCK, 2, 0)), (Ok(()), Ok(())));
    }

    /// Who has come three times in a row keeps a lock, gives it back when that is said, and otherwise says nothing of it that is true.
    #[test]
    fn a_lock_that_is_lent_is_with_its_borrower_until_it_is_returned() {
        const WRITE: u64 = 3;
        const TRY_WRITE: u64 = 4;
        const UNLOCK: u64 = 5;
        const ANSWER: u64 = 8;
        const LATE: u64 = 12;
        const RECALL: u64 = 14;
        const RETURN: u64 = 15;
        let mut engine = engine();
        // Lock 0 lives with component 0.
        let mut say = |from: u32, word: u64, token: u64, more: u64| {
            engine.take(from, Kind::Synchronise as u8, &wire::pack(&[word, 0, token, more]))
        };
        let lend = |say: &mut dyn FnMut(u32, u64, u64, u64) -> Result<(), Mistake>| {
            for token in 1..=2 {
                assert_eq!((say(1, WRITE, token, 0), say(1, UNLOCK, token, 0)), (Ok(()), Ok(())));
            }
            assert_eq!(say(1, WRITE, 3, 0), Ok(()));
        };
        assert!(say(1, RETURN, 0, 0).is_err(), "it was never lent");
        lend(&mut say);
        assert!(say(1, UNLOCK, 3, 0).is_err(), "it is not the home's to be given back");
        assert!(say(2, RETURN, 0, 0).is_err(), "another has it");
        // Another comes, and one that would not wait. The borrower's thread has it still, under a token that only the borrower knows.
        assert_eq!((say(2, WRITE, 7, 0), say(2, TRY_WRITE, 8, 0)), (Ok(()), Ok(())));
        assert_eq!(say(1, RETURN, 44, 0), Ok(()));
        assert!(say(1, RETURN, 44, 0).is_err(), "returned twice");
        assert!(say(2, LATE, 8, 0).is_err(), "it has been told that the lock is held, and does not wait");
        assert!(say(2, UNLOCK, 7, 0).is_err(), "it has it before it was given back");
        assert_eq!((say(1, UNLOCK, 44, 0), say(2, UNLOCK, 7, 0)), (Ok(()), Ok(())));
        // Again, and nobody has it when another comes who would not wait.
        lend(&mut say);
        assert_eq!(say(2, TRY_WRITE, 9, 0), Ok(()));
        assert_eq!(say(1, RETURN, 0, 0), Ok(()));
        assert_eq!(say(2, UNLOCK, 9, 0), Ok(()));
        // What lives here is lent to nobody but by us.
        assert!(say(1, RECALL, 0, 0).expect_err("it lives here").to_string().contains("does not live here"));
        assert!(say(1, ANSWER, 5, 6).expect_err("it lives here").to_string().contains("does not live here"));
    }

    #[test]
    fn who_has_many_locks_lent_has_no_more_and_can_still_take_them() {
        const WRITE: u64 = 3;
        const UNLOCK: u64 = 5;
        let mut engine = engine();
        let mut say = |word: u64, lock: u64, token: u64| {
            engine.take(1, Kind::Synchronise as u8, &wire::pack(&[word, lock, token, 0]))
        };
        let lives_here = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut lent = 0;
        for number in (0..).filter(|&number| lives_here(number) % 3 == 0).take(5000) {
            for token in 1..=2 {
                assert_eq!((say(WRITE, number, token), say(UNLOCK, number, token)), (Ok(()), Ok(())));
            }
            assert_eq!(say(WRITE, number, 3), Ok(()));
            lent += u32::from(say(UNLOCK, number, 3).is_err());
        }
        assert_eq!(lent, 4096);
    }

    /// A lie by name, and by one: what others say is taken still.
    #[test]
    fn what_a_peer_can_make_this_component_keep_is_bounded() {
        let mut engine = engine();
        let lock = |word: u64, lock: u64, token: u64| (Kind::Synchronise, [word, lock, token, 0]);
        let sleeps = |address: u64| (Kind::Futex, [u64::from(u32::MAX) << 32, address, 7, 9]);
        let mut say = |from: u32, (kind, head): (Kind, Head), content: &[u8]| {
            engine.take(from, kind as u8, &[&wire::pack(&head)[..], content].concat())
        };
        let lives_here = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let here: Vec<u64> = (0..).filter(|&number| lives_here(number) % 3 == 0).take(65_537).collect();
        const WRITE: u64 = 3;
        const UNLOCK: u64 = 5;
        for (token, &number) in (0..65_536).zip(&here) {
            assert_eq!(say(1, lock(WRITE, number, token), &[]), Ok(()), "{token}");
            assert_eq!(say(1, sleeps(token * 4), &[]), Ok(()), "{token}");
        }
        for fresh in [here[0], here[65_536]] {
            let refused = say(1, lock(WRITE, fresh, 70_000), &[]).expect_err("too many").to_string();
            assert!(refused.contains("more than 65536 locks"), "{refused}");
        }
        let refused = say(1, sleeps(1 << 30), &[]).expect_err("too many").to_string();
        assert!(refused.contains("more than 65536 threads"), "{refused}");
        assert_eq!(say(2, lock(WRITE, here[0], 0), &[]), Ok(()));
        assert_eq!(say(2, sleeps(1 << 30), &[]), Ok(()));
        const LATE: u64 = 12;
        const GATHER: u64 = 13;
        assert!(say(1, lock(GATHER, here[0], 70_001), &[]).is_err(), "they count as locks do");
        let refused = say(2, lock(LATE, here[1], 5), &[]).expect_err("it does not wait").to_string();
        assert!(refused.contains("does not hold"), "{refused}");
        // What is over makes room.
        assert_eq!(say(1, lock(UNLOCK, here[7], 7), &[]), Ok(()));
        assert_eq!(say(1, lock(WRITE, here[65_536], 70_000), &[]), Ok(()));
        assert_eq!(say(2, (Kind::Futex, [2 | u64::from(u32::MAX) << 32, 8, 0, 1]), &[]), Ok(()));
        assert_eq!(say(1, sleeps(1 << 30), &[]), Ok(()));
        // Barriers that we have not come to, of one that is below us in the tree.
        let brings = |barrier: u64| (Kind::Synchronise, [0, barrier, 0, 0]);
        let values = vec![0; 8 * 65_535];
        for barrier in 0..16 {
            assert_eq!(say(1, brings(barrier), &values), Ok(()));
        }
        let refused = say(1, brings(16), &[]).expect_err("too much").to_string();
        assert!(refused.contains("more barriers at once"), "{refused}");
        assert_eq!(say(2, brings(16), &[]), Ok(()));
        let refused = say(2, lock(UNLOCK, here[9], 1), &[]).expect_err("not its own").to_string();
        assert!(refused.contains("does not hold"), "{refused}");
    }

    /// Without this, two threads that store into one page take it from each other before either has stored, and come back for ever.
    #[test]
    fn what_a_thread_was_just_given_is_not_taken_before_its_time_is_over() {
        const OFFSET: u64 = 16 << 20;
        let mut engine = engine();
        engine.install(allocation(OFFSET, Sharing::Stache, Guard::Page)).expect("installed");
        let layout = engine.entries[&OFFSET].shape.layout;
        let address = layout.address(Block(3));
        // The thread's own right; this component is home.
        engine.entries.get_mut(&OFFSET).expect("installed").shape.claim(&engine.core, 3);
        assert!(engine.may_store(address) && !engine.is_owing());
        engine.served(1, address, &crate::engine::OWN);
        ask(&mut engine, OFFSET, 3, WANTS_TO_WRITE);
        assert!(engine.may_store(address), "it is taken from a thread that was just given it");
        assert!(engine.is_owing(), "or nobody comes back to what is kept");
        ask(&mut engine, OFFSET, 4, WANTS_TO_WRITE);
        assert!(!engine.may_store(layout.address(Block(4))), "its neighbour is not kept with it");
        // For a thread that comes back at once, the time is longer; for what is kept already it is not.
        engine.served(1, address, &crate::engine::OWN);
        assert!(engine.is_owing());
        let started = Instant::now();
        while engine.is_owing() {
            assert!(started.elapsed().as_secs() < 60, "it is kept for ever");
            engine.drive();
        }
        assert!(!engine.may_store(address), "it was never taken");
        assert_eq!(engine.core.memory.access(&layout, Block(3)), Access::Invalid);
        engine.remove(OFFSET);
    }

    /// Who reads ahead does not wait for what it has asked for, and a peer that has answered may hear later that all of it was freed.
    #[test]
    fn what_comes_late_about_what_was_freed_is_no_breach() {
        const OFFSET: u64 = 200 << 20;
        let mut engine = engine();
        let before = allocation(OFFSET, Sharing::Stache, Guard::Page);
        engine.install(before).expect("installed");
        let late =
            |generation: u64| [&wire::pack(&[generation << 32 | 7, OFFSET, 17, 0])[..], &[5; 4096]].concat();
        let take = |engine: &mut Engine, generation| engine.take(1, Kind::Protocol as u8, &late(generation));
        engine.remove(OFFSET);
        take(&mut engine, 7).expect("of one that is no more");
        assert_eq!(take(&mut engine, 8), Err(Mistake::NoAllocation(OFFSET)), "of none that ever was");
        // And when there is another.
        engine.install(Allocation { generation: 8, ..before }).expect("installed");
        take(&mut engine, 7).expect("of the one before");
        let layout = engine.entries[&OFFSET].shape.layout;
        assert_eq!(engine.core.memory.access(&layout, Block(17)), Access::Invalid);
        assert!(matches!(take(&mut engine, 8), Err(Mistake::Protocol { .. })), "nothing was asked");
        assert_eq!(take(&mut engine, 9), Err(Mistake::Other(OFFSET)));
        engine.remove(OFFSET);
    }
}
