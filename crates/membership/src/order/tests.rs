//! Machines side by side, with messages carried by hand.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use comb_types::{Incarnation, NodeId, Time};

use super::*;

mod bad_peers;
mod cluster;
mod laggards;
mod levels;
pub(crate) mod lies;
mod model;
mod persistence;
mod sequencer;

use cluster::Cluster;
