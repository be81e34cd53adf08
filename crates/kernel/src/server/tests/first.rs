//! A first kernel in another process, and what it grants and takes.

use super::*;
use crate::calls::First;
use crate::client::line::hand_over;
use crate::objects::Writeback;

/// Stores `rbx` where `rdi` points, and calls, again and again, counting.
const COUNTS: &[u8] = &[0x48, 0xff, 0xc3, 0x48, 0x89, 0x1f, 0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 0xf1];
const DATA_PAGE: u64 = 0x70000;

fn load(groups: std::ops::Range<u64>) -> KernelLoad<Box<State>> {
    let mut granted = Groups::new(u64::from(GROUPS) * FRAMES_IN_GROUP, Access::None);
    granted.set(groups, Access::ReadWrite);
    let descriptor = KernelDescriptor {
        groups: granted,
        processor_shares: vec![10],
        maximum_priority: 3,
        locks: Locks::default(),
    };
    KernelLoad { tag: Tag(7), descriptor, locked: false, waiting: VecDeque::new() }
}

/// A first kernel that is served, and nobody beside it.
fn first() -> (JoinHandle<()>, Client) {
    let (told, tells) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (supervisor, first) = Supervisor::new(SIZES, GROUPS).unwrap();
        let mut server = Server::new(supervisor);
        told.send(server.open(first).unwrap()).unwrap();
        server.run(0);
    });
    (server, Client::new(tells.recv().unwrap(), 0).unwrap())
}

fn run(client: &Client, thread: ThreadId) -> Option<Stop> {
    let area = client.area(thread).unwrap();
    area.resume();
    for _ in 0..1000 {
        if area.is_stopped() {
            return area.stop();
        }
        client.bell().listen(0, Some(Duration::from_millis(20)), |_| {});
    }
    panic!("it does not stop");
}

/// A space with a program that counts, of these frames.
fn count(client: &mut Client, code: u64, data: u64) -> (SpaceId, ThreadId) {
    client.memory_for_tests().copy_in(usize::try_from(code).unwrap() * 4096, COUNTS);
    let space = client.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
    client.load_mappings(&mapping(space, CODE_PAGE, code, true), 1).unwrap();
    client.load_mappings(&mapping(space, DATA_PAGE, data, false), 1).unwrap();
    let registers = Registers { rip: CODE_PAGE << 12, rdi: DATA_PAGE << 12, ..Registers::default() };
    let state = State { registers, ..State::default() };
    let load = ThreadLoad { tag: Tag(2), space, priority: 0, locked: false };
    let thread = client.load_thread(load, &state, 0).unwrap();
    (space, thread)
}

