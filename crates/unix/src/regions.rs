//! The regions of an address space: what is mapped where, with which rights, backed by what. It says nothing about frames.

use crate::errno::{EEXIST, EINVAL, ENOMEM, Errno};
use crate::machine::{PAGE_BYTES, Rights};
use std::collections::BTreeMap;
use std::ops::Range;

/// As many as Linux allows a process (`vm.max_map_count`): a program cannot make the emulator's tables larger than that.
const MOST_REGIONS: usize = 65530;

/// What may back a region other than zeroes. Two regions with equal backings see the same pages.
pub(crate) trait Backing: Clone {
    /// Whether the two are the same object.
    fn same(&self, other: &Self) -> bool;
}

/// A stretch of addresses that were mapped alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region<B> {
    /// The first address behind it. Its first address is its key.
    pub(crate) end: u64,
    /// What the program may do.
    pub(crate) rights: Rights,
    /// Whether stores are seen by others.
    pub(crate) shared: bool,
    /// Whether it grows towards lower addresses when the page below it is touched.
    pub(crate) grows_down: bool,
    /// The object behind it and the number of its page at the region's start; nothing for zeroes.
    pub(crate) backing: Option<(B, u64)>,
}

impl<B: Backing> Region<B> {
    fn starting_later(&self, pages: u64) -> Region<B> {
        let mut later = self.clone();
        if let Some((_, page)) = &mut later.backing {
            *page += pages;
        }
        later
    }

    fn continues(&self, start: u64, next: &Region<B>) -> bool {
        let backing = match (&self.backing, &next.backing) {
            (None, None) => true,
            (Some((object, page)), Some((other, other_page))) => {
                object.same(other) && page + (self.end - start) / PAGE_BYTES == *other_page
            }
            _ => false,
        };
        backing
            && self.rights == next.rights
            && self.shared == next.shared
            && self.grows_down == next.grows_down
    }
}

/// The regions of one address space.
#[derive(Clone)]
pub(crate) struct Regions<B> {
    regions: BTreeMap<u64, Region<B>>,
    bounds: Range<u64>,
}

/// Whether a range is made of whole pages, is not empty and does not wrap.
fn sound(range: &Range<u64>) -> bool {
    range.start < range.end && range.start.is_multiple_of(PAGE_BYTES) && range.end.is_multiple_of(PAGE_BYTES)
}

impl<B: Backing> Regions<B> {
    /// None yet; all will be within the bounds.
    pub(crate) fn new(bounds: Range<u64>) -> Self {
        Regions { regions: BTreeMap::new(), bounds }
    }

    /// The addresses within which regions lie.
    pub(crate) fn bounds(&self) -> Range<u64> {
        self.bounds.clone()
    }

