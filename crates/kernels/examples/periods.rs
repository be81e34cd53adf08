//! Does 0.3 ms of work in each period of 2 ms, for ten seconds, and says how that went: at the priority that is its argument, 41 if there is none. Priorities above
//! 40 are the host's real-time ones, which not everybody may have.

use std::time::Duration;

use comb_kernel::calls::Direct;
use comb_kernel::objects::Sizes;
use comb_kernel::programs;
use comb_kernel::supervisor::Supervisor;
use comb_kernels::realtime::{Realtime, Task};

const PERIOD: Duration = Duration::from_millis(2);
const WORK: Duration = Duration::from_micros(300);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let priority = std::env::args().nth(1).map_or(Ok(41), |text| text.parse::<u8>())?;
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2)?;
    let task = Task { program: programs::WORKS, priority, locked: true, frame: 128, processor: Some(0) };
    let mut realtime = Realtime::new(Direct::new(supervisor, kernel), &task)?;
    // As much work as takes that long if nothing comes in between.
    let tries = (0..50).map(|_| realtime.once(20_000)).collect::<Result<Vec<_>, _>>()?;
    let shortest = tries.into_iter().min().expect("there are some").as_nanos();
    let amount = u64::try_from(20_000 * WORK.as_nanos() / shortest)?;
    let kept = realtime.run(amount, PERIOD, 5000)?;
    let mut took = kept.took.clone();
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 1000];
    println!("{} of {} periods missed", kept.missed, took.len());
    println!(
        "half took {:.2?}, 99 % {:.2?}, 99.9 % {:.2?}, all {:.2?}",
        at(500),
        at(990),
        at(999),
        kept.latest()
    );
    Ok(())
}
