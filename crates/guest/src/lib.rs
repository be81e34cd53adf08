//! The agent in a guest of a virtual machine, and what it and its host say to each other.
//!
//! The host has a program run in the guest, hears what it writes and how it ends, and asks from time to time whether the guest is well and what memory it has to spare. Neither
//! believes the other: what comes is checked, and what one has not taken yet is bounded.

pub mod agent;
pub mod files;
pub mod frames;
pub mod nodes;
pub mod packing;
pub mod segment;
pub mod wire;

/// By which a program shows that it was linked with the library operating system, and can be all that runs in a guest.
pub const LIBRARY_OS_MARK: &[u8; 25] = b"\0comb library os, mark 1\0";
