//! What there is in all: by kind of file, by size, by age. (Thesis §9.5)

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::io::Read;

use foldhash::fast::RandomState;

use super::reading::{SnapshotFileError, SnapshotReader};
use super::{Entry, Head};
use crate::event::Identity;
use crate::file_type::FileType;

/// So many of the largest files are named.
const MOST_LARGEST: usize = 10;

/// Files and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Amount {
    /// How many.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// How sizes are distributed: a few large files hold most of the bytes, so each class says both. (Thesis §9.5)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes([Amount; 65]);

impl Default for Sizes {
    fn default() -> Self {
        Self([Amount::default(); 65])
    }
}

impl Sizes {
    fn add(&mut self, size: u64) {
        self.0[(u64::BITS - size.leading_zeros()) as usize].add(size);
    }

    /// The classes from the smallest to the largest that there is: each with the first size that is too large for it. The first are empty
    /// files, and each class behind it reaches twice as far as the one before.
    pub fn classes(&self) -> impl Iterator<Item = (u64, Amount)> {
        let used = self.0.iter().rposition(|amount| amount.files > 0).map_or(0, |last| last + 1);
        let limit = |class: usize| {
            1_u64.checked_shl(u32::try_from(class).expect("classes are few")).unwrap_or(u64::MAX)
        };
        (0..used).map(move |class| (limit(class), self.0[class]))
    }
}

/// What a snapshot holds in all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Files with content. One that has several names counts once for each, and its bytes once.
    pub files: Amount,
    /// The room that they take.
    pub allocated_bytes: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Pipes, sockets, devices.
    pub special: u64,
    /// How far below the root of its tree the deepest entry is, and which is the first of that depth.
    pub deepest: (u32, Vec<u8>),
    /// The longest files, the longest first.
    pub largest: Vec<(u64, Vec<u8>)>,
    /// By kind, and so by category: weighted by count and by bytes the picture differs. (Thesis §9.5)
    pub by_type: BTreeMap<FileType, Amount>,
    /// By size.
    pub sizes: Sizes,
    /// Files that were changed after they were last read, as far as their times say. That cannot be where reading is kept in time, and is
    /// a measure of how little the difference of the two times, a file's functional lifetime, is worth here. (Thesis §9.5)
    pub modified_after_access: u64,
}

impl Totals {
    /// Of a whole snapshot; with what was wrong, if it was cut off or damaged.
    pub fn read(from: impl Read) -> Result<(Self, Option<SnapshotFileError>), SnapshotFileError> {
        let mut reader = SnapshotReader::new(from)?;
        let mut sum = Sum::of(reader.head());
        loop {
            match reader.next_entry() {
                Ok(Some(entry)) => sum.add(&entry),
                Ok(None) => return Ok((sum.finish(), None)),
                Err(error) if error.leaves_good_part() => return Ok((sum.finish(), Some(error))),
                Err(error) => return Err(error),
            }
        }
    }

    /// Kinds of one category together.
    pub fn by_category(&self) -> BTreeMap<&'static str, Amount> {
        let mut all: BTreeMap<&'static str, Amount> = BTreeMap::new();
        for (kind, amount) in &self.by_type {
            let of_category = all.entry(kind.category).or_default();
            of_category.files += amount.files;
            of_category.bytes = of_category.bytes.saturating_add(amount.bytes);
        }
        all
    }

    /// Which part of all files was changed after it was last read; 0 if there is none.
    pub fn share_modified_after_access(&self) -> f64 {
        self.modified_after_access as f64 / self.files.files.max(1) as f64
    }
}

/// Adds up.
pub struct Sum {
    totals: Totals,
    systems: HashMap<u32, String>,
    /// Files with several names that have been counted.
    counted: HashSet<Identity, RandomState>,
    largest: BinaryHeap<Reverse<(u64, Reverse<Vec<u8>>)>>,
}

