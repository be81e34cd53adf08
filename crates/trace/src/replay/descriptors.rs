//! Which open file a descriptor stood for, and when it was really closed: it lives until the last of all descriptors is gone that came of it
//! by duplication and by `fork`.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A file that was open, for as long as it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct SlotId(pub(super) u32);

#[derive(Clone, Default)]
struct Table {
    users: u32,
    open: HashMap<i32, (SlotId, bool), RandomState>,
}

/// The descriptors of all processes.
#[derive(Default)]
pub(super) struct Descriptors {
    tables: Vec<Table>,
    of_process: HashMap<u32, usize, RandomState>,
    threads: HashMap<u32, u32, RandomState>,
    by_handle: HashMap<u64, SlotId, RandomState>,
    /// Of each open file, how many descriptors there are, and its handle.
    slots: Vec<(u32, u64)>,
}

impl Descriptors {
    /// The open file that has this handle now.
    pub(super) fn find(&self, handle: u64) -> Option<SlotId> {
        self.by_handle.get(&handle).copied()
    }

    /// A file was opened, or is found to be open. Returns it, and those that were closed unseen.
    pub(super) fn open(
        &mut self,
        process: u32,
        descriptor: i32,
        handle: u64,
        until_execution: bool,
    ) -> (SlotId, Vec<SlotId>) {
        let slot = self.reserve();
        self.slots[slot.0 as usize].1 = handle;
        // The address of one that has been closed.
        let mut closed: Vec<SlotId> = self.by_handle.insert(handle, slot).into_iter().collect();
        for old in &closed {
            self.slots[old.0 as usize].0 = 0;
        }
        closed.extend(self.put(process, descriptor, slot, until_execution));
        (slot, closed)
    }

    /// A file is found to be open that nobody was seen to open. Whoever did may hold it as well, so it stays open whoever closes it, until its
    /// handle is another file's.
    pub(super) fn adopt(&mut self, process: u32, descriptor: i32, handle: u64) -> (SlotId, Vec<SlotId>) {
        let (slot, closed) = self.open(process, descriptor, handle, false);
        self.slots[slot.0 as usize].0 += 1;
        (slot, closed)
    }

    /// An open file that no descriptor stands for.
    pub(super) fn reserve(&mut self) -> SlotId {
        let slot = SlotId(
            u32::try_from(self.slots.len()).expect("files are opened fewer than four thousand million times"),
        );
        self.slots.push((0, 0));
        slot
    }

    /// Whether it is closed when another program begins was changed.
    pub(super) fn mark(&mut self, process: u32, descriptor: i32, until_execution: bool) {
        let table = self.table(process);
        if let Some((_, until)) = self.tables[table].open.get_mut(&descriptor) {
            *until = until_execution;
        }
    }

    /// Another descriptor for the same. Returns what it replaced, if that was the last of its kind.
    pub(super) fn put(
        &mut self,
        process: u32,
        descriptor: i32,
        slot: SlotId,
        until_execution: bool,
    ) -> Option<SlotId> {
        let table = self.table(process);
        let old = self.tables[table].open.insert(descriptor, (slot, until_execution));
        self.slots[slot.0 as usize].0 += 1;
        old.and_then(|(old, _)| self.release(old))
    }

    /// A descriptor was closed. Returns the file if that was the last one.
    pub(super) fn close(&mut self, process: u32, descriptor: i32) -> Option<SlotId> {
        let table = self.table(process);
        let (slot, _) = self.tables[table].open.remove(&descriptor)?;
        self.release(slot)
    }

    /// All from one to another were closed.
    pub(super) fn close_range(&mut self, process: u32, first: u64, last: u64) -> Vec<SlotId> {
        let is_in = |descriptor: i32| u64::try_from(descriptor).is_ok_and(|it| (first..=last).contains(&it));
        self.close_if(process, |descriptor, _| is_in(descriptor))
    }

    /// A process or a thread begins.
    pub(super) fn begin(&mut self, parent: u32, process: u32, shares: bool) {
        if process == parent {
            *self.threads.entry(process).or_insert(1) += 1;
            return;
        }
        self.threads.insert(process, 1);
        let of_parent = self.table(parent);
        let table = if shares {
            self.tables[of_parent].users += 1;
            of_parent
        } else {
            for (slot, _) in self.tables[of_parent].open.values() {
                self.slots[slot.0 as usize].0 += 1;
            }
            self.tables.push(Table { users: 1, ..self.tables[of_parent].clone() });
            self.tables.len() - 1
        };
        self.of_process.insert(process, table);
    }

