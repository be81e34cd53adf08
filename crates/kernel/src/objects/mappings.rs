//! Loads and unloads of mappings.

use std::ops::Range;

use super::cache::Objects;
use super::errors::Refused;
use super::groups::{Access, FRAMES_IN_GROUP};
use super::hardware::Hardware;
use super::ids::{KernelId, SpaceId, ThreadId};
use super::physical_map::PhysicalMap;
use super::record::{FrameKey, Kind, Record};
use super::sizes::MAXIMUM_PAGES;
use super::writeback::Writeback;

/// A page looked up is as much work as some tens of records in a row.
const RECORDS_PER_LOOKUP: u64 = 16;

/// A mapping: to load, or as it is loaded. Its name is its space and its page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Mapping {
    /// Of this space.
    pub space: SpaceId,
    /// This page, by number.
    pub page: u64,
    /// Is this frame.
    pub frame: u64,
    /// Whether it may be written. This takes the right to write the frame.
    pub writable: bool,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether it is in message mode. (§2.2)
    pub message: bool,
    /// Whether it is exempt from replacement, as long as its space, its kernel and its signal thread are locked, and if it is writable, the
    /// receivers of its frame.
    pub locked: bool,
    /// The thread that is signalled when a message is written to the frame. It need not be of the same space, only of the same kernel.
    pub signal: Option<ThreadId>,
    /// The frame is to become a copy of this one when it is first written; until then this one is read. This takes the right to read it.
    pub copy_of: Option<u64>,
    /// The page is about to be stored to: it counts as modified from the beginning, and its first store costs nothing. It is not remembered.
    pub stored: bool,
}

impl Mapping {
    /// Of this page to this frame, to be read. Anything else is said beside it.
    pub const fn read(space: SpaceId, page: u64, frame: u64) -> Self {
        let (writable, executable, message, locked, stored) = (false, false, false, false, false);
        Self {
            space,
            page,
            frame,
            writable,
            executable,
            message,
            locked,
            signal: None,
            copy_of: None,
            stored,
        }
    }

    /// The same for the page that is so many behind it: what is neighbouring there is neighbouring here.
    #[must_use]
    pub(crate) fn neighbour(&self, behind: u32) -> Self {
        let behind = u64::from(behind);
        Self {
            page: self.page.saturating_add(behind),
            frame: self.frame.saturating_add(behind),
            copy_of: self.copy_of.map(|source| source.saturating_add(behind)),
            ..*self
        }
    }
}

/// How a load of a mapping went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "a mapping that was displaced must not be put into the machine"]
pub enum Loaded {
    /// The mapping is there.
    Stays,
    /// The mapping was there, and is written back already: to make room for it, a receiver of its own frame had to go, and with that all
    /// writable mappings of the frame. Load them all again. (§4.2)
    Displaced,
}

/// Someone who uses a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct User {
    /// In this space.
    pub space: SpaceId,
    /// By this page.
    pub page: u64,
    /// The page is not mapped to the frame, but is a copy of it that was not made yet.
    pub is_copy: bool,
}

