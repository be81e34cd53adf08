//! Kernels that ask for anything, and one beside them that goes on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use comb_types::Dice;

use super::*;
use crate::calls::Calls;
use crate::client::Client;
use crate::objects::{
    FRAMES_IN_GROUP, Groups, KernelDescriptor, KernelLoad, Locks, Mapping, Refused, Sizes, SpaceId,
    SpaceLoad, Tag, ThreadId, ThreadLoad,
};
use crate::shares::USUAL_PRIORITY;
use crate::supervisor::{Interrupted, State};
use crate::thread::{Registers, Stop};
use crate::wire::{OfFirst, receive_descriptors};

mod first;

const SIZES: Sizes = Sizes { kernels: 4, spaces: 6, threads: 12, mappings: 256, writebacks: 64, seed: 3 };
const GROUPS: u32 = 8;
const CODE_PAGE: u64 = 0x400;

/// A server with two kernels: the first, which has all but the upper half of memory to itself, and another, which has that half.
fn served() -> (JoinHandle<Server>, [UnixStream; 2]) {
    let (told, tells) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (supervisor, first) = Supervisor::new(SIZES, GROUPS).unwrap();
        let mut server = Server::new(supervisor);
        let mut groups = Groups::new(u64::from(GROUPS) * FRAMES_IN_GROUP, Access::None);
        groups.set(u64::from(GROUPS / 2)..u64::from(GROUPS), Access::ReadWrite);
        let descriptor = KernelDescriptor {
            groups,
            processor_shares: Vec::new(),
            maximum_priority: USUAL_PRIORITY,
            locks: Locks { kernels: 0, spaces: 1, threads: 1, mappings: 8 },
        };
        let load = KernelLoad { tag: Tag(9), descriptor, locked: false, waiting: VecDeque::new() };
        let other = server.supervisor().load_kernel(first, load).unwrap();
        told.send([server.open(first).unwrap(), server.open(other).unwrap()]).unwrap();
        server.run(0);
        server
    });
    (server, tells.recv().unwrap())
}

fn mapping(space: SpaceId, page: u64, frame: u64, is_code: bool) -> Mapping {
    Mapping { writable: !is_code, executable: is_code, ..Mapping::read(space, page, frame) }
}

/// Runs a program that calls, until it is told to end. How many calls were answered.
fn go_on(client: &mut Client, should_end: &AtomicBool, done: &AtomicU64) {
    // 1: inc rbx; mov eax, 39; syscall; jmp 1b
    let program: &[u8] = &[0x48, 0xff, 0xc3, 0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 0xf4];
    client.memory_for_tests().copy_in(0, program);
    let mut expected = 0;
    let mut loaded: Option<(SpaceId, ThreadId)> = None;
    while !should_end.load(Acquire) {
        // Others' loads replace what this kernel has: then it loads it again.
        let stopped = loaded.and_then(|(_, thread)| {
            let area = client.area(thread).ok()?;
            area.resume();
            for _ in 0..100 {
                if area.is_stopped() {
                    return area.stop();
                }
                client.bell().listen(0, Some(Duration::from_millis(5)), |_| {});
            }
            None
        });
        let rbx = loaded
            .and_then(|(_, thread)| client.area(thread).ok()?.registers())
            .map(|registers| registers.rbx);
        match stopped {
            Some(Stop::Call { is_foreign: false }) => {
                expected += 1;
                assert_eq!(rbx, Some(expected));
                done.store(expected, SeqCst);
            }
            Some(Stop::Fault { .. } | Stop::Interrupted | Stop::Begins)
            | None
            | Some(Stop::Exception { .. }) => {
                if let Some((space, _)) = loaded.take() {
                    let _ = client.unload_space(space);
                }
                while client.take_writeback().unwrap().is_some() {}
                let Ok(space) = client.load_space(SpaceLoad { tag: Tag(1), locked: false }) else { continue };
                let registers = Registers { rip: CODE_PAGE << 12, rbx: expected, ..Registers::default() };
                let state = State { registers, ..State::default() };
                let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
                let thread = client.load_thread(load, &state, 0);
                let code = client.load_mappings(&mapping(space, CODE_PAGE, 0, true), 1);
                loaded = thread.ok().zip(code.ok()).map(|(thread, ())| (space, thread));
            }
            Some(other) => panic!("{other:?}"),
        }
    }
}

fn below(dice: &mut Dice, limit: u64) -> u64 {
    dice.roll() % limit
}

