//! The tables, a machine that they drive, and a naive notion of what is loaded that follows them and says where they go wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::naive::{Gone, Naive};
use super::*;

/// A thread's state is its own name, so that one can see whose it is.
pub(super) type State = u64;

/// What can be done from outside.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Op {
    LoadKernel {
        caller: KernelId,
        tag: Tag,
        descriptor: KernelDescriptor,
        locked: bool,
    },
    LoadSpace(KernelId, SpaceLoad),
    LoadThread(KernelId, ThreadLoad),
    LoadMapping(KernelId, Mapping),
    UnloadKernel(KernelId, KernelId),
    UnloadSpace(KernelId, SpaceId),
    UnloadThread(KernelId, ThreadId),
    UnloadMappings {
        caller: KernelId,
        space: SpaceId,
        first_page: u64,
        pages: u64,
    },
    SetAccess {
        caller: KernelId,
        kernel: KernelId,
        group: u64,
        access: Access,
    },
    UnloadGroup(KernelId, u32),
    SetMaximumPriority(KernelId, KernelId, u8),
    SetPriority(KernelId, ThreadId, u8),
    Redirect(KernelId, SpaceId, u64, ThreadId),
    Copied(SpaceId, u64),
    /// A page is written.
    Write(SpaceId, u64),
    TouchThread(ThreadId),
    TouchMapping(SpaceId, u64),
    Take(KernelId),
}

/// A rule that was broken.
pub(super) mod rule {
    pub(in super::super) const RESULTS: &str = "a call has the result that it should have";
    pub(in super::super) const DEPENDENCIES: &str = "nothing outlives what it depends on";
    pub(in super::super) const ROOM: &str =
        "a load never fails for lack of room, nor replaces while there is some";
    pub(in super::super) const WRITEBACKS: &str =
        "each that went is written back once, to its owner, in order";
    pub(in super::super) const LOCKS: &str = "what is locked with all it depends on is never replaced";
    pub(in super::super) const SIGNALS: &str = "a signal mapping never outlives its thread";
    pub(in super::super) const SENDERS: &str = "no writable mapping of a frame is left when a receiver went";
    pub(in super::super) const MACHINE: &str = "the machine has what is loaded, and nothing else";
}

/// What happened last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Seen {
    pub(super) was_refused_as_stale: bool,
    pub(super) has_replaced: bool,
    pub(super) has_cascaded: bool,
    pub(super) has_passed_locked: bool,
    pub(super) has_reclaimed_half_locked: bool,
    pub(super) has_lost_signal_with_thread: bool,
    pub(super) has_flushed_foreign_sender: bool,
    pub(super) was_displaced: bool,
    pub(super) was_redirected: bool,
}

/// What runs, and what is mapped where, and whether it was written.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Machine {
    pub(super) running: BTreeMap<ThreadId, SpaceId>,
    pub(super) pages: BTreeMap<(SpaceId, u64), bool>,
    pub(super) mistake: Option<&'static str>,
}

impl Hardware for Machine {
    type State = State;

    fn stop(&mut self, thread: ThreadId) -> State {
        if self.running.remove(&thread).is_none() {
            self.mistake = Some("a thread is stopped that does not run");
        }
        thread.to_word()
    }

    fn unmap(&mut self, space: SpaceId, first_page: u64, pages: u64, modified: &mut dyn FnMut(u64)) {
        let range = (space, first_page)..(space, first_page + pages);
        let gone: Vec<_> = self.pages.range(range).map(|(&(_, page), &written)| (page, written)).collect();
        if gone.is_empty() {
            self.mistake = Some("a page is unmapped that is not mapped");
        }
        for (page, is_written) in gone {
            self.pages.remove(&(space, page));
            if is_written {
                modified(page);
            }
        }
    }

