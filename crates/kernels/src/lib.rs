#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`memory`] | which page is in which frame, what goes to make room, and what comes along? |

pub mod memory;
