//! Memory that an application kernel manages itself. (Cache Kernel §3)
//!
//! A [`Segment`] is pages that are kept somewhere; [`Segments`] are those of a space, by where its programs see them. [`Paged`] is the segment that most will take: its
//! pages are kept in a [`Backing`], and of those that are in frames a [`Replacement`] decides which one goes. Whatever a kernel knows better, it says by an
//! implementation of its own of one of these traits; all that it does not say is as the library has it.

mod anonymous;
mod backing;
mod content;
mod disk;
mod paged;
mod pages;
mod pool;
mod replacement;
mod resources;
mod segments;

use comb_kernel::objects::{SpaceId, Tag};
use comb_kernel::supervisor::CallError;
use comb_kernel::thread::Touch;
use thiserror::Error;

pub use self::anonymous::Anonymous;
pub use self::backing::{Backing, BackingError, File};
pub use self::content::Piece;
pub use self::paged::{Counts, Paged};
pub use self::pages::Pages;
pub use self::pool::{Pool, Run};
pub use self::replacement::{Clock, Replacement, Step};
pub use self::resources::Resources;
pub use self::segments::{Overlap, Segments};

/// Bytes of a page, and of a frame.
pub const PAGE_BYTES: usize = 4096;

/// What may be done with the pages of a segment, where a space sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Stores.
    pub write: bool,
    /// Instructions.
    pub execute: bool,
}

/// Where a segment is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its kernel's name for the space.
    pub tag: Tag,
    /// The space, as it is loaded now.
    pub space: SpaceId,
    /// The page of the space where the segment's first one is.
    pub first: u64,
    /// What may be done there.
    pub rights: Rights,
}

/// Why a fault cannot be answered so that the program goes on.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The program's: there is nothing.
    #[error("a {touch:?} of {address:#x}, where no segment is")]
    Outside {
        /// Where.
        address: u64,
        /// How.
        touch: Touch,
    },
    /// The program's: it may not.
    #[error("a {touch:?} of {address:#x}, where that is forbidden")]
    Forbidden {
        /// Where.
        address: u64,
        /// How.
        touch: Touch,
    },
    /// What keeps the pages has not done what it should. Pages that were modified still are in their frames.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// The kernel's own: nothing that its policy names can go.
    #[error("no frame can be had for page {page}, of {most} that the segment may have")]
    NoFrame {
        /// Of the segment.
        page: u64,
        /// Frames.
        most: u32,
    },
    /// The supervisor refuses.
    #[error("the supervisor: {0}")]
    Calls(#[from] CallError),
}

/// Whether a page is where its thread can touch it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It is.
    Here,
    /// Not yet: something moves, and others can run meanwhile.
    OnItsWay,
}

/// Pages that are kept somewhere, and are in frames when they are needed. Numbers of pages are those of the segment.
pub trait Segment {
    /// How many pages there are.
    fn pages(&self) -> u64;

    /// A thread has touched a page in a way that it can not: when this returns, it can.
    fn fault(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
    ) -> Result<(), FaultError>;

    /// The same, without waiting for what is slow, while other threads can run. If the page is on its way, this is asked again whenever the kernel's bell has rung, and an error may
    /// come then, too. What it has brought stays until [`Resources::next_round`].
    fn begin_fault(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
    ) -> Result<Arrival, FaultError> {
        self.fault(resources, place, page, touch).map(|()| Arrival::Here)
    }

    /// The frame in which a page is, for the kernel itself, until the next call of anything here. If it is to be written, it counts as modified from now on.
    fn locate(
        &mut self,
        resources: &mut Resources,
        place: &Place,
        page: u64,
        touch: Touch,
    ) -> Result<u32, FaultError>;

    /// A page's mapping is not loaded any more.
    fn written_back(&mut self, page: u64, modified: bool, referenced: bool);

    /// When this returns, all that was modified is where the pages are kept.
    fn sync(&mut self, resources: &mut Resources, place: &Place) -> Result<(), FaultError>;

    /// What it has done so far.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Gives all frames back, without keeping what is in them.
    fn leave(&mut self, resources: &mut Resources, place: &Place) -> Result<(), FaultError>;
}
