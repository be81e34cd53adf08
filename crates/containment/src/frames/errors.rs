//! What cannot be done with frames. Nothing has changed by it. Where a cell is named, it said what cannot be; otherwise this
//! cell asked for it.

use comb_types::CellId;

use super::Frame;

/// Why a frame is not given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GiveUpError {
    /// It is free, or for others to give up.
    #[error("{0} is not in use here")]
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
}

/// Why a frame is not borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BorrowError {
    /// It was borrowed before and has not gone back.
    #[error("{0} is borrowed already, and its memory home loans it again")]
    BorrowedAlready(Frame),
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
