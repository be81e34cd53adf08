//! A cell as the home of blocks.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use comb_types::CellId;

use super::client::{HAS_COPY, MAY_KEEP};
use super::message::{Kind, Want};
use super::{Access, Block, Cells, Content, Message, PeerError, Stache, Tempest};
use crate::directory::Holding;
use crate::homes::Home;
use crate::tempest::Loss;

/// Somebody wants a right, or is to be the home.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Request {
    pub(super) from: CellId,
    pub(super) want: Want,
    /// Whether it has a copy to read, and so needs no content.
    pub(super) has_copy: bool,
}

impl Request {
    /// Tells who counts that somebody has missed a block.
    fn is_missed(&self, tempest: &mut dyn Tempest, block: Block) {
        if self.want != Want::Home {
            tempest.missed(block, self.from, self.want == Want::Write);
        }
    }
}

/// A request that is being served, and those behind it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Transaction {
    request: Request,
    /// Who was asked to give something up, and has not answered.
    asked: Cells,
    /// Whether the content is with one of them, and has not come.
    is_away: bool,
    /// Who has kept a copy to read.
    keeps: Cells,
    /// The last that died and might have had the content.
    dead: Option<CellId>,
    /// The block was given away: who is its home as soon as it says that it has taken it.
    pub(super) given: Option<Home>,
    pub(super) behind: VecDeque<Request>,
}

impl Transaction {
    /// Nobody was asked for anything.
    pub(super) fn of(request: Request) -> Self {
        let (asked, keeps, behind) = (Cells::NONE, Cells::NONE, VecDeque::new());
        Self { request, asked, is_away: false, keeps, dead: None, given: None, behind }
    }

    fn requests(&mut self) -> impl Iterator<Item = &mut Request> {
        core::iter::once(&mut self.request).chain(&mut self.behind)
    }

    pub(super) fn is_to_move(&mut self) -> bool {
        self.requests().any(|request| request.want == Want::Home)
    }
}

impl Stache {
    /// What a client of a block says that is homed here, or was.
    pub(super) fn hear_client(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        kind: Kind,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let (block, home) = (message.block, tempest.home(message.block));
        let is_question = matches!(kind, Kind::Read | Kind::Write);
        if home.cell != tempest.me() {
            // Whoever has anything of it has given it up before it moved, and said so.
            if !is_question || home.moves == 0 {
                return Err(PeerError::NotHome(block));
            }
            tempest.send(from, Kind::Moved as u8, block, home.to_word(), Content::None);
            return Ok(());
        }
        match kind {
            Kind::Read => self.asked(tempest, block, Request { from, want: Want::Read, has_copy: false }),
            Kind::Write => {
                let has_copy = match message.word {
                    0 => false,
                    HAS_COPY => true,
                    word => return Err(PeerError::Word(word)),
                };
                self.asked(tempest, block, Request { from, want: Want::Write, has_copy })
            }
            Kind::Returned | Kind::Dropped => self.given_up(tempest, from, block, message.content),
            Kind::GivenBack => self.given_back(tempest, from, block, message.content),
            Kind::Taken | Kind::Declined => {
                let given = self.given(block);
                let given = given.filter(|given| given.cell == from).ok_or(PeerError::NotAsked(block))?;
                if message.word != u64::from(given.moves) {
                    return Err(PeerError::Word(message.word));
                }
                if kind == Kind::Taken {
                    self.taken(tempest, block, given);
                } else {
                    self.declined(tempest, block);
                }
                Ok(())
            }
            _ => unreachable!("a message to a client"),
        }
    }

