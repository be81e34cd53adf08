//! Who has what of a cell, and what is left. What is granted is there: nothing is promised twice.

use std::collections::{BTreeMap, BTreeSet};

use comb_kernel::objects::{Locks, Tag};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a kernel is to have. Large units, for seconds to minutes: it divides them itself. (Cache Kernel §3)
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Allotment {
    /// Page groups.
    pub groups: u32,
    /// How much of each processor's time, in percent: of the first, the second and so on. Those that are not named it has nothing of.
    pub processor_shares: Vec<u8>,
    /// The highest priority its threads can have.
    pub maximum_priority: u8,
    /// What it may send and receive, in bytes a second.
    pub network: u64,
    /// How many of its objects can be locked.
    pub locks: Locks,
    /// Whether it is locked itself, without which its locks are none.
    pub locked: bool,
}

/// What all kernels together can have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// These page groups.
    pub groups: std::ops::Range<u32>,
    /// So much of each processor, in percent.
    pub processor_shares: Vec<u8>,
    /// The highest priority that one can be granted.
    pub maximum_priority: u8,
    /// What all may send and receive, in bytes a second.
    pub network: u64,
    /// How many can be loaded at a time.
    pub kernels: u32,
}

/// What is left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Free {
    /// Page groups.
    pub groups: u32,
    /// Of each processor, in percent.
    pub processor_shares: Vec<u8>,
    /// In bytes a second.
    pub network: u64,
    /// So many kernels more can be loaded.
    pub kernels: u32,
}

/// Why something is not granted. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Overcommitted {
    /// Too much memory.
    #[error("{asked} page groups are asked for, and {free} are free")]
    Groups {
        /// What was asked for.
        asked: u32,
        /// And what there is, as below.
        free: u32,
    },
    /// More than is left of a processor.
    #[error("{asked} % of processor {processor} are asked for, and {free} % are free")]
    Processor {
        /// Of which.
        processor: usize,
        /// In percent.
        asked: u8,
        /// In percent.
        free: u8,
    },
    /// A share of a processor that is not there, even if it is none.
    #[error("there is no processor {0}")]
    NoProcessor(usize),
    /// A higher priority than any kernel can have.
    #[error("priority {asked} is asked for, and the highest that is granted is {highest}")]
    Priority {
        /// Which.
        asked: u8,
        /// The highest.
        highest: u8,
    },
    /// More of the network than is left.
    #[error("{asked} bytes a second are asked for, and {free} are free")]
    Network {
        /// In bytes a second.
        asked: u64,
        /// In bytes a second.
        free: u64,
    },
    /// As many kernels as can be are loaded.
    #[error("no more kernels can be loaded at a time")]
    Kernels,
}

#[derive(Clone, Debug)]
struct Entry {
    allotment: Allotment,
    /// Its page groups. Nothing: it is swapped out, and has nothing of anything.
    groups: Option<BTreeSet<u32>>,
}

/// The book of one cell.
#[derive(Clone, Debug)]
pub struct Book {
    capacity: Capacity,
    free: BTreeSet<u32>,
    entries: BTreeMap<Tag, Entry>,
}

impl Book {
    /// One in which nobody has anything.
    pub fn new(capacity: Capacity) -> Self {
        let free = capacity.groups.clone().collect();
        Self { capacity, free, entries: BTreeMap::new() }
    }

    fn present(&self) -> impl Iterator<Item = &Allotment> {
        self.entries.values().filter(|entry| entry.groups.is_some()).map(|entry| &entry.allotment)
    }

    /// What is left.
    pub fn free(&self) -> Free {
        let taken = |processor: usize| -> u32 {
            self.present()
                .filter_map(|has| has.processor_shares.get(processor))
                .map(|of| u32::from(*of))
                .sum()
        };
        let shares = self.capacity.processor_shares.iter().enumerate();
        let left = |(processor, share): (usize, &u8)| {
            u8::try_from(u32::from(*share) - taken(processor)).expect("no more than there was")
        };
        Free {
            groups: u32::try_from(self.free.len()).expect("as many as there are"),
            processor_shares: shares.map(left).collect(),
            network: self.capacity.network - self.present().map(|has| has.network).sum::<u64>(),
            kernels: self.capacity.kernels - u32::try_from(self.present().count()).expect("a few"),
        }
    }

