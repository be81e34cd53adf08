//! The kernel of a particle simulation, which knows what its program will do: it goes over all molecules, step after step, in one order. So what was just passed is what is
//! needed last, and is what goes; what comes next is read before it is needed; the cells stay. (Cache Kernel §3)

use std::ops::Range;

use rustix::io::Errno;

use crate::file_kernel::Policy;
use crate::header;
use crate::memory::{Pages, Replacement, Step};

/// Pages that are read, written and mapped together.
const RUN: u64 = 128;
/// Runs that are read ahead.
const DEPTH: usize = 4;

/// In the first page of the program's file: see `programs/mp3d.c`.
const MAGIC: u64 = 0x0031_3064_6433_706d;

/// Goes over the same pages in the same order, again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sweep {
    stays: Range<u64>,
    swept: Range<u64>,
    /// Where the program is.
    position: u64,
    /// Whether it stores to all pages.
    stores: bool,
}

impl Sweep {
    /// Over these pages; those do not go.
    pub fn new(swept: Range<u64>, stays: Range<u64>, stores: bool) -> Self {
        let position = swept.start;
        Self { stays, swept, position, stores }
    }

    /// The run that a page is in.
    pub(crate) fn run(&self, page: u64) -> Range<u64> {
        let start = page - page % RUN;
        start.max(self.swept.start)..(start + RUN).min(self.swept.end)
    }

    /// The run behind one, and behind the last the first.
    fn next(&self, run: &Range<u64>) -> Range<u64> {
        self.run(if run.end < self.swept.end { run.end } else { self.swept.start })
    }

    fn previous(&self, run: &Range<u64>) -> Range<u64> {
        self.run(if run.start > self.swept.start { run.start - 1 } else { self.swept.end - 1 })
    }

    /// The program is here.
    pub(crate) fn is_at(&mut self, page: u64) {
        self.position = page;
    }
}

impl Replacement for Sweep {
    fn along(&mut self, page: u64, pages: &Pages) -> Range<u64> {
        if self.swept.contains(&page) {
            return self.run(page);
        }
        let start = page - page % RUN;
        if self.stays.contains(&page) {
            return start.max(self.stays.start)..(start + RUN).min(self.stays.end);
        }
        page..(page + 1).min(pages.count())
    }

    fn ahead(&mut self, page: u64, _: &Pages) -> Vec<Range<u64>> {
        if !self.swept.contains(&page) {
            return Vec::new();
        }
        let first = self.next(&self.run(page));
        std::iter::successors(Some(first), |run| Some(self.next(run))).take(DEPTH).collect()
    }

    fn touched(&mut self, page: u64, _: &Pages) {
        if self.swept.contains(&page) {
            self.is_at(page);
        }
    }

    /// What was passed last, for it is needed last; and to read ahead, nothing that is needed before what comes.
    fn make_room(&mut self, coming: &Range<u64>, is_awaited: bool, pages: &Pages) -> Step {
        let is_coming = |run: &Range<u64>| run.start < coming.end && coming.start < run.end;
        let has_some = |run: &Range<u64>| run.clone().any(|page| pages.is_here(page));
        let here = self.run(self.position);
        let mut run = self.previous(&here);
        while run != here {
            if !is_coming(&run) && has_some(&run) {
                return Step::Evict(run);
            }
            if is_coming(&run) && !is_awaited {
                return Step::Nothing;
            }
            run = self.previous(&run);
        }
        if is_awaited && !is_coming(&here) && has_some(&here) { Step::Evict(here) } else { Step::Nothing }
    }

    fn steps_for_neighbours(&self) -> u32 {
        2
    }

    fn is_stored(&self, page: u64) -> bool {
        self.stores && (self.swept.contains(&page) || self.stays.contains(&page))
    }
}

/// For files of the program.
pub fn policy() -> Policy {
    Box::new(|file| {
        let [_, first_cell, cells, first, molecules] = header::read(file, MAGIC)?;
        let of = |first: u64, count: u64| first.checked_add(count).map(|end| first..end).ok_or(Errno::INVAL);
        let (cells, molecules) = (of(first_cell, cells)?, of(first, molecules)?);
        header::check(file, &[&cells, &molecules])?;
        Ok(Box::new(Sweep::new(molecules, cells, true)))
    })
}