    /// Another cell wants a right.
    fn asked(&mut self, tempest: &mut dyn Tempest, block: Block, request: Request) -> Result<(), PeerError> {
        let from = request.from;
        match self.directory.holding(block) {
            Holding::Exclusive(cells) if cells.single() == Some(from) => {
                return Err(PeerError::HeldAlready(block));
            }
            Holding::Shared(cells) if cells.contains(from) => {}
            _ if request.has_copy => return Err(PeerError::NotHeld(block)),
            _ => {}
        }
        // That it is to be the home, it has not asked for.
        let is_its = |other: &mut Request| other.from == from && other.want != Want::Home;
        let transaction = self.transactions.get_mut(&block);
        if transaction.is_some_and(|transaction| transaction.requests().any(is_its)) {
            return Err(PeerError::AskedTwice(block));
        }
        self.request(tempest, block, request);
        Ok(())
    }

    /// Serves a request, this cell's own too, as soon as those before it are served.
    pub(super) fn request(&mut self, tempest: &mut dyn Tempest, block: Block, request: Request) {
        if let Some(transaction) = self.transactions.get_mut(&block) {
            let mine = tempest.me();
            let is_there = request.from == mine && transaction.requests().any(|other| other.from == mine);
            if !is_there {
                request.is_missed(tempest, block);
                transaction.behind.push_back(request);
            }
            return;
        }
        request.is_missed(tempest, block);
        self.begin(tempest, block, request, VecDeque::new());
    }

    /// Asks whoever stands in the way.
    pub(super) fn begin(
        &mut self,
        tempest: &mut dyn Tempest,
        block: Block,
        request: Request,
        behind: VecDeque<Request>,
    ) {
        let (mut asked, mut is_away) = (Cells::NONE, false);
        match self.directory.holding(block) {
            Holding::Exclusive(cells) => (asked, is_away) = (cells.clone(), true),
            Holding::Shared(cells) if request.want != Want::Read => {
                asked = cells.clone();
                asked.remove(request.from);
            }
            _ => {}
        }
        let (kind, word) = match (is_away, request.want) {
            (true, Want::Read) => (Kind::Recall, MAY_KEEP),
            (true, Want::Write | Want::Home) => (Kind::Recall, 0),
            (false, _) => (Kind::Invalidate, 0),
        };
        asked.iter().for_each(|cell| tempest.send(cell, kind as u8, block, word, Content::None));
        self.transactions.insert(block, Transaction { asked, is_away, behind, ..Transaction::of(request) });
        self.go_on(tempest, block);
    }

    /// Somebody has given up what it was asked to.
    fn given_up(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        block: Block,
        content: &[u8],
    ) -> Result<(), PeerError> {
        let transaction = self.transactions.get_mut(&block).ok_or(PeerError::NotAsked(block))?;
        if !transaction.asked.contains(from) {
            return Err(PeerError::NotAsked(block));
        }
        let has_content = !content.is_empty();
        if has_content && !transaction.is_away {
            return Err(PeerError::NotHeld(block));
        }
        transaction.asked.remove(from);
        // Whoever asked for more while it had a copy has it no longer.
        transaction
            .requests()
            .filter(|request| request.from == from)
            .for_each(|request| request.has_copy = false);
        if has_content {
            transaction.is_away = false;
            if transaction.request.want == Want::Read {
                transaction.keeps.insert(from);
            }
            tempest.fill(block, content);
            self.directory.set(block, Holding::Home);
        }
        self.go_on(tempest, block);
        Ok(())
    }

    /// Somebody gives up its right to write without being asked, or before it has heard that it was.
    fn given_back(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        block: Block,
        content: &[u8],
    ) -> Result<(), PeerError> {
        let Holding::Exclusive(cells) = self.directory.holding(block) else {
            return Err(PeerError::NotHeld(block));
        };
        if !cells.contains(from) {
            return Err(PeerError::NotHeld(block));
        }
        if let Some(transaction) = self.transactions.get_mut(&block) {
            if !transaction.is_away || !transaction.asked.contains(from) {
                return Err(PeerError::NotHeld(block));
            }
            transaction.is_away = false;
            tempest.fill(block, content);
            self.directory.set(block, Holding::Home);
            // It will still answer.
            return Ok(());
        }
        tempest.fill(block, content);
        self.directory.set(block, Holding::Home);
        tempest.set_access(block, Access::ReadWrite);
        Ok(())
    }

