//! One cell's part of pages that are shared, apart from how they are mapped: who waits for what, and who has to wait for whom.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use comb_coherence::stache::Stache;
use comb_coherence::{Block, Loss, Message, PeerError, Protocol};
use comb_kernel::supervisor::CallError;
use comb_types::CellId;

use super::blocks::{Blocks, Driven, at};
use super::{Ground, HearError, Letter, Shape, ShapeError, WantError};

/// What becomes of those who wait for a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival<W> {
    /// It is here, and may be mapped until the next call of anything here.
    Here {
        /// Which.
        page: u32,
        /// For whom.
        waiters: Vec<W>,
    },
    /// It is lost.
    Lost {
        /// The first block of which that is known.
        block: Block,
        /// Why.
        loss: Loss,
        /// For whom.
        waiters: Vec<W>,
    },
}

/// Those who wait for a page.
#[derive(Debug)]
struct Waiting<W> {
    is_store: bool,
    waiters: Vec<W>,
}

/// One cell's part of pages that are shared, for a kernel that has its own way to map them. `W` names who waits.
#[derive(Debug)]
pub struct SharedPages<W> {
    protocol: Stache,
    blocks: Blocks,
    waiting: BTreeMap<u32, Waiting<W>>,
    /// Pages that are kept until then.
    held: BTreeMap<u32, Instant>,
    /// What others have said of blocks that are kept, in its order.
    deferred: VecDeque<(CellId, Letter)>,
    arrivals: VecDeque<Arrival<W>>,
}

impl<W: PartialEq> SharedPages<W> {
    /// A cell's part: what the ground contains of pages that live in this cell is what the segment contains.
    pub fn new(me: CellId, shape: Shape) -> Result<Self, ShapeError> {
        if !shape.block_bytes.is_power_of_two() || !(16..=4096).contains(&shape.block_bytes) {
            return Err(ShapeError::BlockBytes(shape.block_bytes));
        }
        if me.0 >= shape.cells {
            return Err(ShapeError::Cell(me.0, shape.cells));
        }
        Ok(Self {
            protocol: Stache::new(),
            blocks: Blocks::new(me, shape),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            deferred: VecDeque::new(),
            arrivals: VecDeque::new(),
        })
    }

    /// This cell.
    pub fn me(&self) -> CellId {
        self.blocks.me
    }

    /// As all cells say of it.
    pub fn shape(&self) -> Shape {
        self.blocks.shape
    }

    /// Somebody cannot go on before all of a page can be loaded, or stored to. An arrival tells when, perhaps at once.
    pub fn wait(
        &mut self,
        now: Instant,
        ground: &mut dyn Ground,
        waiter: W,
        page: u32,
        is_store: bool,
    ) -> Result<(), CallError> {
        let waiting = self.waiting.entry(page).or_insert(Waiting { is_store, waiters: Vec::new() });
        waiting.is_store |= is_store;
        if !waiting.waiters.contains(&waiter) {
            waiting.waiters.push(waiter);
        }
        self.blocks.changed.insert(page);
        self.go_on(now, ground)
    }

    /// A letter has come.
    pub fn hear(
        &mut self,
        now: Instant,
        ground: &mut dyn Ground,
        from: CellId,
        letter: Letter,
    ) -> Result<(), HearError> {
        if letter.block.0 >= self.blocks.access.len() as u64 {
            return Err(PeerError::NoBlock(letter.block).into());
        }
        if self.is_kept(letter.block) || self.deferred.iter().any(|(_, other)| other.block == letter.block) {
            // A cell has one question, one answer and what it gives back to say of a block.
            let most = 3 * self.blocks.access.len();
            if self.deferred.iter().filter(|(other, _)| *other == from).count() >= most {
                return Err(HearError::TooMuch(from));
            }
            self.deferred.push_back((from, letter));
            return Ok(());
        }
        let heard = self.tell(ground, from, &letter);
        self.go_on(now, ground)?;
        Ok(heard?)
    }

    fn tell(&mut self, ground: &mut dyn Ground, from: CellId, letter: &Letter) -> Result<(), PeerError> {
        let message =
            Message { kind: letter.kind, block: letter.block, word: letter.word, content: &letter.content };
        self.protocol.on_message(&mut Driven { blocks: &mut self.blocks, ground }, from, message)
    }

    /// Serves those who had to wait, as far as their time has come: at [`Self::next_timeout`], and as often as one likes. What one of them said that cannot be is an error,
    /// and the others are served the next time.
    pub fn turn(&mut self, now: Instant, ground: &mut dyn Ground) -> Result<(), (CellId, HearError)> {
        self.held.retain(|_, until| *until > now);
        let mut later = VecDeque::new();
        let mut result = Ok(());
        while let Some((from, letter)) = self.deferred.pop_front() {
            let is_behind = later.iter().any(|(_, other): &(CellId, Letter)| other.block == letter.block);
            if result.is_err() || is_behind || self.is_kept(letter.block) {
                later.push_back((from, letter));
                continue;
            }
            let heard = self.tell(ground, from, &letter).map_err(HearError::from);
            result = heard.map_err(|error| (from, error));
        }
        self.deferred = later;
        let me = self.blocks.me;
        self.go_on(now, ground).map_err(|error| (me, error.into()))?;
        result
    }

