//! Programs of several cells, each under a supervisor of its own, that have memory in common.

use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::frames::Frame;
use comb_kernel::objects::{Mapping, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad};
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::{Registers, Stop};
use comb_kernels::communication::Pages;
use comb_kernels::shared::{
    Block, Event, HearError, Letter, Local, Place, Shape, ShapeError, SharedSegment, Stream, Transport, Wake,
    WantError,
};
use comb_types::{CellId, Dice};

/// Nothing that goes well takes as long.
const LIMIT: Duration = Duration::from_secs(120);
const CODE_PAGE: u64 = 0x400;
const SEGMENT_PAGE: u64 = 0x8000;
const SEGMENT_FRAME: u32 = 128;

/// 1: inc qword [rdi]; lock inc qword [rsi]; dec rcx; jnz 1b; mov eax, 60; syscall
const COUNTS: &[u8] =
    &[0x48, 0xff, 0x07, 0xf0, 0x48, 0xff, 0x06, 0x48, 0xff, 0xc9, 0x75, 0xf4, 0xb8, 60, 0, 0, 0, 0x0f, 5];
/// mov rbx, [rdi]; mov r14, [rsi]; mov eax, 60; syscall
const READS: &[u8] = &[0x48, 0x8b, 0x1f, 0x4c, 0x8b, 0x36, 0xb8, 60, 0, 0, 0, 0x0f, 5];
const READS_AT: u64 = 64;

fn shape(cells: u32) -> Shape {
    Shape { pages: 4, block_bytes: 256, cells, hold: Duration::from_micros(50) }
}

/// A cell: its supervisor, its kernel's part of the segment, and a program.
struct Cell {
    calls: Direct,
    segment: SharedSegment,
    space: SpaceId,
    thread: ThreadId,
}

impl Cell {
    fn new(me: u32, shape: Shape) -> Self {
        let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2).unwrap();
        supervisor.frames().write(Frame(0), 0, COUNTS);
        supervisor.frames().write(Frame(0), usize::try_from(READS_AT).unwrap(), READS);
        let mut calls = Direct::new(supervisor, kernel);
        let space = calls.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
        let code = Mapping { executable: true, ..Mapping::read(space, CODE_PAGE, 0) };
        calls.load_mappings(&code, 1).unwrap();
        let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
        let thread = calls.load_thread(load, &State::default(), 0).unwrap();
        let frames = Pages::new(&calls, SEGMENT_FRAME, shape.pages).unwrap();
        let mut segment = SharedSegment::new(CellId(me), shape, frames).unwrap();
        segment.put(Place { space, first: SEGMENT_PAGE, writable: true });
        Self { calls, segment, space, thread }
    }

    fn start(&mut self, registers: Registers) {
        let area = self.calls.area(self.thread).unwrap();
        assert!(area.is_stopped());
        area.set_registers(&registers).unwrap();
        area.resume();
    }

    /// Listens for a while: what stopped the program, if it is for nobody but its kernel.
    fn look(&mut self) -> Option<(Stop, Registers)> {
        // Each stop rings once, and is answered once.
        let mut has_rung = false;
        self.calls.bell().listen(0, Some(Duration::from_micros(200)), |_| has_rung = true);
        let area = self.calls.area(self.thread).unwrap();
        if !has_rung || !area.is_stopped() {
            return None;
        }
        let stop = area.stop().unwrap();
        if let Stop::Fault { address, touch } = stop {
            let who = (self.thread, self.space);
            let is_ours = self.segment.fault(Instant::now(), &mut self.calls, who, address, touch).unwrap();
            assert!(is_ours, "{stop:?}");
            return None;
        }
        Some((stop, area.registers().unwrap()))
    }

    fn exchange(&mut self, transport: &mut dyn Transport) {
        while let Some((from, letter)) = transport.receive().unwrap() {
            self.segment.hear(Instant::now(), &mut self.calls, from, letter).unwrap();
        }
        self.segment.turn(Instant::now(), &mut self.calls).unwrap();
        while let Some((to, letter)) = self.segment.poll_transmit() {
            transport.send(to, &letter).unwrap();
        }
        transport.flush();
        while self.calls.take_writeback().unwrap().is_some() {}
    }

    /// Serves the others until it is enough.
    fn serve(&mut self, transport: &mut dyn Transport, is_enough: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_enough() {
            assert_eq!(self.look(), None);
            self.exchange(transport);
            assert!(since.elapsed() < LIMIT, "it is never enough");
        }
    }

    /// Runs the program until it ends.
    fn run(&mut self, transport: &mut dyn Transport) -> Registers {
        let since = Instant::now();
        loop {
            if let Some((stop, registers)) = self.look() {
                assert_eq!(stop, Stop::Call { is_foreign: false }, "{registers:?}");
                return registers;
            }
            self.exchange(transport);
            assert!(since.elapsed() < LIMIT, "it does not end");
        }
    }
}

