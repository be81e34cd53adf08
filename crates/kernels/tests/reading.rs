//! Threads run while pages of others are read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use comb_kernel::objects::{Sizes, Tag};
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::thread::Registers;
use comb_kernels::memory::{
    Anonymous, Backing, BackingError, Clock, FaultError, PAGE_BYTES, Paged, Piece, Resources, Rights,
};
use comb_kernels::processing::{Answer, Driver, End, Handler, Processors, RoundRobin, Stopped};
use comb_types::Dice;
use rustix::io::Errno;

const PAGE: u64 = PAGE_BYTES as u64;
const CODE: u64 = 0x400;
const LISTS: u64 = 0x500;
const DATA: u64 = 0x1000;
const READ: Rights = Rights { write: false, execute: false };
const WRITE: Rights = Rights { write: true, execute: false };

/// Nothing here takes as long, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// `syscall; mov al, [rdi]; mov eax, 2; syscall`: says that it will touch a page, and that it has.
const TOUCHES: &[u8] = &[0x0f, 0x05, 0x8a, 0x07, 0xb8, 2, 0, 0, 0, 0x0f, 0x05];
/// `syscall; jmp -4`: asks again and again.
const ASKS: &[u8] = &[0x0f, 0x05, 0xeb, 0xfc];

const WILL_TOUCH: u64 = 1;
const HAS_TOUCHED: u64 = 2;
const ASK: u64 = 3;

#[derive(Debug, Default)]
struct Reads {
    begun: Vec<Range<u64>>,
    may_go_on: bool,
    fails: bool,
}

/// Pages whose reads wait until the test lets them go on.
#[derive(Debug, Default)]
struct Held {
    reads: Mutex<Reads>,
    changed: Condvar,
}

impl Held {
    fn begun(&self) -> usize {
        self.reads.lock().expect("nobody panics").begun.len()
    }

    fn let_go_on(&self, fails: bool) {
        let mut reads = self.reads.lock().expect("nobody panics");
        (reads.may_go_on, reads.fails) = (true, fails);
        self.changed.notify_all();
    }
}

impl Backing for Held {
    fn pages(&self) -> u64 {
        64
    }

    fn read(&self, first: u64, into: &[Piece]) -> Result<(), BackingError> {
        let pages = into.iter().map(Piece::len).sum::<usize>() as u64 / PAGE;
        let mut reads = self.reads.lock().expect("nobody panics");
        reads.begun.push(first..first + pages);
        let (reads, _) = self.changed.wait_timeout_while(reads, LONG, |reads| !reads.may_go_on).expect("so");
        if reads.fails || !reads.may_go_on {
            let (name, action) = ("it".to_owned(), "read");
            return Err(BackingError::Host { name, page: first, action, error: Errno::IO });
        }
        into.iter().for_each(|piece| piece.clear(0));
        Ok(())
    }

    fn write(&self, _: u64, _: &[Piece]) -> Result<(), BackingError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), BackingError> {
        Ok(())
    }
}

fn code(bytes: &[u8]) -> Box<Paged> {
    let backing = Anonymous::new(1, bytes.to_vec(), &std::env::temp_dir()).expect("a file");
    Box::new(Paged::new(Arc::new(backing), Box::new(Clock::default()), 1))
}

/// What became of threads, in their order. Lets reads go on once all that will touch pages wait for them, and somebody else has run often.
struct Watches {
    held: Arc<Held>,
    fails: bool,
    touching: usize,
    will_touch: usize,
    asked: u32,
    since: Instant,
    order: Vec<(Tag, String)>,
}

impl Handler for Watches {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        assert!(self.since.elapsed() < LONG, "others do not get to it");
        match stopped.registers.rax {
            WILL_TOUCH => {
                self.will_touch += 1;
                return Answer::Returns(0);
            }
            HAS_TOUCHED => {
                self.order.push((stopped.thread, "touched".to_owned()));
                return Answer::Leaves;
            }
            _ => {}
        }
        // Those who touch are more important: if this runs, they do not.
        if self.will_touch < self.touching || self.held.begun() == 0 {
            return Answer::Returns(ASK);
        }
        self.asked += 1;
        if self.asked < 100 {
            return Answer::Returns(ASK);
        }
        self.order.push((stopped.thread, "asked".to_owned()));
        self.held.let_go_on(self.fails);
        Answer::Leaves
    }

    fn failed(&mut self, stopped: &mut Stopped<'_>, error: FaultError) -> Answer {
        self.order.push((stopped.thread, error.to_string()));
        Answer::Leaves
    }
}

struct Ran {
    /// What became of threads, in this order.
    order: Vec<(Tag, String)>,
    /// Those that touch, and then the one that asks.
    threads: Vec<Tag>,
    reads: Vec<Range<u64>>,
}

