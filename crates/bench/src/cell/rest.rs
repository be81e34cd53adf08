//! What cells take that have nothing to do.

use std::time::{Duration, Instant};

use comb_cell::watch::TICK;
use rustix::event::epoll;

use super::comb::Comb;
use super::measured::Measured;
use super::role;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const CELLS: u32 = 4;
/// Beginnings are over.
const SETTLING: Duration = Duration::from_secs(3);
const LOOKED_AT: Duration = Duration::from_secs(10);

/// By samples of each cell: `core at rest`, a share of one, and `memory at rest`, in bytes; and `core for wake-ups`, of a process that has nothing but these.
pub(super) fn measure(measured: &mut Measured) -> Outcome<()> {
    let comb = Comb::up(CELLS)?;
    std::thread::sleep(SETTLING);
    let cells = comb.status()?.cells;
    // What this machine takes for as many wake-ups, whoever is woken.
    let mut waking = role::command(role::WAKES)?.spawn()?;
    let processes: Vec<u32> = cells.iter().map(|cell| cell.pid).chain([waking.id()]).collect();
    let ran = || processes.iter().map(|&process| ran_ns(process)).collect::<Outcome<Vec<u64>>>();
    let (began, before) = (Instant::now(), ran()?);
    std::thread::sleep(LOOKED_AT);
    let (after, took) = (ran()?, began.elapsed());
    waking.kill()?;
    waking.wait()?;
    let shares = before.into_iter().zip(after);
    let shares: Vec<f64> =
        shares.map(|(before, after)| after.saturating_sub(before) as f64 / took.as_nanos() as f64).collect();
    let (cells_shares, waking_share) = shares.split_at(cells.len());
    measured.extend("core at rest", cells_shares.iter().copied());
    measured.extend("core for wake-ups", waking_share.iter().copied());
    for cell in &cells {
        measured.add("memory at rest", proportional_bytes(cell.pid)?);
    }
    Ok(())
}

/// Only wakes, as often as a cell does at least.
pub(super) fn wake() -> Outcome<()> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let tick = TICK.try_into()?;
    let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 4];
    loop {
        epoll::wait(&set, &mut space, Some(&tick))?;
    }
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
