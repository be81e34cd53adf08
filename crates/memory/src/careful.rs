//! Careful references: reading what another cell has published, whatever has become of it. (Hive §4.1)
//!
//! The other cell may be dead, and its memory gone; it may be mad, and have stored anything anywhere in it; it may be well, and change what is being
//! read. A reader gets a value that the other has published as a whole, or an error that names the cell and the rule that was broken; it neither dies nor
//! stays for ever. That shows nothing about what the value *means*: the reader checks it as it would what a message brings.
//!
//! # The protocol
//!
//! [`careful()`] begins a section, which may read a bounded number of times: linked structures may have loops. For each read:
//!
//! 1. The pointer leads to the cell that is being read, is aligned, and leads to the range that cell has published.
//! 2. All is copied to private memory, and looked at there alone: sequence word, tag word, content, the sequence word again, the epoch word, in
//!    this order. If a fault stops the copy, the handler of SIGBUS finds the thread in the copy's few instructions and lets it go on where that is an
//!    error. A fault anywhere else is what it always was, so there is nothing to switch on and off.
//! 3. The tag is that of the structure: the allocator's word, gone when the structure is.
//! 4. The sequence word is even, and was the same before and behind: the content is of one moment. Else it is copied again, a bounded number of
//!    times.
//! 5. The epoch word says that the cell, in the life that the reader knows, has not cut itself off.
//!
//! The owner's side is [`crate::published`].
//!
//! # Where from
//!
//! A [`Source`] is whatever bytes can be got from: [`Peer`], a mapping of this host's memory, or [`Remote`], by a function that gets bytes from another
//! host. The protocol is the same. What answers such a function on the other host is a [`Source`] as well: the owner's
//! [`Published`](crate::Published), or a [`Peer`].

mod errors;
mod peer;
mod remote;
mod routine;

use std::cell::Cell;

use comb_types::{CellId, Incarnation};
use zerocopy::{FromZeros, IntoBytes};

pub use self::errors::CarefulError;
pub use self::peer::Peer;
pub use self::remote::Remote;
pub(crate) use self::routine::landing;
use crate::far::{Far, Structure};
use crate::published::format::{
    self, ALIGNMENT, FIRST_CONTENT, FRONT_BYTES, Header, Root, Tick, tag_of, tag_word_of,
};
use crate::space::index;

/// What a section may read if it says nothing else: far more than any structure has that is read in one go, and over in a tenth of a second.
pub const READS: u32 = 10_000;

/// How often something is copied that changes meanwhile. Whoever changes one structure in a loop leaves it alone between two changes for long enough
/// to copy it, if it is small; and an owner that was stopped within a change may not run again for longer than anybody should wait here.
const TRIES: u32 = 128;

/// Of a structure that [`Source::take_if`] is asked for.
const LARGEST_SHORT_CUT: usize = 64;

/// Why bytes could not be got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// The memory is no more.
    BusError,
    /// They are not to be had: the network has no answer, or somebody refuses.
    Unreachable(&'static str),
}

impl Gone {
    pub(crate) const BEYOND: Self = Self::Unreachable("that is beyond what the cell has published");
}

/// What was seen around a copy of a record's content, in this order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Taken {
    /// The sequence word, before.
    pub before: u64,
    /// The tag word.
    pub tag: u64,
    /// The sequence word, behind the content.
    pub after: u64,
    /// The epoch word, behind that.
    pub epoch: u64,
}

impl Taken {
    #[inline]
    fn is_stable(&self) -> bool {
        self.before == self.after && self.before & 1 == 0
    }
}

/// Where the bytes come from that a cell has published.
pub trait Source {
    /// Whose they are.
    fn cell(&self) -> CellId;

    /// In which life, as the reader knows.
    fn incarnation(&self) -> Incarnation;

    /// How many there are.
    fn bytes(&self) -> u64;

    /// Copies bytes, of whatever is there by now: all of it was there after the call began, and before it ended.
    fn copy(&self, offset: u64, into: &mut [u8]) -> Result<(), Gone>;

    /// Copies from a record's content, and what is to be seen around it, each behind the one before: the content is at `record`, and wanted from byte
    /// `from` on.
    #[inline]
    fn take(&self, record: u64, from: u64, into: &mut [u8]) -> Result<Taken, Gone> {
        let word = |at| {
            let mut bytes = [0; 8];
            self.copy(at, &mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let before = word(record - 8)?;
        let tag = word(record - FRONT_BYTES)?;
        if !into.is_empty() {
            self.copy(record + from, into)?;
        }
        Ok(Taken { before, tag, after: word(record - 8)?, epoch: word(format::EPOCH)? })
    }

    /// A short cut, for whoever has one: copies a record's content as [`Source::take`] does, and compares the words around it to what they should
    /// be. False says nothing but that this is to be done in the other way.
    #[inline]
    fn take_if(&self, _record: u64, _into: &mut [u8], _tag_word: u64) -> Result<bool, Gone> {
        Ok(false)
    }
}

/// Reads what a cell has published, at most [`READS`] times.
#[inline]
pub fn careful<'a, S: Source + ?Sized, R>(source: &'a S, section: impl FnOnce(&Careful<'a, S>) -> R) -> R {
    careful_within(source, READS, section)
}

/// As [`careful()`], at most `reads` times, tries counted.
#[inline]
pub fn careful_within<'a, S: Source + ?Sized, R>(
    source: &'a S,
    reads: u32,
    section: impl FnOnce(&Careful<'a, S>) -> R,
) -> R {
    section(&Careful { source, limit: reads, left: Cell::new(reads) })
}

/// A section in which a cell's structures are read.
#[derive(Debug)]
pub struct Careful<'a, S: Source + ?Sized = Peer> {
    source: &'a S,
    limit: u32,
    left: Cell<u32>,
}

impl<S: Source + ?Sized> Careful<'_, S> {
    /// Whose structures these are.
    pub fn cell(&self) -> CellId {
        self.source.cell()
    }