    /// Grants what is asked for, as soon as nobody stands in the way, and begins with the next.
    fn go_on(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let transaction = &self.transactions[&block];
        if !transaction.asked.is_empty() {
            return;
        }
        let Transaction { request, is_away, keeps, dead, mut behind, .. } =
            self.transactions.remove(&block).expect("it was looked at");
        if is_away {
            self.directory.set(block, Holding::Lost);
            tempest.lose(block, dead.map_or(Loss::Nowhere, Loss::Holder));
        }
        let is_lost = self.directory.holding(block) == Holding::Lost;
        if request.want == Want::Home && !is_lost && !self.dead.contains(request.from) {
            return self.give(tempest, block, request, behind);
        }
        self.grant(tempest, block, &request, keeps);
        if let Some(next) = behind.pop_front() {
            self.begin(tempest, block, next, behind);
        }
    }

    /// Gives a right that nobody else's contradicts. `keeps`: who had the right to write, and still reads.
    fn grant(&mut self, tempest: &mut dyn Tempest, block: Block, request: &Request, keeps: Cells) {
        let (me, from) = (tempest.me(), request.from);
        let (mut readers, is_lost) = match self.directory.holding(block) {
            Holding::Lost => (Cells::NONE, true),
            Holding::Shared(cells) => (cells.clone(), false),
            Holding::Home | Holding::Exclusive(_) => (keeps, false),
        };
        if is_lost {
            if from == me {
                tempest.lose(block, Loss::Nowhere);
            } else if request.want != Want::Home {
                tempest.send(from, Kind::Lost as u8, block, 0, Content::None);
            }
            return;
        }
        let is_dead = self.dead.contains(from);
        match request.want {
            Want::Read => {
                if from != me && !is_dead {
                    readers.insert(from);
                }
                self.directory.set(block, Holding::Shared(&readers));
                let is_alone = readers.is_empty();
                tempest.set_access(block, if is_alone { Access::ReadWrite } else { Access::ReadOnly });
                if from == me {
                    tempest.resume(block);
                } else {
                    tempest.send(from, Kind::Readable as u8, block, 0, Content::Block);
                }
            }
            Want::Write | Want::Home if from == me || is_dead => {
                self.directory.set(block, Holding::Home);
                tempest.set_access(block, Access::ReadWrite);
                tempest.resume(block);
            }
            Want::Home => unreachable!("it was given away"),
            Want::Write => {
                self.directory.set(block, Holding::Exclusive(&Cells::one(from)));
                tempest.set_access(block, Access::Invalid);
                if request.has_copy {
                    tempest.send(from, Kind::Upgraded as u8, block, 0, Content::None);
                } else {
                    tempest.send(from, Kind::Writable as u8, block, 0, Content::Block);
                }
            }
        }
    }

    /// What this cell, its home, was to have of a block is nowhere: whoever asks for it is told. Where somebody else has it, or is asked for it, nothing changes.
    pub fn lose(&mut self, tempest: &mut dyn Tempest, block: Block, loss: Loss) {
        if self.directory.holding(block) == Holding::Home && !self.transactions.contains_key(&block) {
            self.directory.set(block, Holding::Lost);
            tempest.lose(block, loss);
        }
    }

    /// A cell that may hold blocks is dead, or one that was asked, or one that asks.
    pub(super) fn holder_died(&mut self, tempest: &mut dyn Tempest, dead: CellId) {
        self.directory.forget(dead, |block| tempest.lose(block, Loss::Holder(dead)));
        let blocks: Vec<Block> = self.transactions.keys().copied().collect();
        for block in blocks {
            let transaction = self.transactions.get_mut(&block).expect("it was there");
            transaction.keeps.remove(dead);
            if let Some(given) = transaction.given.filter(|given| given.cell == dead) {
                // It may have taken it, and even have given it to another.
                self.taken(tempest, block, given);
            } else if transaction.asked.remove(dead) {
                transaction.dead = Some(dead);
                self.go_on(tempest, block);
            }
        }
    }
}
