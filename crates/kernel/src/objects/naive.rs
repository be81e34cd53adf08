//! What should be loaded, in plain maps: no slots, no chains, no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::kernel::check_shares;
use super::world::{Op, State};
use super::*;

type Page = (SpaceId, u64);

#[derive(Clone, PartialEq, Debug)]
pub(super) struct NaiveKernel {
    pub(super) tag: Tag,
    pub(super) descriptor: KernelDescriptor,
    pub(super) locked: bool,
}

/// What went. Of a mapping, what it was.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Gone {
    pub(super) kernels: BTreeSet<KernelId>,
    pub(super) spaces: BTreeSet<SpaceId>,
    pub(super) threads: BTreeSet<ThreadId>,
    pub(super) mappings: BTreeSet<Page>,
    pub(super) is_redirection: bool,
}

impl Gone {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.kernels.extend(other.kernels);
        self.spaces.extend(other.spaces);
        self.threads.extend(other.threads);
        self.mappings.extend(other.mappings);
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Naive {
    sizes: Sizes,
    pub(super) frames: u64,
    pub(super) first: KernelId,
    pub(super) kernels: BTreeMap<KernelId, NaiveKernel>,
    pub(super) spaces: BTreeMap<SpaceId, (KernelId, SpaceLoad)>,
    /// With its priority, which may have been changed.
    pub(super) threads: BTreeMap<ThreadId, (u8, ThreadLoad)>,
    pub(super) mappings: BTreeMap<Page, Mapping>,
    pub(super) waiting: BTreeMap<KernelId, VecDeque<Writeback<State>>>,
    // What the last call loaded.
    pub(super) new_kernel: Option<(KernelId, Tag, KernelDescriptor, bool)>,
    pub(super) new_space: Option<(SpaceId, KernelId, SpaceLoad)>,
    pub(super) new_thread: Option<(ThreadId, ThreadLoad)>,
    pub(super) displaced: Option<Mapping>,
}

fn records(mapping: &Mapping) -> u32 {
    1 + u32::from(mapping.signal.is_some()) + u32::from(mapping.copy_of.is_some())
}

fn access(mapping: &Mapping) -> Access {
    if mapping.writable { Access::ReadWrite } else { Access::Read }
}

impl Naive {
    pub(super) fn new(sizes: Sizes, frames: u64, first: KernelId, descriptor: KernelDescriptor) -> Self {
        let kernel = NaiveKernel { tag: Tag(0), descriptor, locked: true };
        Self {
            sizes,
            frames,
            first,
            kernels: [(first, kernel)].into(),
            spaces: BTreeMap::new(),
            threads: BTreeMap::new(),
            mappings: BTreeMap::new(),
            waiting: BTreeMap::new(),
            new_kernel: None,
            new_space: None,
            new_thread: None,
            displaced: None,
        }
    }

