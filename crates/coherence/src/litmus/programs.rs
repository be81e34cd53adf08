//! Small programs whose outcomes tell memories apart: for protocols alone, and for what drives them.

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Stores the number of its cell, from 1 on.
    Store(u64),
    Load(u64),
    Sync,
}
use Op::{Load, Store, Sync};

/// One a cell.
pub(crate) type Programs = &'static [&'static [Op]];
/// What the loads find, those of the first cell first.
pub(crate) type Outcomes = &'static [&'static [u8]];

pub(crate) const X: u64 = 0;
pub(crate) const Y: u64 = 1;
pub(crate) const BLOCKS: u64 = 2;

/// Who stores and then loads what the other stores.
pub(crate) const STORE_BUFFERING: Programs = &[&[Store(X), Load(Y)], &[Store(Y), Load(X)]];
pub(crate) const MESSAGE_PASSING: Programs = &[&[Store(X), Store(Y)], &[Load(Y), Load(X)]];
/// Two readers, of stores that do not know of each other.
pub(crate) const INDEPENDENT_READS: Programs =
    &[&[Store(X)], &[Store(Y)], &[Load(X), Load(Y)], &[Load(Y), Load(X)]];
/// Of one block, nobody finds what is older than what it has found.
pub(crate) const READ_READ: Programs = &[&[Store(X)], &[Load(X), Load(X)]];
/// Two stores into one block, in the eyes of two.
pub(crate) const WRITE_WRITE: Programs =
    &[&[Store(X)], &[Store(X)], &[Load(X), Load(X)], &[Load(X), Load(X)]];

/// What sequential consistency forbids.
pub(crate) const FORBIDDEN: [(Programs, Outcomes); 5] = [
    (STORE_BUFFERING, &[&[0, 0]]),
    (MESSAGE_PASSING, &[&[1, 0]]),
    (INDEPENDENT_READS, &[&[1, 0, 2, 0]]),
    (READ_READ, &[&[1, 0]]),
    (WRITE_WRITE, &[&[1, 2, 2, 1], &[2, 1, 1, 2]]),
];

/// What release consistency forbids, of programs that synchronise.
pub(crate) const FORBIDDEN_UNDER_RELEASE: [(Programs, Outcomes); 4] = [
    (&[&[Store(X), Sync, Load(Y)], &[Store(Y), Sync, Load(X)]], &[&[0, 0]]),
    (&[&[Store(X), Sync, Store(Y), Sync], &[Load(Y), Load(X)]], &[&[1, 0]]),
    (&[&[Store(X), Sync, Store(X), Sync], &[Load(X), Load(X)]], &[&[1, 0]]),
    (&[&[Store(X), Sync], &[Load(X), Load(X)]], &[&[1, 0]]),
];