fn address(page: u64, block: u64) -> u64 {
    ((SEGMENT_PAGE + page) << 12) + block * 256 + 8
}

/// Each cell's program adds to a word of its own, in its block of a page that all store to, and to one that all add to. Both are right in the end, in the eyes of all.
fn all_count(transports: Vec<Box<dyn Transport + Send>>, times: u64) {
    let cells = u32::try_from(transports.len()).unwrap();
    let (counted, read) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let begins = Arc::new(Barrier::new(cells as usize));
    let threads: Vec<_> = (0..cells)
        .zip(transports)
        .map(|(me, mut transport)| {
            let (counted, read, begins) = (counted.clone(), read.clone(), begins.clone());
            std::thread::spawn(move || {
                let mut cell = Cell::new(me, shape(cells));
                begins.wait();
                let (own, all) = (address(0, me.into()), address(1, 9));
                let rip = CODE_PAGE << 12;
                cell.start(Registers { rip, rdi: own, rsi: all, rcx: times, ..Registers::default() });
                cell.run(&mut *transport);
                counted.fetch_add(1, SeqCst);
                cell.serve(&mut *transport, || counted.load(SeqCst) == cells);
                for other in 0..cells {
                    let (own, rip) = (address(0, other.into()), (CODE_PAGE << 12) + READS_AT);
                    cell.start(Registers { rip, rdi: own, rsi: all, ..Registers::default() });
                    let registers = cell.run(&mut *transport);
                    assert_eq!((registers.rbx, registers.r14), (times, times * u64::from(cells)));
                }
                read.fetch_add(1, SeqCst);
                cell.serve(&mut *transport, || read.load(SeqCst) == cells);
                // Letters to who has gone are nobody's.
                transport
            })
        })
        .collect();
    let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    assert!(ends.iter().all(Result::is_ok));
}

#[test]
fn programs_of_two_cells_add_in_one_page_and_to_one_word() {
    let transports = Local::new(2).into_iter().map(|one| Box::new(one) as _).collect();
    all_count(transports, 2_000_000);
}

#[test]
fn and_of_three_over_streams() {
    let mut lines: Vec<Vec<(CellId, UnixStream)>> = (0..3).map(|_| Vec::new()).collect();
    for a in 0..3_u32 {
        for b in a + 1..3 {
            let (one, other) = UnixStream::pair().unwrap();
            lines[a as usize].push((CellId(b), one));
            lines[b as usize].push((CellId(a), other));
        }
    }
    let transports = lines.into_iter().map(|lines| Box::new(Stream::new(lines).unwrap()) as _).collect();
    all_count(transports, 1_000_000);
}

/// Two cells in one thread, and how many letters went between them.
struct Pair {
    cells: [Cell; 2],
    transports: Vec<Local>,
}

