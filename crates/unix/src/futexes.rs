//! Futexes: threads that wait for a word in memory to be changed.

use crate::errno::{EAGAIN, EINVAL, ENOSYS, ETIMEDOUT, Errno};
use crate::layouts::Timespec;
use crate::machine::{Machine, PAGE_BYTES};
use crate::spaces::SpaceNumber;
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Interruption, Outcome, Wait};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// What a word is known by: its address in a space, or its place in an object that several spaces share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FutexKey {
    Private(SpaceNumber, u64),
    Shared(u64, u64),
}

/// Who waits for what, in the order in which they came.
#[derive(Default)]
pub(crate) struct Futexes {
    waiters: BTreeMap<FutexKey, VecDeque<(Id, u32)>>,
    by_thread: BTreeMap<Id, FutexKey>,
}

impl Futexes {
    fn add(&mut self, key: FutexKey, thread: Id, bits: u32) {
        self.waiters.entry(key).or_default().push_back((thread, bits));
        self.by_thread.insert(thread, key);
    }

    /// The thread does not wait any more; whether it did.
    pub(crate) fn remove(&mut self, thread: Id) -> bool {
        let Some(key) = self.by_thread.remove(&thread) else { return false };
        if let Some(waiters) = self.waiters.get_mut(&key) {
            waiters.retain(|&(other, _)| other != thread);
            if waiters.is_empty() {
                self.waiters.remove(&key);
            }
        }
        true
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.by_thread.is_empty()
    }

    /// Takes out the first waiters for any of these bits.
    fn take(&mut self, key: FutexKey, most: u32, bits: u32) -> Vec<Id> {
        let Some(waiters) = self.waiters.get(&key) else { return Vec::new() };
        let taken: Vec<Id> = waiters
            .iter()
            .filter(|&&(_, wanted)| wanted & bits != 0)
            .take(most as usize)
            .map(|&(thread, _)| thread)
            .collect();
        for &thread in &taken {
            self.remove(thread);
        }
        taken
    }

    /// Takes out all who wait for words of an object.
    pub(crate) fn take_all(&mut self, object: u64) -> Vec<Id> {
        let keys = FutexKey::Shared(object, 0)..FutexKey::Shared(object + 1, 0);
        let taken: Vec<Id> = self
            .waiters
            .range(keys)
            .flat_map(|(_, waiters)| waiters.iter().map(|&(thread, _)| thread))
            .collect();
        for &thread in &taken {
            self.remove(thread);
        }
        taken
    }

    /// Lets waiters wait for another word.
    fn requeue(&mut self, from: FutexKey, to: FutexKey, most: u32) -> u64 {
        let Some(waiters) = self.waiters.get(&from) else { return 0 };
        let moved: Vec<(Id, u32)> = waiters.iter().take(most as usize).copied().collect();
        for &(thread, bits) in &moved {
            self.remove(thread);
            self.add(to, thread, bits);
        }
        moved.len() as u64
    }
}

/// What `FUTEX_WAKE_OP` does to its second word, and whether the waiters there are woken as well.
fn wake_operation(encoded: u32) -> Result<(impl Fn(u32) -> u32, impl Fn(u32) -> bool), Errno> {
    let (operation, comparison) = (encoded >> 28 & 7, encoded >> 24 & 15);
    let sign_extended = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let mut argument = sign_extended(encoded >> 12 & 0xfff);
    let compared = sign_extended(encoded & 0xfff) as i32;
    if encoded >> 31 != 0 {
        argument = 1u32.checked_shl(argument & 31).unwrap_or(0);
    }
    if operation > 4 || comparison > 5 {
        return Err(ENOSYS);
    }
    let change = move |old: u32| match operation {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        _ => old ^ argument,
    };
    let holds = move |old: u32| {
        let old = old as i32;
        match comparison {
            0 => old == compared,
            1 => old != compared,
            2 => old < compared,
            3 => old <= compared,
            4 => old > compared,
            _ => old >= compared,
        }
    };
    Ok((change, holds))
}

impl<M: Machine> Unix<M> {
    fn futex_key(&mut self, who: Caller, address: u64) -> Result<FutexKey, Errno> {
        if !address.is_multiple_of(4) {
            return Err(EINVAL);
        }
        let found = self.memory.space(who.space).regions.at(address);
        let (start, region) = found.ok_or(crate::errno::EFAULT)?;
        match &region.backing {
            Some((object, first)) if region.shared => {
                Ok(FutexKey::Shared(object.number, first * PAGE_BYTES + (address - start)))
            }
            _ => Ok(FutexKey::Private(who.space, address)),
        }
    }

    /// Wakes those who wait for a word; how many there were.
    pub(crate) fn wake_waiters(&mut self, who: Caller, address: u64, most: u32, bits: u32) -> u64 {
        let Ok(key) = self.futex_key(who, address) else { return 0 };
        self.wake_key(key, most, bits)
    }

    /// Wakes those of this cell first.
    fn wake_key(&mut self, key: FutexKey, most: u32, bits: u32) -> u64 {
        let woken = self.wake_here(key, most, bits);
        if woken < u64::from(most) {
            self.wake_elsewhere(key, most - woken as u32, bits);
        }
        woken
    }

    pub(crate) fn wake_here(&mut self, key: FutexKey, most: u32, bits: u32) -> u64 {
        let woken = self.futexes.take(key, most, bits);
        for &thread in &woken {
            self.complete(thread, 0);
        }
        woken.len() as u64
    }