    /// What a section ends with that finds structures to contradict each other: what is so where nothing is wrong.
    pub fn broken(&self, rule: &'static str) -> CarefulError {
        CarefulError::Broken { cell: self.cell(), rule }
    }

    /// A structure. What is in it is an allegation.
    #[inline]
    pub fn read<T: Structure>(&self, far: Far<T>) -> Result<T, CarefulError> {
        self.read_from(FIRST_CONTENT, far)
    }

    /// An array, of at most `most` elements.
    pub fn array<T: Structure>(&self, far: Far<T>, most: usize) -> Result<Vec<T>, CarefulError> {
        self.admit(FIRST_CONTENT, far, 0)?;
        let (record, each) = (far.offset(), size_of::<T>() as u64);
        let tag_word = self.take(record, 0, &mut [], |found| self.check_type::<T>(record, found))?;
        let (_, bytes) = tag_of(tag_word);
        let bytes = u64::from(bytes);
        if !bytes.is_multiple_of(each) || bytes / each > most as u64 {
            return Err(self.wrong_length::<T>(record, bytes, most));
        }
        self.admit(FIRST_CONTENT, far, bytes)?;
        let mut array = vec![T::new_zeroed(); index(bytes / each)];
        self.take(record, 0, array.as_mut_bytes(), |found| self.check_tag(record, found, tag_word))?;
        Ok(array)
    }

    /// One element of an array, however long that is.
    #[inline]
    pub fn element<T: Structure>(&self, far: Far<T>, element: usize) -> Result<T, CarefulError> {
        let (record, each) = (far.offset(), size_of::<T>() as u64);
        let from = (element as u64).saturating_mul(each);
        let end = from.saturating_add(each);
        self.admit(FIRST_CONTENT, far, end)?;
        let mut value = T::new_zeroed();
        self.take(record, from, value.as_mut_bytes(), |found| {
            self.check_type::<T>(record, found)?;
            let (_, bytes) = tag_of(found);
            let is_there = end <= bytes.into();
            if is_there { Ok(()) } else { Err(self.wrong_length::<T>(record, bytes.into(), element)) }
        })?;
        Ok(value)
    }

    /// How far the cell's protocol loop has come: a cell whose loop stands still shows the same number again. (Hive §4.3)
    #[inline]
    pub fn tick(&self) -> Result<u64, CarefulError> {
        let far = Far::<Tick>::alleged(self.cell(), format::TICK);
        self.read_from(0, far).map(|tick| tick.0)
    }

    /// Where the cell wants its readers to begin; [`Far::NONE`] if it has not said. It says nothing about the type: `T` is what the reader expects.
    pub fn root<T: Structure>(&self) -> Result<Far<T>, CarefulError> {
        let far = Far::<Root>::alleged(self.cell(), format::ROOT);
        self.read_from(0, far).map(|root| Far::alleged(root.0.cell(), root.0.offset()))
    }

    /// A structure whose content begins nowhere before `first`. A small one that is in order goes by the short cut; all else is found out step by
    /// step.
    #[inline]
    fn read_from<T: Structure>(&self, first: u64, far: Far<T>) -> Result<T, CarefulError> {
        let mut value = T::new_zeroed();
        if size_of::<T>() > LARGEST_SHORT_CUT {
            self.read_by_steps(first, far, &mut value)?;
            return Ok(value);
        }
        let mut gone = None;
        let left = self.left.get();
        if left > 0 && self.admit(first, far, size_of::<T>() as u64).is_ok() {
            match self.source.take_if(far.offset(), value.as_mut_bytes(), tag_word_of::<T>()) {
                Ok(true) => {
                    self.left.set(left - 1);
                    return Ok(value);
                }
                Ok(false) => {}
                Err(why) => gone = Some(why),
            }
        }
        // Into the same place: what is made of a result in two places is copied once more.
        self.read_after_all(first, far, gone, &mut value)?;
        Ok(value)
    }

