//! What cells take that have nothing to do.

use std::time::{Duration, Instant};

use super::comb::Comb;
use super::measured::Measured;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const CELLS: u32 = 4;
/// Beginnings are over.
const SETTLING: Duration = Duration::from_secs(3);
const LOOKED_AT: Duration = Duration::from_secs(10);

/// By samples of each cell: `core at rest`, a share of one, and `memory at rest`, in bytes.
pub(super) fn measure(measured: &mut Measured) -> Outcome<()> {
    let comb = Comb::up(CELLS)?;
    std::thread::sleep(SETTLING);
    let cells = comb.status()?.cells;
    let ran = || cells.iter().map(|cell| ran_ns(cell.pid)).collect::<Outcome<Vec<u64>>>();
    let (began, before) = (Instant::now(), ran()?);
    std::thread::sleep(LOOKED_AT);
    let (after, took) = (ran()?, began.elapsed());
    for (before, after) in before.into_iter().zip(after) {
        measured.add("core at rest", after.saturating_sub(before) as f64 / took.as_nanos() as f64);
    }
    for cell in &cells {
        measured.add("memory at rest", proportional_bytes(cell.pid)?);
    }
    Ok(())
}

/// Time that all threads of a process have had on a core.
fn ran_ns(process: u32) -> Outcome<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += times.split_whitespace().next().ok_or("no time")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// What is shared counts by halves, thirds and so on.
fn proportional_bytes(process: u32) -> Outcome<f64> {
    let all = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = all.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("the kernel tells no Pss")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}
