//! Address spaces of processes: which page has which frame, and what becomes of a fault.
//!
//! A private page has a frame of its own from the first store on; after a fork two spaces hold the same frame, and the first to
//! store gets a copy. Which pages the machine has mapped is not recorded: a fault on a page that is in order maps it again.

use crate::contents;
use crate::errno::{EFAULT, EINVAL, ENOMEM, Errno};
use crate::frames::{BLOCK, Frames};
use crate::machine::{Access, Frame, Machine, PAGE_BYTES, Rights};
use crate::objects::{Backed, Lack, Objects};
use crate::regions::{Region, Regions};
use crate::sharing::{Shared, Wanted};
use crate::swapping::{Slot, Swap};
use std::collections::BTreeMap;
use std::ops::Range;

/// How far a stack grows, as `ulimit -s` says on most Linux systems.
pub(crate) const STACK_BYTES: u64 = 8 << 20;

/// Names an address space of the emulator, whether the machine has it loaded or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SpaceNumber(pub(crate) u64);

/// One address space.
pub(crate) struct Space<M: Machine> {
    pub(crate) machine: M::Space,
    pub(crate) regions: Regions<Backed>,
    /// Frames of pages that only this space sees, or that it shares with others until somebody stores.
    pub(crate) private: BTreeMap<u64, Frame>,
    /// Pages as these that are on disk instead.
    pub(crate) out: BTreeMap<u64, Slot>,
    /// When something was last done for it, by the number of what was done.
    pub(crate) used: u64,
    /// Processes that run in it: more than one between a vfork and its exec.
    users: u32,
    /// From where the heap began to its present end.
    pub(crate) heap: Range<u64>,
}

/// The memory of all processes, and the machine below.
pub(crate) struct Memory<M: Machine> {
    pub(crate) machine: M,
    pub(crate) frames: Frames,
    pub(crate) objects: Objects,
    pub(crate) swap: Swap,
    pub(crate) shared: Option<Shared>,
    pub(crate) spaces: BTreeMap<SpaceNumber, Space<M>>,
    last_number: u64,
    /// How much was done for spaces.
    done: u64,
}

/// Why an access by a program fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Nothing is mapped there.
    Unmapped,
    /// It is mapped, with fewer rights.
    Forbidden,
    /// It is mapped, and the file has nothing there.
    NoContent,
    /// Memory is used up.
    Exhausted,
    /// Other cells have it, too, and it has to come from there.
    Elsewhere(Wanted),
}

impl From<Refusal> for Errno {
    fn from(_: Refusal) -> Errno {
        EFAULT
    }
}

impl From<Lack> for Refusal {
    fn from(lack: Lack) -> Refusal {
        match lack {
            Lack::Content => Refusal::NoContent,
            Lack::Frames => Refusal::Exhausted,
        }
    }
}

/// A page made present.
struct Present {
    frame: Frame,
    rights: Rights,
    /// Whether another frame may be mapped there, of which the program must not see any more.
    replaced: bool,
}

/// What is to be mapped.
pub(crate) struct Mapping {
    pub(crate) rights: Rights,
    pub(crate) shared: bool,
    pub(crate) grows_down: bool,
    pub(crate) backing: Option<(Backed, u64)>,
}

/// Where something is to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Here if it is free, or else anywhere; 0 for no wish.
    Near(u64),
    /// Here, in place of what is there.
    Exactly(u64),
    /// Here, or nowhere.
    OnlyIfFree(u64),
}

fn page_of(address: u64) -> u64 {
    address / PAGE_BYTES
}

/// The number of bytes in as many whole pages, if that is not out of all range.
pub(crate) fn whole_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

impl<M: Machine> Memory<M> {
    /// No spaces yet, and so much room on disk for those that are idle.
    pub(crate) fn new(machine: M, swap: u64) -> Self {
        Memory {
            machine,
            swap: Swap::new(swap),
            frames: Frames::default(),
            objects: Objects::default(),
            shared: None,
            spaces: BTreeMap::new(),
            last_number: 0,
            done: 0,
        }
    }

