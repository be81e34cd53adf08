//! Measures Comb beside its peers, in one invocation and with the same payloads, and says what it did not measure.

mod bare;
mod endpoint_way;
mod layers;
pub mod net;
mod program;
mod report;
pub mod side;
mod workload;
