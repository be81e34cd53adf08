//! The interface between a protocol and what it runs on. (Blizzard §3, and there after Reinhardt, Larus and Wood's *Tempest*)
//!
//! One [`Protocol`] lives in each cell that homes or caches blocks of an allocation, and in no more than one thread: its handlers
//! run one after the other, to their end, and never wait. What takes time is a message now and another handler later.

use alloc::format;
use alloc::string::String;

use comb_types::CellId;

use crate::block::{Access, Block};
use crate::cells::Cells;
use crate::homes::Home;

/// What a protocol can do: the paper's four mechanisms.
///
/// Messages to one cell arrive in their order and once, or that cell dies. What a handler does takes effect in its order.
pub trait Tempest {
    /// This cell.
    fn me(&self) -> CellId;

    /// Where a block lives. Where homes do not move, the same in every cell; where they do, as far as this cell knows, which is sure only
    /// of what lives here: [`Tempest::home`] with less.
    fn home_of(&self, block: Block) -> CellId;

    /// Whether a block may get another home. The same in every cell. Who says so has a [`Homes`](crate::Homes), or what does its work, for the two
    /// methods that follow, and tells the other cells what is in it when a cell dies (see [`Protocol::on_peer_death`]).
    fn homes_move(&self) -> bool {
        false
    }

    /// Where a block lives, and how often it had moved when it came there.
    fn home(&self, block: Block) -> Home {
        Home::born(self.home_of(block))
    }

    /// A block lives there from now on, as far as this cell knows. Asked again, [`Tempest::home`] says so, or what it knows to be later
    /// than that because the cell is dead.
    fn set_home(&mut self, _block: Block, _home: Home) {}

    /// A cell asks for a block that lives here: one miss, for whoever counts them (see [`placement`](crate::placement)). What
    /// is made of it waits until the handler has ended.
    fn missed(&mut self, _block: Block, _by: CellId, _is_store: bool) {}

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

    /// An active message: [`Protocol::on_message`] is called there. To a dead cell, or to one that there is none of, it
    /// goes nowhere.
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
    /// What holds of every message: it is of a block that there is, and its sender lives.
    pub fn check_sender(&self, tempest: &dyn Tempest, from: CellId, dead: &Cells) -> Result<(), PeerError> {
        if dead.contains(from) {
            return Err(PeerError::Dead(from));
        }
        if self.block.0 >= tempest.blocks() {
            return Err(PeerError::NoBlock(self.block));
        }
        Ok(())
    }

    /// What holds, besides, of every message between a client and a home that stays where it is: one of the two ends is that home.
    pub fn check_ends(
        &self,
        tempest: &dyn Tempest,
        from: CellId,
        dead: &Cells,
        is_to_home: bool,
    ) -> Result<(), PeerError> {
        self.check_sender(tempest, from, dead)?;
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

    /// Another cell will soon want what a block contains, this cell thinks: a hint, which costs it no more than a message. A protocol that
    /// has no use for it forgets it.
    fn on_push(&mut self, _tempest: &mut dyn Tempest, _block: Block, _to: CellId) {}

    /// A block that lives here had better live in another cell. Whether it is on its way there: it may still turn out to stay, and is
    /// there when [`Tempest::home`] says so. A protocol whose homes stay where they are says no, and so does each one of what does not live here, is on its
    /// way already or is lost.
    fn on_move(&mut self, _tempest: &mut dyn Tempest, _block: Block, _to: CellId) -> bool {
        false
    }

    /// A cell is dead: nothing comes from it any more, and whatever it had to say will not be said. What was homed there, the driver
    /// has given up already, as by [`Tempest::lose`]: no thread waits for it or will. No thread of this cell goes on before all cells have
    /// been told: one that was told that it has synchronised could else meet one that has the old, and does not know that its home is dead.
    ///
    /// Where homes move, a driver does this first. From when it hears of the death, it takes nothing more from the dead cell, and
    /// tells every other what it knows of homes ([`Homes::known`](crate::Homes::known)), behind all that it has said to it before. When
    /// all who live have told it theirs ([`Homes::allege`](crate::Homes::allege)), it gives up what was homed there
    /// ([`Homes::bury`](crate::Homes::bury)): each block whose home is then known to be dead, and each of which this cell still has a right that
    /// the dead one gave, for no home moves before all have given theirs back. If another dies meanwhile, all tell each other anew.
    fn on_peer_death(&mut self, tempest: &mut dyn Tempest, dead: CellId);

    /// The number of a cell that died is another's now, which has nothing yet.
    fn on_peer_birth(&mut self, _born: CellId) {}
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
    /// It gives away what it is not the home of.
    #[error("{0} is homed here, and cannot be given to us")]
    HomedHere(Block),
    /// It gives away, or says that it has given away, what stays where it was born.
    #[error("{0} has the same home for ever")]
    NeverMoves(Block),
    /// It sends to where a block was before it was asked, or here.
    #[error("{0} is not where the sender says")]
    NotThere(Block),
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
