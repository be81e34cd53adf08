//! Messages to a thread that computes: its signal function hears of all, in order, and the computation does not notice.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::frames::Frame;
use comb_kernel::objects::{Mapping, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad, Writeback};
use comb_kernel::programs;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::{Registers, Stop};

const CODE_PAGE: u64 = 0x400;
const STACK_PAGE: u64 = 0x500;
const MESSAGE_PAGE: u64 = 0x70000;
const LOG_FRAME: u64 = 16;
const LOG_PAGES: u32 = 8;
const BEGIN: u64 = 99;

struct World {
    calls: Direct,
    frames: std::ptr::NonNull<u8>,
    space: SpaceId,
    thread: ThreadId,
}

/// Of one that computes until it has heard of so many messages.
fn state(messages: u64) -> State {
    let registers = Registers {
        rip: CODE_PAGE << 12,
        rsp: (STACK_PAGE + 1) << 12,
        r13: messages,
        rbx: BEGIN,
        ..Registers::default()
    };
    let signal_function = (CODE_PAGE << 12) + programs::HEARS_FUNCTION;
    State { registers, signal_function, ..State::default() }
}

impl World {
    fn new(state: &State) -> Self {
        let (supervisor, kernel) = Supervisor::new(Sizes::default(), 4).unwrap();
        supervisor.frames().write(Frame(0), 0, programs::hears());
        let mut calls = Direct::new(supervisor, kernel);
        let space = calls.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
        let code = Mapping { executable: true, ..Mapping::read(space, CODE_PAGE, 0) };
        calls.load_mappings(&code, 1).unwrap();
        for (page, frame, count) in [(STACK_PAGE, 10, 1), (programs::LOG_ADDRESS >> 12, LOG_FRAME, LOG_PAGES)]
        {
            calls
                .load_mappings(&Mapping { writable: true, ..Mapping::read(space, page, frame) }, count)
                .unwrap();
        }
        let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
        let thread = calls.load_thread(load, state, 0).unwrap();
        let frames = calls.memory();
        let mut world = Self { calls, frames, space, thread };
        world.map_messages();
        world
    }

    fn map_messages(&mut self) {
        let hears = Mapping {
            message: true,
            signal: Some(self.thread),
            ..Mapping::read(self.space, MESSAGE_PAGE, 128)
        };
        self.calls.load_mappings(&hears, 1).unwrap();
    }

    fn resume(&self) {
        self.calls.area(self.thread).unwrap().resume();
    }

    /// Whether there was room for it.
    fn signal(&mut self, offset: u64) -> bool {
        self.calls.signal(self.space, (MESSAGE_PAGE << 12) + offset).unwrap() == 1
    }

    /// Waits until it stops: why, and with which `rax`.
    fn stopped(&self) -> (Stop, Registers) {
        let since = Instant::now();
        loop {
            let area = self.calls.area(self.thread).unwrap();
            if area.is_stopped() {
                return (area.stop().unwrap(), area.registers().unwrap());
            }
            self.calls.bell().listen(0, Some(Duration::from_millis(20)), |_| {});
            assert!(since.elapsed() < Duration::from_secs(60), "it does not stop");
        }
    }

    #[expect(unsafe_code, reason = "a frame is read by its address")]
    fn log(&self) -> Vec<u64> {
        let at = self.frames.as_ptr().wrapping_add(usize::try_from(LOG_FRAME).unwrap() * 4096).cast::<u64>();
        // SAFETY: within frames that are mapped, which their one writer changes word by word.
        let word = |index: usize| unsafe { at.add(index).read_volatile() };
        (0..usize::try_from(word(0)).unwrap()).map(|index| word(index + 1) - (MESSAGE_PAGE << 12)).collect()
    }

    fn wait_for(&self, heard: usize) {
        let since = Instant::now();
        while self.log().len() < heard {
            std::thread::yield_now();
            assert!(since.elapsed() < Duration::from_secs(60), "{} of {heard} are heard", self.log().len());
        }
    }

    /// It has ended, and computed what it would have without any message.
    fn check_end(&self) {
        let (stop, registers) = self.stopped();
        assert_eq!((stop, registers.rax), (Stop::Call { is_foreign: false }, programs::END), "{registers:?}");
        let [at, sum] = programs::heard(registers.rdi, BEGIN);
        assert_eq!((registers.rbx, registers.r14, registers.r15), (at, sum, at));
    }

    /// Takes its thread away, and what it was.
    fn unload(&mut self) -> State {
        self.calls.unload_thread(self.thread).unwrap();
        let mut state = None;
        while let Some(writeback) = self.calls.take_writeback().unwrap() {
            if let Writeback::Thread { state: back, .. } = writeback {
                state = Some(back);
            }
        }
        *state.unwrap()
    }

