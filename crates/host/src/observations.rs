//! What an agent has seen of failures lately, for whoever injects faults and measures what comes of it. (Hive §7.4)

use std::collections::VecDeque;

use comb_cell::supervision::Recovered;
use serde::{Deserialize, Serialize};

/// Of each kind. Whoever injects faults looks many times for each.
const MOST: usize = 64;

/// A cell failed as it was told, or could not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Injected {
    /// Which.
    pub cell: u32,
    /// When, on `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Why it could not.
    pub refused: Option<String>,
}

/// See the [module](self). The oldest come first.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Observations {
    /// Cells that were told to fail.
    pub injected: VecDeque<Injected>,
    /// Recoveries that are over, each with the cell that says so.
    pub recovered: VecDeque<(u32, Recovered)>,
}

impl Observations {
    pub(crate) fn injected(&mut self, injected: Injected) {
        keep(&mut self.injected, injected);
    }

    pub(crate) fn recovered(&mut self, by: u32, recovered: &Recovered) {
        keep(&mut self.recovered, (by, recovered.clone()));
    }
}

fn keep<T>(all: &mut VecDeque<T>, one: T) {
    if all.len() == MOST {
        all.pop_front();
    }
    all.push_back(one);
}
