//! What goes to make room, and what comes along.

use std::fmt::Debug;
use std::ops::Range;

use super::Pages;

/// What to do next, to get a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Unload what is mapped of these: whoever needs one of them will fault, and nothing is read for that.
    Unload(Range<u64>),
    /// Take the frames of these, of all that are here.
    Evict(Range<u64>),
    /// There is none to be had.
    Nothing,
}

/// Decides for one segment. What is not said is as it is here.
pub trait Replacement: Debug {
    /// What is read when this page has to be: a range with this page. Of its neighbours those are read that are not here, up to the first that is.
    fn along(&mut self, page: u64, pages: &Pages) -> Range<u64> {
        let _ = pages;
        let start = page - page % ALONG;
        start..start + ALONG
    }

    /// What is to be read while the program goes on after a fault at this page, the most urgent first. What is here already is not read.
    fn ahead(&mut self, page: u64, pages: &Pages) -> Vec<Range<u64>> {
        let _ = (page, pages);
        Vec::new()
    }

    /// A thread has touched a page that was not mapped, and will have it.
    fn touched(&mut self, page: u64, pages: &Pages) {
        let _ = (page, pages);
    }

    /// The cache kernel has said of a page that was unloaded that it was referenced.
    fn referenced(&mut self, page: u64) {
        let _ = page;
    }

    /// What to do so that there is room for these, for which a thread waits, or which are read ahead. Called again until there is room, but no more often than there are
    /// twice as many pages.
    fn make_room(&mut self, coming: &Range<u64>, is_awaited: bool, pages: &Pages) -> Step;

    /// How many steps more it does where there are frames enough, but not such that neighbours have neighbouring ones: each that lies apart is mapped by itself, which for
    /// long runs takes longer than to read them.
    fn steps_for_neighbours(&self) -> u32 {
        0
    }

    /// Whether the program will store to a page for certain, as soon as it has it. Then that costs nothing, and the page counts as modified.
    fn is_stored(&self, page: u64) -> bool {
        let _ = page;
        false
    }
}

/// Pages that come together, if nobody says otherwise.
const ALONG: u64 = 16;

/// A clock. Its hand unloads what is mapped, and evicts what is still not mapped when it comes again: a page that was used in between was loaded again by a fault. Those are
/// its referenced bits. (§2.1)
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    hand: u64,
}

impl Replacement for Clock {
    fn make_room(&mut self, _: &Range<u64>, _: bool, pages: &Pages) -> Step {
        let turns = pages.count().div_ceil(ALONG);
        for _ in 0..turns {
            let start = if self.hand < pages.count() { self.hand } else { 0 };
            let range = start..(start + ALONG).min(pages.count());
            self.hand = range.end;
            if range.clone().any(|page| pages.is_mapped(page)) {
                return Step::Unload(range);
            }
            if range.clone().any(|page| pages.is_here(page)) {
                return Step::Evict(range);
            }
        }
        Step::Nothing
    }
}