impl<S> Objects<S> {
    /// Loads a mapping into a space of the caller's, in the place of what the page had, and of others if need be. What the page had is
    /// written back. If that had the same frame and a signal thread, and this has one, signals are redirected and nobody else notices
    /// (§2.3).
    ///
    /// This takes no memory, unless the owner of what is replaced is behind, and searches nothing, unless the clock hand meets locks.
    pub fn load_mapping<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        mapping: &Mapping,
    ) -> Result<Loaded, Refused> {
        let kernel = self.find_kernel(caller)?;
        self.check_not_behind(kernel)?;
        let space = self.find_own_space(kernel, mapping.space)?;
        check_page(mapping.page)?;
        let frame = self.check_access(kernel, mapping)?;
        let source =
            mapping.copy_of.map(|source| self.check_frame(kernel, source, Access::Read)).transpose()?;
        let thread = mapping.signal.map(|thread| self.find_own_thread(kernel, thread)).transpose()?;
        let old = self.map.find(space, mapping.page);
        let records = 1 + u32::from(source.is_some()) + u32::from(thread.is_some());
        if mapping.locked {
            let unlocked = old.map_or(0, |old| self.locked_records(old));
            self.may_lock(kernel, |locks| locks.mappings, records.saturating_sub(unlocked))?;
        }

        if let Some(old) = old {
            let is_redirection = thread.is_some() && self.map.at(old).frame() == frame;
            if is_redirection {
                self.flush_alone(hardware, old);
            } else {
                self.flush(hardware, old);
            }
        }
        let chains =
            [Some(FrameKey::frame(frame)), source.map(FrameKey::frame), thread.map(FrameKey::thread)];
        let has_lost_receiver = self.make_room(hardware, records, &chains);
        if has_lost_receiver && mapping.writable {
            let &Mapping { page, frame, .. } = mapping;
            let tag = self.spaces.at(space).tag;
            let written_back =
                Writeback::Mapping { space: tag, page, frame, modified: false, referenced: false };
            self.write_back(kernel, written_back);
            return Ok(Loaded::Displaced);
        }
        let place = self.map.insert(Record::mapping(space, frame, mapping));
        if let Some(source) = source {
            self.map.insert(Record::copy(place, source));
        }
        if let Some(thread) = thread {
            self.map.insert(Record::signal(place, thread));
        }
        self.spaces.at_mut(space).mappings += 1;
        self.locked_mut(kernel).mappings += self.locked_records(place);
        Ok(Loaded::Stays)
    }

    /// Unloads what is mapped in a range of a space of the caller's, locked or not, and says how much that was. If a page had a signal
    /// thread, writable mappings of its frame go elsewhere, too; those are not counted.
    ///
    /// A short range is looked up page by page. For a long one all records are looked at in turn, until those of the space have been seen,
    /// and once more if there were any: some tens of microseconds by default, however long the range is.
    pub fn unload_mappings<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        space: SpaceId,
        first_page: u64,
        pages: u64,
    ) -> Result<u32, Refused> {
        let space = self.find_own_space(self.find_kernel(caller)?, space)?;
        let end = first_page.checked_add(pages).filter(|end| *end <= MAXIMUM_PAGES);
        let end = end.ok_or(Refused::NoPage(first_page.saturating_add(pages)))?;
        let before = self.spaces.at(space).mappings;
        self.flush_range(hardware, space, first_page..end);
        Ok(before - self.spaces.at(space).mappings)
    }

    /// The copy of a page was made, by whoever handled the write. The source is not needed any more.
    pub fn copied(&mut self, space: SpaceId, page: u64) -> Result<(), Refused> {
        let mapping = self.find_mapping(space, page)?;
        let Some(copy) = self.map.find_more(Kind::Copy, mapping) else { return Ok(()) };
        self.map.remove(copy);
        if self.map.find_more(Kind::Signal, mapping).is_none() {
            self.map.at_mut(mapping).set_no_more();
        }
        let record = self.map.at(mapping);
        if record.is_locked() {
            let kernel = self.spaces.at(record.space()).kernel;
            self.locked_mut(kernel).mappings -= 1;
        }
        Ok(())
    }

    /// The memory that all records take, with what finds them; and how many there are.
    pub fn record_bytes(&self) -> (usize, u32) {
        (self.map.bytes(), self.map.size())
    }

    /// How many records can be loaded before one takes another's place.
    pub fn free_records(&self) -> u32 {
        self.map.free()
    }

    /// What is mapped at a page.
    pub fn mapping(&self, space: SpaceId, page: u64) -> Result<Mapping, Refused> {
        let mapping = self.find_mapping(space, page)?;
        let record = self.map.at(mapping);
        let more = |kind| self.map.find_more(kind, mapping).map(|more| self.map.at(more));
        Ok(Mapping {
            space,
            page,
            frame: u64::from(record.frame()),
            writable: record.is_writable(),
            executable: record.is_executable(),
            message: record.is_message(),
            locked: record.is_locked(),
            signal: more(Kind::Signal).map(|signal| ThreadId(self.threads.key(signal.thread()))),
            copy_of: more(Kind::Copy).map(|copy| u64::from(copy.frame())),
            stored: false,
        })
    }

    /// Who uses a frame, in no particular order. (§4.1)
    pub fn users(&self, frame: u64) -> impl Iterator<Item = User> {
        let key = u32::try_from(frame).ok().filter(|_| frame < self.frames).map(FrameKey::frame);
        key.into_iter().flat_map(|key| self.map.dependents(key)).map(|(place, record)| {
            let mapping = self.map.at(record.of_mapping(place));
            let space = SpaceId(self.spaces.key(mapping.space()));
            User { space, page: mapping.page(), is_copy: !record.is_mapping() }
        })
    }

    /// Changes whenever a translation, or the thread that it signals, may have gone. Who keeps what was found here, in a reverse TLB or
    /// anywhere else, reads this before, and looks again if it has changed after. (§4.2)
    pub fn map_version(&self) -> u64 {
        self.map.version()
    }

    pub(super) fn find_mapping(&self, space: SpaceId, page: u64) -> Result<u32, Refused> {
        let slot = self.find_space(space)?;
        check_page(page)?;
        self.map.find(slot, page).ok_or(Refused::NotMapped { space, page })
    }

    /// The frame of a mapping, if it may be mapped so.
    pub(super) fn check_access(&self, kernel: u16, mapping: &Mapping) -> Result<u32, Refused> {
        let access = if mapping.writable { Access::ReadWrite } else { Access::Read };
        self.check_frame(kernel, mapping.frame, access)
    }

    fn check_frame(&self, kernel: u16, frame: u64, wanted: Access) -> Result<u32, Refused> {
        let number = u32::try_from(frame).ok().filter(|_| frame < self.frames);
        let number = number.ok_or(Refused::NoFrame(frame))?;
        let access = self.kernels.at(kernel).descriptor.groups.of_frame(frame);
        if access >= wanted { Ok(number) } else { Err(Refused::NoAccess { frame, wanted }) }
    }

    /// How many records a mapping has locked.
    fn locked_records(&self, mapping: u32) -> u32 {
        let has = |kind| u32::from(self.map.find_more(kind, mapping).is_some());
        if self.map.at(mapping).is_locked() { 1 + has(Kind::Signal) + has(Kind::Copy) } else { 0 }
    }

    /// Replaces until there is room for so many records, and in each of these chains. Whether a receiver of the first chain's frame went.
    fn make_room<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        records: u32,
        chains: &[Option<FrameKey>; 3],
    ) -> bool {
        let mut has_lost_receiver = false;
        let mut replace = |objects: &mut Self, victim| {
            let is_receiver = objects.map.find_more(Kind::Signal, victim).is_some();
            has_lost_receiver |= is_receiver && Some(objects.map.at(victim).frame_key()) == chains[0];
            objects.flush(hardware, victim);
        };
        for &chain in chains.iter().flatten() {
            while self.map.is_crowded(chain)
                && let Some(victim) = self.oldest_of_chain(chain)
            {
                replace(self, victim);
            }
        }
        while self.map.free() < records {
            let victim = self.next_victim();
            replace(self, victim);
        }
        has_lost_receiver
    }

    fn oldest_of_chain(&self, chain: FrameKey) -> Option<u32> {
        let mappings = self.map.chain(chain).map(|(place, record)| record.of_mapping(place));
        mappings.filter(|mapping| !self.is_mapping_held(*mapping)).last()
    }

    /// The clock with second chance. What says more of a mapping goes with it, and has no turn of its own.
    fn next_victim(&mut self) -> u32 {
        for _ in 0..=2 * self.map.size() {
            let place = self.map.step();
            let record = self.map.at_mut(place);
            if !record.is_mapping() {
                continue;
            }
            let is_used = record.is_used();
            record.set_used(false);
            if !is_used && !self.is_mapping_held(place) {
                return place;
            }
        }
        unreachable!("the limits of locks leave something to replace");
    }

    /// Takes a mapping away. If it has a signal thread, all writable mappings of its frame go before it, so that nobody writes a message
    /// of which the receiver does not hear. (§4.2, multi-mapping consistency)
    pub(super) fn flush<H: Hardware<State = S>>(&mut self, hardware: &mut H, mapping: u32) {
        if self.map.find_more(Kind::Signal, mapping).is_some() {
            self.flush_senders(hardware, mapping);
        }
        self.flush_alone(hardware, mapping);
    }

    /// Takes the writable mappings of a mapping's frame away, but for this one.
    fn flush_senders<H: Hardware<State = S>>(&mut self, hardware: &mut H, mapping: u32) {
        let frame = self.map.at(mapping).frame_key();
        let is_sender = |(place, record): &(u32, &Record)| record.is_writable() && *place != mapping;
        loop {
            let sender = self.map.dependents(frame).find(is_sender).map(|(place, _)| place);
            let Some(sender) = sender else { return };
            self.flush_alone(hardware, sender);
        }
    }

    fn flush_alone<H: Hardware<State = S>>(&mut self, hardware: &mut H, mapping: u32) {
        let is_copy = self.map.find_more(Kind::Copy, mapping).is_some();
        let record = self.map.at_mut(mapping);
        let (space, page) = (record.space(), record.page());
        hardware.unmap(SpaceId(self.spaces.key(space)), page, 1, &mut |modified| {
            // Before the copy is made, nobody can have stored to it.
            if modified == page && !is_copy {
                record.set_modified();
            }
        });
        self.forget(mapping);
    }

    /// Takes what is mapped in a range away, after the writable mappings of frames of which it has receivers.
    pub(super) fn flush_range<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        space: u16,
        pages: Range<u64>,
    ) {
        let walk = Walk::new(self, space, pages);
        let mut found: Option<Range<u64>> = None;
        let mut first_pass = walk.clone();
        while let Some(mapping) = first_pass.next(&self.map) {
            if self.map.find_more(Kind::Signal, mapping).is_some() {
                self.flush_senders(hardware, mapping);
            }
            let page = self.map.at(mapping).page();
            let found = found.get_or_insert(page..page + 1);
            *found = found.start.min(page)..found.end.max(page + 1);
        }
        let Some(found) = found else { return };
        let map = &mut self.map;
        let key = SpaceId(self.spaces.key(space));
        hardware.unmap(key, found.start, found.end - found.start, &mut |page| {
            if let Some(mapping) = map.find(space, page)
                && map.find_more(Kind::Copy, mapping).is_none()
            {
                map.at_mut(mapping).set_modified();
            }
        });
        let mut second_pass = walk;
        while let Some(mapping) = second_pass.next(&self.map) {
            self.forget(mapping);
        }
    }

    /// Takes away what a kernel has mapped and may not any more.
    pub(super) fn flush_forbidden<H: Hardware<State = S>>(&mut self, hardware: &mut H, kernel: u16) {
        for place in 0..self.map.size() {
            let record = self.map.at(place);
            if !record.is_mapping() || self.spaces.at(record.space()).kernel != kernel {
                continue;
            }
            let groups = &self.kernels.at(kernel).descriptor.groups;
            let has = |frame, wanted| groups.of_frame(u64::from(frame)) >= wanted;
            let wanted = if record.is_writable() { Access::ReadWrite } else { Access::Read };
            let source = self.map.find_more(Kind::Copy, place).map(|copy| self.map.at(copy).frame());
            if !has(record.frame(), wanted) || source.is_some_and(|source| !has(source, Access::Read)) {
                self.flush(hardware, place);
            }
        }
    }

    /// Takes away all that anybody has mapped of some page groups, in ascending order, and waits to have copied from them. Only the first kernel can ask for it, of whatever
    /// kernels: these frames are about to be other memory.
    pub fn unload_groups<H: Hardware<State = S>>(
        &mut self,
        hardware: &mut H,
        caller: KernelId,
        groups: &[u32],
    ) -> Result<(), Refused> {
        self.check_first(caller)?;
        let count = self.frames.div_ceil(FRAMES_IN_GROUP);
        let mut is_ascending = groups.iter().zip(groups.iter().skip(1)).all(|(group, next)| group < next);
        is_ascending &= groups.last().is_none_or(|last| u64::from(*last) < count);
        if !is_ascending {
            return Err(Refused::NoGroups);
        }
        for place in 0..self.map.size() {
            let record = self.map.at(place);
            let is_of = |frame: u32| {
                let group = u64::from(frame) / FRAMES_IN_GROUP;
                groups.binary_search(&u32::try_from(group).expect("there are fewer")).is_ok()
            };
            let source = |objects: &Self| {
                objects.map.find_more(Kind::Copy, place).map(|copy| objects.map.at(copy).frame())
            };
            if record.is_mapping() && (is_of(record.frame()) || source(self).is_some_and(is_of)) {
                self.flush(hardware, place);
            }
        }
        Ok(())
    }

    /// Writes back a mapping that the machine does not have any more.
    fn forget(&mut self, mapping: u32) {
        let record = *self.map.at(mapping);
        let space = self.spaces.at_mut(record.space());
        space.mappings -= 1;
        let (tag, kernel) = (space.tag, space.kernel);
        self.locked_mut(kernel).mappings -= self.locked_records(mapping);
        for kind in [Kind::Signal, Kind::Copy] {
            if let Some(more) = self.map.find_more(kind, mapping) {
                self.map.remove(more);
            }
        }
        self.map.remove(mapping);
        let written_back = Writeback::Mapping {
            space: tag,
            page: record.page(),
            frame: u64::from(record.frame()),
            modified: record.is_modified(),
            referenced: record.is_used(),
        };
        self.write_back(kernel, written_back);
    }
}

