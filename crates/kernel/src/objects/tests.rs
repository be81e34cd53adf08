//! One thing at a time.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use super::world::Machine;
use super::*;

const FRAMES: u64 = 1 << 12;

struct Bench {
    objects: Objects<u64>,
    machine: Machine,
    first: KernelId,
}

fn descriptor(locks: Locks) -> KernelDescriptor {
    let groups = Groups::new(FRAMES, Access::ReadWrite);
    KernelDescriptor { groups, processor_shares: vec![50, 50], maximum_priority: 9, locks }
}

fn bench(sizes: Sizes) -> Bench {
    let descriptor =
        KernelDescriptor { groups: Groups::new(0, Access::None), ..descriptor(Locks::default()) };
    let (objects, first) = Objects::new(sizes, FRAMES, Tag(1), descriptor).unwrap();
    Bench { objects, machine: Machine::default(), first }
}

fn mapping(space: SpaceId, page: u64, frame: u64) -> Mapping {
    Mapping::read(space, page, frame)
}

impl Bench {
    fn kernel(&mut self, tag: u64, waiting: VecDeque<Writeback<u64>>) -> KernelId {
        let load =
            KernelLoad { tag: Tag(tag), descriptor: descriptor(Locks::default()), locked: false, waiting };
        self.objects.load_kernel(&mut self.machine, self.first, load).unwrap()
    }

    fn space(&mut self, kernel: KernelId, tag: u64) -> SpaceId {
        self.objects
            .load_space(&mut self.machine, kernel, SpaceLoad { tag: Tag(tag), locked: false })
            .unwrap()
    }

    fn thread(&mut self, kernel: KernelId, space: SpaceId, tag: u64) -> ThreadId {
        let load = ThreadLoad { tag: Tag(tag), space, priority: 9, locked: false };
        let thread = self.objects.load_thread(&mut self.machine, kernel, load).unwrap();
        self.machine.running.insert(thread, space);
        thread
    }

    fn map(&mut self, kernel: KernelId, mapping: Mapping) {
        let loaded = self.objects.load_mapping(&mut self.machine, kernel, &mapping);
        assert_eq!(loaded, Ok(Loaded::Stays));
        self.machine.pages.insert((mapping.space, mapping.page), false);
        self.objects.check();
    }

    fn unmap(
        &mut self,
        kernel: KernelId,
        space: SpaceId,
        first_page: u64,
        pages: u64,
    ) -> Result<u32, Refused> {
        let unloaded = self.objects.unload_mappings(&mut self.machine, kernel, space, first_page, pages);
        self.objects.check();
        unloaded
    }

    fn writebacks(&mut self, kernel: KernelId) -> Vec<Writeback<u64>> {
        std::iter::from_fn(|| self.objects.take_writeback(kernel).unwrap()).collect()
    }

    /// Of mappings, the pages; none for what is not one.
    fn pages(&mut self, kernel: KernelId) -> Vec<Option<u64>> {
        let page = |writeback| match writeback {
            Writeback::Mapping { page, .. } => Some(page),
            _ => None,
        };
        self.writebacks(kernel).into_iter().map(page).collect()
    }
}

#[test]
fn a_mapping_costs_less_than_half_a_percent_of_its_page() {
    for mappings in [3, 4, 1_000, 65_536] {
        let map = bench(Sizes { mappings, ..Sizes::default() }).objects.map;
        assert!(map.bytes() <= 20 * mappings as usize, "{} bytes for {mappings}", map.bytes());
    }
}

#[test]
fn names_survive_the_wire_and_those_of_another_kind_are_stale() {
    let mut bench = bench(Sizes::default());
    let space = bench.space(bench.first, 7);
    assert_eq!(SpaceId::from_word(space.to_word()), space);
    assert_eq!(bench.objects.space(SpaceId::from_word(space.to_word())).unwrap().tag, Tag(7));
    for word in [bench.first.to_word(), space.to_word() & 0xffff_ffff_ffff, 0, 1, u64::MAX] {
        let forged = SpaceId::from_word(word);
        assert_eq!(bench.objects.space(forged), Err(Refused::StaleSpace(forged)));
    }
}

