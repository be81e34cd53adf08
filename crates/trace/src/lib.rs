//! How files are really used: every file operation of unmodified programs is recorded at little cost, and analysed with the rigour that
//! heavy tails demand. (Thesis, chapter 9)
//!
//! | module | question |
//! |---|---|
//! | [`operation`], [`event`] | what can be seen to happen, and what is known of it? |
//! | [`source`], [`kernel`], [`preload`] | who sees it, and how? |
//! | [`codec`], [`trace_file`] | how does that become few bytes, and what of these is good after a fault? |
//! | [`recorder`], [`machine`], [`privacy`] | how does it get there; what is there when it begins; and what is nobody's business? |
//! | [`collect`] | and from many machines to one? |
//! | [`history`], [`file_type`] | whose was each operation, on which file, in which session; and what kind of file is it? |
//! | [`store`] | in which tables can that be asked for by any engine? |
//! | `lifetimes` | how long do new files live? |
//! | [`report`] | what do they say, beside what was found of NT, Sprite and BSD? |
//! | [`snapshot`] | what files are there, and what has changed in a day? |
//! | [`synthesis`] | what would more of it be like, or what nobody recorded? |
//! | [`replay`] | what would another system make of it? |
//! | [`statistics`] | what may be said of a sample whose variance could be infinite? |

pub mod codec;
pub mod collect;
pub mod event;
pub mod file_type;
mod framing;
pub mod history;
pub mod kernel;
mod lifetimes;
pub mod machine;
pub mod operation;
pub mod preload;
pub mod privacy;
pub mod recorder;
pub mod replay;
pub mod report;
pub mod snapshot;
pub mod source;
pub mod statistics;
pub mod store;
pub mod synthesis;
#[cfg(test)]
mod temporary_folder;
pub mod trace_file;
mod varint;

pub use event::{Event, Identity};
pub use operation::{Class, Operation};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
