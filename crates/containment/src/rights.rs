//! Who may store to which pages of a home: the book of its firewall. (Hive §4.2)
//!
//! The home alone changes it, and writes a right down before it gives it: after a failure this book is all that says what the dead
//! could have damaged, and what is not in it was not granted. The book enforces nothing; that is for whoever maps the pages.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Who may store to which pieces. A piece is a range of pages that is always granted whole; pieces do not overlap.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rights {
    /// By the beginning of each piece to which somebody may store.
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Piece {
    end: u64,
    /// Ordered, each once, never nobody.
    holders: Vec<u32>,
}

impl Rights {
    /// A book of no rights.
    pub fn new() -> Self {
        Self::default()
    }

    /// A holder may store to a piece from now on. Whether it could not before.
    ///
    /// # Panics
    ///
    /// If the range is empty, or overlaps a piece without being that piece: then a right could be taken away in part, and nobody would
    /// know of the rest.
    pub fn grant(&mut self, holder: u32, piece: Range<u64>) -> bool {
        let is_same = |(at, other): (u64, &Piece)| (at, other.end) == (piece.start, piece.end);
        let is_sound = self.overlapping(&piece).all(is_same);
        assert!(is_sound && piece.start < piece.end, "{piece:?} is not a piece");
        let entry = self.pieces.entry(piece.start);
        let holders = &mut entry.or_insert_with(|| Piece { end: piece.end, holders: Vec::new() }).holders;
        let place = holders.binary_search(&holder);
        if let Err(place) = place {
            holders.insert(place, holder);
        }
        place.is_err()
    }

    /// Nobody may store to any piece that begins, ends or lies in a range. What was taken from whom, in the order of addresses, with
    /// neighbouring pieces of one holder as one: revoking costs by the range and not by the page.
    pub fn revoke(&mut self, range: &Range<u64>) -> Vec<(u32, Range<u64>)> {
        let starts: Vec<u64> = self.overlapping(range).map(|(at, _)| at).collect();
        let mut taken: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
        for at in starts {
            let piece = self.pieces.remove(&at).expect("just seen");
            for holder in piece.holders {
                join(taken.entry(holder).or_default(), at..piece.end);
            }
        }
        let runs =
            taken.into_iter().flat_map(|(holder, runs)| runs.into_iter().map(move |run| (holder, run)));
        let mut runs: Vec<_> = runs.collect();
        runs.sort_by_key(|(holder, run)| (run.start, *holder));
        runs
    }

    /// A holder may store to nothing any more. What it could store to.
    pub fn revoke_all_of(&mut self, holder: u32) -> Vec<Range<u64>> {
        let taken = self.of(holder);
        for piece in self.pieces.values_mut() {
            piece.holders.retain(|other| *other != holder);
        }
        self.pieces.retain(|_, piece| !piece.holders.is_empty());
        taken
    }

    /// What a holder may store to.
    pub fn of(&self, holder: u32) -> Vec<Range<u64>> {
        self.writable_by(|other| other == holder)
    }

    /// To what any of some holders may store: what is to be discarded if those have failed.
    pub fn writable_by(&self, is_among: impl Fn(u32) -> bool) -> Vec<Range<u64>> {
        let mut runs = Vec::new();
        for (&at, piece) in &self.pieces {
            if piece.holders.iter().any(|&holder| is_among(holder)) {
                join(&mut runs, at..piece.end);
            }
        }
        runs
    }

    /// How many pieces somebody may store to.
    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// How many pages somebody may store to.
    pub fn pages_writable(&self) -> u64 {
        self.pages_writable_by(|_| true)
    }

    /// How many pages any of some holders may store to, each counted once.
    pub fn pages_writable_by(&self, is_among: impl Fn(u32) -> bool) -> u64 {
        self.writable_by(is_among).iter().map(|run| run.end - run.start).sum()
    }

