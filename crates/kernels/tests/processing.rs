//! Threads that are scheduled by their kernel, with programs of a few instructions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use comb_kernel::objects::{Sizes, Tag};
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::thread::{Registers, Stop};
use comb_kernels::memory::{Anonymous, Clock, FaultError, PAGE_BYTES, Paged, Resources, Rights};
use comb_kernels::processing::{Answer, Driver, DriverError, End, Handler, Processors, RoundRobin, Stopped};

const PAGE: u64 = PAGE_BYTES as u64;
const CODE: u64 = 0x400;
const DATA: u64 = 0x1000;

/// Makes a call with the number in `rax`, again and again: `syscall`, `jmp -4`.
const CALLS: &[u8] = &[0x0f, 0x05, 0xeb, 0xfc];
/// The same, and counts in `rbx` how often: `inc rbx`, `syscall`, `jmp -7`.
const COUNTS: &[u8] = &[0x48, 0xff, 0xc3, 0x0f, 0x05, 0xeb, 0xf9];
/// Waits until the byte at `rdi` is not zero, and makes call 60: `pause; cmp byte [rdi], 0; je; mov eax, 60; syscall`.
const WAITS: &[u8] = &[0xf3, 0x90, 0x80, 0x3f, 0, 0x74, 0xf9, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
/// Stores to the byte at `rdi`, and makes call 60: `mov byte [rdi], 1; mov eax, 60; syscall`.
const STORES: &[u8] = &[0xc6, 0x07, 1, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
/// An instruction that there is not.
const NOTHING: &[u8] = &[0x0f, 0x0b];

/// One space with this code, and a page of data.
fn driver(sizes: Sizes, code: &[u8], processors: Processors) -> (Driver, Tag) {
    let resources = Resources::alone(sizes, 2).expect("memory");
    let mut driver = Driver::new(resources, Box::new(RoundRobin::default()), processors);
    let space = add_space(&mut driver, code);
    (driver, space)
}

fn add_space(driver: &mut Driver, code: &[u8]) -> Tag {
    let directory: &Path = &std::env::temp_dir();
    let space = driver.add_space();
    let (segments, _) = driver.space(space).expect("just added");
    let segment = |bytes: &[u8]| {
        let backing = Anonymous::new(1, bytes.to_vec(), directory).expect("a file");
        Box::new(Paged::new(Arc::new(backing), Box::new(Clock::default()), 1))
    };
    segments.add(CODE, Rights { write: false, execute: true }, segment(code)).expect("there is room");
    segments.add(DATA, Rights { write: true, execute: false }, segment(&[])).expect("there is room");
    space
}

fn registers(offset: u64, rax: u64) -> Registers {
    Registers { rip: CODE * PAGE + offset, rax, rdi: DATA * PAGE, ..Registers::default() }
}

/// What a call is: its number is how often its thread has come here, for each returns the next.
#[derive(Default)]
struct Counts {
    most: u64,
    order: Vec<(Tag, u64)>,
}

impl Handler for Counts {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        let number = stopped.registers.rax;
        self.order.push((stopped.thread, number));
        if number < self.most { Answer::Returns(number + 1) } else { Answer::Leaves }
    }
}

#[test]
fn the_more_important_thread_runs_first() {
    let (mut driver, space) = driver(Sizes::default(), CALLS, Processors::Own);
    let [low, high] = [USUAL_PRIORITY, USUAL_PRIORITY + 1]
        .map(|priority| driver.add_thread(space, registers(0, 0), priority));
    let mut handler = Counts { most: 3, ..Counts::default() };
    let ended = driver.run(&mut handler).expect("it runs");
    assert!(matches!(ended[&space], End::LastThread), "{}", ended[&space]);
    let all = |thread| (0..=3).map(move |number| (thread, number));
    assert_eq!(handler.order, all(high).chain(all(low)).collect::<Vec<_>>());
}

/// Ends threads at their first call.
struct Leaves;

impl Handler for Leaves {
    fn call(&mut self, _: &mut Stopped<'_>) -> Answer {
        Answer::Leaves
    }
}

/// On one processor who waits has to give way, or waits for ever.
#[test]
fn who_does_not_stop_is_stopped_when_another_is_ready() {
    let code = [WAITS, STORES].concat();
    let (mut driver, space) = driver(Sizes::default(), &code, Processors::Own);
    driver.add_thread(space, registers(0, 0), USUAL_PRIORITY);
    driver.add_thread(space, registers(WAITS.len() as u64, 0), USUAL_PRIORITY);
    let ended = driver.run(&mut Leaves).expect("it runs");
    assert!(matches!(ended[&space], End::LastThread), "{}", ended[&space]);
}

/// With two places for threads and one for spaces all of them go again and again, with their mappings, and come back as they were.
#[test]
fn threads_that_the_cache_kernel_has_no_room_for_go_on_where_they_were() {
    for processors in [Processors::Own, Processors::Any(2), Processors::Any(3)] {
        let sizes = Sizes { threads: 2, spaces: 2, ..Sizes::default() };
        let (mut driver, first) = driver(sizes, COUNTS, processors);
        let spaces = [first, add_space(&mut driver, COUNTS), add_space(&mut driver, COUNTS)];
        let mut threads = Vec::new();
        for space in spaces {
            threads.extend((0..3).map(|_| driver.add_thread(space, registers(0, 0), USUAL_PRIORITY)));
        }
        let mut handler = Turns { left: threads.len(), ..Turns::default() };
        let ended = driver.run(&mut handler).expect("it runs");
        assert!(ended.values().all(|end| matches!(end, End::LastThread)), "{ended:?}");
        let expected: Vec<u64> = (0..5).collect();
        let numbers = handler.numbers;
        assert!(threads.iter().all(|thread| numbers[thread] == expected), "{numbers:?}");
    }
}

/// Each call wakes all that wait, and waits itself, if there is another that will wake it: so threads take turns.
#[derive(Default)]
struct Turns {
    /// What each has called.
    numbers: BTreeMap<Tag, Vec<u64>>,
    waiting: BTreeSet<Tag>,
    /// How many have not left.
    left: usize,
}

impl Handler for Turns {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        let number = stopped.registers.rax;
        // Each call is heard of once, and none is made that was answered already.
        assert_eq!(stopped.registers.rbx, number + 1);
        for thread in std::mem::take(&mut self.waiting) {
            stopped.woken.push((thread, self.numbers[&thread].len() as u64));
        }
        self.numbers.entry(stopped.thread).or_default().push(number);
        if number == 4 {
            self.left -= 1;
            Answer::Leaves
        } else if self.left > 1 {
            self.waiting.insert(stopped.thread);
            Answer::Waits
        } else {
            Answer::Returns(number + 1)
        }
    }
}