    fn end_space(&mut self, space: SpaceId) {
        if self.running.values().any(|other| *other == space) {
            self.mistake = Some("a space ends while threads run in it");
        }
        if self.pages.range((space, 0)..=(space, u64::MAX)).next().is_some() {
            self.mistake = Some("a space ends while pages are mapped in it");
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) objects: Objects<State>,
    pub(super) machine: Machine,
    pub(super) naive: Naive,
    pub(super) mistakes: BTreeSet<&'static str>,
    pub(super) seen: Seen,
}

impl World {
    pub(super) fn new(sizes: Sizes, frames: u64, descriptor: KernelDescriptor) -> Self {
        let (objects, first) = Objects::new(sizes, frames, Tag(0), descriptor.clone()).expect("it is right");
        let descriptor = KernelDescriptor { groups: Groups::new(frames, Access::ReadWrite), ..descriptor };
        let naive = Naive::new(sizes, frames, first, descriptor);
        Self { objects, machine: Machine::default(), naive, mistakes: BTreeSet::new(), seen: Seen::default() }
    }

    pub(super) fn first(&self) -> KernelId {
        self.naive.first
    }

    /// Does it, and compares everything.
    pub(super) fn apply(&mut self, op: &Op) {
        self.seen = Seen::default();
        let before = self.naive.clone();
        let dirty = self.machine.pages.clone();
        let version = self.objects.map_version();
        let expected = self.naive.expected(op);
        let outcome = self.act(op);
        let is_as_expected = match (&expected, &outcome) {
            (Err(Refused::TooManyLocks), Ok(_) | Err(Refused::LockLimit)) => self.naive.depends_on_victim(op),
            (Ok(()), Ok(_)) => true,
            (Err(expected), Err(refused)) => expected == refused,
            _ => false,
        };
        self.demand(is_as_expected, rule::RESULTS);
        self.seen.was_refused_as_stale = matches!(
            outcome,
            Err(Refused::StaleKernel(_) | Refused::StaleSpace(_) | Refused::StaleThread(_))
        );
        let gone = if outcome.is_ok() {
            self.gone(op, outcome == Ok(Some(Loaded::Displaced)))
        } else {
            Gone::default()
        };
        if !gone.mappings.is_empty() {
            self.demand(self.objects.map_version() != version, rule::RESULTS);
        }
        self.compare_survivors();
        self.compare_writebacks(&before, &gone, &dirty);
        self.compare_machine();
        self.objects.check();
    }

    pub(super) fn demand(&mut self, holds: bool, rule: &'static str) {
        if !holds {
            self.mistakes.insert(rule);
        }
    }

    /// Does it, in the tables and in the machine, and enters what was loaded.
    fn act(&mut self, op: &Op) -> Result<Option<Loaded>, Refused> {
        let Self { objects, machine, naive, .. } = self;
        match op {
            Op::LoadKernel { caller, tag, descriptor, locked } => {
                let load = KernelLoad {
                    tag: *tag,
                    descriptor: descriptor.clone(),
                    locked: *locked,
                    waiting: VecDeque::new(),
                };
                let id = objects.load_kernel(machine, *caller, load)?;
                naive.new_kernel = Some((id, *tag, descriptor.clone(), *locked));
            }
            Op::LoadSpace(caller, load) => {
                naive.new_space = Some((objects.load_space(machine, *caller, *load)?, *caller, *load));
            }
            Op::LoadThread(caller, load) => {
                let id = objects.load_thread(machine, *caller, *load)?;
                machine.running.insert(id, load.space);
                naive.new_thread = Some((id, *load));
            }
            Op::LoadMapping(caller, mapping) => {
                let loaded = objects.load_mapping(machine, *caller, mapping)?;
                if loaded == Loaded::Stays {
                    machine.pages.insert((mapping.space, mapping.page), false);
                }
                return Ok(Some(loaded));
            }
            Op::UnloadKernel(caller, kernel) => objects.unload_kernel(machine, *caller, *kernel)?,
            Op::UnloadSpace(caller, space) => objects.unload_space(machine, *caller, *space)?,
            Op::UnloadThread(caller, thread) => objects.unload_thread(machine, *caller, *thread)?,
            Op::UnloadMappings { caller, space, first_page, pages } => {
                objects.unload_mappings(machine, *caller, *space, *first_page, *pages)?;
            }
            Op::SetAccess { caller, kernel, group, access } => {
                objects.set_access(machine, *caller, *kernel, *group..group.saturating_add(1), *access)?;
            }
            Op::UnloadGroup(caller, group) => objects.unload_groups(machine, *caller, &[*group])?,
            Op::SetMaximumPriority(caller, kernel, maximum) => {
                objects.set_maximum_priority(*caller, *kernel, *maximum)?;
            }
            Op::SetPriority(caller, thread, priority) => objects.set_priority(*caller, *thread, *priority)?,
            Op::Redirect(caller, space, page, thread) => objects.redirect(*caller, *space, *page, *thread)?,
            Op::Copied(space, page) => objects.copied(*space, *page)?,
            Op::Write(space, page) => {
                if let Some(is_written) = machine.pages.get_mut(&(*space, *page)) {
                    *is_written = true;
                }
            }
            Op::TouchThread(thread) => objects.touch_thread(*thread),
            Op::TouchMapping(space, page) => objects.touch_mapping(*space, *page),
            Op::Take(kernel) => {
                let taken = objects.take_writeback(*kernel)?;
                let expected = naive.waiting.get_mut(kernel).and_then(VecDeque::pop_front);
                if taken != expected {
                    self.mistakes.insert(rule::WRITEBACKS);
                }
            }
        }
        Ok(None)
    }