    /// Another program begins in a process. Returns what was closed by that.
    pub(super) fn execute(&mut self, process: u32) -> Vec<SlotId> {
        self.close_if(process, |_, until_execution| until_execution)
    }

    /// A thread ends. Returns what was closed if it was the last one.
    pub(super) fn end(&mut self, process: u32) -> Vec<SlotId> {
        let threads = self.threads.entry(process).or_insert(1);
        *threads -= 1;
        if *threads > 0 {
            return Vec::new();
        }
        self.threads.remove(&process);
        let Some(table) = self.of_process.remove(&process) else { return Vec::new() };
        self.tables[table].users -= 1;
        if self.tables[table].users > 0 {
            return Vec::new();
        }
        let open = std::mem::take(&mut self.tables[table].open);
        let mut closed: Vec<SlotId> = open.into_values().filter_map(|(slot, _)| self.release(slot)).collect();
        closed.sort();
        closed
    }

    fn close_if(&mut self, process: u32, is_meant: impl Fn(i32, bool) -> bool) -> Vec<SlotId> {
        let table = self.table(process);
        let meant =
            self.tables[table].open.extract_if(|&descriptor, (_, until)| is_meant(descriptor, *until));
        let slots: Vec<SlotId> = meant.map(|(_, (slot, _))| slot).collect();
        let mut closed: Vec<SlotId> = slots.into_iter().filter_map(|slot| self.release(slot)).collect();
        closed.sort();
        closed
    }

    fn table(&mut self, process: u32) -> usize {
        *self.of_process.entry(process).or_insert_with(|| {
            self.tables.push(Table { users: 1, ..Table::default() });
            self.tables.len() - 1
        })
    }

    fn release(&mut self, slot: SlotId) -> Option<SlotId> {
        let (descriptors, handle) = &mut self.slots[slot.0 as usize];
        if *descriptors == 0 {
            return None; // closed unseen before
        }
        *descriptors -= 1;
        if *descriptors > 0 {
            return None;
        }
        if self.by_handle.get(handle) == Some(&slot) {
            self.by_handle.remove(handle);
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_closed_with_the_last_descriptor_of_all_processes() {
        let mut all = Descriptors::default();
        let (slot, closed) = all.open(1, 3, 0xa, false);
        assert!(closed.is_empty());
        assert_eq!(all.put(1, 11, slot, false), None);
        all.begin(1, 2, false);
        assert_eq!(all.close(1, 3), None);
        assert_eq!(all.close(1, 11), None);
        assert_eq!(all.close(2, 3), None);
        assert_eq!(all.find(0xa), Some(slot));
        assert_eq!(all.end(2), [slot]);
        assert_eq!(all.find(0xa), None);
    }

    #[test]
    fn execution_closes_what_is_marked_and_a_thread_s_end_closes_nothing() {
        let mut all = Descriptors::default();
        let (kept, _) = all.open(1, 3, 0xa, false);
        let (marked, _) = all.open(1, 4, 0xb, true);
        all.begin(1, 1, true);
        assert!(all.end(1).is_empty());
        assert_eq!(all.execute(1), [marked]);
        assert_eq!(all.close_range(1, 3, u64::MAX), [kept]);
        assert!(all.end(1).is_empty());
    }

    #[test]
    fn what_was_open_before_stays_open_until_its_handle_is_another_file_s() {
        let mut all = Descriptors::default();
        let (held, _) = all.adopt(1, 1, 0xa);
        assert_eq!(all.close(1, 1), None);
        assert_eq!(all.find(0xa), Some(held));
        assert_eq!(all.open(1, 3, 0xa, false).1, [held]);
    }

    #[test]
    fn a_handle_that_comes_again_belongs_to_another_file() {
        let mut all = Descriptors::default();
        let (old, _) = all.open(1, 3, 0xa, false);
        let (new, closed) = all.open(1, 4, 0xa, false);
        assert_eq!((closed, all.find(0xa)), (vec![old], Some(new)));
        assert_eq!(all.close(1, 3), None, "it is closed by now");
        assert_eq!(all.close(1, 4), Some(new));
    }
}
