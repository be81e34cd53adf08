//! Measures Comb beside its peers.

mod bare;
mod endpoint_way;
pub mod side;
mod workload;
