//! What a careful reference ends with where it finds no value.

use comb_types::{CellId, Incarnation};
use rustix::io::Errno;

/// Why a careful reference gives no value: which rule was broken, and by which cell. Nothing changed, here or there.
///
/// Each but [`CarefulError::System`] and [`CarefulError::TooMany`] is a reason to suspect the cell; those may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CarefulError {
    /// This host's kernel refused; nobody is guilty.
    #[error("cannot {action} of {cell}: {source}")]
    System {
        /// Whose memory it was about.
        cell: CellId,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: Errno,
    },
    /// The cell handed over something else than what cells publish.
    #[error("{cell} handed over what it has not published: {rule}")]
    NotPublished {
        /// The guilty one.
        cell: CellId,
        /// What is so with all that was published.
        rule: &'static str,
    },
    /// The cell publishes in another way than is understood here.
    #[error("{cell} publishes by version {found}, which this cell does not know")]
    Version {
        /// Which cell.
        cell: CellId,
        /// As it says.
        found: u64,
    },
    /// The cell handed over another's.
    #[error("{cell} handed over what cell {found} has published")]
    NotIts {
        /// The guilty one.
        cell: CellId,
        /// What stands there.
        found: u64,
    },
    /// The cell handed over what it had published in another life.
    #[error("{cell} handed over what it published in {found}, in {expected}")]
    OtherIncarnation {
        /// The guilty one.
        cell: CellId,
        /// Which life it is in.
        expected: Incarnation,
        /// What stands there.
        found: Incarnation,
    },
    /// A pointer to another cell than the one that is being read. There may be good ones: whoever follows pointers from cell to cell
    /// begins a section for each.
    #[error("a pointer leads from {cell} to {found}")]
    OtherCell {
        /// Whose memory is being read.
        cell: CellId,
        /// Where the pointer leads.
        found: CellId,
    },
    /// A pointer to where no structure can begin.
    #[error("a pointer into {cell} is not aligned: {offset:#x}")]
    Misaligned {
        /// The guilty one.
        cell: CellId,
        /// Where the pointer leads.
        offset: u64,
    },
    /// A pointer beyond what the cell has published, or to its first page.
    #[error("a pointer leads out of what {cell} has published: {bytes} bytes at {offset:#x}")]
    OutOfRange {
        /// The guilty one.
        cell: CellId,
        /// Where the pointer leads.
        offset: u64,
        /// How much should be there.
        bytes: u64,
    },
    /// No such structure: never there, or freed, or another one.
    #[error(
        "{cell} has no structure with tag {expected:#x} and of {bytes} bytes at {offset:#x}, but {found:#018x}"
    )]
    WrongTag {
        /// The guilty one.
        cell: CellId,
        /// Where it should be.
        offset: u64,
        /// Its type.
        expected: u32,
        /// Its length.
        bytes: u64,
        /// Tag and length, as they stand there; 0 if nothing does.
        found: u64,
    },
    /// An array that is longer than the reader takes, or no multiple of its elements, or too short for the one that is wanted.
    #[error(
        "{cell} has an array of {bytes} bytes at {offset:#x}, where {wanted} elements of {each} are asked for at most"
    )]
    WrongLength {
        /// The guilty one.
        cell: CellId,
        /// Where it is.
        offset: u64,
        /// How long it says that it is.
        bytes: u64,
        /// How many the reader takes, or which one it wants.
        wanted: u64,
        /// The size of one.
        each: u64,
    },
    /// It changed in all of many tries: the cell is stopped within a change, or changes it all the time.
    #[error("what {cell} has at {offset:#x} does not stay as it is for the time of a copy")]
    Unstable {
        /// The guilty one.
        cell: CellId,
        /// Where it is.
        offset: u64,
        /// Which version of it this is; odd within a change.
        version: u64,
    },
    /// The cell has cut itself off, or begun another life.
    #[error("{cell} has cut itself off")]
    CutOff {
        /// Which cell.
        cell: CellId,
    },
    /// The section has read as often as it may: pointers lead in a circle, or there are more structures than the reader expected.
    #[error("{limit} reads of {cell} are not enough: its pointers may lead in a circle")]
    TooMany {
        /// Whose memory is being read.
        cell: CellId,
        /// What the section was given.
        limit: u32,
    },
    /// Structures that contradict each other, as the reader finds.
    #[error("{cell} breaks a rule: {rule}")]
    Broken {
        /// The guilty one.
        cell: CellId,
        /// What is so where nothing is wrong.
        rule: &'static str,
    },
    /// The memory is gone: the cell is dead.
    #[error("bus error at {offset:#x} of {cell}")]
    BusError {
        /// The guilty one.
        cell: CellId,
        /// Where was read.
        offset: u64,
    },
    /// The memory is of another host, which gives no answer.
    #[error("cannot get {offset:#x} of {cell}: {why}")]
    Unreachable {
        /// Which cell.
        cell: CellId,
        /// Where was to be read.
        offset: u64,
        /// As the network says.
        why: &'static str,
    },
}

impl CarefulError {
    /// Which cell's memory it was: the guilty one, if anybody is.
    pub fn cell(&self) -> CellId {
        match *self {
            Self::System { cell, .. }
            | Self::NotPublished { cell, .. }
            | Self::Version { cell, .. }
            | Self::NotIts { cell, .. }
            | Self::OtherIncarnation { cell, .. }
            | Self::OtherCell { cell, .. }
            | Self::Misaligned { cell, .. }
            | Self::OutOfRange { cell, .. }
            | Self::WrongTag { cell, .. }
            | Self::WrongLength { cell, .. }
            | Self::Unstable { cell, .. }
            | Self::CutOff { cell }
            | Self::TooMany { cell, .. }
            | Self::Broken { cell, .. }
            | Self::BusError { cell, .. }
            | Self::Unreachable { cell, .. } => cell,
        }
    }
}
