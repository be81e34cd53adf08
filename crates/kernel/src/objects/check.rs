//! What must hold of the tables between calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::cache::Objects;
use super::ids::{KernelId, SpaceId, ThreadId};
use super::kernel::Locks;
use super::mappings::Mapping;
use super::record::{FrameKey, Kind};
use super::writeback::Writeback;

impl<S> Objects<S> {
    /// Panics if something does not hold. It looks at everything.
    pub(super) fn check(&self) {
        for (_, space) in self.spaces.iter() {
            assert!(self.kernels.get(space.kernel).is_some(), "a space has outlived its kernel");
        }
        for (_, thread) in self.threads.iter() {
            assert!(self.spaces.get(thread.space).is_some(), "a thread has outlived its space");
        }
        self.check_records();
        self.check_locks();
    }

    fn check_records(&self) {
        let mut pages = BTreeSet::new();
        let mut mappings_of = BTreeMap::<u16, u32>::new();
        let mut free = 0;
        for place in 0..self.map.size() {
            let record = self.map.at(place);
            if record.kind() == Kind::Free {
                free += 1;
                continue;
            }
            let is_here = |(other, _): (u32, _)| other == place;
            assert!(self.map.dependents(record.frame_key()).any(is_here), "a record is in no chain");
            match record.kind() {
                Kind::Free => {}
                Kind::Mapping => {
                    assert!(pages.insert((record.space(), record.page())), "a page has two mappings");
                    assert_eq!(self.map.find(record.space(), record.page()), Some(place));
                    assert!(self.spaces.get(record.space()).is_some(), "a mapping has outlived its space");
                    assert!(u64::from(record.frame()) < self.frames);
                    assert!(!record.is_modified(), "only what goes is known to be modified");
                    *mappings_of.entry(record.space()).or_default() += 1;
                    let more =
                        [Kind::Signal, Kind::Copy].map(|kind| self.map.find_more(kind, place).is_some());
                    assert_eq!(record.has_more(), more.contains(&true));
                }
                kind @ (Kind::Signal | Kind::Copy) => {
                    let mapping = record.of_mapping(place);
                    assert!(self.map.at(mapping).is_mapping(), "there is more of a mapping that is gone");
                    assert_eq!(self.map.find_more(kind, mapping), Some(place));
                    if kind == Kind::Signal {
                        let thread = self.threads.get(record.thread());
                        let thread = thread.expect("a signal has outlived its thread");
                        let owner = self.spaces.at(self.map.at(mapping).space()).kernel;
                        assert_eq!(self.spaces.at(thread.space).kernel, owner, "it signals another's thread");
                    }
                }
            }
        }
        self.map.check(free);
        for (slot, space) in self.spaces.iter() {
            assert_eq!(space.mappings, mappings_of.get(&slot).copied().unwrap_or(0));
        }
        for (_, mapping) in self.loaded_mappings() {
            let kernel = self.find_kernel(self.space(mapping.space).expect("it is loaded").kernel);
            let groups = &self.kernels.at(kernel.expect("it is loaded")).descriptor.groups;
            let wanted = if mapping.writable { super::Access::ReadWrite } else { super::Access::Read };
            assert!(groups.of_frame(mapping.frame) >= wanted, "a right has outlived its grant");
            assert!(mapping.copy_of.is_none_or(|source| groups.of_frame(source) >= super::Access::Read));
        }
    }

    fn check_locks(&self) {
        let mut locked = BTreeMap::<u16, Locks>::new();
        for (slot, _) in self.kernels.iter().filter(|(slot, _)| self.kernels.is_locked(*slot)) {
            locked.entry(0).or_default().kernels += u32::from(slot != 0);
        }
        for (_, space) in self.spaces.iter().filter(|(slot, _)| self.spaces.is_locked(*slot)) {
            locked.entry(space.kernel).or_default().spaces += 1;
        }
        for (_, thread) in self.threads.iter().filter(|(slot, _)| self.threads.is_locked(*slot)) {
            locked.entry(self.spaces.at(thread.space).kernel).or_default().threads += 1;
        }
        for (kernel, mapping) in self.loaded_mappings().filter(|(_, mapping)| mapping.locked) {
            let records = 1 + u32::from(mapping.signal.is_some()) + u32::from(mapping.copy_of.is_some());
            locked.entry(kernel).or_default().mappings += records;
        }
        for (slot, kernel) in self.kernels.iter() {
            let has = locked.get(&slot).copied().unwrap_or_default();
            assert_eq!(kernel.locked, has, "locks are miscounted");
            let limits = kernel.descriptor.locks;
            assert!(has.kernels <= limits.kernels && has.spaces <= limits.spaces);
            assert!(has.threads <= limits.threads && has.mappings <= limits.mappings);
        }
        assert!(self.limits_fit(Locks::default(), None).is_ok(), "all of a table could be locked");
    }

    /// All mappings, by the slots of their kernels.
    pub(super) fn loaded_mappings(&self) -> impl Iterator<Item = (u16, Mapping)> {
        (0..self.map.size()).filter(|place| self.map.at(*place).is_mapping()).map(|place| {
            let record = self.map.at(place);
            let space = SpaceId(self.spaces.key(record.space()));
            let mapping = self.mapping(space, record.page()).expect("it is loaded");
            assert!(self.map.dependents(FrameKey::frame(record.frame())).any(|(other, _)| other == place));
            (self.spaces.at(record.space()).kernel, mapping)
        })
    }

    pub(super) fn loaded_kernels(&self) -> Vec<KernelId> {
        self.kernels.iter().map(|(slot, _)| KernelId(self.kernels.key(slot))).collect()
    }

    pub(super) fn loaded_spaces(&self) -> Vec<SpaceId> {
        self.spaces.iter().map(|(slot, _)| SpaceId(self.spaces.key(slot))).collect()
    }

    pub(super) fn loaded_threads(&self) -> Vec<ThreadId> {
        self.threads.iter().map(|(slot, _)| ThreadId(self.threads.key(slot))).collect()
    }

    /// What waits for each kernel.
    pub(super) fn queues(&self) -> BTreeMap<KernelId, VecDeque<Writeback<S>>>
    where
        S: Clone,
    {
        self.kernels
            .iter()
            .map(|(slot, kernel)| (KernelId(self.kernels.key(slot)), kernel.waiting.clone()))
            .collect()
    }

    /// The same state with all numbers left out that only grow, and on which nothing depends: two that differ in these alone have the same
    /// future.
    pub(super) fn without_versions(&self) -> Self
    where
        S: Clone,
    {
        let mut same = self.clone();
        same.kernels.forget_versions();
        same.spaces.forget_versions();
        same.threads.forget_versions();
        same.map.forget_version();
        same
    }
}