    /// A space that exists; spaces are named only by processes that use them.
    pub(crate) fn space(&self, number: SpaceNumber) -> &Space<M> {
        self.spaces.get(&number).expect("a process's space is there until it releases it")
    }

    fn space_mut(&mut self, number: SpaceNumber) -> &mut Space<M> {
        self.spaces.get_mut(&number).expect("a process's space is there until it releases it")
    }

    /// An empty space with one user.
    pub(crate) fn new_space(&mut self) -> Result<SpaceNumber, Errno> {
        let machine = self.machine.load_space().ok_or(ENOMEM)?;
        self.last_number += 1;
        let number = SpaceNumber(self.last_number);
        let regions = Regions::new(self.machine.addresses());
        let (private, out) = (BTreeMap::new(), BTreeMap::new());
        self.spaces
            .insert(number, Space { machine, regions, private, out, used: self.done, users: 1, heap: 0..0 });
        Ok(number)
    }

    /// One more process uses the space.
    pub(crate) fn share_space(&mut self, number: SpaceNumber) {
        self.space_mut(number).users += 1;
    }

    /// One process less uses the space; with the last one, which has no threads any more, it ends.
    pub(crate) fn release_space(&mut self, number: SpaceNumber) {
        let space = self.space_mut(number);
        space.users -= 1;
        if space.users > 0 {
            return;
        }
        let Some(space) = self.spaces.remove(&number) else { return };
        self.machine.end_space(space.machine);
        for &frame in space.private.values() {
            self.frames.release(frame);
        }
        self.forget_out(space.out);
        drop(space.regions);
        self.objects.sweep(&mut self.frames, &self.machine);
    }

    /// A copy of the space, in which nothing that one of the two stores to private pages is seen by the other.
    pub(crate) fn fork_space(&mut self, number: SpaceNumber) -> Result<SpaceNumber, Errno> {
        let child = self.new_space()?;
        let space = self.space(number);
        let (regions, private, heap) = (space.regions.clone(), space.private.clone(), space.heap.clone());
        let out = space.out.clone();
        let machine = space.machine;
        for &frame in private.values() {
            self.frames.hold(frame);
        }
        out.values().for_each(|&slot| self.swap.hold(slot));
        for (start, region) in regions.iter() {
            if region.shared || !region.rights.write {
                continue;
            }
            // Only where there are pages: the rest of a large heap or stack is not mapped anyway.
            let pages = page_of(start)..page_of(region.end);
            let first = private.range(pages.clone()).next();
            let last = private.range(pages).next_back();
            if let (Some((&first, _)), Some((&last, _))) = (first, last) {
                let rights = region.rights.without_write();
                self.machine.forbid_writes(machine, first, last - first + 1, rights);
            }
        }
        let space = self.space_mut(child);
        (space.regions, space.private, space.out, space.heap) = (regions, private, out, heap);
        Ok(child)
    }

    /// A run of frames for a space. If memory is short, files' pages are shed, and then others' pages go to disk.
    fn take(&mut self, number: SpaceNumber, count: u64) -> Result<(Frame, u64), Refusal> {
        loop {
            if let Some(run) = self.frames.take(&mut self.machine, count) {
                return Ok(run);
            }
            self.make_room(number)?;
        }
    }

    fn make_room(&mut self, number: SpaceNumber) -> Result<(), Refusal> {
        let has_room = self.objects.shed(&mut self.frames, &self.machine) || self.swap_out(number);
        if has_room { Ok(()) } else { Err(Refusal::Exhausted) }
    }

    fn object_page(&mut self, number: SpaceNumber, object: &Backed, page: u64) -> Result<Frame, Refusal> {
        loop {
            match object.page(&mut self.frames, &mut self.machine, page) {
                Err(Lack::Frames) => self.make_room(number)?,
                result => return Ok(result?),
            }
        }
    }

