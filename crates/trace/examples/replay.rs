//! Replays a trace in a directory that is empty or not there yet: `replay TRACE DIRECTORY [SPEED]`. Without a speed, as fast as possible.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use comb_trace::replay::{Fill, MOST_WORKERS, Pace, Plan, Sandbox, replay};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(trace), Some(directory)) = (arguments.first(), arguments.get(1)) else {
        return Err("replay TRACE DIRECTORY [SPEED]".into());
    };
    let pace = match arguments.get(2) {
        None => Pace::AsFastAsPossible,
        Some(speed) => Pace::Timed { speed: speed.parse()? },
    };
    let plan = Plan::read(BufReader::new(File::open(trace)?), MOST_WORKERS)?;
    println!(
        "{} operations by {} threads on {} files",
        plan.operations(),
        plan.threads(),
        plan.prior_files()
    );
    for ((operation, why), count) in plan.left() {
        println!("  left out: {operation}, {}: {count}", why.reason());
    }
    let sandbox = Sandbox::prepare(Path::new(directory), &plan, Fill::Holes)?;
    let summary = replay(&plan, &sandbox, pace);
    println!("{:?}, recorded {:?}, at most {:?} late", summary.elapsed, summary.recorded, summary.latest);
    println!("{} bytes read, {} written", summary.read_bytes, summary.written_bytes);
    for (operation, done) in &summary.done {
        println!("  {operation}: {}, {} bytes", done.count, done.bytes);
    }
    println!("{} came out differently", summary.differences);
    for ((operation, then, now), count) in &summary.differences_by_error {
        println!("  {operation}: error {then:?} then, {now:?} now: {count}");
    }
    for difference in &summary.first_differences {
        println!(
            "  {} of {}: {:?} then, {:?} now",
            difference.operation,
            String::from_utf8_lossy(&difference.path),
            difference.recorded,
            difference.replayed
        );
    }
    Ok(())
}
