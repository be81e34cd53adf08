//! Blocks, and what a cell may do with one.

use core::fmt;

/// A block of an allocation, as counted from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Block(pub u64);

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// What loads and stores of this cell may do with a block. (Blizzard §2)
///
/// The numbers are those of the state table: memory that was never touched is nobody's but its home's, so that 0 is the right
/// of one who needs no table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Access {
    /// Loads and stores go through.
    ReadWrite = 0,
    /// Loads go through.
    ReadOnly = 1,
    /// Nothing goes through.
    Invalid = 2,
}

impl Access {
    /// Whether a load goes through.
    pub fn may_load(self) -> bool {
        self != Self::Invalid
    }

    /// Whether a store goes through.
    pub fn may_store(self) -> bool {
        self == Self::ReadWrite
    }

    /// Whether one of them does.
    pub fn allows(self, is_store: bool) -> bool {
        if is_store { self.may_store() } else { self.may_load() }
    }
}