    /// The pieces that have a page in a range.
    fn overlapping<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = (u64, &'a Piece)> + use<'a> {
        let (start, end) = (range.start, range.end.max(range.start));
        let first =
            self.pieces.range(..start).next_back().filter(|(_, piece)| piece.end > start && start < end);
        first.into_iter().chain(self.pieces.range(start..end)).map(|(&at, piece)| (at, piece))
    }
}

/// Adds a range that begins where others end, or later.
fn join(runs: &mut Vec<Range<u64>>, next: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => runs.push(next),
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_taken_comes_in_runs_by_holder_in_the_order_of_addresses() {
        let mut rights = Rights::new();
        for piece in [0..4, 4..8, 12..16] {
            assert!(rights.grant(7, piece));
        }
        assert!(rights.grant(3, 4..8) && rights.grant(3, 8..12));
        assert!(!rights.grant(3, 4..8), "it has it already");
        assert_eq!((rights.count(), rights.pages_writable()), (4, 16));
        assert_eq!(rights.pages_writable_by(|holder| holder == 3), 8);
        assert_eq!((rights.of(7), rights.of(1)), (vec![0..8, 12..16], vec![]));
        let copy = rights.clone();
        assert_eq!(rights.revoke(&(2..13)), [(7, 0..8), (3, 4..12), (7, 12..16)]);
        assert_eq!(rights, Rights::new());
        assert_eq!(rights.revoke(&(0..u64::MAX)), []);
        let mut rights = copy;
        assert_eq!(rights.revoke(&(8..8)), [], "an empty range has nothing in it");
        assert_eq!(rights.revoke(&(5..5)), []);
        assert_eq!(rights.revoke_all_of(7), [0..8, 12..16]);
        assert_eq!((rights.count(), rights.of(3).first(), rights.of(3).len()), (2, Some(&(4..12)), 1));
    }

    #[test]
    #[should_panic(expected = "not a piece")]
    fn a_part_of_a_piece_is_not_granted() {
        let mut rights = Rights::new();
        rights.grant(1, 0..4);
        rights.grant(1, 2..4);
    }

    #[test]
    #[should_panic(expected = "not a piece")]
    fn a_piece_is_not_granted_with_more() {
        let mut rights = Rights::new();
        rights.grant(1, 4..8);
        rights.grant(1, 0..8);
    }

    /// Pieces of so many pages.
    const PIECE: u64 = 4;

    fn pages(runs: &[Range<u64>]) -> BTreeSet<u64> {
        runs.iter().cloned().flatten().collect()
    }

    fn is_merged(runs: &[Range<u64>]) -> bool {
        runs.windows(2).all(|pair| pair[0].end < pair[1].start) && runs.iter().all(|run| run.start < run.end)
    }

    proptest! {
        /// The same as a set of pairs of holder and page.
        #[test]
        fn as_a_plain_set(acts in prop::collection::vec((0_u32..4, 0_u64..16, 0_u64..5, 0_u32..8), 0..60)) {
            let mut rights = Rights::new();
            let mut plain: BTreeSet<(u64, u32)> = BTreeSet::new();
            for (holder, place, length, act) in acts {
                let range = place * PIECE..(place + length) * PIECE;
                match act {
                    0 => {
                        let taken = rights.revoke(&range);
                        prop_assert!(taken.is_sorted_by_key(|(_, run)| run.start));
                        let all: BTreeSet<_> = taken
                            .iter()
                            .flat_map(|(holder, run)| run.clone().map(move |page| (page, *holder)))
                            .collect();
                        let expected: BTreeSet<_> =
                            plain.iter().copied().filter(|(page, _)| range.contains(page)).collect();
                        prop_assert_eq!(&all, &expected);
                        plain.retain(|(page, _)| !range.contains(page));
                        for holder in 0..4 {
                            let of: Vec<_> =
                                taken.iter().filter(|(by, _)| *by == holder).map(|(_, run)| run.clone()).collect();
                            prop_assert!(is_merged(&of));
                        }
                    }
                    1 => {
                        rights.revoke_all_of(holder);
                        plain.retain(|(_, by)| *by != holder);
                    }
                    _ => {
                        let piece = place * PIECE..(place + 1) * PIECE;
                        let is_new = rights.grant(holder, piece.clone());
                        prop_assert_eq!(is_new, !plain.contains(&(piece.start, holder)));
                        plain.extend(piece.map(|page| (page, holder)));
                    }
                }
                let of = |is_among: &dyn Fn(u32) -> bool| -> BTreeSet<u64> {
                    plain.iter().filter(|(_, holder)| is_among(*holder)).map(|(page, _)| *page).collect()
                };
                for holder in 0..4 {
                    prop_assert!(is_merged(&rights.of(holder)));
                    prop_assert_eq!(pages(&rights.of(holder)), of(&|other| other == holder));
                }
                let odd = |holder: u32| holder % 2 == 1;
                prop_assert_eq!(pages(&rights.writable_by(odd)), of(&odd));
                prop_assert_eq!(rights.pages_writable_by(odd), of(&odd).len() as u64);
                prop_assert_eq!(rights.count() as u64 * PIECE, rights.pages_writable());
            }
        }
    }
}
