//! The ways to fail, each with what Hive's campaign had of it.

use clap::ValueEnum;
use comb_bench::verdict::{HISTORY, History};

/// A way to fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(super) enum Kind {
    /// A cell is killed while processes are made in it
    NodeCreation,
    /// A cell is killed while pages are looked for in its copy-on-write tree
    NodeSearch,
    /// A cell is killed at a random time
    NodeRandom,
    /// A pointer in a cell's list of regions is corrupt
    PointerMap,
    /// A pointer in a cell's copy-on-write tree is corrupt
    PointerTree,
    /// A process stores to random pages of another cell's region, with a right to them or without
    WildRegion,
    /// A cell stores to random words of what it shows to the others
    WildShown,
    /// A cell calls handlers with random words and bytes
    BadRequests,
    /// A cell sends answers to what nobody asked
    BadAnswers,
    /// A cell writes random bytes on its channels
    BadWire,
    /// A cell sends random bytes to the endpoint of the group
    BadGroup,
    /// A cell says of others that they have failed
    Lies,
    /// A cell is stopped
    HungStopped,
    /// A cell's loop goes on for ever
    HungLoops,
    /// A cell's loop waits for what never comes
    HungSleeps,
    /// A cell's alarm does not come: it sleeps until somebody asks whether it is there
    LateAlarm,
    /// A cell is stopped and goes on, many times a second
    Slow,
    /// A cell takes all memory that it may have
    Memory,
    /// The agent is killed, and another one takes over
    Agent,
    /// Two cells are killed at once
    TwoAtOnce,
    /// A cell is killed while the others recover from another one's end
    InRecovery,
    /// The recovery master is killed while it recovers
    Master,
}

impl Kind {
    pub(super) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("none is skipped").get_name().to_owned()
    }

    /// For people: the group of a row of the table, and the row.
    pub(super) fn title(self) -> (&'static str, &'static str) {
        match self {
            Self::NodeCreation => ("Node failure", "during process creation"),
            Self::NodeSearch => ("Node failure", "during copy-on-write search"),
            Self::NodeRandom => ("Node failure", "at random time"),
            Self::PointerMap => ("Corrupt pointer in", "address map"),
            Self::PointerTree => ("Corrupt pointer in", "copy-on-write tree"),
            Self::WildRegion => ("Wild stores to", "a region of another cell"),
            Self::WildShown => ("Wild stores to", "what the cell shows"),
            Self::BadRequests => ("Bad messages", "to handlers"),
            Self::BadAnswers => ("Bad messages", "as answers"),
            Self::BadWire => ("Bad messages", "as bytes on channels"),
            Self::BadGroup => ("Bad messages", "to the group"),
            Self::Lies => ("Bad messages", "lies about others"),
            Self::HungStopped => ("Hung cell", "stopped"),
            Self::HungLoops => ("Hung cell", "loops"),
            Self::HungSleeps => ("Hung cell", "waits for ever"),
            Self::LateAlarm => ("Other", "alarm that does not come"),
            Self::Slow => ("Other", "slow cell"),
            Self::Memory => ("Other", "memory exhausted"),
            Self::Agent => ("Other", "agent killed and restarted"),
            Self::TwoAtOnce => ("Several failures", "two cells at once"),
            Self::InRecovery => ("Several failures", "during recovery"),
            Self::Master => ("Several failures", "recovery master"),
        }
    }

    /// What Hive had of such faults.
    pub(super) fn history(self) -> Option<&'static History> {
        HISTORY.iter().find(|history| history.kind == self.name())
    }

    /// What the failing cell is to come to.
    pub(super) fn fate(self) -> Fate {
        match self {
            Self::WildShown
            | Self::BadRequests
            | Self::BadAnswers
            | Self::BadWire
            | Self::BadGroup
            | Self::Lies
            | Self::Slow => Fate::MayEnd,
            Self::Agent | Self::LateAlarm => Fate::Lives,
            // One without a right to store is stopped, and its cell lives: see there.
            _ => Fate::Ends,
        }
    }
}

/// What is to become of a cell that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The others find it failed.
    Ends,
    /// They do, or nothing has come of it.
    MayEnd,
    Lives,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_hive_had_is_a_kind() {
        let had: Vec<Kind> = Kind::all().iter().copied().filter(|kind| kind.history().is_some()).collect();
        assert_eq!(
            had,
            [Kind::NodeCreation, Kind::NodeSearch, Kind::NodeRandom, Kind::PointerMap, Kind::PointerTree]
        );
        assert_eq!(had.len(), HISTORY.len());
    }
}
