#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | question |
//! |---|---|
//! | [`space`] | which addresses are shared? |
//! | [`layout`] | where are an allocation's blocks, and where is their content? |
//! | [`images`] | what is shared outside the heap? |
//! | [`memory`] | what may threads do with a block, and how does that change? |
//! | [`exports`] | what may other processes do with frames that are homed here? |
//! | [`lent`] | what may other processes do with this one's own memory? |
//! | [`guests`] | who are they, and how are they stopped? |
//! | [`orphans`] | and when the home is gone? |
//! | [`paging`] | how is memory given back for a while? |
//! | [`fault`] | what stopped a thread, and what becomes of it? |
//! | `present` | what has another process filled already? |
//! | [`large`] | what need not be filled page by page? |
//! | [`threads`] | whose own code looks before it loads and stores, and how is it stopped? |
//! | [`software`] | how does other code do the same? |
//! | [`syscalls`] | how do system calls work on memory that stops them? |
//! | [`far`] | how does a cell name what it, or another, lets all read? |
//! | [`published`] | how does it let them, and change that while they read? |
//! | [`mod@careful`] | how does one read it, of a cell that may be dead or mad? |
//! | [`mechanism`] | what can this kernel do for it? |

mod access;
pub mod careful;
pub mod exports;
pub mod far;
pub mod fault;
mod frames;
pub mod guests;
pub mod images;
mod imported;
mod kernel;
pub mod large;
pub mod layout;
pub mod lent;
mod mapping;
pub mod mechanism;
pub mod memory;
pub mod orphans;
pub mod paging;
mod present;
mod protections;
pub mod published;
pub mod software;
pub mod space;
mod state;
pub mod syscalls;
pub mod threads;
mod userfaultfd;

pub use self::{
    careful::{Careful, CarefulError, Peer, Remote, Source, careful, careful_within},
    exports::{Exports, GivenBack},
    far::{Far, Structure},
    fault::{
        Fault, InstallError, LostAt, Place, Reason, Verdict, careful_copy_from, careful_copy_to, install,
        name_place, set_loss_hook,
    },
    guests::{Guests, NoGuard, Pages},
    imported::Guard,
    layout::{Grain, LARGEST_BLOCK_BYTES, Layout, LayoutError},
    lent::Lent,
    memory::{Control, Memory, MemoryError, MemoryOptions},
    orphans::{KeptGuard, Orphaned},
    published::{Full, PublishError, Published},
    space::{
        HEAP_BYTES, HEAP_START, IMAGES_BYTES, PAGE_BYTES, SMALLEST_BLOCK_BYTES, STATE_START, TABLE_BYTES,
        TABLE_START, pointer, state_address,
    },
};
pub use comb_coherence::{Access, Block};