    fn futex_wait(
        &mut self,
        who: Caller,
        address: u64,
        value: u32,
        until: Option<Instant>,
        bits: u32,
    ) -> Outcome {
        if bits == 0 {
            return Err(EINVAL.into());
        }
        if self.thread(who.thread).progress.begun {
            if until.is_some_and(|until| until <= Instant::now()) {
                self.futexes.remove(who.thread);
                return Err(ETIMEDOUT.into());
            }
        } else {
            let key = self.futex_key(who, address)?;
            if self.memory.load_word(who.space, address)? != value {
                return Err(EAGAIN.into());
            }
            self.futexes.add(key, who.thread, bits);
        }
        let mut wait = Wait::until(until);
        wait.interruption = if until.is_none() { Interruption::Restart } else { Interruption::Fail };
        Err(wait.into())
    }

    pub(crate) fn call_futex(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [address, operation, value, timeout_at, second, third] = arguments;
        let (operation, value, third) = (operation as i32, value as u32, third as u32);
        let until = |unix: &mut Self, absolute: bool| -> Result<Option<Instant>, Errno> {
            if timeout_at == 0 {
                return Ok(None);
            }
            let timeout: Timespec = unix.memory.read(who.space, timeout_at)?;
            if absolute {
                let clock = if operation & libc::FUTEX_CLOCK_REALTIME != 0 {
                    libc::CLOCK_REALTIME
                } else {
                    libc::CLOCK_MONOTONIC
                };
                return unix.absolute_deadline(who, clock, timeout).map(Some);
            }
            unix.deadline(who, timeout).map(Some)
        };
        match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
            libc::FUTEX_WAIT => {
                let until = until(self, false)?;
                self.futex_wait(who, address, value, until, u32::MAX)
            }
            libc::FUTEX_WAIT_BITSET => {
                let until = until(self, true)?;
                self.futex_wait(who, address, value, until, third)
            }
            libc::FUTEX_WAKE => {
                let key = self.futex_key(who, address)?;
                Ok(self.wake_key(key, value, u32::MAX))
            }
            libc::FUTEX_WAKE_BITSET => {
                if third == 0 {
                    return Err(EINVAL.into());
                }
                let key = self.futex_key(who, address)?;
                Ok(self.wake_key(key, value, third))
            }
            requeue @ (libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE) => {
                let (from, to) = (self.futex_key(who, address)?, self.futex_key(who, second)?);
                if (value as i32) < 0 || (timeout_at as i32) < 0 {
                    return Err(EINVAL.into());
                }
                if requeue == libc::FUTEX_CMP_REQUEUE && self.memory.load_word(who.space, address)? != third {
                    return Err(EAGAIN.into());
                }
                let woken = self.wake_key(from, value, u32::MAX);
                let most = if from == to { 0 } else { timeout_at as u32 };
                let moved = self.futexes.requeue(from, to, most);
                if moved < u64::from(most) {
                    // Those of other cells look at their word again, as whoever waits must expect to.
                    self.wake_elsewhere(from, most - moved as u32, u32::MAX);
                }
                Ok(if requeue == libc::FUTEX_CMP_REQUEUE { woken + moved } else { woken })
            }
            libc::FUTEX_WAKE_OP => {
                let (from, to) = (self.futex_key(who, address)?, self.futex_key(who, second)?);
                let (change, holds) = wake_operation(third)?;
                let old = self.memory.change_word(who.space, second, change)?;
                let mut woken = self.wake_key(from, value, u32::MAX);
                if holds(old) {
                    woken += self.wake_key(to, timeout_at as u32, u32::MAX);
                }
                Ok(woken)
            }
            _ => Err(ENOSYS.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FutexKey = FutexKey::Private(SpaceNumber(1), 0x1000);
    const B: FutexKey = FutexKey::Shared(3, 0x1000);

    #[test]
    fn waiters_are_woken_in_order_and_by_their_bits() {
        let mut futexes = Futexes::default();
        for (thread, bits) in [(5, 1), (6, 2), (7, 3), (8, 4)] {
            futexes.add(A, thread, bits);
        }
        assert_eq!(futexes.take(A, 1, 2), vec![6]);
        assert_eq!(futexes.take(B, 9, u32::MAX), Vec::<Id>::new());
        assert_eq!(futexes.take(A, 9, 3), vec![5, 7]);
        assert!(futexes.remove(8));
        assert!(!futexes.remove(8));
        assert!(futexes.waiters.is_empty() && futexes.by_thread.is_empty());
    }

    #[test]
    fn those_who_were_moved_wait_at_the_other_word() {
        let mut futexes = Futexes::default();
        for thread in [1, 2, 3] {
            futexes.add(A, thread, u32::MAX);
        }
        assert_eq!(futexes.requeue(A, B, 2), 2);
        assert_eq!(futexes.take(A, 9, u32::MAX), vec![3]);
        assert_eq!(futexes.take(B, 9, u32::MAX), vec![1, 2]);
    }

    #[test]
    fn the_second_word_is_changed_as_encoded() {
        // Add 3, compare greater than 5, as FUTEX_OP(1, 3, 4, 5) encodes it.
        let (change, holds) = wake_operation(1 << 28 | 4 << 24 | 3 << 12 | 5).expect("known");
        assert_eq!(change(7), 10);
        assert!(holds(6) && !holds(5));
        // OR with 1 << 4; compare equal to -1.
        let (change, holds) = wake_operation(8 << 28 | 2 << 28 | 4 << 12 | 0xfff).expect("known");
        assert_eq!(change(1), 17);
        assert!(holds(u32::MAX) && !holds(0));
        assert!(wake_operation(5 << 28).is_err());
    }
}
