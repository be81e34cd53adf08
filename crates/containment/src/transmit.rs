//! To whom what is said goes.

use comb_types::CellId;

/// To whom a message goes. The way from one cell to another is the driver's: what goes on it arrives once and in its order, or one of
/// the two dies. Ways do not wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum To {
    /// To every living cell but this one.
    Others,
    /// To one cell.
    One(CellId),
}
