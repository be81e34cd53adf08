//! What has to be done in each period, by a real-time kernel beside compilers that want all processors.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use comb_kernel::calls::Direct;
use comb_kernel::objects::Sizes;
use comb_kernel::programs;
use comb_kernel::shares::{HIGHEST_USUAL_PRIORITY, USUAL_PRIORITY};
use comb_kernel::supervisor::Supervisor;
use comb_kernels::realtime::{Kept, Realtime, Task};

use super::compiling::{FILES, prepare};
use super::{Outcome, limit, peers, row};
use crate::report::Row;

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

pub(super) fn rows(periods: u32, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    say("real-time periods beside compilers");
    let processors = peers::processors()?;
    let place = prepare()?;
    let compilers = Compilers::start(&place.0, 2 * processors.len())?;
    let last = *processors.last().expect("there is one");
    let preferred = kept(HIGHEST_USUAL_PRIORITY + 1, periods, last)?;
    let usual = kept(USUAL_PRIORITY, periods, last)?;
    drop(compilers);
    let milliseconds = |kept: &Kept| Some(kept.latest().as_secs_f64() * 1e3);
    let claim = "the longest of 0.3 ms of work in a period of 2 ms, real-time kernel beside compilers";
    let note = |kept: &Kept| format!("{} of {periods} periods missed", kept.missed);
    Ok(vec![
        Row {
            note: note(&preferred),
            ..limit(claim, milliseconds(&preferred), "ms", PERIOD.as_secs_f64() * 1e3)
        },
        Row {
            note: note(&usual),
            ..row("the same at the priority of the compilers", milliseconds(&usual), "ms")
        },
    ])
}
