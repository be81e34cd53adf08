#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "tokio")]
pub mod asynchronous;
pub mod environment;
mod grant;
mod group;
mod log;
#[cfg(feature = "redb")]
mod log_redb;
mod mesh;
mod quorum;
#[cfg(feature = "etcd")]
mod quorum_etcd;
mod quorum_file;

pub use comb_membership::circles;
pub use comb_membership::detect::{Change, Condition};
pub use comb_membership::order::{Delivery, Level, SubmitError};
pub use comb_membership::regroup::{Stage, Stuck};
pub use comb_membership::stack::{Config, Event, LogConfig, Watching, WatchingError};
pub use comb_membership::state::{Distance, WriteError};
pub use comb_membership::{Member, View, ViewEpoch};
pub use comb_types::NodeId;
pub use group::{Beginning, Group, GroupError, GroupOptions, ResumeError};
pub use log::{Log, LogError};
#[cfg(feature = "redb")]
pub use log_redb::LogRedb;
pub use mesh::{Arrivals, End, Mesh, MeshError, Names};
pub use quorum::{Quorum, QuorumError};
#[cfg(feature = "etcd")]
pub use quorum_etcd::{QuorumEtcd, QuorumEtcdError};
pub use quorum_file::{QuorumFile, QuorumFileError};