    /// Makes a page present for a kind of access.
    fn present(&mut self, number: SpaceNumber, address: u64, access: Access) -> Result<Present, Refusal> {
        self.done += 1;
        let done = self.done;
        self.space_mut(number).used = done;
        let space = self.space(number);
        let (start, region) = match space.regions.at(address) {
            Some(found) => found,
            None => {
                self.grow_stack(number, address)?;
                self.space(number).regions.at(address).ok_or(Refusal::Unmapped)?
            }
        };
        if !region.rights.permits(access) {
            return Err(Refusal::Forbidden);
        }
        let (page, rights, shared) = (page_of(address), region.rights, region.shared);
        let pages = page_of(start)..page_of(region.end);
        let backing = region
            .backing
            .as_ref()
            .map(|(object, first)| (Backed::clone(object), first + page - pages.start));
        if shared {
            let (object, index) = backing.ok_or(Refusal::Unmapped)?;
            let frame = self.object_page(number, &object, index)?;
            if let Some(page) = object.shared_page(index) {
                let rights = self.share(page, access == Access::Write, rights)?;
                return Ok(Present { frame, rights, replaced: false });
            }
            if access == Access::Write {
                object.store(index);
            }
            let rights = if object.is_stored(index) { rights } else { rights.without_write() };
            return Ok(Present { frame, rights, replaced: false });
        }
        if self.space(number).out.contains_key(&page) {
            let (frame, _) = self.take(number, 1)?;
            if self.swap_in(number, page, frame).is_none() {
                self.frames.release(frame);
                return Err(Refusal::NoContent);
            }
        }
        if let Some(&frame) = self.space(number).private.get(&page) {
            if access == Access::Write && self.frames.holders(frame) > 1 {
                let (copy, _) = self.take(number, 1)?;
                contents::copy(&self.machine, frame, copy);
                self.space_mut(number).private.insert(page, copy);
                self.frames.release(frame);
                return Ok(Present { frame: copy, rights, replaced: true });
            }
            let rights = if self.frames.holders(frame) > 1 { rights.without_write() } else { rights };
            return Ok(Present { frame, rights, replaced: false });
        }
        let Some((object, index)) = backing else {
            let frame = self.zeroes(number, page, &pages)?;
            return Ok(Present { frame, rights, replaced: false });
        };
        let frame = self.object_page(number, &object, index)?;
        if let Some(page) = object.shared_page(index) {
            self.share(page, false, Rights::READ)?;
        }
        if access != Access::Write {
            return Ok(Present { frame, rights: rights.without_write(), replaced: false });
        }
        let (copy, _) = self.take(number, 1)?;
        contents::copy(&self.machine, frame, copy);
        self.space_mut(number).private.insert(page, copy);
        Ok(Present { frame: copy, rights, replaced: true })
    }

    /// Gives frames with zeroes to a page and to those around it that have none.
    fn zeroes(&mut self, number: SpaceNumber, page: u64, region: &Range<u64>) -> Result<Frame, Refusal> {
        let Space { private, out, .. } = self.space(number);
        let has_none = |page: &u64| !private.contains_key(page) && !out.contains_key(page);
        let block = page - page % BLOCK;
        let low = block.max(region.start);
        let high = (block + BLOCK).min(region.end);
        let first = (low..page).rev().take_while(has_none).last().unwrap_or(page);
        let last = (page..high).take_while(has_none).last().unwrap_or(page);
        let (frame, count) = self.take(number, last - first + 1)?;
        let first = if page < first + count { first } else { page + 1 - count };
        contents::clear(&self.machine, frame, count);
        for index in 0..count {
            self.space_mut(number).private.insert(first + index, Frame(frame.0 + index as u32));
        }
        Ok(Frame(frame.0 + (page - first) as u32))
    }

    fn grow_stack(&mut self, number: SpaceNumber, address: u64) -> Result<(), Refusal> {
        let regions = &mut self.space_mut(number).regions;
        let Some((start, region)) = regions.next_above(address) else { return Err(Refusal::Unmapped) };
        let lower = address - address % PAGE_BYTES;
        if !region.grows_down || region.end - lower > STACK_BYTES {
            return Err(Refusal::Unmapped);
        }
        if regions.grow_down(start, lower) { Ok(()) } else { Err(Refusal::Unmapped) }
    }

