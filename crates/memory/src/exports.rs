//! The home's side of memory that other processes of its host import: frames, and who may do what with them.
//!
//! The home has a descriptor by which it makes and marks entries in the importer's page tables, and needs no help of the importer's:
//!
//! | importers may | frames | entries |
//! |---|---|---|
//! | load and store | there | unmarked, of those to whom a store was granted |
//! | load | there, or not yet | marked, or none until it was asked for |
//! | nothing | taken out of the file; the content is kept aside | none |
//!
//! Any touch of a page without an entry is stopped, whether there is a frame or not: what was not shown is not seen, and no store goes through
//! that was not granted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::frames::Frames;
use crate::guests::{Guests, NoGuard, Pages};
use crate::memory::MemoryError;
use crate::space::{PAGE_BYTES, index};

const PAGE: u64 = PAGE_BYTES as u64;

/// Who touches a page is shown its neighbours that have frames, as the kernel does it with files.
pub(crate) const AROUND_BYTES: u64 = 64 << 10;

/// What was given back of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GivenBack {
    /// Bytes of pages that were all zeros: they have no frame any more, and get one again when somebody touches them.
    pub zero_bytes: u64,
    /// Bytes that are in swap now.
    pub swapped_bytes: u64,
    /// Pages that were looked at.
    pub looked_at: u64,
}

/// Frames that others import. Offsets count from their beginning; ranges are of whole pages.
#[derive(Debug)]
pub struct Exports {
    frames: Frames,
    bytes: u64,
    /// Which pages have frames.
    present: Pages,
    importers: Guests,
    /// What nobody may see, by its place.
    aside: BTreeMap<u64, Box<[u8]>>,
}

impl Exports {
    /// Makes frames for so many bytes, which are whole pages. They cost nothing until they are touched.
    pub fn create(bytes: u64) -> Result<Self, MemoryError> {
        Frames::create_guarded(bytes).map(|frames| Self::of(frames, bytes))
    }

    /// Takes over frames whose home is no more, and which nobody has looked at since they were emptied ([`Orphaned::empty`](crate::Orphaned::empty)). Who had
    /// imported them may be admitted again, by what its guard was kept for: it has them mapped still.
    pub fn adopt(file: OwnedFd) -> Result<Self, MemoryError> {
        let bytes = crate::frames::check(file.as_fd())?;
        Frames::adopt(file).map(|frames| Self::of(frames, bytes))
    }

    /// Takes frames that another home has made by [`Exports::create`] and never looks at again: its descriptor, and that by which they are read.
    pub fn borrow(file: OwnedFd, to_read: OwnedFd) -> Result<Self, MemoryError> {
        let bytes = crate::frames::check(file.as_fd())?;
        Frames::adopt(file).map(|frames| Self::of(frames.read_by(to_read), bytes))
    }

    fn of(frames: Frames, bytes: u64) -> Self {
        let (present, importers, aside) = (Pages::default(), Guests::default(), BTreeMap::new());
        Self { frames, bytes, present, importers, aside }
    }

    /// All that importers had is gone, and nothing is shown to them any more. What has become of them, [`Exports::forget_dead`] finds out: until then
    /// this is to be kept, or they could store to what they have mapped.
    pub fn close(&mut self) {
        self.importers.dismiss_all();
        self.aside.clear();
        self.present.forget(0..self.bytes / PAGE);
        // Nothing is left to be lost if it is refused.
        let _ = self.frames.punch(0, self.bytes);
    }

