//! Groups of processes that agree: [`comb_membership`]'s protocols, driven over [`comb_net`].
#![forbid(unsafe_code)]

mod mesh;

pub use mesh::{Arrivals, Mesh, MeshError, Names};