    /// Whether a call is to be refused, and why.
    pub(super) fn expected(&self, op: &Op) -> Result<(), Refused> {
        match op {
            Op::LoadKernel { caller, descriptor, locked, .. } => {
                self.is_first(*caller)?;
                self.is_not_behind(*caller)?;
                if descriptor.groups.count() != self.frames.div_ceil(128) {
                    return Err(DescriptorError::Groups(descriptor.groups.count()).into());
                }
                check_shares(&descriptor.processor_shares)?;
                self.fits(descriptor.locks, None)?;
                self.may_lock(*caller, *locked, |locks| locks.kernels, 1, 0)
            }
            Op::LoadSpace(caller, load) => {
                self.is_kernel(*caller)?;
                self.is_not_behind(*caller)?;
                self.may_lock(*caller, load.locked, |locks| locks.spaces, 1, 0)
            }
            Op::LoadThread(caller, load) => {
                self.is_kernel(*caller)?;
                self.is_not_behind(*caller)?;
                self.is_own_space(*caller, load.space)?;
                self.is_priority(*caller, load.priority)?;
                self.may_lock(*caller, load.locked, |locks| locks.threads, 1, 0)
            }
            Op::LoadMapping(caller, mapping) => {
                self.is_kernel(*caller)?;
                self.is_not_behind(*caller)?;
                self.is_own_space(*caller, mapping.space)?;
                is_page(mapping.page)?;
                self.is_frame(*caller, mapping.frame, access(mapping))?;
                if let Some(source) = mapping.copy_of {
                    self.is_frame(*caller, source, Access::Read)?;
                }
                if let Some(thread) = mapping.signal {
                    self.is_own_thread(*caller, thread)?;
                }
                let old = self.mappings.get(&(mapping.space, mapping.page)).filter(|old| old.locked);
                let (of, less) = (|locks: &Locks| locks.mappings, old.map_or(0, records));
                self.may_lock(*caller, mapping.locked, of, records(mapping), less)
            }
            Op::UnloadKernel(caller, kernel)
            | Op::SetMaximumPriority(caller, kernel, _)
            | Op::SetAccess { caller, kernel, .. } => {
                self.is_first(*caller)?;
                self.is_kernel(*kernel)?;
                if *kernel == self.first {
                    return Err(Refused::IsFirst);
                }
                match op {
                    Op::SetAccess { group, .. } if *group >= self.frames.div_ceil(128) => {
                        Err(Refused::NoGroup(group.saturating_add(1)))
                    }
                    _ => Ok(()),
                }
            }
            Op::UnloadGroup(caller, group) => {
                self.is_first(*caller)?;
                if u64::from(*group) < self.frames.div_ceil(128) { Ok(()) } else { Err(Refused::NoGroups) }
            }
            Op::UnloadSpace(caller, space) => {
                self.is_kernel(*caller)?;
                self.is_own_space(*caller, *space)
            }
            Op::UnloadThread(caller, thread) => {
                self.is_kernel(*caller)?;
                self.is_own_thread(*caller, *thread)
            }
            Op::UnloadMappings { caller, space, first_page, pages } => {
                self.is_kernel(*caller)?;
                self.is_own_space(*caller, *space)?;
                let end = u128::from(*first_page) + u128::from(*pages);
                let refused = Refused::NoPage(first_page.saturating_add(*pages));
                if end > u128::from(MAXIMUM_PAGES) { Err(refused) } else { Ok(()) }
            }
            Op::SetPriority(caller, thread, priority) => {
                self.is_kernel(*caller)?;
                self.is_own_thread(*caller, *thread)?;
                self.is_priority(*caller, *priority)
            }
            Op::Redirect(caller, space, page, thread) => {
                self.is_kernel(*caller)?;
                self.is_own_space(*caller, *space)?;
                let mapping = self.is_mapped(*space, *page)?;
                self.is_own_thread(*caller, *thread)?;
                let no_signal = Refused::NoSignal { space: *space, page: *page };
                mapping.signal.map(drop).ok_or(no_signal)
            }
            Op::Copied(space, page) => self.is_mapped(*space, *page).map(drop),
            Op::Take(kernel) => self.is_kernel(*kernel),
            Op::Write(..) | Op::TouchThread(_) | Op::TouchMapping(..) => Ok(()),
        }
    }

    /// Whether limits of locks fit says the kernel that would go, and which that is only the tables know.
    pub(super) fn depends_on_victim(&self, op: &Op) -> bool {
        let Op::LoadKernel { descriptor, .. } = op else { return false };
        let is_full = self.kernels.len() == self.sizes.kernels as usize;
        let victims = self.kernels.iter().filter(|(_, kernel)| !kernel.locked);
        let fits: BTreeSet<bool> =
            victims.map(|(id, _)| self.fits(descriptor.locks, Some(*id)).is_ok()).collect();
        is_full && fits.contains(&true)
    }

