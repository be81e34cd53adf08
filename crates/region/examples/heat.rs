//! Heat spreads along a rod, each component has a part of it, and every fiftieth step is a checkpoint. Lost with a cell, the task goes on from the last one:
//!
//!     comb run -n 4 --checkpoint /tmp/heat --restart -- target/release/examples/heat 400 5
//!
//! The arguments: how many steps, how many milliseconds each takes at least, and if you like a named region of a page for each component, into which
//! each writes how far it is.

use std::time::{Duration, Instant};

use comb_region::named::Attaching;
use comb_region::{Array, Task, Terms};

const PLACES: usize = 4096;
const STEPS_BETWEEN_CHECKPOINTS: u64 = 50;

#[allow(clippy::allow_attributes, dead_code, reason = "the demonstration calls what is below")]
fn main() -> std::process::ExitCode {
    let failure = run(std::env::args().skip(1)).err();
    failure.map_or(std::process::ExitCode::SUCCESS, |error| {
        eprintln!("heat: {error}");
        std::process::ExitCode::FAILURE
    })
}

/// With these arguments.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    let steps = words.next().map_or(Ok(400), |word| word.parse())?;
    let pace = Duration::from_millis(words.next().map_or(Ok(0), |word| word.parse())?);
    let task = Task::join()?;
    let progress = words.next().map(|name| task.attach(&name, &Attaching::default())).transpose()?;
    let progress = progress.and_then(|region| region.array::<u64>(u64::from(task.rank()) * 4096, 1));
    // The same calls in the same order: after a restart they return what was there at the checkpoint.
    let done = Array::<u64>::together(&task, 1, &Terms::default())?;
    let rods = [(); 2].map(|()| Array::<u64>::together(&task, PLACES, &Terms::default()));
    let [one, other] = rods;
    let (one, other) = (one?, other?);
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    let mine = PLACES * rank / count..PLACES * (rank + 1) / count;
    if !task.restored() {
        mine.clone().for_each(|place| one.set(place, warmth(place)));
    } else if rank == 0 {
        println!("goes on behind step {}", done.get(0));
    }
    task.barrier();
    let mut step = done.get(0);
    while step < steps {
        let began = Instant::now();
        let (from, to) = if step % 2 == 0 { (&one, &other) } else { (&other, &one) };
        mine.clone().for_each(|place| to.set(place, next(place, |place| from.get(place))));
        step += 1;
        if let Some(progress) = &progress {
            progress.write(0, &[step])?;
        }
        task.barrier();
        if step % STEPS_BETWEEN_CHECKPOINTS == 0 {
            if rank == 0 {
                done.set(0, step);
            }
            task.checkpoint()?;
        }
        std::thread::sleep(pace.saturating_sub(began.elapsed()));
    }
    task.barrier();
    if rank == 0 {
        let rod = if steps % 2 == 0 { &one } else { &other };
        let is_right = (0..PLACES).map(|place| rod.get(place)).eq(alone(steps));
        println!("{steps} steps: the rod is {}", if is_right { "as it should be" } else { "WRONG" });
    }
    task.barrier();
    Ok(())
}

fn warmth(place: usize) -> u64 {
    (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// What a place is next: the ends keep what they have.
fn next(place: usize, at: impl Fn(usize) -> u64) -> u64 {
    match place {
        0 => at(0),
        last if last == PLACES - 1 => at(last),
        place => (at(place - 1) + 2 * at(place) + at(place + 1)) / 4,
    }
}

/// What one process finds.
fn alone(steps: u64) -> Vec<u64> {
    let mut rod: Vec<u64> = (0..PLACES).map(warmth).collect();
    for _ in 0..steps {
        rod = (0..PLACES).map(|place| next(place, |place| rod[place])).collect();
    }
    rod
}
