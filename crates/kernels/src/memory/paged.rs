//! A segment whose pages come when they are touched, and go when others need their frames.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use comb_kernel::objects::{Mapping, Refused};
use comb_kernel::supervisor::CallError;
use comb_kernel::thread::Touch;

use super::disk::{self, Done, Job};
use super::pages::{Page, Pages};
use super::{
    Arrival, Backing, BackingError, FaultError, PAGE_BYTES, Piece, Place, Replacement, Resources, Run,
    Segment, Step,
};

/// How many times as many pages are many.
const MANY_BY_FEW: u64 = 8;

/// Pages that are written in one go.
const MOST_AT_ONCE: u64 = 128;

/// What a segment has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Faults that it answered.
    pub faults: u64,
    /// Of these, such of pages that were in frames or on their way: they had been unloaded, or were read ahead.
    pub here: u64,
    /// Pages that were read.
    pub read: u64,
    /// Pages that were written.
    pub written: u64,
}

/// What moves together.
#[derive(Debug)]
struct Transfer {
    going: Vec<u64>,
    coming: Range<u64>,
    /// Frames of those that go which nothing comes into.
    spare: Vec<u32>,
    /// Those that go are only written, and stay.
    stays: bool,
}

/// Who moves pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// This thread, which could do nothing else meanwhile.
    Here,
    /// Another, while other threads of programs run.
    Aside,
    /// Another, before anybody needs them.
    Ahead,
}

/// Pages that are kept in a [`Backing`], and of which a [`Replacement`] decides. No more than a given number is in frames.
#[derive(Debug)]
pub struct Paged {
    pages: Pages,
    backing: Arc<dyn Backing>,
    policy: Box<dyn Replacement>,
    reports: Sender<Done>,
    done: Receiver<Done>,
    most: u32,
    /// Frames that it has.
    held: u32,
    transfers: BTreeMap<u64, Transfer>,
    next_ticket: u64,
    /// What may not go now.
    guarded: Range<u64>,
    /// Pages for which threads wait, that somebody will ask for again.
    awaited: BTreeSet<u64>,
    /// Pages that threads have which have not run since, in a round.
    given: BTreeSet<u64>,
    round: u64,
    /// Why some of them did not come.
    failed: BTreeMap<u64, BackingError>,
    counts: Counts,
}

fn is_away(page: Page) -> bool {
    !page.is_here && !page.is_moving
}

fn count_of(range: &Range<u64>) -> u32 {
    u32::try_from(range.end - range.start).expect("fewer than there are frames")
}

