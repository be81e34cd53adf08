//! A component's part in a task.

mod description;

pub use description::*;