    /// By which other homes read what is there, and no more: a descriptor that neither stores nor maps to store.
    pub fn file_to_read(&self) -> BorrowedFd<'_> {
        self.frames.to_read().expect("they are guarded")
    }

    /// What importers map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.frames.file()
    }

    /// Guards a new importer's memory, which begins at `address` there. Its number is its own among those that live.
    pub fn admit(
        &mut self,
        number: u32,
        guard: OwnedFd,
        address: usize,
        process: OwnedFd,
    ) -> Result<(), NoGuard> {
        self.importers.admit(number, guard, address, process);
        let checked = self.importers.check(number, [0, self.bytes - PAGE]);
        checked.inspect_err(|_| self.importers.turn_away(number))
    }

    /// An importer is no more. It may not store any more, whatever it believes.
    pub fn dismiss(&mut self, number: u32) {
        let unfenced = self.importers.dismiss(number);
        self.renew(unfenced);
    }

    /// Guards of processes that are gone are closed: while one lives, that would let it store.
    pub fn forget_dead(&mut self) {
        self.importers.forget_dead();
    }

    /// Memory that the frames take.
    pub fn resident_bytes(&self) -> u64 {
        rustix::fs::fstat(self.frames.file())
            .map_or(0, |status| u64::try_from(status.st_blocks).unwrap_or(0) * 512)
    }

    /// What second references are made of: see [`Guests::guards`].
    pub fn guards(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>, BorrowedFd<'_>, usize)> {
        self.importers.guards()
    }

    /// How many processes may look at the frames, be it that they were dismissed.
    pub fn importers(&self) -> usize {
        self.importers.len()
    }

    /// The beginnings of the pieces that an importer may store to.
    pub fn granted_to(&self, number: u32) -> impl Iterator<Item = u64> + '_ {
        self.importers.granted_to(number)
    }

    /// How many pieces importers may store to.
    pub fn grants(&self) -> usize {
        self.importers.grants()
    }

    /// Bytes that importers may store to.
    pub fn granted_bytes(&self) -> u64 {
        self.importers.granted_bytes()
    }

    /// Gives memory back of what nobody may store to: goes round the pages as the hand of a clock, on from where `hand` points, looks at `most` of
    /// them, and leaves `hand` behind the last, or at 0 when it came to the end. What importers have mapped they lose, and are shown again when they touch it.
    pub fn give_back(&mut self, hand: &mut u64, most: u64, to_swap: bool) -> GivenBack {
        let mut given = GivenBack::default();
        while given.looked_at < most {
            let Some(page) = self.present.first_from(*hand) else {
                *hand = 0;
                break;
            };
            *hand = page + 1;
            given.looked_at += 1;
            let at = page * PAGE;
            if self.importers.may_store_to(at) || !self.frames.is_in_memory(at) {
                continue;
            }
            let mut content = [0; PAGE_BYTES];
            self.frames.copy_out(at, &mut content);
            if content == [0; PAGE_BYTES] {
                if self.frames.punch(at, PAGE).is_ok() {
                    self.note(&(at..at + PAGE), false);
                    given.zero_bytes += PAGE;
                }
            } else if to_swap && self.frames.page_out(at, PAGE_BYTES).is_ok() && !self.frames.is_in_memory(at)
            {
                given.swapped_bytes += PAGE;
            }
        }
        given
    }

    /// Lets an importer load a range, which gets frames of zeros where it has none, and what is around and has some: where that ends.
    pub fn show(&mut self, number: u32, range: Range<u64>) -> Result<u64, MemoryError> {
        self.check(&range);
        let around = self.around(&range);
        self.populate(range)?;
        self.importers.show(number, &around)?;
        Ok(around.end)
    }

    /// Lets an importer store to a piece. The same piece is always granted whole.
    pub fn grant(&mut self, number: u32, range: Range<u64>) -> Result<(), MemoryError> {
        self.check(&range);
        self.populate(range.clone())?;
        self.importers.grant(number, &range)
    }

    /// Gives pages frames, of zeros where there were none.
    fn populate(&mut self, range: Range<u64>) -> Result<(), MemoryError> {
        let mut pages = range.start / PAGE..range.end.div_ceil(PAGE);
        if pages.all(|page| self.present.has(page)) {
            return Ok(());
        }
        self.frames
            .populate(range.start, index(range.end - range.start))
            .map_err(|source| MemoryError::from_frames("make frames for other cells", source))?;
        self.note(&range, true);
        Ok(())
    }

    fn note(&mut self, range: &Range<u64>, is_present: bool) {
        self.present.note(range.start / PAGE..range.end.div_ceil(PAGE), is_present);
    }

    /// A range, with the pages on both sides that have frames, as far as the next multiples of what is shown together.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let least = range.start / AROUND_BYTES * AROUND_BYTES;
        let most = range.end.next_multiple_of(AROUND_BYTES).min(self.bytes);
        let has_frame = |&page: &u64| self.present.has(page);
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        let before = (least / PAGE..first).rev().take_while(has_frame).last();
        let behind = (end..most / PAGE).take_while(has_frame).last();
        before.unwrap_or(first) * PAGE..behind.map_or(end, |last| last + 1) * PAGE
    }

    /// Nobody may store to a range any more. When it returns, nobody does.
    pub fn revoke(&mut self, range: &Range<u64>) {
        let unfenced = self.importers.revoke(range);
        self.renew(unfenced);
    }

    /// Gives pieces other frames with the same content, so that nobody has any of it in its page tables. It is how a right is taken from somebody
    /// without the help of its process, nor its end; and from all others, who have to ask again.
    fn renew(&mut self, pieces: Vec<Range<u64>>) {
        for page in pieces.into_iter().flat_map(|piece| piece.step_by(PAGE_BYTES)) {
            let mut content = [0; PAGE_BYTES];
            self.frames.copy_out(page, &mut content);
            // Without this nothing else holds either.
            self.frames.punch(page, PAGE).expect("frames can be taken away");
            self.frames.copy_in(page, &content);
        }
    }

    /// Nobody may see a piece any more: its content is kept aside.
    pub fn take(&mut self, range: &Range<u64>) -> Result<(), MemoryError> {
        self.revoke(range);
        let mut content = vec![0; index(range.end - range.start)].into_boxed_slice();
        self.copy_out(range.start, &mut content);
        self.frames
            .punch(range.start, range.end - range.start)
            .map_err(|source| MemoryError::System { action: "take frames away", source })?;
        self.note(range, false);
        self.aside.insert(range.start, content);
        Ok(())
    }

    /// What is kept aside of a piece is of no use any more.
    pub fn drop_aside(&mut self, at: u64) {
        self.aside.remove(&at);
    }

    /// Bytes that are kept aside.
    pub fn aside_bytes(&self) -> usize {
        self.aside.values().map(|content| content.len()).sum()
    }

    /// A piece that was taken may be seen again, with what is kept aside of it.
    pub fn put_back(&mut self, range: &Range<u64>) {
        if let Some(content) = self.aside.remove(&range.start) {
            self.note(range, true);
            self.frames.copy_in(range.start, &content);
        }
    }

    /// What stands at a place, seen by importers or kept aside.
    ///
    /// # Panics
    /// If it is beyond the frames, or goes from a piece that was taken into another.
    pub fn copy_out(&mut self, at: u64, into: &mut [u8]) {
        if let Some((begin, content)) = self.kept_aside(at) {
            let from = index(at - begin);
            into.copy_from_slice(&content[from..from + into.len()]);
            return;
        }
        // To look at a page gives it a frame.
        self.note(&(at..at + into.len() as u64), true);
        self.frames.copy_out(at, into);
    }

    /// Changes what stands at a place.
    ///
    /// # Panics
    /// As [`Exports::copy_out`].
    pub fn copy_in(&mut self, at: u64, content: &[u8]) {
        if let Some((begin, kept)) = self.kept_aside(at) {
            let from = index(at - begin);
            kept[from..from + content.len()].copy_from_slice(content);
            return;
        }
        self.note(&(at..at + content.len() as u64), true);
        self.frames.copy_in(at, content);
    }

    /// The content of a piece that was taken is this.
    pub fn keep_aside(&mut self, at: u64, content: &[u8]) {
        self.aside.insert(at, content.into());
    }

    fn kept_aside(&mut self, at: u64) -> Option<(u64, &mut [u8])> {
        let (&begin, content) = self.aside.range_mut(..=at).next_back()?;
        (at < begin + content.len() as u64).then_some((begin, content))
    }

    fn check(&self, range: &Range<u64>) {
        assert!(range.start < range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
    }
}
