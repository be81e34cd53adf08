//! Barriers with reductions, and locks with conditions: who waits for whom, among the components of a task.
//!
//! A barrier is a tree of components: each waits for its own threads and for those below, tells the one above, and is told when all are
//! there. What they bring is combined on the way, always in the same order, so that sums of floating-point numbers are the same each time.
//!
//! A lock lives with one component, found by its number, which keeps a queue ([`locking`]); so does a barrier of threads ([`gathering`]).
//! It stays with a component that takes it again and again ([`lending`]).

mod gathering;
mod lending;
mod locking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::gathering::{Came, Gathering};
use self::lending::{Loans, MOST_LENT, Streaks};
pub(crate) use self::locking::Mode;
use self::locking::{Holder, Late, Lock};
use crate::driver::Core;
use crate::kept::{Kept, TooMuch};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

/// Each component of the tree has so many below it.
const BRANCHES: u32 = 4;

/// Locks of one home that another component has or waits for at once: more than it has threads, and than programs hold.
pub(crate) const MOST_LOCKS: u64 = 65_536;
/// Values, and barriers that they are brought to, for which a component waits: each of its threads is at one barrier.
pub(crate) const MOST_BROUGHT: u64 = 1 << 20;

/// What is made of the values that threads bring to a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Combine {
    /// Those of component 0, its last thread's, are everybody's.
    First = 0,
    /// Sums of whole numbers, modulo 2⁶⁴.
    Sum,
    /// Sums of floating-point numbers.
    SumOfFloats,
    /// The least whole number.
    Least,
    /// The greatest whole number.
    Greatest,
    /// The least floating-point number.
    LeastFloat,
    /// The greatest floating-point number.
    GreatestFloat,
}

const COMBINE: [Combine; 7] = [
    Combine::First,
    Combine::Sum,
    Combine::SumOfFloats,
    Combine::Least,
    Combine::Greatest,
    Combine::LeastFloat,
    Combine::GreatestFloat,
];

impl Combine {
    /// By its number; none of others.
    pub(crate) fn numbered(number: u32) -> Option<Self> {
        COMBINE.get(number as usize).copied()
    }

    fn of(self, one: u64, other: u64) -> u64 {
        let floats =
            |combine: fn(f64, f64) -> f64| combine(f64::from_bits(one), f64::from_bits(other)).to_bits();
        match self {
            Self::First => one,
            Self::Sum => one.wrapping_add(other),
            Self::SumOfFloats => floats(|one, other| one + other),
            Self::Least => one.min(other),
            Self::Greatest => one.max(other),
            Self::LeastFloat => floats(f64::min),
            Self::GreatestFloat => floats(f64::max),
        }
    }

    pub(crate) fn all(self, into: &mut [u64], others: &[u64]) {
        for (into, &other) in into.iter_mut().zip(others) {
            *into = self.of(*into, other);
        }
    }

    /// What one more thread of a component brings, to what those before it have brought.
    pub(crate) fn bring(self, brought: &mut Option<Vec<u64>>, values: &[u64]) {
        match brought {
            Some(brought) if self == Self::First => brought.copy_from_slice(values),
            Some(brought) => self.all(brought, values),
            none => *none = Some(values.to_vec()),
        }
    }
}

/// The components below one in the tree.
pub(crate) fn below(rank: u32, count: u32) -> std::ops::Range<u32> {
    let first = u64::from(rank) * u64::from(BRANCHES) + 1;
    let bounded = |rank: u64| u32::try_from(rank.min(u64::from(count))).expect("at most the count");
    bounded(first)..bounded(first + u64::from(BRANCHES))
}

/// What one says about barriers and locks. The first word is one of these, and a [`Combine`] above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Word {
    /// To the one above: all here and below are there. Barrier, round; values.
    Up = 0,
    /// To those below: all are there. Barrier, round; what the values came to.
    Down,
    /// To a lock's home: lock, token.
    Read,
    Write,
    /// If it is free; the answer says.
    TryWrite,
    /// It is free again: lock, token of the one who had it.
    Unlock,
    /// Unlocks, waits for a condition, and locks again: lock, token, condition.
    Await,
    /// Lets so many go on that wait for a condition: lock, condition, how many.
    Notify,
    /// To who waits for a lock or at a gathering: lock, token, and what has come of it.
    Answer,
    /// As the others, of [`Mode::Read`] and [`Mode::ReadBeside`].
    TryRead,
    ReadBeside,
    TryReadBeside,
    /// The time for a wait is over: lock, token. What it has come to is still answered.
    Late,
    /// To the home of a barrier of threads: barrier, token, how many.
    Gather,
    /// To who has a lock on loan: lock. It is to be returned.
    Recall,
    /// To the home of a lock that was lent: lock, and the token of the thread that has it, or 0.
    Return,
}

