#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "tokio")]
pub mod asynchronous;
mod grant;
mod group;
mod mesh;
#[cfg(feature = "etcd")]
mod quorum_etcd;
mod quorum_file;

pub use comb_membership::detect::{Change, Condition};
pub use comb_membership::order::{Delivery, Level, SubmitError};
pub use comb_membership::regroup::Stage;
pub use comb_membership::stack::{Config, Event, Watching};
pub use comb_membership::state::WriteError;
pub use comb_membership::{Member, View, ViewEpoch};
pub use comb_types::NodeId;
pub use group::{Group, GroupError, GroupOptions};
pub use mesh::{Arrivals, Mesh, MeshError, Names};
#[cfg(feature = "etcd")]
pub use quorum_etcd::{QuorumEtcd, QuorumEtcdError};
pub use quorum_file::{QuorumFile, QuorumFileError};
