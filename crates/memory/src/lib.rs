#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! 1. [`syscalls`]: system calls on shared memory. [`syscalls::cover`] makes them work; [`syscalls::raw`] is for those that
//!    act on its mappings.

pub mod syscalls;
