//! Second references for the homes in this host's cells: beside the agent's one thread, for whoever hands something over waits for the answer.
//!
//! The agent says which process is which cell, and when one has ended; the rest is [`comb_region::named::keeper`].

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comb_net::agent::listener::Listener;
use comb_region::named::KeptReferences;
use comb_region::named::keeper::{self, references};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::notify::Store;

/// References of processes that have ended are closed now and then.
const BETWEEN_TIDYING: Duration = Duration::from_secs(1);
/// Until cells have handed over to this agent what they had given to the one before; meanwhile what that one had stored stays so.
const UNTIL_HANDED_OVER: Duration = Duration::from_secs(5);
/// How long it takes at most until the end is noticed.
const LONGEST_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// A home has one connection; there may be an old one for a moment.
const MOST_CONNECTIONS: usize = 2 * crate::MOST_CELLS as usize;

/// The keeper of this host, until it is dropped.
#[derive(Debug)]
pub struct Keeping {
    shared: Arc<Shared>,
    /// Until it is listened to.
    listener: Option<OwnedFd>,
}

#[derive(Debug, Default)]
struct Shared {
    references: Mutex<KeptReferences>,
    /// Of each cell that runs, which life it is, and in which process.
    cells: Mutex<BTreeMap<u32, (u64, u32)>>,
    connections: AtomicUsize,
    is_over: AtomicBool,
    /// Where a third is of each, for the case that this agent is killed.
    store: Mutex<Store>,
}

impl Keeping {
    /// In a runtime directory whose agent this process is. Whoever comes waits for [`Keeping::serve`].
    pub fn begin(runtime: &Path) -> std::io::Result<Self> {
        let path = keeper::socket(runtime);
        // We hold the lock: whoever listened here is dead.
        let _ = std::fs::remove_file(&path);
        let listener = Listener::bind(&path)?;
        let shared = Shared { store: Mutex::new(Store::from_environment()), ..Shared::default() };
        Ok(Self { shared: Arc::new(shared), listener: Some(listener) })
    }

    /// All cells are known that were there before this agent: they may hand references over.
    pub fn serve(&mut self) -> std::io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let listen = move || shared.listen(&listener);
        std::thread::Builder::new().name("comb-keeper".to_owned()).spawn(listen).map(drop)
    }

    /// The process that `start` starts is a life of a cell from now on. It may hand references over at once, and so nobody is asked which process is which
    /// cell until that is known.
    pub fn cell_begins<T>(
        &self,
        (cell, incarnation): (u32, u64),
        start: impl FnOnce() -> std::io::Result<(u32, T)>,
    ) -> std::io::Result<T> {
        let mut cells = locked(&self.shared.cells);
        let (process, started) = start()?;
        cells.insert(cell, (incarnation, process));
        Ok(started)
    }

    /// A cell has ended: its process is gone. When the thread has ended that this starts, nobody can load or store anything that was homed there. Without
    /// a thread its frames stay as they are, and guarded: nobody is to have them again.
    pub fn cell_ended(&self, cell: u32) -> std::io::Result<JoinHandle<()>> {
        locked(&self.shared.cells).remove(&cell);
        let ending = locked(&self.shared.references).cell_ends(cell);
        let shared = Arc::clone(&self.shared);
        let empty = move || ending.finish(&shared.references);
        std::thread::Builder::new().name("comb-empties".to_owned()).spawn(empty)
    }

    /// How many regions there are references of, and how many importers.
    pub fn count(&self) -> (usize, usize) {
        locked(&self.shared.references).count()
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
    }
}

