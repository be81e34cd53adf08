//! Tiny tables, and every order in which kernels may load, replace, unload and lock, by names that are stale, too.
//!
//! Numbers that only grow are left out of a state, and every call's writebacks are taken at once; so there is an end to the states, and all
//! are looked at. What a call should have done is checked where it is made, by the naive notion beside the tables; the properties say
//! which rules were never broken, and that what they are about does happen.

use core::fmt::Debug;
use core::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::world::{Op, Seen, State, World, rule};
use super::*;

/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

/// What is in the tables and what is done to them.
#[derive(Clone, Debug)]
struct Bounds {
    sizes: Sizes,
    /// How many of each may be locked, by the first kernel and by each other.
    locks: [Locks; 2],
    /// Loaded beforehand, by the first kernel, and locked or not.
    kernels: Vec<bool>,
    /// Loaded beforehand, one in each kernel, and locked or not.
    spaces: Vec<bool>,
    /// What may be done.
    does: &'static [Does],
    /// Whether loads may be locked, too.
    may_lock: bool,
    /// Mappings are of these pages, and of these frames.
    pages: u64,
    frames: u64,
    /// What may happen in these bounds, and does somewhere.
    happens: &'static [Happens],
}

/// Something that is to be seen somewhere, by name.
type Happens = (&'static str, fn(&Bounds, &Look) -> bool);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    LoadKernels,
    UnloadKernels,
    LoadSpaces,
    UnloadSpaces,
    LoadThreads,
    UnloadThreads,
    LoadMappings,
    UnloadMappings,
    Redirect,
    Touch,
    /// All of it by names that were right once.
    Stale,
}

#[derive(Clone, Debug)]
struct Look {
    world: World,
    same: Objects<State>,
}

impl Look {
    fn new(mut world: World) -> Self {
        for kernel in world.objects.loaded_kernels() {
            while world.objects.take_writeback(kernel).expect("it is loaded").is_some() {}
        }
        world.naive.waiting.clear();
        let same = world.objects.without_versions();
        Self { world, same }
    }
}

impl PartialEq for Look {
    fn eq(&self, other: &Self) -> bool {
        (&self.same, self.world.seen, &self.world.mistakes)
            == (&other.same, other.world.seen, &other.world.mistakes)
    }
}

impl Hash for Look {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.same, self.world.seen, &self.world.mistakes).hash(state);
    }
}

impl Bounds {
    fn descriptor(&self, locks: Locks) -> KernelDescriptor {
        let groups = Groups::new(self.frames, Access::ReadWrite);
        KernelDescriptor { groups, processor_shares: Vec::new(), maximum_priority: 0, locks }
    }

    fn load_kernel(&self, world: &World, locked: bool) -> Op {
        let descriptor = self.descriptor(self.locks[1]);
        Op::LoadKernel { caller: world.first(), tag: Tag(1), descriptor, locked }
    }

    fn may(&self, does: Does) -> bool {
        self.does.contains(&does)
    }

    fn locked(&self) -> &'static [bool] {
        if self.may_lock { &[false, true] } else { &[false] }
    }

    fn mappings(&self, space: SpaceId, threads: &[ThreadId], mappings: &mut Vec<Mapping>) {
        for (page, frame) in (0..self.pages).flat_map(|page| (0..self.frames).map(move |frame| (page, frame)))
        {
            for &locked in self.locked() {
                let reader = Mapping { message: true, locked, ..Mapping::read(space, page, frame) };
                mappings.push(Mapping { writable: true, ..reader });
                mappings.extend(threads.iter().map(|thread| Mapping { signal: Some(*thread), ..reader }));
            }
        }
    }
}

/// The name that the last one in the same slot had.
fn stale_word(word: u64) -> u64 {
    word - (1 << 16)
}

impl Model for Bounds {
    type State = Look;
    type Action = Op;

    fn init_states(&self) -> Vec<Look> {
        let mut world = World::new(self.sizes, self.frames, self.descriptor(self.locks[0]));
        for &locked in &self.kernels {
            world.apply(&self.load_kernel(&world, locked));
        }
        let kernels: Vec<KernelId> = world.naive.kernels.keys().copied().collect();
        for (&kernel, &locked) in kernels.iter().zip(&self.spaces) {
            world.apply(&Op::LoadSpace(kernel, SpaceLoad { tag: Tag(2), locked }));
        }
        world.seen = Seen::default();
        vec![Look::new(world)]
    }

