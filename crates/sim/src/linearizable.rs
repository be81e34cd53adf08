//! Whether what many clients saw of a register could have happened one after the other.
//!
//! The search of Wing and Gong, with Lowe's memory of what was tried: an operation may come next if no other ended before it
//! began; a read must see what was written last. Operations that never ended may have happened at any time after their
//! beginning, or not at all.

use std::collections::HashSet;
use std::hash::Hash;

use comb_types::Time;

/// What a client did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<V> {
    /// It wrote this.
    Write(V),
    /// It read, and got this; none if there was nothing.
    Read(Option<V>),
    /// It wrote one value in the place of another, if that was there.
    Exchange {
        /// What had to be there.
        old: V,
        /// What is there then.
        new: V,
        /// Whether that was so; none if it was not answered.
        done: Option<bool>,
    },
}

/// One operation of one client on one register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation<V> {
    /// What.
    pub action: Action<V>,
    /// When it was asked for.
    pub began: Time,
    /// When it was answered; none if it never was. A read that never was does not matter: leave it out.
    pub ended: Option<Time>,
}

/// Whether the operations, of one register that held nothing before, could have happened one after the other.
pub fn is_linearizable<V: Copy + Eq + Hash>(operations: &[Operation<V>]) -> bool {
    let mut search =
        Search { operations, done: vec![0; operations.len().div_ceil(64)], tried: HashSet::new() };
    search.goes_on(None)
}

struct Search<'a, V> {
    operations: &'a [Operation<V>],
    /// Which operations have happened, a bit each.
    done: Vec<u64>,
    /// With what value what had happened, in vain.
    tried: HashSet<(Vec<u64>, Option<V>)>,
}

