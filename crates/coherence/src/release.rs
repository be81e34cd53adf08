//! Many write a block at once, and who synchronises finds what was stored before. (The consistency of *release*; Blizzard §3.5
//! leaves it to others.)
//!
//! Whoever has a copy may store into it without asking. It keeps a *twin* of what was there, and when one of its threads
//! synchronises it sends what differs to the home. The home stores that, sees to it that no other cell goes on with what was there
//! before, and only then is the thread's synchronisation over. So a program without data races, to the byte, finds what it would find
//! in one memory, and cells that store into different parts of a block do not take it from each other at each store.
//!
//! No other cell goes on with the old, in one of two ways. [`Release::invalidating`]: its copy is dropped, and what it has stored there
//! itself is sent home before. [`Release::updating`]: its copy is changed, and stays: who only reads never misses again.
//!
//! Homes stay where blocks are born: [`Protocol::on_move`] says no.
//!
//! What a dead cell had stored since it last synchronised was never stored; of what it was synchronising, parts may have been. Nothing
//! else is lost with it but what was homed there.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use comb_types::CellId;

use crate::block::{Access, Block};
use crate::cells::Cells;
use crate::diff;
use crate::directory::{Directory, Holding};
use crate::tempest::{Content, Message, PeerError, Protocol, Tempest};

/// One cell's part: home of some blocks, client of the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Release {
    is_updating: bool,
    /// Of what is homed here: who has copies.
    directory: Directory,
    /// Changes of blocks homed here that not all have taken in who have copies, in their order.
    rounds: BTreeMap<Block, Vec<Round>>,
    /// What this cell may store into, and what was there before.
    dirty: BTreeMap<Block, Twin>,
    /// What was asked for, and whether a store waits for it.
    wanted: BTreeMap<Block, bool>,
    /// Changes that were sent to a home and are not everywhere.
    underway: BTreeMap<CellId, u32>,
    is_syncing: bool,
    dead: Cells,
}

/// Changes of one block by one cell that are not everywhere. An honest one has as many as it has threads, and one or two more.
const MOST_CHANGES: usize = 1024;

/// A home that takes copies away need not know what it has changed.
type Twin = Option<Box<[u8]>>;

/// A change that others are told of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Round {
    /// Whose it is.
    from: CellId,
    /// Who was told.
    told: Cells,
    /// Who may still go on with what was there before: who was told and has not taken it in, and who was told of a change before it
    /// that makes its copy worth nothing, and has not heard.
    awaited: Cells,
}

/// What a message is. Those to a home come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    /// To a home: I want a copy.
    Read = 0,
    /// This I have stored.
    Changed,
    /// What you told me of a change I have taken in.
    Taken,
    /// I have no copy any more.
    Left,
    /// To a client: here it is.
    Copy,
    /// Others have changed it: your copy is worth nothing.
    Stale,
    /// Others have changed it: like this.
    Update,
    /// What you have stored is everywhere.
    Merged,
}

const KINDS: [Kind; 8] =
    [Kind::Read, Kind::Changed, Kind::Taken, Kind::Left, Kind::Copy, Kind::Stale, Kind::Update, Kind::Merged];

impl Kind {
    fn of(number: u8) -> Result<Self, PeerError> {
        KINDS.get(usize::from(number)).copied().ok_or(PeerError::Kind(number))
    }
}

impl Release {
    /// Others' copies are dropped when a cell synchronises.
    pub fn invalidating() -> Self {
        Self::default()
    }

    /// Others' copies are changed when a cell synchronises.
    pub fn updating() -> Self {
        Self { is_updating: true, ..Self::default() }
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        let twins: usize = self.dirty.values().flatten().map(|twin| twin.len()).sum();
        self.directory.heap_bytes()
            + twins
            + self.dirty.len() * size_of::<(Block, Twin)>()
            + self.rounds.values().map(|rounds| rounds.capacity() * size_of::<Round>()).sum::<usize>()
    }

    fn is_home(tempest: &dyn Tempest, block: Block) -> bool {
        tempest.home_of(block) == tempest.me()
    }

    fn fault(&mut self, tempest: &mut dyn Tempest, block: Block, is_store: bool) {
        let access = tempest.access(block);
        if access.allows(is_store) {
            return tempest.resume(block);
        }
        if access.may_load() {
            self.begin_to_store(tempest, block);
            return tempest.resume(block);
        }
        if let Some(waits_to_store) = self.wanted.get_mut(&block) {
            *waits_to_store |= is_store;
            return;
        }
        self.wanted.insert(block, is_store);
        tempest.send(tempest.home_of(block), Kind::Read as u8, block, 0, Content::None);
    }

    /// From now on a copy may be stored into.
    fn begin_to_store(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let needs_twin = self.is_updating || !Self::is_home(tempest, block);
        let twin = needs_twin.then(|| content(tempest, block));
        self.dirty.insert(block, twin);
        tempest.set_access(block, Access::ReadWrite);
    }

