//! Which logical page is in which page frame, and which cells share it. (Hive §5)
//!
//! A cell can use a page wherever it is: it *imports* it from the cell that answers for the data, its data home, which *exports* it.
//! And a cell can use a frame wherever it is: it *borrows* it from the cell whose memory it is, its memory home, which has *loaned* it, and
//! leaves it alone until it comes back. The two are independent. An entry binds a page to a frame and has room for both, so that a
//! frame that is loaned out and comes back as an import needs no second one.
//!
//! The table is one cell's. It sends nothing and maps nothing: what it returns says whom to tell. What comes from another cell (where a page
//! is, that a frame is given back) is an allegation, and an error that blames that cell if it cannot be.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use comb_types::CellId;

pub use self::errors::{
    AllocateError, BorrowError, EnterError, ExportError, GiveUpError, ImportError, LoanError, ReleaseError,
    ReturnError, ReturnedError,
};

mod errors;
#[cfg(test)]
mod tests;

/// A page of an object, wherever it is. (Hive §5.1)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId {
    /// Of which object: a file, or a node of a copy-on-write tree.
    pub object: u64,
    /// Which of its pages.
    pub offset: u64,
}

/// A page frame of some cell's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// Whose memory it is.
    pub home: CellId,
    /// Which of its frames.
    pub number: u64,
}

/// What a frame is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// A page of an object.
    Page,
    /// What the cell itself lives on. No firewall defends a frame against its memory home, so this is never borrowed. (Hive §5.4)
    Structures,
}

/// Where to have a frame from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Allocated {
    /// This one; it is no longer free.
    Frame(Frame),
    /// Ask this cell for a loan, enter it by [`PageTable::borrow_frame`], and allocate again. If it has none, allocate again without it.
    BorrowFrom(CellId),
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Found {
    /// In which frame.
    pub frame: Frame,
    /// Who answers for the data.
    pub data_home: CellId,
    /// Whether this cell may store to it.
    pub is_writable: bool,
}

/// A page that others use as well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Exported {
    /// In which frame: for the client's [`PageTable::import`].
    pub frame: Frame,
    /// Whether the firewall is to be opened for the client. If the frame is borrowed, its memory home has to do that.
    pub opens_firewall: bool,
}

/// A page that is here no more, and those to whom it was exported.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lost {
    /// Which.
    pub page: PageId,
    /// In which frame it was.
    pub frame: Frame,
    /// Who imported it from here.
    pub clients: Vec<CellId>,
}

/// What the death of a cell means for another.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Losses {
    /// Pages that this cell answers for, and that were in borrowed frames of the dead. The table has forgotten them.
    pub lost: Vec<Lost>,
    /// Pages that this cell imported, from the dead or in a frame of it. Forgotten; the data home, if it lives, may have them again.
    pub imports: Vec<PageId>,
    /// Frames of this cell that were loaned to the dead, free again. What they contain is to be thrown away.
    pub returned: Vec<Frame>,
    /// Pages that this cell answers for and that the dead may have stored to: to be discarded, by [`PageTable::discard`].
    pub damaged: Vec<PageId>,
}

/// One cell's table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PageTable {
    own: CellId,
    /// Own frames without an entry.
    free: BTreeSet<u64>,
    entries: BTreeMap<Frame, Entry>,
    pages: BTreeMap<PageId, Frame>,
}

/// The two levels change apart from each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    logical: Logical,
    physical: Physical,
}

/// What is in a frame, as far as this cell is concerned.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Logical {
    /// Nothing.
    Empty,
    /// It is allocated.
    Taken(Purpose),
    /// A page that this cell answers for, and who else uses it: whether it may store.
    Held(PageId, BTreeMap<CellId, bool>),
    Imported {
        page: PageId,
        data_home: CellId,
        is_writable: bool,
    },
}

/// Who decides what is in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Physical {
    /// This cell: it is its own.
    Own,
    /// Another: it was loaned.
    LoanedTo(CellId),
    /// This cell: it was borrowed.
    Borrowed,
    /// Others: there is no more than an import.
    Foreign,
}

impl PageTable {
    /// A cell that has so many frames, all free.
    pub fn new(own: CellId, frames: u64) -> Self {
        Self { own, free: (0..frames).collect(), entries: BTreeMap::new(), pages: BTreeMap::new() }
    }

