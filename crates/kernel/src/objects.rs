//! What the supervisor holds: kernels, spaces, threads and mappings, each in a table that is a cache.
//!
//! Application kernels load objects and get them written back, when they ask for it or when another load needs the room. So no load ever
//! fails for lack of room, and no table ever grows. An object refers to what it depends on (a mapping to its space and its signal thread, a
//! thread to its space, a space to its kernel), and goes before that does. (Cache Kernel §2, §4)
//!
//! This is bookkeeping: nothing here maps, runs or sends. What must happen in the machine before an object may be forgotten is asked of a
//! [`Hardware`]; what an owner is to hear waits until it is taken. There is no clock, no thread and no order that a hash decides in here:
//! the same calls have the same results.
//!
//! Whatever a caller hands over may be wrong on purpose. It is refused at little cost, and a call that is refused has changed nothing.

pub use self::cache::{KernelLoad, Objects, SpaceLoad, SpaceView, ThreadLoad, ThreadView};
pub use self::errors::{DescriptorError, Refused, SizesError};
pub use self::groups::{Access, FRAMES_IN_GROUP, Groups};
pub use self::hardware::Hardware;
pub use self::ids::{KernelId, SpaceId, Tag, ThreadId};
pub use self::kernel::{KernelDescriptor, Locks};
pub use self::mappings::{Loaded, Mapping, User};
pub use self::signals::Receiver;
pub use self::sizes::{MAXIMUM_FRAMES, MAXIMUM_PAGES, Sizes};
pub use self::writeback::Writeback;

mod cache;
mod errors;
mod groups;
mod hardware;
mod ids;
mod kernel;
mod locks;
mod mappings;
mod physical_map;
mod record;
mod rights;
mod signals;
mod sizes;
mod slots;
mod writeback;

#[cfg(test)]
mod check;
#[cfg(test)]
mod model;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
