//! A run in words, a line an event.

use std::fmt;

use comb_types::{NodeId, Time};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// When, in the time of the world.
    pub at: Time,
    /// To whom; none if to the world.
    pub node: Option<NodeId>,
    /// What.
    pub what: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.at.as_nanos() / 1000;
        write!(f, "{:>5}.{:06}  ", micros / 1_000_000, micros % 1_000_000)?;
        match self.node {
            Some(node) => write!(f, "{:>5}  {}", node.0, self.what),
            None => write!(f, "world  {}", self.what),
        }
    }
}
