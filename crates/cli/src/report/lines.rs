//! Misses by line of source.

use std::collections::BTreeMap;

use comb_region::report::{Kind, Part};
use serde::Serialize;

use super::names::{Naming, Place};

/// A line of source, and what its misses have cost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) waited_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) upgrades: u64,
    /// First touches that had to ask where memory lives.
    pub(crate) places: u64,
    /// What it misses most often.
    pub(crate) variable: String,
}

impl Line {
    pub(crate) fn misses(&self) -> u64 {
        self.reads + self.writes + self.upgrades + self.places
    }
}

/// All lines that have missed, the costliest first.
pub(crate) fn lines(parts: &[&Part], names: &mut impl Naming) -> Vec<Line> {
    let variables = variables(parts, names);
    let mut lines: BTreeMap<Place, Line> = BTreeMap::new();
    for part in parts {
        for site in &part.sites {
            let place = names.place(part.rank, site.instruction);
            let line = lines.entry(place.clone()).or_insert_with(|| {
                let variable = variables.get(&place).cloned();
                let variable = variable.unwrap_or_else(|| names.variable(site.address).0);
                Line { place, variable, ..Line::default() }
            });
            *match site.kind {
                Kind::Read => &mut line.reads,
                Kind::Write => &mut line.writes,
                Kind::Upgrade => &mut line.upgrades,
                Kind::Place => &mut line.places,
            } += site.count;
            line.waited_ns = line.waited_ns.saturating_add(site.waited_ns);
            line.longest_ns = line.longest_ns.max(site.longest_ns);
        }
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.waited_ns));
    lines
}

/// What each line misses most often.
fn variables(parts: &[&Part], names: &mut impl Naming) -> BTreeMap<Place, String> {
    let mut counts: BTreeMap<Place, BTreeMap<String, u64>> = BTreeMap::new();
    for part in parts {
        for block in &part.blocks {
            for touch in &block.touches {
                let place = names.place(part.rank, touch.instruction);
                let (variable, _) = names.variable(block.start.saturating_add(u64::from(touch.offset)));
                *counts.entry(place).or_default().entry(variable).or_default() += touch.count;
            }
        }
    }
    let most = |counts: BTreeMap<String, u64>| counts.into_iter().max_by_key(|(_, count)| *count);
    counts.into_iter().filter_map(|(place, counts)| Some((place, most(counts)?.0))).collect()
}

#[cfg(test)]
mod tests {
    use comb_region::report::Site;

    use super::super::scene::{Plain, block, part};
    use super::*;

    #[test]
    fn a_lines_misses_are_those_of_its_instructions_in_all_components() {
        let site = |instruction, kind, count, waited_ns| Site {
            instruction,
            kind,
            count,
            waited_ns,
            longest_ns: waited_ns / count,
            address: 0x2000,
        };
        let mut first = part(0);
        first.sites = vec![
            site(100, Kind::Read, 2, 2000),
            site(101, Kind::Upgrade, 1, 500),
            site(200, Kind::Read, 1, 9000),
        ];
        first.blocks = vec![block(0x3000, &[], &[0], 100, 2)];
        let mut second = part(1);
        second.sites = vec![site(101, Kind::Write, 4, 4000), site(300, Kind::Place, 1, 1)];
        let lines = lines(&[&first, &second], &mut Plain);
        let told: Vec<_> =
            lines.iter().map(|line| (&line.place.line[..], line.waited_ns, line.misses())).collect();
        assert_eq!(told, [("a.c:2", 9000, 1), ("a.c:1", 6500, 7), ("a.c:3", 1, 1)]);
        assert_eq!((lines[1].reads, lines[1].writes, lines[1].upgrades), (2, 4, 1));
        assert_eq!(lines[1].longest_ns, 1000);
        assert_eq!((&lines[1].variable[..], &lines[0].variable[..]), ("v3", "v2"), "most often, or first");
    }
}
