//! A process's side of named regions.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use comb_memory::{Memory, MemoryError, Place};
use comb_net::agent::runtime_directory::{DirectoryError, RuntimeDirectory};
use comb_net::{Agent, ConnectError, EndpointOptions, RequestError};

use super::door::{Answer, Ask, AskError, Knock};
use super::{ENDPOINT, Entry};
use crate::array::{Array, Number};
use crate::covering;
use crate::engine::{Engine, Named};
use crate::peers::Peers;
use crate::runtime::{Runtime, Whose};
use crate::task::{Share, Task};
use crate::terms::{Allocation, Placement, Terms};
use crate::wire::Kind;

/// Why a region is not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Its home refuses, or is not there.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// There is no place to look for it.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The agent is not there.
    #[error("no agent: {0}; `comb up` starts one, with cells")]
    Agent(#[from] ConnectError),
    /// The agent refuses.
    #[error("cell {cell} cannot be reached: {error}")]
    Channel {
        /// Which.
        cell: u32,
        /// Why.
        error: RequestError,
    },
    /// It cannot be mapped.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No thread.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// A home lies, or is of another build.
    #[error("cell {cell} says of {name} what cannot be: {what}")]
    Nonsense {
        /// Which.
        cell: u32,
        /// The region.
        name: String,
        /// What.
        what: &'static str,
    },
    /// It is attached with less.
    #[error("{0} is attached by this process already, in another way: give that one back first")]
    Otherwise(String),
    /// Regions of another agent are attached.
    #[error("this process has regions of the agent in {0}: a process has one agent")]
    OtherAgent(PathBuf),
}

/// How to attach.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attaching {
    /// Nothing is to be stored: any store is stopped.
    pub only_to_read: bool,
    /// [`Share::Copy`]: by copies, as if the home were on another host.
    pub share: Share,
    /// Where the agent is: the directory that the environment tells of, unless it is said here.
    pub runtime: Option<PathBuf>,
}

/// A named region, as this process has it. All clones are one; when the last is dropped, with all its arrays, it is given back.
#[derive(Clone)]
pub struct Region {
    attached: Arc<Attached>,
}

struct Attached {
    entry: Entry,
    attaching: Attaching,
    imports: bool,
    homes: Arc<Homes>,
    /// What a thread that dies of touching it calls it.
    _place: Place,
    /// Its memory must not outlive the heap.
    _task: Task,
}

/// The homes that this process has to do with.
pub(crate) struct Homes {
    runtime: Arc<Runtime>,
    memory: Arc<Memory>,
    directory: PathBuf,
    /// Whether no system call of this process undoes the guard of what it imports.
    is_covered: bool,
    /// Whose channels they are.
    _agent: Agent,
}

/// What is attached, by name.
struct Books {
    homes: Option<Arc<Homes>>,
    regions: BTreeMap<String, Weak<Attached>>,
}

/// One thread at a time attaches, or gives back.
static BOOKS: Mutex<Books> = Mutex::new(Books { homes: None, regions: BTreeMap::new() });

fn books() -> MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = if self.imports() { "imported" } else { "by copies" };
        write!(f, "region {} of {} bytes, {way}", self.name(), self.bytes())
    }
}

impl Task {
    /// Attaches a named region: memory that lives in a cell ([`Home`](super::Home)), has the same address in every process, and outlives this
    /// one. It is sequentially consistent; whoever uses it synchronises by atomic operations there.
    ///
    /// On its home's host the page frames are shared and every first store to a block is asked for. What the home loses is lost
    /// with a typed fault: [`Array::read`](crate::Array::read) says so, and a plain load ends the process with the reason.
    pub fn attach(&self, name: &str, attaching: &Attaching) -> Result<Region, AttachError> {
        let mut books = books();
        while let Some(attached) = books.regions.get(name) {
            let attached = attached.upgrade();
            match attached {
                Some(attached) if attached.attaching == *attaching => return Ok(Region { attached }),
                Some(_other) => {
                    // It may be the last to go, and then needs the books.
                    drop(books);
                    return Err(AttachError::Otherwise(name.to_owned()));
                }
                // It is being given back.
                None => drop(books),
            }
            std::thread::yield_now();
            books = self::books();
        }
        let directory = match &attaching.runtime {
            Some(directory) => directory.clone(),
            None => RuntimeDirectory::from_environment()?.path().to_owned(),
        };
        let (door, entry) = Ask::about(&directory, name)?;
        let homes = match &books.homes {
            Some(homes) if homes.directory == directory => Arc::clone(homes),
            Some(homes) => return Err(AttachError::OtherAgent(homes.directory.clone())),
            None => {
                let homes = Arc::new(Homes::begin(self, &directory)?);
                books.homes = Some(Arc::clone(&homes));
                homes
            }
        };
        let imports = homes.attach(&door, &entry, attaching)?;
        let start = comb_memory::HEAP_START + usize::try_from(entry.allocation.offset).expect("in the heap");
        let end = start + usize::try_from(entry.allocation.bytes).expect("in the heap");
        let place = comb_memory::name_place(start..end, &format!("region {name} of cell {}", entry.cell));
        let (attaching, task) = (attaching.clone(), self.clone());
        let attached = Arc::new(Attached { entry, attaching, imports, homes, _place: place, _task: task });
        books.regions.insert(name.to_owned(), Arc::downgrade(&attached));
        Ok(Region { attached })
    }
}

