//! What runs in the cells while faults are injected: the hidden `comb inject-program`.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use comb_region::named::{Attaching, Region};
use comb_region::{Array, Combine, Task};
use comb_types::Dice;

use super::content;
use crate::failure::{Failure, Outcome};

/// The regions of a cell that has begun again are there a moment later.
const REGION_LIMIT: Duration = Duration::from_secs(5);
/// What was read is not what was stored: nothing excuses that.
pub(super) const WRONG: &str = "wrong content";
/// What a program says when it is at work.
pub(super) const BEGUN: &str = "begun";

#[derive(Debug, Args)]
pub(crate) struct InjectProgram {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    /// Computes something.
    Compute { seed: u64 },
    /// Gives a region its content.
    Fill { region: String, seed: u64 },
    /// Compares the content of regions, each followed by its seed.
    Check { regions: Vec<String> },
    /// Reads a region through and stores to its first pages, together with the others of the task, until standard input ends.
    Span { region: String, seed: u64, pause_us: u64 },
    /// Stores to random pages.
    Wild {
        region: String,
        seed: u64,
        pages: u32,
        #[arg(long)]
        without_right: bool,
    },
}

impl InjectProgram {
    pub(crate) fn run(self) -> Outcome {
        match self.program {
            Program::Compute { seed } => println!("{:016x}", content::computed(seed)),
            Program::Fill { region, seed } => fill(&region, seed)?,
            Program::Check { regions } => check(&regions)?,
            Program::Span { region, seed, pause_us } => {
                let task = Task::join()?;
                if let Err(failure) = span(&task, &region, seed, Duration::from_micros(pause_us)) {
                    eprintln!("comb: {failure}");
                    // Whoever gives a task up in good order waits for the others, and these wait at a barrier.
                    std::process::exit(1);
                }
            }
            Program::Wild { region, seed, pages, without_right } => {
                wild(&region, seed, pages, without_right)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn attach(task: &Task, name: &str, only_to_read: bool) -> Result<Region, Failure> {
    let since = Instant::now();
    loop {
        match task.attach(name, &Attaching { only_to_read, ..Attaching::default() }) {
            Err(_) if since.elapsed() < REGION_LIMIT => std::thread::sleep(Duration::from_millis(5)),
            outcome => return outcome.map_err(|error| Failure::new(format!("{name}: {error}"))),
        }
    }
}

fn words(region: &Region) -> Array<u64> {
    let words = usize::try_from(region.bytes() / 8).expect("small");
    region.array(0, words).expect("all of it")
}

fn fill(name: &str, seed: u64) -> Result<(), Failure> {
    let region = attach(&Task::join()?, name, false)?;
    let words = words(&region);
    for page in 0..words.len() / content::WORDS {
        words.write(page * content::WORDS, &content::page(seed, page))?;
    }
    Ok(())
}

fn check(regions: &[String]) -> Result<(), Failure> {
    let task = Task::join()?;
    for pair in regions.chunks(2) {
        let [name, seed] = pair else { return Err(Failure::new("say each region and its seed")) };
        let region = attach(&task, name, true)?;
        check_region(&region, seed.parse()?)?;
    }
    println!("whole");
    Ok(())
}

fn check_region(region: &Region, seed: u64) -> Result<(), Failure> {
    let words = words(region);
    let mut found = [0; content::WORDS];
    for page in 0..words.len() / content::WORDS {
        let read = words.read(page * content::WORDS, &mut found);
        read.map_err(|error| Failure::new(format!("{}, page {page}: {error}", region.name())))?;
        if found != content::page(seed, page) {
            return Err(Failure::new(format!("{WRONG} in page {page} of {}", region.name())));
        }
    }
    Ok(())
}

/// Each round reads pages that nobody has read before, as long as there are any, and stores what the others find in the next.
fn span(task: &Task, name: &str, seed: u64, pause: Duration) -> Result<(), Failure> {
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    let is_over = Arc::new(AtomicBool::new(false));
    if rank == 0 {
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let _ = std::io::stdin().lock().read_line(&mut String::new());
            over.store(true, Ordering::Relaxed);
        });
    }
    let region = attach(task, name, false)?;
    let words = words(&region);
    let pages = words.len() / content::WORDS;
    let mut found = [0; content::WORDS];
    let mut own = content::first(seed, rank);
    words.write(rank * content::WORDS, &[own])?;
    let mut rounds = 0_usize;
    loop {
        task.barrier();
        let mut left = [0];
        words.read((rank + count - 1) % count * content::WORDS, &mut left)?;
        let page = count + (rounds * count + rank) % (pages - count);
        words.read(page * content::WORDS, &mut found)?;
        if found != content::page(seed, page) {
            return Err(Failure::new(format!("{WRONG} in page {page} of {name}, round {rounds}")));
        }
        own = content::next(own, left[0]);
        // All have read before anybody stores.
        let ends = task.reduce(Combine::Greatest, &[u64::from(is_over.load(Ordering::Relaxed))])[0] != 0;
        words.write(rank * content::WORDS, &[own])?;
        rounds += 1;
        if rounds == 1 && rank == 0 {
            println!("{BEGUN}");
            std::io::stdout().flush()?;
        }
        if ends {
            break;
        }
        std::thread::sleep(pause);
    }
    let all = task.reduce(Combine::Sum, &[own])[0];
    if rank == 0 {
        println!("{rounds} {all:016x}");
    }
    Ok(())
}

/// By plain stores, as a program's bugs make them.
fn wild(name: &str, seed: u64, pages: u32, without_right: bool) -> Result<(), Failure> {
    let region = attach(&Task::join()?, name, without_right)?;
    let words = words(&region);
    let mut dice = Dice::new(seed);
    for _ in 0..pages {
        words.set(dice.index(words.len()), dice.roll());
    }
    println!("{BEGUN}");
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