    /// Tells of what was stored into a block, which may then be no more than `access`.
    fn end_to_store(&mut self, tempest: &mut dyn Tempest, block: Block, access: Access) {
        tempest.set_access(block, access);
        let Some(twin) = self.dirty.remove(&block) else { return };
        let changes = twin.map(|twin| diff::of(&twin, &content(tempest, block)));
        if changes.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let (me, home) = (tempest.me(), tempest.home_of(block));
        *self.underway.entry(home).or_default() += 1;
        let changes = changes.unwrap_or_default();
        if home == me {
            self.tell(tempest, block, me, &changes);
        } else {
            tempest.send(home, Kind::Changed as u8, block, 0, Content::Bytes(&changes));
        }
    }

    /// A change that was sent to a home is everywhere.
    fn merged(&mut self, tempest: &mut dyn Tempest, home: CellId) -> Result<(), ()> {
        let underway = self.underway.get_mut(&home).ok_or(())?;
        *underway -= 1;
        if *underway == 0 {
            self.underway.remove(&home);
        }
        self.perhaps_synced(tempest);
        Ok(())
    }

    fn perhaps_synced(&mut self, tempest: &mut dyn Tempest) {
        if self.is_syncing && self.underway.is_empty() {
            self.is_syncing = false;
            tempest.synced();
        }
    }

    /// As a home: makes others take in a change that is stored here.
    fn tell(&mut self, tempest: &mut dyn Tempest, block: Block, from: CellId, changes: &[u8]) {
        let mut told = self.holders(block);
        told.remove(from);
        for cell in told.iter() {
            if self.is_updating {
                tempest.send(cell, Kind::Update as u8, block, 0, Content::Bytes(changes));
            } else {
                tempest.send(cell, Kind::Stale as u8, block, 0, Content::None);
            }
        }
        if !self.is_updating {
            // Not when they say that they have taken it in: they may have asked for it anew by then.
            let keeps: Cells = self.holders(block).iter().filter(|&cell| cell == from).collect();
            self.directory.set(block, Holding::Shared(&keeps));
        }
        let rounds = self.rounds.entry(block).or_default();
        let mut awaited = told.clone();
        if !self.is_updating {
            rounds.iter().for_each(|round| awaited.add(&round.awaited));
        }
        rounds.push(Round { from, told, awaited });
        self.end_rounds(tempest, block);
    }

    fn holders(&self, block: Block) -> Cells {
        match self.directory.holding(block) {
            Holding::Shared(cells) => cells.clone(),
            _ => Cells::NONE,
        }
    }

    fn set_holders(&mut self, tempest: &mut dyn Tempest, block: Block, cells: &Cells) {
        self.directory.set(block, Holding::Shared(cells));
        self.set_own_right(tempest, block);
    }

    /// As a home. Where nobody else has a copy, nobody is to be told; where somebody has, be it one that is about to be dropped, what is stored
    /// has to be noticed.
    fn set_own_right(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let is_alone = self.holders(block).is_empty() && !self.rounds.contains_key(&block);
        let is_free = is_alone || self.dirty.contains_key(&block);
        let access = if is_free { Access::ReadWrite } else { Access::ReadOnly };
        if tempest.access(block) != access {
            tempest.set_access(block, access);
        }
    }

    /// As a home: tells those whose changes are everywhere.
    fn end_rounds(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let Some(rounds) = self.rounds.get_mut(&block) else { return };
        let is_over = |round: &Round| round.awaited.is_empty();
        let over: Vec<CellId> =
            rounds.iter().filter(|round| is_over(round)).map(|round| round.from).collect();
        rounds.retain(|round| !is_over(round));
        if rounds.is_empty() {
            self.rounds.remove(&block);
        }
        self.set_own_right(tempest, block);
        for from in over {
            if from == tempest.me() {
                self.merged(tempest, from).expect("ours is underway");
            } else {
                tempest.send(from, Kind::Merged as u8, block, 0, Content::None);
            }
        }
    }

    fn hear_client(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        kind: Kind,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let block = message.block;
        let holds = self.holders(block).contains(from);
        match kind {
            Kind::Read => {
                let mut cells = self.holders(block);
                cells.insert(from);
                self.set_holders(tempest, block, &cells);
                tempest.send(from, Kind::Copy as u8, block, 0, Content::Block);
            }
            Kind::Changed => {
                // It may not have heard yet that its copy is stale.
                let rounds = self.rounds.get(&block).map_or(&[][..], Vec::as_slice);
                if !holds && !rounds.iter().any(|round| round.awaited.contains(from)) {
                    return Err(PeerError::NotHeld(block));
                }
                if rounds.iter().filter(|round| round.from == from).count() >= MOST_CHANGES {
                    return Err(PeerError::TooMany(block));
                }
                let runs = diff::check(message.content, tempest.block_bytes())?;
                self.take_in(tempest, block, runs);
                self.tell(tempest, block, from, message.content);
            }
            Kind::Taken => {
                let rounds = self.rounds.get_mut(&block).into_iter().flatten();
                let mut rounds = rounds.skip_while(|round| !round.awaited.contains(from));
                let first = rounds.next().ok_or(PeerError::NotAsked(block))?;
                first.awaited.remove(from);
                // It is told in the order of the changes.
                for round in rounds.take_while(|round| !round.told.contains(from)) {
                    round.awaited.remove(from);
                }
                self.end_rounds(tempest, block);
            }
            Kind::Left => {
                let mut cells = self.holders(block);
                // It may have been told meanwhile that its copy is stale.
                if cells.remove(from) {
                    self.set_holders(tempest, block, &cells);
                }
            }
            _ => unreachable!("a message to a client"),
        }
        Ok(())
    }