fn check_page(page: u64) -> Result<(), Refused> {
    if page < MAXIMUM_PAGES { Ok(()) } else { Err(Refused::NoPage(page)) }
}

/// Finds what is mapped in a range, even while some of it is taken away.
#[derive(Clone)]
pub(super) struct Walk {
    space: u16,
    pages: Range<u64>,
    /// The next page to look up, or the next record to look at.
    next: Range<u64>,
    is_by_page: bool,
    /// No more than so many of the space are yet to be found.
    left: u32,
}

impl Walk {
    pub(super) fn new<S>(objects: &Objects<S>, space: u16, pages: Range<u64>) -> Self {
        let records = u64::from(objects.map.size());
        let is_by_page = pages.end - pages.start <= records / RECORDS_PER_LOOKUP;
        let next = if is_by_page { pages.clone() } else { 0..records };
        Self { space, pages, next, is_by_page, left: objects.spaces.at(space).mappings }
    }

    pub(super) fn next(&mut self, map: &PhysicalMap) -> Option<u32> {
        while self.left > 0 {
            let next = self.next.next()?;
            let found = if self.is_by_page { map.find(self.space, next) } else { u32::try_from(next).ok() };
            let Some(place) = found else { continue };
            let record = map.at(place);
            if !record.is_mapping() || record.space() != self.space {
                continue;
            }
            self.left -= 1;
            if self.pages.contains(&record.page()) {
                return Some(place);
            }
        }
        None
    }
}
