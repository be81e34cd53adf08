//! The interface between a protocol and what it runs on. (Blizzard §3, and there after Reinhardt, Larus and Wood's *Tempest*)
//!
//! One [`Protocol`] lives in each cell that homes or caches blocks of an allocation, and in no more than one thread: its handlers
//! run one after the other, to their end, and never wait. What takes time is a message now and another handler later.

use alloc::format;
use alloc::string::String;

use comb_types::CellId;

use crate::block::{Access, Block};
use crate::cells::Cells;

/// What a protocol can do: the paper's four mechanisms.
///
/// Messages to one cell arrive in their order and once, or that cell dies. What a handler does takes effect in its order.
pub trait Tempest {
    /// This cell.
    fn me(&self) -> CellId;

    /// Where a block lives: the same in every cell.
    fn home_of(&self, block: Block) -> CellId;

    /// How many blocks there are: whatever a peer says of others is wrong.
    fn blocks(&self) -> u64;

    /// How long a block is.
    fn block_bytes(&self) -> usize;

    /// What loads and stores of this cell may do with a block.
    fn access(&self, block: Block) -> Access;

    /// Changes that, for all threads of this cell at once: when it returns, no store that the old right allowed is still to come.
    /// The content stays what it is until the handler ends.
    fn set_access(&mut self, block: Block, access: Access);

    /// Gives a block its content. Nobody may load or store it meanwhile.
    fn fill(&mut self, block: Block, content: &[u8]);

    /// What a block contains, whoever may load or store it.
    fn copy_out(&self, block: Block, into: &mut [u8]);

    /// Stores some bytes of a block as a thread of this cell would: whatever its threads may do meanwhile.
    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]);

    /// An active message: [`Protocol::on_message`] is called there. To a dead cell it goes nowhere.
    fn send(&mut self, to: CellId, kind: u8, block: Block, word: u64, content: Content<'_>);

    /// Lets all threads go on that wait for a block. They try again, and may fault again.
    fn resume(&mut self, block: Block);

    /// Lets all threads go on that synchronise.
    fn synced(&mut self);

    /// Ends the wait of all threads that wait for a block, and every later access to it, with an error.
    fn lose(&mut self, block: Block, loss: Loss);
}

/// What a message carries.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Nothing.
    None,
    /// What the message's block contains here at this moment: bulk transfer, without a copy on the way.
    Block,
    /// These bytes.
    Bytes(&'a [u8]),
}

/// A message as it came. All of it is an allegation.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// What kind, as the protocol numbers them.
    pub kind: u8,
    /// Of which block; it may not exist.
    pub block: Block,
    /// Whatever the kind makes of it.
    pub word: u64,
    /// What came with it.
    pub content: &'a [u8],
}

impl Message<'_> {
    /// What holds of every message between a home and a client: it is of a block that there is, one of the two ends is the home of that,
    /// the other lives.
    pub fn check_ends(
        &self,
        tempest: &dyn Tempest,
        from: CellId,
        dead: &Cells,
        is_to_home: bool,
    ) -> Result<(), PeerError> {
        if dead.contains(from) {
            return Err(PeerError::Dead(from));
        }
        if self.block.0 >= tempest.blocks() {
            return Err(PeerError::NoBlock(self.block));
        }
        match (is_to_home, tempest.home_of(self.block)) {
            (true, home) if home != tempest.me() => Err(PeerError::NotHome(self.block)),
            (false, home) if home != from => Err(PeerError::NotYours(self.block)),
            _ => Ok(()),
        }
    }
}

/// Decides who may do what with which blocks.
pub trait Protocol {
    /// A load found no right. Called again while the answer is awaited, when another thread faults: once is enough to ask.
    fn on_read_fault(&mut self, tempest: &mut dyn Tempest, block: Block);

    /// A store found no right.
    fn on_write_fault(&mut self, tempest: &mut dyn Tempest, block: Block);

    /// A cell says something. An error names its fault; nothing has changed then.
    fn on_message(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        message: Message<'_>,
    ) -> Result<(), PeerError>;

    /// A thread synchronises with others, and waits for [`Tempest::synced`]: whoever synchronises after that is to find what this cell
    /// has stored before. Nothing is to be done where every store is found at once.
    fn on_sync(&mut self, tempest: &mut dyn Tempest) {
        tempest.synced();
    }

    /// A kind of message in a word, for people.
    fn describe(&self, kind: u8) -> String {
        format!("kind {kind}")
    }

    /// This cell wants to be rid of its copy of a block. It may stay.
    fn on_evict(&mut self, tempest: &mut dyn Tempest, block: Block);

    /// A cell is dead: nothing comes from it any more, and whatever it had to say will not be said. What was homed there, the driver
    /// has given up already, as by [`Tempest::lose`]: no thread waits for it or will. No thread of this cell goes on before all cells have
    /// been told: one that was told that it has synchronised could else meet one that has the old, and does not know that its home is dead.
    fn on_peer_death(&mut self, tempest: &mut dyn Tempest, dead: CellId);
}

/// Why a block is no more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Loss {
    /// Nobody else had what it last contained.
    #[error("{0} died, and nobody else had what was stored there last")]
    Holder(CellId),
    /// It lived there.
    #[error("{0} died, where it was homed")]
    Home(CellId),
    /// Nobody admits to have it.
    #[error("nobody has what was stored there last")]
    Nowhere,
}

/// What a cell said that cannot be. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum PeerError {
    /// It talks of a block that there is none of.
    #[error("{0} is beyond the allocation")]
    NoBlock(Block),
    /// It asks here for what lives elsewhere.
    #[error("{0} is not homed here")]
    NotHome(Block),
    /// It decides about what it is not the home of.
    #[error("{0} is not homed with the sender")]
    NotYours(Block),
    /// A kind that the protocol does not know.
    #[error("message kind {0} means nothing here")]
    Kind(u8),
    /// Content that is no list of changes to a block.
    #[error("content that changes nothing, or what is beyond its block")]
    Changes,
    /// Content of the wrong length.
    #[error("{bytes} bytes of content, where {expected} belong")]
    Content {
        /// As came.
        bytes: usize,
        /// As there should be.
        expected: usize,
    },
    /// A word that the kind does not have.
    #[error("word {0} has no meaning here")]
    Word(u64),
    /// It asks again before it was answered.
    #[error("{0} was asked for already")]
    AskedTwice(Block),
    /// It says that it has what it was not given.
    #[error("the sender holds nothing of {0}")]
    NotHeld(Block),
    /// It asks for what it has.
    #[error("the sender has {0} already")]
    HeldAlready(Block),
    /// It answers what was not asked.
    #[error("nothing was asked of the sender about {0}")]
    NotAsked(Block),
    /// It goes on and on, and does not wait for answers.
    #[error("too many changes of {0} that are not everywhere")]
    TooMany(Block),
    /// It was declared dead.
    #[error("{0} is dead")]
    Dead(CellId),
}
