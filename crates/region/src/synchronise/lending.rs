//! Locks that stay with a component that has given them back: who takes one again and again, with nobody else in between, need not ask its home each
//! time.
//!
//! The home lends such a lock when it grants it, and knows from then on only where it is. As soon as anybody else comes for it the home calls it
//! back, and hears whether a thread has it now. A component that has more to do with a lock than to take it and give it back returns it first.

use std::collections::BTreeMap;

use super::Mistake;
use crate::kept::{Kept, TooMuch};

/// Locks of one home that one component has on loan.
pub(super) const MOST_LENT: u64 = 4096;

/// Who takes a lock for the third time in a row has it lent: two who take turns would have to call it back each time.
const BEFORE: u8 = 2;
/// So many locks are remembered; of two that fall on one place, the later.
const PLACES: usize = 4096;

#[derive(Clone, Copy, Default)]
struct Streak {
    lock: u64,
    rank: u32,
    times: u8,
}

/// At the home: who came for which locks last.
#[derive(Default)]
pub(super) struct Streaks {
    places: Vec<Streak>,
}

impl Streaks {
    /// A component comes for a lock, to have it alone. Whether it has come often enough before, and nobody else since.
    pub(super) fn came(&mut self, lock: u64, rank: u32) -> bool {
        let streak = self.place(lock);
        if (streak.lock, streak.rank) != (lock, rank) {
            *streak = Streak { lock, rank, times: 0 };
        }
        let is_often = streak.times >= BEFORE;
        streak.times = streak.times.saturating_add(1);
        is_often
    }

    /// It has been returned: others want it, too.
    pub(super) fn forget(&mut self, lock: u64) {
        *self.place(lock) = Streak::default();
    }

    fn place(&mut self, lock: u64) -> &mut Streak {
        if self.places.is_empty() {
            self.places = vec![Streak::default(); PLACES];
        }
        let place = super::mixed(lock) % self.places.len() as u64;
        &mut self.places[usize::try_from(place).expect("below their number")]
    }
}

/// At the component: which locks it has on loan, of which homes, and which thread has them.
pub(super) struct Loans {
    locks: BTreeMap<u64, Loan>,
    by_home: Kept,
}

struct Loan {
    home: u32,
    held: Option<u64>,
}

impl Loans {
    pub(super) fn new(own: u32) -> Self {
        Self { locks: BTreeMap::new(), by_home: Kept::new(own, MOST_LENT) }
    }

    /// A lock is lent, and the thread with this token has it.
    pub(super) fn begin(&mut self, lock: u64, home: u32, token: u64) -> Result<(), Mistake> {
        if self.locks.contains_key(&lock) {
            return Err(Mistake::NotAsked);
        }
        self.by_home.add(home, 1).map_err(|TooMuch(most)| Mistake::Locks(most))?;
        self.locks.insert(lock, Loan { home, held: Some(token) });
        Ok(())
    }

    /// Gives it to a thread, if it is here and no other has it.
    pub(super) fn take(&mut self, lock: u64, token: u64) -> bool {
        match self.locks.get_mut(&lock) {
            Some(Loan { held: held @ None, .. }) => {
                *held = Some(token);
                true
            }
            _ => false,
        }
    }

    /// The thread that has it gives it back; it stays here. False: it is not here.
    pub(super) fn give_back(&mut self, lock: u64, token: u64) -> bool {
        let held = self.locks.get_mut(&lock).map(|loan| &mut loan.held);
        match held {
            Some(held) if *held == Some(token) => {
                *held = None;
                true
            }
            _ => false,
        }
    }

    /// It goes home: which token has it, or 0. None: it is not here.
    pub(super) fn end(&mut self, lock: u64) -> Option<u64> {
        let loan = self.locks.remove(&lock)?;
        self.by_home.remove(loan.home, 1);
        Some(loan.held.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_three_times_in_a_row_may_keep_it() {
        let mut streaks = Streaks::default();
        let mut came = |rank| streaks.came(5, rank);
        assert_eq!(
            [came(1), came(1), came(2), came(1), came(1), came(1)],
            [false, false, false, false, false, true]
        );
        assert!(came(1) && !came(2));
        assert!((0..10).all(|_| !came(1) && !came(2)), "two who take turns");
        assert!(!(0..2).any(|_| came(1)) && came(1));
        streaks.forget(5);
        assert!(!streaks.came(5, 1));
    }

    #[test]
    fn one_thread_at_a_time_has_what_is_on_loan() {
        let mut loans = Loans::new(0);
        assert!(!loans.take(7, 1) && !loans.give_back(7, 1) && loans.end(7).is_none());
        assert_eq!(loans.begin(7, 2, 1), Ok(()));
        assert_eq!(loans.begin(7, 2, 1), Err(Mistake::NotAsked), "lent twice");
        assert!(!loans.take(7, 3) && !loans.give_back(7, 3));
        assert!(loans.give_back(7, 1) && !loans.give_back(7, 1));
        assert!(loans.take(7, 3) && !loans.take(7, 4));
        assert_eq!((loans.end(7), loans.end(7)), (Some(3), None));
        for lock in 0..MOST_LENT {
            assert_eq!(loans.begin(lock, 2, 1), Ok(()));
        }
        assert_eq!(loans.begin(MOST_LENT, 2, 1), Err(Mistake::Locks(MOST_LENT)));
        assert_eq!(loans.begin(MOST_LENT, 1, 1), Ok(()), "each home lends as many");
        assert!(loans.give_back(3, 1));
        assert_eq!(loans.end(3), Some(0));
        assert_eq!(loans.begin(MOST_LENT + 1, 2, 1), Ok(()));
    }
}
