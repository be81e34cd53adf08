//! Who holds second references to a home's frames, and to the guards of those who import them: the agent of its host.
//!
//! An importer's marks are there as long as its userfaultfd is. If the home that had the only descriptor dies, the importer may store wherever it likes until
//! it has heard of that. So the home hands a second one to its *keeper* before it shows anything, and with it the frames. When the cell has died, its keeper empties
//! the frames, which takes every entry out of every process's page table, and holds on to the guards until the importers' processes have ended, or a
//! successor of the home has taken them. Nobody is asked on the way of a page.
//!
//! A keeper may die as well, and come back: it has forgotten all that it was given then, and homes hand it over again.
//!
//! | file | the one idea in it |
//! |---|---|
//! | [`references`] | what the agent keeps, and what becomes of it |
//! | `remote` | a home's side of the socket between them |

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use comb_net::agent::protocol::ProtocolError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub mod references;
mod remote;

pub use self::references::KeptReferences;
pub use self::remote::RemoteKeeper;

/// The keeper's socket, in the runtime directory.
const SOCKET: &str = "keep.sock";

/// Where homes find their keeper.
pub fn socket(runtime: &Path) -> PathBuf {
    runtime.join(SOCKET)
}

/// What a descriptor is a second reference to, among those of one cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reference {
    /// The frames of the region that begins there.
    Frames {
        /// In the heap.
        region: u64,
    },
    /// The guard of an importer. With its process.
    Guard {
        /// Of which region.
        region: u64,
        /// Its number there.
        importer: u32,
        /// Where it has the region.
        address: u64,
    },
}

/// Why something is not kept. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It says why.
    #[error("the agent refuses to keep it: {0}")]
    Refused(String),
    /// It cannot be asked.
    #[error("the agent, which is to keep a second reference, does not answer at {path}: {source}")]
    Away {
        /// Where.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// It says something else.
    #[error("the agent, which is to keep a second reference, is of another build, or stuck: {0}")]
    Strange(#[from] ProtocolError),
}

/// Keeps second references for one home.
pub trait Keeper: Send + Sync + std::fmt::Debug {
    /// Keeps what these descriptors are of. When this has returned, nothing that the home does or suffers opens what is guarded.
    fn keep(&self, reference: Reference, descriptors: &[BorrowedFd<'_>]) -> Result<(), KeepError>;

    /// A region is no more. Its frames are empty; who had imported it may not have heard yet.
    fn release(&self, region: u64);

    /// Whether it has forgotten what it was given before, which is to be handed over once more. Asked now and then.
    fn has_begun_anew(&self) -> bool {
        false
    }
}

/// From a home to its keeper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Request {
    /// The first message.
    Hello {
        cell: u32,
        incarnation: u64,
    },
    /// With descriptors.
    Keep(Reference),
    Release {
        region: u64,
    },
    /// What an earlier life of the cell has left.
    Take,
}

/// From a keeper to a home.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Reply {
    /// It is done.
    Done,
    /// A sentence for people.
    Refused(String),
    /// One of those that were asked for, with its descriptors. `Done` follows the last.
    Taken(Reference),
}

/// A reference with its descriptors, in the order in which they are handed over.
pub type Taken = (Reference, Vec<OwnedFd>);
