//! Which cells have failed lately as they were told, for whoever injects faults and measures what comes of it. (Hive §7.4)

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Whoever injects faults looks many times for each.
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
}

impl Observations {
    pub(crate) fn injected(&mut self, injected: Injected) {
        if self.injected.len() == MOST {
            self.injected.pop_front();
        }
        self.injected.push_back(injected);
    }
}
