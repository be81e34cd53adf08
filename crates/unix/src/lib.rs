//! Unmodified Linux programs on the cache kernel.

pub mod machine;
mod polled;
pub mod supervised;
