#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`communication`] | how do kernels and programs send each other messages, and call each other's objects? |
//! | [`shared`] | how do programs of several cells have memory in common? |

pub mod communication;
pub mod shared;
