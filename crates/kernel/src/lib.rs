//! The cache kernel: a small supervisor that holds only the active kernels, spaces, threads and mappings, while application kernels in
//! user mode load them, get them written back, and decide everything else.

pub mod objects;
