//! Programs of a few instructions in spaces: they stop where they should, go on as they are told, and reach nothing.

use std::time::Duration;

use comb_kernel::frames::{Frame, Frames};
use comb_kernel::host::Rights;
use comb_kernel::space::{Bell, Common, Space};
use comb_kernel::thread::{Area, Registers, Stop, Touch};

const CODE: Rights = Rights { write: false, execute: true };
const CODE_PAGE: u64 = 0x400;

struct World {
    frames: Frames,
    bell: Bell,
    space: Space,
}

impl World {
    /// A space with a program in its frame 0.
    fn with(program: &[u8]) -> Self {
        let frames = Frames::new(4).unwrap();
        frames.write(Frame(0), 0, program);
        let bell = Bell::new().unwrap();
        let mut space = Space::new(&Common::new().unwrap(), &bell).unwrap();
        space.map(&frames, CODE_PAGE, Frame(0), 1, CODE).unwrap();
        Self { frames, bell, space }
    }

    fn start(&mut self, number: u32, registers: Registers) -> u32 {
        let rip = if registers.rip == 0 { CODE_PAGE << 12 } else { registers.rip };
        let thread = self.space.add_thread(number, &Registers { rip, ..registers }, number, 0).unwrap();
        assert_eq!(self.stopped(number), Stop::Begins);
        thread
    }

    fn stopped(&self, number: u32) -> Stop {
        let area = Area::of(&self.space, number);
        for _ in 0..500 {
            if area.is_stopped() {
                return area.stop().expect("it says why");
            }
            self.bell.listen(0, Some(Duration::from_millis(20)), |_| {});
        }
        panic!("it does not stop");
    }

    fn next(&self, number: u32) -> Stop {
        Area::of(&self.space, number).resume();
        self.stopped(number)
    }
}

#[test]
fn a_call_stops_and_its_result_comes_back() {
    // mov eax, 39; syscall; mov ebx, eax; mov eax, 60; syscall
    let mut world = World::with(&[0xb8, 39, 0, 0, 0, 0x0f, 5, 0x89, 0xc3, 0xb8, 60, 0, 0, 0, 0x0f, 5]);
    world.start(0, Registers::default());
    assert_eq!(world.next(0), Stop::Call { is_foreign: false });
    let area = Area::of(&world.space, 0);
    let registers = area.registers().unwrap();
    assert_eq!((registers.rax, registers.rip), (39, (CODE_PAGE << 12) + 7));
    area.set_result(4711).unwrap();
    assert_eq!(world.next(0), Stop::Call { is_foreign: false });
    let registers = area.registers().unwrap();
    assert_eq!((registers.rax, registers.rbx), (60, 4711));
}

#[test]
fn a_touch_of_what_is_not_there_stops_and_is_repeated() {
    // mov rax, [rdi]; mov [rdi], rbx; syscall
    let mut world = World::with(&[0x48, 0x8b, 0x07, 0x48, 0x89, 0x1f, 0x0f, 5]);
    let address = 0x7000_0000;
    world.start(0, Registers { rdi: address, rbx: 77, ..Registers::default() });
    assert_eq!(world.next(0), Stop::Fault { address, touch: Touch::Read });
    world.frames.write(Frame(128), 0, &41_u64.to_le_bytes());
    world.space.map(&world.frames, address >> 12, Frame(128), 1, Rights::READ).unwrap();
    assert_eq!(world.next(0), Stop::Fault { address, touch: Touch::Write });
    assert_eq!(Area::of(&world.space, 0).registers().unwrap().rax, 41);
    let mut modified = Vec::new();
    world.space.unmap(address >> 12, 1, &mut |page| modified.push(page)).unwrap();
    let tells = world.space.tells_what_was_modified();
    assert_eq!(modified, if tells { vec![] } else { vec![address >> 12] });
    modified.clear();
    world.space.map(&world.frames, address >> 12, Frame(128), 1, Rights::WRITE).unwrap();
    assert_eq!(world.next(0), Stop::Call { is_foreign: false });
    let mut word = [0; 8];
    world.frames.read(Frame(128), 0, &mut word);
    assert_eq!(u64::from_le_bytes(word), 77);
    world.space.unmap(address >> 12, 1, &mut |page| modified.push(page)).unwrap();
    assert_eq!(modified, [address >> 12]);
}

