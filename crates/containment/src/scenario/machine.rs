//! The machine below the cells: what the kernel knows of its processes, memory that all can read, and the firewalls of each.

use std::collections::{BTreeMap, BTreeSet};

use comb_types::CellId;

use super::Life;
use crate::rights::Rights;

/// Each cell is home to so many pages.
pub(super) const PAGES: u64 = 16;

/// What cells of one machine have in common.
#[derive(Debug, Default)]
pub(super) struct Machine {
    processes: BTreeMap<CellId, Process>,
}

#[derive(Debug)]
struct Process {
    /// For others to watch.
    tick: u64,
    /// Whether its own structures are nonsense.
    is_corrupt: bool,
    /// Who may store to its pages; a holder is a cell's number.
    firewall: Rights,
    /// What stands in its pages that a failed cell has stored.
    wild: BTreeMap<u64, Life>,
}

impl Machine {
    pub(super) fn starts(&mut self, cell: CellId) {
        let process = Process { tick: 0, is_corrupt: false, firewall: Rights::new(), wild: BTreeMap::new() };
        self.processes.insert(cell, process);
    }

    /// Its memory goes with it.
    pub(super) fn ends(&mut self, cell: CellId) {
        self.processes.remove(&cell);
    }

    /// What no signal finds does not exist.
    pub(super) fn is_gone(&self, cell: CellId) -> bool {
        !self.processes.contains_key(&cell)
    }

    pub(super) fn ticks(&mut self, cell: CellId) {
        self.processes.get_mut(&cell).expect("it runs").tick += 1;
    }

    /// None, of whoever is gone.
    pub(super) fn tick(&self, cell: CellId) -> Option<u64> {
        self.processes.get(&cell).map(|process| process.tick)
    }

    pub(super) fn becomes_corrupt(&mut self, cell: CellId) {
        self.processes.get_mut(&cell).expect("it runs").is_corrupt = true;
    }

    pub(super) fn is_corrupt(&self, cell: CellId) -> bool {
        self.processes.get(&cell).is_some_and(|process| process.is_corrupt)
    }

    pub(super) fn firewall(&mut self, home: CellId) -> &mut Rights {
        &mut self.processes.get_mut(&home).expect("it runs").firewall
    }

    /// A cell that has failed stores nonsense to all that it may store to.
    pub(super) fn stores_wildly(&mut self, by: Life) {
        for process in self.processes.values_mut() {
            let writable = process.firewall.of(by.0.0);
            process.wild.extend(writable.into_iter().flatten().map(|page| (page, by)));
        }
    }

    /// Who has stored nonsense to a page, if somebody has.
    pub(super) fn loads(&self, home: CellId, page: u64) -> Option<Life> {
        self.processes.get(&home)?.wild.get(&page).copied()
    }

    pub(super) fn discards(&mut self, home: CellId, page: u64) {
        self.processes.get_mut(&home).expect("it runs").wild.remove(&page);
    }

    /// Whose nonsense stands in the pages of a home.
    pub(super) fn wild(&self, home: CellId) -> BTreeSet<Life> {
        let process = self.processes.get(&home);
        process.into_iter().flat_map(|process| process.wild.values().copied()).collect()
    }
}
