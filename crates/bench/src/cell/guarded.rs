//! A program of two processes whose memory is a named region, behind the firewall, and the same on a plain shared mapping (Hive, section 4.2).
#![expect(unsafe_code, reason = "words that two processes share")]

use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use comb_region::Task;
use comb_region::named::Attaching;

use super::measured::Measured;
use super::role;
use crate::cell_region::{Cell, STORED};
use crate::jacobi::{Part, SIZE, checksum};
use crate::memory_side::{PlainMapping, in_no_order, store};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PAIRS: usize = 7;
const FULL_PAIRS: usize = 21;
const ITERATIONS: usize = 300;
const WORDS: usize = 4096 / 8;
const PAGES: usize = 8192;
/// Behind the grids: pages whose first store is timed, and two that the processes store to by turns.
const FIRST: usize = 2 * SIZE * SIZE / WORDS;
const FIRST_PAGES: usize = 2048;
const TURNS: usize = FIRST + FIRST_PAGES;
const BATCHES: usize = 100;
const BATCH: u64 = 100;
const REGION: &str = "region";
/// A region is at one address in all processes, and so is the plain mapping: what a processor knows by address is as good for both.
const PLAIN_AT: usize = 0x4000_0000_0000;

/// By samples `guarded …` and `plain …` of `whole`, `iterations`, `first store`, and `store that misses`, in nanoseconds; and `guarded by plain …` of each pair.
pub(super) fn measure(measured: &mut Measured, full: bool) -> Outcome<()> {
    let cell = Cell::begin()?;
    let plain = PlainMapping::filled(PAGES)?;
    let stored = role::command(role::STORES_FIRST)?.env("COMB_RUNTIME_DIR", cell.directory()).output()?;
    role::numbers(&stored)?;
    let plain = format!("/proc/{}/fd/{}", std::process::id(), plain.file().as_raw_fd());
    for pair in 0..if full { FULL_PAIRS } else { PAIRS } {
        let mut said = Vec::new();
        let mut ways = [("guarded", REGION), ("plain", plain.as_str())];
        // Neither is always the first.
        if pair % 2 == 1 {
            ways.reverse();
        }
        for (name, memory) in ways {
            let run = role::task(&format!("{} {memory}", role::GRID), &["-n", "2", "--cells", "none"])?
                .env("COMB_RUNTIME_DIR", cell.directory())
                .output()?;
            let values = role::named(&run)?;
            for (what, value) in &values {
                measured.add(format!("{name} {what}"), *value);
            }
            said.push((name, values));
        }
        said.sort_by_key(|&(name, _)| name);
        let of = |way: usize, what: &str| {
            said[way].1.iter().find(|(name, _)| name == what).map(|&(_, value)| value)
        };
        if of(0, "checksum") != of(1, "checksum") {
            return Err("the two came to different numbers".into());
        }
        for what in ["whole", "iterations", "first store", "store that misses"] {
            if let (Some(guarded), Some(plain)) = (of(0, what), of(1, what)) {
                measured.add(format!("guarded by plain {what}"), guarded / plain);
            }
        }
    }
    Ok(())
}

pub(super) fn run(memory: &str) -> Outcome<()> {
    let task = Task::join()?;
    let mut region = None;
    let words = if memory == REGION {
        let attached = task.attach(STORED, &Attaching::default())?;
        let words = attached.as_ptr().cast::<u64>();
        region = Some(attached);
        words
    } else {
        PlainMapping::of(std::fs::File::options().read(true).write(true).open(memory)?.into(), PAGES)
            .again_at(std::ptr::without_provenance_mut(PLAIN_AT))?
    };
    let say = |what: &str, value: f64| {
        if task.rank() == 0 {
            println!("{what} {value}");
        }
    };
    let grids = [words.cast::<f64>(), words.cast::<f64>().wrapping_add(SIZE * SIZE)];
    task.barrier();
    let began = Instant::now();
    let part = Part::of(task.rank() as usize, task.count() as usize);
    let iterations = part.run(grids, ITERATIONS, &|| task.barrier());
    task.barrier();
    say("whole", began.elapsed().as_nanos() as f64);
    say("iterations", iterations.as_nanos() as f64);
    if task.rank() == 0 {
        let first = in_no_order(FIRST_PAGES, |page| store(words, (FIRST + page) * WORDS, 1));
        say("first store", first[first.len() / 2] as f64);
        say("checksum", checksum(grids[ITERATIONS % 2]));
    }
    task.barrier();
    if task.count() == 2 {
        let mut each = by_turns(&task, words);
        each.sort_by(f64::total_cmp);
        say("store that misses", each[each.len() / 2]);
    }
    black_box(region);
    Ok(())
}

/// Each stores to its page when it has seen the other's number: a round trip is two stores that miss, and two loads.
fn by_turns(task: &Task, words: *mut u64) -> Vec<f64> {
    let word = |page: usize| {
        // SAFETY: within the mapping, which lives as long as this process; both processes use atomics only there.
        unsafe { AtomicU64::from_ptr(words.add((TURNS + page) * WORDS)) }
    };
    let (own, other) = if task.rank() == 0 { (word(0), word(1)) } else { (word(1), word(0)) };
    own.store(0, Ordering::SeqCst);
    task.barrier();
    let one = |batch: usize| {
        let began = Instant::now();
        for round in 1..=BATCH {
            let number = batch as u64 * BATCH + round;
            let wait = || {
                while other.load(Ordering::Acquire) != number {
                    std::hint::spin_loop();
                }
            };
            if task.rank() == 0 {
                own.store(number, Ordering::Release);
                wait();
            } else {
                wait();
                own.store(number, Ordering::Release);
            }
        }
        began.elapsed().as_nanos() as f64 / BATCH as f64
    };
    let each = (0..BATCHES).map(one).collect();
    task.barrier();
    each
}