/// Threads that touch these pages, and one that asks meanwhile.
fn run(pages: &[u64], fails: bool) -> Ran {
    let resources = Resources::alone(Sizes::default(), 1).expect("memory");
    let mut driver = Driver::new(resources, Box::new(RoundRobin::default()), Processors::Own);
    let space = driver.add_space();
    let held = Arc::new(Held::default());
    let (segments, _) = driver.space(space).expect("just added");
    let execute = Rights { write: false, execute: true };
    segments.add(CODE, execute, code(&[TOUCHES, ASKS].concat())).expect("there is room");
    let data = Paged::new(held.clone(), Box::new(Clock::default()), 64);
    segments.add(DATA, READ, Box::new(data)).expect("there is room");
    let mut begin = |offset: usize, rax: u64, page: u64, priority: u8| {
        let (rip, rdi) = (CODE * PAGE + offset as u64, (DATA + page) * PAGE);
        driver.add_thread(space, Registers { rip, rax, rdi, ..Registers::default() }, priority)
    };
    let mut threads: Vec<Tag> =
        pages.iter().map(|page| begin(0, WILL_TOUCH, *page, USUAL_PRIORITY + 1)).collect();
    threads.push(begin(TOUCHES.len(), ASK, 0, USUAL_PRIORITY));
    let mut watches = Watches {
        held: held.clone(),
        fails,
        touching: pages.len(),
        will_touch: 0,
        asked: 0,
        since: Instant::now(),
        order: Vec::new(),
    };
    let ended = driver.run(&mut watches).expect("it runs");
    assert!(matches!(ended[&space], End::LastThread), "{}", ended[&space]);
    let reads = held.reads.lock().expect("nobody panics").begun.clone();
    Ran { order: watches.order, threads, reads }
}

#[test]
fn a_thread_runs_while_a_page_of_another_is_read() {
    let Ran { order, threads, reads } = run(&[3], false);
    let [touches, asks] = threads[..] else { panic!("two threads") };
    assert_eq!(order, [(asks, "asked".to_owned()), (touches, "touched".to_owned())]);
    assert_eq!(reads, vec![0..16]);
}

#[test]
fn who_waits_for_the_same_pages_waits_for_one_read() {
    let Ran { mut order, threads, reads } = run(&[3, 5, 3], false);
    assert_eq!(order.remove(0), (threads[3], "asked".to_owned()));
    order.sort_unstable();
    let touched: Vec<(Tag, String)> =
        threads[..3].iter().map(|thread| (*thread, "touched".to_owned())).collect();
    assert_eq!(order, touched);
    assert_eq!(reads, vec![0..16]);
}

#[test]
fn what_cannot_be_read_is_told_to_all_who_wait_for_it_and_to_nobody_else() {
    let Ran { order, threads, reads } = run(&[3, 5], true);
    let error = "it, from page 0 on, cannot be read: Input/output error (os error 5)".to_owned();
    let expected = [(threads[2], "asked".to_owned()), (threads[0], error.clone()), (threads[1], error)];
    assert_eq!(order, expected);
    assert_eq!(reads, vec![0..16]);
}

/// Stores `cl` at each address of a list that `rsi` points to, and increments it; at the list's end it makes call 60.
const STORES: &[u8] = &[
    0x48, 0x8b, 0x06, // mov rax, [rsi]
    0x48, 0x85, 0xc0, // test rax, rax
    0x74, 0x0a, // jz +10
    0x88, 0x08, // mov [rax], cl
    0xfe, 0xc1, // inc cl
    0x48, 0x83, 0xc6, 0x08, // add rsi, 8
    0xeb, 0xee, // jmp -18
    0xb8, 60, 0, 0, 0, // mov eax, 60
    0x0f, 0x05, // syscall
];

const THREADS: u64 = 5;
const PAGES: u32 = 48;

/// Compares what the segment has in the end with what was stored.
struct Compares {
    left: u64,
    expected: BTreeMap<u64, u8>,
}

impl Handler for Compares {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        self.left -= 1;
        if self.left == 0 {
            for (address, expected) in &self.expected {
                let mut byte = [0];
                stopped.segments.read(stopped.resources, *address, &mut byte).expect("it is there");
                assert_eq!(byte[0], *expected, "{address:#x}");
            }
        }
        Answer::Leaves
    }
}

/// Pages of one run come for several threads, which have them one after the other: what is mapped for one is not loaded again over what another has stored to.
/// With few frames threads take each other's pages while they wait for their own; with few places they are written back meanwhile.
#[test]
fn threads_that_wait_for_pages_have_all_that_was_stored() {
    let mut dice = Dice::new(7);
    for (processors, threads, most) in [
        (Processors::Own, 2, 1),
        (Processors::Own, 64, 1),
        (Processors::Own, 3, 20),
        (Processors::Any(2), 2, 20),
        (Processors::Any(3), 64, 3),
    ] {
        let sizes = Sizes { threads, ..Sizes::default() };
        let resources = Resources::alone(sizes, 2).expect("memory");
        let mut driver = Driver::new(resources, Box::new(RoundRobin::default()), processors);
        let space = driver.add_space();
        let (segments, _) = driver.space(space).expect("just added");
        segments.add(CODE, Rights { write: false, execute: true }, code(STORES)).expect("there is room");
        let (mut lists, mut begins, mut expected) = (Vec::new(), Vec::new(), BTreeMap::new());
        for thread in 0..THREADS {
            begins.push(LISTS * PAGE + lists.len() as u64);
            for time in 0..60_u8 {
                let address = (DATA + u64::from(dice.below(PAGES))) * PAGE + thread;
                lists.extend(address.to_le_bytes());
                expected.insert(address, time);
            }
            lists.extend(0_u64.to_le_bytes());
        }
        let lists = code(&lists);
        segments.add(LISTS, READ, lists).expect("there is room");
        let data = Anonymous::new(PAGES.into(), Vec::new(), &std::env::temp_dir()).expect("a file");
        let data = Paged::new(Arc::new(data), Box::new(Clock::default()), most);
        segments.add(DATA, WRITE, Box::new(data)).expect("there is room");
        for rsi in begins {
            let registers = Registers { rip: CODE * PAGE, rsi, ..Registers::default() };
            driver.add_thread(space, registers, USUAL_PRIORITY);
        }
        let ended = driver.run(&mut Compares { left: THREADS, expected }).expect("it runs");
        assert!(matches!(ended[&space], End::LastThread), "{}", ended[&space]);
    }
}