/// What only the first kernel can ask. Two kernels are there: the first in the first slot.
fn any_of_first(dice: &mut Dice, word: impl Fn(&mut Dice) -> u64) -> OfFirst {
    let kernel = |dice: &mut Dice| KernelId::from_word(1 << 48 | 1 << 16 | below(dice, 3));
    let groups = |dice: &mut Dice| [below(dice, 10)..below(dice, 10), word(dice)..word(dice)];
    let list =
        |dice: &mut Dice| (0..below(dice, 3)).map(|_| u32::try_from(below(dice, 10)).unwrap()).collect();
    match below(dice, 9) {
        0 => {
            let groups = Groups::new(u64::from(GROUPS) * FRAMES_IN_GROUP, Access::ReadWrite);
            let (processor_shares, locks) = (vec![100; 3], Locks { mappings: 1, ..Locks::default() });
            let descriptor = KernelDescriptor { groups, processor_shares, maximum_priority: 9, locks };
            OfFirst::LoadKernel { tag: Tag(word(dice)), descriptor, locked: below(dice, 2) == 0, waiting: 0 }
        }
        1 => OfFirst::HandOver(Gone::Space { tag: Tag(word(dice)) }),
        2 => OfFirst::UnloadKernel(kernel(dice)),
        3 => {
            let [few, any] = groups(dice);
            let groups = if below(dice, 2) == 0 { few } else { any };
            OfFirst::SetAccess { kernel: kernel(dice), groups, access: Access::ReadWrite }
        }
        4 => OfFirst::SetProcessorShares { kernel: kernel(dice), shares: vec![0; 2] },
        5 => OfFirst::SetMaximumPriority { kernel: kernel(dice), maximum: 200 },
        6 => OfFirst::PutAway { name: Tag(word(dice)), groups: list(dice) },
        7 => OfFirst::PutBack { name: Tag(word(dice)), groups: list(dice) },
        _ => OfFirst::ClearGroups(list(dice)),
    }
}

/// Any request, with numbers that are often nearly right.
fn any_request(dice: &mut Dice, spaces: &[SpaceId], threads: &[ThreadId]) -> Request {
    let word = |dice: &mut Dice| match below(dice, 4) {
        0 => below(dice, 16),
        1 => u64::MAX - below(dice, 16),
        2 => 1 << below(dice, 64),
        _ => CODE_PAGE + below(dice, 64),
    };
    let pick = |dice: &mut Dice, length: usize| usize::try_from(below(dice, length as u64)).unwrap();
    let space = |dice: &mut Dice| match spaces.len() {
        0 => SpaceId::from_word(below(dice, 1 << 20)),
        length if below(dice, 8) > 0 => spaces[pick(dice, length)],
        _ => SpaceId::from_word(word(dice) | 2 << 48),
    };
    let thread = |dice: &mut Dice| match threads.len() {
        0 => ThreadId::from_word(below(dice, 1 << 20)),
        length if below(dice, 8) > 0 => threads[pick(dice, length)],
        _ => ThreadId::from_word(word(dice) | 3 << 48),
    };
    match below(dice, 11) {
        10 => Request::OfFirst(any_of_first(dice, word)),
        0 => Request::LoadSpace(SpaceLoad { tag: Tag(word(dice)), locked: below(dice, 2) == 0 }),
        1 => {
            let registers =
                Registers { rip: word(dice), rsp: word(dice), flags: word(dice), ..Registers::default() };
            let vectors = vec![0xff; pick(dice, 5) * 300];
            let interrupted =
                (below(dice, 3) == 0).then(|| Interrupted { registers, vectors: vectors.clone() });
            let signals = if below(dice, 2) == 0 { vec![word(dice); 258] } else { vec![word(dice)] };
            let segments = [below(dice, 1 << 47), 0];
            let signal_function = word(dice);
            let used = (below(dice, 2) == 0).then(|| Duration::new(word(dice), 0));
            let state = State {
                registers,
                segments,
                vectors,
                stop: None,
                signal_function,
                signals,
                interrupted,
                used,
            };
            let load =
                ThreadLoad { tag: Tag(1), space: space(dice), priority: 200, locked: below(dice, 2) == 0 };
            let load = ThreadLoad { priority: u8::try_from(below(dice, 24)).unwrap(), ..load };
            Request::LoadThread { load, state: Box::new(state), spins: 0 }
        }
        2 | 3 => {
            let frame = match below(dice, 3) {
                0 => word(dice),
                _ => 512 + below(dice, 512),
            };
            let mut first = mapping(space(dice), word(dice), frame, below(dice, 2) == 0);
            (first.locked, first.message) = (below(dice, 4) == 0, below(dice, 4) == 0);
            first.signal = (below(dice, 4) == 0).then(|| thread(dice));
            first.copy_of = (below(dice, 8) == 0).then(|| 512 + below(dice, 512));
            Request::LoadMappings { first, count: u32::try_from(below(dice, 200)).unwrap() }
        }
        4 if below(dice, 2) == 0 => Request::MakeCopy { space: space(dice), page: word(dice) },
        4 => Request::ForbidWrites { space: space(dice), page: word(dice), pages: word(dice) },
        5 => Request::UnloadMappings { space: space(dice), page: word(dice), pages: word(dice) },
        6 => Request::UnloadThread(thread(dice)),
        7 => Request::UnloadSpace(space(dice)),
        8 => match below(dice, 5) {
            4 => Request::Used(thread(dice)),
            3 => Request::KeepOn {
                thread: thread(dice),
                processor: Some(u32::try_from(below(dice, 1 << 32)).unwrap()),
            },
            0 => Request::Interrupt(thread(dice)),
            1 => Request::Signal { space: space(dice), address: word(dice) << 12 },
            _ => Request::Redirect { space: space(dice), page: word(dice), thread: thread(dice) },
        },
        _ => Request::TakeWriteback,
    }
}

