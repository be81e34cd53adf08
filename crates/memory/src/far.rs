//! Names of structures that a cell lets others read.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use comb_types::CellId;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Plain data that a cell lets others read: any bytes are a value, and a value is its bytes. What is in it is an allegation, whoever reads it.
///
/// Its alignment is at most 16, and it is not empty; else there is an error when it is compiled.
pub trait Structure: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static {
    /// Who sees this where the type is named finds a value of it. Not 0; no other type's, nor that of this type with other fields.
    const TAG: u32;
}

/// Where a cell has a structure, for any cell: plain data, which structures may contain. An array's is that of its first element.
///
/// It is an allegation: nothing shows yet that the cell has published anything there, nor that it is a `T`. A careful
/// reference finds out. (Hive §4.1)
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Far<T> {
    place: Place,
    structure: PhantomData<fn() -> T>,
}

/// As it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Place {
    offset: u64,
    cell: u32,
    /// Nobody looks here.
    padding: u32,
}

impl<T> Far<T> {
    /// Nothing, where there may be something. Whoever reads it is told that it is out of range.
    pub const NONE: Self = Self::alleged(CellId(0), 0);

    /// What somebody says: `offset` bytes from the beginning of what that cell has published.
    pub const fn alleged(cell: CellId, offset: u64) -> Self {
        Self { place: Place { offset, cell: cell.0, padding: 0 }, structure: PhantomData }
    }

    /// Whose it is said to be.
    #[inline]
    pub const fn cell(self) -> CellId {
        CellId(self.place.cell)
    }

    /// Where in what that cell has published.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.place.offset
    }

    /// Whether it is [`Far::NONE`], or as good as that.
    pub const fn is_none(self) -> bool {
        self.place.offset == 0
    }
}

impl<T> Clone for Far<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Far<T> {}

impl<T> PartialEq for Far<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.cell(), self.offset()) == (other.cell(), other.offset())
    }
}

impl<T> Eq for Far<T> {}

impl<T> Hash for Far<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.cell(), self.offset()).hash(state);
    }
}

impl<T> Default for Far<T> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> fmt::Debug for Far<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of {}", self.offset(), self.cell())
    }
}
