//! The entries of one node: written by itself alone, held by those that read them.

use alloc::string::String;
use alloc::vec::Vec;

use comb_types::Dice;

use super::message::{Change, Delta, Want, length};

/// Of a key, in bytes.
pub(super) const LONGEST_KEY: usize = 64;
/// Of a value, in bytes: with its key and its envelope it fits into a message.
pub(super) const LONGEST_VALUE: usize = 1024;

impl Change {
    pub(super) fn is_within_limits(&self) -> bool {
        let value = self.value.as_ref().map_or(0, Vec::len);
        self.version > 0 && self.key.len() <= LONGEST_KEY && value <= LONGEST_VALUE
    }

    fn hash(&self) -> u32 {
        let start = Dice::new(u64::from(self.version) << 1 | u64::from(self.value.is_some())).roll();
        let bytes = self.key.bytes().chain([0xff]).chain(self.value.iter().flatten().copied());
        let word = bytes
            .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5));
        Dice::new(word).below(u32::MAX)
    }

    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| length(value.len() as u64) + value.len());
        length(self.version.into()) + 1 + self.key.len() + 1 + value
    }
}

/// Keys with their values or tombstones, as they were at one version of their owner or, while deltas are still on their way, of
/// parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    /// In the order of their keys.
    changes: Vec<Change>,
    /// The version of the last change that is here. All before it are here too, or were overwritten since.
    held: u32,
    /// Tombstones up to this version are forgotten.
    floor: u32,
    hash: u32,
}

