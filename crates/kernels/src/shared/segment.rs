//! One cell's part of a shared segment, for kernels that have their programs in spaces: faults, mappings and threads.

use std::collections::VecDeque;
use std::time::Instant;

use comb_coherence::{Access, Block, Loss, PeerError};
use comb_kernel::calls::Calls;
use comb_kernel::objects::{Mapping, Refused, SpaceId, ThreadId};
use comb_kernel::supervisor::CallError;
use comb_kernel::thread::Touch;
use comb_types::CellId;
use thiserror::Error;

use super::{Arrival, Ground, Letter, Shape, ShapeError, SharedPages};
use crate::communication::Pages;

/// What a kernel is told of its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// What a thread touched is lost, as a failed memory module is: it is still stopped at its fault, and its kernel decides what becomes of it. (§2.1, footnote 1)
    Lost {
        /// Who.
        thread: ThreadId,
        /// What.
        block: Block,
        /// Why.
        loss: Loss,
    },
}

/// Why a letter was not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HearError {
    /// The sender's fault. Nothing has changed.
    #[error("a letter that cannot be: {0}")]
    Peer(#[from] PeerError),
    /// The sender's fault: it goes on asking without waiting for answers. Nothing has changed.
    #[error("cell {} has sent more than it can have to say", .0.0)]
    TooMuch(CellId),
    /// This cell's: its supervisor does not do what it must. Nothing more is sent.
    #[error("the supervisor: {0}")]
    Calls(#[from] CallError),
}

/// Why a kernel cannot have a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WantError {
    /// There is none.
    #[error("{0} is beyond the segment")]
    NoBlock(Block),
    /// It is no more.
    #[error("{0} is lost: {1}")]
    Lost(Block, Loss),
    /// The supervisor does not do what it must.
    #[error("the supervisor: {0}")]
    Calls(#[from] CallError),
}

/// Where a space sees the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The space.
    pub space: SpaceId,
    /// The page where the segment's first one is.
    pub first: u64,
    /// Whether its programs may store there.
    pub writable: bool,
}

/// Frames of a kernel, and the spaces that see them.
struct Spaces<'a> {
    frames: &'a Pages,
    places: &'a mut Vec<Place>,
    calls: &'a mut dyn Calls,
}

impl Ground for Spaces<'_> {
    fn restrict(&mut self, page: u32, left: Access) -> Result<(), CallError> {
        let mut result = Ok(());
        self.places.retain(|place| {
            let at = place.first + u64::from(page);
            let done = match left {
                Access::ReadOnly => self.calls.forbid_writes(place.space, at, 1),
                _ => self.calls.unload_mappings(place.space, at, 1).map(drop),
            };
            // What is not loaded has nothing mapped.
            let is_gone = matches!(done, Err(CallError::Refused(Refused::StaleSpace(_))));
            if !is_gone && result.is_ok() {
                result = done;
            }
            !is_gone
        });
        result
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.frames.copy_out(offset, into);
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) {
        self.frames.copy_in(offset, from);
    }
}

/// One cell's part of memory that is shared with others.
#[derive(Debug)]
pub struct SharedSegment {
    pages: SharedPages<(ThreadId, Place)>,
    frames: Pages,
    places: Vec<Place>,
    events: VecDeque<Event>,
}

impl SharedSegment {
    /// A cell's part, in these frames: what they contain of pages that live in this cell is what the segment contains.
    pub fn new(me: CellId, shape: Shape, frames: Pages) -> Result<Self, ShapeError> {
        if frames.count() != shape.pages {
            return Err(ShapeError::Frames { frames: frames.count(), pages: shape.pages });
        }
        let pages = SharedPages::new(me, shape)?;
        Ok(Self { pages, frames, places: Vec::new(), events: VecDeque::new() })
    }

    /// Where it lives in a space. In one that is loaded again, it is to be said again.
    pub fn put(&mut self, place: Place) {
        self.places.retain(|other| other.space != place.space || other.first != place.first);
        self.places.push(place);
    }

