//! Mutates what kernels ask of a server, for a bounded time: requests with bits turned over, cut off, spliced, with numbers as large as can be. Whatever comes:
//! no panic, an answer, and what a third kernel has locked stays as it is unless the first kernel wants it otherwise.
//!
//! `COMB_FUZZ_SECONDS` is the time of each test (1), `COMB_FUZZ_SEED` replays one. A failure prints its seed.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use comb_kernel::objects::{
    Access, Groups, KernelDescriptor, KernelId, KernelLoad, Locks, Mapping, Sizes, SpaceId, SpaceLoad, Tag,
    ThreadId, ThreadLoad,
};
use comb_kernel::server::Server;
use comb_kernel::supervisor::{Interrupted, State, Supervisor};
use comb_kernel::thread::Registers;
use comb_types::Dice;
use comb_types::fuzz::Fuzz;
use serde::Serialize;

const SIZES: Sizes = Sizes { kernels: 8, spaces: 8, threads: 8, mappings: 128, writebacks: 32, seed: 7 };
const GROUPS: u32 = 6;
const FRAMES: u64 = GROUPS as u64 * 128;
const PAGE: u64 = 0x400;

/// What a kernel can ask, as it is on the wire.
#[derive(Clone, Serialize)]
enum Request {
    LoadSpace(SpaceLoad),
    LoadThread { load: ThreadLoad, state: Box<State>, spins: u32 },
    LoadMappings { first: Mapping, count: u32 },
    MakeCopy { space: SpaceId, page: u64 },
    ForbidWrites { space: SpaceId, page: u64, pages: u64 },
    UnloadMappings { space: SpaceId, page: u64, pages: u64 },
    UnloadThread(ThreadId),
    UnloadSpace(SpaceId),
    Interrupt(ThreadId),
    Signal { space: SpaceId, address: u64 },
    Redirect { space: SpaceId, page: u64, thread: ThreadId },
    KeepOn { thread: ThreadId, processor: Option<u32> },
    Used(ThreadId),
    SetPriority { thread: ThreadId, priority: u8 },
    SetOwnPriority(u8),
    TakeWriteback,
    OfFirst(OfFirst),
}

#[derive(Clone, Serialize)]
enum OfFirst {
    LoadKernel { tag: Tag, descriptor: KernelDescriptor, locked: bool, waiting: u32 },
    HandOver(Box<Gone>),
    UnloadKernel(KernelId),
    SetAccess { kernel: KernelId, groups: Range<u64>, access: Access },
    SetProcessorShares { kernel: KernelId, shares: Vec<u8> },
    SetMaximumPriority { kernel: KernelId, maximum: u8 },
    ChargeProcess(KernelId),
    ClearGroups(Vec<u32>),
    PutAway { name: Tag, groups: Vec<u32> },
    PutBack { name: Tag, groups: Vec<u32> },
    ForgetAway(Tag),
}

#[derive(Clone, Serialize)]
enum Gone {
    Mapping { space: Tag, page: u64, frame: u64, modified: bool, referenced: bool },
    Thread { tag: Tag, state: Box<State> },
    Space { tag: Tag },
    Kernel { tag: Tag, descriptor: KernelDescriptor, waiting: u32 },
}

// Which answer it is stands in the first byte.
const NOT_UNDERSTOOD: u8 = 8;

fn descriptor(groups: Range<u64>, locks: Locks) -> KernelDescriptor {
    let mut granted = Groups::new(FRAMES, Access::None);
    granted.set(groups, Access::ReadWrite);
    KernelDescriptor { groups: granted, processor_shares: vec![20, 20], maximum_priority: 4, locks }
}

/// A server with its first kernel, one that has some memory, and a third that has locked what it has.
struct World {
    server: Server,
    first: KernelId,
    other: KernelId,
    third: (SpaceId, Mapping),
    /// What is sent by them nobody reads, some time.
    _ends: [UnixStream; 2],
}

impl World {
    fn new() -> Self {
        let (supervisor, first) = Supervisor::new(SIZES, GROUPS).unwrap();
        let mut server = Server::new(supervisor);
        let mut load = |tag, groups, locks, locked| {
            let load = KernelLoad {
                tag: Tag(tag),
                descriptor: descriptor(groups, locks),
                locked,
                waiting: VecDeque::new(),
            };
            server.supervisor().load_kernel(first, load).unwrap()
        };
        let other = load(1, 1..4, Locks { spaces: 1, threads: 1, mappings: 4, kernels: 0 }, false);
        let third = load(2, 4..5, Locks { spaces: 1, mappings: 1, ..Locks::default() }, true);
        let supervisor = server.supervisor();
        let space = supervisor.load_space(third, SpaceLoad { tag: Tag(3), locked: true }).unwrap();
        let mapping = Mapping { locked: true, ..Mapping::read(space, PAGE, 4 * 128) };
        supervisor.load_mappings(third, &mapping, 1).unwrap();
        let ends = [server.open(first).unwrap(), server.open(other).unwrap()];
        Self { server, first, other, third: (space, mapping), _ends: ends }
    }

