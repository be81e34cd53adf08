//! A scenario is a world, its checkers, and what happens in it. The same function serves the test that runs a hundred seeds,
//! the soak that runs ten thousand, and the student who watches one.

use std::ops::RangeInclusive;
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
