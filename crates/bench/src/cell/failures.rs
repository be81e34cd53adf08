//! Cells that are killed, or stopped, while tasks in them may store to another cell's memory: when the others enter recovery, and when they go on (Hive, sections 4.3 and 7.4).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use comb_cell::clock::monotonic_ns;
use comb_cell::supervision::Recovered;
use comb_host::control::{Reply, Request};
use comb_region::Task;
use comb_region::named::Attaching;
use rustix::process::{Pid, Signal, kill_process};

use super::comb::Comb;
use super::measured::Measured;
use super::role;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const CELLS: u32 = 4;
/// Of the pages that the victims' tasks can store to.
const HOME: u32 = 1;
const REGION: &str = "shared";
const TIMES: u32 = 10;
const FULL_TIMES: u32 = 100;
/// Pages that Hive's pmake had writable at most, and its ocean in the mean.
const PAGES: [usize; 2] = [42, 550];
/// With the many pages, one in so many is repeated.
const FEWER: u32 = 2;
const RECOVERY_LIMIT: Duration = Duration::from_secs(5);
const HOGS: usize = 32;
const CALM: Duration = Duration::from_secs(10);
const FULL_CALM: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_millis(300);
/// What the agent writes when cells have agreed that one of them has failed.
const SUSPECTED: &str = "found it failed";

/// By samples `crash entered`, `crash resumed`, `crash recovery`, and the same of `hang`; `fence of N`; in nanoseconds. Counts are `false suspicions`, `pages of N`.
pub(super) fn measure(measured: &mut Measured, full: bool, say: &dyn Fn(&str)) -> Outcome<()> {
    let comb = Comb::up(CELLS)?;
    comb.create_region(REGION, "16M", HOME)?;
    let times = if full { FULL_TIMES } else { TIMES };
    let mut victims = (HOME + 1..=CELLS).cycle();
    for (fault, signal) in [("crash", Signal::KILL), ("hang", Signal::STOP)] {
        for pages in PAGES {
            for time in 1..=if pages == PAGES[0] { times } else { times / FEWER } {
                say(&format!("{fault} with {pages} pages, {time}"));
                let victim = victims.next().ok_or("no cells")?;
                fail_once(&comb, victim, signal, pages, fault, measured)?;
            }
        }
    }
    say("hogs");
    let before = comb.log().matches(SUSPECTED).count();
    std::thread::sleep(SETTLING);
    {
        let _hogs: Vec<Held> =
            (0..HOGS).map(|_| Ok(Held(role::command(role::HOGS)?.spawn()?))).collect::<Outcome<_>>()?;
        std::thread::sleep(if full { FULL_CALM } else { CALM });
    }
    let after = comb.log().matches(SUSPECTED).count();
    measured.add("false suspicions", (after - before) as f64);
    Ok(())
}

/// A process that ends with its owner's interest in it.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A task in a cell that has so many pages to store to.
fn holder(comb: &Comb, cell: u32, pages: usize) -> Outcome<Held> {
    let mut task =
        role::task(&format!("{} {REGION} {pages}", role::HOLDS), &["-n", "1", "--cells", &cell.to_string()])?;
    task.env("COMB_RUNTIME_DIR", comb.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut task = Held(task.spawn()?);
    let mut word = String::new();
    BufReader::new(task.0.stdout.take().ok_or("no pipe")?).read_line(&mut word)?;
    if word.trim() == "ready" { Ok(task) } else { Err("a task in a cell does not get its pages".into()) }
}

fn fail_once(
    comb: &Comb,
    victim: u32,
    signal: Signal,
    pages: usize,
    fault: &str,
    measured: &mut Measured,
) -> Outcome<()> {
    comb.wait_until_whole()?;
    let holder = holder(comb, victim, pages)?;
    std::thread::sleep(SETTLING);
    let process = comb.cell(victim)?.pid;
    let process = Pid::from_raw(i32::try_from(process)?).ok_or("no process")?;
    let at_ns = monotonic_ns();
    kill_process(process, signal)?;
    let recovered = recoveries(comb, victim, at_ns)?;
    drop(holder);
    let latest = |of: fn(&Recovered) -> u64| recovered.iter().map(of).max().unwrap_or_default();
    let first = recovered.iter().map(|one| one.entered_ns).min().unwrap_or_default();
    let since = |moment: u64, from: u64| moment.saturating_sub(from) as f64;
    measured.add(format!("{fault} entered"), since(latest(|one| one.entered_ns), at_ns));
    measured.add(format!("{fault} resumed"), since(latest(|one| one.resumed_ns), at_ns));
    measured.add(format!("{fault} recovery"), since(latest(|one| one.resumed_ns), first));
    measured.add(format!("fence of {pages}"), latest(|one| one.fenced_ns) as f64);
    measured.add(
        format!("pages of {pages}"),
        recovered.iter().map(|one| one.discarded_pages).sum::<u64>() as f64,
    );
    measured.add("runnable a core", runnable_a_core().unwrap_or_default());
    Ok(())
}

/// What all who live say of it.
fn recoveries(comb: &Comb, victim: u32, since_ns: u64) -> Outcome<Vec<Recovered>> {
    let since = Instant::now();
    while since.elapsed() < RECOVERY_LIMIT {
        let Reply::Recoveries(all) = comb.ask(&Request::Recoveries)? else {
            return Err("no recoveries".into());
        };
        let of_this = |one: &(u32, Recovered)| one.1.dead.contains(&victim) && one.1.resumed_ns >= since_ns;
        let mut of_this: Vec<(u32, Recovered)> = all.into_iter().filter(of_this).collect();
        of_this.sort_by_key(|&(cell, _)| cell);
        of_this.dedup_by_key(|(cell, _)| *cell);
        if of_this.len() + 1 == CELLS as usize {
            return Ok(of_this.into_iter().map(|(_, recovered)| recovered).collect());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("cell {victim} has failed and the others have not all recovered:\n{}", comb.log()).into())
}

/// Threads that run or would, by cores; this one is not counted.
fn runnable_a_core() -> Option<f64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let runnable: f64 = load.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()?;
    let cores = std::thread::available_parallelism().ok()?.get() as f64;
    Some((runnable - 1.0) / cores)
}

pub(super) fn hold(region: &str, pages: usize) -> Outcome<()> {
    const WORDS: usize = 4096 / 8;
    let task = Task::join()?;
    let region = task.attach(region, &Attaching::default())?;
    let words = region.array::<u64>(0, pages * WORDS).ok_or("too small")?;
    (0..pages).for_each(|page| words.set(page * WORDS, 1));
    println!("ready");
    std::io::stdout().flush()?;
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

pub(super) fn hog() -> Outcome<()> {
    loop {
        std::hint::spin_loop();
    }
}
