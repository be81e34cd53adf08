//! What is said at a home's door: a socket of its host, where the kernel vouches for who knocks, and descriptors change hands.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_containment::tree;
use comb_net::agent::protocol::{self, ProtocolError};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::register::{Entry, RegisterError, door};
use super::{Mode, Register};
use crate::terms::Allocation;

/// A home answers at once, but for what takes long: then it is told so.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a region is to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Its name, which no other region of the host has.
    pub name: String,
    /// How long. None: as long as what it is made from.
    pub bytes: Option<u64>,
    /// How much of it is granted at once: a power of two from 4096 to 65,536.
    pub block_bytes: u32,
    /// One holder at a time, also to read: for what is read, changed and passed on.
    pub migratory: bool,
    /// Who may do what with it.
    pub mode: Mode,
    /// It may be larger than memory: what is never touched costs nothing.
    pub sparse: bool,
    /// The cell that it is to have its page frames of, if not of the one that it lives in.
    pub memory_home: Option<u32>,
    /// Where it was saved, if it is to contain that.
    pub from: Option<PathBuf>,
    /// The region whose child it is to be: it contains what that does at this moment.
    pub parent: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Knock {
    Create(Wanted),
    Attach {
        name: String,
        to_store: bool,
        imports: bool,
    },
    /// Of who imports: the descriptor comes with it, and where the region lies there.
    Guard {
        address: u64,
    },
    Remove {
        name: String,
        even_if_used: bool,
    },
    Report,
    Save {
        name: String,
        directory: PathBuf,
    },
    /// Of another home: a child of a region of this one is to be there.
    Fork {
        name: String,
        cell: u32,
    },
    /// Of another home: it wants to read what a node has.
    Node {
        node: u64,
        life: u64,
    },
    /// Of another home: a child is no more.
    ForkEnded {
        node: u64,
        life: u64,
        cell: u32,
    },
    /// Of another home: it wants page frames for a region.
    Borrow {
        region: u64,
        extents: u64,
        cell: u32,
    },
    /// Of another home: it has no use for them any more.
    GiveBack {
        region: u64,
        cell: u32,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Refused(String),
    Created(Entry),
    /// With the frames' descriptor, for who imports.
    Attached {
        allocation: Allocation,
        number: u32,
        proof: u64,
    },
    Guarded,
    Removed {
        attached: u32,
    },
    Report(Vec<Status>),
    Saved {
        number: u64,
        pages: u64,
    },
    /// With the descriptors of the node.
    Forked {
        entry: Entry,
        node: u64,
    },
    /// With its descriptors.
    Node,
    Noted,
    /// With their descriptors.
    Loaned {
        frames: Vec<u64>,
    },
}

/// A region, as its home sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Processes that import it.
    pub importers: u32,
    /// Processes that have copies.
    pub copiers: u32,
    /// Blocks to which importers may store.
    pub granted: u64,
    /// Blocks that some process has alone.
    pub away: u64,
    /// Blocks that are lost.
    pub lost: u64,
    /// Threads of importers that wait for a block.
    pub waiting: u64,
    /// Bytes of its frames that take memory.
    pub resident_bytes: u64,
    /// The processes that have it attached.
    pub processes: Vec<u32>,
    /// The cells in which what it has not got yet is looked for.
    pub ancestors: Vec<u32>,
    /// How often it has been forked, as far as there are children.
    pub nodes: u64,
    /// The cell that its page frames are of, if that is another one.
    pub memory_home: Option<u32>,
    /// Blocks that processes of other cells can store to: which cell, and how many. A cell that is not there has none.
    pub held: Vec<(u32, u64)>,
    /// How often somebody had to ask for a block, since the region was made.
    pub misses: u64,
}

