//! Groups of processes that agree: [`comb_membership`]'s protocols, driven over [`comb_net`].
#![forbid(unsafe_code)]

mod mesh;
mod quorum_file;

pub use mesh::{Arrivals, Mesh, MeshError, Names};
pub use quorum_file::{QuorumFile, QuorumFileError};