    /// What a kernel was granted, and whether it has it now.
    pub fn allotment(&self, kernel: Tag) -> Option<(&Allotment, bool)> {
        self.entries.get(&kernel).map(|entry| (&entry.allotment, entry.groups.is_some()))
    }

    /// The page groups that a kernel has, in ascending order.
    pub fn groups(&self, kernel: Tag) -> Vec<u32> {
        let groups = self.entries.get(&kernel).and_then(|entry| entry.groups.as_ref());
        groups.into_iter().flatten().copied().collect()
    }

    fn check(&self, asked: &Allotment) -> Result<(), Overcommitted> {
        let free = self.free();
        if free.kernels == 0 {
            return Err(Overcommitted::Kernels);
        }
        if asked.groups > free.groups {
            return Err(Overcommitted::Groups { asked: asked.groups, free: free.groups });
        }
        let highest = self.capacity.maximum_priority;
        if asked.maximum_priority > highest {
            return Err(Overcommitted::Priority { asked: asked.maximum_priority, highest });
        }
        if asked.network > free.network {
            return Err(Overcommitted::Network { asked: asked.network, free: free.network });
        }
        for (processor, &asked) in asked.processor_shares.iter().enumerate() {
            let free = free.processor_shares.get(processor).copied();
            let free = free.ok_or(Overcommitted::NoProcessor(processor))?;
            if asked > free {
                return Err(Overcommitted::Processor { processor, asked, free });
            }
        }
        Ok(())
    }

    fn lowest(&mut self, count: u32) -> BTreeSet<u32> {
        (0..count).map_while(|_| self.free.pop_first()).collect()
    }

    /// Enters a kernel that was not there: which page groups it has.
    pub fn enter(&mut self, kernel: Tag, asked: &Allotment) -> Result<Vec<u32>, Overcommitted> {
        assert!(!self.entries.contains_key(&kernel), "it is entered once");
        self.check(asked)?;
        let groups = self.lowest(asked.groups);
        self.entries.insert(kernel, Entry { allotment: asked.clone(), groups: Some(groups) });
        Ok(self.groups(kernel))
    }

    /// A kernel is swapped out: others can have what it had.
    pub fn release(&mut self, kernel: Tag) {
        if let Some(groups) = self.entries.get_mut(&kernel).and_then(|entry| entry.groups.take()) {
            self.free.extend(groups);
        }
    }

    /// A kernel comes back: which page groups it has now.
    pub fn retake(&mut self, kernel: Tag) -> Result<Vec<u32>, Overcommitted> {
        assert!(self.groups(kernel).is_empty(), "it has nothing");
        let asked = self.entries[&kernel].allotment.clone();
        self.check(&asked)?;
        let groups = self.lowest(asked.groups);
        self.entries.get_mut(&kernel).expect("it was just there").groups = Some(groups);
        Ok(self.groups(kernel))
    }

    /// A kernel is no more.
    pub fn strike(&mut self, kernel: Tag) {
        self.release(kernel);
        self.entries.remove(&kernel);
    }

    /// Changes what a kernel has beside memory.
    pub fn change(&mut self, kernel: Tag, change: impl FnOnce(&mut Allotment)) -> Result<(), Overcommitted> {
        let before = self.entries[&kernel].clone();
        let mut asked = before.allotment.clone();
        change(&mut asked);
        asked.groups = before.allotment.groups;
        // It is seen as if it came anew, with the memory that it has.
        let mut others = self.clone();
        others.strike(kernel);
        others.check(&asked)?;
        self.entries.get_mut(&kernel).expect("it was just there").allotment = asked;
        Ok(())
    }

    /// Gives a kernel more page groups: which.
    pub fn add(&mut self, kernel: Tag, count: u32) -> Result<Vec<u32>, Overcommitted> {
        let free = self.free().groups;
        if count > free {
            return Err(Overcommitted::Groups { asked: count, free });
        }
        let more = self.lowest(count);
        let entry = self.entries.get_mut(&kernel).expect("who asks has looked");
        entry.allotment.groups += count;
        entry.groups.as_mut().expect("it is loaded").extend(&more);
        Ok(more.into_iter().collect())
    }

    /// Which page groups a kernel would lose if so many were taken: the last.
    pub fn last(&self, kernel: Tag, count: u32) -> Vec<u32> {
        let groups = self.groups(kernel);
        groups[groups.len().saturating_sub(count as usize)..].to_vec()
    }

