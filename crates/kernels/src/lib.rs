#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`communication`] | how do kernels and programs send each other messages, and call each other's objects? |
//! | [`clock`] | what time is it, and when is it time? |
//! | [`network`] | how do packets come and go, and how many may? |
//! | [`shared`] | how do programs of several cells have memory in common? |

pub mod clock;
pub mod communication;
pub mod network;
pub mod shared;