    /// When [`Self::turn`] has something to do, if nothing comes before.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.deferred.is_empty() { None } else { self.held.values().min().copied() }
    }

    /// The next letter to send.
    pub fn poll_transmit(&mut self) -> Option<(CellId, Letter)> {
        self.blocks.letters.pop_front()
    }

    /// What has become of somebody who waited.
    pub fn poll_arrival(&mut self) -> Option<Arrival<W>> {
        self.arrivals.pop_front()
    }

    /// Whether all of a page can be loaded, or stored to, until the next call of anything here.
    pub fn has(&self, page: u32, is_store: bool) -> bool {
        self.blocks.has(page, is_store)
    }

    /// A page is about to be mapped for a program, to be stored to if that is wanted and can be: which is said. Nothing: it cannot be used now.
    pub fn map(&mut self, page: u32, writable: bool) -> Option<bool> {
        self.blocks.map(page, writable)
    }

    /// A cell is dead. What lived there is lost, and what it had alone.
    pub fn peer_died(
        &mut self,
        now: Instant,
        ground: &mut dyn Ground,
        dead: CellId,
    ) -> Result<(), CallError> {
        use comb_coherence::Tempest;
        self.deferred.retain(|(from, _)| *from != dead);
        let mut driven = Driven { blocks: &mut self.blocks, ground };
        for page in 0..driven.blocks.shape.pages {
            if driven.blocks.lives_in(page) == dead {
                for block in driven.blocks.of(page) {
                    driven.lose(block, Loss::Home(dead));
                }
            }
        }
        self.protocol.on_peer_death(&mut driven, dead);
        self.go_on(now, ground)
    }

    /// A page that is here is given to nobody before then, or before [`Self::release`]. Whoever waits for others meanwhile takes them in the order of their numbers,
    /// as all do, so that no two wait for each other.
    pub fn keep(&mut self, page: u32, until: Instant) {
        let held = self.held.entry(page).or_insert(until);
        *held = (*held).max(until);
    }

    /// A page that was kept stays no longer than one that has just come.
    pub fn release(&mut self, now: Instant, page: u32) {
        self.held.insert(page, now + self.blocks.shape.hold);
    }

    /// Whether a block is here and stays for now.
    fn is_kept(&self, block: Block) -> bool {
        let page = self.blocks.page_of(block);
        if self.held.contains_key(&page) {
            return true;
        }
        self.waiting.get(&page).is_some_and(|waiting| {
            let index = block.0 % u64::from(self.blocks.in_page());
            index < u64::from(self.blocks.usable(page, waiting.is_store))
        })
    }

    fn ask(&mut self, ground: &mut dyn Ground, block: Block, is_store: bool) {
        if self.blocks.access[at(block)].allows(is_store) {
            return;
        }
        let mut driven = Driven { blocks: &mut self.blocks, ground };
        if is_store {
            self.protocol.on_write_fault(&mut driven, block);
        } else {
            self.protocol.on_read_fault(&mut driven, block);
        }
    }

    /// Looks at all pages of which something has changed: asks for what is missing, and tells who has all.
    fn go_on(&mut self, now: Instant, ground: &mut dyn Ground) -> Result<(), CallError> {
        while let Some(page) = self.blocks.changed.pop_first() {
            let Some(waiting) = self.waiting.get(&page) else { continue };
            let is_store = waiting.is_store;
            if let Some((block, loss)) = self.blocks.loss(page) {
                let waiters = self.waiting.remove(&page).expect("just found").waiters;
                // What others have said of it has its turn.
                self.held.insert(page, now);
                self.arrivals.push_back(Arrival::Lost { block, loss, waiters });
            } else if self.blocks.has(page, is_store) {
                let waiters = self.waiting.remove(&page).expect("just found").waiters;
                self.keep(page, now + self.blocks.shape.hold);
                self.arrivals.push_back(Arrival::Here { page, waiters });
            } else {
                for block in self.blocks.of(page) {
                    self.ask(ground, block, is_store);
                }
            }
        }
        self.blocks.failed.map_or(Ok(()), Err)
    }

    /// Whether the kernel itself may load a block, or store to it, until the next call of anything here. If not, it is asked for, and this is to be asked again
    /// after letters have come. Unlike a program's page, it is had alone.
    pub fn want(
        &mut self,
        now: Instant,
        ground: &mut dyn Ground,
        block: Block,
        is_store: bool,
    ) -> Result<bool, WantError> {
        if block.0 >= self.blocks.access.len() as u64 {
            return Err(WantError::NoBlock(block));
        }
        if let Some(loss) = self.blocks.lost[at(block)] {
            return Err(WantError::Lost(block, loss));
        }
        self.ask(ground, block, is_store);
        self.go_on(now, ground)?;
        Ok(self.blocks.access[at(block)].allows(is_store))
    }

    /// Where some bytes of a block are, with which the kernel may do this: it has asked before.
    pub(super) fn place_of(&self, block: Block, offset: usize, bytes: usize, is_store: bool) -> usize {
        assert!(self.blocks.access[at(block)].allows(is_store), "what may be done was asked before");
        let length = self.blocks.shape.block_bytes as usize;
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= length), "within the block");
        self.blocks.offset(block) + offset
    }
}