const WORDS: [Word; 16] = [
    Word::Up,
    Word::Down,
    Word::Read,
    Word::Write,
    Word::TryWrite,
    Word::Unlock,
    Word::Await,
    Word::Notify,
    Word::Answer,
    Word::TryRead,
    Word::ReadBeside,
    Word::TryReadBeside,
    Word::Late,
    Word::Gather,
    Word::Recall,
    Word::Return,
];

/// Why a message about synchronisation is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("word {0} of synchronisation")]
    Word(u64),
    #[error("it has no place there in the tree of barriers")]
    Place,
    #[error("round {0} of a barrier, which it is not")]
    Round(u64),
    #[error("values that do not fit those of the others")]
    Values,
    #[error("a lock that does not live here")]
    Home,
    #[error("a lock that it does not hold")]
    NotHeld,
    #[error("the answer to a question that it was not asked")]
    NotAsked,
    #[error("more than {0} locks of one component at once")]
    Locks(u64),
    #[error("more barriers at once, and values for them, than {0}")]
    Barriers(u64),
}

/// The answer to [`Word::TryWrite`] and its like of who does not get it.
pub(crate) const BUSY: u64 = 1;
pub(crate) const GRANTED: u64 = 2;
/// To who is late: without the lock who came for it, with it who waited for a condition.
pub(crate) const LATE: u64 = 3;
/// At a gathering: others wait for another number of threads.
pub(crate) const MISFIT: u64 = 4;
/// As [`GRANTED`], to the one that came last.
pub(crate) const LAST: u64 = 5;
/// As [`GRANTED`], and the lock is lent: known to the component, not to who waits.
const LENT: u64 = 6;

#[derive(Default)]
struct Barrier {
    round: u64,
    /// Values of the threads that are here, and where they wait.
    here: Vec<Arc<Slot>>,
    own: Option<Vec<u64>>,
    /// How many are to be here: what they all say.
    threads: usize,
    combine: Option<Combine>,
    /// What came from below, by rank.
    below: BTreeMap<u32, Vec<u64>>,
    /// What the values came to in the last round.
    outcome: Vec<u64>,
}

/// All barriers and locks, as far as this component has to do with them.
pub(crate) struct Synchronisation {
    own: u32,
    count: u32,
    barriers: BTreeMap<u64, Barrier>,
    locks: BTreeMap<u64, Lock>,
    gatherings: BTreeMap<u64, Gathering>,
    /// Who comes for locks that live here, and locks of others that stay here.
    streaks: Streaks,
    loans: Loans,
    /// How often something was said of a lock that nobody answers: see [`crate::meeting`].
    unanswered: Arc<AtomicU64>,
    /// What others have brought to barriers, and what they have of locks or wait for, gatherings too.
    brought: Kept,
    asked: Kept,
    lent: Kept,
}

impl Synchronisation {
    pub(crate) fn new(own: u32, count: u32) -> Self {
        Self {
            own,
            count,
            barriers: BTreeMap::new(),
            locks: BTreeMap::new(),
            gatherings: BTreeMap::new(),
            streaks: Streaks::default(),
            loans: Loans::new(own),
            unanswered: Arc::new(AtomicU64::new(0)),
            brought: Kept::new(own, MOST_BROUGHT),
            asked: Kept::new(own, MOST_LOCKS),
            lent: Kept::new(own, MOST_LENT),
        }
    }

