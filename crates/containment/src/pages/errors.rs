//! What cannot be done with pages and frames. Nothing has changed by it. Where a cell is named, it said what cannot be; otherwise this
//! cell asked for it.

use comb_types::CellId;

use super::{Frame, PageId};

/// Why there is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocateError {
    /// Nobody who is acceptable has one, as far as this cell knows.
    #[error("no acceptable cell has a free frame")]
    NoFrame,
    /// Its own memory is not acceptable, and nobody else's is safe enough.
    #[error("a cell's own structures must be in its own memory")]
    StructuresStayHome,
}

/// Why a page is not in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EnterError {
    /// It is somewhere else.
    #[error("{0} is in a frame already")]
    KnownPage(PageId),
    /// The frame was not allocated for a page.
    #[error("{0} was not allocated for a page")]
    NotAllocated(Frame),
}

/// Why a page is not exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportError {
    /// It is not here.
    #[error("{0} is not here")]
    NoPage(PageId),
    /// Another cell answers for it.
    #[error("{0} has another data home")]
    HomedElsewhere(PageId),
    /// A cell need not ask itself.
    #[error("a page cannot be exported to its own data home")]
    ToItself,
}

/// Why a page is not imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImportError {
    /// It is here, from elsewhere.
    #[error("{data_home} says where {page} is, and we have it otherwise")]
    KnownPage {
        /// Which.
        page: PageId,
        /// Who says that it has it.
        data_home: CellId,
    },
    /// The frame is not the data home's to put a page in: it is ours and not loaned to that cell, or borrowed by us, or has another page in it.
    #[error("{data_home} says that a page is in {frame}, which is not its to use")]
    NotItsFrame {
        /// Which.
        frame: Frame,
        /// Who says so.
        data_home: CellId,
    },
    /// A cell need not ask itself.
    #[error("a page cannot be imported by its own data home")]
    FromOurselves,
}

/// Why a page is not released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReleaseError {
    /// This cell has not imported it.
    #[error("{0} is not imported")]
    NotImported(PageId),
    /// The client has not got it from us.
    #[error("{client} gives back {page}, which was not exported to it")]
    NotExported {
        /// Who.
        client: CellId,
        /// What.
        page: PageId,
    },
}

/// Why a frame keeps what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GiveUpError {
    /// Others use the page in it.
    #[error("{0} is exported, and stays while others use it")]
    Exported(PageId),
    /// It is free, or for others to give up.
    #[error("{0} has nothing in it that is ours to give up")]
    NotOurs(Frame),
}

/// Why a frame is not loaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoanError {
    /// Somebody has it.
    #[error("{0} is loaned already")]
    LoanedAlready(Frame),
    /// This cell uses it.
    #[error("{0} is in use")]
    InUse(Frame),
    /// What is borrowed cannot be loaned.
    #[error("{0} is another cell's")]
    NotOurs(Frame),
    /// A cell need not ask itself.
    #[error("a frame cannot be loaned to its own memory home")]
    ToItself,
}

/// Why a loan does not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReturnedError {
    /// It is not that cell's to give back.
    #[error("{client} gives back {frame}, which was not loaned to it")]
    NotLoaned {
        /// Who.
        client: CellId,
        /// What.
        frame: Frame,
    },
    /// It has exported the page in it to us, and had to wait for our release.
    #[error("{client} gives back {frame}, of which we import the page that is in it")]
    StillImported {
        /// Who.
        client: CellId,
        /// What.
        frame: Frame,
    },
}

/// Why a frame is not borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BorrowError {
    /// It was borrowed before and has not gone back.
    #[error("{0} is borrowed already, and its memory home loans it again")]
    BorrowedAlready(Frame),
    /// Somebody else's page is in it.
    #[error("{0} is loaned to us, with a page in it that we import")]
    Imported(Frame),
    /// It is our own.
    #[error("{0} is our own")]
    FromOurselves(Frame),
}

/// Why a frame does not go back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReturnError {
    /// Something is in it.
    #[error("{0} is in use")]
    InUse(Frame),
    /// It was not borrowed.
    #[error("{0} is not borrowed")]
    NotBorrowed(Frame),
}