    /// What a page that is there already is to be mapped as.
    fn resident(
        &self,
        space: &Space<M>,
        start: u64,
        region: &Region<Backed>,
        page: u64,
    ) -> Option<(Frame, Rights)> {
        let index = |first: &u64| first + page - page_of(start);
        if region.backing.as_ref().is_some_and(|(object, _)| object.is_shared()) {
            // Each comes for itself.
            return None;
        }
        if region.shared {
            let (object, first) = region.backing.as_ref()?;
            let frame = object.resident(index(first))?;
            let stored = object.is_stored(index(first));
            return Some((frame, if stored { region.rights } else { region.rights.without_write() }));
        }
        if let Some(&frame) = space.private.get(&page) {
            let alone = self.frames.holders(frame) == 1;
            return Some((frame, if alone { region.rights } else { region.rights.without_write() }));
        }
        if space.out.contains_key(&page) {
            return None;
        }
        let (object, first) = region.backing.as_ref()?;
        Some((object.resident(index(first))?, region.rights.without_write()))
    }

    /// Serves a fault: maps the page, and those around it that are on neighbouring frames with the same rights.
    pub(crate) fn fault(&mut self, number: SpaceNumber, address: u64, access: Access) -> Result<(), Refusal> {
        let present = self.present(number, address, access)?;
        let space = self.space(number);
        let Some((start, region)) = space.regions.at(address) else { return Err(Refusal::Unmapped) };
        let page = page_of(address);
        let block = page - page % BLOCK;
        let alike = |other: u64| {
            let frame = u64::from(present.frame.0) + other;
            self.resident(space, start, region, other)
                .is_some_and(|(found, rights)| u64::from(found.0) + page == frame && rights == present.rights)
        };
        let low = block.max(page_of(start));
        let high = (block + BLOCK).min(page_of(region.end));
        let first = (low..page).rev().take_while(|&other| alike(other)).last().unwrap_or(page);
        let last = (page + 1..high).take_while(|&other| alike(other)).last().unwrap_or(page);
        let frame = Frame(present.frame.0 - (page - first) as u32);
        let space = space.machine;
        self.machine.map(space, first, frame, last - first + 1, present.rights);
        Ok(())
    }

    /// The frame of a page for the emulator's own access on behalf of the program, with the program's rights.
    pub(crate) fn reach(
        &mut self,
        number: SpaceNumber,
        address: u64,
        access: Access,
    ) -> Result<Frame, Refusal> {
        loop {
            match self.reach_here(number, address, access) {
                Err(Refusal::Elsewhere(wanted)) => self.fetch(wanted)?,
                reached => return reached,
            }
        }
    }

    /// The same, of a page that has not to come from another cell.
    pub(crate) fn reach_here(
        &mut self,
        number: SpaceNumber,
        address: u64,
        access: Access,
    ) -> Result<Frame, Refusal> {
        let present = self.present(number, address, access)?;
        if present.replaced {
            let space = self.space(number).machine;
            self.machine.map(space, page_of(address), present.frame, 1, present.rights);
        }
        Ok(present.frame)
    }

    /// Maps something of so many bytes.
    pub(crate) fn map(
        &mut self,
        number: SpaceNumber,
        place: Place,
        bytes: u64,
        mapping: Mapping,
    ) -> Result<u64, Errno> {
        let bytes =
            whole_pages(bytes).filter(|&bytes| bytes > 0).ok_or(if bytes == 0 { EINVAL } else { ENOMEM })?;
        let space = self.space(number);
        let fits = |start: u64| start.is_multiple_of(PAGE_BYTES) && start.checked_add(bytes).is_some();
        let start = match place {
            Place::Exactly(start) | Place::OnlyIfFree(start) => {
                if !fits(start) {
                    return Err(if start.is_multiple_of(PAGE_BYTES) { ENOMEM } else { EINVAL });
                }
                start
            }
            Place::Near(wish) => {
                let wish = wish - wish % PAGE_BYTES;
                if wish != 0 && fits(wish) && space.regions.is_free(&(wish..wish + bytes)) {
                    wish
                } else {
                    let bounds = space.regions.bounds();
                    // Below the stack with room for it to grow, and a gap.
                    let below = bounds.end - (STACK_BYTES * 2).min((bounds.end - bounds.start) / 4);
                    space.regions.find(bytes, below).ok_or(ENOMEM)?
                }
            }
        };
        let range = start..start + bytes;
        let bounds = space.regions.bounds();
        if range.start < bounds.start || range.end > bounds.end {
            return Err(ENOMEM);
        }
        let backing = match mapping.backing {
            None if mapping.shared => Some((self.objects.memory(), 0)),
            backing => backing,
        };
        let region = Region {
            end: range.end,
            rights: mapping.rights,
            shared: mapping.shared,
            grows_down: mapping.grows_down,
            backing,
        };
        if matches!(place, Place::OnlyIfFree(_)) {
            self.space_mut(number).regions.insert_new(start, region)?;
        } else {
            self.take_away(number, range);
            self.space_mut(number).regions.insert(start, region)?;
        }
        Ok(start)
    }