impl Pair {
    fn new() -> Self {
        let shape = Shape { hold: Duration::ZERO, ..shape(2) };
        Self { cells: [0, 1].map(|me| Cell::new(me, shape)), transports: Local::new(2) }
    }

    /// Until nothing is on its way: how many letters have been sent.
    fn settle(&mut self) -> usize {
        let mut sent = 0;
        loop {
            let before = sent;
            for (cell, transport) in self.cells.iter_mut().zip(&mut self.transports) {
                cell.segment.turn(Instant::now(), &mut cell.calls).unwrap();
                while let Some((to, letter)) = cell.segment.poll_transmit() {
                    sent += 1;
                    transport.send(to, &letter).unwrap();
                }
                transport.flush();
                while let Some((from, letter)) = transport.receive().unwrap() {
                    cell.segment.hear(Instant::now(), &mut cell.calls, from, letter).unwrap();
                }
            }
            if sent == before {
                return sent;
            }
        }
    }

    /// Has a program read two words.
    fn reads(&mut self, cell: usize, [a, b]: [u64; 2]) -> ([u64; 2], usize) {
        let rip = (CODE_PAGE << 12) + READS_AT;
        self.cells[cell].start(Registers { rip, rdi: a, rsi: b, ..Registers::default() });
        let since = Instant::now();
        let mut sent = 0;
        loop {
            if let Some((stop, registers)) = self.cells[cell].look() {
                assert_eq!(stop, Stop::Call { is_foreign: false });
                return ([registers.rbx, registers.r14], sent);
            }
            sent += self.settle();
            assert!(since.elapsed() < LIMIT, "it does not end");
        }
    }

    /// Has a kernel store a word of a block.
    fn stores(&mut self, cell: usize, block: u64, value: u64) -> usize {
        let mut sent = 0;
        let since = Instant::now();
        while !{
            let cell = &mut self.cells[cell];
            cell.segment.want(Instant::now(), &mut cell.calls, Block(block), true).unwrap()
        } {
            sent += self.settle();
            assert!(since.elapsed() < LIMIT, "it does not come");
        }
        self.cells[cell].segment.copy_in(Block(block), 8, &value.to_le_bytes());
        sent
    }
}

#[test]
fn only_the_blocks_that_are_missing_come() {
    let mut pair = Pair::new();
    // Page 0 lives in cell 0. All of its blocks come, one question and one answer each.
    assert_eq!(pair.reads(1, [address(0, 3), address(0, 5)]), ([0, 0], 32));
    assert_eq!(pair.reads(1, [address(0, 3), address(0, 5)]), ([0, 0], 0));
    // The home's kernel takes one back, and stores there. The program reads the page again, and that block comes.
    assert_eq!(pair.stores(0, 3, 77), 2);
    assert_eq!(pair.reads(1, [address(0, 3), address(0, 5)]), ([77, 0], 2));
    // The other's kernel stores to another block, of which it has a copy. Its own program goes on reading all.
    assert_eq!(pair.stores(1, 5, 78), 2);
    assert_eq!(pair.reads(1, [address(0, 3), address(0, 5)]), ([77, 78], 0));
    assert_eq!(pair.reads(0, [address(0, 3), address(0, 5)]), ([77, 78], 2));
}