    fn load(&mut self, state: &State) {
        let load = ThreadLoad { tag: Tag(2), space: self.space, priority: USUAL_PRIORITY, locked: false };
        self.thread = self.calls.load_thread(load, state, 0).unwrap();
        self.map_messages();
    }
}

#[test]
fn a_computing_thread_hears_of_all_messages_in_order_and_is_not_disturbed() {
    const MESSAGES: u64 = 2000;
    let mut world = World::new(&state(MESSAGES));
    world.resume();
    let mut had_no_room = 0;
    for number in 0..MESSAGES {
        while !world.signal(number * 2) {
            had_no_room += 1;
            std::thread::yield_now();
            assert!(had_no_room < 100_000_000, "it hears of nothing");
        }
    }
    world.check_end();
    assert_eq!(world.log(), (0..MESSAGES).map(|number| number * 2).collect::<Vec<_>>());
}

#[test]
fn messages_wait_while_the_function_runs_and_no_more_than_there_is_room_for() {
    let mut world = World::new(&state(u64::MAX));
    world.resume();
    // The first has the function ask, and so stay where it is.
    assert!(world.signal(1));
    let (stop, registers) = world.stopped();
    assert_eq!((stop, registers.rax), (Stop::Call { is_foreign: false }, programs::ASK));
    let taken = (0..1000).take_while(|number| world.signal(2 + number * 2)).count();
    assert_eq!(taken, 256, "as many as a ring has places");
    assert_eq!(world.log(), [1]);
    world.resume();
    world.wait_for(1 + taken);
    let expected: Vec<u64> = (0..taken as u64).map(|number| 2 + number * 2).collect();
    assert_eq!(world.log()[1..], expected);
}

#[test]
fn a_thread_that_is_unloaded_in_its_function_goes_on_there_and_has_its_messages() {
    let mut world = World::new(&state(4));
    // It has not begun: the function comes first, and stops.
    assert!(world.signal(1) && world.signal(2) && world.signal(3) && world.signal(4));
    world.resume();
    for expected in [vec![1], vec![1, 2, 3]] {
        let (stop, registers) = world.stopped();
        assert_eq!((stop, registers.rax), (Stop::Call { is_foreign: false }, programs::ASK), "{expected:?}");
        assert_eq!(world.log(), expected);
        let state = world.unload();
        assert!(state.interrupted.is_some());
        world.load(&state);
        world.resume();
    }
    world.check_end();
    assert_eq!(world.log(), [1, 2, 3, 4]);
}

#[test]
fn who_is_unloaded_with_messages_waiting_hears_of_them_when_it_is_loaded() {
    let mut world = World::new(&state(2));
    assert!(world.signal(2) && world.signal(4));
    let state = world.unload();
    world.load(&state);
    world.resume();
    world.check_end();
    assert_eq!(world.log(), [2, 4]);
}

#[test]
fn the_end_of_a_function_that_does_not_run_is_an_exception() {
    let end = end_of_functions();
    let mut world = World::new(&state(u64::MAX));
    let area = world.calls.area(world.thread).unwrap();
    area.set_signal_function(None);
    // jmp rsi, at the end of the function.
    let jump = (CODE_PAGE << 12) + programs::hears().len() as u64 - 2;
    area.set_registers(&Registers { rip: jump, rsi: end, ..Registers::default() }).unwrap();
    // Without a function nothing is told: the message waits for who looks for it.
    assert!(world.signal(2));
    world.resume();
    let (stop, registers) = world.stopped();
    assert!(matches!(stop, Stop::Exception { signal: libc::SIGILL, .. }), "{stop:?}");
    assert_eq!(registers.rip, end);
    // And with one again, it hears of the next and of that.
    let area = world.calls.area(world.thread).unwrap();
    area.set_signal_function(NonZeroU64::new((CODE_PAGE << 12) + programs::HEARS_FUNCTION));
    area.set_registers(&state(2).registers).unwrap();
    assert!(world.signal(4));
    world.resume();
    world.check_end();
    assert_eq!(world.log(), [2, 4]);
}

/// What a function is given in `rsi`, as one finds that says so.
fn end_of_functions() -> u64 {
    let mut world = World::new(&state(u64::MAX));
    assert!(world.signal(1));
    world.resume();
    let (_, registers) = world.stopped();
    // It is on the thread's own stack, below what may be in use there.
    assert!(registers.rsp < ((STACK_PAGE + 1) << 12) - 128);
    registers.rsi
}