    pub(crate) fn unanswered(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unanswered)
    }

    fn above(rank: u32) -> Option<u32> {
        (rank > 0).then(|| (rank - 1) / BRANCHES)
    }

    fn below(&self, rank: u32) -> std::ops::Range<u32> {
        below(rank, self.count)
    }

    /// Where a lock lives.
    fn home(&self, lock: u64) -> u32 {
        u32::try_from(mixed(lock) % u64::from(self.count)).expect("below the count")
    }

    /// A thread comes to a barrier; `threads` of each component do. It waits on its slot.
    pub(crate) fn arrive(
        &mut self,
        core: &mut Core,
        barrier: u64,
        threads: usize,
        (combine, values): (Combine, &[u64]),
        slot: &Arc<Slot>,
    ) {
        slot.begin(1);
        let state = self.barriers.entry(barrier).or_default();
        state.threads = threads;
        state.combine = Some(combine);
        state.here.push(Arc::clone(slot));
        combine.bring(&mut state.own, values);
        self.go_on(core, barrier);
    }

    /// What the values came to. Stays until this thread comes to the barrier again.
    pub(crate) fn outcome(&self, barrier: u64) -> &[u64] {
        self.barriers.get(&barrier).map_or(&[], |state| &state.outcome)
    }

    /// Tells the one above if all are there, here and below.
    fn go_on(&mut self, core: &mut Core, barrier: u64) {
        let below = self.below(self.own).len();
        let state = self.barriers.get_mut(&barrier).expect("somebody has come to it");
        if state.threads == 0 || state.here.len() < state.threads || state.below.len() < below {
            return;
        }
        let combine = state.combine.expect("somebody is here");
        let mut values = state.own.take().expect("somebody is here");
        let under = std::mem::take(&mut state.below);
        for (&rank, others) in &under {
            combine.all(&mut values, others);
            self.brought.remove(rank, 1 + others.len() as u64);
        }
        match Self::above(self.own) {
            Some(above) => {
                let head = [Word::Up as u64 | (combine as u64) << 8, barrier, state.round, 0];
                core.say(above, Kind::Synchronise, &head, &bytes(&values));
                // Answers from below cannot come before the one from above.
                state.threads = 0;
            }
            None => self.end(core, barrier, values),
        }
    }

    fn end(&mut self, core: &mut Core, barrier: u64, values: Vec<u64>) {
        let below = self.below(self.own);
        let state = self.barriers.get_mut(&barrier).expect("it is under way");
        let head = [Word::Down as u64, barrier, state.round, 0];
        let content = bytes(&values);
        below.for_each(|rank| core.say(rank, Kind::Synchronise, &head, &content));
        state.round += 1;
        state.threads = 0;
        state.outcome = values;
        state.here.drain(..).for_each(|slot| slot.end([GRANTED, 0]));
    }

    /// Asks for a lock; to `try_only` is not to wait. The slot ends with [`GRANTED`], [`BUSY`] or [`LATE`]; the token says which wait it was when
    /// it is given back.
    pub(crate) fn lock(
        &mut self,
        core: &mut Core,
        lock: u64,
        (mode, try_only): (Mode, bool),
        slot: &Arc<Slot>,
    ) -> u64 {
        slot.begin(1);
        let home = self.home(lock);
        let token = core.token(home, slot);
        if mode == Mode::Write && self.loans.take(lock, token) {
            core.answered(home, token, [GRANTED, 0]).expect("just made");
            return token;
        }
        self.return_loan(core, lock);
        let word = match (mode, try_only) {
            (Mode::Read, false) => Word::Read,
            (Mode::ReadBeside, false) => Word::ReadBeside,
            (Mode::Write, false) => Word::Write,
            (Mode::Read, true) => Word::TryRead,
            (Mode::ReadBeside, true) => Word::TryReadBeside,
            (Mode::Write, true) => Word::TryWrite,
        };
        self.tell(core, lock, [word as u64, lock, token, 0]);
        token
    }

    /// The time of a wait for a lock or for one of its conditions is over. Its slot ends all the same.
    pub(crate) fn is_late(&mut self, core: &mut Core, lock: u64, token: u64) {
        self.tell(core, lock, [Word::Late as u64, lock, token, 0]);
    }

    /// Comes to a barrier of so many threads of the whole task. The slot ends with [`GRANTED`], [`LAST`] or [`MISFIT`].
    pub(crate) fn gather(&mut self, core: &mut Core, barrier: u64, threads: u64, slot: &Arc<Slot>) {
        slot.begin(1);
        let token = core.token(self.home(barrier), slot);
        self.tell(core, barrier, [Word::Gather as u64, barrier, token, threads]);
    }

    /// Gives it back.
    pub(crate) fn unlock(&mut self, core: &mut Core, lock: u64, token: u64) {
        if self.loans.give_back(lock, token) {
            return;
        }
        self.tell(core, lock, [Word::Unlock as u64, lock, token, 0]);
    }

    /// Gives it back until a condition is notified. The slot ends when it is locked again, under a new token.
    pub(crate) fn await_condition(
        &mut self,
        core: &mut Core,
        (lock, condition): (u64, u64),
        held: u64,
        slot: &Arc<Slot>,
    ) -> u64 {
        slot.begin(1);
        self.return_loan(core, lock);
        let token = core.token(self.home(lock), slot);
        // One message says both: the waiting must begin before the lock is free.
        self.tell(core, lock, [Word::Await as u64 | condition << 8, lock, token, held]);
        token
    }

    pub(crate) fn notify(&mut self, core: &mut Core, (lock, condition): (u64, u64), how_many: u64) {
        self.tell(core, lock, [Word::Notify as u64 | condition << 8, lock, how_many, 0]);
    }

    /// A lock that is here goes home, if it is.
    fn return_loan(&mut self, core: &mut Core, lock: u64) {
        if let Some(held) = self.loans.end(lock) {
            self.tell(core, lock, [Word::Return as u64, lock, held, 0]);
        }
    }

    fn tell(&mut self, core: &mut Core, lock: u64, head: Head) {
        let home = self.home(lock);
        if home == self.own {
            self.hear(core, self.own, &head).expect("our own words are in order");
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "the first byte")]
            let word = WORDS[usize::from(head[0] as u8)];
            if matches!(word, Word::Unlock | Word::Await | Word::Notify | Word::Return) {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
            }
            core.say(home, Kind::Synchronise, &head, &[]);
        }
    }

    /// What another component says.
    pub(crate) fn take(
        &mut self,
        core: &mut Core,
        from: u32,
        head: &Head,
        content: &[u8],
    ) -> Result<(), Mistake> {
        let [first, barrier, round, _] = *head;
        #[expect(clippy::cast_possible_truncation, reason = "bytes of it")]
        let (word, combine) =
            (WORDS.get(usize::from(first as u8)), COMBINE.get(usize::from((first >> 8) as u8)));
        match word.ok_or(Mistake::Word(first))? {
            Word::Up => {
                if !self.below(self.own).contains(&from) {
                    return Err(Mistake::Place);
                }
                let combine = *combine.ok_or(Mistake::Word(first))?;
                let values = numbers(content).ok_or(Mistake::Values)?;
                let fits = |others: &[u64]| others.len() == values.len();
                if let Some(state) = self.barriers.get(&barrier) {
                    if round != state.round || state.below.contains_key(&from) {
                        return Err(Mistake::Round(round));
                    }
                    let is_like_ours = state.own.as_deref().is_none_or(fits)
                        && state.below.values().all(|others| fits(others))
                        && (state.here.is_empty() || state.combine == Some(combine));
                    if !is_like_ours {
                        return Err(Mistake::Values);
                    }
                } else if round != 0 {
                    return Err(Mistake::Round(round));
                }
                let kept = self.brought.add(from, 1 + values.len() as u64);
                kept.map_err(|TooMuch(most)| Mistake::Barriers(most))?;
                self.barriers.entry(barrier).or_default().below.insert(from, values);
                self.go_on(core, barrier);
            }
            Word::Down => {
                if Self::above(self.own) != Some(from) {
                    return Err(Mistake::Place);
                }
                let state = self.barriers.get(&barrier).filter(|state| state.round == round);
                if state.is_none_or(|state| state.here.is_empty() || state.own.is_some()) {
                    return Err(Mistake::Round(round));
                }
                let values = numbers(content).ok_or(Mistake::Values)?;
                self.end(core, barrier, values);
            }
            _ => self.hear(core, from, head)?,
        }
        Ok(())
    }

    /// What is said about a lock.
    fn hear(&mut self, core: &mut Core, from: u32, head: &Head) -> Result<(), Mistake> {
        let [first, number, token, more] = *head;
        let who = Holder { rank: from, token };
        #[expect(clippy::cast_possible_truncation, reason = "the first byte")]
        let word = *WORDS.get(usize::from(first as u8)).ok_or(Mistake::Word(first))?;
        if word == Word::Answer {
            return self.hear_answer(core, from, number, (token, more));
        }
        if word == Word::Recall {
            if self.home(number) != from {
                return Err(Mistake::Home);
            }
            // It may be on its way home already.
            self.return_loan(core, number);
            return Ok(());
        }
        if self.home(number) != self.own {
            return Err(Mistake::Home);
        }
        if word == Word::Gather {
            return self.hear_gather(core, number, who, more);
        }
        let is_often = mode(word) == Some(Mode::Write) && self.streaks.came(number, from);
        let lends = is_often && from != self.own && self.lent.add(from, 1).is_ok();
        let lock = self.locks.entry(number).or_default();
        let at_once = matches!(word, Word::TryRead | Word::TryReadBeside | Word::TryWrite);
        let heard = match (word, mode(word)) {
            // Of a lock that is lent, whether anybody has it is known later.
            (_, Some(mode)) if at_once && !lock.may_have(mode) && !lock.is_lent() => {
                answer(core, self.own, number, who, BUSY);
                Ok(())
            }
            (_, Some(mode)) => self
                .asked
                .add(from, 1)
                .map(|()| lock.come(who, mode, at_once))
                .map_err(|TooMuch(most)| Mistake::Locks(most)),
            (Word::Unlock, _) => lock.give_back(who).map(|()| self.asked.remove(from, 1)),
            (Word::Return, _) => lock.come_home(who).and_then(|()| {
                self.streaks.forget(number);
                self.lent.remove(from, 1);
                if token == 0 {
                    return Ok(());
                }
                self.asked.add(from, 1).map_err(|TooMuch(most)| Mistake::Locks(most))
            }),
            (Word::Await, _) => lock.await_condition(Holder { rank: from, token: more }, first >> 8, who),
            (Word::Notify, _) => {
                lock.notify(first >> 8, token);
                Ok(())
            }
            (Word::Late, _) => lock.is_late(who).map(|late| {
                if late == Late::Left {
                    self.asked.remove(from, 1);
                    answer(core, self.own, number, who, LATE);
                }
            }),
            _ => Err(Mistake::Word(first)),
        };
        let (own, asked) = (self.own, &mut self.asked);
        let mut has_lent = false;
        lock.serve(lends.then_some(who), |who, outcome| {
            has_lent |= outcome == LENT;
            if matches!(outcome, BUSY | LENT) {
                asked.remove(who.rank, 1);
            }
            answer(core, own, number, who, outcome);
        });
        if let Some(borrower) = lock.recall() {
            core.say(borrower, Kind::Synchronise, &[Word::Recall as u64, number, 0, 0], &[]);
        }
        if lock.is_forgotten() {
            self.locks.remove(&number);
        }
        if lends && !has_lent {
            self.lent.remove(from, 1);
        }
        heard
    }

    fn hear_answer(
        &mut self,
        core: &mut Core,
        from: u32,
        lock: u64,
        (token, outcome): (u64, u64),
    ) -> Result<(), Mistake> {
        let is_lent = outcome == LENT;
        if is_lent && self.home(lock) != from {
            return Err(Mistake::Home);
        }
        let outcome = if is_lent { GRANTED } else { outcome };
        core.answered(from, token, [outcome, 0]).map_err(|_| Mistake::NotAsked)?;
        if is_lent { self.loans.begin(lock, from, token) } else { Ok(()) }
    }

    fn hear_gather(
        &mut self,
        core: &mut Core,
        barrier: u64,
        who: Holder,
        threads: u64,
    ) -> Result<(), Mistake> {
        self.asked.add(who.rank, 1).map_err(|TooMuch(most)| Mistake::Locks(most))?;
        let gathering = self.gatherings.entry(barrier).or_default();
        let told = match gathering.come(who, threads) {
            Came::Waits => Vec::new(),
            Came::Misfit => vec![(who, MISFIT)],
            Came::All(all) => {
                all.into_iter().map(|one| (one, if one == who { LAST } else { GRANTED })).collect()
            }
        };
        if gathering.is_forgotten() {
            self.gatherings.remove(&barrier);
        }
        for (one, value) in told {
            self.asked.remove(one.rank, 1);
            answer(core, self.own, barrier, one, value);
        }
        Ok(())
    }
}

/// How a lock is wanted by who says this.
fn mode(word: Word) -> Option<Mode> {
    match word {
        Word::Read | Word::TryRead => Some(Mode::Read),
        Word::ReadBeside | Word::TryReadBeside => Some(Mode::ReadBeside),
        Word::Write | Word::TryWrite => Some(Mode::Write),
        _ => None,
    }
}

fn answer(core: &mut Core, own: u32, lock: u64, who: Holder, value: u64) {
    if who.rank == own {
        core.answered(own, who.token, [value, 0]).expect("a thread of ours waits for it");
    } else {
        core.say(who.rank, Kind::Synchronise, &[Word::Answer as u64, lock, who.token, value], &[]);
    }
}

/// Neighbours live apart: Fibonacci's multiplier.
fn mixed(lock: u64) -> u64 {
    lock.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(content: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = content.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}
