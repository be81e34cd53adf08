//! What programs compute and regions contain, so that whoever knows the seed knows what it must be.

use comb_types::Dice;

/// Of a page.
pub(super) const WORDS: usize = 512;
/// Some milliseconds of work.
const TURNS: u32 = 300_000;

/// The result of a small program.
pub(super) fn computed(seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    (0..TURNS).fold(seed, |all, _| all.rotate_left(5) ^ dice.roll())
}

/// What stands in a page.
pub(super) fn page(seed: u64, page: usize) -> [u64; WORDS] {
    let mut dice = Dice::new(seed ^ (page as u64) << 32);
    std::array::from_fn(|_| dice.roll())
}

/// What a component of a spanning task begins with.
pub(super) fn first(seed: u64, rank: usize) -> u64 {
    Dice::new(seed ^ rank as u64).roll()
}

/// What it has after a round, from what it and its neighbour had before.
pub(super) fn next(own: u64, left: u64) -> u64 {
    own.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ left
}

/// What all components together have after so many rounds.
pub(super) fn spanned(seed: u64, components: usize, rounds: usize) -> u64 {
    let mut all: Vec<u64> = (0..components).map(|rank| first(seed, rank)).collect();
    for _ in 0..rounds {
        all =
            (0..components).map(|rank| next(all[rank], all[(rank + components - 1) % components])).collect();
    }
    all.into_iter().fold(0, u64::wrapping_add)
}
