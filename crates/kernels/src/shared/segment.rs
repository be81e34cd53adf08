//! One cell's part of a shared segment: who waits for what, and who has to wait for whom.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use comb_coherence::stache::Stache;
use comb_coherence::{Block, Loss, Message, PeerError, Protocol};
use comb_kernel::calls::Calls;
use comb_kernel::objects::{Refused, SpaceId, ThreadId};
use comb_kernel::supervisor::CallError;
use comb_kernel::thread::Touch;
use comb_types::CellId;
use thiserror::Error;

use super::memory::{Driven, Memory, Place};
use super::{Letter, Shape, ShapeError};
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

/// Those who wait for a page.
#[derive(Debug, Default)]
struct Waiting {
    is_store: bool,
    threads: Vec<(ThreadId, Place)>,
}

/// One cell's part of memory that is shared with others.
#[derive(Debug)]
pub struct SharedSegment {
    protocol: Stache,
    memory: Memory,
    waiting: BTreeMap<u32, Waiting>,
    /// Pages that are kept until then.
    held: BTreeMap<u32, Instant>,
    /// What others have said of blocks that are kept, in its order.
    deferred: VecDeque<(CellId, Letter)>,
    events: VecDeque<Event>,
}

impl SharedSegment {
    /// A cell's part, in these frames: what they contain of pages that live in this cell is what the segment contains.
    pub fn new(me: CellId, shape: Shape, frames: Pages) -> Result<Self, ShapeError> {
        if !shape.block_bytes.is_power_of_two() || !(16..=4096).contains(&shape.block_bytes) {
            return Err(ShapeError::BlockBytes(shape.block_bytes));
        }
        if frames.count() != shape.pages {
            return Err(ShapeError::Frames { frames: frames.count(), pages: shape.pages });
        }
        if me.0 >= shape.cells {
            return Err(ShapeError::Cell(me.0, shape.cells));
        }
        Ok(Self {
            protocol: Stache::new(),
            memory: Memory::new(me, shape, frames),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            deferred: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Where it lives in a space. In one that is loaded again, it is to be said again.
    pub fn put(&mut self, place: Place) {
        self.memory.places.retain(|other| other.space != place.space || other.first != place.first);
        self.memory.places.push(place);
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
        let within = |place: &&Place| {
            place.space == space
                && (place.first..place.first + u64::from(self.memory.shape.pages)).contains(&page_there)
        };
        let Some(&place) = self.memory.places.iter().find(within) else { return Ok(false) };
        if touch == Touch::Execute || (touch == Touch::Write && !place.writable) {
            return Ok(false);
        }
        let page = u32::try_from(page_there - place.first).expect("within the segment");
        let waiting = self.waiting.entry(page).or_default();
        waiting.is_store |= touch == Touch::Write;
        if waiting.threads.iter().all(|(other, _)| *other != thread) {
            waiting.threads.push((thread, place));
        }
        self.memory.changed.insert(page);
        self.go_on(now, calls)?;
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
        if letter.block.0 >= self.memory.access.len() as u64 {
            return Err(PeerError::NoBlock(letter.block).into());
        }
        if self.is_kept(letter.block) || self.deferred.iter().any(|(_, other)| other.block == letter.block) {
            // A cell has one question, one answer and what it gives back to say of a block.
            let most = 3 * self.memory.access.len();
            if self.deferred.iter().filter(|(other, _)| *other == from).count() >= most {
                return Err(HearError::TooMuch(from));
            }
            self.deferred.push_back((from, letter));
            return Ok(());
        }
        let heard = self.tell(calls, from, &letter);
        self.go_on(now, calls)?;
        Ok(heard?)
    }

    fn tell(&mut self, calls: &mut dyn Calls, from: CellId, letter: &Letter) -> Result<(), PeerError> {
        let message =
            Message { kind: letter.kind, block: letter.block, word: letter.word, content: &letter.content };
        self.protocol.on_message(&mut Driven { memory: &mut self.memory, calls }, from, message)
    }

    /// Serves those who had to wait, as far as their time has come: at [`Self::next_timeout`], and as often as one likes. What one of them said that cannot be is an error,
    /// and the others are served the next time.
    pub fn turn(&mut self, now: Instant, calls: &mut dyn Calls) -> Result<(), (CellId, HearError)> {
        self.held.retain(|_, until| *until > now);
        let mut later = VecDeque::new();
        let mut result = Ok(());
        while let Some((from, letter)) = self.deferred.pop_front() {
            let is_behind = later.iter().any(|(_, other): &(CellId, Letter)| other.block == letter.block);
            if result.is_err() || is_behind || self.is_kept(letter.block) {
                later.push_back((from, letter));
                continue;
            }
            let heard = self.tell(calls, from, &letter).map_err(HearError::from);
            result = heard.map_err(|error| (from, error));
        }
        self.deferred = later;
        let me = self.memory.me;
        self.go_on(now, calls).map_err(|error| (me, error.into()))?;
        result
    }

    /// When [`Self::turn`] has something to do, if nothing comes before.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.deferred.is_empty() { None } else { self.held.values().min().copied() }
    }

    /// The next letter to send.
    pub fn poll_transmit(&mut self) -> Option<(CellId, Letter)> {
        self.memory.letters.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A cell is dead. What lived there is lost, and what it had alone.
    pub fn peer_died(&mut self, now: Instant, calls: &mut dyn Calls, dead: CellId) -> Result<(), CallError> {
        use comb_coherence::Tempest;
        self.deferred.retain(|(from, _)| *from != dead);
        let mut driven = Driven { memory: &mut self.memory, calls };
        for page in 0..driven.memory.shape.pages {
            if driven.memory.lives_in(page) == dead {
                for block in driven.memory.blocks_of(page) {
                    driven.lose(block, Loss::Home(dead));
                }
            }
        }
        self.protocol.on_peer_death(&mut driven, dead);
        self.go_on(now, calls)
    }

    /// Whether a block is here and stays for now.
    fn is_kept(&self, block: Block) -> bool {
        let page = self.memory.page_of(block);
        if self.held.contains_key(&page) {
            return true;
        }
        self.waiting.get(&page).is_some_and(|waiting| {
            let index = block.0 % u64::from(self.memory.blocks_in_page());
            index < u64::from(self.memory.usable(page, waiting.is_store))
        })
    }

    /// Looks at all pages of which something has changed: asks for what is missing, and lets go on who has all.
    fn go_on(&mut self, now: Instant, calls: &mut dyn Calls) -> Result<(), CallError> {
        while let Some(page) = self.memory.changed.pop_first() {
            let Some(waiting) = self.waiting.get(&page) else { continue };
            let is_store = waiting.is_store;
            if let Some((block, loss)) = self.memory.loss(page) {
                let waiting = self.waiting.remove(&page).expect("just found");
                let lost = |(thread, _)| Event::Lost { thread, block, loss };
                self.events.extend(waiting.threads.into_iter().map(lost));
                continue;
            }
            if self.memory.usable(page, is_store) < self.memory.blocks_in_page() {
                let mut driven = Driven { memory: &mut self.memory, calls };
                for block in driven.memory.blocks_of(page) {
                    if driven.memory.access[usize::try_from(block.0).expect("few blocks")].allows(is_store) {
                        continue;
                    }
                    if is_store {
                        self.protocol.on_write_fault(&mut driven, block);
                    } else {
                        self.protocol.on_read_fault(&mut driven, block);
                    }
                }
                continue;
            }
            let waiting = self.waiting.remove(&page).expect("just found");
            self.held.insert(page, now + self.memory.shape.hold);
            for (thread, place) in waiting.threads {
                match self.memory.map(calls, &place, page) {
                    // What is not loaded any more does not go on; who is behind faults again.
                    Ok(()) | Err(CallError::Refused(Refused::StaleSpace(_) | Refused::Behind { .. })) => {}
                    Err(error) => return Err(error),
                }
                if let Ok(area) = calls.area(thread) {
                    area.resume();
                }
            }
        }
        self.memory.failed.map_or(Ok(()), Err)
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
        let at = usize::try_from(block.0).ok().filter(|at| *at < self.memory.access.len());
        let at = at.ok_or(WantError::NoBlock(block))?;
        if let Some(loss) = self.memory.lost[at] {
            return Err(WantError::Lost(block, loss));
        }
        let mut driven = Driven { memory: &mut self.memory, calls };
        if !driven.memory.access[at].allows(is_store) {
            if is_store {
                self.protocol.on_write_fault(&mut driven, block);
            } else {
                self.protocol.on_read_fault(&mut driven, block);
            }
        }
        self.go_on(now, calls)?;
        Ok(self.memory.access[at].allows(is_store))
    }

    /// Copies some bytes of a block that the kernel may load.
    pub fn copy_out(&self, block: Block, offset: usize, into: &mut [u8]) {
        let at = self.place_of(block, offset, into.len(), false);
        self.memory.frames.copy_out(at, into);
    }

    /// Stores some bytes of a block that the kernel may store to.
    pub fn copy_in(&mut self, block: Block, offset: usize, from: &[u8]) {
        let at = self.place_of(block, offset, from.len(), true);
        self.memory.frames.copy_in(at, from);
    }

    fn place_of(&self, block: Block, offset: usize, bytes: usize, is_store: bool) -> usize {
        let at = usize::try_from(block.0).expect("a block of the segment");
        assert!(self.memory.access[at].allows(is_store), "what may be done was asked before");
        let length = self.memory.shape.block_bytes as usize;
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= length), "within the block");
        at * length + offset
    }
}
