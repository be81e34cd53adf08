//! A cell as the client of blocks that are homed elsewhere.

use alloc::vec::Vec;

use comb_types::CellId;

use super::message::{Kind, Want};
use super::{Access, Block, Content, Message, PeerError, Stache, Tempest};
use crate::homes::Home;
use crate::tempest::Loss;

/// Word of [`Kind::Recall`]: the copy may stay, to read.
pub(super) const MAY_KEEP: u64 = 1;
/// Word of [`Kind::Write`]: a copy is here, to read.
pub(super) const HAS_COPY: u64 = 1;

/// A question that is not answered yet. Each gets one answer, or whoever was asked dies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Question {
    pub(super) want: Want,
    /// Who was asked, being the home as far as was known.
    pub(super) of: Home,
}

impl Stache {
    /// Asks for a right, once.
    pub(super) fn ask(&mut self, tempest: &mut dyn Tempest, block: Block, want: Want) {
        let access = tempest.access(block);
        if access.allows(want == Want::Write) {
            return tempest.resume(block);
        }
        // Whoever wants more than was asked for tries again when that is here. So does who asked another, before it was given the block
        // and gave it away again: that answer is still to come.
        if self.wanted.contains_key(&block) {
            return;
        }
        let of = tempest.home(block);
        if self.dead.contains(of.cell) {
            // Nobody would answer. Who told it that it will want to read may not have known.
            return tempest.lose(block, Loss::Home(of.cell));
        }
        self.wanted.insert(block, Question { want, of });
        let (kind, word) = match want {
            Want::Read => (Kind::Read, 0),
            Want::Write => (Kind::Write, if access.may_load() { HAS_COPY } else { 0 }),
            Want::Home => unreachable!("nobody asks for that"),
        };
        tempest.send(of.cell, kind as u8, block, word, Content::None);
    }

    /// What the home of a block says.
    pub(super) fn hear_home(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        kind: Kind,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let block = message.block;
        let access = tempest.access(block);
        match kind {
            Kind::Readable | Kind::Writable => {
                self.check_answer(tempest, from, block)?;
                // What may be stored to is not overwritten.
                if access.may_store() {
                    return Err(PeerError::NotAsked(block));
                }
                self.wanted.remove(&block);
                replace(tempest, block, message.content);
                let right = if kind == Kind::Writable { Access::ReadWrite } else { Access::ReadOnly };
                tempest.set_access(block, right);
                tempest.resume(block);
            }
            Kind::Upgraded => {
                if self.check_answer(tempest, from, block)? != Want::Write || access != Access::ReadOnly {
                    return Err(PeerError::NotAsked(block));
                }
                self.wanted.remove(&block);
                tempest.set_access(block, Access::ReadWrite);
                tempest.resume(block);
            }
            Kind::Recall => {
                self.check_demand(tempest, from, block)?;
                let keeps = match message.word {
                    0 => Access::Invalid,
                    MAY_KEEP => Access::ReadOnly,
                    word => return Err(PeerError::Word(word)),
                };
                if access.may_store() {
                    tempest.set_access(block, keeps);
                    tempest.send(from, Kind::Returned as u8, block, 0, Content::Block);
                } else {
                    // It was given back meanwhile, or the directory names more cells than have it.
                    tempest.send(from, Kind::Dropped as u8, block, 0, Content::None);
                }
            }
            Kind::Invalidate => {
                self.check_demand(tempest, from, block)?;
                if access.may_store() {
                    return Err(PeerError::NotAsked(block));
                }
                if access.may_load() {
                    tempest.set_access(block, Access::Invalid);
                }
                tempest.send(from, Kind::Dropped as u8, block, 0, Content::None);
            }
            Kind::Lost => {
                self.check_answer(tempest, from, block)?;
                self.wanted.remove(&block);
                tempest.lose(block, Loss::Nowhere);
            }
            Kind::Given => return self.take(tempest, from, message),
            Kind::Moved => return self.moved(tempest, from, block, Home::from_word(message.word)),
            _ => unreachable!("a message to a home"),
        }
        Ok(())
    }

    /// Who answers was asked, and is the home. What it was asked for.
    fn check_answer(&self, tempest: &dyn Tempest, from: CellId, block: Block) -> Result<Want, PeerError> {
        if tempest.home_of(block) != from {
            return Err(PeerError::NotYours(block));
        }
        let question = self.wanted.get(&block).filter(|question| question.of.cell == from);
        question.map(|question| question.want).ok_or(PeerError::NotAsked(block))
    }