    /// What went, as it should and as far as one can know: which objects are replaced is the tables' choice, and shows. It is struck off,
    /// and what was loaded entered.
    fn gone(&mut self, op: &Op, was_displaced: bool) -> Gone {
        let mut gone = self.naive.unloaded_by(op);
        let mut naive = self.naive.clone();
        naive.strike(&gone);
        let victims = self.victims(op, &naive);
        let is_whole = victims == naive.closure_of_all(&victims);
        self.demand(is_whole, rule::DEPENDENCIES);
        self.see_what_went(&naive, &gone, &victims);
        let has_room = naive.has_room(op);
        self.demand(!has_room || victims.is_empty(), rule::ROOM);
        self.demand(has_room || !victims.is_empty() || naive.roots_needed(op) == 0, rule::ROOM);
        let is_one = |root: &Gone| naive.closure_of_all(root) == victims;
        let all_of = |gone: &Gone| gone.kernels.len() + gone.spaces.len() + gone.threads.len();
        match op {
            Op::LoadMapping(_, mapping) => {
                self.demand(all_of(&victims) == 0, rule::DEPENDENCIES);
                let can_go = |key: &(SpaceId, u64)| {
                    victims.mappings.iter().any(|victim| {
                        !naive.is_held(victim) && naive.closure_of_mapping(*victim).contains(key)
                    })
                };
                let all_can_go = victims.mappings.iter().all(can_go);
                self.demand(all_can_go, rule::LOCKS);
                let is_receiver = |key: &&(SpaceId, u64)| {
                    let victim = &naive.mappings[*key];
                    victim.signal.is_some() && victim.frame == mapping.frame
                };
                let has_lost_receiver = victims.mappings.iter().any(|key| is_receiver(&key));
                self.demand(was_displaced == (has_lost_receiver && mapping.writable), rule::SENDERS);
            }
            Op::LoadKernel { .. } if !has_room => {
                let roots = victims.kernels.iter().copied();
                let mut roots = roots.map(|kernel| Gone { kernels: [kernel].into(), ..Gone::default() });
                self.demand(roots.any(|root| is_one(&root)), rule::ROOM);
                self.demand(victims.kernels.iter().all(|kernel| !naive.kernels[kernel].locked), rule::LOCKS);
            }
            Op::LoadSpace(..) if !has_room => {
                let roots = victims.spaces.iter().copied();
                let mut roots = roots.map(|space| Gone { spaces: [space].into(), ..Gone::default() });
                self.demand(roots.any(|root| is_one(&root)), rule::ROOM);
                self.demand(victims.spaces.iter().all(|space| !naive.is_space_held(*space)), rule::LOCKS);
            }
            Op::LoadThread(..) if !has_room => {
                let roots = victims.threads.iter().copied();
                let mut roots = roots.map(|thread| Gone { threads: [thread].into(), ..Gone::default() });
                self.demand(roots.any(|root| is_one(&root)), rule::ROOM);
                self.demand(victims.threads.iter().all(|thread| !naive.is_thread_held(*thread)), rule::LOCKS);
            }
            _ => {}
        }
        naive.strike(&victims);
        self.naive = naive;
        gone.add(victims);
        if let Op::LoadMapping(_, mapping) = op {
            self.seen.was_displaced = was_displaced;
            if was_displaced {
                self.naive.displaced = Some(*mapping);
            }
        }
        self.naive.enter(op, was_displaced);
        gone
    }

