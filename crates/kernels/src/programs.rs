//! Programs whose memory their kernels manage, as files that run on the host as well: `crates/kernels/programs`.

/// Molecules in a wind tunnel, step by step.
pub const MP3D: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mp3d"));

/// A table in a B-tree.
pub const DATABASE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/database"));