impl<V: Copy + Eq + Hash> Search<'_, V> {
    /// Whether the rest can happen, where the register holds this.
    fn goes_on(&mut self, value: Option<V>) -> bool {
        // Nothing may happen that began after one ended that has not happened yet.
        let left = (0..self.operations.len()).filter(|&index| !self.is_done(index));
        let ends = left.clone().filter_map(|index| self.operations[index].ended);
        let Some(limit) = ends.min() else { return true };
        let candidates: Vec<_> = left.filter(|&index| self.operations[index].began <= limit).collect();
        for index in candidates {
            let after = match self.operations[index].action {
                Action::Write(written) => Some(written),
                Action::Read(seen) if seen == value => value,
                Action::Exchange { old, new, done: None | Some(true) } if value == Some(old) => Some(new),
                Action::Exchange { old, done: None | Some(false), .. } if value != Some(old) => value,
                Action::Read(_) | Action::Exchange { .. } => continue,
            };
            self.flip(index);
            if self.tried.insert((self.done.clone(), after)) && self.goes_on(after) {
                return true;
            }
            self.flip(index);
        }
        false
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64] & 1 << (index % 64) != 0
    }

    fn flip(&mut self, index: usize) {
        self.done[index / 64] ^= 1 << (index % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::Dice;

    fn write(value: u32, began: u64, ended: u64) -> Operation<u32> {
        operation(Action::Write(value), began, Some(ended))
    }

    fn read(value: impl Into<Option<u32>>, began: u64, ended: u64) -> Operation<u32> {
        operation(Action::Read(value.into()), began, Some(ended))
    }

    fn operation(action: Action<u32>, began: u64, ended: Option<u64>) -> Operation<u32> {
        Operation { action, began: Time::from_millis(began), ended: ended.map(Time::from_millis) }
    }

    #[test]
    fn one_after_the_other() {
        assert!(is_linearizable(&[
            read(None, 0, 1),
            write(1, 2, 3),
            read(1, 4, 5),
            write(2, 6, 7),
            read(2, 8, 9)
        ]));
        assert!(!is_linearizable(&[write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)]), "an old value");
        assert!(!is_linearizable(&[write(1, 0, 1), read(None, 2, 3)]), "a lost value");
        assert!(!is_linearizable(&[write(1, 0, 1), read(7, 2, 3)]), "a value that nobody wrote");
    }

    #[test]
    fn at_the_same_time_any_order_will_do_but_one_order_for_all() {
        let writes = [write(1, 0, 10), write(2, 0, 10)];
        let with = |reads: &[Operation<u32>]| is_linearizable(&[&writes[..], reads].concat());
        assert!(with(&[read(1, 11, 12)]));
        assert!(with(&[read(2, 11, 12)]));
        assert!(with(&[read(1, 1, 2), read(2, 3, 4)]));
        assert!(!with(&[read(1, 11, 12), read(2, 13, 14)]));
        assert!(!with(&[read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)]));
    }

    #[test]
    fn an_exchange_is_done_where_the_old_value_stands_and_nowhere_else() {
        let exchange = |old, new, done: Option<bool>, began| {
            let ended = done.is_some().then_some(began + 1);
            operation(Action::Exchange { old, new, done }, began, ended)
        };
        let first = write(1, 0, 1);
        let with = |rest: &[Operation<u32>]| is_linearizable(&[&[first], rest].concat());
        assert!(with(&[exchange(1, 2, Some(true), 2), read(2, 4, 5)]));
        assert!(with(&[exchange(7, 2, Some(false), 2), read(1, 4, 5)]));
        assert!(!with(&[exchange(7, 2, Some(true), 2)]), "there was no seven");
        assert!(!with(&[exchange(1, 2, Some(false), 2)]), "there was a one");
        assert!(!with(&[exchange(1, 2, Some(true), 2), read(1, 4, 5)]), "it was exchanged");
        assert!(!with(&[exchange(1, 2, Some(true), 2), exchange(1, 3, Some(true), 2)]), "once, not twice");
        assert!(with(&[exchange(1, 2, None, 2), read(1, 4, 5)]), "it was never answered");
        assert!(with(&[exchange(1, 2, None, 2), read(2, 4, 5)]));
        assert!(!with(&[exchange(7, 2, None, 2), read(2, 4, 5)]));
    }

    #[test]
    fn what_never_ended_may_have_happened_or_not_and_late() {
        let never = operation(Action::Write(1), 0, None);
        assert!(is_linearizable(&[never, read(None, 5, 6)]));
        assert!(is_linearizable(&[never, read(1, 5, 6)]));
        assert!(is_linearizable(&[never, read(None, 5, 6), read(1, 7, 8)]));
        assert!(!is_linearizable(&[never, read(1, 5, 6), read(None, 7, 8)]));
        assert!(is_linearizable(&[never]));
    }

    /// What a register does that takes each operation at some moment between its beginning and its end.
    fn real_history(seed: u64, operations: u32) -> Vec<Operation<u32>> {
        let mut dice = Dice::new(seed);
        let mut moments: Vec<(u64, u64, u64, bool)> = (0..operations)
            .map(|_| {
                let began = u64::from(dice.below(1000));
                let moment = began + 1 + u64::from(dice.below(30));
                (moment, began, moment + 1 + u64::from(dice.below(30)), dice.happens(500_000))
            })
            .collect();
        moments.sort_unstable();
        let (mut value, mut last) = (None, 0);
        moments
            .into_iter()
            .map(|(_, began, ended, is_write)| {
                if !is_write {
                    return read(value, began, ended);
                }
                last += 1;
                value = Some(last);
                write(last, began, ended)
            })
            .collect()
    }

    #[test]
    fn what_a_register_did_could_have_happened() {
        for seed in 0..30 {
            assert!(is_linearizable(&real_history(seed, 200)), "seed {seed}");
        }
    }

    #[test]
    fn a_read_from_the_future_or_from_long_ago_is_found() {
        for seed in 0..30 {
            let mut history = real_history(seed, 100);
            let first = history.iter().position(|operation| matches!(operation.action, Action::Write(_)));
            let Some(Action::Write(oldest)) = first.map(|first| history[first].action) else { panic!() };
            history.push(read(oldest, 5000, 5001));
            assert!(!is_linearizable(&history), "seed {seed}: the oldest value at the end");
            history.pop();
            history.push(operation(Action::Read(Some(oldest)), 0, Some(0)));
            assert!(
                !is_linearizable(&history) || history[0].began == Time::ZERO,
                "seed {seed}: before the beginning"
            );
        }
    }
}
