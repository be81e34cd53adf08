#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`communication`] | how do kernels and programs send each other messages, and call each other's objects? |

pub mod communication;