impl Paged {
    /// All pages of a backing, of which so many may be in frames: at least one.
    pub fn new(backing: Arc<dyn Backing>, policy: Box<dyn Replacement>, most: u32) -> Self {
        let (reports, done) = channel();
        Self {
            pages: Pages::new(backing.pages()),
            backing,
            reports,
            done,
            policy,
            most: most.max(1),
            held: 0,
            transfers: BTreeMap::new(),
            next_ticket: 0,
            guarded: 0..0,
            awaited: BTreeSet::new(),
            given: BTreeSet::new(),
            round: 0,
            failed: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    fn check(&self, place: &Place, page: u64, touch: Touch) -> Result<(), FaultError> {
        let is_allowed = match touch {
            Touch::Read => true,
            Touch::Write => place.rights.write,
            Touch::Execute => place.rights.execute,
        };
        let address = (place.first + page) * PAGE_BYTES as u64;
        if page >= self.pages.count() {
            return Err(FaultError::Outside { address, touch });
        }
        if is_allowed { Ok(()) } else { Err(FaultError::Forbidden { address, touch }) }
    }

    /// Has a page brought to a frame. In this thread's way it is there when this returns.
    fn bring_here(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        way: Way,
    ) -> Result<Arrival, FaultError> {
        if self.round != resources.round {
            self.round = resources.round;
            self.given.clear();
        }
        self.awaited.insert(page);
        let brought = self.bring_awaited(resources, place, page, way);
        if !matches!(brought, Ok(Arrival::OnItsWay)) {
            self.awaited.remove(&page);
        }
        if way == Way::Aside && matches!(brought, Ok(Arrival::Here)) {
            self.given.insert(page);
        }
        brought
    }

    fn bring_awaited(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        way: Way,
    ) -> Result<Arrival, FaultError> {
        while let Ok(done) = self.done.try_recv() {
            self.finish(resources, done);
        }
        loop {
            if let Some(error) = self.failed.remove(&page) {
                return Err(error.into());
            }
            if self.pages.is_here(page) {
                return Ok(Arrival::Here);
            }
            if !self.pages.is_moving(page) {
                let wanted = self.policy.along(page, &self.pages);
                self.make_whole(resources, place, &wanted)?;
                let mut run = self.pages.around(page, &wanted, is_away);
                if count_of(&run) > self.most {
                    run = page..page + 1;
                }
                let has_begun = self.bring(resources, place, &run, way)?;
                if !has_begun && self.transfers.is_empty() && !self.keeps_any(way) {
                    return Err(FaultError::NoFrame { page, most: self.most });
                }
            }
            if way == Way::Aside {
                return Ok(Arrival::OnItsWay);
            }
            let done = self.wait();
            self.finish(resources, done);
        }
    }

    /// Whether a page is kept for a thread that has not run with it, if others do not have to have its frame now.
    fn is_kept(&self, page: u64, way: Way) -> bool {
        let is_needed = self.awaited.contains(&page) || self.given.contains(&page);
        self.guarded.contains(&page) || way != Way::Here && is_needed
    }

    /// Stretches of a range without what is kept.
    fn not_kept(&self, range: &Range<u64>, way: Way) -> Vec<Range<u64>> {
        let mut stretches = Vec::new();
        let mut start = range.start;
        for page in range.start..range.end.min(self.pages.count()) {
            if self.is_kept(page, way) {
                stretches.push(start..page);
                start = page + 1;
            }
        }
        stretches.push(start..range.end.min(self.pages.count()));
        stretches.retain(|stretch| !stretch.is_empty());
        stretches
    }

    fn keeps_any(&self, way: Way) -> bool {
        let mut needed = self.awaited.iter().chain(&self.given);
        way != Way::Here && needed.any(|page| self.pages.is_here(*page))
    }

    /// Where few of a long range are here, and as they are kept, they are read again with the others: that takes less than to read and map around them.
    fn make_whole(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        range: &Range<u64>,
    ) -> Result<(), CallError> {
        let here = self.pages.stretches(range.clone(), |page| page.is_here);
        let pages: u64 = here.iter().map(|stretch| stretch.end - stretch.start).sum();
        if pages == 0 || pages * MANY_BY_FEW > range.end - range.start {
            return Ok(());
        }
        for stretch in self.not_kept(range, Way::Ahead) {
            self.unload(resources, place, &stretch)?;
            for page in stretch {
                let state = self.pages.at(page);
                if state.is_here && !state.is_modified {
                    resources.pool.give(Run { frame: state.frame, count: 1 });
                    self.held -= 1;
                    *state = Page::default();
                }
            }
        }
        Ok(())
    }

    /// Begins to read pages, all of them away. Not if there is no room for them before something has moved.
    fn bring(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        run: &Range<u64>,
        way: Way,
    ) -> Result<bool, FaultError> {
        let mut going = Vec::new();
        let made = self.make_room(resources, place, run, way, &mut going);
        let runs =
            if matches!(made, Ok(true)) { resources.pool.take(run.start, count_of(run)) } else { None };
        let runs = runs.unwrap_or_default();
        let taken: BTreeSet<u32> = runs.iter().flat_map(|run| run.frame..run.frame + run.count).collect();
        let frames = going.iter().map(|page| self.pages.frame(*page));
        let spare: Vec<u32> = frames.filter(|frame| !taken.contains(frame)).collect();
        for frame in &spare {
            assert!(resources.pool.take_this(*frame), "it was given a moment ago");
        }
        self.held += u32::try_from(taken.len() + spare.len()).expect("fewer than there are frames");
        let coming = if runs.is_empty() { run.start..run.start } else { run.clone() };
        let frames = runs.iter().flat_map(|run| run.frame..run.frame + run.count);
        for (page, frame) in coming.clone().zip(frames) {
            *self.pages.at(page) = Page { frame, is_moving: true, ..Page::default() };
        }
        let pieces: Vec<Piece> = runs.iter().map(|run| resources.piece(*run)).collect();
        let has_begun = !runs.is_empty();
        self.counts.read += u64::from(count_of(&coming));
        if has_begun || !going.is_empty() {
            self.start(resources, Transfer { going, coming, spare, stays: false }, pieces, way);
        }
        made.map(|_| has_begun)
    }

    fn start(&mut self, resources: &Resources, transfer: Transfer, coming: Vec<Piece>, way: Way) {
        let mut going: Vec<(u64, Vec<Run>)> = Vec::new();
        let mut next = None;
        for &page in &transfer.going {
            let frame = self.pages.frame(page);
            match going.last_mut() {
                Some((_, runs)) if next == Some(page) => match runs.last_mut() {
                    Some(run) if run.frame + run.count == frame => run.count += 1,
                    _ => runs.push(Run { frame, count: 1 }),
                },
                _ => going.push((page, vec![Run { frame, count: 1 }])),
            }
            next = Some(page + 1);
        }
        self.counts.written += transfer.going.len() as u64;
        let pieces = |runs: Vec<Run>| runs.into_iter().map(|run| resources.piece(run)).collect();
        let going = going.into_iter().map(|(page, runs)| (page, pieces(runs))).collect();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let coming = (!coming.is_empty()).then_some((transfer.coming.start, coming));
        self.transfers.insert(ticket, transfer);
        let (backing, reports) = (self.backing.clone(), self.reports.clone());
        let job = Job { ticket, backing, going, coming, reports };
        match way {
            Way::Here => disk::perform(job),
            Way::Aside | Way::Ahead => resources.start(job),
        }
    }

    /// Asks the policy until there are frames. Of what has to go pages that were modified are told; their frames are in the pool already.
    fn make_room(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        run: &Range<u64>,
        way: Way,
        going: &mut Vec<u64>,
    ) -> Result<bool, FaultError> {
        let count = count_of(run);
        let mut more = self.policy.steps_for_neighbours();
        for _ in 0..=2 * self.pages.count() {
            let is_enough = self.held + count <= self.most && resources.pool.free() >= count;
            if is_enough && (more == 0 || resources.pool.fits(run.start, count)) {
                return Ok(true);
            }
            more -= u32::from(is_enough);
            match self.policy.make_room(run, way != Way::Ahead, &self.pages) {
                Step::Unload(range) => {
                    for stretch in self.not_kept(&range, way) {
                        self.unload(resources, place, &stretch)?;
                    }
                }
                Step::Evict(range) => self.evict(resources, place, &range, way, going)?,
                Step::Nothing => return Ok(is_enough),
            }
        }
        Ok(false)
    }

    fn unload(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        range: &Range<u64>,
    ) -> Result<(), CallError> {
        let mapped = self.pages.stretches(range.clone(), |page| page.is_mapped);
        let (Some(first), Some(last)) = (mapped.first(), mapped.last()) else { return Ok(()) };
        let all = first.start..last.end;
        let (pages, policy) = (&mut self.pages, &mut self.policy);
        resources.unload(place, all.start, all.end - all.start, |page, modified, referenced| {
            pages.at(page).is_modified |= modified;
            if referenced {
                policy.referenced(page);
            }
        })?;
        mapped.into_iter().flatten().for_each(|page| self.pages.at(page).is_mapped = false);
        Ok(())
    }

    fn evict(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        range: &Range<u64>,
        way: Way,
        going: &mut Vec<u64>,
    ) -> Result<(), CallError> {
        for stretch in self.not_kept(range, way) {
            self.unload(resources, place, &stretch)?;
            for page in stretch {
                let state = self.pages.at(page);
                if !state.is_here {
                    continue;
                }
                resources.pool.give(Run { frame: state.frame, count: 1 });
                self.held -= 1;
                if state.is_modified {
                    *state = Page { is_here: false, is_moving: true, ..*state };
                    going.push(page);
                } else {
                    *state = Page::default();
                }
            }
        }
        Ok(())
    }

    /// Waits for something that moves.
    fn wait(&self) -> Done {
        self.done.recv().expect("it has a sender itself")
    }

    /// Something has moved, or has not. That is an error for those who wait for one of the pages that did not come.
    fn finish(&mut self, resources: &mut Resources, done: Done) {
        let transfer = self.transfers.remove(&done.ticket).expect("it was started");
        let mut staying = BTreeSet::new();
        for page in transfer.going {
            let state = self.pages.at(page);
            if !done.has_gone || transfer.stays {
                staying.insert(state.frame);
                *state = Page { is_here: true, is_moving: false, is_modified: !done.has_gone, ..*state };
            } else {
                *state = Page::default();
            }
        }
        let mut spare = transfer.spare;
        for page in transfer.coming.clone() {
            let state = self.pages.at(page);
            if done.result.is_ok() {
                *state = Page { is_here: true, is_moving: false, ..*state };
            } else {
                spare.push(state.frame);
                *state = Page::default();
            }
        }
        for frame in spare.into_iter().filter(|frame| !staying.contains(frame)) {
            resources.pool.give(Run { frame, count: 1 });
            self.held -= 1;
        }
        if let Err(error) = done.result {
            self.failed.extend(self.awaited.range(transfer.coming).map(|page| (*page, error.clone())));
        }
    }

    /// Waits until nothing moves. The first error.
    fn settle(&mut self, resources: &mut Resources) -> Result<(), BackingError> {
        let mut result = Ok(());
        while !self.transfers.is_empty() {
            let done = self.wait();
            result = result.and(done.result.clone());
            self.finish(resources, done);
        }
        result
    }

    /// Loads the mappings of a page and of its neighbours that are here.
    fn map(&mut self, resources: &mut Resources, place: &Place, page: u64) -> Result<(), CallError> {
        if self.pages.is_mapped(page) {
            // Its thread did not reach it: it was mapped for another since, or has gone, of which nobody has heard. If it were just loaded again, what is told of the first
            // mapping later would be taken for this one's end.
            self.unload(resources, place, &(page..page + 1))?;
        }
        let window = self.policy.along(page, &self.pages);
        let run = self.pages.around(page, &window, |page| page.is_here && !page.is_mapped);
        let mut start = run.start;
        while start < run.end {
            let (frame, stored) = (self.pages.frame(start), self.policy.is_stored(start));
            let belongs = |page: &u64| {
                u64::from(self.pages.frame(*page)) == u64::from(frame) + (page - start)
                    && self.policy.is_stored(*page) == stored
            };
            let end = (start + 1..run.end).find(|page| !belongs(page)).unwrap_or(run.end);
            let first = Mapping {
                writable: place.rights.write,
                executable: place.rights.execute,
                stored,
                ..Mapping::read(place.space, place.first + start, frame.into())
            };
            resources.calls().load_mappings(&first, count_of(&(start..end)))?;
            (start..end).for_each(|page| self.pages.at(page).is_mapped = true);
            start = end;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
        way: Way,
    ) -> Result<Arrival, FaultError> {
        self.check(place, page, touch)?;
        // Who asks again was counted.
        if !self.awaited.contains(&page) {
            self.counts.faults += 1;
            self.counts.here += u64::from(self.pages.is_here(page) || self.pages.is_moving(page));
        }
        if self.bring_here(resources, place, page, way)? == Arrival::OnItsWay {
            return Ok(Arrival::OnItsWay);
        }
        self.policy.touched(page, &self.pages);
        self.map(resources, place, page)?;
        self.guarded = page..page + 1;
        let ahead = self.ahead(resources, place, page);
        self.guarded = 0..0;
        ahead.map(|()| Arrival::Here)
    }

    fn ahead(&mut self, resources: &mut Resources, place: &Place, page: u64) -> Result<(), FaultError> {
        for range in self.policy.ahead(page, &self.pages) {
            self.make_whole(resources, place, &range)?;
            for stretch in self.pages.stretches(range, is_away) {
                if count_of(&stretch) > self.most || !self.bring(resources, place, &stretch, Way::Ahead)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Segment for Paged {
    fn pages(&self) -> u64 {
        self.pages.count()
    }

    fn fault(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
    ) -> Result<(), FaultError> {
        self.answer(resources, place, page, touch, Way::Here).map(|_| ())
    }

    fn begin_fault(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
    ) -> Result<Arrival, FaultError> {
        self.answer(resources, place, page, touch, Way::Aside)
    }

    fn locate(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
    ) -> Result<u32, FaultError> {
        self.check(place, page, touch)?;
        self.bring_here(resources, place, page, Way::Here)?;
        self.policy.touched(page, &self.pages);
        let state = self.pages.at(page);
        state.is_modified |= touch == Touch::Write;
        Ok(state.frame)
    }

    fn written_back(&mut self, page: u64, modified: bool, referenced: bool) {
        if page < self.pages.count() {
            let state = self.pages.at(page);
            state.is_mapped = false;
            state.is_modified |= modified;
            if referenced {
                self.policy.referenced(page);
            }
        }
    }

    fn sync(&mut self, resources: &mut Resources, place: &Place) -> Result<(), FaultError> {
        self.settle(resources)?;
        let all = self.pages.count();
        for start in (0..all).step_by(4 * usize::try_from(MOST_AT_ONCE).expect("it is small")) {
            self.unload(resources, place, &(start..(start + 4 * MOST_AT_ONCE).min(all)))?;
        }
        for stretch in self.pages.stretches(0..all, |page| page.is_here && page.is_modified) {
            for start in stretch.clone().step_by(usize::try_from(MOST_AT_ONCE).expect("it is small")) {
                let going: Vec<u64> = (start..(start + MOST_AT_ONCE).min(stretch.end)).collect();
                for page in &going {
                    let state = self.pages.at(*page);
                    (state.is_here, state.is_moving) = (false, true);
                }
                self.start(
                    resources,
                    Transfer { going, coming: 0..0, spare: Vec::new(), stays: true },
                    Vec::new(),
                    Way::Ahead,
                );
            }
        }
        self.settle(resources)?;
        Ok(self.backing.sync()?)
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn leave(&mut self, resources: &mut Resources, place: &Place) -> Result<(), FaultError> {
        // What did not go is not needed any more.
        let _ = self.settle(resources);
        let all = 0..self.pages.count();
        match self.unload(resources, place, &all) {
            // With its space its mappings have gone.
            Ok(()) | Err(CallError::Refused(Refused::StaleSpace(_))) => {}
            Err(error) => return Err(error.into()),
        }
        for page in all {
            if self.pages.is_here(page) {
                resources.pool.give(Run { frame: self.pages.frame(page), count: 1 });
                *self.pages.at(page) = Page::default();
                self.held -= 1;
            }
        }
        Ok(())
    }
}