    /// Finds a frame: of the preferred cell if there is one, of this cell otherwise, of another last. Only cells that are acceptable are
    /// taken. Which are, decides who knows on whom a task may come to depend. (Hive §5.4)
    pub fn allocate(
        &mut self,
        purpose: Purpose,
        acceptable: &[CellId],
        preferred: Option<CellId>,
    ) -> Result<Allocated, AllocateError> {
        let is_acceptable = |cell: &CellId| acceptable.contains(cell);
        if purpose == Purpose::Structures {
            if !is_acceptable(&self.own) {
                return Err(AllocateError::StructuresStayHome);
            }
            return self.take_own(purpose).ok_or(AllocateError::NoFrame);
        }
        if let Some(cell) = preferred.filter(|cell| is_acceptable(cell) && *cell != self.own) {
            return Ok(self.take_borrowed(cell).unwrap_or(Allocated::BorrowFrom(cell)));
        }
        if is_acceptable(&self.own)
            && let Some(allocated) = self.take_own(purpose)
        {
            return Ok(allocated);
        }
        let own = self.own;
        let mut others = acceptable.iter().copied().filter(|cell| *cell != own);
        let found = others.clone().find_map(|cell| self.take_borrowed(cell));
        found.or_else(|| others.next().map(Allocated::BorrowFrom)).ok_or(AllocateError::NoFrame)
    }

    /// A page is in an allocated frame from now on, and this cell answers for it.
    pub fn enter(&mut self, page: PageId, frame: Frame) -> Result<(), EnterError> {
        if self.pages.contains_key(&page) {
            return Err(EnterError::KnownPage(page));
        }
        match self.entries.get_mut(&frame).map(|entry| &mut entry.logical) {
            Some(logical @ Logical::Taken(Purpose::Page)) => *logical = Logical::Held(page, BTreeMap::new()),
            _ => return Err(EnterError::NotAllocated(frame)),
        }
        self.pages.insert(page, frame);
        Ok(())
    }

    /// Where a page is.
    pub fn find(&self, page: PageId) -> Option<Found> {
        let &frame = self.pages.get(&page)?;
        let (data_home, is_writable) = match self.entries[&frame].logical {
            Logical::Imported { data_home, is_writable, .. } => (data_home, is_writable),
            _ => (self.own, true),
        };
        Some(Found { frame, data_home, is_writable })
    }

    /// Another cell uses a page that this one answers for. Until it releases it, the page stays where it is. A client that may store
    /// may do so until then.
    pub fn export(
        &mut self,
        client: CellId,
        page: PageId,
        is_writable: bool,
    ) -> Result<Exported, ExportError> {
        if client == self.own {
            return Err(ExportError::ToItself);
        }
        let &frame = self.pages.get(&page).ok_or(ExportError::NoPage(page))?;
        let entry = self.entries.get_mut(&frame).expect("pages have entries");
        let Logical::Held(_, clients) = &mut entry.logical else {
            return Err(ExportError::HomedElsewhere(page));
        };
        let may_store = clients.entry(client).or_insert(false);
        let opens_firewall = is_writable && !*may_store;
        *may_store |= is_writable;
        Ok(Exported { frame, opens_firewall })
    }

    /// A client says that it uses a page no more. Whether it could store: then the firewall is to be closed.
    pub fn released(&mut self, client: CellId, page: PageId) -> Result<bool, ReleaseError> {
        let held = self.pages.get(&page).and_then(|frame| self.entries.get_mut(frame));
        match held.map(|entry| &mut entry.logical) {
            Some(Logical::Held(_, clients)) => {
                clients.remove(&client).ok_or(ReleaseError::NotExported { client, page })
            }
            _ => Err(ReleaseError::NotExported { client, page }),
        }
    }

    /// Data of another cell is used here, in the frame that it named. If it is here already, its right may change.
    pub fn import(
        &mut self,
        frame: Frame,
        data_home: CellId,
        page: PageId,
        is_writable: bool,
    ) -> Result<(), ImportError> {
        if data_home == self.own {
            return Err(ImportError::FromOurselves);
        }
        if let Some(found) = self.find(page)
            && (found.frame, found.data_home) != (frame, data_home)
        {
            return Err(ImportError::KnownPage { page, data_home });
        }
        let blame = ImportError::NotItsFrame { frame, data_home };
        let imported = Logical::Imported { page, data_home, is_writable };
        match self.entries.get_mut(&frame) {
            None if frame.home == self.own => return Err(blame),
            None => {
                self.entries.insert(frame, Entry { logical: imported, physical: Physical::Foreign });
            }
            Some(entry) => {
                let is_its = match entry.physical {
                    Physical::LoanedTo(borrower) => borrower == data_home,
                    Physical::Foreign => true,
                    Physical::Own | Physical::Borrowed => false,
                };
                let is_there = match entry.logical {
                    Logical::Empty => true,
                    Logical::Imported { page: other, data_home: home, .. } => {
                        (other, home) == (page, data_home)
                    }
                    _ => false,
                };
                if !is_its || !is_there {
                    return Err(blame);
                }
                entry.logical = imported;
            }
        }
        self.pages.insert(page, frame);
        Ok(())
    }

