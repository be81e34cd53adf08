//! The cache kernel: a small supervisor that holds only the active kernels, spaces, threads and mappings, while application kernels in
//! user mode load them, get them written back, and decide everything else.

pub mod calls;
pub mod client;
pub mod frames;
pub mod host;
pub mod objects;
pub mod server;
pub mod space;
mod stub;
pub mod supervisor;
pub mod thread;
mod userfaultfd;
mod wire;
