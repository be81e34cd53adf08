#![doc = include_str!("../README.md")]

pub mod launch;
pub mod task;
