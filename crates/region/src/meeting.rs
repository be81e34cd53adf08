//! Barriers of components that share page frames: they meet in words of the frames' file, behind the heap, and nobody has to send a message.
//!
//! Whoever comes writes what it brings into a slot of its own and counts itself; the last one combines, and changes the word that all others look
//! at, and sleep by. Values are combined in the same order as in the tree of [`crate::synchronise`], so that sums are the same to the bit.
//!
//! What was said before a barrier is heard before anything that is said after it: where barriers are messages, that is so because channels
//! keep their order. Here it would not be. So a component that has said something since the last time to which nobody answers, as that a
//! lock is free again, says so in its slot, and then all come to the barrier by messages as well. They also do when what
//! they bring has no room in a slot, or is not alike; of the latter that barrier's own check tells.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_memory::Memory;
use rustix::thread::futex;

use crate::heap::HEAP_BYTES;
use crate::runtime::{LONGEST_SPIN, Runtime};
use crate::spinning::Learned;
use crate::synchronise::{Combine, below};

/// Most waits end within this, and then nobody has to know that there was one. After it the engine is driven while the thread waits.
const ALONE: Duration = Duration::from_micros(5);

/// Where every thread that comes has a core, waiting is for those that have more to do, and to be woken costs more than most of that. As with
/// all spins, who takes a core from others by it learns.
const LONGEST_SPIN_ON_OWN_CORE: Duration = Duration::from_micros(200);

/// So many values have room in a slot.
const VALUES: usize = 30;

/// What stands in the words of a place, in this order. Pairs of cache lines, which are fetched together, have one writer at a time each.
mod word {
    /// Which round it is: the word that all wait by.
    pub(super) const ROUND: usize = 0;
    pub(super) const SLEEPERS: usize = 1;
    /// Of the last round: whether there is an outcome, or it is to be had by messages.
    pub(super) const VERDICT: usize = 2;
    pub(super) const OUTCOME: usize = 4;
    /// How many have come in this round.
    pub(super) const HERE: usize = 64;
    /// Slots begin here, one behind the other.
    pub(super) const SLOTS: usize = 96;
    pub(super) const SLOT: usize = 64;
    /// Of a slot: how many values, and what is to be made of them.
    pub(super) const LENGTH: usize = 0;
    pub(super) const COMBINE: usize = 1;
    pub(super) const BROUGHT: usize = 4;
}

/// A verdict: there are values, if any were brought.
const COMBINED: u32 = 0;
const BY_MESSAGES: u32 = 1;
/// Beside [`word::COMBINE`]: messages are demanded.
const DEMANDS_MESSAGES: u32 = 1 << 8;

/// What a thread takes away from a meeting.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Values(Vec<u64>),
    /// All are to meet once more, by messages.
    ByMessages,
}

/// What a component knows of a barrier beside what stands in its place.
#[derive(Default)]
struct Here {
    threads: usize,
    brought: Option<Vec<u64>>,
    /// [`Meetings::unanswered`] when this component came to it last.
    unanswered: u64,
}

/// The places where the components of a task meet.
pub(crate) struct Meetings {
    memory: Arc<Memory>,
    rank: u32,
    count: u32,
    /// That this process may use. One that is bound to its own seems to have too few, and sleeps earlier.
    cores: usize,
    /// How often this component has said something to which nobody answers.
    unanswered: Arc<AtomicU64>,
    here: Mutex<BTreeMap<u64, Here>>,
    waits: Learned,
}

impl Meetings {
    /// Among so many components that share these frames.
    pub(crate) fn among(memory: Arc<Memory>, rank: u32, count: u32, unanswered: Arc<AtomicU64>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { memory, rank, count, cores, unanswered, here: Mutex::default(), waits: Learned::default() }
    }

    /// Waits until so many threads of each component have come to a barrier.
    pub(crate) fn meet(
        &self,
        runtime: &Runtime,
        barrier: u64,
        threads: usize,
        (combine, values): (Combine, &[u64]),
    ) -> Outcome {
        // All components have frames of one length, and so come to the same.
        let Some(place) = self.place(barrier) else { return Outcome::ByMessages };
        let round = self.come(&place, barrier, threads, (combine, values));
        let is_over = || place.round() != round;
        let since = Instant::now();
        while !is_over() && since.elapsed() < ALONE {
            std::hint::spin_loop();
        }
        if !is_over() {
            drop(runtime.enter());
            runtime.wait_until((&self.waits, self.longest_spin(threads)), is_over, |limit| {
                place.sleep(round, limit);
            });
            Runtime::leave(runtime.lock());
        }
        place.outcome(values.len())
    }