    /// The pages, and what they lie on.
    fn split<'a>(
        &'a mut self,
        calls: &'a mut dyn Calls,
    ) -> (&'a mut SharedPages<(ThreadId, Place)>, Spaces<'a>) {
        (&mut self.pages, Spaces { frames: &self.frames, places: &mut self.places, calls })
    }

    /// A thread of a space has stopped at a touch of this address. Whether that is in the segment, and may be: then it goes on once it can, or there is an event.
    pub fn fault(
        &mut self,
        now: Instant,
        calls: &mut dyn Calls,
        (thread, space): (ThreadId, SpaceId),
        address: u64,
        touch: Touch,
    ) -> Result<bool, CallError> {
        let page_there = address >> 12;
        let count = u64::from(self.pages.shape().pages);
        let within =
            |place: &&Place| place.space == space && (place.first..place.first + count).contains(&page_there);
        let Some(&place) = self.places.iter().find(within) else { return Ok(false) };
        if touch == Touch::Execute || (touch == Touch::Write && !place.writable) {
            return Ok(false);
        }
        let page = u32::try_from(page_there - place.first).expect("within the segment");
        let (pages, mut ground) = self.split(calls);
        pages.wait(now, &mut ground, (thread, place), page, touch == Touch::Write)?;
        self.serve(calls)?;
        Ok(true)
    }

    /// A letter has come.
    pub fn hear(
        &mut self,
        now: Instant,
        calls: &mut dyn Calls,
        from: CellId,
        letter: Letter,
    ) -> Result<(), HearError> {
        let (pages, mut ground) = self.split(calls);
        let heard = pages.hear(now, &mut ground, from, letter);
        self.serve(calls)?;
        heard
    }

    /// Serves those who had to wait, as far as their time has come: at [`Self::next_timeout`], and as often as one likes. What one of them said that cannot be is an error,
    /// and the others are served the next time.
    pub fn turn(&mut self, now: Instant, calls: &mut dyn Calls) -> Result<(), (CellId, HearError)> {
        let (pages, mut ground) = self.split(calls);
        let turned = pages.turn(now, &mut ground);
        let me = pages.me();
        self.serve(calls).map_err(|error| (me, error.into()))?;
        turned
    }

    /// When [`Self::turn`] has something to do, if nothing comes before.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.pages.next_timeout()
    }

    /// The next letter to send.
    pub fn poll_transmit(&mut self) -> Option<(CellId, Letter)> {
        self.pages.poll_transmit()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A cell is dead. What lived there is lost, and what it had alone.
    pub fn peer_died(&mut self, now: Instant, calls: &mut dyn Calls, dead: CellId) -> Result<(), CallError> {
        let (pages, mut ground) = self.split(calls);
        pages.peer_died(now, &mut ground, dead)?;
        self.serve(calls)
    }

    /// Maps what has come, and lets go on who waited for it.
    fn serve(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        while let Some(arrival) = self.pages.poll_arrival() {
            let (page, waiters) = match arrival {
                Arrival::Here { page, waiters } => (page, waiters),
                Arrival::Lost { block, loss, waiters } => {
                    let lost = |(thread, _)| Event::Lost { thread, block, loss };
                    self.events.extend(waiters.into_iter().map(lost));
                    continue;
                }
            };
            let frame = u64::from(self.frames.first() + page);
            for (thread, place) in waiters {
                if let Some(writable) = self.pages.map(page, place.writable) {
                    let read = Mapping::read(place.space, place.first + u64::from(page), frame);
                    match calls.load_mappings(&Mapping { writable, stored: writable, ..read }, 1) {
                        // What is not loaded any more does not go on; who is behind faults again.
                        Ok(()) | Err(CallError::Refused(Refused::StaleSpace(_) | Refused::Behind { .. })) => {
                        }
                        Err(error) => return Err(error),
                    }
                }
                if let Ok(area) = calls.area(thread) {
                    area.resume();
                }
            }
        }
        Ok(())
    }

    /// Whether the kernel itself may load a block, or store to it, until the next call of anything here. If not, it is asked for, and this is to be asked again
    /// after letters have come. Unlike a program's page, it is had alone.
    pub fn want(
        &mut self,
        now: Instant,
        calls: &mut dyn Calls,
        block: Block,
        is_store: bool,
    ) -> Result<bool, WantError> {
        let (pages, mut ground) = self.split(calls);
        let wanted = pages.want(now, &mut ground, block, is_store);
        self.serve(calls)?;
        wanted
    }

    /// Copies some bytes of a block that the kernel may load.
    pub fn copy_out(&self, block: Block, offset: usize, into: &mut [u8]) {
        self.frames.copy_out(self.pages.place_of(block, offset, into.len(), false), into);
    }

    /// Stores some bytes of a block that the kernel may store to.
    pub fn copy_in(&mut self, block: Block, offset: usize, from: &[u8]) {
        self.frames.copy_in(self.pages.place_of(block, offset, from.len(), true), from);
    }
}