    fn actions(&self, look: &Look, ops: &mut Vec<Op>) {
        let Look { world, .. } = look;
        let naive = &world.naive;
        let first = world.first();
        let locked = self.locked();
        if self.may(Does::LoadKernels) {
            ops.extend(locked.iter().map(|locked| self.load_kernel(world, *locked)));
        }
        for &kernel in naive.kernels.keys() {
            if self.may(Does::UnloadKernels) && kernel != first {
                ops.push(Op::UnloadKernel(first, kernel));
            }
            if self.may(Does::LoadSpaces) {
                let load = |locked: &bool| Op::LoadSpace(kernel, SpaceLoad { tag: Tag(2), locked: *locked });
                ops.extend(locked.iter().map(load));
                if self.may(Does::Stale) {
                    ops.push(Op::LoadSpace(
                        KernelId::from_word(stale_word(kernel.to_word())),
                        SpaceLoad { tag: Tag(2), locked: false },
                    ));
                }
            }
        }
        for (&space, &(kernel, _)) in &naive.spaces {
            if self.may(Does::UnloadSpaces) {
                ops.push(Op::UnloadSpace(kernel, space));
            }
            let stale = SpaceId::from_word(stale_word(space.to_word()));
            if self.may(Does::LoadThreads) {
                let load = |space, locked| {
                    Op::LoadThread(kernel, ThreadLoad { tag: Tag(3), space, priority: 0, locked })
                };
                ops.extend(locked.iter().map(|locked| load(space, *locked)));
                if self.may(Does::Stale) {
                    ops.push(load(stale, false));
                }
            }
            let own = naive.threads.iter().filter(|(_, (_, load))| naive.spaces[&load.space].0 == kernel);
            let mut own: Vec<ThreadId> = own.map(|(id, _)| *id).collect();
            if self.may(Does::Redirect) {
                let mapped = naive.mappings.values().filter(|mapping| mapping.space == space);
                let signals = mapped.filter(|mapping| mapping.signal.is_some());
                let all = signals.flat_map(|mapping| own.iter().map(move |thread| (mapping.page, *thread)));
                ops.extend(all.map(|(page, thread)| Op::Redirect(kernel, space, page, thread)));
            }
            if self.may(Does::Stale) {
                own.extend(own.first().map(|thread| ThreadId::from_word(stale_word(thread.to_word()))));
            }
            if self.may(Does::LoadMappings) {
                let mut mappings = Vec::new();
                self.mappings(space, &own, &mut mappings);
                if self.may(Does::Stale) {
                    mappings.extend(mappings.first().map(|mapping| Mapping { space: stale, ..*mapping }));
                }
                ops.extend(mappings.into_iter().map(|mapping| Op::LoadMapping(kernel, mapping)));
            }
        }
        for (&thread, (_, load)) in &naive.threads {
            if self.may(Does::UnloadThreads) {
                ops.push(Op::UnloadThread(naive.spaces[&load.space].0, thread));
            }
            if self.may(Does::Touch) {
                ops.push(Op::TouchThread(thread));
            }
        }
        for &(space, page) in naive.mappings.keys() {
            if self.may(Does::UnloadMappings) {
                let caller = naive.spaces[&space].0;
                ops.push(Op::UnloadMappings { caller, space, first_page: page, pages: 1 });
            }
            if self.may(Does::Touch) {
                ops.push(Op::TouchMapping(space, page));
            }
        }
    }