    /// The region that holds an address.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Region<B>)> {
        let (&start, region) = self.regions.range(..=address).next_back()?;
        (address < region.end).then_some((start, region))
    }

    /// All regions, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Region<B>)> {
        self.regions.iter().map(|(&start, region)| (start, region))
    }

    /// The parts of regions that are within the range, lowest first, each cut to it.
    pub(crate) fn within(&self, range: Range<u64>) -> Vec<(u64, Region<B>)> {
        let first = self.at(range.start).map_or(range.start, |(start, _)| start);
        let mut found = Vec::new();
        for (&start, region) in self.regions.range(first..range.end.max(first)) {
            let from = start.max(range.start);
            let mut part = region.starting_later((from - start) / PAGE_BYTES);
            part.end = region.end.min(range.end);
            found.push((from, part));
        }
        found
    }

    /// Whether every address of the range is in some region.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let mut next = range.start;
        while next < range.end {
            let Some((_, region)) = self.at(next) else { return false };
            next = region.end;
        }
        true
    }

    /// Whether no address of the range is in any region, and all are within the bounds.
    pub(crate) fn is_free(&self, range: &Range<u64>) -> bool {
        self.bounds.start <= range.start
            && range.end <= self.bounds.end
            && self.at(range.start).is_none()
            && self.regions.range(range.clone()).next().is_none()
    }

    /// The highest free range of so many bytes that ends at or below `below`.
    pub(crate) fn find(&self, bytes: u64, below: u64) -> Option<u64> {
        let mut end = below.min(self.bounds.end);
        for (&start, region) in self.regions.range(..end).rev() {
            // The page below a stack is left free, so that it can grow and a run past its end is seen.
            if region.end.checked_add(bytes).is_some_and(|need| need <= end) {
                return Some(end - bytes);
            }
            end = end.min(start);
        }
        let start = end.checked_sub(bytes)?;
        (start >= self.bounds.start).then_some(start)
    }

    /// Maps a region in place of what is there. The caller has taken away the pages of what was there before.
    pub(crate) fn insert(&mut self, start: u64, region: Region<B>) -> Result<(), Errno> {
        let range = start..region.end;
        if !sound(&range) || range.start < self.bounds.start || range.end > self.bounds.end {
            return Err(ENOMEM);
        }
        if self.regions.len() + 2 >= MOST_REGIONS {
            return Err(ENOMEM);
        }
        self.remove(range)?;
        self.regions.insert(start, region);
        self.join(start);
        Ok(())
    }

    /// Maps a region where nothing is yet.
    pub(crate) fn insert_new(&mut self, start: u64, region: Region<B>) -> Result<(), Errno> {
        if !self.is_free(&(start..region.end)) {
            return Err(EEXIST);
        }
        self.insert(start, region)
    }

    /// Takes away what is within the range; holes in it are fine.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Result<(), Errno> {
        if !sound(&range) {
            return Err(EINVAL);
        }
        self.split(range.start)?;
        self.split(range.end)?;
        let starts: Vec<u64> = self.regions.range(range).map(|(&start, _)| start).collect();
        for start in starts {
            self.regions.remove(&start);
        }
        Ok(())
    }

    /// Gives other rights to all within the range, which must have no hole.
    pub(crate) fn protect(&mut self, range: Range<u64>, rights: Rights) -> Result<(), Errno> {
        if !sound(&range) {
            return Err(EINVAL);
        }
        if !self.covers(&range) {
            return Err(ENOMEM);
        }
        self.split(range.start)?;
        self.split(range.end)?;
        let starts: Vec<u64> = self
            .regions
            .range_mut(range)
            .map(|(&start, region)| {
                region.rights = rights;
                start
            })
            .collect();
        for &start in starts.iter().rev() {
            self.join(start);
        }
        Ok(())
    }

    /// Lets a region that grows down begin at a lower page, if nothing is in the way.
    pub(crate) fn grow_down(&mut self, start: u64, lower: u64) -> bool {
        if lower >= start || !lower.is_multiple_of(PAGE_BYTES) || !self.is_free(&(lower..start)) {
            return false;
        }
        if !self.regions.get(&start).is_some_and(|region| region.grows_down && region.backing.is_none()) {
            return false;
        }
        if let Some(region) = self.regions.remove(&start) {
            self.regions.insert(lower, region);
        }
        true
    }

    /// The lowest region that begins above an address.
    pub(crate) fn next_above(&self, address: u64) -> Option<(u64, &Region<B>)> {
        self.regions.range(address..).next().map(|(&start, region)| (start, region))
    }

    fn split(&mut self, address: u64) -> Result<(), Errno> {
        let Some((start, region)) = self.at(address) else { return Ok(()) };
        if start == address {
            return Ok(());
        }
        if self.regions.len() >= MOST_REGIONS {
            return Err(ENOMEM);
        }
        let later = region.starting_later((address - start) / PAGE_BYTES);
        self.regions.insert(address, later);
        if let Some(region) = self.regions.get_mut(&start) {
            region.end = address;
        }
        Ok(())
    }

    /// Joins a region with its neighbours where they go on alike.
    fn join(&mut self, start: u64) {
        let Some(region) = self.regions.get(&start) else { return };
        let end = region.end;
        if let Some(next) = self.regions.get(&end)
            && region.continues(start, next)
        {
            let next_end = next.end;
            self.regions.remove(&end);
            if let Some(region) = self.regions.get_mut(&start) {
                region.end = next_end;
            }
        }
        let Some(region) = self.regions.get(&start) else { return };
        let Some((&before, previous)) = self.regions.range(..start).next_back() else { return };
        if previous.end == start && previous.continues(before, region) {
            let end = region.end;
            self.regions.remove(&start);
            if let Some(previous) = self.regions.get_mut(&before) {
                previous.end = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Object(u8);

    impl Backing for Object {
        fn same(&self, other: &Self) -> bool {
            self == other
        }
    }

    const PAGES: u64 = 24;

    /// What a page is, told one page at a time.
    type Page = Option<(Rights, bool, Option<(u8, u64)>)>;

    fn pages_of(regions: &Regions<Object>) -> Vec<Page> {
        (0..PAGES)
            .map(|page| {
                regions.at(page * PAGE_BYTES).map(|(start, region)| {
                    let backing =
                        region.backing.map(|(object, first)| (object.0, first + page - start / PAGE_BYTES));
                    (region.rights, region.shared, backing)
                })
            })
            .collect()
    }

    fn rights(bits: u8) -> Rights {
        Rights { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 }
    }

    proptest! {
        #[test]
        fn as_page_by_page(steps in proptest::collection::vec((0u8..4, 0..PAGES, 1..9u64, any::<u8>()), 1..60)) {
            let mut regions = Regions::new(0..PAGES * PAGE_BYTES);
            let mut model: Vec<Page> = vec![None; PAGES as usize];
            for (kind, first, count, bits) in steps {
                let end = (first + count).min(PAGES);
                let range = first * PAGE_BYTES..end * PAGE_BYTES;
                match kind {
                    0 | 1 => {
                        let backing = (bits & 8 != 0).then_some((Object(bits >> 7), u64::from(bits >> 4 & 7)));
                        let shared = bits & 64 != 0;
                        regions.insert(range.start, Region {
                            end: range.end, rights: rights(bits), shared, grows_down: false, backing,
                        }).expect("within the bounds");
                        for page in first..end {
                            model[page as usize] =
                                Some((rights(bits), shared, backing.map(|(object, at)| (object.0, at + page - first))));
                        }
                    }
                    2 => {
                        regions.remove(range).expect("a sound range");
                        model[first as usize..end as usize].fill(None);
                    }
                    _ => {
                        let whole = model[first as usize..end as usize].iter().all(Option::is_some);
                        prop_assert_eq!(regions.covers(&range), whole);
                        prop_assert_eq!(regions.protect(range, rights(bits)).is_ok(), whole);
                        if whole {
                            for page in model[first as usize..end as usize].iter_mut().flatten() {
                                page.0 = rights(bits);
                            }
                        }
                    }
                }
                prop_assert_eq!(pages_of(&regions), model.clone());
                // Neighbours that go on alike are one region, so that tables stay as small as they can be.
                let all: Vec<_> = regions.iter().map(|(start, region)| (start, region.clone())).collect();
                for pair in all.windows(2) {
                    prop_assert!(pair[0].1.end <= pair[1].0);
                    prop_assert!(pair[0].1.end < pair[1].0 || !pair[0].1.continues(pair[0].0, &pair[1].1));
                }
                for bytes in [1, 3, 8] {
                    let model_found = (0..=PAGES - bytes).rev()
                        .find(|&at| model[at as usize..(at + bytes) as usize].iter().all(Option::is_none));
                    prop_assert_eq!(
                        regions.find(bytes * PAGE_BYTES, PAGES * PAGE_BYTES).map(|at| at / PAGE_BYTES), model_found);
                }
            }
        }
    }

    #[test]
    fn a_stack_grows_until_something_is_in_the_way() {
        let mut regions: Regions<Object> = Regions::new(0..PAGES * PAGE_BYTES);
        let region = |end: u64, grows_down| Region {
            end: end * PAGE_BYTES,
            rights: Rights::READ_WRITE,
            shared: false,
            grows_down,
            backing: None,
        };
        regions.insert(10 * PAGE_BYTES, region(12, true)).expect("mapped");
        regions.insert(4 * PAGE_BYTES, region(5, false)).expect("mapped");
        assert!(regions.grow_down(10 * PAGE_BYTES, 7 * PAGE_BYTES));
        assert!(!regions.grow_down(7 * PAGE_BYTES, 4 * PAGE_BYTES));
        assert!(!regions.grow_down(4 * PAGE_BYTES, 3 * PAGE_BYTES));
        assert_eq!(regions.at(8 * PAGE_BYTES).map(|(start, _)| start), Some(7 * PAGE_BYTES));
    }
}
