//! What a program pays for neighbours that are on different pages, where memory has room for all of them (Cache Kernel §5.2).

use std::fs;
use std::path::Path;

use super::{Bench, GROUP_BYTES, Outcome, Work};

/// 30 MiB: more pages than any processor of today has translations for.
const MOLECULES: u64 = 491_520;
/// Each goes over all of them.
const STEPS: u64 = 20;

/// How long a step of the same simulation takes, in seconds, by where its molecules are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Locality {
    /// Those that come one after the other lie so.
    pub in_order: f64,
    /// They are scattered over four pages.
    pub over_few: f64,
    /// They are scattered over all pages.
    pub over_all: f64,
}

/// Measures them in turn, so many times: the shortest of each.
pub fn measure(directory: &Path, rounds: usize) -> Outcome<Locality> {
    let mut seconds = [[f64::INFINITY; 2]; 3];
    let mut expected = [None, None];
    for _ in 0..rounds {
        for (seconds, pages) in seconds.iter_mut().zip([0, 4, MOLECULES]) {
            // What differs is steps, and neither reading the file nor writing it.
            for ((seconds, steps), expected) in seconds.iter_mut().zip([1, 1 + STEPS]).zip(&mut expected) {
                let (took, said) = once(directory, pages, steps)?;
                *seconds = seconds.min(took);
                if *expected.get_or_insert_with(|| said.clone()) != said {
                    return Err("a simulation has another result where its molecules are elsewhere".into());
                }
            }
        }
    }
    let [in_order, over_few, over_all] = seconds.map(|[short, long]| (long - short) / STEPS as f64);
    Ok(Locality { in_order, over_few, over_all })
}

/// Seconds of one run, and what the program says.
fn once(directory: &Path, pages: u64, steps: u64) -> Outcome<(f64, Vec<u8>)> {
    let bench = Bench::new(Work::Mp3d { molecules: MOLECULES, steps }, directory)?;
    bench.make(&[pages])?;
    // The program has pages of its own, too.
    let bytes = fs::metadata(bench.data())?.len().next_multiple_of(GROUP_BYTES) + GROUP_BYTES;
    bench.under_kernel(bytes)
}