    /// Any request, of names that are often right.
    fn request(&self, dice: &mut Dice) -> Request {
        let small = |dice: &mut Dice| u64::from(dice.below(6));
        let space = |dice: &mut Dice| SpaceId::from_word(2 << 48 | (1 + small(dice) / 3) << 16 | small(dice));
        let thread =
            |dice: &mut Dice| ThreadId::from_word(3 << 48 | (1 + small(dice) / 3) << 16 | small(dice));
        let kernel =
            |dice: &mut Dice| KernelId::from_word(1 << 48 | (1 + small(dice) / 4) << 16 | small(dice));
        let page = PAGE + small(dice);
        let tag = Tag(small(dice));
        let state = State {
            registers: Registers { rip: PAGE << 12, ..Registers::default() },
            vectors: vec![0; dice.index(3) * 300],
            signal_function: small(dice) << 12,
            signals: [vec![], vec![9], vec![PAGE << 12; 258]][dice.index(3)].clone(),
            interrupted: (dice.below(3) == 0).then(Interrupted::default),
            used: [None, Some(Duration::ZERO), Some(Duration::MAX)][dice.index(3)],
            ..State::default()
        };
        let groups = small(dice)..small(dice);
        let locks = Locks { spaces: dice.below(2), ..Locks::default() };
        match dice.below(20) {
            0 => Request::LoadSpace(SpaceLoad { tag, locked: dice.below(2) == 0 }),
            1 => {
                let load = ThreadLoad { tag, space: space(dice), priority: 1, locked: dice.below(2) == 0 };
                Request::LoadThread { load, state: Box::new(state), spins: 0 }
            }
            2 | 3 => {
                let mut first = Mapping::read(space(dice), page, u64::from(dice.below(700)));
                (first.writable, first.message) = (dice.below(2) == 0, dice.below(4) == 0);
                first.signal = (dice.below(3) == 0).then(|| thread(dice));
                first.copy_of = (dice.below(4) == 0).then(|| u64::from(dice.below(700)));
                Request::LoadMappings { first, count: dice.below(9) }
            }
            4 if dice.below(2) == 0 => Request::MakeCopy { space: space(dice), page },
            4 => Request::ForbidWrites { space: space(dice), page, pages: small(dice) },
            5 => Request::UnloadMappings { space: space(dice), page, pages: small(dice) },
            6 => Request::UnloadThread(thread(dice)),
            7 => Request::UnloadSpace(space(dice)),
            8 if dice.below(2) == 0 => Request::Used(thread(dice)),
            8 => Request::Interrupt(thread(dice)),
            9 => Request::Signal { space: space(dice), address: page << 12 },
            10 => Request::Redirect { space: space(dice), page, thread: thread(dice) },
            11 => match dice.below(4) {
                0 => Request::SetPriority { thread: thread(dice), priority: small(dice).to_le_bytes()[0] },
                1 => Request::SetOwnPriority(small(dice).to_le_bytes()[0]),
                _ => Request::KeepOn { thread: thread(dice), processor: Some(dice.below(4)) },
            },
            12 => Request::TakeWriteback,
            13 => {
                let descriptor = descriptor(groups, locks);
                let (locked, waiting) = (dice.below(2) == 0, dice.below(2));
                Request::OfFirst(OfFirst::LoadKernel { tag, descriptor, locked, waiting })
            }
            14 => Request::OfFirst(OfFirst::HandOver(Box::new(match dice.below(4) {
                0 => Gone::Mapping { space: tag, page, frame: 9, modified: true, referenced: false },
                1 => Gone::Thread { tag, state: Box::new(state) },
                2 => Gone::Space { tag },
                _ => Gone::Kernel { tag, descriptor: descriptor(groups, locks), waiting: 1 },
            }))),
            15 => Request::OfFirst(OfFirst::UnloadKernel(kernel(dice))),
            16 => {
                let access = [Access::None, Access::Read, Access::ReadWrite][dice.index(3)];
                Request::OfFirst(OfFirst::SetAccess { kernel: kernel(dice), groups, access })
            }
            17 => Request::OfFirst(OfFirst::SetProcessorShares { kernel: kernel(dice), shares: vec![50] }),
            18 => Request::OfFirst(OfFirst::SetMaximumPriority { kernel: kernel(dice), maximum: 3 }),
            _ => {
                let groups = (dice.below(4)..dice.below(9)).collect();
                Request::OfFirst(match dice.below(5) {
                    0 => OfFirst::ClearGroups(groups),
                    4 => OfFirst::ChargeProcess(kernel(dice)),
                    1 => OfFirst::PutAway { name: tag, groups },
                    2 => OfFirst::PutBack { name: tag, groups },
                    _ => OfFirst::ForgetAway(tag),
                })
            }
        }
    }
}

#[test]
fn requests_of_any_kind() {
    let mut fuzz = Fuzz::start("requests_of_any_kind", 1);
    while fuzz.goes_on() {
        let mut world = World::new();
        for number in 0..120 {
            // The first kernel comes last: after that nothing has to be as it was.
            let asks = if number < 80 { world.other } else { world.first };
            let request = world.request(&mut fuzz.dice);
            let mut bytes = postcard::to_stdvec(&request).unwrap();
            let is_mutated = fuzz.dice.below(2) == 0;
            if is_mutated {
                fuzz.mutate(&mut bytes);
            }
            let answer = world.server.answer_to(asks, &bytes);
            if number < 80 {
                let answer = answer.expect("it has a counter");
                assert!(is_mutated || answer[0] != NOT_UNDERSTOOD, "{bytes:?}");
                let (space, mapping) = world.third;
                assert_eq!(world.server.supervisor().objects().mapping(space, PAGE), Ok(mapping));
                assert_eq!(
                    world.server.supervisor().objects().kernel(world.other).map(|is| is.groups.count()),
                    Ok(6)
                );
            }
        }
    }
}
