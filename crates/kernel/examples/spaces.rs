//! What it takes to load a space, its first thread and to unload it, beside a supervisor's own memory of some MiB.

use std::time::{Duration, Instant};

use comb_kernel::frames::{Frame, Frames};
use comb_kernel::host::Rights;
use comb_kernel::space::{Bell, Common, Space};
use comb_kernel::thread::{Area, Registers};

const CODE: Rights = Rights { write: false, execute: true };
const CODE_PAGE: u64 = 0x400;

fn main() {
    let mebibytes =
        std::env::args().nth(1).map_or(16, |mebibytes| mebibytes.parse().expect("a number of MiB"));
    let own_memory = vec![1_u8; mebibytes << 20];
    let frames = Frames::new(4).unwrap();
    let (common, bell) = (Common::new().unwrap(), Bell::new().unwrap());
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..300 {
        let mut since = Instant::now();
        let mut passed = |of: usize| {
            let now = Instant::now();
            times[of].push(now - since);
            since = now;
        };
        let mut space = Space::new(&common, &bell).unwrap();
        passed(0);
        space.map(&frames, CODE_PAGE, Frame(0), 1, CODE).unwrap();
        passed(1);
        let rip = CODE_PAGE << 12;
        space.add_thread(0, &Registers { rip, ..Registers::default() }, 0, 0).unwrap();
        while !Area::of(&space, 0).is_stopped() {
            bell.listen(0, Some(Duration::from_millis(100)), |_| {});
        }
        passed(2);
        drop(space);
        passed(3);
    }
    for (what, mut times) in
        ["load", "map a first page", "start a first thread", "unload"].into_iter().zip(times)
    {
        times.sort_unstable();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!("{what:20} {:7.1} {:7.1} µs", micros(times[0]), micros(times[times.len() / 2]));
    }
    assert_eq!(own_memory.len(), mebibytes << 20);
}
