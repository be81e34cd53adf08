//! `comb run --report`: where a task's memory traffic comes from, of all its components' parts.

mod allocations;
mod homes;
mod lines;
mod names;
#[cfg(test)]
mod scene;
mod sharing;
mod show;
mod verdict;

use std::path::Path;

use comb_region::report::{Part, Uncounted};
use serde::Serialize;

use self::homes::{Misplaced, Traffic};
use self::lines::Line;
use self::names::{Names, Naming};
use self::sharing::Shared;
use self::verdict::Verdict;

/// A whole task's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Report {
    components: usize,
    /// Those of which nothing is known.
    silent: Vec<u32>,
    /// All share page frames: nobody asks for anything.
    imports: bool,
    verdict: Option<Verdict>,
    lines: Vec<Line>,
    sharing: Vec<Shared>,
    misplaced: Vec<Misplaced>,
    traffic: Vec<Traffic>,
    misses_of_unknown_lines: u64,
    misses_of_unknown_blocks: u64,
}

impl Report {
    /// Of what the components have handed in.
    pub(crate) fn of(parts: &[Option<Part>]) -> Self {
        let mut names = Names::of(parts.iter().flatten());
        Self::named(parts, &mut names)
    }

    fn named(parts: &[Option<Part>], names: &mut impl Naming) -> Self {
        let silent = (0..).zip(parts).filter(|(_, part)| part.is_none()).map(|(rank, _)| rank).collect();
        let components = parts.len();
        let parts: Vec<&Part> = parts.iter().flatten().collect();
        let (lines, sharing) = (lines::lines(&parts, names), sharing::sharing(&parts, names));
        let uncounted = |of: fn(&Uncounted) -> u64| {
            parts.iter().map(|part| of(&part.uncounted)).fold(0, u64::saturating_add)
        };
        Self {
            components,
            silent,
            imports: parts.iter().any(|part| part.imports),
            verdict: (!parts.is_empty()).then(|| verdict::verdict(&parts, &lines, &sharing)),
            misplaced: homes::misplaced(&parts, names),
            traffic: homes::traffic(&parts),
            lines,
            sharing,
            misses_of_unknown_lines: uncounted(|uncounted| uncounted.misses_of_sites),
            misses_of_unknown_blocks: uncounted(|uncounted| uncounted.misses_of_blocks),
        }
    }

    /// Writes it to a file, as JSON if its name ends so; without a file, for people to standard error.
    pub(crate) fn write(&self, file: Option<&Path>) -> std::io::Result<()> {
        match file {
            None => {
                eprint!("{self}");
                Ok(())
            }
            Some(file) if file.extension().is_some_and(|extension| extension == "json") => {
                std::fs::write(file, serde_json::to_string_pretty(self)? + "\n")
            }
            Some(file) => std::fs::write(file, self.to_string()),
        }
    }
}