    fn is_kernel(&self, kernel: KernelId) -> Result<(), Refused> {
        if self.kernels.contains_key(&kernel) { Ok(()) } else { Err(Refused::StaleKernel(kernel)) }
    }

    fn is_first(&self, kernel: KernelId) -> Result<(), Refused> {
        self.is_kernel(kernel)?;
        if kernel == self.first { Ok(()) } else { Err(Refused::NotFirst) }
    }

    fn is_not_behind(&self, kernel: KernelId) -> Result<(), Refused> {
        let waiting = self.waiting.get(&kernel).map_or(0, VecDeque::len);
        if waiting > self.sizes.writebacks as usize { Err(Refused::Behind { waiting }) } else { Ok(()) }
    }

    fn is_own_space(&self, kernel: KernelId, space: SpaceId) -> Result<(), Refused> {
        match self.spaces.get(&space) {
            None => Err(Refused::StaleSpace(space)),
            Some((owner, _)) if *owner != kernel => Err(Refused::ForeignSpace(space)),
            Some(_) => Ok(()),
        }
    }

    fn is_own_thread(&self, kernel: KernelId, thread: ThreadId) -> Result<(), Refused> {
        match self.threads.get(&thread) {
            None => Err(Refused::StaleThread(thread)),
            Some((_, load)) if self.spaces[&load.space].0 != kernel => Err(Refused::ForeignThread(thread)),
            Some(_) => Ok(()),
        }
    }

    fn is_mapped(&self, space: SpaceId, page: u64) -> Result<&Mapping, Refused> {
        if !self.spaces.contains_key(&space) {
            return Err(Refused::StaleSpace(space));
        }
        is_page(page)?;
        self.mappings.get(&(space, page)).ok_or(Refused::NotMapped { space, page })
    }

    fn is_frame(&self, kernel: KernelId, frame: u64, wanted: Access) -> Result<(), Refused> {
        if frame >= self.frames {
            return Err(Refused::NoFrame(frame));
        }
        let has = self.kernels[&kernel].descriptor.groups.of_frame(frame);
        if has >= wanted { Ok(()) } else { Err(Refused::NoAccess { frame, wanted }) }
    }

    fn is_priority(&self, kernel: KernelId, asked: u8) -> Result<(), Refused> {
        let maximum = self.kernels[&kernel].descriptor.maximum_priority;
        if asked > maximum { Err(Refused::Priority { asked, maximum }) } else { Ok(()) }
    }

    fn may_lock(
        &self,
        kernel: KernelId,
        locked: bool,
        of: fn(&Locks) -> u32,
        more: u32,
        less: u32,
    ) -> Result<(), Refused> {
        let owned = |space: &SpaceId| self.spaces[space].0 == kernel;
        let count = |number: usize| u32::try_from(number).expect("few");
        let has = Locks {
            kernels: count(self.kernels.values().filter(|kernel| kernel.locked).count() - 1),
            spaces: count(self.spaces.iter().filter(|(id, (_, load))| owned(id) && load.locked).count()),
            threads: count(
                self.threads.values().filter(|(_, load)| owned(&load.space) && load.locked).count(),
            ),
            mappings: self
                .mappings
                .values()
                .filter(|mapping| owned(&mapping.space) && mapping.locked)
                .map(records)
                .sum(),
        };
        let limit = of(&self.kernels[&kernel].descriptor.locks);
        // One that takes fewer than it had is never refused.
        let takes = more.saturating_sub(less);
        if locked && of(&has) + takes > limit { Err(Refused::LockLimit) } else { Ok(()) }
    }