    /// What is not loaded any more, and was before.
    fn victims(&self, op: &Op, naive: &Naive) -> Gone {
        let is_new = |key: &(SpaceId, u64)| matches!(op, Op::LoadMapping(_, mapping) if *key == (mapping.space, mapping.page));
        let lost = |key: &(SpaceId, u64)| is_new(key) || self.objects.mapping(key.0, key.1).is_err();
        Gone {
            kernels: naive.kernels.keys().copied().filter(|id| self.objects.kernel(*id).is_err()).collect(),
            spaces: naive.spaces.keys().copied().filter(|id| self.objects.space(*id).is_err()).collect(),
            threads: naive.threads.keys().copied().filter(|id| self.objects.thread(*id).is_err()).collect(),
            mappings: naive.mappings.keys().copied().filter(lost).collect(),
            ..Gone::default()
        }
    }

    fn see_what_went(&mut self, naive: &Naive, gone: &Gone, victims: &Gone) {
        let seen = &mut self.seen;
        let count =
            |gone: &Gone| gone.kernels.len() + gone.spaces.len() + gone.threads.len() + gone.mappings.len();
        seen.has_replaced = !victims.is_empty();
        seen.has_cascaded = count(victims) > 1;
        let is_locked = |key: &&(SpaceId, u64)| naive.mappings[*key].locked;
        seen.has_reclaimed_half_locked = victims.mappings.iter().any(|key| is_locked(&key))
            || victims.threads.iter().any(|id| naive.threads[id].1.locked)
            || victims.spaces.iter().any(|id| naive.spaces[id].1.locked);
        seen.has_passed_locked = seen.has_replaced
            && (naive.mappings.keys().any(|key| naive.is_held(key))
                || naive.threads.keys().any(|id| naive.is_thread_held(*id))
                || naive.spaces.keys().any(|id| naive.is_space_held(*id)));
        seen.has_lost_signal_with_thread = victims
            .mappings
            .iter()
            .any(|key| naive.mappings[key].signal.is_some_and(|thread| victims.threads.contains(&thread)));
        let kernel_of = |key: &(SpaceId, u64)| naive.spaces.get(&key.0).map(|(kernel, _)| *kernel);
        let owners: BTreeSet<_> = victims.mappings.iter().map(kernel_of).collect();
        let receivers = victims.mappings.iter().filter(|key| naive.mappings[*key].signal.is_some());
        seen.has_flushed_foreign_sender = receivers.count() > 0 && owners.len() > 1;
        seen.was_redirected = gone.is_redirection;
    }