    fn longest_spin(&self, threads: usize) -> Duration {
        let have_cores = threads.saturating_mul(self.count as usize) <= self.cores;
        if have_cores { LONGEST_SPIN_ON_OWN_CORE } else { LONGEST_SPIN }
    }

    fn place(&self, barrier: u64) -> Option<Place<'_>> {
        let length = word::SLOTS + word::SLOT * self.count as usize;
        let offset = barrier.checked_mul(4 * length as u64)?.checked_add(HEAP_BYTES)?;
        Some(Place { words: self.memory.words(offset, length)?, count: self.count })
    }

    /// Which round this thread waits for the end of.
    fn come(
        &self,
        place: &Place<'_>,
        barrier: u64,
        threads: usize,
        (combine, values): (Combine, &[u64]),
    ) -> u32 {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        let here = here.entry(barrier).or_default();
        // It does not end before this component has come.
        let round = place.round();
        here.threads += 1;
        if !values.is_empty() {
            combine.bring(&mut here.brought, values);
        }
        if here.threads >= threads {
            here.threads = 0;
            let unanswered = self.unanswered.load(Ordering::Relaxed);
            let demands = unanswered != here.unanswered;
            here.unanswered = unanswered;
            let brought = here.brought.take().unwrap_or_default();
            place.come(self.rank, combine, &brought, demands);
        }
        round
    }
}

/// One barrier's words.
struct Place<'a> {
    words: &'a [AtomicU32],
    count: u32,
}