    fn fits(&self, locks: Locks, without: Option<KernelId>) -> Result<(), Refused> {
        let kernels = self.kernels.iter().filter(|(id, _)| Some(**id) != without);
        let all: Vec<Locks> = kernels.map(|(_, kernel)| kernel.descriptor.locks).chain([locks]).collect();
        let sum = |of: fn(&Locks) -> u32| all.iter().map(|locks| u64::from(of(locks))).sum::<u64>();
        let fit = sum(|locks| locks.kernels) + 1 < u64::from(self.sizes.kernels)
            && sum(|locks| locks.spaces) < u64::from(self.sizes.spaces)
            && sum(|locks| locks.threads) < u64::from(self.sizes.threads)
            && sum(|locks| locks.mappings) + 3 <= u64::from(self.sizes.mappings);
        if fit { Ok(()) } else { Err(Refused::TooManyLocks) }
    }

    pub(super) fn is_space_held(&self, space: SpaceId) -> bool {
        let (kernel, load) = &self.spaces[&space];
        load.locked && self.kernels[kernel].locked
    }

    pub(super) fn is_thread_held(&self, thread: ThreadId) -> bool {
        let (_, load) = &self.threads[&thread];
        load.locked && self.is_space_held(load.space)
    }

    /// Whether a mapping cannot be replaced: it, and all that it depends on, is locked.
    pub(super) fn is_held(&self, key: &Page) -> bool {
        let is_held = |mapping: &Mapping| {
            mapping.locked
                && self.is_space_held(mapping.space)
                && mapping.signal.is_none_or(|thread| self.is_thread_held(thread))
        };
        let mapping = &self.mappings[key];
        let mut receivers =
            self.mappings.values().filter(|other| other.frame == mapping.frame && other.signal.is_some());
        is_held(mapping) && (!mapping.writable || receivers.all(is_held))
    }

    /// What goes when a mapping does.
    pub(super) fn closure_of_mapping(&self, key: Page) -> BTreeSet<Page> {
        let mapping = &self.mappings[&key];
        let mut gone = BTreeSet::from([key]);
        if mapping.signal.is_some() {
            let senders =
                self.mappings.iter().filter(|(_, other)| other.frame == mapping.frame && other.writable);
            gone.extend(senders.map(|(key, _)| *key));
        }
        gone
    }

    /// What goes when these do.
    pub(super) fn closure_of_all(&self, roots: &Gone) -> Gone {
        let mut gone = roots.clone();
        let spaces = self.spaces.iter().filter(|(_, (kernel, _))| roots.kernels.contains(kernel));
        gone.spaces.extend(spaces.map(|(id, _)| *id));
        let threads = self.threads.iter().filter(|(_, (_, load))| gone.spaces.contains(&load.space));
        gone.threads.extend(threads.map(|(id, _)| *id));
        let goes = |mapping: &Mapping| {
            gone.spaces.contains(&mapping.space)
                || mapping.signal.is_some_and(|thread| gone.threads.contains(&thread))
                || roots.mappings.contains(&(mapping.space, mapping.page))
        };
        let mappings: Vec<Page> =
            self.mappings.iter().filter(|(_, mapping)| goes(mapping)).map(|(key, _)| *key).collect();
        gone.mappings.extend(mappings.into_iter().flat_map(|key| self.closure_of_mapping(key)));
        gone
    }