#[test]
fn a_name_is_stale_once_its_slot_has_another() {
    let mut bench = bench(Sizes { spaces: 1, ..Sizes::default() });
    let old = bench.space(bench.first, 1);
    let new = bench.space(bench.first, 2);
    assert_eq!(bench.objects.space(old), Err(Refused::StaleSpace(old)));
    assert_eq!(bench.objects.space(new).unwrap().tag, Tag(2));
    assert_eq!(bench.writebacks(bench.first), [Writeback::Space { tag: Tag(1) }]);
}

#[test]
fn what_was_used_is_passed_once() {
    let mut bench = bench(Sizes { spaces: 3, ..Sizes::default() });
    let first = bench.first;
    let spaces = [1, 2, 3].map(|tag| bench.space(first, tag));
    spaces.iter().for_each(|space| bench.objects.touch_space(*space));
    bench.space(first, 4);
    assert_eq!(
        bench.writebacks(first),
        [Writeback::Space { tag: Tag(1) }],
        "all were used, so it is their turn"
    );
    bench.objects.touch_space(spaces[1]);
    bench.space(first, 5);
    assert_eq!(bench.writebacks(first), [Writeback::Space { tag: Tag(3) }]);
    bench.space(first, 6);
    assert_eq!(bench.writebacks(first), [Writeback::Space { tag: Tag(4) }], "the hand has gone on");
    bench.space(first, 7);
    assert_eq!(bench.writebacks(first), [Writeback::Space { tag: Tag(2) }]);
}

#[test]
fn a_lock_alone_is_none() {
    let sizes = Sizes { mappings: 5, ..Sizes::default() };
    let locks = Locks { kernels: 0, spaces: 1, threads: 0, mappings: 2 };
    let (objects, first) = Objects::new(sizes, FRAMES, Tag(1), descriptor(locks)).unwrap();
    let mut bench = Bench { objects, machine: Machine::default(), first };
    let load = SpaceLoad { tag: Tag(2), locked: true };
    let locked = bench.objects.load_space(&mut bench.machine, first, load).unwrap();
    let unlocked = bench.space(first, 3);
    for (space, page) in [(locked, 0), (unlocked, 1)] {
        bench.map(first, Mapping { locked: true, ..mapping(space, page, page) });
    }
    let too_many = Mapping { locked: true, ..mapping(locked, 2, 2) };
    let refused = bench.objects.load_mapping(&mut bench.machine, first, &too_many);
    assert_eq!(refused, Err(Refused::LockLimit));
    for page in 2..5 {
        bench.map(first, mapping(unlocked, page, page));
        bench.objects.touch_mapping(unlocked, page);
    }
    bench.map(first, mapping(unlocked, 5, 5));
    assert_eq!(bench.pages(first), [Some(1)], "its space is not locked");
    (6..16).for_each(|page| bench.map(first, mapping(unlocked, page, page)));
    assert!(bench.objects.mapping(locked, 0).is_ok());
}

#[test]
fn a_kernel_that_is_replaced_takes_what_it_has_not_heard_along_and_brings_it_back() {
    let mut bench = bench(Sizes { kernels: 2, ..Sizes::default() });
    let kernel = bench.kernel(2, VecDeque::new());
    let space = bench.space(kernel, 3);
    let thread = bench.thread(kernel, space, 4);
    bench.map(kernel, mapping(space, 5, 6));
    bench.kernel(7, VecDeque::new());
    let mut heard = bench.writebacks(bench.first);
    let Some(Writeback::Kernel { tag: Tag(2), waiting, .. }) = heard.pop() else { panic!("{heard:?}") };
    assert!(heard.is_empty());
    let mapped = Writeback::Mapping { space: Tag(3), page: 5, frame: 6, modified: false, referenced: false };
    let stopped = Writeback::Thread { tag: Tag(4), state: thread.to_word() };
    assert_eq!(waiting, [stopped.clone(), mapped.clone(), Writeback::Space { tag: Tag(3) }]);
    let again = bench.kernel(2, waiting);
    assert_eq!(bench.writebacks(again), [stopped, mapped, Writeback::Space { tag: Tag(3) }]);
    assert_eq!(bench.objects.take_writeback(kernel), Err(Refused::StaleKernel(kernel)));
}