impl Entries {
    /// Two that have the same entries have the same.
    pub(super) fn hash(&self) -> u32 {
        self.hash
    }

    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        let place = self.place(key).ok()?;
        self.changes[place].value.as_deref()
    }

    /// Keys and values, without tombstones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.changes.iter().filter_map(|change| Some((change.key.as_str(), change.value.as_deref()?)))
    }

    /// The owner writes.
    pub(super) fn write(&mut self, version: u32, key: &str, value: Option<Vec<u8>>) {
        self.put(Change { version, key: String::from(key), value });
        self.held = version;
    }

    /// The owner forgets tombstones up to a version. Says whether there were any.
    pub(super) fn sweep(&mut self, floor: u32) -> bool {
        let before = self.changes.len();
        let hash = &mut self.hash;
        self.changes.retain(|change| {
            let stays = change.value.is_some() || change.version > floor;
            if !stays {
                *hash ^= change.hash();
            }
            stays
        });
        let is_swept = self.changes.len() < before;
        if is_swept {
            self.floor = floor;
        }
        is_swept
    }

    pub(super) fn want(&self) -> (u32, u32) {
        (self.held, self.floor)
    }

    /// What somebody lacks who wants this, in at most so many bytes; none if not even one change fits.
    pub(super) fn delta(&self, want: &Want, bytes: usize) -> Option<Delta> {
        // Who does not know which tombstones were forgotten may hold what they buried: it starts anew.
        let since = if want.floor < self.floor && want.since < self.floor { 0 } else { want.since };
        let mut changes: Vec<_> = self.changes.iter().filter(|change| change.version > since).collect();
        changes.sort_unstable_by_key(|change| change.version);
        let mut left = bytes.saturating_sub(40);
        let fitting = changes.iter().take_while(|change| {
            let fits = change.bytes() <= left;
            left = left.saturating_sub(change.bytes());
            fits
        });
        let fitting = fitting.count();
        let is_complete = fitting == changes.len();
        changes.truncate(fitting);
        (is_complete || !changes.is_empty()).then(|| Delta {
            owner: want.owner,
            incarnation: want.incarnation,
            floor: self.floor,
            since,
            is_complete,
            hash: self.hash,
            changes: changes.into_iter().cloned().collect(),
        })
    }

    /// What these would be after a delta; none if it does not follow on them, or says nothing new.
    pub(super) fn after(&self, delta: &Delta) -> Option<Self> {
        let last = delta.changes.last().map_or(delta.since, |change| change.version);
        // What we hold is from before tombstones that were forgotten, or does not fit together: its first part may be older.
        let must_start_anew = self.held == 0 || (self.held < delta.floor && self.floor < delta.floor);
        let is_behind = last > self.held
            || (last == self.held && delta.floor > self.floor)
            || (delta.since == 0 && must_start_anew);
        if delta.since > self.held || !is_behind {
            return None;
        }
        let mut after = if delta.since == 0 { Self::default() } else { self.clone() };
        for change in &delta.changes {
            after.put(change.clone());
        }
        after.held = last;
        if delta.floor > after.floor {
            after.sweep(delta.floor);
            after.floor = delta.floor;
        }
        if delta.is_complete && after.hash != delta.hash {
            // Something was overwritten between two parts, and its successor was in neither: from the start, then.
            after.held = 0;
        }
        Some(after)
    }

    /// What differs from an earlier state of these: keys, and what they are now.
    pub(super) fn differences<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        let gone = before.iter().filter(|(key, _)| self.get(key).is_none()).map(|(key, _)| (key, None));
        let new = self.iter().filter(|(key, value)| before.get(key) != Some(value));
        gone.chain(new.map(|(key, value)| (key, Some(value))))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let change = |change: &Change| change.key.capacity() + change.value.as_ref().map_or(0, Vec::capacity);
        self.changes.capacity() * size_of::<Change>() + self.changes.iter().map(change).sum::<usize>()
    }

    fn place(&self, key: &str) -> Result<usize, usize> {
        self.changes.binary_search_by(|change| change.key.as_str().cmp(key))
    }

    fn put(&mut self, change: Change) {
        self.hash ^= change.hash();
        match self.place(&change.key) {
            Ok(place) => {
                self.hash ^= self.changes[place].hash();
                self.changes[place] = change;
            }
            Err(place) => self.changes.insert(place, change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::{Incarnation, NodeId};
    use proptest::prelude::*;

    fn want(entries: &Entries) -> Want {
        let (since, floor) = entries.want();
        Want { owner: NodeId(1), incarnation: Incarnation(1), since, floor }
    }

    /// Asks `from` until there is nothing more, in deltas of so many bytes.
    fn follow(reader: &mut Entries, from: &Entries, bytes: usize) {
        for _ in 0..100 {
            if reader.hash() == from.hash() {
                return;
            }
            let delta = from.delta(&want(reader), bytes).expect("one change fits");
            if let Some(after) = reader.after(&delta) {
                *reader = after;
            }
        }
        panic!("{reader:?} never became {from:?}");
    }

    proptest! {
        /// Whatever is written, removed and swept, a reader that asks now and then, in small pieces, through another reader that
        /// may be behind, ends with the owner's entries.
        #[test]
        fn readers_come_to_hold_what_the_owner_has(
            writes in prop::collection::vec((0_u8..6, prop::option::of(0_usize..40), 0_u8..6), 1..60),
        ) {
            let (mut owner, mut relay, mut reader) = <(Entries, Entries, Entries)>::default();
            for (version, (key, value, then)) in (1..).zip(writes) {
                let key = std::format!("key {key}");
                owner.write(version, &key, value.map(|length| alloc::vec![7; length]));
                match then {
                    0 => follow(&mut relay, &owner, 130),
                    1 => if let Some(delta) = relay.delta(&want(&reader), 130)
                        && let Some(after) = reader.after(&delta) { reader = after },
                    2 => if let Some(delta) = owner.delta(&want(&reader), 130)
                        && let Some(after) = reader.after(&delta) { reader = after },
                    3 => drop(owner.sweep(version.saturating_sub(5))),
                    _ => {}
                }
            }
            follow(&mut relay, &owner, 130);
            follow(&mut reader, &relay, 130);
            prop_assert!(owner.iter().eq(reader.iter()));
            prop_assert_eq!(owner.hash(), reader.hash());
        }
    }

    #[test]
    fn a_delta_is_no_longer_than_allowed() {
        let mut owner = Entries::default();
        (1..20)
            .for_each(|version| owner.write(version, &std::format!("{version}"), Some(alloc::vec![0; 200])));
        let delta = owner.delta(&want(&Entries::default()), 1000).expect("some fit");
        assert!(!delta.is_complete && delta.changes.len() == 4, "{}", delta.changes.len());
        assert!(postcard::to_allocvec(&delta).is_ok_and(|bytes| bytes.len() <= 1000));
    }
}
