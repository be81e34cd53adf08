//! What has changed between two snapshots.
//!
//! Both are read side by side, which their order makes possible: of files that are as they were nothing is kept. What came and what went is
//! kept until it is known whether it is one file that moved, up to [`MOST_HELD`] of each.

mod subtree;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::ops::AddAssign;

use foldhash::fast::RandomState;
use thiserror::Error;

pub use self::subtree::{Step, Subtree};
use super::reading::{SnapshotFileError, SnapshotReader};
use super::{Entry, Inside};
use crate::event::Identity;
use crate::file_type::FileType;

/// So many files that came, and as many that went, are kept to find those that moved: about 200 bytes each. Of more, the rest counts as
/// added and removed, and [`Difference::are_moves_complete`] says so.
pub const MOST_HELD: usize = 1 << 20;

/// Why two snapshots cannot be compared.
#[derive(Debug, Error)]
pub enum DifferenceError {
    /// The earlier one is at fault.
    #[error("the earlier snapshot: {0}")]
    Old(#[source] SnapshotFileError),
    /// The later one is at fault.
    #[error("the later snapshot: {0}")]
    New(#[source] SnapshotFileError),
    /// Their names cannot be compared.
    #[error("names are hashed by different keys in the two; take both with one key, or without hashing")]
    OtherNames,
    /// They are of different trees.
    #[error("the two show different trees; take both of the same directories")]
    OtherRoots,
}

/// A change to one file. Of directories a change is one of permissions: their sizes and times follow from what is in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// It was not there.
    Added(&'a Entry),
    /// It is not there any more.
    Removed(&'a Entry),
    /// It has another size, another time of modification or other permissions.
    Changed {
        /// As it was.
        old: &'a Entry,
        /// As it is.
        new: &'a Entry,
    },
    /// It has another path, and may have changed as well.
    Moved {
        /// As it was.
        old: &'a Entry,
        /// As it is.
        new: &'a Entry,
    },
}

/// How many changes of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Came.
    pub added: u64,
    /// Went.
    pub removed: u64,
    /// Changed.
    pub changed: u64,
    /// Moved.
    pub moved: u64,
}

impl Changes {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.added + self.removed + self.changed + self.moved
    }
}

impl AddAssign for Changes {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.removed += other.removed;
        self.changed += other.changed;
        self.moved += other.moved;
    }
}

/// What has changed in all.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Of files, links and whatever else is no directory.
    pub files: Changes,
    /// Of directories.
    pub directories: Changes,
    /// Files that are as they were.
    pub unchanged_files: u64,
    /// How much longer files are that grew, came or replaced others, and how much shorter the others.
    pub grown_bytes: u64,
    /// See there.
    pub shrunk_bytes: u64,
    /// Changes of files by kind.
    pub by_type: BTreeMap<FileType, Changes>,
    /// Changes of files by where they are; what moved counts where it is now.
    pub by_place: Subtree,
    /// Whether each file that moved was recognised.
    pub are_moves_complete: bool,
    /// What one of the two lacks, because it was cut off or damaged: it was compared up to there.
    pub fault: Option<String>,
}

impl Difference {
    /// Changes of files by category.
    pub fn by_category(&self) -> BTreeMap<&'static str, Changes> {
        let mut all: BTreeMap<&'static str, Changes> = BTreeMap::new();
        for (kind, changes) in &self.by_type {
            *all.entry(kind.category).or_default() += *changes;
        }
        all
    }
}

/// The order in which a snapshot's entries stand: part by part, so that what is in a directory stands directly behind it.
pub(super) fn path_order(one: &[u8], other: &[u8]) -> Ordering {
    let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    // A part that ends is before one that goes on, whatever with.
    let rank = |path: &[u8]| match path.get(common) {
        None => 0,
        Some(b'/') => 1,
        Some(&byte) => u16::from(byte) + 2,
    };
    rank(one).cmp(&rank(other))
}

/// Compares two snapshots, and tells each change: first what can be told at once, in order; then what came, went or moved, as it turns out.
pub fn difference(
    old: impl Read,
    new: impl Read,
    mut tell: impl FnMut(Change<'_>),
) -> Result<Difference, DifferenceError> {
    let mut old = SnapshotReader::new(old).map_err(DifferenceError::Old)?;
    let mut new = SnapshotReader::new(new).map_err(DifferenceError::New)?;
    if old.head().known_name != new.head().known_name {
        return Err(DifferenceError::OtherNames);
    }
    if old.head().roots != new.head().roots {
        return Err(DifferenceError::OtherRoots);
    }
    let mut comparison = Comparison {
        systems: new.head().systems(),
        held: [HashMap::default(), HashMap::default()],
        difference: Difference { are_moves_complete: true, ..Difference::default() },
        tell: &mut tell,
    };
    let mut unseen = Unseen::default();
    let (mut before, mut now) = (None, None);
    let mut is_first = true;
    loop {
        // Whichever was used up.
        if is_first || before.is_none() {
            match old.next_entry() {
                Ok(entry) => before = entry,
                Err(error) if error.leaves_good_part() => {
                    comparison.difference.fault = Some(DifferenceError::Old(error).to_string());
                    break;
                }
                Err(error) => return Err(DifferenceError::Old(error)),
            }
        }
        if is_first || now.is_none() {
            match new.next_entry() {
                Ok(entry) => now = entry,
                Err(error) if error.leaves_good_part() => {
                    comparison.difference.fault = Some(DifferenceError::New(error).to_string());
                    break;
                }
                Err(error) => return Err(DifferenceError::New(error)),
            }
        }
        is_first = false;
        let order = match (&before, &now) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(now)) => path_order(&before.path, &now.path),
        };
        let was = if order.is_le() { before.take() } else { None };
        let is = if order.is_ge() { now.take() } else { None };
        if unseen.holds(was.as_ref(), is.as_ref()) {
            continue;
        }
        comparison.compare(was, is);
    }
    comparison.finish();
    Ok(comparison.difference)
}

