//! A region's home at work: the thread of a supervisor that has the frames, and says who may do what.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use comb_memory::{Exports, Far, Full, Published};
use comb_net::{Agent, EndpointOptions, Geometry, RequestError};
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

pub use self::discarding::Discarded;
use self::discarding::Recovering;
pub(crate) use self::discarding::{DISCARDED, REMOVED};
use self::forking::Guilty;
pub use self::forking::{OtherCells, Suspect};
use self::hearing::Held;
use self::loaning::Loans;
pub use self::reclaiming::{ClockHand, HomeMemory};
use self::shared::Shared;
use super::ENDPOINT;
use super::keeper::{self, Keeper};
use super::register::{Register, RegisterError};
use super::shown::{RegionsShown, Showing};
use crate::belonging;
use crate::peers::Peers;
use crate::spinning::{Learned, preemptions};

mod body;
mod discarding;
mod doorkeeper;
mod forking;
mod hearing;
mod inheriting;
mod loaning;
mod reclaiming;
mod shared;

/// Messages that are taken before the lock is given to others for a moment.
const MESSAGES_A_TURN: usize = 32;
/// Who asks once asks again soon, and a wake-up takes longer than an answer.
const LONGEST_SPIN: Duration = Duration::from_micros(50);
/// Guards of dead importers are closed now and then, and those who do not come are forgotten.
const BETWEEN_TIDYING: Duration = Duration::from_secs(1);
const LONGEST_SLEEP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Nothing tells that a peer has read and that there is room again.
const BETWEEN_LOOKS: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
/// As many processes as can be attached to the regions of one cell.
const MOST_PROCESSES: u32 = 256;
const GEOMETRY: Geometry = Geometry { slots: 64, payload_bytes: 256 << 10 };

/// Why a home could not begin.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The agent refused.
    #[error("the agent refused the endpoint {ENDPOINT}: {0}")]
    Endpoint(#[from] RequestError),
    /// Names cannot be given.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// There is no room to show anything to the other cells.
    #[error(transparent)]
    Full(#[from] Full),
    /// The system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: Errno,
    },
}

/// Whose home it is.
#[derive(Clone)]
pub struct HomeOptions {
    /// The cell.
    pub cell: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// Where its agent and all the others' doors are.
    pub runtime: PathBuf,
    /// Bytes of page frames that it may have, what it lends included. None: all that its host has.
    pub most_bytes: Option<u64>,
    /// Where other cells read what it shows of its regions, if they do.
    pub published: Option<Arc<Published>>,
    /// What other cells show, if it is seen.
    pub others: Option<Arc<dyn OtherCells>>,
    /// Who keeps second references. Without one, importers of a home that dies may store to its frames until they have heard of that.
    pub keeper: Option<Arc<dyn Keeper>>,
}

/// A home, until it is dropped: then its regions are no more.
#[derive(Debug)]
pub struct Home {
    office: Arc<Office>,
}

/// What the threads of a home have in common.
struct Office {
    options: HomeOptions,
    register: Register,
    books: Mutex<Books>,
    /// Readable when something has come.
    event: OwnedFd,
    /// Wakes whoever sleeps here.
    kick: OwnedFd,
    is_over: AtomicBool,
    guilty: Guilty,
}

impl std::fmt::Debug for Office {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "home in cell {}", self.options.cell)
    }
}

/// All that a home knows. One thread at a time has it.
struct Books {
    peers: Peers,
    /// By where they begin.
    regions: BTreeMap<u64, Shared>,
    generation: u32,
    /// What a message is read into.
    buffer: Vec<u8>,
    held: Option<Held>,
    /// Who was let in and has to say by when on a channel who it is: region, and number there.
    expected: Vec<(Instant, u64, u32)>,
    /// When those were last looked through, and the guards of importers.
    tidied: Instant,
    /// A cell has failed, and nobody is given a right until that is dealt with.
    recovering: Option<Recovering>,
    /// Processes that do not know yet that this home has done with them, and where: what they still say of it is no lie.
    dismissed: BTreeSet<(u32, u64)>,
    showing: Option<Showing>,
    loans: Loans,
    /// Regions that were removed, as long as a process lives that had imported them: it may not have heard of that yet.
    closed: Vec<Exports>,
}