    /// Takes page groups that a kernel has.
    pub fn subtract(&mut self, kernel: Tag, groups: &[u32]) {
        let entry = self.entries.get_mut(&kernel).expect("who asks has looked");
        let has = entry.groups.as_mut().expect("it is loaded");
        for group in groups {
            if has.remove(group) {
                entry.allotment.groups -= 1;
                self.free.insert(*group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capacity() -> Capacity {
        Capacity {
            groups: 2..12,
            processor_shares: vec![100, 80],
            maximum_priority: 9,
            network: 1000,
            kernels: 3,
        }
    }

    #[test]
    fn what_is_not_there_is_refused_by_name_and_changes_nothing() {
        let mut book = Book::new(capacity());
        let has =
            Allotment { groups: 6, processor_shares: vec![60, 10], network: 600, ..Allotment::default() };
        assert_eq!(book.enter(Tag(1), &has), Ok((2..8).collect()));
        let before = book.free();
        assert_eq!(before, Free { groups: 4, processor_shares: vec![40, 70], network: 400, kernels: 2 });
        let refused = |asked: Allotment| Book::enter(&mut book.clone(), Tag(2), &asked).unwrap_err();
        let some = Allotment::default();
        assert_eq!(
            refused(Allotment { groups: 5, ..some.clone() }),
            Overcommitted::Groups { asked: 5, free: 4 }
        );
        assert_eq!(
            refused(Allotment { processor_shares: vec![0, 71], ..some.clone() }),
            Overcommitted::Processor { processor: 1, asked: 71, free: 70 }
        );
        assert_eq!(
            refused(Allotment { processor_shares: vec![0, 0, 0], ..some.clone() }),
            Overcommitted::NoProcessor(2)
        );
        assert_eq!(
            refused(Allotment { maximum_priority: 10, ..some.clone() }),
            Overcommitted::Priority { asked: 10, highest: 9 }
        );
        assert_eq!(
            refused(Allotment { network: 401, ..some }),
            Overcommitted::Network { asked: 401, free: 400 }
        );
        assert_eq!(
            book.change(Tag(1), |has| has.network = 1001).unwrap_err().to_string(),
            "1001 bytes a second are asked for, and 1000 are free"
        );
        assert_eq!(book.free(), before);
        book.change(Tag(1), |has| has.processor_shares = vec![100]).unwrap();
        assert_eq!(book.free().processor_shares, [0, 80]);
    }

    /// Some kernels that come, go, are swapped, and get more or less.
    fn step() -> impl Strategy<Value = (u8, u64, u32, u8, u64)> {
        (0..6_u8, 0..5_u64, 0..8_u32, 0..=100_u8, 0..600_u64)
    }

    proptest! {
        #[test]
        fn nothing_is_ever_with_two(steps in proptest::collection::vec(step(), 1..60)) {
            let mut book = Book::new(capacity());
            for (what, kernel, groups, share, network) in steps {
                let kernel = Tag(kernel);
                let asked = Allotment {
                    groups, processor_shares: vec![share, share / 2], network, ..Allotment::default()
                };
                let has = book.allotment(kernel).map(|(_, is_in)| is_in);
                let before = book.free();
                let refused = match (what, has) {
                    (0, None) => book.enter(kernel, &asked).is_err(),
                    (1, Some(_)) => { book.strike(kernel); false }
                    (2, Some(true)) => { book.release(kernel); false }
                    (3, Some(false)) => book.retake(kernel).is_err(),
                    (4, Some(true)) => book.add(kernel, groups).is_err(),
                    (5, Some(true)) => { let last = book.last(kernel, groups); book.subtract(kernel, &last); false }
                    _ => false,
                };
                if refused {
                    prop_assert_eq!(book.free(), before);
                }
                let mut all: Vec<u32> = (0..5).flat_map(|kernel| book.groups(Tag(kernel))).collect();
                all.extend(&book.free);
                all.sort_unstable();
                prop_assert_eq!(all, (2..12).collect::<Vec<_>>());
                for kernel in (0..5).map(Tag) {
                    if let Some((allotment, true)) = book.allotment(kernel) {
                        prop_assert_eq!(allotment.groups as usize, book.groups(kernel).len());
                    }
                }
                // It would panic if more were taken than there is.
                book.free();
            }
        }
    }
}
