//! Careful references to what cells have published: what a reader is told, whatever the other cell does. (Hive §4.1)
#![expect(unsafe_code, reason = "signals, and memory that no cell would store to")]

mod changes;
mod checks;
mod corruption;
mod death;
mod handing_over;
mod handlers;
#[path = "../conformance/isolation.rs"]
mod isolation;
mod owner;
mod reading;
mod structures;
