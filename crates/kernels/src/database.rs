//! The kernel of a database. Index pages stay; a scan of leaves that are more than there is memory leaves those that it had first, and takes the place of those that it just had;
//! a row that is looked up costs one page, and no more. (Cache Kernel §3)

use std::collections::BTreeSet;
use std::ops::Range;

use rustix::io::Errno;

use crate::file_kernel::Policy;
use crate::header;
use crate::memory::{Pages, Replacement, Step};
use crate::mp3d::Sweep;

/// In the first page of the program's file: see `programs/database.c`.
const MAGIC: u64 = 0x3165_7361_6261_7464;

/// As far ahead of where a scan was, a fault is that scan's.
const NEAR: u64 = 256;
/// Index pages that are read together.
const INDEX_RUN: u64 = 16;

/// Decides for a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    leaves: Range<u64>,
    index: Range<u64>,
    scan: Sweep,
    /// Where a scan was last.
    position: u64,
    /// Leaves that came for a single row.
    single: BTreeSet<u64>,
    /// The last of these: who needs the next leaf then did not look for a row.
    last: u64,
}

impl Table {
    /// Its leaves, in the order in which they are scanned, and its index.
    pub fn new(leaves: Range<u64>, index: Range<u64>) -> Self {
        let (scan, position) = (Sweep::new(leaves.clone(), index.clone(), false), leaves.start);
        Self { leaves, index, scan, position, single: BTreeSet::new(), last: 0 }
    }

    /// Whether it is a scan that needs a leaf: it is where one begins, or where one was, or behind what one has left or was taken for a row.
    fn is_scanned(&self, page: u64, pages: &Pages) -> bool {
        let before = page - 1;
        page == self.leaves.start
            || (self.position..self.position + NEAR).contains(&page)
            || before == self.last
            || pages.is_here(before) && !self.single.contains(&before)
    }
}

impl Replacement for Table {
    fn along(&mut self, page: u64, pages: &Pages) -> Range<u64> {
        if self.index.contains(&page) {
            let start = page - page % INDEX_RUN;
            start.max(self.index.start)..(start + INDEX_RUN).min(self.index.end)
        } else if self.leaves.contains(&page) && self.is_scanned(page, pages) {
            self.scan.run(page)
        } else {
            page..page + 1
        }
    }

    fn ahead(&mut self, page: u64, pages: &Pages) -> Vec<Range<u64>> {
        if page == self.position && self.leaves.contains(&page) {
            self.scan.ahead(page, pages)
        } else {
            Vec::new()
        }
    }

    fn touched(&mut self, page: u64, pages: &Pages) {
        if !self.leaves.contains(&page) {
            return;
        }
        if self.is_scanned(page, pages) {
            self.position = page;
            self.scan.is_at(page);
        } else {
            self.single.insert(page);
            self.last = page;
        }
    }

    fn make_room(&mut self, coming: &Range<u64>, is_awaited: bool, pages: &Pages) -> Step {
        let step = self.scan.make_room(coming, is_awaited, pages);
        if let Step::Evict(range) = &step {
            self.single.retain(|page| !range.contains(page));
        }
        step
    }

    fn steps_for_neighbours(&self) -> u32 {
        self.scan.steps_for_neighbours()
    }
}

/// For files of the program.
pub fn policy() -> Policy {
    Box::new(|file| {
        let [first_leaf, leaves, first_index, index] = header::read(file, MAGIC)?;
        let of = |first: u64, count: u64| first.checked_add(count).map(|end| first..end).ok_or(Errno::INVAL);
        let (leaves, index) = (of(first_leaf, leaves)?, of(first_index, index)?);
        if leaves.start == 0 {
            return Err(Errno::INVAL);
        }
        header::check(file, &[&leaves, &index])?;
        Ok(Box::new(Table::new(leaves, index)))
    })
}
