#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`memory`] | which page is in which frame, what goes to make room, and what comes along? |
//! | [`processing`] | which thread runs, and what happens when it stops? |
//! | [`communication`] | how do kernels and programs send each other messages, and call each other's objects? |
//! | [`clock`] | what time is it, and when is it time? |
//! | [`network`] | how do packets come and go, and how many may? |
//! | [`shared`] | how do programs of several cells have memory in common? |
//! | [`elf`] | how does a program begin? |
//! | [`file_kernel`] | what do kernels of programs that work on one file have in common? |
//! | [`mp3d`] | what does the kernel of a simulation know of its memory? |
//! | [`database`] | and that of a database? |
//! | [`realtime`] | how is something done in each period, whatever else is? |
//! | [`resources`] | which kernels run, and what does each have? |
//! | [`programs`] | which programs are these? |
//! | [`measure`], [`limit`] | how long do they take, beside the host's paging in as much memory? |

pub mod clock;
pub mod communication;
pub mod database;
pub mod elf;
pub mod file_kernel;
mod header;
pub mod limit;
pub mod measure;
pub mod memory;
pub mod mp3d;
pub mod network;
pub mod processing;
pub mod programs;
pub mod realtime;
pub mod resources;
pub mod shared;
