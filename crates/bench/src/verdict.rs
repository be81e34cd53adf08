//! What comes of a fault that is injected, as `comb inject --json` prints it and `comb reproduce hive --injected` reads it; and what Hive's own campaign
//! had of such faults. (Hive §7.4)

use serde::{Deserialize, Serialize};

/// Which of the two the fault is aimed at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Workload {
    /// The small programs: the spanning task has nothing to do with the cell, and is to go on.
    P,
    /// The spanning task depends on the cell.
    R,
}

/// What came of one injection: a line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The way to fail, by its name on the command line.
    pub kind: String,
    /// What it was aimed at.
    pub workload: Workload,
    /// The first cell that failed.
    pub cell: u32,
    /// By which the same is done again.
    pub seed: u64,
    /// Whether everything else was as it should be.
    pub contained: bool,
    /// Until the last cell had entered recovery; none: nothing was to be noticed.
    pub detected_ms: Option<f64>,
    /// Until the last cell was at work again.
    pub recovered_ms: Option<f64>,
    /// In all cells that live.
    pub discarded_pages: u64,
    /// Why it was not contained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Where the log is of one that was not contained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// A row of Hive's Table 7.4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    /// What such a fault is called in a [`Verdict`].
    pub kind: &'static str,
    /// What the paper calls it, and its workload.
    pub name: &'static str,
    /// How many there were. All were contained.
    pub tests: u32,
    /// Until the last cell entered recovery.
    pub average_ms: u32,
    /// The same, of the slowest.
    pub longest_ms: u32,
}

/// In the paper's order.
pub const HISTORY: [History; 5] = [
    of("node-creation", "node failure during process creation (P)", 20, [16, 21]),
    of("node-search", "node failure during copy-on-write search (R)", 9, [10, 11]),
    of("node-random", "node failure at random time (P)", 20, [21, 45]),
    of("pointer-map", "corrupt pointer in process address map (P)", 8, [38, 65]),
    of("pointer-tree", "corrupt pointer in copy-on-write tree (R)", 12, [401, 760]),
];

const fn of(
    kind: &'static str,
    name: &'static str,
    tests: u32,
    [average_ms, longest_ms]: [u32; 2],
) -> History {
    History { kind, name, tests, average_ms, longest_ms }
}
