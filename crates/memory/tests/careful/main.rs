//! Careful references to what cells have published: what a reader is told, whatever the other cell does. (Hive §4.1)

mod death;
#[path = "../conformance/isolation.rs"]
mod isolation;
mod reading;
mod structures;