    /// What a call takes away because it says so.
    pub(super) fn unloaded_by(&self, op: &Op) -> Gone {
        let mut roots = Gone::default();
        match op {
            Op::UnloadKernel(_, kernel) => {
                roots.kernels.insert(*kernel);
            }
            Op::UnloadSpace(_, space) => {
                roots.spaces.insert(*space);
            }
            Op::UnloadThread(_, thread) => {
                roots.threads.insert(*thread);
            }
            Op::UnloadMappings { space, first_page, pages, .. } => {
                let range = (*space, *first_page)..(*space, first_page + pages);
                roots.mappings.extend(self.mappings.range(range).map(|(key, _)| *key));
            }
            Op::LoadMapping(_, mapping) => {
                let key = (mapping.space, mapping.page);
                if let Some(old) = self.mappings.get(&key) {
                    roots.mappings.insert(key);
                    if old.frame == mapping.frame && mapping.signal.is_some() {
                        return Gone { is_redirection: old.signal.is_some(), ..roots };
                    }
                }
            }
            Op::UnloadGroup(_, group) => {
                let is_in = |frame: u64| frame / 128 == u64::from(*group);
                let of_group = self
                    .mappings
                    .values()
                    .filter(|mapping| is_in(mapping.frame) || mapping.copy_of.is_some_and(is_in));
                roots.mappings.extend(of_group.map(|mapping| (mapping.space, mapping.page)));
            }
            Op::SetAccess { kernel, group, access: now, .. } => {
                let forbidden = self.mappings.values().filter(|mapping| {
                    let is_in = |frame: u64| frame / 128 == *group;
                    self.spaces[&mapping.space].0 == *kernel
                        && (is_in(mapping.frame) && access(mapping) > *now
                            || mapping.copy_of.is_some_and(is_in) && Access::Read > *now)
                });
                roots.mappings.extend(forbidden.map(|mapping| (mapping.space, mapping.page)));
            }
            _ => {}
        }
        self.closure_of_all(&roots)
    }

    /// Whether there is room for what a call loads.
    pub(super) fn has_room(&self, op: &Op) -> bool {
        match op {
            Op::LoadKernel { .. } => self.kernels.len() < self.sizes.kernels as usize,
            Op::LoadSpace(..) => self.spaces.len() < self.sizes.spaces as usize,
            Op::LoadThread(..) => self.threads.len() < self.sizes.threads as usize,
            Op::LoadMapping(_, mapping) => {
                let used: u32 = self.mappings.values().map(records).sum();
                used + records(mapping) <= self.sizes.mappings
            }
            _ => true,
        }
    }

    /// Whether a call loads anything.
    pub(super) fn roots_needed(&self, op: &Op) -> u32 {
        u32::from(!self.has_room(op))
    }

    pub(super) fn strike(&mut self, gone: &Gone) {
        self.kernels.retain(|id, _| !gone.kernels.contains(id));
        self.spaces.retain(|id, _| !gone.spaces.contains(id));
        self.threads.retain(|id, _| !gone.threads.contains(id));
        self.mappings.retain(|key, _| !gone.mappings.contains(key));
    }

    /// Enters what a call that was not refused has changed.
    pub(super) fn enter(&mut self, op: &Op, was_displaced: bool) {
        if let Some((id, tag, descriptor, locked)) = self.new_kernel.take() {
            self.kernels.insert(id, NaiveKernel { tag, descriptor, locked });
        }
        if let Some((id, kernel, load)) = self.new_space.take() {
            self.spaces.insert(id, (kernel, load));
        }
        if let Some((id, load)) = self.new_thread.take() {
            self.threads.insert(id, (load.priority, load));
        }
        match op {
            Op::LoadMapping(_, mapping) if !was_displaced => {
                self.mappings.insert((mapping.space, mapping.page), *mapping);
            }
            Op::SetAccess { kernel, group, access, .. } => {
                let kernel = self.kernels.get_mut(kernel).expect("it is loaded");
                kernel.descriptor.groups.set(*group..*group + 1, *access);
            }
            Op::SetMaximumPriority(_, kernel, maximum) => {
                self.kernels.get_mut(kernel).expect("it is loaded").descriptor.maximum_priority = *maximum;
                for (priority, load) in self.threads.values_mut() {
                    if self.spaces[&load.space].0 == *kernel {
                        *priority = (*priority).min(*maximum);
                    }
                }
            }
            Op::SetPriority(_, thread, priority) => {
                self.threads.get_mut(thread).expect("it is loaded").0 = *priority;
            }
            Op::Redirect(_, space, page, thread) => {
                self.mappings.get_mut(&(*space, *page)).expect("it is mapped").signal = Some(*thread);
            }
            Op::Copied(space, page) => {
                self.mappings.get_mut(&(*space, *page)).expect("it is mapped").copy_of = None;
            }
            _ => {}
        }
    }