    fn next_state(&self, last: &Look, op: Op) -> Option<Look> {
        if !last.world.mistakes.is_empty() {
            return None;
        }
        let mut world = last.world.clone();
        world.apply(&op);
        Some(Look::new(world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn kept(name: &'static str, is_kept: fn(&Bounds, &Look) -> bool) -> Property<Bounds> {
            Property::always(name, is_kept)
        }
        let mut properties = vec![
            kept(rule::RESULTS, |_, look| !look.world.mistakes.contains(rule::RESULTS)),
            kept(rule::DEPENDENCIES, |_, look| !look.world.mistakes.contains(rule::DEPENDENCIES)),
            kept(rule::ROOM, |_, look| !look.world.mistakes.contains(rule::ROOM)),
            kept(rule::WRITEBACKS, |_, look| !look.world.mistakes.contains(rule::WRITEBACKS)),
            kept(rule::LOCKS, |_, look| !look.world.mistakes.contains(rule::LOCKS)),
            kept(rule::SIGNALS, |_, look| !look.world.mistakes.contains(rule::SIGNALS)),
            kept(rule::SENDERS, |_, look| !look.world.mistakes.contains(rule::SENDERS)),
            kept(rule::MACHINE, |_, look| !look.world.mistakes.contains(rule::MACHINE)),
        ];
        let happens =
            self.happens.iter().map(|&(name, has_happened)| Property::sometimes(name, has_happened));
        properties.extend(happens);
        properties
    }
}

/// Looks at all states within a model's bounds. A bound that the time cuts short is not one.
fn look_at_all(bounds: Bounds) {
    let began = Instant::now();
    let checker = bounds
        .checker()
        .threads(2)
        .timeout(LIMIT)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (all, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{all} states, {depth} deep, {:?}", began.elapsed());
    checker.assert_properties();
    assert!(began.elapsed() < LIMIT, "the time was over before all states were seen");
}

const NO_LOCKS: Locks = Locks { kernels: 0, spaces: 0, threads: 0, mappings: 0 };

const STALE: Happens = ("a stale name is refused", |_, look| look.world.seen.was_refused_as_stale);
const REPLACED: Happens = ("a load replaces something", |_, look| look.world.seen.has_replaced);
const CASCADED: Happens = ("what is replaced takes others with it", |_, look| look.world.seen.has_cascaded);
const PASSED_LOCKED: Happens =
    ("something else is replaced than what is locked", |_, look| look.world.seen.has_passed_locked);
const HALF_LOCKED: Happens = ("what is locked is replaced, since what it depends on is not", |_, look| {
    look.world.seen.has_reclaimed_half_locked
});
const LOST_WITH_THREAD: Happens =
    ("a signal mapping goes with its thread", |_, look| look.world.seen.has_lost_signal_with_thread);
const FOREIGN_SENDER: Happens =
    ("a receiver is replaced, and another kernel's sender goes with it", |_, look| {
        look.world.seen.has_flushed_foreign_sender
    });
const DISPLACED: Happens = ("a sender is displaced by its own load", |_, look| look.world.seen.was_displaced);
const REDIRECTED: Happens = ("a load redirects signals", |_, look| look.world.seen.was_redirected);

fn bounds() -> Bounds {
    Bounds {
        sizes: Sizes { kernels: 3, spaces: 3, threads: 3, mappings: 4, ..Sizes::default() },
        locks: [NO_LOCKS; 2],
        kernels: vec![false, false],
        spaces: vec![],
        does: &[],
        may_lock: false,
        pages: 1,
        frames: 1,
        happens: &[],
    }
}

#[test]
fn model_kernels_spaces_and_threads_come_and_go() {
    look_at_all(Bounds {
        sizes: Sizes { spaces: 2, threads: 2, ..bounds().sizes },
        does: &[
            Does::LoadKernels,
            Does::UnloadKernels,
            Does::LoadSpaces,
            Does::UnloadSpaces,
            Does::LoadThreads,
            Does::UnloadThreads,
            Does::Stale,
        ],
        happens: &[STALE, REPLACED, CASCADED],
        ..bounds()
    });
}

#[test]
fn model_some_spaces_are_locked() {
    look_at_all(Bounds {
        sizes: Sizes { threads: 1, ..bounds().sizes },
        locks: [Locks { kernels: 1, ..NO_LOCKS }, Locks { spaces: 1, ..NO_LOCKS }],
        kernels: vec![true, false],
        does: &[Does::LoadSpaces, Does::UnloadSpaces, Does::LoadThreads],
        may_lock: true,
        happens: &[REPLACED, CASCADED, PASSED_LOCKED, HALF_LOCKED],
        ..bounds()
    });
}

#[test]
fn model_some_threads_are_locked() {
    look_at_all(Bounds {
        locks: [Locks { kernels: 1, ..NO_LOCKS }, Locks { spaces: 1, threads: 1, ..NO_LOCKS }],
        kernels: vec![true, false],
        spaces: vec![false, true, true],
        does: &[Does::LoadThreads, Does::UnloadThreads],
        may_lock: true,
        happens: &[REPLACED, PASSED_LOCKED, HALF_LOCKED],
        ..bounds()
    });
}

#[test]
fn model_mappings_come_and_go_with_their_threads() {
    look_at_all(Bounds {
        sizes: Sizes { threads: 2, ..bounds().sizes },
        spaces: vec![false, false],
        does: &[
            Does::LoadThreads,
            Does::UnloadThreads,
            Does::LoadMappings,
            Does::UnloadMappings,
            Does::Redirect,
            Does::Stale,
        ],
        frames: 2,
        happens: &[STALE, REPLACED, CASCADED, LOST_WITH_THREAD, FOREIGN_SENDER, REDIRECTED],
        ..bounds()
    });
}

#[test]
fn model_some_mappings_are_locked() {
    look_at_all(Bounds {
        sizes: Sizes { threads: 2, mappings: 5, ..bounds().sizes },
        locks: [Locks { spaces: 1, threads: 1, mappings: 2, ..NO_LOCKS }, NO_LOCKS],
        spaces: vec![true, false],
        does: &[Does::LoadThreads, Does::LoadMappings],
        may_lock: true,
        happens: &[REPLACED, PASSED_LOCKED, HALF_LOCKED],
        ..bounds()
    });
}

#[test]
fn model_spaces_go_with_all_that_is_in_them() {
    look_at_all(Bounds {
        sizes: Sizes { spaces: 2, threads: 1, mappings: 3, ..bounds().sizes },
        kernels: vec![false],
        does: &[Does::LoadSpaces, Does::LoadThreads, Does::LoadMappings, Does::UnloadKernels],
        pages: 2,
        happens: &[REPLACED, CASCADED, DISPLACED, LOST_WITH_THREAD],
        ..bounds()
    });
}

#[test]
fn model_what_is_used_has_a_second_chance() {
    look_at_all(Bounds {
        sizes: Sizes { threads: 2, mappings: 3, ..bounds().sizes },
        spaces: vec![false, false],
        does: &[Does::LoadThreads, Does::LoadMappings, Does::Touch],
        happens: &[REPLACED, LOST_WITH_THREAD],
        ..bounds()
    });
}