fn word(client: &Client, frame: u64) -> u64 {
    let mut bytes = [0; 8];
    client.memory_for_tests().copy_out(usize::try_from(frame).unwrap() * 4096, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[test]
fn what_was_taken_is_written_by_nobody_who_had_it() {
    let (server, mut first) = first();
    let (kernel, counter) = first.load_kernel(load(1..2)).unwrap();
    let mut other = Client::new(counter.into(), 0).unwrap();
    first.set_access(kernel, 3..4, Access::ReadWrite).unwrap();
    // It hears with its next call.
    let (_, thread) = count(&mut other, 128, 128 + 1);
    assert!(other.may_write(1) && other.may_write(3) && !other.may_write(2));
    let (data, space) = (3 * 128 + 5, other.load_space(SpaceLoad { tag: Tag(3), locked: false }).unwrap());
    other.load_mappings(&mapping(space, DATA_PAGE, data, false), 1).unwrap();
    let at = usize::try_from(data).unwrap() * 4096;
    other.memory_for_tests().copy_in(at, &7_u64.to_le_bytes());
    assert_eq!(word(&first, data), 7);

    first.set_access(kernel, 3..4, Access::None).unwrap();
    other.memory_for_tests().copy_in(at, &8_u64.to_le_bytes());
    assert_eq!(word(&first, data), 7, "the content stays, and is out of its reach");
    let Some(Writeback::Mapping { space: Tag(3), frame, .. }) = other.take_writeback().unwrap() else {
        panic!("it hears of what is not mapped any more")
    };
    assert_eq!(frame, data);
    assert!(!other.may_write(3));
    let refused = other.load_mappings(&mapping(space, DATA_PAGE, data, false), 1);
    assert!(matches!(refused, Err(CallError::Refused(Refused::NoAccess { .. }))), "{refused:?}");
    // The rest goes on.
    assert_eq!(run(&other, thread), Some(Stop::Call { is_foreign: false }));
    assert_eq!(word(&other, 129), 1);
    drop((first, other));
    server.join().unwrap();
}

#[test]
fn a_cleared_group_is_other_memory_for_all_who_have_it() {
    let (server, mut first) = first();
    let (_, counter) = first.load_kernel(load(1..2)).unwrap();
    let mut other = Client::new(counter.into(), 0).unwrap();
    let (space, thread) = count(&mut other, 128, 128 + 1);
    assert_eq!(run(&other, thread), Some(Stop::Call { is_foreign: false }));
    assert_eq!([word(&first, 129), word(&other, 129)], [1, 1]);
    first.clear_groups(&[1]).unwrap();
    assert_eq!(word(&first, 129), 0);
    let fault = run(&other, thread);
    assert_eq!(
        fault,
        Some(Stop::Fault { address: (CODE_PAGE << 12) + 13, touch: crate::thread::Touch::Execute })
    );
    // It has heard that its mappings are gone, and that its memory is another.
    let mut gone = 0;
    while let Some(Writeback::Mapping { .. }) = other.take_writeback().unwrap() {
        gone += 1;
    }
    assert_eq!(gone, 2);
    other.memory_for_tests().copy_in(128 * 4096, COUNTS);
    other.load_mappings(&mapping(space, CODE_PAGE, 128, true), 1).unwrap();
    other.load_mappings(&mapping(space, DATA_PAGE, 129, false), 1).unwrap();
    assert_eq!(run(&other, thread), Some(Stop::Call { is_foreign: false }));
    assert_eq!([word(&first, 129), word(&other, 129)], [2, 2], "all see the same memory again");
    drop((first, other));
    server.join().unwrap();
}

#[test]
fn a_kernel_goes_on_where_it_was_with_other_groups_at_another_counter() {
    let (server, mut first) = first();
    let (line, other_end) = UnixStream::pair().unwrap();
    let (kernel, counter) = first.load_kernel(load(1..3)).unwrap();
    hand_over(&line, &counter, &[]).unwrap();
    drop(counter);
    let mut other = Client::by_line(other_end, 0).unwrap();
    // Its code is in one group, its data in the other.
    let (space, thread) = count(&mut other, 128, 256);
    assert_eq!(run(&other, thread), Some(Stop::Call { is_foreign: false }));

    first.unload_kernel(kernel).unwrap();
    let Some(Writeback::Kernel { tag: Tag(7), mut waiting, .. }) = first.take_writeback().unwrap() else {
        panic!("the first kernel hears of it")
    };
    assert_eq!(waiting.len(), 4, "{waiting:?}");
    // The groups of the two change places, while others have had them.
    let mut pages = [[0; 4096]; 2];
    for (page, frame) in pages.iter_mut().zip([128, 256]) {
        first.read(frame, 0, page);
    }
    first.put_away(Tag(7), &[1, 2]).unwrap();
    assert_eq!([128, 256].map(|frame| word(&first, frame)), [0, 0]);
    first.clear_groups(&[1, 2]).unwrap();
    first.put_back(Tag(7), &[2]).unwrap();
    first.put_back(Tag(7), &[1]).unwrap();
    let no_more = first.put_back(Tag(7), &[3]);
    assert_eq!(no_more, Err(CallError::Refused(Refused::NotAway { name: Tag(7), groups: 1 })));
    for (page, frame) in pages.iter().zip([256, 128]) {
        first.write(frame, 0, page);
    }
    // Before it has heard of anything, it stores where it always has.
    assert_eq!(word(&other, 256), 1);
    other.memory_for_tests().copy_in(257 * 4096, &9_u64.to_le_bytes());
    assert_eq!(word(&first, 129), 9);
    for writeback in &mut waiting {
        if let Writeback::Mapping { frame, .. } = writeback {
            *frame = if *frame == 128 { 256 } else { 128 };
        }
    }
    let (again, counter) = first.load_kernel(KernelLoad { waiting, ..load(1..3) }).unwrap();
    assert_ne!(again, kernel);
    hand_over(&line, &counter, &[(1, 2), (2, 1)]).unwrap();
    drop(counter);

    let stale = other.unload_space(space);
    assert_eq!(stale, Err(CallError::Reloaded));
    let (mut state, mut frames) = (None, Vec::new());
    while let Some(writeback) = other.take_writeback().unwrap() {
        match writeback {
            Writeback::Thread { tag: Tag(2), state: its } => state = Some(its),
            Writeback::Mapping { frame, .. } => frames.push(frame),
            Writeback::Space { tag: Tag(1) } => {}
            other => panic!("{other:?}"),
        }
    }
    frames.sort_unstable();
    assert_eq!(frames, [128, 256], "by the numbers that it knows");
    assert_eq!(word(&other, 256), 1);
    let space = other.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
    other.load_mappings(&mapping(space, CODE_PAGE, 128, true), 1).unwrap();
    other.load_mappings(&mapping(space, DATA_PAGE, 256, false), 1).unwrap();
    let load = ThreadLoad { tag: Tag(2), space, priority: 0, locked: false };
    let thread = other.load_thread(load, &state.unwrap(), 0).unwrap();
    assert_eq!(run(&other, thread), Some(Stop::Call { is_foreign: false }));
    assert_eq!([word(&first, 128), word(&other, 256)], [2, 2]);
    drop((first, other));
    server.join().unwrap();
}

#[test]
fn the_first_kernel_hears_of_kernels_that_end_and_loses_nothing_it_had_not_heard() {
    let (server, mut first) = first();
    let space = first.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
    let (kernel, counter) = first.load_kernel(load(1..3)).unwrap();
    first.unload_space(space).unwrap();
    drop(counter);
    let mut told = Vec::new();
    let since = std::time::Instant::now();
    while told.len() < 2 && since.elapsed() < Duration::from_secs(60) {
        match first.take_writeback().unwrap() {
            Some(writeback) => told.push(writeback),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(
        matches!(told[..], [Writeback::Space { tag: Tag(1) }, Writeback::Kernel { tag: Tag(7), .. }]),
        "{told:?}"
    );
    let stale = first.set_maximum_priority(kernel, 1);
    assert_eq!(stale, Err(CallError::Refused(Refused::StaleKernel(kernel))));
    assert_eq!(first.clear_groups(&[GROUPS]), Err(CallError::Refused(Refused::NoGroups)));
    drop(first);
    server.join().unwrap();
}

#[test]
fn who_does_not_listen_stops_nobody_and_hears_at_last_what_is_so() {
    let (server, mut first) = first();
    let (kernel, counter) = first.load_kernel(load(1..2)).unwrap();
    let mut other = Client::new(counter.into(), 0).unwrap();
    // More than a socket holds.
    for round in 0..3000_u64 {
        let access = if round % 2 == 0 { Access::ReadWrite } else { Access::None };
        first.set_access(kernel, 3..4, access).unwrap();
    }
    first.set_access(kernel, 5..7, Access::ReadWrite).unwrap();
    let since = std::time::Instant::now();
    while !(other.may_write(5) && other.may_write(6)) {
        assert!(since.elapsed() < Duration::from_secs(60), "it hears");
        assert_eq!(other.take_writeback(), Ok(None));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!other.may_write(3) && other.may_write(1));
    drop((first, other));
    server.join().unwrap();
}

/// Once, what came by the socket for a space was taken for news of page groups, or the other way round.
#[test]
fn spaces_come_and_go_while_grants_change() {
    let (server, mut first) = first();
    let (kernel, counter) = first.load_kernel(load(1..2)).unwrap();
    let should_end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| {
            let mut other = Client::new(counter.into(), 0).unwrap();
            let mut loaded = 0;
            while !should_end.load(Acquire) {
                let space = other.load_space(SpaceLoad { tag: Tag(1), locked: false })?;
                other.unload_space(space)?;
                assert!(matches!(other.take_writeback()?, Some(Writeback::Space { tag: Tag(1) })));
                loaded += 1;
            }
            Ok::<u32, CallError>(loaded)
        });
        let since = std::time::Instant::now();
        let mut kernels = 0;
        // Those that it loads come by a socket, too.
        while kernels < 200 && !loads.is_finished() && since.elapsed() < Duration::from_secs(60) {
            for access in [Access::ReadWrite, Access::None] {
                first.set_access(kernel, 3..5, access).unwrap();
            }
            let (more, _counter) = first.load_kernel(load(5..6)).unwrap();
            first.clear_groups(&[3, 5]).unwrap();
            first.unload_kernel(more).unwrap();
            while first.take_writeback().unwrap().is_some() {}
            kernels += 1;
        }
        should_end.store(true, SeqCst);
        let loaded = loads.join().unwrap();
        assert!(loaded.is_ok_and(|loaded| loaded > 0), "{loaded:?}");
        assert_eq!(kernels, 200);
    });
    drop(first);
    server.join().unwrap();
}

#[test]
fn who_has_no_share_left_is_served_once_a_tick() {
    const CALLS: u32 = 20;
    let (server, mut first) = first();
    let mut without = load(1..2);
    // Nothing of any processor, so that it never has any left.
    without.descriptor.processor_shares = vec![0];
    let (_, counter) = first.load_kernel(without).unwrap();
    let mut other = Client::new(counter.into(), 0).unwrap();
    let began = Instant::now();
    for _ in 0..CALLS {
        assert_eq!(other.set_own_priority(0), Err(CallError::NoProcess));
    }
    // However fast it asks, and whatever else this machine does.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(10) * (CALLS - 2), "{took:?}");
    drop((first, other));
    server.join().unwrap();
}