#[test]
fn neighbours_are_not_visible_before_they_are_mapped_and_only_what_was_written_is_modified() {
    // mov [rdi], rbx; syscall
    let mut world = World::with(&[0x48, 0x89, 0x1f, 0x0f, 5]);
    let page = 0x70010;
    world.start(0, Registers { rdi: (page + 3) << 12, ..Registers::default() });
    // The stretch has room for sixteen.
    world.space.map(&world.frames, page, Frame(144), 1, Rights::WRITE).unwrap();
    assert_eq!(world.next(0), Stop::Fault { address: (page + 3) << 12, touch: Touch::Write });
    world.space.map(&world.frames, page + 1, Frame(145), 15, Rights::WRITE).unwrap();
    assert_eq!(world.next(0), Stop::Call { is_foreign: false });
    let mut modified = Vec::new();
    world.space.unmap(page, 16, &mut |page| modified.push(page)).unwrap();
    let all: Vec<u64> = (page..page + 16).collect();
    let tells = world.space.tells_what_was_modified();
    assert_eq!(modified, if tells { vec![page + 3] } else { all.clone() });
    // And again, where there are notes of what had not been written.
    world.space.map(&world.frames, page, Frame(144), 16, Rights::WRITE).unwrap();
    modified.clear();
    world.space.unmap(page, 16, &mut |page| modified.push(page)).unwrap();
    assert_eq!(modified, if tells { vec![] } else { all });
}

#[test]
fn one_frame_takes_the_place_of_another() {
    // 1: mov rax, [rdi]; syscall; jmp 1b
    let mut world = World::with(&[0x48, 0x8b, 0x07, 0x0f, 5, 0xeb, 0xf9]);
    let page = 0x70010;
    for frame in [144, 145, 300] {
        world.frames.write(Frame(frame), 0, &u64::from(frame).to_le_bytes());
    }
    world.start(0, Registers { rdi: (page + 1) << 12, ..Registers::default() });
    world.space.map(&world.frames, page, Frame(144), 16, Rights::READ).unwrap();
    let mut seen = Vec::new();
    for frame in [145, 300, 145] {
        world.space.unmap(page + 1, 1, &mut |_| {}).unwrap();
        world.space.map(&world.frames, page + 1, Frame(frame), 1, Rights::READ).unwrap();
        // What a call has left in rax is overwritten by the load.
        assert_eq!(world.next(0), Stop::Call { is_foreign: false });
        seen.push(Area::of(&world.space, 0).registers().unwrap().rax);
    }
    assert_eq!(seen, [145, 300, 145]);
}

#[test]
fn a_thread_that_computes_is_interrupted_and_has_all_its_registers() {
    // 1: inc rax; jmp 1b
    let mut world = World::with(&[0x48, 0xff, 0xc0, 0xeb, 0xfb]);
    let thread = world.start(0, Registers { r12: 12, rbp: 5, ..Registers::default() });
    let area = Area::of(&world.space, 0);
    area.set_segments([0x1234_5000, 0x777_000]);
    area.resume();
    std::thread::sleep(Duration::from_millis(5));
    assert!(!area.is_stopped());
    world.space.interrupt(thread).unwrap();
    assert_eq!(world.stopped(0), Stop::Interrupted);
    let registers = area.registers().unwrap();
    assert!(registers.rax > 1000 && registers.r12 == 12 && registers.rbp == 5, "{registers:?}");
    assert_eq!(area.segments(), [0x1234_5000, 0x777_000]);
    assert!(area.vectors().unwrap().len() >= 512);
}

#[test]
fn the_host_is_out_of_reach_by_any_call() {
    // 1: syscall; jmp 1b
    let mut world = World::with(&[0x0f, 5, 0xeb, 0xfc]);
    world.start(0, Registers::default());
    let area = Area::of(&world.space, 0);
    let numbers = (0..600).chain([0x4000_0000, 0x4000_0027, u64::from(u32::MAX), u64::MAX]);
    for number in numbers {
        let rip = CODE_PAGE << 12;
        area.set_registers(&Registers { rax: number, rip, ..Registers::default() }).unwrap();
        let stop = world.next(0);
        // Two are the host's own trampolines': no filter sees them, and from anywhere else one is no instruction, and the other fails.
        if (335..=336).contains(&number) {
            continue;
        }
        assert_eq!(stop, Stop::Call { is_foreign: false }, "{number}");
        assert_eq!(area.registers().unwrap().rax & 0xffff_ffff, number & 0xffff_ffff);
    }
}

#[test]
fn exceptions_are_told() {
    let programs: [(&[u8], i32); 4] = [
        (&[0x0f, 0x0b], libc::SIGILL),
        (&[0xcc], libc::SIGTRAP),
        (&[0x31, 0xc9, 0xf7, 0xf1], libc::SIGFPE),
        (&[0xf4], libc::SIGSEGV),
    ];
    for (program, signal) in programs {
        let mut world = World::with(program);
        world.start(0, Registers::default());
        assert!(matches!(world.next(0), Stop::Exception { signal: told, .. } if told == signal), "{signal}");
    }
}

