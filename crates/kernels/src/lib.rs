#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`realtime`] | how is something done in each period, whatever else is? |
//! | [`resources`] | which kernels run, and what does each have? |

pub mod realtime;
pub mod resources;