#[test]
fn neighbours_are_unmapped_at_once_and_each_that_was_written_is_known() {
    struct Calls(Vec<(u64, u64)>);
    impl Hardware for Calls {
        type State = u64;
        fn stop(&mut self, _: ThreadId) -> u64 {
            0
        }
        fn unmap(&mut self, _: SpaceId, first_page: u64, pages: u64, modified: &mut dyn FnMut(u64)) {
            self.0.push((first_page, pages));
            // Of pages that nobody has mapped, too: it does no harm.
            (0..20).filter(|page| page % 3 == 0).for_each(modified);
        }
        fn end_space(&mut self, _: SpaceId) {}
    }
    let mut bench = bench(Sizes::default());
    let (first, mut calls) = (bench.first, Calls(Vec::new()));
    let space = bench.space(first, 1);
    (10..14).for_each(|page| bench.map(first, mapping(space, page, page)));
    assert_eq!(bench.objects.unload_mappings(&mut calls, first, space, 0, 13), Ok(3));
    assert_eq!(calls.0, [(10, 3)]);
    bench.objects.unload_space(&mut calls, first, space).unwrap();
    assert_eq!(calls.0, [(10, 3), (13, 1)]);
    let modified = |writeback: Writeback<u64>| matches!(writeback, Writeback::Mapping { modified: true, .. });
    let modified: Vec<bool> = bench.writebacks(first).into_iter().map(modified).collect();
    assert_eq!(modified, [false, false, true, false, false]);
}