/// A directory that only one of the two could look into: nothing can be said of what is in it.
#[derive(Default)]
struct Unseen(Option<Vec<u8>>);

impl Unseen {
    fn holds(&mut self, old: Option<&Entry>, new: Option<&Entry>) -> bool {
        let path = &new.or(old).expect("there is one of them").path;
        if let Some(place) = &self.0 {
            let is_below =
                path.strip_prefix(place.as_slice()).is_some_and(|rest| rest.first() == Some(&b'/'));
            if is_below {
                return true;
            }
            self.0 = None;
        }
        let was_seen = |entry: Option<&Entry>| {
            entry.and_then(|entry| entry.directory).is_none_or(|directory| directory.inside == Inside::Seen)
        };
        if old.is_some() && new.is_some() && was_seen(old) != was_seen(new) {
            self.0 = Some(path.clone());
        }
        false
    }
}

/// Came, and went.
const ADDED: usize = 0;
const REMOVED: usize = 1;

struct Comparison<'a> {
    systems: HashMap<u32, String>,
    /// What came, and what went, of which the other half may follow.
    held: [HashMap<Identity, Entry, RandomState>; 2],
    difference: Difference,
    tell: &'a mut dyn FnMut(Change<'_>),
}

impl Comparison<'_> {
    fn compare(&mut self, old: Option<Entry>, new: Option<Entry>) {
        match (old, new) {
            (Some(old), Some(new)) if is_same_type(&old, &new) => {
                if has_changed(&old, &new) {
                    self.count(Change::Changed { old: &old, new: &new });
                } else if !new.attributes.is_directory() {
                    self.difference.unchanged_files += 1;
                }
            }
            (old, new) => {
                old.into_iter().for_each(|old| self.hold(old, REMOVED));
                new.into_iter().for_each(|new| self.hold(new, ADDED));
            }
        }
    }

    /// Looks for the other half of a move, and keeps this one if it is not there.
    fn hold(&mut self, entry: Entry, side: usize) {
        let file = entry.attributes.file;
        let other = self.held[1 - side].get(&file);
        if other.is_some_and(|other| is_same_file(other, &entry)) {
            let other = self.held[1 - side].remove(&file).expect("it was there");
            let (old, new) = if side == ADDED { (&other, &entry) } else { (&entry, &other) };
            return self.count(Change::Moved { old, new });
        }
        if self.held[side].len() >= MOST_HELD {
            self.difference.are_moves_complete = false;
            return self.count(came_or_went(side, &entry));
        }
        // Of a file with several names, one can be recognised.
        if let Some(earlier) = self.held[side].insert(file, entry) {
            self.count(came_or_went(side, &earlier));
        }
    }

    fn finish(&mut self) {
        for side in [REMOVED, ADDED] {
            let mut left: Vec<Entry> = std::mem::take(&mut self.held[side]).into_values().collect();
            left.sort_unstable_by(|one, other| path_order(&one.path, &other.path));
            left.iter().for_each(|entry| self.count(came_or_went(side, entry)));
        }
    }

    fn count(&mut self, change: Change<'_>) {
        (self.tell)(change);
        let mut counted = Changes::default();
        let (entry, old_size, new_size) = match change {
            Change::Added(entry) => {
                counted.added = 1;
                (entry, 0, entry.attributes.size)
            }
            Change::Removed(entry) => {
                counted.removed = 1;
                (entry, entry.attributes.size, 0)
            }
            Change::Changed { old, new } => {
                counted.changed = 1;
                (new, old.attributes.size, new.attributes.size)
            }
            Change::Moved { old, new } => {
                counted.moved = 1;
                (new, old.attributes.size, new.attributes.size)
            }
        };
        let difference = &mut self.difference;
        if entry.attributes.is_directory() {
            difference.directories += counted;
            return;
        }
        difference.files += counted;
        if entry.attributes.is_regular() {
            let (grown, shrunk) = (&mut difference.grown_bytes, &mut difference.shrunk_bytes);
            *grown = grown.saturating_add(new_size.saturating_sub(old_size));
            *shrunk = shrunk.saturating_add(old_size.saturating_sub(new_size));
        }
        let system = self.systems.get(&entry.attributes.file.device).map_or("", String::as_str);
        let kind = FileType::of(&entry.path, system, entry.attributes.mode);
        *difference.by_type.entry(kind).or_default() += counted;
        difference.by_place.count(&entry.path, counted);
    }
}

const fn came_or_went(side: usize, entry: &Entry) -> Change<'_> {
    if side == ADDED { Change::Added(entry) } else { Change::Removed(entry) }
}

fn is_same_type(old: &Entry, new: &Entry) -> bool {
    (old.attributes.mode ^ new.attributes.mode) & super::TYPE == 0
}

fn has_changed(old: &Entry, new: &Entry) -> bool {
    let (old, new) = (&old.attributes, &new.attributes);
    let is_other = old.size != new.size || old.modified_ns != new.modified_ns;
    old.mode != new.mode || (is_other && !new.is_directory())
}

/// Whether two paths are of one file. Numbers of files that are gone are given to new ones, so it must have been born at the same time; or,
/// where that is not kept, not have changed.
fn is_same_file(one: &Entry, other: &Entry) -> bool {
    is_same_type(one, other)
        && match (one.attributes.born_ns, other.attributes.born_ns) {
            (Some(one), Some(other)) => one == other,
            _ => !has_changed(one, other),
        }
}

#[cfg(test)]
mod tests;
