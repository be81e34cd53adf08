//! What is where in the pages of one end of a channel. All numbers are little-endian.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 4 | [`VERSION`] |
//! | 8 | 4 | how many places for messages there are: a power of two |
//! | 12 | 4 | bytes of a place, with its header: a power of two, at most a page |
//! | 64 | 8 | how many messages this end has written |
//! | 128 | 8 | how many of the other end's it has taken |
//! | 192 | 4 | 1 while it is open, 2 once it is closed |
//! | 196 | 4 | 1 while this end sleeps at the other's turn: who changes something then wakes who waits there |
//! | 200 | 4 | turn: changes with anything that this end changes |
//! | 4096 | | the places. Message number `n`, from 0 on, is in place `n` modulo their number |
//!
//! A place begins with the length of the message (4 bytes), its kind (4), and its number (8); the message follows.
//!
//! Who writes a message writes its place, then how many it has written, then the turn; who takes one reads its place, then writes how many it has taken, then the turn. No
//! more than all places may be written and not taken.

use thiserror::Error;

/// What pages of a channel begin with.
pub const MAGIC: u32 = u32::from_le_bytes(*b"chan");
/// Of this layout.
pub const VERSION: u32 = 1;

pub(super) const MAGIC_AT: usize = 0;
pub(super) const VERSION_AT: usize = 4;
pub(super) const PLACES_AT: usize = 8;
pub(super) const PLACE_BYTES_AT: usize = 12;
pub(super) const WRITTEN_AT: usize = 64;
pub(super) const TAKEN_AT: usize = 128;
pub(super) const STATE_AT: usize = 192;
pub(super) const SLEEPS_AT: usize = 196;
pub(super) const TURN_AT: usize = 200;
pub(super) const FIRST_PLACE_AT: usize = 4096;

pub(super) const OPEN: u32 = 1;
pub(super) const CLOSED: u32 = 2;

/// Bytes before a message, in its place.
pub const HEADER_BYTES: usize = 16;

/// How many messages, and how large, an end can have written before the other takes one. Both ends are to say the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    places: u32,
    place_bytes: u32,
}

/// Why a channel cannot be of a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ShapeError {
    /// Not a power of two, or too many.
    #[error("{0} places: they are a power of two, and at most 65,536")]
    Places(u32),
    /// Not a power of two, too few, or more than a page: a message is on one page, so that its address can be signalled.
    #[error("{0} bytes of a place: they are a power of two, from 32 to 4,096")]
    PlaceBytes(u32),
}

impl Shape {
    /// So many places, of so many bytes each.
    pub fn new(places: u32, place_bytes: u32) -> Result<Self, ShapeError> {
        if !places.is_power_of_two() || places > 65_536 {
            return Err(ShapeError::Places(places));
        }
        if !place_bytes.is_power_of_two() || !(32..=4096).contains(&place_bytes) {
            return Err(ShapeError::PlaceBytes(place_bytes));
        }
        Ok(Self { places, place_bytes })
    }

    /// How many places an end has.
    pub fn places(self) -> u32 {
        self.places
    }

    /// Bytes of a place, with its header.
    pub fn place_bytes(self) -> u32 {
        self.place_bytes
    }

    /// The longest message.
    pub fn message_bytes(self) -> usize {
        self.place_bytes as usize - HEADER_BYTES
    }

    /// How many pages each end has.
    pub fn pages(self) -> u32 {
        1 + (self.places * self.place_bytes).div_ceil(4096)
    }

    /// Where a message is, in its end's pages.
    pub(super) fn place(self, number: u64) -> usize {
        let index = usize::try_from(number % u64::from(self.places)).expect("few places");
        FIRST_PLACE_AT + index * self.place_bytes as usize
    }
}