    /// Whether a kernel hears exactly this of what went, in an order in which nothing comes before what depended on it. Self is how things
    /// were before.
    pub(super) fn is_tail(
        &self,
        kernel: KernelId,
        tail: &[&Writeback<State>],
        gone: &Gone,
        dirty: &BTreeMap<Page, bool>,
        displaced: Option<&Mapping>,
    ) -> bool {
        let mut places = BTreeMap::new();
        let mut expect = |wanted: &dyn Fn(&Writeback<State>) -> bool, name: (u8, u64, u64)| {
            let mut found = tail.iter().enumerate().filter(|(place, writeback)| {
                wanted(writeback) && !places.values().any(|taken| taken == place)
            });
            let place = found.next().map(|(place, _)| place);
            drop(found);
            place.is_some_and(|place| places.insert(name, place).is_none())
        };
        let is_own = |space: &SpaceId| self.spaces.get(space).is_some_and(|(owner, _)| *owner == kernel);
        let mut are_all_there = true;
        let is_mapping = |mapping: &Mapping, written: bool, writeback: &Writeback<State>| {
            let tag = self.spaces[&mapping.space].1.tag;
            matches!(*writeback, Writeback::Mapping { space, page, frame, modified, .. }
                if (space, page, frame, modified) == (tag, mapping.page, mapping.frame, written))
        };
        for key in gone.mappings.iter().filter(|(space, _)| is_own(space)) {
            let mapping = &self.mappings[key];
            // Nobody can have stored to what is not a copy yet.
            let written = dirty[key] && mapping.copy_of.is_none();
            are_all_there &=
                expect(&|writeback| is_mapping(mapping, written, writeback), (0, key.0.to_word(), key.1));
        }
        if let Some(mapping) = displaced.filter(|mapping| is_own(&mapping.space)) {
            are_all_there &= expect(&|writeback| is_mapping(mapping, false, writeback), (9, 0, 0));
        }
        for id in gone.threads.iter().filter(|id| is_own(&self.threads[*id].1.space)) {
            let wanted = Writeback::Thread { tag: self.threads[id].1.tag, state: id.to_word() };
            are_all_there &= expect(&|writeback| *writeback == wanted, (1, id.to_word(), 0));
        }
        for id in gone.spaces.iter().filter(|id| is_own(id)) {
            let wanted = Writeback::Space { tag: self.spaces[id].1.tag };
            are_all_there &= expect(&|writeback| *writeback == wanted, (2, id.to_word(), 0));
        }
        if kernel == self.first {
            for id in &gone.kernels {
                let tag = self.kernels[id].tag;
                let wanted = |writeback: &Writeback<State>| matches!(writeback, Writeback::Kernel { tag: of, .. } if *of == tag);
                are_all_there &= expect(&wanted, (3, id.to_word(), 0));
            }
        }
        let comes_before =
            |earlier: (u8, u64, u64), later: (u8, u64, u64)| match (places.get(&earlier), places.get(&later))
            {
                (Some(earlier), Some(later)) => earlier < later,
                _ => true,
            };
        let is_in_order = gone.mappings.iter().all(|key| {
            let name = (0, key.0.to_word(), key.1);
            comes_before(name, (2, key.0.to_word(), 0))
                && self.mappings[key].signal.is_none_or(|thread| comes_before(name, (1, thread.to_word(), 0)))
        }) && gone
            .threads
            .iter()
            .all(|id| comes_before((1, id.to_word(), 0), (2, self.threads[id].1.space.to_word(), 0)));
        are_all_there && is_in_order && places.len() == tail.len()
    }
}

fn is_page(page: u64) -> Result<(), Refused> {
    if page < 1 << 36 { Ok(()) } else { Err(Refused::NoPage(page)) }
}
