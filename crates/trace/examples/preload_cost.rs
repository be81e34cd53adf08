//! What it costs to be seen by the library: processor time of a program and the recorder, against that of the program alone, by turns.
//! `preload_cost TURNS PROGRAM [ARGUMENT…]`.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use comb_trace::preload::Preload;
use comb_trace::privacy::Privacy;
use comb_trace::recorder::{Recorder, TraceFile};
use comb_trace::trace_file::Head;

/// Processor time of this process and of its children that have ended.
fn used() -> (Duration, Duration) {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = Duration::new(u64::try_from(own.tv_sec).unwrap_or(0), u32::try_from(own.tv_nsec).unwrap_or(0));
    // Of all that were waited for, in ticks.
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = status.rsplit(')').next().unwrap_or_default();
    let field = |number: usize| {
        after_name.split_whitespace().nth(number).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    (own, Duration::from_millis((field(13) + field(14)) * 10))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [turns, program, rest @ ..] = &*arguments else {
        return Err("preload_cost TURNS PROGRAM [ARGUMENT…]".into());
    };
    let turns: u32 = turns.to_string_lossy().parse()?;
    let path = std::env::temp_dir().join(format!("comb-preload-cost-{}", std::process::id()));
    let command = || {
        let mut command = Command::new(program);
        command.args(rest).stdout(Stdio::null());
        command
    };
    let [mut alone, mut seen, mut recorder_used] = [Duration::ZERO; 3];
    let [mut alone_took, mut seen_took] = [Duration::ZERO; 2];
    let (mut events, mut lost, mut bytes) = (0, 0, 0);
    for _ in 0..turns {
        let (_, before) = used();
        let began = Instant::now();
        command().status()?;
        alone_took += began.elapsed();
        let (_, between) = used();
        alone += between - before;
        let source = Box::new(Preload::new()?);
        let (own, _) = used();
        let mut recorder =
            Recorder::new(source, TraceFile::create(&path)?, Privacy::none(), Head::default())?;
        let began = Instant::now();
        let mut child = recorder.source().start(command())?;
        while child.try_wait()?.is_none() {
            let pause = recorder.step()?;
            thread::sleep(pause.min(Duration::from_millis(8)));
        }
        seen_took += began.elapsed();
        let summary = recorder.finish()?;
        std::fs::remove_file(&path)?;
        let (own_after, after) = used();
        seen += after - between;
        recorder_used += own_after - own;
        events += summary.counters.recorded + summary.counters.lost;
        lost += summary.counters.lost;
        bytes += summary.bytes;
    }
    let both = seen + recorder_used;
    println!(
        "alone {alone:?} in {alone_took:?}; seen {seen:?} and the recorder {recorder_used:?} in {seen_took:?}"
    );
    println!("{events} events, {lost} lost, {bytes} bytes written");
    println!(
        "{:.0} ns of the program and {:.0} ns of the recorder an event; {:+.1} %",
        (seen.as_secs_f64() - alone.as_secs_f64()) * 1e9 / events as f64,
        recorder_used.as_secs_f64() * 1e9 / events as f64,
        (both.as_secs_f64() / alone.as_secs_f64() - 1.0) * 100.0
    );
    Ok(())
}
