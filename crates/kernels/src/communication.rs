//! Messages in shared memory: channels, and calls of objects over them. (Cache Kernel §2.2, §3)
//!
//! A [`Channel`] joins two ends. Each end has pages of its own, which it alone writes and the other reads: a ring of messages of one size, how many it has written,
//! and how many of the other's it has taken. So a message is written once, where its reader reads it, and no call is made for it. An end is a kernel, by the frames
//! that it was granted, or a thread of a program, by [`map_end`]: that has the pages mapped in its space, and is signalled by the address of each message.
//!
//! What the other end has written may be wrong on purpose: numbers are compared with this end's own, a message is copied before anybody looks at it, and an end that
//! breaks the rules has ended the channel for both. [`layout`] is what programs need to know that are not Rust's.
//!
//! [`objects`] are called over a channel: [`object!`](crate::object) makes of a trait its stub for callers and its dispatch for who has the object.

mod channel;
mod ends;
pub mod layout;
pub mod marshal;
pub mod objects;
mod pages;

pub use self::channel::{Channel, ChannelError, Message, SendError};
pub use self::ends::{Place, map_end, open_end};
pub use self::layout::{Shape, ShapeError};
pub use self::pages::{NotGranted, Pages};