impl Place<'_> {
    fn round(&self) -> u32 {
        self.words[word::ROUND].load(Ordering::Acquire)
    }

    fn slot(&self, rank: u32) -> &[AtomicU32] {
        &self.words[word::SLOTS + word::SLOT * rank as usize..][..word::SLOT]
    }

    /// A component has come, with this.
    fn come(&self, rank: u32, combine: Combine, values: &[u64], demands_messages: bool) {
        let slot = self.slot(rank);
        let is_short = values.len() <= VALUES;
        let demands = if demands_messages || !is_short { DEMANDS_MESSAGES } else { 0 };
        slot[word::COMBINE].store(combine as u32 | demands, Ordering::Relaxed);
        slot[word::LENGTH].store(u32::try_from(values.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        if is_short {
            put(&slot[word::BROUGHT..], values);
        }
        // Behind it stands what this one has brought and stored; before it, what all others have.
        if self.words[word::HERE].fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.end();
        }
    }

    /// All are here. Nobody looks at slots or the outcome before the round has changed, or changes them before that.
    fn end(&self) {
        let first = self.slot(0);
        let (length, combine) =
            (first[word::LENGTH].load(Ordering::Relaxed), first[word::COMBINE].load(Ordering::Relaxed));
        let are_alike = (0..self.count).all(|rank| {
            let slot = self.slot(rank);
            let is_like_first = slot[word::LENGTH].load(Ordering::Relaxed) == length
                && slot[word::COMBINE].load(Ordering::Relaxed) == combine;
            is_like_first && combine & DEMANDS_MESSAGES == 0
        });
        let combine = Combine::numbered(combine).filter(|_| are_alike);
        let verdict = if combine.is_some() { COMBINED } else { BY_MESSAGES };
        if let Some(combine) = combine {
            let length = (length as usize).min(VALUES);
            if length > 0 {
                put(&self.words[word::OUTCOME..], &self.combined(0, combine, length));
            }
        }
        self.words[word::VERDICT].store(verdict, Ordering::Relaxed);
        self.words[word::HERE].store(0, Ordering::Relaxed);
        // Who sleeps counts itself, then looks at the round; here it is the other way round, and both in one order of all.
        let round = &self.words[word::ROUND];
        round.fetch_add(1, Ordering::SeqCst);
        if self.words[word::SLEEPERS].load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(round, futex::Flags::empty(), i32::MAX.cast_unsigned());
        }
    }

    /// What a component and those below it in the tree have brought.
    fn combined(&self, rank: u32, combine: Combine, length: usize) -> Vec<u64> {
        let mut values = take(&self.slot(rank)[word::BROUGHT..], length);
        for rank in below(rank, self.count) {
            combine.all(&mut values, &self.combined(rank, combine, length));
        }
        values
    }

    /// Of the round that has just ended: another cannot end before this thread comes again.
    fn outcome(&self, length: usize) -> Outcome {
        if self.words[word::VERDICT].load(Ordering::Relaxed) != COMBINED {
            return Outcome::ByMessages;
        }
        Outcome::Values(take(&self.words[word::OUTCOME..], length.min(VALUES)))
    }

    /// Until the round has ended, but not for longer than this if there is a limit.
    fn sleep(&self, round: u32, limit: Option<Duration>) {
        let limit = limit.map(|limit| futex::Timespec {
            tv_sec: limit.as_secs().min(3600).cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let sleepers = &self.words[word::SLEEPERS];
        sleepers.fetch_add(1, Ordering::SeqCst);
        // The kernel looks at the round itself. Whoever wakes is in another process.
        let _ = futex::wait(&self.words[word::ROUND], futex::Flags::empty(), round, limit.as_ref());
        sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn put(words: &[AtomicU32], values: &[u64]) {
    for (pair, value) in words.as_chunks::<2>().0.iter().zip(values) {
        let bytes = value.to_le_bytes();
        for (word, half) in pair.iter().zip(bytes.as_chunks::<4>().0) {
            word.store(u32::from_le_bytes(*half), Ordering::Relaxed);
        }
    }
}

fn take(words: &[AtomicU32], count: usize) -> Vec<u64> {
    let value = |pair: &[AtomicU32; 2]| {
        let [low, high] = pair.each_ref().map(|word| u64::from(word.load(Ordering::Relaxed)));
        high << 32 | low
    };
    words.as_chunks::<2>().0.iter().take(count).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: u32) -> Vec<AtomicU32> {
        let length = word::SLOTS + word::SLOT * count as usize;
        (0..length).map(|_| AtomicU32::new(0)).collect()
    }

    /// Half of the threads sleep at once, the others spin: nobody goes on early, sleeps for ever, or finds another round's outcome.
    #[test]
    fn nobody_goes_on_before_all_are_there_and_nobody_is_left_behind() {
        const COUNT: u32 = 4;
        const ROUNDS: u64 = 5000;
        let words = words(COUNT);
        let stored: Vec<AtomicU64> = (0..COUNT).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for rank in 0..COUNT {
                let (place, stored) = (Place { words: &words, count: COUNT }, &stored);
                scope.spawn(move || {
                    for time in 1..=ROUNDS {
                        stored[rank as usize].store(time, Ordering::Relaxed);
                        let round = place.round();
                        place.come(rank, Combine::Sum, &[time, u64::from(rank)], false);
                        while place.round() == round {
                            if rank % 2 == 0 {
                                place.sleep(round, None);
                            } else {
                                std::thread::yield_now();
                            }
                        }
                        assert_eq!(place.outcome(2), Outcome::Values(vec![time * 4, 6]));
                        for of in stored {
                            let of = of.load(Ordering::Relaxed);
                            assert!(of == time || of == time + 1, "{of} in round {time}");
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn what_has_no_room_is_not_alike_or_must_be_heard_first_goes_by_messages() {
        let words = words(2);
        let place = Place { words: &words, count: 2 };
        let meet = |one: (Combine, &[u64], bool), other: (Combine, &[u64], bool)| {
            place.come(1, one.0, one.1, one.2);
            place.come(0, other.0, other.1, other.2);
            place.outcome(one.1.len())
        };
        let (sum, most) = (Combine::Sum, [3; VALUES]);
        assert_eq!(meet((sum, &most, false), (sum, &most, false)), Outcome::Values(vec![6; VALUES]));
        assert_eq!(meet((sum, &[1, 2], false), (sum, &[1], false)), Outcome::ByMessages);
        assert_eq!(meet((sum, &[1], false), (Combine::Least, &[1], false)), Outcome::ByMessages);
        assert_eq!(meet((sum, &[1], true), (sum, &[1], false)), Outcome::ByMessages);
        assert_eq!(meet((sum, &[1], false), (sum, &[1], true)), Outcome::ByMessages);
        assert_eq!(meet((sum, &[1], true), (sum, &[1], true)), Outcome::ByMessages);
        let long = [1; VALUES + 1];
        assert_eq!(meet((sum, &long, false), (sum, &long, false)), Outcome::ByMessages);
        assert_eq!(meet((sum, &[1], false), (sum, &[u64::MAX], false)), Outcome::Values(vec![0]));
    }

    #[test]
    fn values_are_combined_in_the_order_of_the_tree() {
        const COUNT: u32 = 7;
        let words = words(COUNT);
        let place = Place { words: &words, count: COUNT };
        let of = |rank: usize| [0.1_f64, 1e16, -1e16, 1.0, 0.3, 0.7, 0.9][rank];
        for rank in [3, 6, 0, 1, 5, 2, 4] {
            place.come(rank, Combine::SumOfFloats, &[of(rank as usize).to_bits()], false);
        }
        // 5 and 6 are below 1; 1 to 4 below 0.
        let first = of(1) + of(5) + of(6);
        let expected = of(0) + first + of(2) + of(3) + of(4);
        assert_eq!(place.outcome(1), Outcome::Values(vec![expected.to_bits()]));
    }
}
