#![doc = include_str!("../README.md")]

mod array;
mod checkpoint;
mod copies;
mod counts;
mod covering;
mod driver;
mod engine;
mod futex;
mod gate;
mod heap;
mod homes;
mod kept;
pub mod launch;
mod lock;
mod meeting;
mod moving;
pub mod named;
mod neighbours;
mod pages_file;
mod peers;
mod priority;
mod runtime;
mod spinning;
mod synchronise;
pub mod task;
mod terms;
mod waiting;
mod wire;

pub use self::array::{Array, Lost, Number};
pub use self::checkpoint::CheckpointError;
pub use self::counts::Counts;
pub use self::lock::{Barrier, HeldLock, Lock};
pub use self::synchronise::Combine;
pub use self::task::{AllocateError, JoinError, Task};
pub use self::terms::{Allocation, EXTENT_BYTES, Guard, Placement, Sharing, Terms};
