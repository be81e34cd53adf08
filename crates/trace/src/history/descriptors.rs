//! Which descriptors of which process stand for which session.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use foldhash::HashMap;

#[derive(Clone, Copy)]
struct Held {
    instance: u64,
    closes_on_execute: bool,
}

/// The tables of all processes. A process that was made to share its maker's has none of its own.
#[derive(Default)]
pub(super) struct Descriptors {
    tables: HashMap<u32, BTreeMap<i32, Held>>,
    shares: HashMap<u32, u32>,
}

impl Descriptors {
    fn owner(&self, process: u32) -> u32 {
        self.shares.get(&process).copied().unwrap_or(process)
    }

    fn table(&mut self, process: u32) -> &mut BTreeMap<i32, Held> {
        let owner = self.owner(process);
        self.tables.entry(owner).or_default()
    }

    /// A descriptor stands for a session; the one that it stood for before, if it did.
    pub(super) fn set(
        &mut self,
        process: u32,
        descriptor: i32,
        instance: u64,
        closes_on_execute: bool,
    ) -> Option<u64> {
        self.table(process).insert(descriptor, Held { instance, closes_on_execute }).map(|held| held.instance)
    }

    /// It no longer does; the session, if there was one.
    pub(super) fn remove(&mut self, process: u32, descriptor: i32) -> Option<u64> {
        self.table(process).remove(&descriptor).map(|held| held.instance)
    }

    /// None in the range does.
    pub(super) fn remove_range(&mut self, process: u32, range: RangeInclusive<i32>) -> Vec<u64> {
        let table = self.table(process);
        let found: Vec<i32> = if range.is_empty() {
            Vec::new()
        } else {
            table.range(range).map(|(&number, _)| number).collect()
        };
        found.iter().filter_map(|number| table.remove(number)).map(|held| held.instance).collect()
    }

    /// Whether it is closed by an execution.
    pub(super) fn close_on_execute(&mut self, process: u32, descriptor: i32, closes: bool) {
        if let Some(held) = self.table(process).get_mut(&descriptor) {
            held.closes_on_execute = closes;
        }
    }

    /// All in the range are.
    pub(super) fn close_range_on_execute(&mut self, process: u32, range: RangeInclusive<i32>) {
        if !range.is_empty() {
            self.table(process).range_mut(range).for_each(|(_, held)| held.closes_on_execute = true);
        }
    }

    /// A new process has what its maker has, or shares it. The sessions that have one more descriptor now.
    pub(super) fn fork(&mut self, parent: u32, child: u32, is_shared: bool) -> Vec<u64> {
        self.tables.remove(&child);
        self.shares.remove(&child);
        let owner = self.owner(parent);
        if is_shared {
            self.shares.insert(child, owner);
            return Vec::new();
        }
        let Some(table) = self.tables.get(&owner).filter(|table| !table.is_empty()).cloned() else {
            return Vec::new();
        };
        let inherited = table.values().map(|held| held.instance).collect();
        self.tables.insert(child, table);
        inherited
    }

    /// Another program takes the process over: with a table of its own, and without what is closed by that.
    pub(super) fn execute(&mut self, process: u32) -> Vec<u64> {
        if let Some(owner) = self.shares.remove(&process) {
            let table = self.tables.get(&owner).cloned().unwrap_or_default();
            // It never had descriptors of its own that could be counted: those that it keeps are its maker's as well.
            self.tables
                .insert(process, table.into_iter().filter(|(_, held)| !held.closes_on_execute).collect());
            return Vec::new();
        }
        let table = self.table(process);
        let closed: Vec<i32> =
            table.iter().filter(|(_, held)| held.closes_on_execute).map(|(&number, _)| number).collect();
        closed.iter().filter_map(|number| table.remove(number)).map(|held| held.instance).collect()
    }

    /// The process is no more.
    pub(super) fn end(&mut self, process: u32) -> Vec<u64> {
        if self.shares.remove(&process).is_some() {
            return Vec::new();
        }
        self.tables.remove(&process).unwrap_or_default().into_values().map(|held| held.instance).collect()
    }
}
