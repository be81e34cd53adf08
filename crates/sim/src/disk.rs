//! A node's disk: files that outlive it, as far as they were synchronised, and as far as the disk is honest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use comb_types::Dice;

/// What the disk of a node does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskConditions {
    /// How long a synchronisation takes.
    pub sync_time: Duration,
    /// Bytes that fit. Writes beyond are refused.
    pub capacity_bytes: usize,
    /// How many synchronisations in a million are reported done and are not.
    pub lost_syncs_per_million: u32,
    /// How many reads in a million come back with one bit turned over, which stays so.
    pub rot_per_million: u32,
}

impl Default for DiskConditions {
    /// A large disk that keeps its word.
    fn default() -> Self {
        Self {
            sync_time: Duration::from_micros(200),
            capacity_bytes: usize::MAX,
            lost_syncs_per_million: 0,
            rot_per_million: 0,
        }
    }
}

/// Names one synchronisation of one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Why the disk did not do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiskError {
    /// Nothing was written.
    #[error("the disk is full")]
    Full,
    /// Nothing was read.
    #[error("there is no such file")]
    NotFound,
}

/// One change that a crash may undo, wholly or in part.
#[derive(Clone, Debug)]
enum Change {
    Write { name: String, offset: usize, bytes: Vec<u8> },
    Truncate { name: String, bytes: usize },
    Remove { name: String },
}

