//! First loads of pages that another cell has (Hive, section 5.2), beside first loads of a plain mapping of memory that is there; and what share of a batch they are.

use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Instant;

use comb_region::named::Attaching;
use comb_region::{Array, Task};

use super::measured::Measured;
use super::{firewall, role};
use crate::cell_region::{Cell, STORED};
use crate::memory_side::{PlainMapping, in_no_order, load};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const WORDS: usize = 4096 / 8;
const PAGES: usize = 8192;
/// What one fault brings, there and here.
const PAGES_AROUND: usize = 16;
const ROUNDS: usize = 15;
/// Of a batch.
const PROCESSES: usize = 40;
const PAGES_EACH: usize = 256;

/// By samples `remote fault`, `local fault`, `remote page`, `local page`, in nanoseconds, `share of a batch`, and those of [`firewall::parts_of_a_fault`].
pub(super) fn measure(measured: &mut Measured) -> Outcome<()> {
    firewall::parts_of_a_fault(measured)?;
    let cell = Cell::begin()?;
    let stored = role::command(role::STORES_FIRST)?.env("COMB_RUNTIME_DIR", cell.directory()).output()?;
    role::numbers(&stored)?;
    let plain = PlainMapping::filled(PAGES)?;
    let plain = format!("/proc/{}/fd/{}", std::process::id(), plain.file().as_raw_fd());
    let touching = role::command(&format!("{} {plain}", role::TOUCHES))?
        .env("COMB_RUNTIME_DIR", cell.directory())
        .stdout(Stdio::piped())
        .output()?;
    for (name, value) in role::named(&touching)? {
        measured.add(name, value);
    }
    let began = Instant::now();
    let mut in_faults = 0.0;
    for _ in 0..PROCESSES {
        let mut one = role::command(&format!("{} {PAGES_EACH}", role::READS))?;
        let one = one.env("COMB_RUNTIME_DIR", cell.directory()).output()?;
        in_faults += role::numbers(&one)?.iter().sum::<f64>();
    }
    measured.add("share of a batch", in_faults / 1e9 / began.elapsed().as_secs_f64());
    Ok(())
}

fn attach(task: &Task) -> Outcome<Array<u64>> {
    let region = task.attach(STORED, &Attaching::default())?;
    if !region.imports() {
        return Err("this kernel cannot guard imports".into());
    }
    Ok(region.array(0, PAGES * WORDS).ok_or("too small")?)
}

/// By turns: one page of each piece that one fault brings, and then all pages in order.
pub(super) fn touch(plain: &str) -> Outcome<()> {
    let task = Task::join()?;
    let plain = PlainMapping::of(std::fs::File::options().read(true).write(true).open(plain)?.into(), PAGES);
    for _ in 0..ROUNDS {
        let remote = attach(&task)?;
        scattered("remote fault", remote.as_ptr());
        drop(remote);
        scattered("local fault", plain.again()?);
        let remote = attach(&task)?;
        in_order("remote page", remote.as_ptr());
        drop(remote);
        in_order("local page", plain.again()?);
    }
    Ok(())
}

fn scattered(name: &str, words: *const u64) {
    let each =
        in_no_order(PAGES / PAGES_AROUND, |piece| _ = black_box(load(words, piece * PAGES_AROUND * WORDS)));
    println!("{name} {}", each[each.len() / 2]);
}

fn in_order(name: &str, words: *const u64) {
    let began = Instant::now();
    (0..PAGES).for_each(|page| _ = black_box(load(words, page * WORDS)));
    println!("{name} {}", began.elapsed().as_nanos() as f64 / PAGES as f64);
}

/// One process of a batch: what its loads took, in nanoseconds.
pub(super) fn read(pages: usize) -> Outcome<()> {
    let task = Task::join()?;
    let region = attach(&task)?;
    let began = Instant::now();
    (0..pages).for_each(|page| _ = black_box(region.get(page * WORDS)));
    println!("{}", began.elapsed().as_nanos());
    Ok(())
}
