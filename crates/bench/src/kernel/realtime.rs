//! What has to be done in each period, by a real-time kernel beside compilers that want all processors.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use comb_kernel::calls::Direct;
use comb_kernel::objects::Sizes;
use comb_kernel::programs;
use comb_kernel::scheduling::prefer_this_thread;
use comb_kernel::shares::{HIGHEST_USUAL_PRIORITY, USUAL_PRIORITY};
use comb_kernel::supervisor::Supervisor;
use comb_kernels::realtime::{Kept, Realtime, Task};

use super::compiling::{FILES, prepare};
use super::{Outcome, peers, row};
use crate::report::{Goal, Row};

const PERIOD: Duration = Duration::from_millis(2);
/// Of a period, if nothing comes in between.
const WORK: Duration = Duration::from_micros(300);

/// Compilers that begin again when they are done, two for each processor; gone at the end.
struct Compilers(Vec<Child>);

impl Compilers {
    fn start(at: &Path, count: usize) -> Outcome<Self> {
        let mut all = Self(Vec::new());
        for number in 0..count {
            let script = format!("while cc -O2 -c part{}.c -o /dev/null; do :; done", number % FILES);
            let mut command = Command::new("sh");
            let command = command.args(["-c", &script]).current_dir(at).stdin(Stdio::null());
            all.0.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        }
        Ok(all)
    }
}

impl Drop for Compilers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// On a thread of its own, whose priority ends with it.
fn kept(priority: u8, periods: u32, processor: usize) -> Outcome<Kept> {
    let run = move || {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2).map_err(|error| said(&error))?;
        let processor = u32::try_from(processor).ok();
        let task = Task { program: programs::WORKS, priority, locked: true, frame: 128, processor };
        let mut realtime =
            Realtime::new(Direct::new(supervisor, kernel), &task).map_err(|error| said(&error))?;
        const SOME: u64 = 20_000;
        let tries = (0..50).map(|_| realtime.once(SOME)).collect::<Result<Vec<_>, _>>();
        let shortest = tries.map_err(|error| said(&error))?.into_iter().min().expect("some");
        let amount = u128::from(SOME) * WORK.as_nanos() / shortest.as_nanos().max(1);
        let amount = u64::try_from(amount).unwrap_or(SOME);
        realtime.run(amount, PERIOD, periods).map_err(|error| said(&error))
    };
    let ended = std::thread::spawn(run).join();
    Ok(ended.map_err(|_| "the real-time kernel has ended")??)
}

/// What the host's own real-time thread keeps of such periods: no kernel on this host can do more.
fn kept_by_the_host(periods: u32, processor: usize) -> Outcome<Kept> {
    let run = move || {
        prefer_this_thread(HIGHEST_USUAL_PRIORITY + 1);
        peers::stay_on(&[processor]).map_err(|error| error.to_string())?;
        let work = |amount: u64| {
            for number in 0..amount {
                std::hint::black_box(number);
            }
        };
        const SOME: u64 = 100_000;
        let timed = |amount: u64| {
            let began = Instant::now();
            work(amount);
            began.elapsed().as_nanos()
        };
        let shortest = (0..50).map(|_| timed(SOME)).min().expect("some").max(1);
        let amount = u64::try_from(u128::from(SOME) * WORK.as_nanos() / shortest).unwrap_or(SOME);
        let mut kept = Kept::default();
        let start = Instant::now();
        for number in 1..=periods {
            let begin = start + PERIOD * number;
            std::thread::sleep(begin.saturating_duration_since(Instant::now()));
            work(amount);
            let took = begin.elapsed();
            kept.missed += usize::from(took > PERIOD);
            kept.took.push(took);
        }
        Ok::<Kept, String>(kept)
    };
    Ok(std::thread::spawn(run).join().map_err(|_| "a thread of the host has ended")??)
}

pub(super) fn rows(periods: u32, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    say("real-time periods beside compilers");
    let processors = peers::processors()?;
    let place = prepare()?;
    let compilers = Compilers::start(&place.0, 2 * processors.len())?;
    let last = *processors.last().expect("there is one");
    let preferred = kept(HIGHEST_USUAL_PRIORITY + 1, periods, last)?;
    let hosts = kept_by_the_host(periods, last)?;
    let usual = kept(USUAL_PRIORITY, periods, last)?;
    drop(compilers);
    let percent = |kept: &Kept| {
        let all = kept.took.len().max(1);
        (all - kept.missed.min(all)) as f64 / all as f64 * 100.0
    };
    let longest = |kept: &Kept| format!("{:.1} ms", kept.latest().as_secs_f64() * 1e3);
    let (ours, theirs) = (percent(&preferred), percent(&hosts));
    let claim = "periods of 2 ms with 0.3 ms of work that are kept beside compilers, by a real-time kernel";
    let note = format!("the longest {}; the host's {}", longest(&preferred), longest(&hosts));
    Ok(vec![
        Row {
            peer: "a real-time thread of the host".to_owned(),
            theirs: Some(theirs),
            ratio: Some(ours / theirs),
            goal: Goal::AtLeast(0.99),
            note,
            ..row(claim, Some(ours), "%")
        },
        Row {
            note: format!("the longest {}", longest(&usual)),
            ..row("the same at the priority of the compilers", Some(percent(&usual)), "%")
        },
    ])
}
