//! Giving back what a home has more than it needs, page after page as the hand of a clock goes round. (Hive §3.2, §5.7)
//!
//! Nobody notices but by the time that the next touch takes: a page that is all zeros has no frame any more and gets one again, another is in swap. What
//! somebody may store to stays, as the home would have to take that right away first.

use std::sync::Arc;

use comb_memory::GivenBack;

use super::{Home, Office};

/// Pages that are looked at before others are served.
const PAGES_AT_ONCE: u64 = 256;
/// Pages that are looked at for one word, at most: 256 MB.
const MOST_PAGES: u64 = 64 << 10;

/// What a home has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HomeMemory {
    /// Bytes of page frames.
    pub frame_bytes: u64,
    /// Bytes of them that nobody may store to.
    pub idle_bytes: u64,
    /// Bytes that are promised to regions, or loaned.
    pub reserved_bytes: u64,
}

/// A home's clock hand. It is of use as long as the home is.
#[derive(Debug)]
pub struct ClockHand {
    office: Arc<Office>,
    /// In which region it is, and at which page.
    region: u64,
    page: u64,
}

impl Home {
    /// Its clock hand, for one thread.
    pub fn clock_hand(&self) -> ClockHand {
        ClockHand { office: Arc::clone(&self.office), region: 0, page: 0 }
    }
}

impl ClockHand {
    /// What the home has now.
    pub fn memory(&self) -> HomeMemory {
        let books = self.office.books();
        let mut memory = HomeMemory { reserved_bytes: books.loans.reserved_bytes(), ..HomeMemory::default() };
        for region in books.regions.values() {
            let (frames, granted) =
                (region.body.exports.resident_bytes(), region.body.exports.granted_bytes());
            memory.frame_bytes += frames;
            memory.idle_bytes += frames.saturating_sub(granted);
        }
        memory
    }

    /// Goes on until so many bytes are given back, once round, or for as many pages as are looked at in a row: how many bytes.
    pub fn give_back(&mut self, bytes: u64) -> u64 {
        let to_swap = std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1);
        let regions = self.office.books().regions.len();
        let (mut given, mut looked_at, mut rounds) = (0, 0, 0);
        while given < bytes && looked_at < MOST_PAGES && rounds <= regions {
            let Some(GivenBack { zero_bytes, swapped_bytes, looked_at: pages }) = self.turn(to_swap) else {
                break;
            };
            given += zero_bytes + swapped_bytes;
            looked_at += pages;
            rounds += usize::from(self.page == 0);
        }
        given
    }

    /// A few pages more. `None`: there are none, or this is not the time for it.
    fn turn(&mut self, to_swap: bool) -> Option<GivenBack> {
        let mut books = self.office.books();
        if books.recovering.is_some() {
            return None;
        }
        let next = books.regions.range(self.region..).next().map(|(&region, _)| region);
        let region = next.or_else(|| books.regions.keys().next().copied())?;
        if region != self.region {
            (self.region, self.page) = (region, 0);
        }
        let exports = &mut books.regions.get_mut(&region)?.body.exports;
        let given = exports.give_back(&mut self.page, PAGES_AT_ONCE, to_swap);
        if self.page == 0 {
            self.region = region + 1;
        }
        Some(given)
    }
}
