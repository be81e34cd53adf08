//! What a cell has stored in a block since it took a copy of it: runs of bytes that differ.
//!
//! A run is its offset and its length, in four bytes each, and its bytes. Two runs that are nearer to each other than a run costs
//! stay apart all the same: the bytes between them are not this cell's to store.

use alloc::vec::Vec;

use crate::tempest::PeerError;

const HEAD: usize = 8;

/// The runs in which `now` differs from `before`, as they travel.
pub(crate) fn of(before: &[u8], now: &[u8]) -> Vec<u8> {
    debug_assert_eq!(before.len(), now.len());
    let mut runs = Vec::new();
    let mut at = 0;
    while at < now.len() {
        if before[at] == now[at] {
            at += 1;
            continue;
        }
        let length = before[at..].iter().zip(&now[at..]).take_while(|(before, now)| before != now).count();
        for number in [at, length] {
            runs.extend(u32::try_from(number).expect("a block is shorter than 4 GB").to_le_bytes());
        }
        runs.extend_from_slice(&now[at..at + length]);
        at += length;
    }
    runs
}

/// Reads runs as a peer sent them: in their order, apart, and within a block.
pub(crate) fn check(mut runs: &[u8], block_bytes: usize) -> Result<Runs<'_>, PeerError> {
    let (whole, mut least) = (runs, 0);
    while let Some((offset, bytes, rest)) = split(runs) {
        if bytes.is_empty() || offset < least || offset + bytes.len() > block_bytes {
            return Err(PeerError::Changes);
        }
        (least, runs) = (offset + bytes.len(), rest);
    }
    if runs.is_empty() { Ok(Runs(whole)) } else { Err(PeerError::Changes) }
}

fn split(runs: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let (head, rest) = runs.split_first_chunk::<HEAD>()?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let (bytes, rest) = rest.split_at_checked(number(4))?;
    Some((number(0), bytes, rest))
}

/// Runs that were checked: offsets, and the bytes that are to stand there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs<'a>(&'a [u8]);

impl<'a> Iterator for Runs<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        let (offset, bytes, rest) = split(self.0)?;
        self.0 = rest;
        Some((offset, bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_differs_is_changed_and_nothing_else(
            before in prop::collection::vec(0..3_u8, 0..300),
            stores in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        ) {
            let mut now = before.clone();
            for (at, byte) in stores {
                if !now.is_empty() {
                    let at = at.index(now.len());
                    now[at] = byte;
                }
            }
            let runs = of(&before, &now);
            let mut changed = before.clone();
            for (offset, bytes) in check(&runs, before.len()).unwrap() {
                for (at, &byte) in (offset..).zip(bytes) {
                    prop_assert_ne!(changed[at], byte, "not this cell's to store");
                    changed[at] = byte;
                }
            }
            prop_assert_eq!(changed, now);
        }

        #[test]
        fn whatever_comes_stays_within_the_block(bytes in prop::collection::vec(0..6_u8, 0..60), block_bytes in 0..40_usize) {
            if let Ok(runs) = check(&bytes, block_bytes) {
                let mut least = 0;
                for (offset, bytes) in runs {
                    prop_assert!(offset >= least && !bytes.is_empty());
                    least = offset + bytes.len();
                    prop_assert!(least <= block_bytes);
                }
            }
        }
    }

    #[test]
    fn what_no_peer_may_send_is_refused() {
        let run = |offset: u32, length: u32, bytes: &[u8]| {
            [&offset.to_le_bytes()[..], &length.to_le_bytes(), bytes].concat()
        };
        let wrong = [
            run(0, 0, &[]),
            run(0, 2, &[1]),
            run(3, 2, &[1, 2]),
            run(u32::MAX, 1, &[1]),
            run(0, u32::MAX, &[1]),
            [run(2, 1, &[1]), run(2, 1, &[1])].concat(),
            run(0, 1, &[1])[..7].to_vec(),
            [run(0, 1, &[1]), vec![0]].concat(),
        ];
        for runs in wrong {
            assert_eq!(check(&runs, 4).map(drop), Err(PeerError::Changes), "{runs:?}");
        }
        assert_eq!(check(&run(3, 1, &[9]), 4).unwrap().collect::<Vec<_>>(), [(3, &[9][..])]);
    }

    use std::vec;
}