/// Why a home did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It says why.
    #[error("{0}")]
    Refused(String),
    /// Nobody is behind the door.
    #[error("cell {cell} does not answer at {path}: {source}; `comb ps` shows which cells live")]
    NoHome {
        /// Of which cell.
        cell: u32,
        /// Where.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// It says something else.
    #[error("cell {cell} is of another build, or stuck: {source}")]
    Strange {
        /// Which.
        cell: u32,
        /// What happened.
        source: ProtocolError,
    },
    /// There is no such name.
    #[error("there is no region {0}: `comb region ls` lists those there are")]
    NoRegion(String),
    /// As it says.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Somebody at a door.
#[derive(Debug)]
pub struct Ask {
    socket: OwnedFd,
    cell: u32,
}

impl Ask {
    /// Goes to a cell's door.
    pub fn at(runtime: &Path, cell: u32) -> Result<Self, AskError> {
        let path = door(runtime, cell);
        let go = || -> Result<OwnedFd, Errno> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
            rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
            Ok(socket)
        };
        let socket = go().map_err(|source| AskError::NoHome { cell, path: path.clone(), source })?;
        Ok(Self { socket, cell })
    }

    /// Goes to the door of a region's home.
    pub fn about(runtime: &Path, name: &str) -> Result<(Self, Entry), AskError> {
        let entry = Register::of(runtime).find(name)?.ok_or_else(|| AskError::NoRegion(name.to_owned()))?;
        Ok((Self::at(runtime, entry.cell)?, entry))
    }

    pub(crate) fn ask(
        &self,
        knock: &Knock,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), AskError> {
        let strange = |source| AskError::Strange { cell: self.cell, source };
        protocol::send(&self.socket, knock, descriptors).map_err(strange)?;
        match protocol::receive::<Answer>(&self.socket).map_err(strange)? {
            (Answer::Refused(why), _) => Err(AskError::Refused(why)),
            answer => Ok(answer),
        }
    }

    /// An answer to another question.
    pub(crate) fn strange(&self) -> AskError {
        AskError::Strange { cell: self.cell, source: ProtocolError::Refused }
    }

    /// Makes a region.
    pub fn create(&self, wanted: &Wanted) -> Result<Entry, AskError> {
        self.takes_long();
        match self.ask(&Knock::Create(wanted.clone()), &[])?.0 {
            Answer::Created(entry) => Ok(entry),
            _ => Err(self.strange()),
        }
    }

    /// Removes a region, and says how many processes were attached to it; if some are, only if it is to be removed even then.
    pub fn remove(&self, name: &str, even_if_used: bool) -> Result<u32, AskError> {
        match self.ask(&Knock::Remove { name: name.to_owned(), even_if_used }, &[])?.0 {
            Answer::Removed { attached } => Ok(attached),
            _ => Err(self.strange()),
        }
    }

    /// A region is to have a child in a cell: what it is like, where its node is, and by what that is read.
    pub(crate) fn fork(&self, name: &str, cell: u32) -> Result<(Entry, u64, Vec<OwnedFd>), AskError> {
        match self.ask(&Knock::Fork { name: name.to_owned(), cell }, &[])? {
            (Answer::Forked { entry, node }, files) => Ok((entry, node, files)),
            _ => Err(self.strange()),
        }
    }

    /// By what a node is read.
    pub(crate) fn node(&self, node: tree::Far) -> Result<Vec<OwnedFd>, AskError> {
        match self.ask(&Knock::Node { node: node.offset, life: node.life.0 }, &[])? {
            (Answer::Node, files) => Ok(files),
            _ => Err(self.strange()),
        }
    }

    /// Wants frames for a region of a cell.
    pub(crate) fn borrow(
        &self,
        region: u64,
        extents: u64,
        cell: u32,
    ) -> Result<(Vec<u64>, Vec<OwnedFd>), AskError> {
        match self.ask(&Knock::Borrow { region, extents, cell }, &[])? {
            (Answer::Loaned { frames }, files) => Ok((frames, files)),
            _ => Err(self.strange()),
        }
    }

    /// Frames that were borrowed are free again.
    pub(crate) fn give_back(&self, region: u64, cell: u32) -> Result<(), AskError> {
        self.ask(&Knock::GiveBack { region, cell }, &[]).map(drop)
    }

    /// A child of a node is no more.
    pub(crate) fn fork_ended(&self, node: tree::Far, cell: u32) -> Result<(), AskError> {
        self.ask(&Knock::ForkEnded { node: node.offset, life: node.life.0, cell }, &[]).map(drop)
    }

    /// What the cell's regions are doing.
    pub fn report(&self) -> Result<Vec<Status>, AskError> {
        match self.ask(&Knock::Report, &[])?.0 {
            Answer::Report(report) => Ok(report),
            _ => Err(self.strange()),
        }
    }

    /// Saves a region as it is at one moment, and says the number of that checkpoint and how many pages had changed since the one before.
    pub fn save(&self, name: &str, directory: &Path) -> Result<(u64, u64), AskError> {
        self.takes_long();
        match self.ask(&Knock::Save { name: name.to_owned(), directory: directory.to_owned() }, &[])?.0 {
            Answer::Saved { number, pages } => Ok((number, pages)),
            _ => Err(self.strange()),
        }
    }

    /// The home says when it fails; a disk takes its time.
    fn takes_long(&self) {
        let _ = rustix::net::sockopt::set_socket_timeout(&self.socket, Timeout::Recv, None);
    }
}
