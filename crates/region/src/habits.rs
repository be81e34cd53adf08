//! Blocks that this component reads first and stores to then: who misses one to read it is given it to store, too, and asks once instead of twice.
//! A store may come at any time, so no protocol has to know.

use std::collections::BTreeMap;

/// Of one allocation: a byte for each block that was missed, and for its neighbours.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    extents: BTreeMap<u64, Box<[u8; EXTENT]>>,
}

const EXTENT: usize = 4096;

/// A copy to read was asked for, and nothing has been stored since.
const HAS_READ: u8 = 0x80;
/// Copies in a row that were stored to before they were gone. So many make a habit.
const HABIT: u8 = 2;
/// Nobody hears of a store to what may be stored to: so after so many times the block is only read again, and the habit goes on if a store follows.
const LASTS: u8 = 16;

impl Habits {
    /// A thread misses a block. Whether it is to be asked for to be stored to.
    pub(crate) fn missed(&mut self, block: u64, is_store: bool, has_copy: bool) -> bool {
        let extent = self.extents.entry(block / EXTENT as u64).or_insert_with(|| Box::new([0; EXTENT]));
        #[expect(clippy::cast_possible_truncation, reason = "below the blocks of an extent")]
        let byte = &mut extent[(block % EXTENT as u64) as usize];
        let (has_read, times) = (*byte & HAS_READ != 0, *byte & !HAS_READ);
        let (asks_to_store, now) = match (is_store, times) {
            (true, HABIT..) => (true, times),
            (true, _) => (true, if has_read && has_copy { times + 1 } else { times }),
            (false, HABIT..) if times - HABIT < LASTS => (true, times + 1),
            (false, HABIT..) => (false, HAS_READ | (HABIT - 1)),
            (false, _) => (false, HAS_READ | if has_read { 0 } else { times }),
        };
        *byte = now;
        asks_to_store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many misses to read are asked for to be stored to; after each of those that are not, a store follows or does not.
    fn asked_to_store(habits: &mut Habits, times: usize, stores: bool) -> usize {
        let missed = |_: &usize| {
            let asks = habits.missed(7, false, false);
            if stores && !asks {
                habits.missed(7, true, true);
            }
            asks
        };
        (0..times).filter(missed).count()
    }

    #[test]
    fn who_reads_and_stores_asks_once() {
        let mut habits = Habits::default();
        assert_eq!(asked_to_store(&mut habits, 2, true), 0);
        assert_eq!(asked_to_store(&mut habits, 17 * 10, true), 16 * 10);
        assert_eq!(
            asked_to_store(&mut habits, 1000, false),
            16,
            "a habit that is none any more costs little"
        );
        assert!(!habits.missed(8, false, false), "each block has its own");
    }

    #[test]
    fn who_only_reads_or_only_stores_has_no_habit() {
        let mut habits = Habits::default();
        assert_eq!(asked_to_store(&mut habits, 100, false), 0);
        for _ in 0..100 {
            // It has a copy of what it stored last, for another has read it.
            assert!(habits.missed(7, true, true));
        }
        assert!(!habits.missed(7, false, false));
        // Its copy was gone before it stored.
        for _ in 0..100 {
            assert!(habits.missed(7, true, false));
            assert!(!habits.missed(7, false, false));
        }
    }
}