    #[cold]
    fn read_after_all<T: Structure>(
        &self,
        first: u64,
        far: Far<T>,
        gone: Option<Gone>,
        value: &mut T,
    ) -> Result<(), CarefulError> {
        match gone {
            Some(gone) => Err(self.gone(far.offset(), gone)),
            None => self.read_by_steps(first, far, value),
        }
    }

    #[inline]
    fn read_by_steps<T: Structure>(
        &self,
        first: u64,
        far: Far<T>,
        value: &mut T,
    ) -> Result<(), CarefulError> {
        self.admit(first, far, size_of::<T>() as u64)?;
        let record = far.offset();
        let check = |found| self.check_tag(record, found, tag_word_of::<T>());
        self.take(record, 0, value.as_mut_bytes(), check).map(drop)
    }

    /// Whether the pointer may be followed. (Hive §4.1, step 2)
    #[inline]
    fn admit<T>(&self, first: u64, far: Far<T>, bytes: u64) -> Result<(), CarefulError> {
        let (cell, offset) = (self.cell(), far.offset());
        if far.cell() != cell {
            return Err(CarefulError::OtherCell { cell, found: far.cell() });
        }
        if !offset.is_multiple_of(ALIGNMENT) {
            return Err(CarefulError::Misaligned { cell, offset });
        }
        let there = self.source.bytes();
        if offset < first || offset > there || bytes > there - offset {
            return Err(CarefulError::OutOfRange { cell, offset, bytes });
        }
        Ok(())
    }

    /// Copies, and then looks at what was copied. The tag word.
    #[inline]
    fn take(
        &self,
        record: u64,
        from: u64,
        into: &mut [u8],
        check: impl Fn(u64) -> Result<(), CarefulError>,
    ) -> Result<u64, CarefulError> {
        let mut version = 0;
        for _ in 0..TRIES {
            self.count()?;
            let taken = self.source.take(record, from, into).map_err(|gone| self.gone(record, gone))?;
            check(taken.tag)?;
            if taken.is_stable() {
                self.check_epoch(taken.epoch)?;
                return Ok(taken.tag);
            }
            version = taken.after;
            std::hint::spin_loop();
        }
        Err(CarefulError::Unstable { cell: self.cell(), offset: record, version })
    }

    #[inline]
    fn count(&self) -> Result<(), CarefulError> {
        let left = self.left.get();
        if left == 0 {
            return Err(CarefulError::TooMany { cell: self.cell(), limit: self.limit });
        }
        self.left.set(left - 1);
        Ok(())
    }

    /// One structure, or one array of this length.
    #[inline]
    fn check_tag(&self, record: u64, found: u64, expected: u64) -> Result<(), CarefulError> {
        if found == expected { Ok(()) } else { Err(self.wrong_tag(record, found, expected)) }
    }

    /// An array, of whatever length.
    #[inline]
    fn check_type<T: Structure>(&self, record: u64, found: u64) -> Result<(), CarefulError> {
        let (tag, _) = tag_of(found);
        if tag == T::TAG { Ok(()) } else { Err(self.wrong_tag(record, found, tag_word_of::<T>())) }
    }

    #[inline]
    fn check_epoch(&self, found: u64) -> Result<(), CarefulError> {
        let is_alive = found == format::alive(self.source.incarnation());
        if is_alive { Ok(()) } else { Err(CarefulError::CutOff { cell: self.cell() }) }
    }

    #[cold]
    fn wrong_tag(&self, offset: u64, found: u64, expected: u64) -> CarefulError {
        let (expected, bytes) = tag_of(expected);
        CarefulError::WrongTag { cell: self.cell(), offset, expected, bytes: bytes.into(), found }
    }

    #[cold]
    fn wrong_length<T>(&self, offset: u64, bytes: u64, wanted: usize) -> CarefulError {
        let (wanted, each) = (wanted as u64, size_of::<T>() as u64);
        CarefulError::WrongLength { cell: self.cell(), offset, bytes, wanted, each }
    }

    #[cold]
    fn gone(&self, offset: u64, gone: Gone) -> CarefulError {
        let cell = self.cell();
        match gone {
            Gone::BusError => CarefulError::BusError { cell, offset },
            Gone::Unreachable(why) => CarefulError::Unreachable { cell, offset, why },
        }
    }
}

/// How long a source says that it is, if it is what that life of that cell has published.
fn read_header<S: Source + ?Sized>(source: &S) -> Result<u64, CarefulError> {
    let (cell, incarnation) = (source.cell(), source.incarnation());
    let header: Header = careful(source, |c| {
        let mut header = Header::new_zeroed();
        let not = |_| CarefulError::NotPublished { cell, rule: "it begins with a mark" };
        let check = |found| c.check_tag(format::HEADER, found, tag_word_of::<Header>()).map_err(not);
        // Whose it is comes before whether that lives.
        let taken = source.take(format::HEADER, 0, header.as_mut_bytes());
        check(taken.map_err(|gone| c.gone(format::HEADER, gone))?.tag)?;
        Ok(header)
    })?;
    let bytes = header.check(cell, incarnation)?;
    careful(source, |c| c.tick())?;
    Ok(bytes)
}