impl Change {
    fn apply(&self, files: &mut BTreeMap<String, Vec<u8>>) {
        match self {
            Self::Write { name, offset, bytes } => {
                let file = files.entry(name.clone()).or_default();
                file.resize(file.len().max(offset + bytes.len()), 0);
                file[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Self::Truncate { name, bytes } => {
                if let Some(file) = files.get_mut(name) {
                    file.truncate(*bytes);
                }
            }
            Self::Remove { name } => drop(files.remove(name)),
        }
    }

    /// The part of it that reached the disk before the power went.
    fn torn(mut self, dice: &mut Dice) -> Self {
        if let Self::Write { bytes, .. } = &mut self {
            bytes.truncate(dice.index(bytes.len() + 1));
        }
        self
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingSync {
    pub(crate) ticket: Ticket,
    changes: u64,
}

/// Files by name. What is written is read back at once; it survives a crash for certain only when a [`Disk::sync`] that
/// was asked for after it has ended.
#[derive(Debug)]
pub struct Disk {
    /// As the node sees them.
    files: BTreeMap<String, Vec<u8>>,
    /// As they are after a crash, before the changes that were under way.
    durable: BTreeMap<String, Vec<u8>>,
    changes: VecDeque<Change>,
    /// Changes that were ever made durable.
    settled: u64,
    syncs: Vec<PendingSync>,
    tickets: u64,
    used_bytes: usize,
    pub(crate) conditions: DiskConditions,
    dice: Dice,
}

impl Disk {
    pub(crate) fn new(dice: Dice) -> Self {
        Self {
            files: BTreeMap::new(),
            durable: BTreeMap::new(),
            changes: VecDeque::new(),
            settled: 0,
            syncs: Vec::new(),
            tickets: 0,
            used_bytes: 0,
            conditions: DiskConditions::default(),
            dice,
        }
    }

    /// Writes at an offset of a file, which is made if there is none. A gap is filled with zeros.
    pub fn write(&mut self, name: &str, offset: usize, bytes: &[u8]) -> Result<(), DiskError> {
        let length = self.files.get(name).map_or(0, Vec::len);
        let grows = offset.saturating_add(bytes.len()).saturating_sub(length);
        if self.used_bytes.saturating_add(grows) > self.conditions.capacity_bytes {
            return Err(DiskError::Full);
        }
        self.used_bytes += grows;
        self.change(Change::Write { name: name.to_owned(), offset, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Writes behind the end of a file.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(name, self.files.get(name).map_or(0, Vec::len), bytes)
    }

    /// The whole of a file, as last written and not as last synchronised.
    pub fn read(&mut self, name: &str) -> Result<Vec<u8>, DiskError> {
        let file = self.files.get_mut(name).ok_or(DiskError::NotFound)?;
        if !file.is_empty() && self.dice.happens(self.conditions.rot_per_million) {
            let (byte, bit) = (self.dice.index(file.len()), self.dice.below(8));
            file[byte] ^= 1 << bit;
            if let Some(rotten) = self.durable.get_mut(name).and_then(|durable| durable.get_mut(byte)) {
                *rotten ^= 1 << bit;
            }
        }
        Ok(file.clone())
    }

    /// Cuts a file off behind so many bytes.
    pub fn truncate(&mut self, name: &str, bytes: usize) {
        if let Some(file) = self.files.get(name) {
            self.used_bytes -= file.len().saturating_sub(bytes);
            self.change(Change::Truncate { name: name.to_owned(), bytes });
        }
    }

    /// Removes a file, if there is one.
    pub fn remove(&mut self, name: &str) {
        if let Some(file) = self.files.get(name) {
            self.used_bytes -= file.len();
            self.change(Change::Remove { name: name.to_owned() });
        }
    }

    /// The names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Asks that everything written before shall survive a crash. Its end comes as [`crate::Input::Synced`].
    pub fn sync(&mut self) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.syncs.push(PendingSync { ticket, changes: self.settled + self.changes.len() as u64 });
        ticket
    }

    /// The synchronisations that were asked for since the last call.
    pub(crate) fn take_syncs(&mut self) -> Vec<PendingSync> {
        std::mem::take(&mut self.syncs)
    }

    /// The time of a synchronisation is over.
    pub(crate) fn synced(&mut self, sync: PendingSync) {
        if self.dice.happens(self.conditions.lost_syncs_per_million) {
            return;
        }
        while self.settled < sync.changes
            && let Some(change) = self.changes.pop_front()
        {
            change.apply(&mut self.durable);
            self.settled += 1;
        }
    }

    /// Of what was not synchronised, each change is there, is not, or is there in part.
    pub(crate) fn crash(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            self.settled += 1;
            match self.dice.below(3) {
                0 => {}
                1 => change.apply(&mut self.durable),
                _ => change.torn(&mut self.dice).apply(&mut self.durable),
            }
        }
        self.syncs.clear();
        self.files = self.durable.clone();
        self.used_bytes = self.files.values().map(Vec::len).sum();
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.files);
        self.changes.push_back(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64) -> Disk {
        Disk::new(Dice::new(seed))
    }

    fn sync_now(disk: &mut Disk) {
        disk.sync();
        disk.take_syncs().into_iter().for_each(|sync| disk.synced(sync));
    }

    #[test]
    fn what_was_synchronised_survives_and_what_was_not_may_be_lost_or_torn() {
        let (mut whole, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..300 {
            let mut disk = disk(seed);
            disk.append("log", b"first").unwrap();
            sync_now(&mut disk);
            disk.append("log", b"second").unwrap();
            disk.crash();
            let left = disk.read("log").unwrap();
            assert!(left.starts_with(b"first"));
            match left.len() - 5 {
                0 => lost += 1,
                6 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(whole > 50 && lost > 50 && torn > 50, "{whole} {lost} {torn}");
    }

    #[test]
    fn a_synchronisation_covers_what_was_written_before_it_was_asked_for() {
        let mut lost = 0;
        for seed in 0..100 {
            let mut disk = disk(seed);
            disk.write("a", 0, b"1").unwrap();
            disk.sync();
            disk.write("a", 0, b"2").unwrap();
            disk.take_syncs().into_iter().for_each(|sync| disk.synced(sync));
            disk.crash();
            let left = disk.read("a").unwrap();
            assert!(left == b"1" || left == b"2");
            lost += u32::from(left == b"1");
        }
        assert!(lost > 20);
    }

    #[test]
    fn a_full_disk_refuses_and_a_removed_file_makes_room() {
        let mut disk = disk(1);
        disk.conditions.capacity_bytes = 10;
        disk.write("a", 0, &[1; 8]).unwrap();
        assert_eq!(disk.append("a", &[1; 3]), Err(DiskError::Full));
        disk.write("a", 4, &[2; 4]).unwrap();
        disk.truncate("a", 2);
        disk.write("b", 0, &[3; 8]).unwrap();
        disk.remove("b");
        assert_eq!(disk.read("b"), Err(DiskError::NotFound));
        disk.append("a", &[4; 8]).unwrap();
    }

    #[test]
    fn what_a_crash_took_away_takes_no_room() {
        for seed in 0..30 {
            let mut disk = disk(seed);
            disk.conditions.capacity_bytes = 10;
            disk.append("a", &[1; 8]).unwrap();
            disk.crash();
            let left = disk.read("a").map_or(0, |bytes| bytes.len());
            assert_eq!(disk.append("a", &vec![2; 10 - left]), Ok(()), "{left} bytes were left");
            assert_eq!(disk.append("a", &[3]), Err(DiskError::Full));
        }
    }

    #[test]
    fn a_disk_that_lies_loses_what_it_said_was_kept() {
        let mut disk = disk(3);
        disk.conditions.lost_syncs_per_million = 1_000_000;
        let mut lost = false;
        for _ in 0..30 {
            disk.write("a", 0, b"x").unwrap();
            sync_now(&mut disk);
            disk.crash();
            lost |= disk.read("a") != Ok(b"x".to_vec());
            disk.remove("a");
            disk.crash();
        }
        assert!(lost);
    }

    #[test]
    fn rot_turns_one_bit_and_it_stays_turned() {
        let mut disk = disk(4);
        disk.write("a", 0, &[0; 16]).unwrap();
        sync_now(&mut disk);
        disk.conditions.rot_per_million = 1_000_000;
        let once = disk.read("a").unwrap();
        assert_eq!(once.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        disk.conditions.rot_per_million = 0;
        disk.crash();
        assert_eq!(disk.read("a").unwrap(), once);
    }
}
