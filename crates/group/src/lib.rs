//! Groups of processes that agree: [`comb_membership`]'s protocols, driven over [`comb_net`].
#![forbid(unsafe_code)]

mod grant;
mod mesh;
#[cfg(feature = "etcd")]
mod quorum_etcd;
mod quorum_file;

pub use mesh::{Arrivals, Mesh, MeshError, Names};
#[cfg(feature = "etcd")]
pub use quorum_etcd::{QuorumEtcd, QuorumEtcdError};
pub use quorum_file::{QuorumFile, QuorumFileError};