    /// An imported page is used no more. The data home, which is to be told.
    pub fn release(&mut self, page: PageId) -> Result<CellId, ReleaseError> {
        let found = self.find(page).ok_or(ReleaseError::NotImported(page))?;
        if found.data_home == self.own {
            return Err(ReleaseError::NotImported(page));
        }
        self.unbind(page, found.frame);
        Ok(found.data_home)
    }

    /// A frame is empty again: it was allocated, or contains a page that this cell answers for and nobody else uses.
    pub fn give_up(&mut self, frame: Frame) -> Result<(), GiveUpError> {
        match self.entries.get(&frame).map(|entry| &entry.logical) {
            Some(Logical::Taken(_)) => self.empty(frame),
            Some(Logical::Held(page, clients)) if clients.is_empty() => self.unbind(*page, frame),
            Some(Logical::Held(page, _)) => return Err(GiveUpError::Exported(*page)),
            _ => return Err(GiveUpError::NotOurs(frame)),
        }
        Ok(())
    }

    /// A page that this cell answers for is thrown away, whoever uses it: after a failure, when nobody has it mapped any more.
    pub fn discard(&mut self, page: PageId) -> Option<Lost> {
        let &frame = self.pages.get(&page)?;
        let Logical::Held(_, clients) = &self.entries[&frame].logical else { return None };
        let clients = clients.keys().copied().collect();
        self.unbind(page, frame);
        Some(Lost { page, frame, clients })
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
        if let Some(Entry { physical: Physical::LoanedTo(_), .. }) = self.entries.get(&frame) {
            return Err(LoanError::LoanedAlready(frame));
        }
        if !self.free.remove(&frame.number) {
            return Err(LoanError::InUse(frame));
        }
        self.entries.insert(frame, Entry { logical: Logical::Empty, physical: Physical::LoanedTo(client) });
        Ok(())
    }

    /// A cell says that a frame that it was loaned is free again.
    pub fn returned(&mut self, client: CellId, frame: Frame) -> Result<(), ReturnedError> {
        match self.entries.get(&frame) {
            Some(entry) if entry.physical != Physical::LoanedTo(client) => {
                Err(ReturnedError::NotLoaned { client, frame })
            }
            None => Err(ReturnedError::NotLoaned { client, frame }),
            Some(entry) if entry.logical != Logical::Empty => {
                Err(ReturnedError::StillImported { client, frame })
            }
            Some(_) => {
                self.take_back(frame);
                Ok(())
            }
        }
    }

    /// A frame of another cell is this one's to use from now on.
    pub fn borrow_frame(&mut self, frame: Frame) -> Result<(), BorrowError> {
        if frame.home == self.own {
            return Err(BorrowError::FromOurselves(frame));
        }
        match self.entries.get(&frame).map(|entry| entry.physical) {
            Some(Physical::Borrowed) => Err(BorrowError::BorrowedAlready(frame)),
            Some(_) => Err(BorrowError::Imported(frame)),
            None => {
                self.entries.insert(frame, Entry { logical: Logical::Empty, physical: Physical::Borrowed });
                Ok(())
            }
        }
    }

    /// A borrowed frame goes back. The memory home, which is to be told.
    pub fn return_frame(&mut self, frame: Frame) -> Result<CellId, ReturnError> {
        match self.entries.get(&frame) {
            Some(Entry { logical: Logical::Empty, physical: Physical::Borrowed }) => {
                self.entries.remove(&frame);
                Ok(frame.home)
            }
            Some(Entry { physical: Physical::Borrowed, .. }) => Err(ReturnError::InUse(frame)),
            _ => Err(ReturnError::NotBorrowed(frame)),
        }
    }

    /// A cell is dead. Whatever binds this one to it is undone, but for what it may have damaged: that is still to be discarded.
    pub fn dead(&mut self, cell: CellId) -> Losses {
        let mut losses = Losses::default();
        let frames: Vec<Frame> = self.entries.keys().copied().collect();
        for frame in frames {
            self.bury_logical(cell, frame, &mut losses);
            self.bury_physical(cell, frame, &mut losses);
        }
        losses
    }

