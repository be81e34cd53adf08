//! What is known of each page of a segment.

use std::ops::Range;

/// A page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Page {
    /// Where it is, if it is here or moves.
    pub(super) frame: u32,
    pub(super) is_here: bool,
    pub(super) is_moving: bool,
    pub(super) is_mapped: bool,
    pub(super) is_modified: bool,
}

/// All of them, to be looked at.
#[derive(Debug)]
pub struct Pages {
    pub(super) all: Vec<Page>,
}

impl Pages {
    pub(super) fn new(pages: u64) -> Self {
        Self { all: vec![Page::default(); usize::try_from(pages).expect("addresses have 64 bits")] }
    }

    fn get(&self, page: u64) -> Page {
        usize::try_from(page).ok().and_then(|page| self.all.get(page)).copied().unwrap_or_default()
    }

    pub(super) fn at(&mut self, page: u64) -> &mut Page {
        &mut self.all[usize::try_from(page).expect("addresses have 64 bits")]
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// Whether it is in a frame.
    pub fn is_here(&self, page: u64) -> bool {
        self.get(page).is_here
    }

    /// Whether it comes or goes at this moment.
    pub fn is_moving(&self, page: u64) -> bool {
        self.get(page).is_moving
    }

    /// Whether its program reaches it without a fault: the library does not hear of touches.
    pub fn is_mapped(&self, page: u64) -> bool {
        self.get(page).is_mapped
    }

    /// Whether it is known to be other than what is kept of it. Of one that is mapped it is not known yet.
    pub fn is_modified(&self, page: u64) -> bool {
        self.get(page).is_modified
    }

    /// The page that is in a frame.
    pub(super) fn frame(&self, page: u64) -> u32 {
        self.get(page).frame
    }

    /// All neighbours of a page, within a range, of which the same can be said.
    pub(super) fn around(&self, page: u64, within: &Range<u64>, is_so: impl Fn(Page) -> bool) -> Range<u64> {
        let (mut start, mut end) = (page, page + 1);
        while start > within.start && is_so(self.get(start - 1)) {
            start -= 1;
        }
        while end < within.end.min(self.count()) && is_so(self.get(end)) {
            end += 1;
        }
        start..end
    }

    /// Stretches of neighbours in a range of which something is so.
    pub(super) fn stretches(&self, range: Range<u64>, is_so: impl Fn(Page) -> bool) -> Vec<Range<u64>> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for page in range.start..range.end.min(self.count()) {
            if !is_so(self.get(page)) {
                continue;
            }
            match stretches.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => stretches.push(page..page + 1),
            }
        }
        stretches
    }
}
