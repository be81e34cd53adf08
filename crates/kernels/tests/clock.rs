//! A clock in memory: its time is a program's to read, and its periods are messages. The time is this test's.

use std::time::{Duration, Instant};

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::frames::Frame;
use comb_kernel::objects::{Mapping, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad};
use comb_kernel::programs;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::{Registers, Stop};
use comb_kernels::clock::{Clock, ClockError, TICKS_AT};
use comb_kernels::communication::Pages;

const LIMIT: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);
const CODE_PAGE: u64 = 0x400;
const STACK_PAGE: u64 = 0x500;
const CLOCK_PAGE: u64 = 0x700;

/// 1: mov rbx, [rdi]; cmp rbx, r13; jb 1b; mov eax, 60; syscall
const WAITS: &[u8] = &[0x48, 0x8b, 0x1f, 0x4c, 0x39, 0xeb, 0x72, 0xf8, 0xb8, 60, 0, 0, 0, 0x0f, 5];
const WAITS_AT: u64 = 0x800;

fn ended(calls: &Direct, thread: ThreadId) -> Registers {
    let since = Instant::now();
    loop {
        let area = calls.area(thread).unwrap();
        if area.is_stopped() {
            let registers = area.registers().unwrap();
            assert_eq!((area.stop(), registers.rax), (Some(Stop::Call { is_foreign: false }), programs::END));
            return registers;
        }
        calls.bell().listen(0, Some(Duration::from_millis(5)), |_| {});
        assert!(since.elapsed() < LIMIT, "it does not end");
    }
}

fn thread(calls: &mut Direct, space: SpaceId, tag: u64, state: &State) -> ThreadId {
    calls
        .load_thread(ThreadLoad { tag: Tag(tag), space, priority: USUAL_PRIORITY, locked: false }, state, 0)
        .unwrap()
}

#[test]
fn a_clock_is_read_without_a_call_and_its_periods_are_messages() {
    let (supervisor, kernel) = Supervisor::new(Sizes { spaces: 8, ..Sizes::default() }, 2).unwrap();
    supervisor.frames().write(Frame(0), 0, programs::hears());
    supervisor.frames().write(Frame(0), usize::try_from(WAITS_AT).unwrap(), WAITS);
    let mut calls = Direct::new(supervisor, kernel);
    let began = Instant::now();
    let pages = Pages::new(&calls, 128, 2).unwrap();
    let mut clock = Clock::new(pages.clone(), &[MILLISECOND, 10 * MILLISECOND], Tag(7), began).unwrap();
    assert_eq!(clock.next_timeout(), Some(began + MILLISECOND));

    let space = calls.load_space(SpaceLoad { tag: Tag(1), locked: true }).unwrap();
    let code = Mapping { executable: true, ..Mapping::read(space, CODE_PAGE, 0) };
    calls.load_mappings(&code, 1).unwrap();
    for (page, frame) in [(STACK_PAGE, 1), (programs::LOG_ADDRESS >> 12, 2)] {
        calls.load_mappings(&Mapping { writable: true, ..Mapping::read(space, page, frame) }, 1).unwrap();
    }
    let rip = CODE_PAGE << 12;
    let registers = Registers { rip, rsp: (STACK_PAGE + 1) << 12, r13: 5, ..Registers::default() };
    let state = State { registers, signal_function: rip + programs::HEARS_FUNCTION, ..State::default() };
    let hears = thread(&mut calls, space, 2, &state);
    let rdi = (CLOCK_PAGE + 1) << 12;
    let registers = Registers { rip: rip + WAITS_AT, rdi, r13: 5_000_000, ..Registers::default() };
    let waits = thread(&mut calls, space, 3, &State { registers, ..State::default() });
    let frame = |clock: &Clock, period| u64::from(clock.frame(period));
    let heard =
        Mapping { message: true, signal: Some(hears), ..Mapping::read(space, CLOCK_PAGE, frame(&clock, 0)) };
    calls.load_mappings(&heard, 1).unwrap();
    calls.load_mappings(&Mapping::read(space, CLOCK_PAGE + 1, frame(&clock, 1)), 1).unwrap();
    for thread in [hears, waits] {
        calls.area(thread).unwrap().resume();
    }

    assert_eq!(clock.turn(began + MILLISECOND / 2, &mut calls), Ok(0));
    for tick in 1..=5 {
        assert_eq!(clock.turn(began + tick * MILLISECOND, &mut calls), Ok(1));
    }
    let registers = ended(&calls, hears);
    assert_eq!(registers.rbx, programs::heard(registers.rdi, 0)[0]);
    let log = Pages::new(&calls, 2, 1).unwrap();
    let words: Vec<u64> =
        (0..6).map(|word| log.long(word * 8).load(std::sync::atomic::Ordering::SeqCst)).collect();
    let address = (CLOCK_PAGE << 12) + TICKS_AT as u64;
    assert_eq!(words, [5, address, address, address, address, address]);
    assert_eq!(ended(&calls, waits).rbx, 5_000_000);

    // Periods that nobody has looked at are one signal, and all are counted; even after all that the clock had loaded has gone.
    for tag in 10..18 {
        calls.load_space(SpaceLoad { tag: Tag(tag), locked: false }).unwrap();
    }
    let mut gone = Vec::new();
    while let Some(writeback) = calls.take_writeback().unwrap() {
        if let comb_kernel::objects::Writeback::Space { tag } = writeback {
            gone.push(tag);
        }
    }
    assert!(gone.contains(&Tag(7)), "{gone:?}");
    assert_eq!(clock.turn(began + MILLISECOND * 51 / 2, &mut calls), Ok(1));
    let ticks = |page: usize| pages.long(page * 4096 + TICKS_AT).load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((ticks(0), ticks(1)), (25, 2));
    assert_eq!(clock.next_timeout(), Some(began + 26 * MILLISECOND));
}

#[test]
fn clocks_that_cannot_be_are_refused() {
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 1).unwrap();
    let calls = Direct::new(supervisor, kernel);
    let pages = Pages::new(&calls, 0, 2).unwrap();
    let try_it = |periods: &[Duration]| {
        Clock::new(pages.clone(), periods, Tag(1), Instant::now()).map(drop).unwrap_err()
    };
    assert_eq!(try_it(&[MILLISECOND]), ClockError::Pages { periods: 1, pages: 2 });
    assert_eq!(try_it(&[MILLISECOND, Duration::ZERO]), ClockError::NoPeriod);
}
