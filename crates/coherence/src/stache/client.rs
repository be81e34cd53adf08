//! A cell as the client of blocks that are homed elsewhere.

use comb_types::CellId;

use super::message::{Kind, Want};
use super::{Access, Block, Content, Message, PeerError, Stache, Tempest};
use crate::tempest::Loss;

/// Word of [`Kind::Recall`]: the copy may stay, to read.
pub(super) const MAY_KEEP: u64 = 1;
/// Word of [`Kind::Write`]: a copy is here, to read.
pub(super) const HAS_COPY: u64 = 1;

impl Stache {
    /// Asks for a right, once.
    pub(super) fn ask(&mut self, tempest: &mut dyn Tempest, block: Block, want: Want) {
        let access = tempest.access(block);
        let has_right = if want == Want::Read { access.may_load() } else { access.may_store() };
        if has_right {
            return tempest.resume(block);
        }
        // Whoever wants more than was asked for tries again when that is here.
        if self.wanted.contains_key(&block) {
            return;
        }
        self.wanted.insert(block, want);
        let (kind, word) = match want {
            Want::Read => (Kind::Read, 0),
            Want::Write => (Kind::Write, if access.may_load() { HAS_COPY } else { 0 }),
        };
        tempest.send(tempest.home_of(block), kind as u8, block, word, Content::None);
    }

    /// What the home of a block says.
    pub(super) fn hear_home(
        &mut self,
        tempest: &mut dyn Tempest,
        home: CellId,
        kind: Kind,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let block = message.block;
        let access = tempest.access(block);
        match kind {
            Kind::Readable | Kind::Writable => {
                self.take_answer(block)?;
                // What may be stored to is not overwritten.
                if access.may_store() {
                    return Err(PeerError::NotAsked(block));
                }
                if access.may_load() {
                    tempest.set_access(block, Access::Invalid);
                }
                tempest.fill(block, message.content);
                let right = if kind == Kind::Writable { Access::ReadWrite } else { Access::ReadOnly };
                tempest.set_access(block, right);
                tempest.resume(block);
            }
            Kind::Upgraded => {
                if access != Access::ReadOnly || self.wanted.get(&block) != Some(&Want::Write) {
                    return Err(PeerError::NotAsked(block));
                }
                self.wanted.remove(&block);
                tempest.set_access(block, Access::ReadWrite);
                tempest.resume(block);
            }
            Kind::Recall => {
                let keeps = match message.word {
                    0 => Access::Invalid,
                    MAY_KEEP => Access::ReadOnly,
                    word => return Err(PeerError::Word(word)),
                };
                if access.may_store() {
                    tempest.set_access(block, keeps);
                    tempest.send(home, Kind::Returned as u8, block, 0, Content::Block);
                } else {
                    // It was given back meanwhile, or the directory names more cells than have it.
                    tempest.send(home, Kind::Dropped as u8, block, 0, Content::None);
                }
            }
            Kind::Invalidate => {
                if access.may_store() {
                    return Err(PeerError::NotAsked(block));
                }
                if access.may_load() {
                    tempest.set_access(block, Access::Invalid);
                }
                tempest.send(home, Kind::Dropped as u8, block, 0, Content::None);
            }
            Kind::Lost => {
                self.take_answer(block)?;
                tempest.lose(block, Loss::Nowhere);
            }
            _ => unreachable!("a message to a home"),
        }
        Ok(())
    }

    fn take_answer(&mut self, block: Block) -> Result<(), PeerError> {
        self.wanted.remove(&block).map(drop).ok_or(PeerError::NotAsked(block))
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
}
