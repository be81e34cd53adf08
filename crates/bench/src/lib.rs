//! Measures Comb beside its peers, in one invocation and with the same payloads, and says what it did not measure.

mod bare;
mod between_hosts;
mod circles_way;
mod classic_group;
mod classic_side;
mod coming_in;
mod cores;
mod curves;
mod endpoint_way;
mod farm;
mod figure;
mod gossip_peers;
mod group_side;
mod hot_spot;
mod idle;
mod items;
mod jacobi;
mod layers;
pub mod membership;
pub mod memory;
mod memory_side;
mod mscs_figures;
mod mscs_items;
#[path = "../../net/tests/transports/namespaces.rs"]
mod namespaces;
pub mod net;
mod program;
mod report;
pub mod reproduce;
mod room;
pub mod side;
mod socket_way;
mod transports;
mod via_way;
mod workload;
mod write_gap;