/// Asks as a kernel can that knows nothing of rules.
fn be_hostile(socket: &UnixStream, seed: u64, requests: u32) {
    let (_, descriptors) = receive_descriptors(socket).unwrap();
    let counter = Shared::map(descriptors[0].as_fd(), COUNTER_BYTES).unwrap();
    let mut dice = Dice::new(seed);
    let (mut spaces, mut threads) = (Vec::new(), Vec::new());
    socket.set_nonblocking(true).unwrap();
    for _ in 0..requests {
        // A socket that nobody reads is full some time.
        if below(&mut dice, 2) == 0 {
            while receive_descriptors(socket).is_ok() {}
        }
        let request = any_request(&mut dice, &spaces, &threads);
        if put(&counter, &request).is_none() {
            continue;
        }
        let is_changed = below(&mut dice, 4) == 0;
        if is_changed {
            // Some of its bytes are others, and its length is any.
            for _ in 0..=below(&mut dice, 4) {
                let at = usize::try_from(below(&mut dice, 100)).unwrap();
                counter.copy_in(at + 64, &[u8::try_from(below(&mut dice, 256)).unwrap()]);
            }
            if below(&mut dice, 4) == 0 {
                counter.word(4).store(u32::try_from(below(&mut dice, 1 << 32)).unwrap(), SeqCst);
            }
        }
        counter.word(TURN).store(ASKED, SeqCst);
        rustix::io::write(&descriptors[1], &1_u64.to_ne_bytes()).unwrap();
        let since = std::time::Instant::now();
        while counter.word(TURN).load(SeqCst) != ANSWERED {
            host::wait(counter.word(TURN), ASKED, Some(Duration::from_millis(1)));
            assert!(since.elapsed() < Duration::from_secs(20), "it is answered");
        }
        let answer = take(&counter);
        if !is_changed && matches!(request, Request::OfFirst(_)) {
            assert_eq!(answer, Some(Answer::Failed(Failure::Refused(Refused::NotFirst))), "{request:?}");
        }
        match answer {
            Some(Answer::Space(space)) => spaces.push(space),
            Some(Answer::Thread { thread, .. }) => threads.push(thread),
            _ => {}
        }
        let keep = spaces.len().saturating_sub(8);
        spaces.drain(..keep);
        let keep = threads.len().saturating_sub(8);
        threads.drain(..keep);
    }
}

#[test]
fn a_kernel_that_asks_for_anything_disturbs_no_other() {
    for seed in 0..3 {
        let (server, [first, other]) = served();
        let (should_end, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = Client::new(first, 0).unwrap();
                go_on(&mut client, &should_end, &done);
            });
            let hostile = scope.spawn(|| {
                be_hostile(&other, seed, 1500);
                // And is gone in the middle of something.
                drop(other);
            });
            let asked = hostile.join();
            // Else nobody would hear of it: the other goes on.
            should_end.store(asked.is_err(), SeqCst);
            asked.unwrap();
            let before = done.load(SeqCst);
            let since = std::time::Instant::now();
            while done.load(SeqCst) < before + 100 && since.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            should_end.store(true, SeqCst);
            assert!(done.load(SeqCst) >= before + 100, "{before} calls, and no more");
        });
        drop(server.join().unwrap());
    }
}

#[test]
fn memory_that_was_not_granted_is_out_of_reach() {
    let (server, [first, other]) = served();
    let first = Client::new(first, 0).unwrap();
    let mut other = Client::new(other, 0).unwrap();
    assert!((0..GROUPS).all(|group| first.may_write(group)));
    assert!((0..GROUPS).all(|group| other.may_write(group) == (group >= GROUPS / 2)));
    let space = other.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
    let refused = other.load_mappings(&mapping(space, CODE_PAGE, 0, true), 1);
    assert!(matches!(refused, Err(CallError::Refused(Refused::NoAccess { .. }))), "{refused:?}");
    other.load_mappings(&mapping(space, CODE_PAGE, 512, true), 1).unwrap();
    drop((first, other));
    drop(server.join().unwrap());
}
