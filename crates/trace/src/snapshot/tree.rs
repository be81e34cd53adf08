//! A snapshot as a tree, all of it in memory.

use std::io::Read;

use super::reading::{SnapshotFileError, SnapshotReader};
use super::{Entry, Head};

/// All entries, each before what is in it: what is below one stands in one piece behind it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    head: Head,
    entries: Vec<Entry>,
    /// Of each entry, where what is below it ends.
    ends: Vec<usize>,
}

impl Tree {
    /// Reads a snapshot; with what it was, if it was cut off or damaged.
    pub fn read(from: impl Read) -> Result<(Self, Option<SnapshotFileError>), SnapshotFileError> {
        let mut reader = SnapshotReader::new(from)?;
        let mut tree = Self { head: reader.head().clone(), ..Self::default() };
        let mut open: Vec<usize> = Vec::new();
        let fault = loop {
            match reader.next_entry() {
                Ok(Some(entry)) => {
                    let at = tree.entries.len();
                    for ended in open.drain(open.len().min(entry.depth as usize)..) {
                        tree.ends[ended] = at;
                    }
                    open.push(at);
                    tree.entries.push(entry);
                    tree.ends.push(at + 1);
                }
                Ok(None) => break None,
                Err(error) if error.leaves_good_part() => break Some(error),
                Err(error) => return Err(error),
            }
        };
        for ended in open {
            tree.ends[ended] = tree.entries.len();
        }
        Ok((tree, fault))
    }

    /// Of what machine it is.
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// All of it, each before what is in it.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where trees begin, as indices of [`Self::entries`].
    pub fn roots(&self) -> impl Iterator<Item = usize> {
        self.siblings(0, self.entries.len())
    }

    /// What stands directly in a directory.
    pub fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        self.siblings(of + 1, self.ends[of])
    }

    /// An entry and all below it.
    pub fn subtree(&self, of: usize) -> &[Entry] {
        &self.entries[of..self.ends[of]]
    }

    fn siblings(&self, first: usize, end: usize) -> impl Iterator<Item = usize> {
        let within = move |at: &usize| *at < end;
        std::iter::successors(Some(first).filter(within), move |&at| Some(self.ends[at]).filter(within))
    }
}