    /// Who else uses a page that this cell answers for, and whether it may store.
    pub fn clients(&self, page: PageId) -> impl Iterator<Item = (CellId, bool)> + '_ {
        let entry = self.pages.get(&page).and_then(|frame| self.entries.get(frame));
        let clients = entry.and_then(|entry| match &entry.logical {
            Logical::Held(_, clients) => Some(clients),
            _ => None,
        });
        clients.into_iter().flatten().map(|(&client, &may_store)| (client, may_store))
    }

    /// How many frames of its own are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many frames have an entry: all that are not free, and those of others that are used here.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// How many frames of each cell this one has borrowed.
    pub fn borrowed(&self) -> BTreeMap<CellId, usize> {
        let mut counts = BTreeMap::new();
        let borrowed = self.entries.iter().filter(|(_, entry)| entry.physical == Physical::Borrowed);
        borrowed.for_each(|(frame, _)| *counts.entry(frame.home).or_insert(0) += 1);
        counts
    }

    /// What a death means for what is in a frame.
    fn bury_logical(&mut self, cell: CellId, frame: Frame, losses: &mut Losses) {
        let entry = self.entries.get_mut(&frame).expect("an entry");
        match &mut entry.logical {
            Logical::Imported { page, data_home, .. } if *data_home == cell || frame.home == cell => {
                let page = *page;
                losses.imports.push(page);
                self.unbind(page, frame);
            }
            Logical::Held(page, _) if frame.home == cell => {
                let page = *page;
                losses.lost.extend(self.discard(page));
            }
            Logical::Held(page, clients) => {
                if clients.remove(&cell) == Some(true) {
                    losses.damaged.push(*page);
                }
            }
            Logical::Empty | Logical::Taken(_) | Logical::Imported { .. } => {}
        }
    }

    /// And for whose frame it is.
    fn bury_physical(&mut self, cell: CellId, frame: Frame, losses: &mut Losses) {
        match self.entries.get(&frame).map(|entry| entry.physical) {
            Some(Physical::LoanedTo(borrower)) if borrower == cell => {
                self.take_back(frame);
                losses.returned.push(frame);
            }
            Some(Physical::Borrowed) if frame.home == cell => {
                self.entries.remove(&frame);
            }
            _ => {}
        }
    }

    /// A page is not in its frame any more.
    fn unbind(&mut self, page: PageId, frame: Frame) {
        self.pages.remove(&page);
        self.empty(frame);
    }

    /// Nothing is in a frame any more. If nobody has a say in it either, it needs no entry.
    fn empty(&mut self, frame: Frame) {
        let entry = self.entries.get_mut(&frame).expect("only frames with entries have contents");
        match entry.physical {
            Physical::Own => self.take_back(frame),
            Physical::Foreign => {
                self.entries.remove(&frame);
            }
            Physical::Borrowed | Physical::LoanedTo(_) => entry.logical = Logical::Empty,
        }
    }

    fn take_back(&mut self, frame: Frame) {
        self.entries.remove(&frame);
        self.free.insert(frame.number);
    }

    fn take_own(&mut self, purpose: Purpose) -> Option<Allocated> {
        let number = self.free.pop_first()?;
        let frame = self.own_frame(number);
        self.entries.insert(frame, Entry { logical: Logical::Taken(purpose), physical: Physical::Own });
        Some(Allocated::Frame(frame))
    }

    fn take_borrowed(&mut self, cell: CellId) -> Option<Allocated> {
        let frame = self.borrowed_empty(cell)?;
        self.entries.get_mut(&frame)?.logical = Logical::Taken(Purpose::Page);
        Some(Allocated::Frame(frame))
    }

    /// A frame that was borrowed from a cell and has nothing in it.
    fn borrowed_empty(&self, cell: CellId) -> Option<Frame> {
        let all = Frame { home: cell, number: 0 }..=Frame { home: cell, number: u64::MAX };
        let is_empty =
            |entry: &Entry| (&entry.logical, entry.physical) == (&Logical::Empty, Physical::Borrowed);
        self.entries.range(all).find(|(_, entry)| is_empty(entry)).map(|(&frame, _)| frame)
    }

    fn own_frame(&self, number: u64) -> Frame {
        Frame { home: self.own, number }
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of object {:#x}", self.offset, self.object)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} of {}", self.number, self.home)
    }
}
