//! The segments of a space, by where its programs see them.

use std::collections::BTreeMap;

use comb_kernel::objects::{Refused, SpaceId, SpaceLoad, Tag};
use comb_kernel::supervisor::CallError;
use comb_kernel::thread::Touch;
use thiserror::Error;

use super::{Arrival, Counts, FaultError, PAGE_BYTES, Place, Resources, Rights, Segment};

/// A segment cannot be seen where another is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{pages} pages from {first:#x} on are not free")]
pub struct Overlap {
    /// The first page.
    pub first: u64,
    /// How many.
    pub pages: u64,
}

struct Seen {
    rights: Rights,
    segment: Box<dyn Segment>,
}

/// Those of a space.
pub struct Segments {
    tag: Tag,
    space: Option<SpaceId>,
    /// By their first page.
    all: BTreeMap<u64, Seen>,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments").field("tag", &self.tag).field("space", &self.space).finish_non_exhaustive()
    }
}

impl Segments {
    /// A space's, which its kernel names so. It is loaded when it is needed.
    pub fn new(tag: Tag) -> Self {
        Self { tag, space: None, all: BTreeMap::new() }
    }

    /// Has a segment seen from a page of the space on.
    pub fn add(&mut self, first: u64, rights: Rights, segment: Box<dyn Segment>) -> Result<(), Overlap> {
        let pages = segment.pages();
        let overlap = Overlap { first, pages };
        let end = first.checked_add(pages).ok_or(overlap)?;
        if pages == 0
            || self.all.range(..end).next_back().is_some_and(|(at, seen)| at + seen.segment.pages() > first)
        {
            return Err(overlap);
        }
        self.all.insert(first, Seen { rights, segment });
        Ok(())
    }

    /// A place for so many pages, at this one or behind it, where nothing is.
    pub fn find_room(&self, from: u64, pages: u64, alignment: u64) -> u64 {
        let mut first = from.next_multiple_of(alignment);
        for (at, seen) in &self.all {
            if *at < first.saturating_add(pages) && at + seen.segment.pages() > first {
                first = (at + seen.segment.pages()).next_multiple_of(alignment);
            }
        }
        first
    }

    /// What all of them have done.
    pub fn counts(&self) -> Counts {
        self.all.values().map(|seen| seen.segment.counts()).fold(Counts::default(), |sum, one| Counts {
            faults: sum.faults + one.faults,
            here: sum.here + one.here,
            read: sum.read + one.read,
            written: sum.written + one.written,
        })
    }

    /// The space, which is loaded if it is not.
    pub fn space(&mut self, resources: &mut Resources) -> Result<SpaceId, CallError> {
        match self.space {
            Some(space) => Ok(space),
            None => {
                let space = resources.calls().load_space(SpaceLoad { tag: self.tag, locked: false })?;
                self.space = Some(space);
                Ok(space)
            }
        }
    }

    /// The segment that is seen at a page, and where.
    fn find(
        &mut self,
        resources: &mut Resources,
        address: u64,
        touch: Touch,
    ) -> Result<(Place, u64, &mut dyn Segment), FaultError> {
        let (tag, space) = (self.tag, self.space(resources)?);
        let page = address / PAGE_BYTES as u64;
        let outside = FaultError::Outside { address, touch };
        let Some((&first, seen)) = self.all.range_mut(..=page).next_back() else { return Err(outside) };
        if page - first >= seen.segment.pages() {
            return Err(outside);
        }
        Ok((Place { tag, space, first, rights: seen.rights }, page - first, &mut *seen.segment))
    }

    /// Answers a thread's fault: when this returns, it can go on.
    pub fn fault(&mut self, resources: &mut Resources, address: u64, touch: Touch) -> Result<(), FaultError> {
        let (place, page, segment) = self.find(resources, address, touch)?;
        segment.fault(resources, &place, page, touch)
    }

    /// The same, without waiting for what is slow: see [`Segment::begin_fault`].
    pub fn begin_fault(
        &mut self,
        resources: &mut Resources,
        address: u64,
        touch: Touch,
    ) -> Result<Arrival, FaultError> {
        let (place, page, segment) = self.find(resources, address, touch)?;
        segment.begin_fault(resources, &place, page, touch)
    }

    /// Copies what the space has there.
    pub fn read(&mut self, resources: &mut Resources, address: u64, to: &mut [u8]) -> Result<(), FaultError> {
        let mut done = 0;
        while done < to.len() {
            let at = address.wrapping_add(done as u64);
            let (place, page, segment) = self.find(resources, at, Touch::Read)?;
            let frame = segment.locate(resources, &place, page, Touch::Read)?;
            let offset = usize::try_from(at % PAGE_BYTES as u64).expect("less than a page");
            let some = (PAGE_BYTES - offset).min(to.len() - done);
            resources.copy_out(frame, offset, &mut to[done..done + some]);
            done += some;
        }
        Ok(())
    }

    /// Writes there, as a thread of the space could.
    pub fn write(&mut self, resources: &mut Resources, address: u64, from: &[u8]) -> Result<(), FaultError> {
        let mut done = 0;
        while done < from.len() {
            let at = address.wrapping_add(done as u64);
            let (place, page, segment) = self.find(resources, at, Touch::Write)?;
            let frame = segment.locate(resources, &place, page, Touch::Write)?;
            let offset = usize::try_from(at % PAGE_BYTES as u64).expect("less than a page");
            let some = (PAGE_BYTES - offset).min(from.len() - done);
            resources.copy_in(frame, offset, &from[done..done + some]);
            done += some;
        }
        Ok(())
    }

    /// A page's mapping is not loaded any more.
    pub fn written_back(&mut self, page: u64, modified: bool, referenced: bool) {
        if let Some((first, seen)) = self.all.range_mut(..=page).next_back() {
            seen.segment.written_back(page - first, modified, referenced);
        }
    }

    /// The space is not loaded any more. Its mappings have gone before it.
    pub fn space_written_back(&mut self) {
        self.space = None;
    }

    /// When this returns, all that was modified in the segments of a range of addresses is where it is kept.
    pub fn sync(&mut self, resources: &mut Resources, address: u64, bytes: u64) -> Result<(), FaultError> {
        let end = address.saturating_add(bytes).div_ceil(PAGE_BYTES as u64);
        let (tag, space) = (self.tag, self.space(resources)?);
        let first = address / PAGE_BYTES as u64;
        for (&at, seen) in self.all.range_mut(..end) {
            if at + seen.segment.pages() > first {
                let place = Place { tag, space, first: at, rights: seen.rights };
                seen.segment.sync(resources, &place)?;
            }
        }
        Ok(())
    }

    /// Takes a segment away, with all that was not kept. Whether there was one that begins there.
    pub fn remove(&mut self, resources: &mut Resources, first: u64) -> Result<bool, FaultError> {
        let (tag, space) = (self.tag, self.space(resources)?);
        let Some(mut seen) = self.all.remove(&first) else { return Ok(false) };
        seen.segment.leave(resources, &Place { tag, space, first, rights: seen.rights })?;
        Ok(true)
    }

    /// Ends the space, and gives all frames back.
    pub fn end(&mut self, resources: &mut Resources) -> Result<(), FaultError> {
        while let Some((&first, _)) = self.all.first_key_value() {
            self.remove(resources, first)?;
        }
        match self.space.take().map(|space| resources.calls().unload_space(space)) {
            None | Some(Ok(()) | Err(CallError::Refused(Refused::StaleSpace(_)))) => Ok(()),
            Some(Err(error)) => Err(error.into()),
        }
    }
}
