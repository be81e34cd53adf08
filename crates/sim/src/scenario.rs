//! A scenario is a world, its checkers, and what happens in it. The same function serves the test that runs a hundred seeds,
//! the soak that runs ten thousand, and the student who watches one.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use comb_types::Time;

use crate::actor::Actor;
use crate::checker::Failure;
use crate::log::Line;
use crate::world::World;

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which run.
    pub seed: u64,
    /// How many nodes; the scenario's own number if none is given.
    pub nodes: Option<u32>,
    /// Whether to take the long form of it.
    pub soak: bool,
}

/// What a run was.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The same for two runs that did the same.
    pub trace_hash: u64,
    /// How much time passed in the world.
    pub virtual_time: Duration,
    /// Inputs handled.
    pub steps: u64,
    /// What is worth saying, in words and a number with its unit.
    pub figures: Vec<(&'static str, f64, &'static str)>,
}

impl Report {
    /// Of a world that has run.
    pub fn of<A: Actor>(world: &World<A>, figures: Vec<(&'static str, f64, &'static str)>) -> Self {
        Self {
            trace_hash: world.trace_hash(),
            virtual_time: world.now().since(Time::ZERO),
            steps: world.steps(),
            figures,
        }
    }
}

/// Who reads the log of a run. None costs nothing.
pub type Watch = Option<Box<dyn FnMut(&Line)>>;

/// A scenario by name.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// How many nodes it may have.
    pub nodes: RangeInclusive<u32>,
    /// Runs it.
    pub run: fn(Options, Watch) -> Result<Report, Failure>,
}

/// Many runs, on as many threads as there are cores: what came of each, as the runs are ordered. A world stays in the thread that made
/// it. `progress` is told how many have ended.
pub fn on_all_cores<R: Sync, E: Send>(
    runs: &[R],
    run: impl Fn(&R) -> E + Sync,
    mut progress: impl FnMut(usize),
) -> Vec<E> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len());
    let (done, ends) = mpsc::channel();
    let mut ended = std::thread::scope(|scope| {
        for _ in 0..threads {
            let done = done.clone();
            let (run, next) = (&run, &next);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = runs.get(place) else { break };
                    let _ = done.send((place, run(one)));
                }
            });
        }
        drop(done);
        let mut ended = Vec::with_capacity(runs.len());
        for end in ends {
            ended.push(end);
            progress(ended.len());
        }
        ended
    });
    ended.sort_by_key(|(place, _)| *place);
    ended.into_iter().map(|(_, end)| end).collect()
}

#[cfg(test)]
mod tests {
    use super::on_all_cores;

    #[test]
    fn many_runs_end_in_their_order() {
        let runs: Vec<u32> = (0..100).collect();
        let mut told = Vec::new();
        let squares = on_all_cores(&runs, |run| run * run, |done| told.push(done));
        assert_eq!(squares, runs.iter().map(|run| run * run).collect::<Vec<_>>());
        assert_eq!(told, (1..=100).collect::<Vec<_>>());
        assert_eq!(on_all_cores(&[] as &[u8], |_| (), |_| ()), []);
    }
}
