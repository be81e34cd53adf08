//! What stopping, mapping and loading take here, by hand.

use std::time::{Duration, Instant};

use comb_kernel::frames::{Frame, Frames};
use comb_kernel::host::Rights;
use comb_kernel::space::{Bell, Common, Space};
use comb_kernel::thread::{Area, Registers};

const CODE: Rights = Rights { write: false, execute: true };
const CODE_PAGE: u64 = 0x400;

fn report(what: &str, times: u32, since: Instant) {
    println!("{what:40} {:8.2} µs", since.elapsed().as_secs_f64() * 1e6 / f64::from(times));
}

fn main() {
    let frames = Frames::new(64).unwrap();
    let text = Common::new().unwrap();
    let bell = Bell::new().unwrap();
    let since = Instant::now();
    for _ in 0..50 {
        drop(Space::new(&text, &bell).unwrap());
    }
    report("a space, made and ended", 50, since);
    let mut space = Space::new(&text, &bell).unwrap();
    // 1: mov eax, 39; syscall; jmp 1b
    frames.write(Frame(0), 0, &[0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 0xf7]);
    // 1: mov [rdi], rax; add rdi, 4096; jmp 1b
    frames.write(Frame(0), 256, &[0x48, 0x89, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xf4]);
    space.map(&frames, CODE_PAGE, Frame(0), 1, CODE).unwrap();
    let rip = CODE_PAGE << 12;
    // On one processor, spinning is waiting for the end of a slice.
    let spins = std::env::args().nth(1).map_or(100_000, |spins| spins.parse().expect("a number of spins"));
    for (what, spins, own_spins) in [("a call, both spin", spins, spins), ("a call, both sleep", 0, 0)] {
        let number = u32::from(spins == 0);
        space.add_thread(number, &Registers { rip, ..Registers::default() }, number, spins).unwrap();
        while !Area::of(&space, number).is_stopped() {}
        let times = 200_000;
        let since = Instant::now();
        for _ in 0..times {
            let area = Area::of(&space, number);
            area.set_result(1).unwrap();
            area.resume();
            let mut is_stopped = false;
            while !is_stopped {
                bell.listen(own_spins, Some(Duration::from_millis(100)), |_| {});
                is_stopped = area.is_stopped();
            }
        }
        report(what, times, since);
    }
    space
        .add_thread(2, &Registers { rip: rip + 256, rdi: 0x7000_0000, ..Registers::default() }, 2, 100_000)
        .unwrap();
    while !Area::of(&space, 2).is_stopped() {}
    let pages = 60 * 128;
    for round in 0..3 {
        let area = Area::of(&space, 2);
        let mut registers = area.registers().unwrap();
        registers.rdi = 0x7000_0000;
        registers.rip = rip + 256;
        area.set_registers(&registers).unwrap();
        let since = Instant::now();
        area.resume();
        for page in 0..pages {
            while !Area::of(&space, 2).is_stopped() {
                bell.listen(spins, Some(Duration::from_millis(100)), |_| {});
            }
            space.map(&frames, 0x70000 + u64::from(page), Frame(128 + page), 1, Rights::WRITE).unwrap();
            if page + 1 < pages {
                Area::of(&space, 2).resume();
            }
        }
        report(
            ["a fault, new stretches and frames", "a fault, mapped again", "a fault, mapped again"][round],
            pages,
            since,
        );
        Area::of(&space, 2).resume();
        while !Area::of(&space, 2).is_stopped() {}
        let since = Instant::now();
        space.unmap(0x70000, u64::from(pages), &mut |_| {}).unwrap();
        report("unmapped, of many", pages, since);
    }
    for page in 0..pages {
        space.map(&frames, 0x70000 + u64::from(page), Frame(128 + page), 1, Rights::WRITE).unwrap();
    }
    let since = Instant::now();
    for page in 0..1000 {
        space.unmap(0x70000 + page, 1, &mut |_| {}).unwrap();
    }
    report("unmapped, one", 1000, since);
    let since = Instant::now();
    for page in 0..1000 {
        space
            .map(&frames, 0x70000 + page, Frame(128 + u32::try_from(page).unwrap()), 1, Rights::WRITE)
            .unwrap();
    }
    report("mapped, one", 1000, since);
    let since = Instant::now();
    for number in 10..200 {
        space.add_thread(number, &Registers { rip, ..Registers::default() }, number, 0).unwrap();
    }
    report("a thread", 190, since);
}
