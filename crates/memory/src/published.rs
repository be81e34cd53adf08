//! What a cell lets all others read, as its owner has it.
//!
//! A file in memory, sealed so that nobody but its maker ever stores to it: peers map it read-only and look at it by *careful references*
//! ([`mod@crate::careful`]), without a word to the owner. It may be shortened: after the cell's death the host's agent cuts it to nothing, and it can never
//! grow again, so what is dead stays dead for all who read.
//!
//! The owner's part of the protocol (Hive §4.1):
//!
//! - In front of each structure stands its type, which the allocator writes behind the content and the deallocator takes away before the place
//!   is used again.
//! - While a structure changes, its sequence word is odd; each change leaves that larger.
//! - The *epoch word* says that all this counts. A cell that panics cuts itself off with one store ([`Published::cut_off`]), which needs no lock and no
//!   memory.
//!
//! The owner trusts none of it to find its way: which places are taken is known to private memory alone.
#![expect(unsafe_code, reason = "hands out words of a mapping that other processes read")]

pub(crate) mod format;
mod room;
mod sequence;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use comb_types::{CellId, Incarnation};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use self::format::{FRONT_BYTES, Header, Root, Tick, tag_of, tag_word, tag_word_of};
use self::room::Room;
use crate::careful::{Gone, Source};
use crate::far::{Far, Structure};
use crate::kernel::Protection;
use crate::mapping::Mapping;
use crate::space::{PAGE_BYTES, index};

/// No store but through the mapping that was made before; no growth. It may shrink.
pub(crate) const SEALS: SealFlags = SealFlags::GROW.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Why nothing could be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Two pages at least, and less than 64 GB.
    #[error("a cell cannot publish {bytes} bytes: from 8192 to {}", format::MOST_BYTES)]
    Length {
        /// As asked for.
        bytes: u64,
    },
    /// The kernel refused. Nothing is left of it.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: Errno,
    },
}

/// There is no room for a structure in what a cell has published. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room to publish {bytes} bytes more")]
pub struct Full {
    /// What was to be published.
    pub bytes: u64,
}

/// What this cell has published. When it is dropped, all readers are cut off.
pub struct Published {
    mapping: Mapping,
    file: OwnedFd,
    cell: CellId,
    incarnation: Incarnation,
    /// Held whenever records change.
    room: Mutex<Room>,
}

