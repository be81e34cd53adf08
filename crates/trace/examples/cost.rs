//! What it costs a program to be recorded, operation by operation: its own time with the recorder attached and without, in the same run,
//! a few rounds of each in turn, of which the shortest counts. Needs root. `cost [ROUNDS]`

use std::io;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use comb_trace::kernel::Kernel;
use comb_trace::source::Source;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each operation is done in one round: long against what it takes to start a program, short against the ring.
const TIMES: u32 = 100_000;

/// What can be measured, and how many calls it makes each time.
const OPERATIONS: &[(&str, u32)] = &[
    ("pread", 1),
    ("read", 1),
    ("fstat", 1),
    ("fstatat absolute", 1),
    ("fstatat relative", 1),
    ("open+close", 2),
    ("dup+close", 2),
    ("failed open", 1),
    ("getppid", 1),
];

/// Does one of them many times; its own time for each, in nanoseconds.
fn measure(operation: &str) -> io::Result<f64> {
    let directory = env::temp_dir();
    env::set_current_dir(&directory)?;
    let relative = format!("comb-cost-{}", std::process::id());
    let absolute = directory.join(&relative);
    fs::write(&absolute, [7; 8192])?;
    let file = rustix::fs::openat(CWD, &absolute, OFlags::RDONLY, Mode::empty())?;
    let mut buffer = [0; 64];
    let mut once = || -> io::Result<()> {
        match operation {
            "pread" => drop(rustix::io::pread(&file, &mut buffer, 4096)?),
            "read" => {
                if rustix::io::read(&file, &mut buffer)? == 0 {
                    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
                }
            }
            "fstat" => drop(rustix::fs::fstat(&file)?),
            "fstatat absolute" => drop(rustix::fs::statat(CWD, &absolute, AtFlags::empty())?),
            "fstatat relative" => drop(rustix::fs::statat(CWD, &relative, AtFlags::empty())?),
            "open+close" => drop(rustix::fs::openat(CWD, &absolute, OFlags::RDONLY, Mode::empty())?),
            "dup+close" => drop(rustix::io::dup(&file)?),
            "failed open" => {
                let missing = rustix::fs::openat(CWD, "comb-cost-missing", OFlags::RDONLY, Mode::empty());
                assert!(missing.is_err());
            }
            "getppid" => drop(rustix::process::getppid()),
            other => return Err(io::Error::other(other.to_owned())),
        }
        Ok(())
    };
    (0..TIMES / 10).try_for_each(|_| once())?;
    let time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let start = time();
    (0..TIMES).try_for_each(|_| once())?;
    let each = (time() - start) / f64::from(TIMES);
    fs::remove_file(&absolute)?;
    Ok(each)
}

fn child(operation: &str) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["measure", operation]).stdout(Stdio::piped());
    Ok(command)
}

fn answer(child: std::process::Child) -> Result<f64> {
    Ok(String::from_utf8(child.wait_with_output()?.stdout)?.trim().parse()?)
}

/// With the recorder attached: once for a program that it looks at, and once for one that it does not.
fn attached(operation: &str) -> Result<(f64, f64, u64)> {
    let mut kernel = Kernel::attach(false)?;
    let others = answer(child(operation)?.spawn()?)?;
    let child = kernel.start(child(operation)?)?;
    let has_ended = AtomicBool::new(false);
    let traced = thread::scope(|scope| {
        let ended = &has_ended;
        let reader = scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                kernel.fetch(usize::MAX, &mut |_, _| {});
                thread::sleep(Duration::from_millis(5));
            }
            kernel.counters().lost
        });
        let traced = answer(child).map_err(|error| error.to_string());
        has_ended.store(true, Ordering::Relaxed);
        traced.map(|traced| (traced, reader.join().expect("it does not panic")))
    })?;
    Ok((others, traced.0, traced.1))
}

/// What others do on the machine can only make it longer.
fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, operation] = &arguments[..]
        && word == "measure"
    {
        println!("{}", measure(operation)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rounds = arguments.get(1).map_or(Ok(5), |rounds| rounds.parse())?;
    println!(
        "{:18} {:>9} {:>9} {:>9} {:>14}",
        "ns per operation", "detached", "others", "recorded", "more per call"
    );
    for &(operation, calls) in OPERATIONS {
        let [mut without, mut others, mut with] = [const { Vec::new() }; 3];
        let mut lost = 0;
        for _ in 0..rounds {
            without.push(answer(child(operation)?.spawn()?)?);
            let (other, traced, lost_now) = attached(operation)?;
            others.push(other);
            with.push(traced);
            lost += lost_now;
        }
        let [without, others, with] = [without, others, with].map(|values| least(&values));
        let more = (with - without) / f64::from(calls);
        println!("{operation:18} {without:9.0} {others:9.0} {with:9.0} {more:14.0}");
        if lost > 0 {
            println!("  {lost} events were lost: the figures are too good");
        }
    }
    Ok(ExitCode::SUCCESS)
}
