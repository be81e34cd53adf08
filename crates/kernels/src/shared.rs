//! Memory that several cells share, at block grain. (Cache Kernel §2.1, consistency faults)
//!
//! A [`SharedSegment`] is one cell's part of pages that application kernels of several cells have in common, each under a supervisor of its own. Each cell has frames for all pages;
//! of each *block* of a page the state machines of `comb-coherence` say whether what is in the frame counts, and whether it may be stored to. A page is mapped only
//! with rights that all of its blocks have here. A thread that faults waits until those blocks that are missing, and no others, have come; what another cell asks back
//! is unmapped, or made read-only, before it is copied out of the frame and sent. So unmodified programs run on it: one may store or some may load, and whoever loads
//! finds what was stored last.
//!
//! It has no thread, no clock and no connection of its own. Its kernel tells it of faults ([`SharedSegment::fault`]), of letters that came ([`SharedSegment::hear`]) and of time
//! ([`SharedSegment::turn`]), and takes from it letters to send and events. A [`Transport`] carries letters, each once and in their order.
//!
//! **Who gets on.** Cells that want the same page could take its blocks from each other for ever. So blocks that a thread waits for are kept once they have come, as far as
//! all before them in their page are here: whoever has the first that is contended for keeps it until it has all, and nobody waits for one who waits for him. A
//! complete page is then kept for a moment ([`Shape::hold`]), in which its threads can go on.

mod blocks;
mod letter;
mod meeting;
mod pages;
mod segment;
mod transport;

pub use self::blocks::Ground;
pub use self::letter::{Letter, LetterError, Wake};
pub use self::meeting::{MeetingError, Met, Number, meet};
pub use self::pages::{Arrival, SharedPages};
pub use self::segment::{Event, HearError, Place, SharedSegment, WantError};
pub use self::transport::{Local, Stream, Transport};
pub use comb_coherence::{Access, Block};

use std::time::Duration;

use thiserror::Error;

/// What all cells that share a segment say of it, alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// How many pages it has. Page `p` lives in cell `p` modulo their number.
    pub pages: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// How many cells share it: those with the numbers from 0 on.
    pub cells: u32,
    /// How long a page is kept, once it is complete, before others are served.
    pub hold: Duration,
}

/// Why a segment cannot have a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ShapeError {
    /// Not a power of two, or more than a page.
    #[error("blocks of {0} bytes: they are a power of two, from 16 to 4,096")]
    BlockBytes(u32),
    /// Not as many frames as pages.
    #[error("{frames} page frames for {pages} pages")]
    Frames {
        /// So many.
        frames: u32,
        /// For so many.
        pages: u32,
    },
    /// A cell that is not among those that share it.
    #[error("cell {0} is not one of the {1} that share the segment")]
    Cell(u32, u32),
}