    /// Unmaps pages from the machine and releases their private frames. Regions stay as they are.
    fn take_away(&mut self, number: SpaceNumber, range: Range<u64>) {
        let space = self.space(number);
        let parts = space.regions.within(range.clone());
        if parts.is_empty() {
            return;
        }
        let machine = space.machine;
        for (start, region) in parts {
            self.machine.unmap(machine, page_of(start), page_of(region.end - start));
            if region.shared
                && region.rights.write
                && let Some((object, _)) = &region.backing
            {
                // An error of the host's is told by msync; here nobody could take it.
                let _ = object.flush(&self.machine, false);
            }
        }
        let space = self.space_mut(number);
        let mut rest = space.private.split_off(&page_of(range.start));
        let mut behind = rest.split_off(&page_of(range.end));
        space.private.append(&mut behind);
        let mut gone = space.out.split_off(&page_of(range.start));
        let mut behind = gone.split_off(&page_of(range.end));
        space.out.append(&mut behind);
        for frame in rest.into_values() {
            self.frames.release(frame);
        }
        self.forget_out(gone);
    }

    /// Unmaps a range; holes in it are fine.
    pub(crate) fn unmap(&mut self, number: SpaceNumber, start: u64, bytes: u64) -> Result<(), Errno> {
        let range = self.range(number, start, bytes)?;
        self.take_away(number, range.clone());
        self.space_mut(number).regions.remove(range)?;
        self.objects.sweep(&mut self.frames, &self.machine);
        Ok(())
    }

    /// A range of whole pages that is not empty and within what programs may use.
    fn range(&self, number: SpaceNumber, start: u64, bytes: u64) -> Result<Range<u64>, Errno> {
        let bytes = whole_pages(bytes).filter(|&bytes| bytes > 0).ok_or(EINVAL)?;
        let end = start.checked_add(bytes).ok_or(EINVAL)?;
        if !start.is_multiple_of(PAGE_BYTES) || end > self.space(number).regions.bounds().end {
            return Err(EINVAL);
        }
        Ok(start..end)
    }

