//! Messages between programs in two spaces: signalled by the supervisor the first time, and by the programs themselves from then on.

use std::time::{Duration, Instant};

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::objects::{Mapping, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad};
use comb_kernel::programs;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::space::TRANSLATIONS_ADDRESS;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::{Area, Registers, Stop};

const CODE_PAGE: u64 = 0x400;
const STACK_PAGE: u64 = 0x500;
const MESSAGE_PAGES: [u64; 2] = [0x70000, 0x90000];

fn mapping(space: SpaceId, page: u64, frame: u64) -> Mapping {
    Mapping { writable: frame != 0, executable: frame == 0, ..Mapping::read(space, page, frame) }
}

struct World {
    calls: Direct,
    spaces: [SpaceId; 2],
    threads: [ThreadId; 2],
}

impl World {
    /// Two spaces, a message page that both have at different addresses, and a thread in each that hears of it.
    fn new(times: u64) -> Self {
        let (supervisor, kernel) = Supervisor::new(Sizes::default(), 4).unwrap();
        supervisor.frames().write(comb_kernel::frames::Frame(0), 0, programs::messages());
        let mut calls = Direct::new(supervisor, kernel);
        let spaces = [0, 1].map(|tag| calls.load_space(SpaceLoad { tag: Tag(tag), locked: false }).unwrap());
        let mut threads = Vec::new();
        for (index, space) in (0_u64..).zip(spaces) {
            calls.load_mappings(&mapping(space, CODE_PAGE, 0), 1).unwrap();
            calls.load_mappings(&mapping(space, STACK_PAGE, 10 + index), 1).unwrap();
            let registers = Registers {
                rip: CODE_PAGE << 12,
                rsp: (STACK_PAGE + 1) << 12,
                rdi: Area::ring_address(0),
                rsi: (MESSAGE_PAGES[usize::try_from(index).unwrap()] << 12) + 0x40,
                rdx: TRANSLATIONS_ADDRESS,
                rbp: index,
                r9: times,
                ..Registers::default()
            };
            let load = ThreadLoad { tag: Tag(index), space, priority: USUAL_PRIORITY, locked: false };
            let state = State { registers, ..State::default() };
            threads.push(calls.load_thread(load, &state, 0).unwrap());
        }
        let threads: [ThreadId; 2] = threads.try_into().unwrap();
        let mut world = Self { calls, spaces, threads };
        world.map_messages();
        world
    }

    /// The page of two rights is written by both, and either thread hears of what the other writes: two message frames, one for each way.
    fn map_messages(&mut self) {
        for (way, frame) in [(0, 128), (1, 129)] {
            let (sender, receiver) = (self.spaces[way], self.spaces[1 - way]);
            let hears = Mapping {
                writable: false,
                message: true,
                signal: Some(self.threads[1 - way]),
                ..mapping(receiver, MESSAGE_PAGES[way] + 0x100, frame)
            };
            self.calls.load_mappings(&hears, 1).unwrap();
            let says = Mapping { message: true, ..mapping(sender, MESSAGE_PAGES[way], frame) };
            self.calls.load_mappings(&says, 1).unwrap();
        }
    }

    /// Runs both until they end, and answers their calls. How many signals were calls.
    fn run(&mut self) -> u32 {
        let (mut asked, mut ended) = (0, 0);
        for thread in self.threads {
            self.calls.area(thread).unwrap().resume();
        }
        let since = Instant::now();
        while ended < 2 {
            self.calls.bell().listen(0, Some(Duration::from_millis(20)), |_| {});
            assert!(since.elapsed() < Duration::from_secs(20), "{asked} {ended}");
            for (index, thread) in self.threads.into_iter().enumerate() {
                let area = self.calls.area(thread).unwrap();
                if !area.is_stopped() {
                    continue;
                }
                let registers = area.registers().unwrap();
                match (area.stop().unwrap(), registers.rax) {
                    (Stop::Call { .. }, programs::SIGNAL) => {
                        asked += 1;
                        let delivered = self.calls.signal(self.spaces[index], registers.rsi).unwrap();
                        assert_eq!(delivered, 1);
                        self.calls.area(thread).unwrap().resume();
                    }
                    (Stop::Call { .. }, programs::END) => {
                        ended += 1;
                        // It stays as it is.
                        area.set_result(61).unwrap();
                    }
                    (Stop::Call { .. }, 61) => {}
                    (stop, _) => panic!("{stop:?} {registers:?}"),
                }
            }
        }
        asked
    }
}

#[test]
fn a_signal_is_translated_and_the_next_needs_nobody() {
    const TIMES: u64 = 1000;
    let mut world = World::new(TIMES);
    let asked = world.run();
    // Each way once: the first to tell, which of both is the last is not told.
    assert_eq!(asked, 2, "of {}", 2 * TIMES);
    for (index, thread) in world.threads.into_iter().enumerate() {
        let registers = world.calls.area(thread).unwrap().registers().unwrap();
        // Who begins ends without the last answer.
        assert_eq!(registers.rbx, TIMES - u64::from(index == 0));
        // The last signal, as the receiver's own address.
        let expected = ((MESSAGE_PAGES[1 - index] + 0x100) << 12) + 0x40;
        assert_eq!(registers.r15, expected, "{:#x}", registers.r15);
    }
}

#[test]
fn what_was_translated_does_not_hold_once_something_went() {
    let mut world = World::new(10);
    assert_eq!(world.run(), 2);
    // A mapping of another page goes: nobody can know that it was none of these.
    world.calls.unload_mappings(world.spaces[0], STACK_PAGE, 1).unwrap();
    world.calls.load_mappings(&mapping(world.spaces[0], STACK_PAGE, 10), 1).unwrap();
    for (index, thread) in (0..).zip(world.threads) {
        let area = world.calls.area(thread).unwrap();
        let mut registers = area.registers().unwrap();
        (registers.rip, registers.r9, registers.rbp) = (CODE_PAGE << 12, 10, index);
        area.set_registers(&registers).unwrap();
    }
    assert_eq!(world.run(), 2);
}

#[test]
fn when_a_receiver_goes_those_who_write_to_it_go_too() {
    let mut world = World::new(10);
    world.calls.unload_thread(world.threads[1]).unwrap();
    // Multi-mapping consistency: the sender's mapping is not there any more, and so it would fault before it could signal nobody.
    let refused = world.calls.signal(world.spaces[0], MESSAGE_PAGES[0] << 12);
    assert!(refused.is_err(), "{refused:?}");
    let mut pages = Vec::new();
    while let Some(writeback) = world.calls.take_writeback().unwrap() {
        if let comb_kernel::objects::Writeback::Mapping { page, .. } = writeback {
            pages.push(page);
        }
    }
    pages.sort_unstable();
    assert_eq!(pages, [MESSAGE_PAGES[0], MESSAGE_PAGES[0] + 0x100]);
}
