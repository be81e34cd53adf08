//! Whose page frames a cell uses, and who uses its own. (Hive §5.4)
//!
//! A cell can use a frame wherever it is: it *borrows* it from the cell whose memory it is, its memory home, which has *loaned* it, and
//! leaves it alone until it comes back.
//!
//! The table is one cell's. It sends nothing and maps nothing: what it returns says whom to tell. What comes from another cell (that a frame
//! is loaned, or given back) is an allegation, and an error that blames that cell if it cannot be.

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;

use comb_types::CellId;

pub use self::errors::{BorrowError, GiveUpError, LoanError, ReturnError, ReturnedError};

mod errors;
#[cfg(test)]
mod tests;

/// A page frame of some cell's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// Whose memory it is.
    pub home: CellId,
    /// Which of its frames.
    pub number: u64,
}

/// Where to have a frame from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Allocated {
    /// This one; it is no longer free.
    Frame(Frame),
    /// Ask this cell for a loan, enter it by [`FrameTable::borrow_frame`], and allocate again. If it has none, allocate again without it.
    BorrowFrom(CellId),
}

/// One cell's table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrameTable {
    own: CellId,
    /// Own frames without an entry.
    free: BTreeSet<u64>,
    entries: BTreeMap<Frame, Use>,
}

/// What a frame is used for, as far as this cell is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Use {
    /// It is its own, and allocated.
    Taken,
    /// It is its own, and another's to use.
    LoanedTo(CellId),
    /// It is another's, and this one's to use.
    Borrowed { is_taken: bool },
}

impl FrameTable {
    /// A cell that has so many frames, all free.
    pub fn new(own: CellId, frames: u64) -> Self {
        Self { own, free: (0..frames).collect(), entries: BTreeMap::new() }
    }

    /// Finds a frame: of the preferred cell if there is one, of this cell otherwise, of another last. Only cells that are acceptable are
    /// taken. Which are, decides who knows on whom a task may come to depend. None: none of them has one, as far as this cell knows. No firewall
    /// defends a frame against its memory home, so for what the cell itself lives on it is the only one that is acceptable. (Hive §5.4)
    pub fn allocate(&mut self, acceptable: &[CellId], preferred: Option<CellId>) -> Option<Allocated> {
        let is_acceptable = |cell: &CellId| acceptable.contains(cell);
        if let Some(cell) = preferred.filter(|cell| is_acceptable(cell) && *cell != self.own) {
            return Some(self.take_borrowed(cell).unwrap_or(Allocated::BorrowFrom(cell)));
        }
        if is_acceptable(&self.own)
            && let Some(allocated) = self.take_own()
        {
            return Some(allocated);
        }
        let own = self.own;
        let mut others = acceptable.iter().copied().filter(|cell| *cell != own);
        let found = others.clone().find_map(|cell| self.take_borrowed(cell));
        found.or_else(|| others.next().map(Allocated::BorrowFrom))
    }

    /// A frame that was allocated is not used any more.
    pub fn give_up(&mut self, frame: Frame) -> Result<(), GiveUpError> {
        match self.entries.get_mut(&frame) {
            Some(Use::Taken) => self.take_back(frame),
            Some(Use::Borrowed { is_taken }) if *is_taken => *is_taken = false,
            _ => return Err(GiveUpError::NotOurs(frame)),
        }
        Ok(())
    }

    /// A frame to loan, if one is free.
    pub fn loanable(&self) -> Option<Frame> {
        self.free.first().map(|&number| self.own_frame(number))
    }

    /// Another cell has a free frame of this one from now on.
    pub fn loan_frame(&mut self, client: CellId, frame: Frame) -> Result<(), LoanError> {
        if client == self.own {
            return Err(LoanError::ToItself);
        }
        if frame.home != self.own {
            return Err(LoanError::NotOurs(frame));
        }
        if let Some(Use::LoanedTo(_)) = self.entries.get(&frame) {
            return Err(LoanError::LoanedAlready(frame));
        }
        if !self.free.remove(&frame.number) {
            return Err(LoanError::InUse(frame));
        }
        self.entries.insert(frame, Use::LoanedTo(client));
        Ok(())
    }

    /// A cell says that a frame that it was loaned is free again.
    pub fn returned(&mut self, client: CellId, frame: Frame) -> Result<(), ReturnedError> {
        if self.entries.get(&frame) != Some(&Use::LoanedTo(client)) {
            return Err(ReturnedError::NotLoaned { client, frame });
        }
        self.take_back(frame);
        Ok(())
    }

    /// A frame of another cell is this one's to use from now on.
    pub fn borrow_frame(&mut self, frame: Frame) -> Result<(), BorrowError> {
        if frame.home == self.own {
            return Err(BorrowError::FromOurselves(frame));
        }
        if self.entries.contains_key(&frame) {
            return Err(BorrowError::BorrowedAlready(frame));
        }
        self.entries.insert(frame, Use::Borrowed { is_taken: false });
        Ok(())
    }

    /// A borrowed frame goes back. The memory home, which is to be told.
    pub fn return_frame(&mut self, frame: Frame) -> Result<CellId, ReturnError> {
        match self.entries.get(&frame) {
            Some(Use::Borrowed { is_taken: true }) => Err(ReturnError::InUse(frame)),
            Some(Use::Borrowed { is_taken: false }) => {
                self.entries.remove(&frame);
                Ok(frame.home)
            }
            _ => Err(ReturnError::NotBorrowed(frame)),
        }
    }

    /// A cell is dead. What was borrowed from it is gone, and what it had borrowed is free; whatever that contains is to be thrown away.
    pub fn dead(&mut self, cell: CellId) {
        let returned =
            self.entries.extract_if(.., |frame, used| *used == Use::LoanedTo(cell) || frame.home == cell);
        self.free.extend(returned.filter(|(frame, _)| frame.home == self.own).map(|(frame, _)| frame.number));
    }

    /// How many frames of its own are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    fn take_back(&mut self, frame: Frame) {
        self.entries.remove(&frame);
        self.free.insert(frame.number);
    }

    fn take_own(&mut self) -> Option<Allocated> {
        let number = self.free.pop_first()?;
        let frame = self.own_frame(number);
        self.entries.insert(frame, Use::Taken);
        Some(Allocated::Frame(frame))
    }

    /// One that was borrowed from a cell and is not used.
    fn take_borrowed(&mut self, cell: CellId) -> Option<Allocated> {
        let all = Frame { home: cell, number: 0 }..=Frame { home: cell, number: u64::MAX };
        let unused = Use::Borrowed { is_taken: false };
        let (&frame, used) = self.entries.range_mut(all).find(|(_, used)| **used == unused)?;
        *used = Use::Borrowed { is_taken: true };
        Some(Allocated::Frame(frame))
    }

    fn own_frame(&self, number: u64) -> Frame {
        Frame { home: self.own, number }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} of {}", self.number, self.home)
    }
}