    fn hear_home(
        &mut self,
        tempest: &mut dyn Tempest,
        home: CellId,
        kind: Kind,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let block = message.block;
        let has_copy = tempest.access(block).may_load();
        match kind {
            Kind::Copy => {
                if has_copy || !self.wanted.contains_key(&block) {
                    return Err(PeerError::NotAsked(block));
                }
                tempest.fill(block, message.content);
                tempest.set_access(block, Access::ReadOnly);
                if self.wanted.remove(&block) == Some(true) {
                    self.begin_to_store(tempest, block);
                }
                tempest.resume(block);
            }
            Kind::Stale => {
                if has_copy {
                    self.end_to_store(tempest, block, Access::Invalid);
                }
                tempest.send(home, Kind::Taken as u8, block, 0, Content::None);
            }
            Kind::Update => {
                let runs = diff::check(message.content, tempest.block_bytes())?;
                if has_copy {
                    self.take_in(tempest, block, runs);
                }
                tempest.send(home, Kind::Taken as u8, block, 0, Content::None);
            }
            Kind::Merged => self.merged(tempest, home).map_err(|()| PeerError::NotAsked(block))?,
            _ => unreachable!("a message to a home"),
        }
        Ok(())
    }

    /// Stores what others have stored, and does not take it for our own.
    fn take_in(&mut self, tempest: &mut dyn Tempest, block: Block, runs: diff::Runs<'_>) {
        for (offset, bytes) in runs {
            tempest.patch(block, offset, bytes);
            if let Some(Some(twin)) = self.dirty.get_mut(&block) {
                twin[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

fn content(tempest: &dyn Tempest, block: Block) -> Box<[u8]> {
    let mut content = vec![0; tempest.block_bytes()];
    tempest.copy_out(block, &mut content);
    content.into_boxed_slice()
}

impl Protocol for Release {
    fn on_read_fault(&mut self, tempest: &mut dyn Tempest, block: Block) {
        self.fault(tempest, block, false);
    }

    fn on_write_fault(&mut self, tempest: &mut dyn Tempest, block: Block) {
        self.fault(tempest, block, true);
    }

    fn on_message(
        &mut self,
        tempest: &mut dyn Tempest,
        from: CellId,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        let kind = Kind::of(message.kind)?;
        let is_to_home = (kind as u8) < Kind::Copy as u8;
        message.check_ends(tempest, from, &self.dead, is_to_home)?;
        let expected = match kind {
            Kind::Changed | Kind::Update => message.content.len(),
            Kind::Copy => tempest.block_bytes(),
            _ => 0,
        };
        if message.content.len() != expected {
            return Err(PeerError::Content { bytes: message.content.len(), expected });
        }
        if is_to_home {
            self.hear_client(tempest, from, kind, message)
        } else {
            self.hear_home(tempest, from, kind, message)
        }
    }

    fn on_sync(&mut self, tempest: &mut dyn Tempest) {
        let dirty: Vec<Block> = self.dirty.keys().copied().collect();
        dirty.into_iter().for_each(|block| self.end_to_store(tempest, block, Access::ReadOnly));
        // Not before: what nobody else has a copy of is everywhere at once, and those behind it are not.
        self.is_syncing = true;
        self.perhaps_synced(tempest);
    }

    fn describe(&self, kind: u8) -> String {
        Kind::of(kind).map_or_else(|error| format!("{error}"), |kind| format!("{kind:?}"))
    }

    fn on_evict(&mut self, tempest: &mut dyn Tempest, block: Block) {
        if Self::is_home(tempest, block) || !tempest.access(block).may_load() {
            return;
        }
        self.end_to_store(tempest, block, Access::Invalid);
        tempest.send(tempest.home_of(block), Kind::Left as u8, block, 0, Content::None);
    }

    fn on_peer_death(&mut self, tempest: &mut dyn Tempest, dead: CellId) {
        self.dead.insert(dead);
        self.wanted.retain(|&block, _| tempest.home_of(block) != dead);
        self.dirty.retain(|&block, _| tempest.home_of(block) != dead);
        self.underway.remove(&dead);
        // Nobody has such a block alone: its home always has it.
        self.directory.forget(dead, |_| {});
        let blocks: Vec<Block> = self.rounds.keys().copied().collect();
        for block in blocks {
            for round in self.rounds.get_mut(&block).into_iter().flatten() {
                round.awaited.remove(dead);
            }
            self.end_rounds(tempest, block);
        }
        self.perhaps_synced(tempest);
    }
}

#[cfg(test)]
mod tests;