/// Something that a checkpoint can be put into.
pub(super) trait Filled {
    fn refill(&mut self, at: u64, content: &[u8]);
}

impl Home {
    /// Begins. Regions of earlier lives of the cell that have a checkpoint are there again in a while, the others are forgotten.
    pub fn begin(agent: &Agent, options: HomeOptions) -> Result<Self, HomeError> {
        let system = |doing| move |source| HomeError::System { doing, source };
        let register = Register::of(&options.runtime);
        let endpoint_options = EndpointOptions {
            channels: MOST_PROCESSES,
            events: true,
            sleeps_often: true,
            geometry: GEOMETRY,
            looks_after: Duration::from_secs(1),
            ..EndpointOptions::default()
        };
        let endpoint = agent.endpoint_with(ENDPOINT, endpoint_options)?;
        let event = endpoint.event_descriptor().expect("made with events").try_clone_to_owned();
        let event = event.map_err(|_| HomeError::System { doing: "cannot wait", source: Errno::MFILE })?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let kick = rustix::event::eventfd(0, flags).map_err(system("cannot wait"))?;
        let books = Books {
            peers: Peers::who_come(endpoint),
            regions: BTreeMap::new(),
            generation: 0,
            buffer: Vec::new(),
            held: None,
            expected: Vec::new(),
            tidied: Instant::now(),
            recovering: None,
            dismissed: BTreeSet::new(),
            showing: options.published.clone().map(Showing::begin).transpose()?,
            closed: Vec::new(),
            loans: Loans::new(options.cell, options.most_bytes.unwrap_or_else(host_bytes)),
        };
        let is_over = AtomicBool::new(false);
        let guilty = Guilty::default();
        let office = Office { options, register, books: Mutex::new(books), event, kick, is_over, guilty };
        inheriting::forget_the_lost(&office)?;
        let home = Self { office: Arc::new(office) };
        let door = doorkeeper::listen(&home.office).map_err(system("cannot listen at the door"))?;
        let (serving, keeping) = (Arc::clone(&home.office), Arc::clone(&home.office));
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
            spawned.map(drop).map_err(|_| HomeError::System { doing: "no thread", source: Errno::AGAIN })
        };
        spawn("comb-regions", Box::new(move || ending_with_us(|| serving.serve())))?;
        spawn(
            "comb-door",
            Box::new(move || {
                ending_with_us(|| {
                    inheriting::inherit(&keeping);
                    doorkeeper::keep(&keeping, &door);
                });
            }),
        )?;
        Ok(home)
    }
}

/// A cell whose home has failed is no cell: everybody is to see that.
fn ending_with_us(run: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
        std::process::abort();
    }
}

/// Memory and swap of this host; much, if it does not say.
fn host_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    of("MemTotal:").map_or(1 << 40, |total| (total + of("SwapTotal:").unwrap_or(0)) << 10)
}

impl Home {
    /// Whether there are such: see [`Home::take_guilty`].
    pub fn is_accusing(&self) -> bool {
        self.office.guilty.is_any()
    }

    /// Cells of which something was read, since the last time, that cannot be: a reason to suspect them.
    pub fn take_guilty(&self) -> Vec<Suspect> {
        self.office.guilty.take()
    }

    /// Where the list of its regions is, for other cells.
    pub fn shown(&self) -> Option<Far<RegionsShown>> {
        self.office.books().showing.as_ref().map(Showing::list)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.office.is_over.store(true, Ordering::Release);
        self.office.kick();
        let _ = std::fs::remove_file(super::register::door(
            &self.office.options.runtime,
            self.office.options.cell,
        ));
        // Whoever ends in good order leaves nothing to the next life.
        let _ = self.office.register.clear_of(self.office.options.cell);
    }
}

