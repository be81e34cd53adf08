//! Hosts, as commands show them.

use serde::{Deserialize, Serialize};

use super::words::CellWord;

/// How a host is, as this one sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCondition {
    /// It is this one.
    Here,
    /// There is a line to its agent.
    Up,
    /// Its agent has ended, or was not reached yet.
    Away,
    /// Nothing is heard of it, and nobody said that it goes.
    Lost,
    /// It said what it may not.
    CutOff,
}

impl std::fmt::Display for HostCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here => "here",
            Self::Up => "up",
            Self::Away => "away",
            Self::Lost => "lost",
            Self::CutOff => "cut off",
        })
    }
}

/// A host's line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// What all call it.
    pub name: String,
    /// Where its agent listens.
    pub address: String,
    /// How it is.
    pub condition: HostCondition,
    /// Why it is not reached, if that is known.
    pub trouble: Option<String>,
    /// Its key.
    pub fingerprint: String,
    /// How long it has been as it is; this one: how long it has belonged to the comb.
    pub for_ms: u64,
    /// The first number of its cells.
    pub first: u32,
    /// How many numbers it has.
    pub count: u32,
    /// Its cells, as it said last.
    pub cells: Vec<CellWord>,
}
