//! Several kernels that do anything, wrong things too, beside the naive notion of what should be loaded.

use proptest::prelude::*;

use super::world::{Op, Seen, World};
use super::*;

const FRAMES: u64 = 300;

/// A call in numbers. What they mean depends on what has been loaded by then.
type Raw = [u8; 7];

/// All names that were ever given out, stale ones too, and one that never was.
struct Names {
    kernels: Vec<KernelId>,
    spaces: Vec<SpaceId>,
    threads: Vec<ThreadId>,
    next_tag: u64,
}

impl Names {
    /// One of those; mostly one that is still loaded.
    fn pick<T: Copy + Ord>(all: &[T], loaded: impl Iterator<Item = T>, choice: u8) -> T {
        let loaded: Vec<T> = loaded.collect();
        let from = if choice < 250 && !loaded.is_empty() { &loaded } else { all };
        from[usize::from(choice) % from.len()]
    }

    fn op(&mut self, world: &World, [kind, a, b, c, d, e, flags]: Raw) -> Op {
        let naive = &world.naive;
        let kernel = |choice| Self::pick(&self.kernels, naive.kernels.keys().copied(), choice);
        let first = if a < 240 { world.first() } else { kernel(a) };
        let flag = |bit: u8| flags >> bit & 1 == 1;
        let page = match e % 32 {
            29 => MAXIMUM_PAGES - 1,
            30 => MAXIMUM_PAGES,
            31 => u64::MAX,
            few => u64::from(few % 4),
        };
        let frame = match d % 32 {
            29 => FRAMES - 1,
            30 => FRAMES,
            31 => u64::MAX - u64::from(c),
            few => u64::from(few % 3) * 128 + u64::from(few % 2),
        };
        let access = [Access::None, Access::Read, Access::ReadWrite, Access::ReadWrite][usize::from(c % 4)];
        self.next_tag += 1;
        let tag = Tag(self.next_tag);
        // A space or a thread of the caller's, more often than not.
        let owners: Vec<KernelId> = naive.spaces.values().map(|(owner, _)| *owner).collect();
        let caller =
            if a % 4 == 0 || owners.is_empty() { kernel(a) } else { owners[usize::from(a) % owners.len()] };
        let own_spaces: Vec<SpaceId> =
            naive.spaces.iter().filter(|(_, (owner, _))| *owner == caller).map(|(id, _)| *id).collect();
        let space = Self::pick(&self.spaces, own_spaces.iter().copied(), b);
        let own = naive.threads.iter().filter(|(_, (_, load))| own_spaces.contains(&load.space));
        let thread = Self::pick(&self.threads, own.map(|(id, _)| *id), c);
        match kind {
            0..6 => {
                let locks = Locks {
                    kernels: 0,
                    spaces: u32::from(b % 2),
                    threads: u32::from(b / 2 % 2),
                    mappings: u32::from(b / 4 % 4),
                };
                let mut groups = Groups::new(if c == 255 { 1 } else { FRAMES }, Access::ReadWrite);
                groups.set(u64::from(d % 3)..u64::from(d % 3) + 1, access);
                let shares = [if e == 255 { 101 } else { 100 }].into();
                let descriptor =
                    KernelDescriptor { groups, processor_shares: shares, maximum_priority: e % 8, locks };
                Op::LoadKernel { caller: first, tag, descriptor, locked: flag(0) }
            }
            6..22 => Op::LoadSpace(caller, SpaceLoad { tag, locked: flag(0) }),
            22..45 => Op::LoadThread(caller, ThreadLoad { tag, space, priority: e % 8, locked: flag(0) }),
            45..160 => {
                let mapping = Mapping {
                    space,
                    page,
                    frame,
                    writable: flag(1),
                    executable: flag(2),
                    message: flag(3),
                    locked: flag(0) && flag(4),
                    signal: flag(5).then_some(thread),
                    copy_of: (flag(6) && flag(7)).then_some(u64::from(c % 3) * 128),
                    stored: false,
                };
                Op::LoadMapping(caller, mapping)
            }
            160..162 => Op::UnloadKernel(first, kernel(b)),
            162..165 => Op::UnloadSpace(caller, space),
            165..170 => Op::UnloadThread(caller, thread),
            170..179 => {
                let pages = if d % 8 == 7 { u64::MAX } else { u64::from(d % 8) << (d / 8) };
                Op::UnloadMappings { caller, space, first_page: page, pages }
            }
            179 => Op::UnloadGroup(if flag(7) { caller } else { first }, u32::from(d % 5)),
            180..184 => Op::SetAccess { caller: first, kernel: kernel(b), group: u64::from(d % 5), access },
            184..187 => Op::SetMaximumPriority(first, kernel(b), e % 8),
            187..190 => Op::SetPriority(caller, thread, e % 9),
            190..200 => Op::Redirect(caller, space, page, thread),
            200..204 => Op::Copied(space, page),
            204..212 => Op::Write(space, page),
            212..216 => Op::TouchThread(thread),
            216..224 => Op::TouchMapping(space, page),
            _ => Op::Take(caller),
        }
    }