impl Books {
    fn tidy(&mut self) {
        self.regions.values_mut().for_each(Shared::forget_dead);
        self.regions.values_mut().for_each(Shared::forget_doubtful);
        self.closed.retain_mut(|exports| {
            exports.forget_dead();
            exports.importers() > 0
        });
        self.forget_late_comers();
    }

    /// All that there are second references to. What no descriptor is left for is not among them.
    fn references(&self) -> Vec<keeper::Taken> {
        let mut all = Vec::new();
        for (&region, shared) in &self.regions {
            let exports = &shared.body.exports;
            let Ok(frames) = exports.file().try_clone_to_owned() else { continue };
            all.push((keeper::Reference::Frames { region }, vec![frames]));
            for (importer, guard, process, address) in exports.guards() {
                let (Ok(guard), Ok(process)) = (guard.try_clone_to_owned(), process.try_clone_to_owned())
                else {
                    continue;
                };
                let address = address as u64;
                all.push((keeper::Reference::Guard { region, importer, address }, vec![guard, process]));
            }
        }
        all
    }
}

impl Office {
    /// Unless somebody is at work.
    fn books_at_once(&self) -> Option<MutexGuard<'_, Books>> {
        match self.books.try_lock() {
            Ok(books) => Some(books),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kick(&self) {
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// The cell that a process runs in.
    fn cell_of(&self, process: u32) -> Option<u32> {
        belonging::cell_of(process, self.runtime())
    }

    /// Whoever keeps second references has this one from now on.
    fn keep(&self, reference: keeper::Reference, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        let keeper = self.options.keeper.as_ref();
        keeper.map_or(Ok(()), |keeper| keeper.keep(reference, descriptors)).map_err(|error| error.to_string())
    }

    fn runtime(&self) -> &Path {
        &self.options.runtime
    }

    fn serve(&self) {
        let learned = Learned::default();
        while !self.is_over.load(Ordering::Acquire) {
            self.work(&learned);
            self.sleep();
        }
    }

    /// Until nothing has come for a while.
    fn work(&self, learned: &Learned) {
        let spins = learned.pays();
        let (mut since, before) = (Instant::now(), preemptions());
        loop {
            for _ in 0..64 {
                if self.books().turn() {
                    since = Instant::now();
                } else {
                    std::hint::spin_loop();
                }
            }
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if !spins || since.elapsed() >= LONGEST_SPIN {
                if spins {
                    learned.learn(preemptions() != before);
                }
                return;
            }
        }
    }

    fn sleep(&self) {
        let mut books = self.books();
        let owes = books.is_owing();
        if !books.peers.endpoint.arm() {
            return;
        }
        drop(books);
        let limit = if owes { BETWEEN_LOOKS } else { LONGEST_SLEEP };
        let mut sources = [PollFd::new(&self.event, PollFlags::IN), PollFd::new(&self.kick, PollFlags::IN)];
        let _ = rustix::event::poll(&mut sources, Some(&limit));
        // Taken out of the set, or it would be readable for ever.
        let mut space = [std::mem::MaybeUninit::uninit(); 16];
        let _ = epoll::wait(&self.event, &mut space, Some(&Timespec::default()));
        let _ = rustix::io::read(&self.kick, &mut [0; 8]);
        let mut books = self.books();
        books.peers.endpoint.disarm();
        if books.tidied.elapsed() >= BETWEEN_TIDYING {
            books.tidied = Instant::now();
            books.tidy();
            drop(books);
            self.keep_again();
        }
    }

    /// A keeper that has begun anew is told all that it had been told.
    fn keep_again(&self) {
        let Some(keeper) = self.options.keeper.as_ref().filter(|keeper| keeper.has_begun_anew()) else {
            return;
        };
        // Not under the lock: whoever keeps them is another process.
        let references = self.books().references();
        for (reference, descriptors) in references {
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            if let Err(error) = keeper.keep(reference, &descriptors) {
                eprintln!("comb: while this home lives, importers are guarded by it alone: {error}");
                return;
            }
        }
    }
}
