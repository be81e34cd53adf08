#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`objects`] | what is loaded, who may load what, and what goes to make room? |
//! | [`supervisor`] | and what does the machine do about it? |
//! | [`calls`] | what can a kernel ask? |
//! | [`shares`], [`scheduling`] | who has used more of the processors than was granted, and what does the host do about it? |
//! | [`server`], [`client`] | and if it is in another process? |
//! | [`space`] | what is a space on the host, and how does its memory change from outside? |
//! | [`thread`] | why is a thread stopped, in which state, and how does it go on? |
//! | [`frames`] | where is the memory? |
//! | [`programs`] | with what can it be tried? |
//! | `stub` | what runs in a space beside its program? |

pub mod calls;
pub mod client;
pub mod frames;
pub mod host;
pub mod objects;
pub mod programs;
pub mod scheduling;
pub mod server;
pub mod shares;
pub mod space;
mod stub;
pub mod supervisor;
pub mod thread;
mod userfaultfd;
mod wire;
