//! Which descriptors of which process stand for which session.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use foldhash::HashMap;

#[derive(Clone, Copy)]
struct Held {
    instance: u64,
    closes_on_execute: bool,
}

/// A table of descriptors, and how many processes use it: each has its own, unless it was made to share its maker's.
#[derive(Default)]
struct Table {
    held: BTreeMap<i32, Held>,
    users: u32,
}

/// Sessions that have one more descriptor now, or one less. One that stands in a list twice has two.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) gained: Vec<u64>,
    pub(super) dropped: Vec<u64>,
}

/// The tables of all processes.
#[derive(Default)]
pub(super) struct Descriptors {
    tables: HashMap<u64, Table>,
    of_process: HashMap<u32, u64>,
    last_table: u64,
}

impl Descriptors {
    fn add_table(&mut self, process: u32, held: BTreeMap<i32, Held>) {
        self.last_table += 1;
        self.tables.insert(self.last_table, Table { held, users: 1 });
        self.of_process.insert(process, self.last_table);
    }

    fn table(&mut self, process: u32) -> &mut BTreeMap<i32, Held> {
        if !self.of_process.contains_key(&process) {
            self.add_table(process, BTreeMap::new());
        }
        let table = self.of_process.get(&process).and_then(|number| self.tables.get_mut(number));
        &mut table.expect("a process's table is there while it is used").held
    }

    /// The session that a descriptor stands for.
    pub(super) fn get(&mut self, process: u32, descriptor: i32) -> Option<u64> {
        self.table(process).get(&descriptor).map(|held| held.instance)
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

    /// A new process has what its maker has, or shares it. It has nothing so far.
    pub(super) fn fork(&mut self, parent: u32, child: u32, is_shared: bool) -> Change {
        let held = self.table(parent).clone();
        if is_shared {
            let number = self.of_process[&parent];
            self.tables.entry(number).and_modify(|table| table.users += 1);
            self.of_process.insert(child, number);
            return Change::default();
        }
        let gained = held.values().map(|held| held.instance).collect();
        self.add_table(child, held);
        Change { gained, dropped: Vec::new() }
    }

    /// The process has a table of its own from now on, even if it shared one.
    pub(super) fn unshare(&mut self, process: u32) -> Change {
        let Some(table) = self.of_process.get(&process).and_then(|number| self.tables.get_mut(number)) else {
            return Change::default();
        };
        if table.users == 1 {
            return Change::default();
        }
        table.users -= 1;
        let held = table.held.clone();
        let gained = held.values().map(|held| held.instance).collect();
        self.add_table(process, held);
        Change { gained, dropped: Vec::new() }
    }

    /// Another program takes the process over: with a table of its own, and without what is closed by that.
    pub(super) fn execute(&mut self, process: u32) -> Change {
        let mut change = self.unshare(process);
        self.table(process).retain(|_, held| {
            if held.closes_on_execute {
                change.dropped.push(held.instance);
            }
            !held.closes_on_execute
        });
        change
    }

    /// The process is no more. What it had is closed, unless others use the same table.
    pub(super) fn end(&mut self, process: u32) -> Vec<u64> {
        let Some(number) = self.of_process.remove(&process) else { return Vec::new() };
        let Some(table) = self.tables.get_mut(&number) else { return Vec::new() };
        table.users -= 1;
        if table.users > 0 {
            return Vec::new();
        }
        let held = self.tables.remove(&number).unwrap_or_default().held;
        held.into_values().map(|held| held.instance).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_table_outlives_whoever_made_it() {
        let mut descriptors = Descriptors::default();
        descriptors.set(1, 3, 100, false);
        assert_eq!(descriptors.fork(1, 2, true), Change::default());
        assert!(descriptors.end(1).is_empty());
        assert_eq!(descriptors.get(2, 3), Some(100));
        assert_eq!(descriptors.end(2), [100]);
    }

    #[test]
    fn an_execution_ends_the_sharing_and_closes_what_it_should_in_one_of_both() {
        let mut descriptors = Descriptors::default();
        descriptors.set(1, 3, 100, false);
        descriptors.set(1, 4, 101, true);
        descriptors.fork(1, 2, true);
        let change = descriptors.execute(2);
        assert_eq!((change.gained, change.dropped), (vec![100, 101], vec![101]));
        assert_eq!((descriptors.get(1, 4), descriptors.get(2, 4)), (Some(101), None));
        assert_eq!(descriptors.end(1), [100, 101]);
        assert_eq!(descriptors.end(2), [100]);
    }
}