    /// Gives other rights to a range.
    pub(crate) fn protect(
        &mut self,
        number: SpaceNumber,
        start: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<(), Errno> {
        if bytes == 0 && start.is_multiple_of(PAGE_BYTES) {
            return Ok(());
        }
        let range = self
            .range(number, start, bytes)
            .map_err(|_| if start.is_multiple_of(PAGE_BYTES) { ENOMEM } else { EINVAL })?;
        self.space_mut(number).regions.protect(range.clone(), rights)?;
        let machine = self.space(number).machine;
        self.machine.unmap(machine, page_of(range.start), page_of(range.end - range.start));
        Ok(())
    }

    /// Drops what private pages of a range hold, which are as new afterwards (`MADV_DONTNEED`).
    pub(crate) fn discard(&mut self, number: SpaceNumber, start: u64, bytes: u64) -> Result<(), Errno> {
        let range = self.range(number, start, bytes)?;
        let covered = self.space(number).regions.covers(&range);
        self.take_away(number, range);
        if covered { Ok(()) } else { Err(ENOMEM) }
    }

    /// Moves or resizes a mapping (`mremap`).
    pub(crate) fn remap(
        &mut self,
        number: SpaceNumber,
        old: (u64, u64),
        new_bytes: u64,
        may_move: bool,
        to: Option<u64>,
    ) -> Result<u64, Errno> {
        let (start, bytes) = old;
        let new_bytes = whole_pages(new_bytes).filter(|&bytes| bytes > 0).ok_or(EINVAL)?;
        let range = self.range(number, start, bytes)?;
        let bytes = range.end - range.start;
        let space = self.space(number);
        let (region_start, region) = space.regions.at(start).ok_or(EFAULT)?;
        if region.end < range.end {
            return Err(EFAULT);
        }
        let mut region = region.clone();
        if let Some((_, page)) = &mut region.backing {
            *page += page_of(start - region_start);
        }
        if to.is_none() && new_bytes <= bytes {
            if new_bytes < bytes {
                self.unmap(number, start + new_bytes, bytes - new_bytes)?;
            }
            return Ok(start);
        }
        let new_end = start.checked_add(new_bytes).ok_or(ENOMEM)?;
        if to.is_none() && self.space(number).regions.is_free(&(range.end..new_end)) {
            region.end = new_end;
            // What was there stays, since the region goes on alike.
            self.space_mut(number).regions.insert(start, region)?;
            return Ok(start);
        }
        if !may_move {
            return Err(ENOMEM);
        }
        let place = match to {
            Some(to) => {
                let to_end = to.checked_add(new_bytes).ok_or(EINVAL)?;
                if to < range.end && range.start < to_end {
                    return Err(EINVAL);
                }
                Place::Exactly(to)
            }
            None => Place::Near(0),
        };
        let mapping = Mapping {
            rights: region.rights,
            shared: region.shared,
            grows_down: region.grows_down,
            backing: region.backing,
        };
        let target = self.map(number, place, new_bytes, mapping)?;
        let machine = self.space(number).machine;
        self.machine.unmap(machine, page_of(start), page_of(bytes));
        let kept = page_of(start)..page_of(start + bytes.min(new_bytes));
        let space = self.space_mut(number);
        // Only pages that are there: a mapping may be far larger than memory.
        let moved: Vec<u64> = space.private.range(kept.clone()).map(|(&page, _)| page).collect();
        for page in moved {
            if let Some(frame) = space.private.remove(&page) {
                space.private.insert(page - page_of(start) + page_of(target), frame);
            }
        }
        let moved: Vec<u64> = space.out.range(kept).map(|(&page, _)| page).collect();
        for page in moved {
            if let Some(slot) = space.out.remove(&page) {
                space.out.insert(page - page_of(start) + page_of(target), slot);
            }
        }
        self.unmap(number, start, bytes)?;
        Ok(target)
    }

    /// Moves the heap's end, and says where it is now.
    pub(crate) fn set_heap_end(&mut self, number: SpaceNumber, end: u64) -> u64 {
        let heap = self.space(number).heap.clone();
        let bounds = self.space(number).regions.bounds();
        let (Some(from), Some(to)) = (whole_pages(heap.end), whole_pages(end)) else { return heap.end };
        if end < heap.start || to > bounds.end {
            return heap.end;
        }
        let done = if to > from {
            let mapping =
                Mapping { rights: Rights::READ_WRITE, shared: false, grows_down: false, backing: None };
            self.map(number, Place::OnlyIfFree(from), to - from, mapping).is_ok()
        } else {
            to == from || self.unmap(number, to, from - to).is_ok()
        };
        if done {
            self.space_mut(number).heap.end = end;
            end
        } else {
            heap.end
        }
    }

    /// Says where the heap begins, empty.
    pub(crate) fn place_heap(&mut self, number: SpaceNumber, start: u64) {
        self.space_mut(number).heap = start..start;
    }

    /// Writes back what programs stored to files through shared regions of a range.
    pub(crate) fn synchronize(&mut self, number: SpaceNumber, start: u64, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        let range = self.range(number, start, bytes)?;
        let space = self.space(number);
        for (_, region) in space.regions.within(range.clone()) {
            if let (true, Some((object, _))) = (region.shared, &region.backing) {
                object.flush(&self.machine, false)?;
            }
        }
        if space.regions.covers(&range) { Ok(()) } else { Err(ENOMEM) }
    }

    /// After a file was cut to `size` bytes: what is behind is gone from all spaces.
    pub(crate) fn file_was_cut(&mut self, name: crate::objects::FileName, size: u64) {
        let Some(object) = self.objects.by_name(name).cloned() else { return };
        if object.is_shared() {
            // It is as large as all have said.
            return;
        }
        let first_gone = size.div_ceil(PAGE_BYTES);
        let mut gone = Vec::new();
        for space in self.spaces.values() {
            for (start, region) in space.regions.iter() {
                let Some((backed, first)) = &region.backing else { continue };
                let pages = page_of(region.end - start);
                if !crate::regions::Backing::same(backed, &object) || first + pages <= first_gone {
                    continue;
                }
                let skipped = first_gone.saturating_sub(*first);
                gone.push((space.machine, page_of(start) + skipped, pages - skipped));
            }
        }
        for (space, page, count) in gone {
            self.machine.unmap(space, page, count);
        }
        self.objects.drop_pages(&mut self.frames, &self.machine, &object, size);
    }

    /// Pages with a frame in the space, for reports to programs.
    pub(crate) fn resident_pages(&self, number: SpaceNumber) -> u64 {
        self.space(number).private.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use proptest::prelude::*;

    const FIRST: u64 = 0x10_0000;
    const PAGES: u64 = 40;

    /// A space as a program would have it if each page were looked at alone: what it holds, and whether it may be stored to.
    type Model = Vec<Option<(u8, bool)>>;

    fn anonymous(write: bool) -> Mapping {
        let rights = if write { Rights::READ_WRITE } else { Rights::READ };
        Mapping { rights, shared: false, grows_down: false, backing: None }
    }

    /// A store as the processor would make it: by what is mapped, and by faults where nothing is.
    fn access(
        memory: &mut Memory<Fake>,
        number: SpaceNumber,
        address: u64,
        store: Option<u8>,
    ) -> Result<u8, Refusal> {
        let kind = if store.is_some() { Access::Write } else { Access::Read };
        for _ in 0..2 {
            let space = memory.space(number).machine;
            if let Some(byte) = memory.machine.touch(space, address, store) {
                return Ok(byte);
            }
            memory.fault(number, address, kind)?;
        }
        panic!("a fault that was served comes back");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn spaces_hold_what_was_stored_in_them(
            steps in proptest::collection::vec((0u8..8, any::<u8>(), 0..PAGES, 1..12u64, 1..=255u8), 1..80)
        ) {
            // Not enough for all of five spaces, and always for one and what others share.
            let mut memory = Memory::new(Fake::new(128), 1 << 20);
            let mut spaces: Vec<(SpaceNumber, Model)> = vec![(memory.new_space().expect("room"), vec![None; PAGES as usize])];
            for (kind, which, page, count, byte) in steps {
                let known = spaces.len();
                let at = which as usize % known;
                let (number, model) = &mut spaces[at];
                let number = *number;
                let end = (page + count).min(PAGES);
                let (start, bytes) = (FIRST + page * PAGE_BYTES, (end - page) * PAGE_BYTES);
                let pages = page as usize..end as usize;
                match kind {
                    0 => {
                        memory.map(number, Place::Exactly(start), bytes, anonymous(true)).expect("within the bounds");
                        model[pages].fill(Some((0, true)));
                    }
                    1 => {
                        memory.unmap(number, start, bytes).expect("a sound range");
                        model[pages].fill(None);
                    }
                    2 => {
                        let write = byte > 127;
                        let rights = if write { Rights::READ_WRITE } else { Rights::READ };
                        let whole = model[pages.clone()].iter().all(Option::is_some);
                        prop_assert_eq!(memory.protect(number, start, bytes, rights).is_ok(), whole);
                        if whole {
                            model[pages].iter_mut().flatten().for_each(|page| page.1 = write);
                        }
                    }
                    3 if known < 5 => {
                        let model = model.clone();
                        spaces.push((memory.fork_space(number).expect("room"), model));
                    }
                    4 if known > 1 => {
                        memory.release_space(number);
                        spaces.swap_remove(at);
                    }
                    5 => {
                        // By the emulator, as a call does.
                        let expected = model[page as usize].is_some_and(|page| page.1);
                        prop_assert_eq!(memory.write_bytes(number, start + 5, &[byte]).is_ok(), expected);
                        if let (true, Some(page)) = (expected, &mut model[page as usize]) {
                            page.0 = byte;
                        }
                    }
                    6 => {
                        let old = (start, PAGE_BYTES);
                        let to = FIRST + (which as u64 % PAGES) * PAGE_BYTES;
                        let expected = model[page as usize].is_some() && to != start;
                        prop_assert_eq!(memory.remap(number, old, PAGE_BYTES, true, Some(to)).is_ok(), expected);
                        if expected {
                            model[which as usize % PAGES as usize] = model[page as usize].take();
                        }
                    }
                    _ => {
                        let result = access(&mut memory, number, start + 5, Some(byte));
                        match &mut model[page as usize] {
                            None => prop_assert_eq!(result, Err(Refusal::Unmapped)),
                            Some((_, false)) => prop_assert_eq!(result, Err(Refusal::Forbidden)),
                            Some((held, true)) => {
                                prop_assert!(result.is_ok());
                                *held = byte;
                            }
                        }
                    }
                }
                for (number, model) in &spaces {
                    for (page, expected) in model.iter().enumerate() {
                        let found = access(&mut memory, *number, FIRST + page as u64 * PAGE_BYTES + 5, None).ok();
                        prop_assert_eq!(found, expected.map(|(held, _)| held));
                    }
                }
            }
            for (number, _) in spaces {
                memory.release_space(number);
            }
            prop_assert_eq!((memory.frames.held(), memory.swap.held()), (0, 0));
        }
    }

    #[test]
    fn idle_spaces_are_on_disk_while_others_need_their_frames() {
        let mut memory = Memory::new(Fake::new(128), 1 << 20);
        let numbers = [(); 4].map(|()| {
            let number = memory.new_space().expect("room");
            memory.map(number, Place::Exactly(FIRST), PAGES * PAGE_BYTES, anonymous(true)).expect("room");
            number
        });
        let byte = |space: usize, page: u64| (space as u64 * PAGES + page) as u8;
        for round in 0..3 {
            for (space, &number) in numbers.iter().enumerate() {
                for page in 0..PAGES {
                    let address = FIRST + page * PAGE_BYTES + 7;
                    let expected = if round == 0 { 0 } else { byte(space, page) };
                    assert_eq!(access(&mut memory, number, address, None), Ok(expected));
                    access(&mut memory, number, address, Some(byte(space, page))).expect("room");
                }
            }
        }
        let [out, back] = memory.swap.moved;
        assert!(out >= 3 * PAGES && back >= 2 * PAGES, "{out} {back}");
        // A child has what its parent had, wherever that was.
        let child = memory.fork_space(numbers[0]).expect("room");
        memory.release_space(numbers[0]);
        for page in 0..PAGES {
            assert_eq!(access(&mut memory, child, FIRST + page * PAGE_BYTES + 7, None), Ok(byte(0, page)));
        }
        for number in [child, numbers[1], numbers[2], numbers[3]] {
            memory.release_space(number);
        }
        assert_eq!((memory.frames.held(), memory.swap.held()), (0, 0));
    }

    #[test]
    fn without_room_on_disk_memory_is_used_up() {
        let mut memory = Memory::new(Fake::new(128), 8 * PAGE_BYTES);
        let mut fill = || -> Result<(), Refusal> {
            let number = memory.new_space().expect("room");
            memory.map(number, Place::Exactly(FIRST), PAGES * PAGE_BYTES, anonymous(true)).expect("room");
            (0..PAGES).try_for_each(|page| {
                access(&mut memory, number, FIRST + page * PAGE_BYTES, Some(1)).map(drop)
            })
        };
        assert_eq!([fill(), fill(), fill()], [Ok(()); 3]);
        assert_eq!(fill(), Err(Refusal::Exhausted));
    }
}
