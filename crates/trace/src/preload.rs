//! Seeing what programs do without privileges: a library that they load stands in front of the C library's functions.
//!
//! `preload/` has the library. It writes down what programs do into memory that all of them share with the recorder: `ring` reads it.
//! Programs are not to be believed: one that runs wild may write anything there, and then loses its records and others', and nothing else.

mod memory;
mod place;
mod ring;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};

use thiserror::Error;

use self::memory::Memory;
use self::place::Place;
use self::ring::Ring;
use crate::event::Event;
use crate::source::{Counters, Source};

/// The library; empty where it could not be built.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Why it could not be built; empty if it was.
const WHY_NOT_BUILT: &str = env!("COMB_TRACE_WITHOUT_PRELOAD");

/// The ring holds half a million records without a path, as the kernel's does: more than two busy cores make in a quarter of a second, and a
/// recorder that shares these with them may have to wait for that long. Memory is taken as the first lap goes on.
const RING_CELLS: usize = 1 << 19;

/// What the loader loads before all else.
const LOADED_FIRST: &str = "LD_PRELOAD";

/// How the library finds the ring, and itself for the programs that its program starts: the number of the process that has been told to
/// have begun, the ring, the library, and handles.
const VARIABLE: &str = "COMB_TRACE";

/// What is not seen by this way, wherever it is used.
const LACKS: [&str; 12] = [
    "programs that are linked statically, or not with the GNU C library",
    "programs that run with another user's rights (set-user-id), in another root or with process numbers of their own (containers), and 32-bit programs",
    "programs that lock themselves into a sandbox (seccomp), from then on",
    "calls to the kernel past the C library: by syscall(), by io_uring, and from within the C library itself (scandir, glob, ftw, getpwnam, dlopen)",
    "the parts of a call that the C library makes several of: the links that realpath follows, the places where execvp looks",
    "what the loader opens and maps before a program begins: its shared libraries",
    "which pages of mapped files were used, and which were missing",
    "whether what was read was in the page cache",
    "when changed pages were written back",
    "the end of processes that were killed, and what they had left open",
    "how much of a directory each call read: it is told once, at its end",
    "of streams: looks at the end that gave nothing, and blocks that the C library reads on the way to beyond it; what several threads do to one at once may be told in wrong portions",
];

/// Why programs cannot be seen by a library here.
#[derive(Debug, Error)]
pub enum PreloadError {
    /// There is no library in this program.
    #[error("this comb has no library for programs to load: {0}")]
    NotBuilt(&'static str),
    /// No folder can hold the library so that programs could load it.
    #[error("no folder can hold the library for programs to load: {0}")]
    NoPlace(String),
    /// There is no memory for the ring.
    #[error("no memory to share with programs: {0}")]
    NoMemory(io::Error),
}

/// Sees what programs do, by a library that they load.
pub struct Preload {
    // Removed when dropped; programs that start later then have no library, and say so.
    place: Place,
    ring: Ring,
}

impl Preload {
    /// Puts the library where programs find it, and makes the ring.
    pub fn new() -> Result<Self, PreloadError> {
        Self::with_cells(RING_CELLS)
    }

    /// With a ring of so many cells, a power of two. A record without a path takes one; one with a path two or more.
    pub fn with_cells(cells: usize) -> Result<Self, PreloadError> {
        if !WHY_NOT_BUILT.is_empty() {
            return Err(PreloadError::NotBuilt(WHY_NOT_BUILT));
        }
        let place = Place::new(LIBRARY).map_err(PreloadError::NoPlace)?;
        let memory = Memory::new(ring::bytes(cells)).map_err(PreloadError::NoMemory)?;
        Ok(Self { place, ring: Ring::new(memory, cells) })
    }

    /// What the loader is to load: the library before what is to be loaded anyway.
    fn loaded_first(&self, command: &Command) -> OsString {
        let own = command.get_envs().find(|(name, _)| *name == LOADED_FIRST).map(|(_, value)| value);
        let others = match own {
            Some(value) => value.map(ToOwned::to_owned),
            None => std::env::var_os(LOADED_FIRST),
        };
        let mut all = self.place.library().as_os_str().to_owned();
        if let Some(others) = others.filter(|others| !others.as_bytes().is_empty()) {
            all.push(":");
            all.push(others);
        }
        all
    }
}

impl Source for Preload {
    fn name(&self) -> &'static str {
        "a library that programs load"
    }

    fn lacks(&self) -> Vec<String> {
        LACKS.map(str::to_owned).to_vec()
    }

    fn start(&mut self, mut command: Command) -> io::Result<Child> {
        let mut variable = OsString::from(format!("0:{}:", self.ring.path()));
        variable.push(self.place.library());
        variable.push(":");
        command.env(LOADED_FIRST, self.loaded_first(&command)).env(VARIABLE, variable);
        command.spawn()
    }

    fn follow(&mut self, _process: u32) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a running process cannot be made to load the library; start it with comb trace record -- COMMAND, or be root",
        ))
    }

    fn fetch(&mut self, most: usize, sink: &mut dyn FnMut(&Event, &[u8])) -> usize {
        self.ring.fetch(most, sink)
    }

    fn counters(&self) -> Counters {
        self.ring.counters()
    }
}