    fn compare_survivors(&mut self) {
        let objects = &self.objects;
        let kernels = objects.loaded_kernels().into_iter().eq(self.naive.kernels.keys().copied());
        let mut spaces = objects.loaded_spaces();
        spaces.sort_unstable();
        let mut threads = objects.loaded_threads();
        threads.sort_unstable();
        let are_same = spaces.into_iter().eq(self.naive.spaces.keys().copied())
            && threads.into_iter().eq(self.naive.threads.keys().copied());
        let mappings: BTreeMap<_, _> =
            objects.loaded_mappings().map(|(_, mapping)| ((mapping.space, mapping.page), mapping)).collect();
        let are_views_right =
            self.naive.spaces.iter().all(|(id, (kernel, load))| {
                objects.space(*id).is_ok_and(|view| view.kernel == *kernel && view.tag == load.tag)
            }) && self.naive.threads.iter().all(|(id, (priority, load))| {
                objects.thread(*id).is_ok_and(|view| {
                    view.space == load.space && view.tag == load.tag && view.priority == *priority
                })
            }) && self.naive.kernels.iter().all(|(id, kernel)| objects.kernel(*id) == Ok(&kernel.descriptor));
        let are_mappings_same = mappings == self.naive.mappings;
        let is_thread_there =
            |mapping: &Mapping| mapping.signal.is_none_or(|thread| self.naive.threads.contains_key(&thread));
        let have_threads = mappings.values().all(is_thread_there);
        let are_receivers_right = mappings.values().all(|sender| {
            let receivers = objects.receivers(sender.space, sender.page).expect("it is mapped");
            let found: BTreeSet<_> = receivers.map(|to| (to.space, to.page, to.thread)).collect();
            let naive = mappings.values().filter(|other| other.frame == sender.frame);
            found == naive.filter_map(|to| Some((to.space, to.page, to.signal?))).collect()
        });
        let are_users_right = (0..self.naive.frames).all(|frame| {
            let found: BTreeSet<_> =
                objects.users(frame).map(|user| (user.space, user.page, user.is_copy)).collect();
            let of = |of: fn(&Mapping) -> Option<u64>, is_copy| {
                let users = mappings.values().filter(move |mapping| of(mapping) == Some(frame));
                users.map(move |mapping| (mapping.space, mapping.page, is_copy))
            };
            found
                == of(|mapping| Some(mapping.frame), false)
                    .chain(of(|mapping| mapping.copy_of, true))
                    .collect()
        });
        self.demand(kernels && are_same && are_views_right && are_mappings_same, rule::DEPENDENCIES);
        self.demand(have_threads, rule::SIGNALS);
        self.demand(are_receivers_right && are_users_right, rule::RESULTS);
    }

    /// Each that went is at the end of its owner's queue once, and after what depended on it; nothing else is.
    fn compare_writebacks(&mut self, before: &Naive, gone: &Gone, dirty: &BTreeMap<(SpaceId, u64), bool>) {
        let mut queues = self.objects.queues();
        for kernel in &gone.kernels {
            let first = queues.get_mut(&self.naive.first).expect("it is always there");
            let tag = before.kernels[kernel].tag;
            let is_it = |writeback: &Writeback<State>| matches!(writeback, Writeback::Kernel { tag: of, .. } if *of == tag);
            match first.iter_mut().rev().find(|writeback| is_it(writeback)) {
                Some(Writeback::Kernel { descriptor, waiting, .. }) => {
                    let queue = waiting.clone();
                    let is_right = *descriptor == before.kernels[kernel].descriptor;
                    queues.insert(*kernel, queue);
                    self.demand(is_right, rule::WRITEBACKS);
                }
                _ => self.demand(false, rule::WRITEBACKS),
            }
        }
        for (kernel, queue) in &queues {
            let known = self.naive.waiting.get(kernel).cloned().unwrap_or_default();
            let is_prefix = queue.len() >= known.len() && known.iter().zip(queue).all(|(a, b)| a == b);
            self.demand(is_prefix, rule::WRITEBACKS);
            if !is_prefix {
                continue;
            }
            let tail: Vec<_> = queue.iter().skip(known.len()).collect();
            let is_right = before.is_tail(*kernel, &tail, gone, dirty, self.naive.displaced.as_ref());
            self.demand(is_right, rule::WRITEBACKS);
        }
        queues.retain(|kernel, _| self.naive.kernels.contains_key(kernel));
        self.naive.waiting = queues;
        self.naive.displaced = None;
    }

    fn compare_machine(&mut self) {
        let is_same = self.machine.pages.keys().eq(self.naive.mappings.keys())
            && self.machine.running.keys().eq(self.naive.threads.keys())
            && self.machine.mistake.is_none();
        self.demand(is_same, rule::MACHINE);
    }
}