#[test]
fn many_threads_stop_each_for_itself() {
    // mov eax, edi; syscall; jmp back
    let mut world = World::with(&[0x89, 0xf8, 0x0f, 5, 0xeb, 0xfa]);
    for number in 0..16 {
        world.start(number, Registers { rdi: 100 + u64::from(number), ..Registers::default() });
    }
    for _ in 0..20 {
        for number in 0..16 {
            Area::of(&world.space, number).resume();
        }
        for number in 0..16 {
            assert_eq!(world.stopped(number), Stop::Call { is_foreign: false });
            assert_eq!(Area::of(&world.space, number).registers().unwrap().rax, 100 + u64::from(number));
        }
    }
}

#[test]
fn other_frames_take_the_place_of_stretches_that_are_not_used() {
    // 1: mov rax, [rdi]; add rdi, 4096; syscall; jmp 1b
    let mut world = World::with(&[0x48, 0x8b, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0x0f, 5, 0xeb, 0xf2]);
    let page = 0x70000;
    // The first gets a stretch of 128. What comes into its middle are other frames: sixteen that are as their pages are, and two that are not.
    let mappings = [
        (0, 128),
        (16, 256 + 32),
        (17, 256 + 33),
        (31, 256 + 47),
        (32, 300),
        (33, 299),
        (127, 128 + 127),
        (126, 128 + 126),
    ];
    for (at, frame) in mappings {
        world.frames.write(Frame(frame), 0, &u64::from(frame).to_le_bytes());
        world.space.map(&world.frames, page + at, Frame(frame), 1, Rights::READ).unwrap();
    }
    world.start(0, Registers::default());
    let area = Area::of(&world.space, 0);
    for (at, frame) in mappings {
        let registers = Registers { rip: CODE_PAGE << 12, rdi: (page + at) << 12, ..Registers::default() };
        area.set_registers(&registers).unwrap();
        assert_eq!(world.next(0), Stop::Call { is_foreign: false });
        assert_eq!(area.registers().unwrap().rax, u64::from(frame), "page {at}");
    }
    for at in [1, 15, 18, 30, 34, 125] {
        let registers = Registers { rip: CODE_PAGE << 12, rdi: (page + at) << 12, ..Registers::default() };
        area.set_registers(&registers).unwrap();
        assert_eq!(world.next(0), Stop::Fault { address: (page + at) << 12, touch: Touch::Read });
    }
    let mut modified = Vec::new();
    world.space.unmap(page, 128, &mut |page| modified.push(page)).unwrap();
}

/// The others once more, as they are on hosts before Linux 6.7.
#[test]
fn hosts_without_notes_do_too() {
    const WITHOUT: &str = "COMB_WITHOUT";
    if std::env::var_os(WITHOUT).is_some() {
        return;
    }
    let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
    let output = tests.env(WITHOUT, "pagemap_scan").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A program that says in the mapper's place that all is done once had mappings made where others' frames still were.
#[test]
fn what_a_program_says_in_the_mappers_place_is_not_believed() {
    // 1: inc eax; mov [rdi], eax; jmp 1b: every number of orders there can be
    let mut world = World::with(&[0xff, 0xc0, 0x89, 0x07, 0xeb, 0xfa]);
    // 1: mov rbx, [rdi]; syscall; jmp 1b
    world.frames.write(Frame(0), 256, &[0x48, 0x8b, 0x1f, 0x0f, 5, 0xeb, 0xf9]);
    let results = 0x7000_0001_1008;
    for (number, first) in [(0, 0), (1, 1 << 30)] {
        world.start(number, Registers { rdi: results, rax: first, ..Registers::default() });
        Area::of(&world.space, number).resume();
    }
    let page = 0x70010;
    let rip = (CODE_PAGE << 12) + 256;
    world.start(2, Registers { rdi: page << 12, rip, ..Registers::default() });
    let frames = [144, 300, 145, 301, 160, 302];
    for frame in frames.into_iter().cycle().take(120) {
        world.frames.write(Frame(frame), 0, &u64::from(frame).to_le_bytes());
        world.space.map(&world.frames, page, Frame(frame), 1, Rights::READ).unwrap();
        assert_eq!(world.next(2), Stop::Call { is_foreign: false });
        assert_eq!(Area::of(&world.space, 2).registers().unwrap().rbx, u64::from(frame));
        world.space.unmap(page, 1, &mut |_| {}).unwrap();
    }
}