impl Published {
    /// Makes room for `bytes`, rounded up to whole pages; memory is taken as it is used.
    pub fn create(cell: CellId, incarnation: Incarnation, bytes: u64) -> Result<Self, PublishError> {
        let system = |action| move |source| PublishError::System { action, source };
        let length = bytes
            .checked_next_multiple_of(PAGE_BYTES as u64)
            .filter(|&bytes| format::may_be_length(bytes))
            .ok_or(PublishError::Length { bytes })?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file =
            rustix::fs::memfd_create("comb-published", flags).map_err(system("make a file in memory"))?;
        rustix::fs::ftruncate(&file, length).map_err(system("size what a cell publishes"))?;
        // Mapped before it is sealed: afterwards nobody can map it to store, this process neither.
        let mapping = Mapping::new(file.as_fd(), length, Protection::LoadsAndStores)
            .map_err(system("map what a cell publishes"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("seal what a cell publishes"))?;
        // A child by fork would be a second owner.
        mapping.advise(libc::MADV_DONTFORK);
        let room = Mutex::new(Room::new(format::FIRST_RECORD, length));
        let published = Self { mapping, file, cell, incarnation, room };
        published.begin();
        Ok(published)
    }

    fn begin(&self) {
        let header = Header::new(self.cell, self.incarnation, self.mapping.bytes());
        self.write_record(format::HEADER, header.as_bytes(), tag_word_of::<Header>());
        self.write_record(format::TICK, Tick(0).as_bytes(), tag_word_of::<Tick>());
        self.write_record(format::ROOT, Root(Far::NONE).as_bytes(), tag_word_of::<Root>());
        self.word(format::EPOCH).store(format::alive(self.incarnation), Ordering::Release);
    }

    /// Whose it is.
    pub fn cell(&self) -> CellId {
        self.cell
    }

    /// In which life.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// For peers: they can read what is published, and neither store to it nor shorten it.
    pub fn reading_descriptor(&self) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// For the host's agent, which shortens the file to nothing when the cell is dead.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The protocol loop has come round. One store; by any thread.
    #[inline]
    pub fn tick(&self) {
        self.word(format::TICK).fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing here counts any more, from this moment on, for anybody who has not read it yet. For a cell that panics: one store, also in a signal handler.
    pub fn cut_off(&self) {
        self.word(format::EPOCH).fetch_or(format::CUT_OFF, Ordering::SeqCst);
    }

    /// Where readers begin that were told nothing else.
    pub fn set_root<T: Structure>(&self, root: Far<T>) {
        let root = Root(Far::alleged(root.cell(), root.offset()));
        let _room = self.room();
        self.change_record(format::ROOT, 0, root.as_bytes());
    }

    /// Publishes a structure.
    pub fn allocate<T: Structure>(&self, value: T) -> Result<Far<T>, Full> {
        self.publish(value.as_bytes())
    }

    /// Publishes structures of one type in a row; none, too.
    pub fn allocate_array<T: Structure>(&self, values: &[T]) -> Result<Far<T>, Full> {
        self.publish(values.as_bytes())
    }

    fn publish<T: Structure>(&self, content: &[u8]) -> Result<Far<T>, Full> {
        let bytes = u32::try_from(content.len()).map_err(|_| Full { bytes: content.len() as u64 })?;
        let (tag, _) = tag_of(tag_word_of::<T>());
        let tag_word = tag_word(tag, bytes);
        let mut room = self.room();
        let offset = room.take(bytes.into(), tag_word)?;
        self.write_record(offset, content, tag_word);
        Ok(Far::alleged(self.cell, offset))
    }

    /// Takes a structure, or an array, back. Readers who come later are told that there is none.
    ///
    /// # Panics
    /// If it is not one that this cell has published.
    pub fn free<T: Structure>(&self, far: Far<T>) {
        let mut room = self.room();
        self.own(&room, far);
        self.word(far.offset() - FRONT_BYTES).store(0, Ordering::Release);
        room.give_back(far.offset());
    }

    /// What a structure is now.
    ///
    /// # Panics
    /// If it is not one that this cell has published.
    pub fn get<T: Structure>(&self, far: Far<T>) -> T {
        self.get_element(far, 0)
    }

    /// The same of an array's element.
    ///
    /// # Panics
    /// As [`Published::get`], or if the array is shorter.
    pub fn get_element<T: Structure>(&self, far: Far<T>, element: usize) -> T {
        let room = self.room();
        let at = self.own_element(&room, far, element);
        self.load(at)
    }

    /// Changes a structure: readers see it as it was, or as `change` leaves it. While `change` runs, no other thread of this process changes anything
    /// here, nor may `change` itself.
    ///
    /// # Panics
    /// As [`Published::get`]. If `change` panics, nothing changed.
    pub fn update<T: Structure>(&self, far: Far<T>, change: impl FnOnce(&mut T)) {
        self.update_element(far, 0, change);
    }

    /// The same for one element of an array. Readers of the whole array see it as it was, or with the new element.
    ///
    /// # Panics
    /// As [`Published::update`], or if the array is shorter.
    pub fn update_element<T: Structure>(&self, far: Far<T>, element: usize, change: impl FnOnce(&mut T)) {
        let room = self.room();
        let at = self.own_element(&room, far, element);
        let mut value: T = self.load(at);
        change(&mut value);
        self.change_record(far.offset(), at - far.offset(), value.as_bytes());
    }

    /// Stores as a thread does that is out of its mind: to any bytes, whatever stands there. What is beyond the end is not stored. For those who inject
    /// faults (Hive §7.4).
    #[cfg(feature = "faults")]
    pub fn corrupt(&self, offset: u64, bytes: &[u8]) {
        let there = self.mapping.bytes();
        if offset < there {
            let room = index(there - offset).min(bytes.len());
            self.store(offset, &bytes[..room]);
        }
    }

    /// Behind this there was never anything.
    #[cfg(feature = "faults")]
    pub fn used_bytes(&self) -> u64 {
        self.room().used()
    }

    /// A thread that panicked while it had this had not begun to store anything.
    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes a record of ours has.
    fn own<T: Structure>(&self, room: &Room, far: Far<T>) -> u64 {
        let found = (far.cell() == self.cell).then(|| room.tag_word(far.offset())).flatten();
        let (tag, bytes) = tag_of(found.unwrap_or(0));
        assert!(
            tag == T::TAG,
            "{far:?} is no structure with tag {:#x} that {} has published",
            T::TAG,
            self.cell
        );
        bytes.into()
    }

    fn own_element<T: Structure>(&self, room: &Room, far: Far<T>, element: usize) -> u64 {
        let (bytes, each) = (self.own(room, far), size_of::<T>());
        assert!(element < index(bytes) / each, "{far:?} has {} elements", index(bytes) / each);
        far.offset() + (element * each) as u64
    }

    /// A place gets its content, and then says so.
    fn write_record(&self, offset: u64, content: &[u8], tag_word: u64) {
        sequence::changing(self.word(offset - 8), || {
            self.store(offset, content);
            self.word(offset - FRONT_BYTES).store(tag_word, Ordering::Release);
        });
    }

    fn change_record(&self, offset: u64, from: u64, content: &[u8]) {
        sequence::changing(self.word(offset - 8), || self.store(offset + from, content));
    }

    fn load<T: Structure>(&self, at: u64) -> T {
        let mut value = T::new_zeroed();
        self.load_bytes(at, value.as_mut_bytes());
        value
    }

    /// Whoever loads while others store loads in order.
    fn load_bytes(&self, at: u64, into: &mut [u8]) {
        let (head, rest) = into.split_at_mut(head(at, into.len()));
        let (whole, tail) = rest.as_chunks_mut::<8>();
        self.load_part(at, head);
        let first = at + head.len() as u64;
        let words = self.words(first, whole.len());
        for (bytes, word) in whole.iter_mut().zip(words) {
            *bytes = word.load(Ordering::Acquire).to_le_bytes();
        }
        self.load_part(first + size_of_val(words) as u64, tail);
    }

    fn store(&self, at: u64, content: &[u8]) {
        let (head, rest) = content.split_at(head(at, content.len()));
        let (whole, tail) = rest.as_chunks::<8>();
        self.store_part(at, head);
        let first = at + head.len() as u64;
        let words = self.words(first, whole.len());
        for (bytes, word) in whole.iter().zip(words) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.store_part(first + size_of_val(words) as u64, tail);
    }

    /// Less than a word, and within one.
    fn load_part(&self, at: u64, into: &mut [u8]) {
        if !into.is_empty() {
            let from = index(at % 8);
            let word = self.word(at - from as u64).load(Ordering::Acquire).to_le_bytes();
            into.copy_from_slice(&word[from..from + into.len()]);
        }
    }

    /// The same; the word's other bytes stay.
    fn store_part(&self, at: u64, content: &[u8]) {
        if !content.is_empty() {
            let from = index(at % 8);
            let word = self.word(at - from as u64);
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            bytes[from..from + content.len()].copy_from_slice(content);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words(at, 1)[0]
    }

    #[inline]
    fn words(&self, at: u64, count: usize) -> &[AtomicU64] {
        if count == 0 {
            return &[];
        }
        let there = self.mapping.bytes();
        assert!(at.is_multiple_of(8) && at <= there && count as u64 <= (there - at) / 8);
        let first = std::ptr::with_exposed_provenance::<AtomicU64>(self.mapping.address() + index(at));
        // SAFETY: aligned, and within the mapping, which lives as long as `self`. This process stores to it by these words alone, and others
        // cannot. When the file was shortened this process is dead, or about to die.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

/// For readers on other hosts, who cannot map it. They have the same protocol before them as those of this host.
impl Source for Published {
    fn cell(&self) -> CellId {
        self.cell
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    fn copy(&self, offset: u64, into: &mut [u8]) -> Result<(), Gone> {
        let there = self.mapping.bytes();
        if offset > there || into.len() as u64 > there - offset {
            return Err(Gone::BEYOND);
        }
        self.load_bytes(offset, into);
        Ok(())
    }
}

/// How many bytes from a place on are not of a word that begins there or behind it.
fn head(at: u64, bytes: usize) -> usize {
    index(at.next_multiple_of(8) - at).min(bytes)
}

impl Drop for Published {
    fn drop(&mut self) {
        // There is nobody left to tell where it was shortened, nor a word to tell them with.
        if rustix::fs::fstat(&self.file).is_ok_and(|status| status.st_size != 0) {
            self.cut_off();
        }
    }
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mapping, file, cell, incarnation, .. } = self;
        let (file, bytes) = (file.as_raw_fd(), mapping.bytes());
        write!(f, "what {cell} has published in {incarnation}: descriptor {file}, of {bytes} bytes")
    }
}