#[test]
fn a_space_ends_after_its_pages_and_these_go_after_its_threads() {
    #[derive(Default)]
    struct Calls(Vec<&'static str>);
    impl Hardware for Calls {
        type State = u64;
        fn stop(&mut self, _: ThreadId) -> u64 {
            self.0.push("stop");
            0
        }
        fn unmap(&mut self, _: SpaceId, _: u64, _: u64, _: &mut dyn FnMut(u64)) {
            self.0.push("unmap");
        }
        fn end_space(&mut self, _: SpaceId) {
            self.0.push("end");
        }
    }
    let mut bench = bench(Sizes::default());
    let (first, mut calls) = (bench.first, Calls::default());
    let space = bench.space(first, 1);
    let threads = [2, 3].map(|tag| bench.thread(first, space, tag));
    bench.map(first, mapping(space, 1, 1));
    bench.map(first, Mapping { signal: Some(threads[0]), ..mapping(space, 2, 2) });
    bench.map(first, Mapping { signal: Some(threads[1]), ..mapping(space, 3, 3) });
    bench.objects.unload_space(&mut calls, first, space).unwrap();
    assert_eq!(calls.0, ["stop", "stop", "unmap", "unmap", "unmap", "end"]);
    assert_eq!(bench.objects.waiting().collect::<Vec<_>>(), [(first, 6)]);
    assert_eq!(bench.pages(first), [Some(2), None, Some(3), None, Some(1), None]);
    assert_eq!(bench.objects.waiting().next(), None);
}

#[test]
fn a_flushed_receiver_takes_the_senders_with_it_first_and_a_redirected_one_does_not() {
    let mut bench = bench(Sizes::default());
    let first = bench.first;
    let (sender, receiver) = (bench.space(first, 1), bench.space(first, 2));
    let (one, other) = (bench.thread(first, receiver, 3), bench.thread(first, receiver, 4));
    let signal = |thread| Mapping { signal: Some(thread), ..mapping(receiver, 20, 7) };
    bench.map(first, signal(one));
    bench.map(first, Mapping { writable: true, ..mapping(sender, 10, 7) });
    bench.map(first, mapping(sender, 11, 7));
    let heard_by =
        |bench: &Bench| -> Vec<Receiver> { bench.objects.receivers(sender, 10).unwrap().collect() };
    assert_eq!(heard_by(&bench), [Receiver { space: receiver, page: 20, thread: one }]);

    let version = bench.objects.map_version();
    bench.objects.redirect(first, receiver, 20, other).unwrap();
    assert_ne!(bench.objects.map_version(), version, "who kept the old thread has to look again");
    assert_eq!(heard_by(&bench), [Receiver { space: receiver, page: 20, thread: other }]);
    assert_eq!(bench.pages(first), []);
    bench.map(first, signal(one));
    assert_eq!(bench.pages(first), [Some(20)]);
    assert_eq!(heard_by(&bench), [Receiver { space: receiver, page: 20, thread: one }]);

    assert_eq!(bench.unmap(first, receiver, 0, MAXIMUM_PAGES), Ok(1));
    assert_eq!(bench.pages(first), [Some(10), Some(20)]);
    assert_eq!(bench.objects.mapping(sender, 11), Ok(mapping(sender, 11, 7)));
    let no_signal = Refused::NoSignal { space: sender, page: 11 };
    assert_eq!(bench.objects.redirect(first, sender, 11, one), Err(no_signal));
}

#[test]
fn a_right_that_is_taken_away_takes_the_mappings_of_that_kernel_with_it() {
    let mut bench = bench(Sizes::default());
    let (first, kernel) = (bench.first, bench.kernel(2, VecDeque::new()));
    let (own, space) = (bench.space(first, 1), bench.space(kernel, 2));
    bench.map(first, mapping(own, 1, 130));
    bench.map(kernel, mapping(space, 1, 130));
    bench.map(kernel, Mapping { writable: true, ..mapping(space, 2, 255) });
    bench.map(kernel, Mapping { writable: true, copy_of: Some(130), ..mapping(space, 3, 256) });
    bench.map(kernel, mapping(space, 4, 127));
    let mut set =
        |access, groups| bench.objects.set_access(&mut bench.machine, first, kernel, groups, access);
    set(Access::Read, 1..2).unwrap();
    assert_eq!(set(Access::None, 1..u64::MAX), Err(Refused::NoGroup(u64::MAX)));
    assert_eq!(bench.pages(kernel), [Some(2)]);
    let refused = Refused::NoAccess { frame: 128, wanted: Access::ReadWrite };
    let writable = Mapping { writable: true, ..mapping(space, 9, 128) };
    assert_eq!(bench.objects.load_mapping(&mut bench.machine, kernel, &writable), Err(refused));
    bench.objects.set_access(&mut bench.machine, first, kernel, 1..2, Access::None).unwrap();
    assert_eq!(bench.pages(kernel), [Some(1), Some(3)]);
    assert_eq!(bench.pages(first), []);
    bench.objects.check();
}

#[test]
fn a_group_that_becomes_other_memory_is_unloaded_from_everybody() {
    let mut bench = bench(Sizes::default());
    let (first, kernel) = (bench.first, bench.kernel(2, VecDeque::new()));
    let spaces = [bench.space(first, 3), bench.space(kernel, 4)];
    bench.map(first, mapping(spaces[0], 1, 128));
    bench.map(kernel, mapping(spaces[1], 2, 255));
    bench.map(kernel, mapping(spaces[1], 3, 256));
    bench.map(kernel, Mapping { copy_of: Some(130), ..mapping(spaces[1], 4, 300) });
    let mut clear = |caller, groups: &[u32]| bench.objects.unload_groups(&mut bench.machine, caller, groups);
    assert_eq!(clear(kernel, &[1]), Err(Refused::NotFirst));
    let groups = u32::try_from(FRAMES / FRAMES_IN_GROUP).unwrap();
    for none in [&[1, groups][..], &[3, 1], &[1, 1]] {
        assert_eq!(clear(first, none), Err(Refused::NoGroups));
    }
    assert_eq!(clear(first, &[1, 3]), Ok(()));
    bench.objects.check();
    assert_eq!(bench.pages(first), [Some(1)]);
    assert_eq!(bench.pages(kernel), [Some(2), Some(4)], "a copy that was not made yet needs its source");
    assert!(bench.objects.mapping(spaces[1], 3).is_ok());
}

#[test]
fn access_that_is_none_is_not_understood() {
    let mut groups = Groups::new(40 * FRAMES_IN_GROUP, Access::Read);
    groups.set(3..35, Access::ReadWrite);
    let (count, words): (u64, Vec<u64>) = groups.clone().into();
    assert_eq!(Groups::try_from((count, words.clone())), Ok(groups));
    let refused = |count, words: &[u64]| Groups::try_from((count, words.to_vec())).is_err();
    assert!(refused(count, &words[..1]) && refused(count, &[&words[..], &[0]].concat()));
    assert!(refused(count, &[words[0], words[1] | 1 << 16]), "there is no such group");
    assert!(refused(count, &[words[0] & !0b11 | 0b10, words[1]]), "no access is said so");
    assert!(refused(u64::MAX, &words) && refused(0, &words) && !refused(0, &[]));
}

#[test]
fn a_copy_that_was_made_needs_its_source_no_longer() {
    let mut bench = bench(Sizes::default());
    let first = bench.first;
    let space = bench.space(first, 1);
    bench.map(first, Mapping { writable: true, copy_of: Some(3), ..mapping(space, 1, 2) });
    let users = |bench: &Bench| -> Vec<User> { bench.objects.users(3).collect() };
    assert_eq!(users(&bench), [User { space, page: 1, is_copy: true }]);
    bench.objects.copied(space, 1).unwrap();
    assert_eq!(users(&bench), []);
    assert_eq!(bench.objects.mapping(space, 1).unwrap().copy_of, None);
    bench.objects.copied(space, 1).unwrap();
    bench.objects.check();
}

#[test]
fn who_is_behind_is_refused_and_nobody_else() {
    let mut bench = bench(Sizes { mappings: 3, writebacks: 1, ..Sizes::default() });
    let (first, slow) = (bench.first, bench.kernel(2, VecDeque::new()));
    let (own, space) = (bench.space(first, 1), bench.space(slow, 2));
    (0..3).for_each(|page| bench.map(slow, mapping(space, page, page)));
    (0..3).for_each(|page| bench.map(first, mapping(own, page, page)));
    let again = mapping(space, 9, 9);
    let behind = Refused::Behind { waiting: 3 };
    assert_eq!(bench.objects.load_mapping(&mut bench.machine, slow, &again), Err(behind));
    assert_eq!(bench.unmap(slow, space, 0, 9), Ok(0));
    assert_eq!(bench.pages(slow), [Some(0), Some(1), Some(2)]);
    bench.map(slow, again);
}

#[test]
fn threads_come_down_to_a_lower_maximum() {
    let mut bench = bench(Sizes::default());
    let (first, kernel) = (bench.first, bench.kernel(2, VecDeque::new()));
    let space = bench.space(kernel, 1);
    let thread = bench.thread(kernel, space, 3);
    bench.objects.set_maximum_priority(first, kernel, 4).unwrap();
    assert_eq!(bench.objects.thread(thread).unwrap().priority, 4);
    let refused = Refused::Priority { asked: 5, maximum: 4 };
    assert_eq!(bench.objects.set_priority(kernel, thread, 5), Err(refused));
    assert_eq!(bench.objects.set_maximum_priority(kernel, kernel, 9), Err(Refused::NotFirst));
    assert_eq!(bench.objects.set_maximum_priority(first, first, 9), Err(Refused::IsFirst));
    bench.objects.set_processor_shares(first, kernel, &[100, 0]).unwrap();
    let too_much = Refused::Descriptor(DescriptorError::Share(101));
    assert_eq!(bench.objects.set_processor_shares(first, kernel, &[101]), Err(too_much));
    assert_eq!(bench.objects.kernel(kernel).unwrap().processor_shares, [100, 0]);
}

#[test]
fn limits_leave_something_to_replace() {
    let mut bench = bench(Sizes::default());
    let mut load = |locks| {
        let load = KernelLoad {
            tag: Tag(2),
            descriptor: descriptor(locks),
            locked: false,
            waiting: VecDeque::new(),
        };
        bench.objects.load_kernel(&mut bench.machine, bench.first, load).map(drop)
    };
    let all = |locks: u32| Locks { kernels: 0, spaces: 0, threads: 0, mappings: locks };
    assert_eq!(load(all(u32::MAX)), Err(Refused::TooManyLocks));
    assert_eq!(load(Locks { spaces: 64, ..all(0) }), Err(Refused::TooManyLocks));
    assert_eq!(load(Locks { threads: 256, ..all(0) }), Err(Refused::TooManyLocks));
    assert_eq!(load(all(65_534)), Err(Refused::TooManyLocks));
    assert_eq!(load(Locks { spaces: 63, threads: 255, ..all(65_533) }), Ok(()));
    assert_eq!(load(all(1)), Err(Refused::TooManyLocks));
}

#[test]
fn a_frame_that_is_mapped_without_end_replaces_its_own() {
    let mut bench = bench(Sizes { mappings: 8_192, ..Sizes::default() });
    let first = bench.first;
    let space = bench.space(first, 1);
    let loaded = bench.objects.load_mapping(&mut bench.machine, first, &mapping(space, 1 << 20, 1));
    assert_eq!(loaded, Ok(Loaded::Stays));
    for page in 0..2_000 {
        let loaded = bench.objects.load_mapping(&mut bench.machine, first, &mapping(space, page, 7));
        assert_eq!(loaded, Ok(Loaded::Stays));
        bench.machine.pages.insert((space, page), false);
        bench.writebacks(first);
    }
    bench.objects.check();
    let users = bench.objects.users(7).count();
    assert!((512..=1_024).contains(&users), "{users}");
    assert!(bench.objects.mapping(space, 1 << 20).is_ok());
    assert!(bench.objects.mapping(space, 1_999).is_ok());
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let mut bench = bench(Sizes::default());
    let first = bench.first;
    let space = bench.space(first, 1);
    let mut load = |mapping| bench.objects.load_mapping(&mut bench.machine, first, &mapping);
    for page in [MAXIMUM_PAGES, u64::MAX] {
        assert_eq!(load(mapping(space, page, 0)), Err(Refused::NoPage(page)));
    }
    for frame in [FRAMES, 1 << 32, u64::MAX] {
        assert_eq!(load(mapping(space, 0, frame)), Err(Refused::NoFrame(frame)));
        let copy = Mapping { copy_of: Some(frame), ..mapping(space, 0, 0) };
        assert_eq!(load(copy), Err(Refused::NoFrame(frame)));
    }
    assert_eq!(bench.objects.users(u64::MAX).count(), 0);
    assert_eq!(bench.unmap(first, space, 1, u64::MAX), Err(Refused::NoPage(u64::MAX)));
    assert_eq!(bench.unmap(first, space, 0, MAXIMUM_PAGES), Ok(0));
    bench.objects.touch_mapping(space, u64::MAX);
    let sizes = Sizes { kernels: 1, ..Sizes::default() };
    assert_eq!(
        Objects::<u64>::new(sizes, 1, Tag(0), descriptor(Locks::default())).map(drop),
        Err(Refused::Sizes(SizesError::Kernels(1)))
    );
}

/// Prints how long loads and unloads of mappings take, with a machine that does nothing.
/// `cargo test --release -p comb-kernel -- --ignored --nocapture how_long`
#[test]
#[ignore = "a timing, for a person to read"]
fn how_long_loads_and_unloads_of_mappings_take() {
    struct Nothing;
    impl Hardware for Nothing {
        type State = u64;
        fn stop(&mut self, _: ThreadId) -> u64 {
            0
        }
        fn unmap(&mut self, _: SpaceId, _: u64, _: u64, _: &mut dyn FnMut(u64)) {}
        fn end_space(&mut self, _: SpaceId) {}
    }
    const RECORDS: u32 = 65_536;
    const ROUNDS: u32 = 20;
    let groups = Groups::new(MAXIMUM_FRAMES, Access::None);
    let sizes = Sizes { mappings: RECORDS, ..Sizes::default() };
    let descriptor = KernelDescriptor { groups, ..descriptor(Locks::default()) };
    let (mut objects, first) = Objects::<u64>::new(sizes, MAXIMUM_FRAMES, Tag(0), descriptor).unwrap();
    let load = SpaceLoad { tag: Tag(1), locked: false };
    let space = objects.load_space(&mut Nothing, first, load).unwrap();
    let report = |what: &str, began: Instant, times: u32| {
        println!("{:5.0} ns per {what}", began.elapsed().as_secs_f64() * 1e9 / f64::from(times));
    };
    // Pages and frames in no order, as far as caches are concerned.
    let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (order, is_scattered) in [("in order", false), ("scattered", true)] {
        let mapping = |number: u32| {
            let number = u64::from(number);
            let (page, frame) = if is_scattered {
                (scattered(number) >> 28, scattered(number) >> 40)
            } else {
                (number, number)
            };
            mapping(space, page, frame)
        };
        objects.unload_mappings(&mut Nothing, first, space, 0, MAXIMUM_PAGES).unwrap();
        while objects.take_writeback(first).unwrap().is_some() {}
        let began = Instant::now();
        for number in 0..RECORDS {
            let _ = black_box(objects.load_mapping(&mut Nothing, first, &mapping(number)).unwrap());
        }
        report(&format!("load, {order}"), began, RECORDS);
        let began = Instant::now();
        for number in RECORDS..RECORDS * ROUNDS {
            let _ = black_box(objects.load_mapping(&mut Nothing, first, &mapping(number)).unwrap());
            black_box(objects.take_writeback(first).unwrap());
        }
        report(&format!("load with replacement and its writeback, {order}"), began, RECORDS * (ROUNDS - 1));
        let last = RECORDS * (ROUNDS - 1)..RECORDS * ROUNDS;
        let began = Instant::now();
        for number in last.clone() {
            black_box(objects.mapping(space, mapping(number).page).unwrap());
        }
        report(&format!("look-up, {order}"), began, RECORDS);
        let began = Instant::now();
        for number in last {
            let page = mapping(number).page;
            black_box(objects.unload_mappings(&mut Nothing, first, space, page, 1).unwrap());
            black_box(objects.take_writeback(first).unwrap());
        }
        report(&format!("unload of one and its writeback, {order}"), began, RECORDS);
    }
    for number in 0..RECORDS {
        let _ = objects.load_mapping(&mut Nothing, first, &mapping(space, u64::from(number), 0)).unwrap();
        while objects.take_writeback(first).unwrap().is_some() {}
    }
    let began = Instant::now();
    for number in RECORDS..2 * RECORDS {
        let _ = objects.load_mapping(&mut Nothing, first, &mapping(space, u64::from(number), 0)).unwrap();
        while objects.take_writeback(first).unwrap().is_some() {}
    }
    report("load of a frame that is mapped as often as can be", began, RECORDS);
    let began = Instant::now();
    for _ in 0..ROUNDS {
        black_box(objects.unload_mappings(&mut Nothing, first, space, 1 << 30, 1 << 30).unwrap());
    }
    report("unload of a long range that has nothing", began, ROUNDS);
}
