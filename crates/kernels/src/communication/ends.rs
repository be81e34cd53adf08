//! Channels whose end is a program's.

use comb_kernel::calls::Calls;
use comb_kernel::objects::{Mapping, SpaceId, ThreadId};
use comb_kernel::supervisor::CallError;

use super::channel::begin;
use super::{Pages, Shape};

/// Where a space has the pages of both ends of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The space.
    pub space: SpaceId,
    /// The thread that hears of the other end's messages.
    pub thread: ThreadId,
    /// The page where its own end begins: it may write there.
    pub own: u64,
    /// The page where the other end begins.
    pub other: u64,
}

impl Place {
    /// The address of what is at an offset of the other end's pages.
    pub fn address(&self, offset: usize) -> u64 {
        (self.other << 12) + offset as u64
    }

    /// Tells its thread of a message of the other end: what [`super::Channel::send`] has returned. To how many it was told: none if there was no room among
    /// the thread's signals.
    pub fn signal(&self, calls: &mut (impl Calls + ?Sized), offset: usize) -> Result<u32, CallError> {
        calls.signal(self.space, self.address(offset))
    }
}

/// Opens a program's end for it: its pages are zeros. From then on they are the program's.
pub fn open_end(shape: Shape, own: &Pages) {
    assert!(own.count() >= shape.pages(), "pages for all places");
    begin(shape, own);
}

/// Maps the pages of both ends into a space, in message mode. All of them go if one goes, and are to be mapped again: a program that writes a message then faults.
/// (§4.2)
pub fn map_end(
    calls: &mut (impl Calls + ?Sized),
    place: &Place,
    own: &Pages,
    other: &Pages,
) -> Result<(), CallError> {
    // Who hears of messages comes before who writes them.
    let heard = Mapping {
        message: true,
        signal: Some(place.thread),
        ..Mapping::read(place.space, place.other, other.first().into())
    };
    calls.load_mappings(&heard, other.count())?;
    let written = Mapping {
        message: true,
        writable: true,
        stored: true,
        ..Mapping::read(place.space, place.own, own.first().into())
    };
    calls.load_mappings(&written, own.count())
}