#[test]
fn what_was_alone_with_a_dead_cell_is_lost_and_all_else_stays() {
    let mut pair = Pair::new();
    pair.stores(1, 3, 77);
    pair.stores(0, 4, 78);
    let [one, _] = &mut pair.cells;
    one.segment.peer_died(Instant::now(), &mut one.calls, CellId(1)).unwrap();
    assert!(matches!(
        one.segment.want(Instant::now(), &mut one.calls, Block(3), false),
        Err(WantError::Lost(Block(3), _))
    ));
    assert_eq!(one.segment.want(Instant::now(), &mut one.calls, Block(4), false), Ok(true));
    let beyond = one.segment.want(Instant::now(), &mut one.calls, Block(64), false);
    assert_eq!(beyond, Err(WantError::NoBlock(Block(64))));
    // A program that touches the page is told of by an event, and so is one that touches what lived with the dead.
    for (page, at) in [(0, 0), (1, 1)] {
        let rip = (CODE_PAGE << 12) + READS_AT;
        let cell = &mut pair.cells[0];
        cell.start(Registers { rip, rdi: address(page, 5), rsi: address(page, 5), ..Registers::default() });
        let since = Instant::now();
        let event = loop {
            assert_eq!(cell.look(), None);
            if let Some(event) = cell.segment.poll_event() {
                break event;
            }
            assert!(since.elapsed() < LIMIT, "nobody is told");
        };
        let Event::Lost { thread, block, .. } = event;
        assert_eq!((thread, block.0 / 16), (cell.thread, at));
        // What is the kernel's to decide is decided here: it goes on elsewhere.
        assert!(cell.calls.area(cell.thread).unwrap().is_stopped());
        while cell.segment.poll_event().is_some() {}
    }
}

#[test]
fn letters_that_cannot_be_are_refused_and_kept_pages_let_nobody_fill_memory() {
    let mut cell = Cell::new(0, Shape { hold: LIMIT, ..shape(2) });
    let mut dice = Dice::new(5);
    let now = Instant::now();
    for _ in 0..5_000 {
        let length = [0, 256, 17][usize::try_from(dice.below(3)).unwrap()];
        let letter = Letter {
            kind: u8::try_from(dice.below(20)).unwrap(),
            block: Block(dice.below(70).into()),
            word: dice.below(3).into(),
            content: vec![7; length],
        };
        assert_eq!(Letter::from_bytes(&letter.to_bytes()), Ok(letter.clone()));
        let _ = cell.segment.hear(now, &mut cell.calls, CellId(1), letter);
    }
    for length in 0..40 {
        let _ = Letter::from_bytes(&vec![0xff; length]).unwrap_err();
    }
    let wake = Wake { page: 3, offset: 4092, most: 1, bits: 6 };
    assert_eq!(Wake::from_letter(&wake.to_letter()), Ok(wake));
    let _ = Wake::from_letter(&Letter { kind: 1, ..wake.to_letter() }).unwrap_err();
    let _ = Wake::from_letter(&Wake { offset: 4096, ..wake }.to_letter()).unwrap_err();
    let mut short = wake.to_letter();
    short.content.pop();
    let _ = Wake::from_letter(&short).unwrap_err();
    // A page that is kept: what is said of it waits, but not without end.
    let mut cell = Cell::new(0, Shape { hold: LIMIT, ..shape(2) });
    let rip = CODE_PAGE << 12;
    cell.start(Registers { rip, rdi: address(0, 1), rsi: address(0, 1), rcx: 10, ..Registers::default() });
    let since = Instant::now();
    while cell.look().is_none() {
        assert!(since.elapsed() < LIMIT, "it does not end");
    }
    let ask = Letter { kind: 0, block: Block(1), word: 0, content: Vec::new() };
    let mut taken = 0;
    let refused = loop {
        match cell.segment.hear(now, &mut cell.calls, CellId(1), ask.clone()) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((taken, refused), (3 * 64, HearError::TooMuch(CellId(1))));
    assert_eq!(cell.segment.poll_transmit(), None);
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 1).unwrap();
    let calls = Direct::new(supervisor, kernel);
    let frames = Pages::new(&calls, 0, 4).unwrap();
    let try_it = |me, shape| SharedSegment::new(CellId(me), shape, frames.clone()).unwrap_err();
    assert_eq!(try_it(0, Shape { block_bytes: 48, ..shape(2) }), ShapeError::BlockBytes(48));
    assert_eq!(try_it(0, Shape { pages: 5, ..shape(2) }), ShapeError::Frames { frames: 4, pages: 5 });
    assert_eq!(try_it(2, shape(2)), ShapeError::Cell(2, 2));
}