    fn learn(&mut self, world: &World) {
        let naive = &world.naive;
        remember(&mut self.kernels, naive.kernels.keys());
        remember(&mut self.spaces, naive.spaces.keys());
        remember(&mut self.threads, naive.threads.keys());
    }
}

fn remember<'a, T: Copy + Ord + 'a>(all: &mut Vec<T>, loaded: impl Iterator<Item = &'a T>) {
    all.extend(loaded);
    all.sort_unstable();
    all.dedup();
}

fn run(raws: impl IntoIterator<Item = Raw>, keeps_up: bool, mut see: impl FnMut(&World)) {
    let writebacks = if keeps_up { 1_000 } else { 3 };
    let sizes = Sizes { kernels: 4, spaces: 4, threads: 4, mappings: 12, writebacks, ..Sizes::default() };
    let descriptor = KernelDescriptor {
        groups: Groups::new(FRAMES, Access::None),
        processor_shares: Vec::new(),
        maximum_priority: 8,
        locks: Locks { kernels: 2, spaces: 1, threads: 1, mappings: 2 },
    };
    let mut world = World::new(sizes, FRAMES, descriptor);
    let forged = u64::MAX >> 16;
    let mut names = Names {
        kernels: vec![KernelId::from_word(1 << 48 | forged), world.first()],
        spaces: vec![SpaceId::from_word(2 << 48 | forged), SpaceId::from_word(u64::MAX)],
        threads: vec![ThreadId::from_word(3 << 48 | forged), ThreadId::from_word(0)],
        next_tag: 0,
    };
    for raw in raws {
        let op = names.op(&world, raw);
        world.apply(&op);
        assert!(world.mistakes.is_empty(), "{op:?}: {:?} {:?}", world.mistakes, world.machine.mistake);
        names.learn(&world);
        see(&world);
        let late = world.objects.waiting().find(|(_, waiting)| keeps_up && *waiting > 8);
        for _ in 0..late.map_or(0, |(_, waiting)| waiting) {
            world.apply(&Op::Take(late.expect("there is one").0));
        }
    }
}

/// What is compared must happen, or comparing it shows nothing.
#[test]
fn random_calls_come_to_all_that_matters() {
    let mut number = 1_u64;
    let raws = core::iter::from_fn(|| {
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let [.., a, b, c, d] = number.to_le_bytes();
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let [.., e, f, g] = number.to_le_bytes();
        Some([a, b, c, d, e, f, g])
    });
    let mut seen = [0_u32; 9];
    run(raws.take(20_000), true, |world| {
        let Seen {
            was_refused_as_stale,
            has_replaced,
            has_cascaded,
            has_passed_locked,
            has_reclaimed_half_locked,
            has_lost_signal_with_thread,
            has_flushed_foreign_sender,
            was_displaced,
            was_redirected,
        } = world.seen;
        let now = [
            was_refused_as_stale,
            has_replaced,
            has_cascaded,
            has_passed_locked,
            has_reclaimed_half_locked,
            has_lost_signal_with_thread,
            has_flushed_foreign_sender,
            was_displaced,
            was_redirected,
        ];
        seen.iter_mut().zip(now).for_each(|(seen, now)| *seen += u32::from(now));
    });
    println!("{seen:?}");
    assert!(!seen.contains(&0), "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kernels_that_do_anything_get_what_they_should(raws in prop::collection::vec(any::<Raw>(), 0..200)) {
        run(raws, true, |_| ());
    }

    #[test]
    fn kernels_that_take_no_writebacks_are_refused_and_nobody_else(raws in prop::collection::vec(any::<Raw>(), 0..200)) {
        run(raws, false, |_| ());
    }
}
