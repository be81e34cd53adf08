//! Stache: a block has one writer or many readers, and its content is where the last store was. (Blizzard §3.5, "a full-map
//! invalidation protocol")
//!
//! Every block has a home, which keeps its directory entry, serves one request for it at a time, and asks those who hold it to give it
//! up before it grants a right that theirs would contradict. A store is therefore over before another cell can load or store
//! the block: all cells see all stores in one order, as if they took turns.
//!
//! A cell that has no right asks the home once, however many of its threads wait. It may give a copy back at any time; a copy to
//! read it just forgets, and the home finds out when it asks.
//!
//! A home can give a block away: another cell is the home then ([`Protocol::on_move`]). Any cell can tell another that it will want to
//! read a block, so that it asks before it needs it ([`Protocol::on_push`]).
//!
//! [`Stache::migratory`] gives every reader the right to write as well, alone: who reads, changes and passes on asks once instead of
//! twice.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use comb_types::CellId;

use crate::block::{Access, Block};
use crate::cells::Cells;
use crate::directory::Directory;
use crate::tempest::{Content, Message, PeerError, Protocol, Tempest};

mod client;
mod home;
mod message;
mod moving;

use client::Question;
use home::Transaction;
use message::{Kind, Want};

/// One cell's part: home of some blocks, client of the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stache {
    is_migratory: bool,
    directory: Directory,
    /// Of blocks that are homed here, those about which somebody was asked.
    transactions: BTreeMap<Block, Transaction>,
    /// What this cell has asked others for.
    wanted: BTreeMap<Block, Question>,
    dead: Cells,
}

impl Stache {
    /// Whether a message of that kind asks for a block that its sender has not got.
    pub fn is_question(kind: u8) -> bool {
        matches!(Kind::of(kind), Ok(Kind::Read | Kind::Write))
    }

    /// One writer or many readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// One holder, who may write.
    pub fn migratory() -> Self {
        Self { is_migratory: true, ..Self::default() }
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        self.directory.heap_bytes()
            + self.transactions.len() * size_of::<(Block, Transaction)>()
            + self.wanted.len() * size_of::<(Block, Question)>()
    }

    /// Blocks that a cell may have alone, as far as their home knows.
    pub fn owned_by(&self, cell: CellId) -> Vec<Block> {
        self.directory.owned_by(cell)
    }

    /// What a kind of message asks for, if it asks for a right: such a message may wait, while others are answers, or hand something
    /// back.
    pub fn asks(kind: u8) -> Option<Access> {
        match Kind::of(kind) {
            Ok(Kind::Read) => Some(Access::ReadOnly),
            Ok(Kind::Write) => Some(Access::ReadWrite),
            _ => None,
        }
    }

    fn fault(&mut self, tempest: &mut dyn Tempest, block: Block, want: Want) {
        if tempest.home_of(block) == tempest.me() {
            let from = tempest.me();
            self.request(tempest, block, home::Request { from, want, has_copy: false });
        } else {
            self.ask(tempest, block, want);
        }
    }
}

impl Protocol for Stache {
    fn on_read_fault(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let want = if self.is_migratory { Want::Write } else { Want::Read };
        self.fault(tempest, block, want);
    }

    fn on_write_fault(&mut self, tempest: &mut dyn Tempest, block: Block) {
        self.fault(tempest, block, Want::Write);
    }

    fn on_message(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let kind = Kind::of(message.kind)?;
        message.check_sender(tempest, from, &self.dead)?;
        kind.check_content(message.content.len(), tempest.block_bytes())?;
        if kind == Kind::Offered {
            // It is nobody's word that it comes from: whoever is the home answers.
            self.on_read_fault(tempest, message.block);
            Ok(())
        } else if kind.is_to_home() {
            self.hear_client(tempest, from, kind, message)
        } else {
            self.hear_home(tempest, from, kind, message)
        }
    }

    fn describe(&self, kind: u8) -> String {
        Kind::of(kind).map_or_else(|error| format!("{error}"), |kind| format!("{kind:?}"))
    }

    fn on_evict(&mut self, tempest: &mut dyn Tempest, block: Block) {
        if tempest.home_of(block) != tempest.me() {
            self.give_back(tempest, block);
        }
    }

    fn on_push(&mut self, tempest: &mut dyn Tempest, block: Block, to: CellId) {
        // Even who has a copy as far as its home knows may have forgotten it.
        if to != tempest.me() && !self.dead.contains(to) {
            tempest.send(to, Kind::Offered as u8, block, 0, Content::None);
        }
    }

    fn on_move(&mut self, tempest: &mut dyn Tempest, block: Block, to: CellId) -> bool {
        self.begin_to_move(tempest, block, to)
    }

    fn on_peer_death(&mut self, tempest: &mut dyn Tempest, dead: CellId) {
        self.dead.insert(dead);
        self.holder_died(tempest, dead);
        self.home_died(tempest, dead);
    }

    fn on_peer_birth(&mut self, born: CellId) {
        self.dead.remove(born);
    }
}

#[cfg(test)]
mod tests;
