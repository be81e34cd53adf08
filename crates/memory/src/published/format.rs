//! What stands where in memory that a cell has published.
//!
//! | bytes from | what |
//! |---|---|
//! | 0 | a record: [`Header`], which does not change |
//! | 64 | the epoch word |
//! | 128 | a record: [`Tick`], where a line of the cache is its own |
//! | 256 | a record: [`Root`] |
//! | 4096 | records |
//!
//! A record is 16 bytes, *tag word* and *sequence word*, and its content behind them. Records begin at multiples of 16. The place of a
//! record stays one, of the same size, whatever becomes of its content: so a sequence word is never anything else, and only grows.

use comb_types::{CellId, Incarnation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::careful::CarefulError;
use crate::far::{Far, Structure};
use crate::space::PAGE_BYTES;

/// Readers take no other: cells of one group run one build.
const VERSION: u64 = 1;

/// What is published is small beside the frames, and to map it must not take all addresses.
pub(crate) const MOST_BYTES: u64 = 1 << 36;

pub(crate) const HEADER_BYTES: u64 = PAGE_BYTES as u64;

/// Of a record, in front of its content: the two words.
pub(crate) const FRONT_BYTES: u64 = 16;

/// Content begins at a multiple of this.
pub(crate) const ALIGNMENT: u64 = 16;

/// Where the epoch word is.
pub(crate) const EPOCH: u64 = 64;

/// Where the content of the first records is. A record that changes on every tick would take the epoch word's line of the cache from all who read.
pub(crate) const HEADER: u64 = FRONT_BYTES;
pub(crate) const TICK: u64 = 128 + FRONT_BYTES;
pub(crate) const ROOT: u64 = 256 + FRONT_BYTES;

/// The first record of the allocator.
pub(crate) const FIRST_RECORD: u64 = HEADER_BYTES;

/// Where pointers may lead: its content.
pub(crate) const FIRST_CONTENT: u64 = FIRST_RECORD + FRONT_BYTES;

/// How far a cell's protocol loop has come.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Tick(pub(crate) u64);

impl Structure for Tick {
    const TAG: u32 = u32::from_le_bytes(*b"tick");
}

/// Where readers begin.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Root(pub(crate) Far<()>);

impl Structure for Root {
    const TAG: u32 = u32::from_le_bytes(*b"root");
}

/// What stands at the beginning.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    version: u64,
    cell: u64,
    incarnation: u64,
    bytes: u64,
}

impl Structure for Header {
    const TAG: u32 = u32::from_le_bytes(*b"Comb");
}

impl Header {
    pub(crate) fn new(cell: CellId, incarnation: Incarnation, bytes: u64) -> Self {
        Self { version: VERSION, cell: cell.0.into(), incarnation: incarnation.0, bytes }
    }

    /// Whether this is the beginning of what that life of the cell has published; how long that is, as it says.
    pub(crate) fn check(&self, cell: CellId, incarnation: Incarnation) -> Result<u64, CarefulError> {
        let Self { version, cell: found_cell, incarnation: found_incarnation, bytes } = *self;
        if version != VERSION {
            return Err(CarefulError::Version { cell, found: version });
        }
        if found_cell != cell.0.into() {
            return Err(CarefulError::NotIts { cell, found: found_cell });
        }
        if found_incarnation != incarnation.0 {
            let found = Incarnation(found_incarnation);
            return Err(CarefulError::OtherIncarnation { cell, expected: incarnation, found });
        }
        if !may_be_length(bytes) {
            return Err(CarefulError::NotPublished { cell, rule: "it says how long it is" });
        }
        Ok(bytes)
    }
}

/// Whether something published can be so long.
pub(crate) fn may_be_length(bytes: u64) -> bool {
    bytes.is_multiple_of(PAGE_BYTES as u64) && (2 * HEADER_BYTES..=MOST_BYTES).contains(&bytes)
}

/// The epoch word of a cell that lives: even, and of this incarnation alone. Memory that was never written says nothing of the kind.
#[inline]
pub(crate) const fn alive(incarnation: Incarnation) -> u64 {
    incarnation.0.wrapping_add(1) << 1
}

/// Whether it may be read no more, by its own word: odd.
pub(crate) const CUT_OFF: u64 = 1;

/// What the tag word of a record says whose content is so many bytes of this type. Zero is that of none.
#[inline]
pub(crate) const fn tag_word(tag: u32, bytes: u32) -> u64 {
    (tag as u64) << 32 | bytes as u64
}

/// The tag in a tag word, and how many bytes the content has.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
pub(crate) const fn tag_of(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The tag word of one structure, not an array of them.
#[inline]
pub(crate) const fn tag_word_of<T: Structure>() -> u64 {
    const {
        assert!(T::TAG != 0, "zero is the tag of what was freed");
        assert!(align_of::<T>() as u64 <= ALIGNMENT, "no structure is aligned so far");
        assert!(size_of::<T>() > 0 && size_of::<T>() < 1 << 31, "no structure has this size");
    }
    #[expect(clippy::cast_possible_truncation, reason = "as just asserted")]
    tag_word(T::TAG, size_of::<T>() as u32)
}
