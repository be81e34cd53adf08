//! Watchers of a run that say what must never be.

use std::fmt;

use comb_types::{NodeId, Time};

use crate::actor::Actor;
use crate::fault::Fault;
use crate::truth::Truth;

/// Watches all events of a run. It stands apart from the actors: it knows what they say, and the truth.
pub trait Checker<A: Actor> {
    /// A node has told something. The error says what rule that breaks.
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &A::Event) -> Result<(), String>;

    /// Something was done to the world, or will be in this moment.
    fn fault(&mut self, truth: &Truth<'_>, fault: &Fault) -> Result<(), String> {
        let _ = (truth, fault);
        Ok(())
    }

    /// The run is over: what had to happen, has it?
    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        let _ = truth;
        Ok(())
    }
}

/// A run that broke a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Failure {
    /// The seed that does it again.
    pub seed: u64,
    /// When, in the time of the world.
    pub at: Time,
    /// Whose event it was; none if the run as a whole failed.
    pub node: Option<NodeId>,
    /// Which rule.
    pub rule: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, at {:?}", self.seed, self.at)?;
        if let Some(node) = self.node {
            write!(f, ", {node}")?;
        }
        write!(f, ": {}", self.rule)
    }
}