impl Homes {
    fn begin(task: &Task, directory: &Path) -> Result<Self, AttachError> {
        let agent =
            Agent::connect(&directory.join("agent.sock"), &format!("attached-{}", std::process::id()))?;
        let options = EndpointOptions { events: true, sleeps_often: true, ..EndpointOptions::default() };
        let endpoint = agent
            .endpoint_with("memory", options)
            .map_err(|error| AttachError::System(std::io::Error::other(error)))?;
        // Copies are nobody else's, whatever the components of the task share.
        let memory = Arc::new(task.memory().beside()?);
        let is_covered = covering::cover(true);
        let engine = Engine::of_homes(Arc::clone(&memory), Peers::none_yet(endpoint));
        let runtime = Runtime::start(engine, Whose::Homes)?;
        Ok(Self { runtime, memory, directory: directory.to_owned(), is_covered, _agent: agent })
    }

    /// Whether it is imported.
    fn attach(&self, door: &Ask, entry: &Entry, attaching: &Attaching) -> Result<bool, AttachError> {
        let (cell, to_store) = (entry.cell, !attaching.only_to_read);
        let nonsense = |what| AttachError::Nonsense { cell, name: entry.name.clone(), what };
        let wants_import =
            attaching.share == Share::Auto && self.is_covered && comb_memory::mechanism::guards_imports();
        let knock = Knock::Attach { name: entry.name.clone(), to_store, imports: wants_import };
        let (answer, mut frames) = door.ask(&knock, &[])?;
        let Answer::Attached { allocation, number, proof } = answer else {
            return Err(door.strange().into());
        };
        if allocation != entry.allocation || !super::ADDRESSES.contains(&allocation.offset) {
            return Err(nonsense("it lies elsewhere than its name says"));
        }
        let layout = allocation.layout().map_err(|_| nonsense("it has no shape"))?;
        if super::ADDRESSES.end - allocation.offset < layout.span() {
            return Err(nonsense("it is longer than the heap"));
        }
        let rank = self.channel(cell)?;
        let named = Named::new(cell, to_store);
        let here = Allocation {
            terms: Terms { placement: Placement::At(rank), ..allocation.terms },
            creator: rank,
            ..allocation
        };
        if wants_import {
            let frames = frames.pop().ok_or_else(|| nonsense("no frames came with it"))?;
            let guard = self.memory.import(&layout, frames.as_fd())?;
            let address = layout.address(comb_memory::Block(0)) as u64;
            let guarded = door.ask(&Knock::Guard { address }, &[guard.as_fd()]);
            // Neither is needed here any more, and both could undo what the home does.
            drop((guard, frames));
            let opened = match guarded {
                Ok((Answer::Guarded, _)) => {
                    self.memory.open_import(&layout, to_store).map_err(AttachError::from)
                }
                Ok(_) => Err(door.strange().into()),
                Err(error) => Err(error.into()),
            };
            opened.inspect_err(|_| drop(self.memory.unmap(&layout, false)))?;
        }
        // Nobody has its address before this returns.
        let mut engine = self.runtime.lock();
        engine.install_named(here, named, wants_import)?;
        // Whatever is asked about it comes behind this.
        engine.core.say(rank, Kind::Enter, &[u64::from(number), allocation.offset, proof, 0], &[]);
        Ok(wants_import)
    }

    /// The number among peers of a cell's home.
    fn channel(&self, cell: u32) -> Result<u32, AttachError> {
        let mut engine = self.runtime.lock();
        let living = engine.homes.get(&cell).copied().filter(|&rank| engine.core.lives(rank));
        if let Some(rank) = living {
            return Ok(rank);
        }
        let peers = engine.core.peers.as_mut().expect("it is made with them");
        let channel = peers
            .endpoint
            .open(&format!("cell-{cell}/{ENDPOINT}"))
            .map_err(|error| AttachError::Channel { cell, error })?;
        let rank = peers.add(channel);
        engine.homes.insert(cell, rank);
        Ok(rank)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let Allocation { offset, .. } = self.entry.allocation;
        let runtime = &self.homes.runtime;
        // What only this process has goes home before the answer.
        runtime.call(|engine, slot| {
            slot.begin(0);
            if let Some(home) = engine.home_of(offset) {
                slot.begin(1);
                let token = engine.core.token(home, slot);
                engine.core.say(home, Kind::Leave, &[token, offset, 0, 0], &[]);
            }
        });
        runtime.lock().remove(offset);
        // Nobody has attached it meanwhile: whoever wants to waits for this.
        books().regions.remove(&self.entry.name);
    }
}

impl Region {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.attached.entry.name
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.attached.entry.allocation.bytes
    }

    /// The cell that it lives in, and depends on.
    pub fn cell(&self) -> u32 {
        self.attached.entry.cell
    }

    /// Whether the home's page frames are mapped here, instead of copies.
    pub fn imports(&self) -> bool {
        self.attached.imports
    }

    /// Its first byte, in every process.
    pub fn as_ptr(&self) -> *mut u8 {
        comb_memory::pointer(comb_memory::HEAP_START as u64 + self.attached.entry.allocation.offset)
    }

    /// Numbers that begin `at` bytes behind the beginning; none where there is no room for them, or they would not be aligned.
    pub fn array<T: Number>(&self, at: u64, length: usize) -> Option<Array<T>> {
        let bytes = (length as u64).checked_mul(size_of::<T>() as u64)?;
        let fits = at.checked_add(bytes)? <= self.bytes();
        let first = self.as_ptr().wrapping_add(usize::try_from(at).ok()?);
        (fits && first.cast::<T>().is_aligned()).then(|| Array::of_region(self.clone(), first.cast(), length))
    }

    /// As [`Task::prefetch`].
    pub fn prefetch(&self, address: *const u8, bytes: usize, to_store: bool) {
        let mut engine = self.attached.homes.runtime.enter();
        engine.prefetch(address as usize, bytes, to_store);
        Runtime::leave(engine);
    }
}