#[test]
fn threads_that_all_wait_are_told_of() {
    struct Waits;
    impl Handler for Waits {
        fn call(&mut self, _: &mut Stopped<'_>) -> Answer {
            Answer::Waits
        }
    }
    let (mut driver, space) = driver(Sizes::default(), CALLS, Processors::Own);
    let thread = driver.add_thread(space, registers(0, 0), USUAL_PRIORITY);
    assert!(matches!(driver.run(&mut Waits), Err(DriverError::Stuck(1))));
    // And go on when somebody wakes them.
    assert!(driver.wake(thread, 7).expect("it waits"));
    let mut handler = Counts { most: 7, ..Counts::default() };
    driver.run(&mut handler).expect("it runs");
    assert_eq!(handler.order, [(thread, 7)]);
}

#[test]
fn a_call_can_begin_threads_and_change_registers() {
    struct Begins(Vec<u64>);
    impl Handler for Begins {
        fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
            self.0.push(stopped.registers.rax);
            match stopped.registers.rax {
                1 => {
                    stopped.begun.push((registers(0, 2), 0));
                    stopped.registers.rax = 3;
                    Answer::GoesOn
                }
                _ => Answer::Leaves,
            }
        }
    }
    let (mut driver, space) = driver(Sizes::default(), CALLS, Processors::Own);
    driver.add_thread(space, registers(0, 1), USUAL_PRIORITY);
    let mut handler = Begins(Vec::new());
    driver.run(&mut handler).expect("it runs");
    handler.0.sort_unstable();
    assert_eq!(handler.0, [1, 2, 3]);
}

#[test]
fn what_a_program_cannot_do_ends_its_space_and_no_other() {
    let code = [NOTHING, CALLS].concat();
    let (mut driver, bad) = driver(Sizes::default(), &code, Processors::Own);
    let good = add_space(&mut driver, &code);
    driver.add_thread(bad, registers(0, 0), USUAL_PRIORITY + 1);
    driver.add_thread(good, registers(NOTHING.len() as u64, 0), USUAL_PRIORITY);
    let ended = driver.run(&mut Leaves).expect("it runs");
    let signal = rustix::process::Signal::ILL.as_raw();
    let is_so = matches!(ended[&bad], End::Exception { at: 0x400000, stop: Stop::Exception { signal: is, .. } } if is == signal);
    assert!(is_so, "{}", ended[&bad]);
    assert!(matches!(ended[&good], End::LastThread), "{}", ended[&good]);
}

/// A kernel can give its program what no segment has, and let it go on.
#[test]
fn a_kernel_can_answer_faults_that_no_segment_does() {
    struct Gives(u32);
    impl Handler for Gives {
        fn call(&mut self, _: &mut Stopped<'_>) -> Answer {
            Answer::Leaves
        }
        fn failed(&mut self, stopped: &mut Stopped<'_>, error: FaultError) -> Answer {
            assert!(matches!(error, FaultError::Outside { address: 0x2000000, .. }), "{error}");
            self.0 += 1;
            stopped.registers.rdi = DATA * PAGE;
            Answer::GoesOn
        }
    }
    let (mut driver, space) = driver(Sizes::default(), STORES, Processors::Own);
    driver.add_thread(space, Registers { rdi: 0x2000 * PAGE, ..registers(0, 0) }, USUAL_PRIORITY);
    let mut handler = Gives(0);
    let ended = driver.run(&mut handler).expect("it runs");
    assert!(matches!(ended[&space], End::LastThread), "{}", ended[&space]);
    assert_eq!(handler.0, 1);
}