/// Whoever panicked has left nothing half done: what is kept is kept by single steps.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &OwnedFd) {
        let (began, mut tidied) = (Instant::now(), Instant::now());
        while !self.is_over.load(Ordering::Acquire) {
            let mut waiting = [PollFd::new(listener, PollFlags::IN)];
            let _ = rustix::event::poll(&mut waiting, Some(&LONGEST_SLEEP));
            let references = locked(&self.references);
            locked(&self.store).hold(&references.all(), began.elapsed() >= UNTIL_HANDED_OVER);
            drop(references);
            if tidied.elapsed() >= BETWEEN_TIDYING {
                tidied = Instant::now();
                locked(&self.references).tidy();
            }
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(home) => self.let_in(home),
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptor is left. Whoever knocks waits, and is told so by its own limit.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Without a thread, it is hung up on.
    fn let_in(self: &Arc<Self>, home: OwnedFd) {
        if self.connections.load(Ordering::Relaxed) >= MOST_CONNECTIONS {
            return;
        }
        let shared = Arc::clone(self);
        let serve = move || {
            shared.connections.fetch_add(1, Ordering::Relaxed);
            let is_cell = |process, cell, incarnation| {
                locked(&shared.cells).get(&cell) == Some(&(incarnation, process))
            };
            references::serve(&home, &shared.references, is_cell);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        };
        let _ = std::thread::Builder::new().name("comb-keeps".to_owned()).spawn(serve);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use comb_memory::Exports;
    use comb_region::named::keeper::Reference;
    use comb_region::named::{Keeper, RemoteKeeper};

    use super::*;

    #[test]
    fn a_cell_hands_over_what_is_its_own_and_its_end_empties_it() {
        let directory = std::env::temp_dir().join(format!("comb-keeping-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut keeping = Keeping::begin(&directory).unwrap();
        let process = std::process::id();
        keeping.cell_begins((3, 7), || Ok((process, ()))).unwrap();
        keeping.serve().unwrap();
        let mut frames = Exports::create(1 << 20).unwrap();
        frames.copy_in(5, &[1]);
        let reference = Reference::Frames { region: 1 << 40 };
        for (cell, incarnation) in [(4, 7), (3, 6)] {
            let stranger = RemoteKeeper::new(&directory, cell, incarnation);
            let refused = stranger.keep(reference, &[frames.file()]).unwrap_err().to_string();
            assert!(refused.contains("not that cell"), "{refused}");
        }
        let keeper = RemoteKeeper::new(&directory, 3, 7);
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(keeper.keep(reference, &[event.as_fd()]).unwrap_err().to_string().contains("no frames"));
        keeper.keep(reference, &[frames.file()]).unwrap();
        assert!(keeper.take().unwrap().is_empty(), "they are in use");
        assert_eq!(keeping.count(), (1, 0));
        keeping.cell_ended(3).unwrap().join().unwrap();
        assert_eq!((frames.resident_bytes(), keeping.count()), (0, (0, 0)), "nobody has imported them");
        drop(keeping);
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// A cell was there before the agent had written down that it is: it was refused, and what it had inherited from its life before was lost.
    #[test]
    fn who_comes_before_it_is_known_which_cell_it_is_waits() {
        let directory = std::env::temp_dir().join(format!("comb-keeping-early-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut keeping = Keeping::begin(&directory).unwrap();
        keeping.serve().unwrap();
        let frames = Exports::create(1 << 20).unwrap();
        let keeper = RemoteKeeper::new(&directory, 3, 7);
        let begun = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| {
                begun.wait();
                keeper.keep(Reference::Frames { region: 1 << 40 }, &[frames.file()])
            });
            let start = || {
                begun.wait();
                let came = Instant::now();
                while keeping.shared.connections.load(Ordering::Relaxed) == 0 {
                    assert!(came.elapsed() < Duration::from_secs(20), "it never comes");
                    std::thread::yield_now();
                }
                assert!(
                    keeping.shared.cells.try_lock().is_err(),
                    "it has come, and nobody can be asked who it is"
                );
                Ok((std::process::id(), ()))
            };
            keeping.cell_begins((3, 7), start).unwrap();
            early.join().unwrap().unwrap();
        });
        drop(keeping);
        let _ = std::fs::remove_dir_all(&directory);
    }
}