    /// Who was asked is not the home any more, and says who is.
    fn moved(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        block: Block,
        told: Home,
    ) -> Result<(), PeerError> {
        if !tempest.homes_move() {
            return Err(PeerError::NeverMoves(block));
        }
        let question = self.wanted.get(&block).filter(|question| question.of.cell == from);
        let Question { want, of } = question.cloned().ok_or(PeerError::NotAsked(block))?;
        let (me, known) = (tempest.me(), tempest.home(block));
        let is_news = told.moves > known.moves;
        let is_here = told.cell == me || known.cell == me;
        if told.moves <= of.moves || is_news && is_here {
            return Err(PeerError::NotThere(block));
        }
        self.wanted.remove(&block);
        // This cell may have been given the block meanwhile, and then knows better.
        if is_news {
            tempest.set_home(block, told);
        }
        self.ask_again(tempest, block, want);
        Ok(())
    }

    /// Asks where the block lives now, if it lives.
    pub(super) fn ask_again(&mut self, tempest: &mut dyn Tempest, block: Block, want: Want) {
        if tempest.home_of(block) == tempest.me() {
            tempest.resume(block);
        } else {
            self.ask(tempest, block, want);
        }
    }

    /// Who demands a copy back is the home; or it may be one of which this cell has never heard, because it has none: the directory names
    /// more cells than have one.
    fn check_demand(&self, tempest: &dyn Tempest, from: CellId, block: Block) -> Result<(), PeerError> {
        let home = tempest.home_of(block);
        let is_home = home == tempest.me() && self.given(block).is_none();
        let may_be = tempest.homes_move() && !is_home && !tempest.access(block).may_load();
        if home == from || may_be { Ok(()) } else { Err(PeerError::NotYours(block)) }
    }

    /// This cell is to be the home. It is if it knows the giver as that: of others, it cannot tell.
    fn take(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let (block, word) = (message.block, message.word);
        if !tempest.homes_move() {
            return Err(PeerError::NeverMoves(block));
        }
        let moves = u32::try_from(word).map_err(|_| PeerError::Word(word))?;
        let (me, home, access) = (tempest.me(), tempest.home(block), tempest.access(block));
        // What this cell has given away may be back before it has heard that it was taken.
        if home.cell == me && self.given(block).is_none_or(|given| moves <= given.moves) {
            return Err(PeerError::HomedHere(block));
        }
        let has_copy_of_another = access.may_load() && home.cell != from;
        if moves <= home.moves || has_copy_of_another || access.may_store() {
            return Err(PeerError::NotYours(block));
        }
        if home.cell != from {
            tempest.send(from, Kind::Declined as u8, block, word, Content::None);
            return Ok(());
        }
        replace(tempest, block, message.content);
        tempest.set_home(block, Home { cell: me, moves });
        tempest.set_access(block, Access::ReadWrite);
        tempest.send(from, Kind::Taken as u8, block, word, Content::None);
        tempest.resume(block);
        Ok(())
    }

    /// Gives up a copy. One that may only be read is forgotten without a word.
    pub(super) fn give_back(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let access = tempest.access(block);
        // Who has asked for more has said that it has this.
        if !access.may_load() || self.wanted.contains_key(&block) {
            return;
        }
        tempest.set_access(block, Access::Invalid);
        if access.may_store() {
            tempest.send(tempest.home_of(block), Kind::GivenBack as u8, block, 0, Content::Block);
        }
    }

    /// What was asked of a cell that is dead is asked of the home that is known now.
    pub(super) fn home_died(&mut self, tempest: &mut dyn Tempest, dead: CellId) {
        let unanswered = self.wanted.iter().filter(|(_, question)| question.of.cell == dead);
        let unanswered: Vec<(Block, Want)> = unanswered.map(|(&block, asked)| (block, asked.want)).collect();
        for (block, want) in unanswered {
            self.wanted.remove(&block);
            self.ask_again(tempest, block, want);
        }
    }
}

/// Fills a block of which a copy to read may be here.
fn replace(tempest: &mut dyn Tempest, block: Block, content: &[u8]) {
    if tempest.access(block).may_load() {
        tempest.set_access(block, Access::Invalid);
    }
    tempest.fill(block, content);
}
