#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`realtime`] | how is something done in each period, whatever else is? |

pub mod realtime;
