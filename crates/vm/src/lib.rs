//! Virtual machines with ordinary operating systems, as cells: many on one machine share memory and disks, and fail alone. (Disco)
//!
//! The engine is QEMU as it comes, or user-mode Linux for computing without KVM. What is here is what Disco's monitor did beside running instructions: the memory, the disks, the network, and what to do with them.

pub mod affinity;
pub mod attached;
mod children;
pub mod control;
pub mod devices;
pub mod engine;
pub mod files;
pub mod hardware;
pub mod image;
pub mod memory;
pub mod misses;
pub mod monitor;
pub mod moving;
pub mod names;
pub mod qmp;
mod reading;
pub mod segment;
pub mod snapshot;
pub mod subnets;
pub mod template;
mod user_mode;