impl Sum {
    /// Nothing yet, of a snapshot that begins so.
    pub fn of(head: &Head) -> Self {
        Self {
            totals: Totals::default(),
            systems: head.systems(),
            counted: HashSet::default(),
            largest: BinaryHeap::new(),
        }
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry) {
        let attributes = &entry.attributes;
        if entry.depth > self.totals.deepest.0 || self.totals.deepest.1.is_empty() {
            self.totals.deepest = (entry.depth, entry.path.clone());
        }
        if !attributes.is_regular() {
            let count = match () {
                () if attributes.is_directory() => &mut self.totals.directories,
                () if attributes.is_link() => &mut self.totals.links,
                () => &mut self.totals.special,
            };
            *count += 1;
            return;
        }
        let is_first_name = attributes.links < 2 || self.counted.insert(attributes.file);
        let (size, allocated) =
            if is_first_name { (attributes.size, attributes.allocated_bytes) } else { (0, 0) };
        self.totals.files.add(size);
        self.totals.allocated_bytes = self.totals.allocated_bytes.saturating_add(allocated);
        self.totals.modified_after_access += u64::from(attributes.modified_ns > attributes.accessed_ns);
        let system = self.systems.get(&attributes.file.device).map_or("", String::as_str);
        self.totals.by_type.entry(FileType::of(&entry.path, system, attributes.mode)).or_default().add(size);
        if is_first_name {
            self.totals.sizes.add(attributes.size);
            let is_among_largest = self.largest.len() < MOST_LARGEST
                || self.largest.peek().is_some_and(|Reverse((least, _))| attributes.size > *least);
            if is_among_largest {
                self.largest.push(Reverse((attributes.size, Reverse(entry.path.clone()))));
            }
            if self.largest.len() > MOST_LARGEST {
                self.largest.pop();
            }
        }
    }

    /// The sum.
    pub fn finish(mut self) -> Totals {
        let largest = self.largest.into_sorted_vec().into_iter();
        self.totals.largest = largest.map(|Reverse((size, Reverse(path)))| (size, path)).collect();
        self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Attributes;

    fn file(path: &str, size: u64, inode: u64, links: u32) -> Entry {
        let attributes = Attributes {
            mode: 0o100_644,
            size,
            links,
            file: Identity { inode, ..Identity::default() },
            modified_ns: i64::try_from(size).unwrap(),
            accessed_ns: 100,
            ..Attributes::default()
        };
        let depth = u32::try_from(path.split('/').count()).unwrap();
        Entry { path: path.as_bytes().to_vec(), depth, attributes, directory: None }
    }

    #[test]
    fn files_are_added_up_by_kind_and_size_and_a_second_name_adds_no_bytes() {
        let mut sum = Sum::of(&Head::default());
        for entry in [
            file("/a/one.rs", 0, 1, 1),
            file("/a/b/c/two.rs", 1, 2, 1),
            file("/a/three.png", 4096, 3, 2),
            file("/a/four.png", 4096, 3, 2),
        ] {
            sum.add(&entry);
        }
        let totals = sum.finish();
        assert_eq!(totals.files, Amount { files: 4, bytes: 4097 });
        assert_eq!(totals.by_category()["source"], Amount { files: 2, bytes: 1 });
        assert_eq!(totals.by_category()["media"], Amount { files: 2, bytes: 4096 });
        assert_eq!(totals.deepest, (5, b"/a/b/c/two.rs".to_vec()));
        assert_eq!(totals.largest[0], (4096, b"/a/three.png".to_vec()));
        let classes: Vec<_> = totals.sizes.classes().filter(|(_, amount)| amount.files > 0).collect();
        let one = |bytes| Amount { files: 1, bytes };
        assert_eq!(classes, [(1, one(0)), (2, one(1)), (8192, one(4096))]);
        assert_eq!((totals.modified_after_access, totals.share_modified_after_access()), (2, 0.5));
    }

    #[test]
    fn the_largest_are_kept_of_many() {
        let mut sum = Sum::of(&Head::default());
        for size in 0..1000 {
            sum.add(&file("/x", size * 7919 % 1000, size + 1, 1));
        }
        let sizes: Vec<u64> = sum.finish().largest.into_iter().map(|(size, _)| size).collect();
        assert_eq!(sizes, (990..1000).rev().collect::<Vec<u64>>());
    }
}
