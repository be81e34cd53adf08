//! A task whose components belong to cells: the agent says where, hears which processes they are, and tells of cells that are lost.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comb_host::RuntimeDirectory;
use comb_host::control::ControlError;
use comb_host::tasks::{Places, TaskOrder, Wanted};
use comb_region::launch::{Control, Launch, Outcome as Ended, Running};

/// How soon an order, or a component's beginning, is seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// A component that was killed may have been so with its cell: then the agent says so within this.
const WORD_LIMIT: Duration = Duration::from_millis(500);

/// That the task is over: a flag, and a descriptor that wakes who waits for something else.
struct Over {
    flag: AtomicBool,
    event: OwnedFd,
}

/// Places in cells, and a thread that keeps in touch with the agent.
pub(super) struct OnCells {
    places: Arc<Mutex<Places>>,
    lost: Arc<Mutex<BTreeSet<u32>>>,
    is_over: Arc<Over>,
    begins: Sender<(u32, u32)>,
    begun: Option<Receiver<(u32, u32)>>,
    thread: Option<JoinHandle<()>>,
}

impl OnCells {
    pub(super) fn find(directory: &RuntimeDirectory, wanted: &Wanted) -> Result<Self, ControlError> {
        let places = Places::ask(directory, wanted)?;
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let (begins, begun) = mpsc::channel();
        Ok(Self {
            places: Arc::new(Mutex::new(places)),
            lost: Arc::default(),
            is_over: Arc::new(Over { flag: AtomicBool::new(false), event }),
            begins,
            begun: Some(begun),
            thread: None,
        })
    }

    /// What is launched belongs to the cells.
    pub(super) fn put(&self, launch: Launch) -> Launch {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        launch.cgroups(places.seats().iter().map(|seat| seat.cgroup.clone()))
    }

    /// Which cell a component belongs to.
    pub(super) fn cell_of(&self, rank: u32) -> Option<u32> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.seats().get(rank as usize).map(|seat| seat.cell)
    }

    /// It runs: what the agent has to say of it is heard from now on.
    pub(super) fn watch(&mut self, running: &mut Running) -> std::io::Result<()> {
        running.tell_begins(self.begins.clone());
        let begun = self.begun.take().expect("watched once");
        let (places, lost, is_over) = (Arc::clone(&self.places), Arc::clone(&self.lost), Arc::clone(&self.is_over));
        let control = running.control();
        let keeps = move || keep(&places, &lost, &is_over, &begun, &control);
        self.thread = Some(std::thread::Builder::new().name("comb-places".into()).spawn(keeps)?);
        Ok(())
    }

    /// The cell that the component was lost with that failed first.
    pub(super) fn lost_with(&self, ended: &Ended) -> Option<u32> {
        let cell = self.cell_of(ended.failed.as_ref()?.rank)?;
        let since = Instant::now();
        while since.elapsed() < WORD_LIMIT {
            if self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&cell) {
                return Some(cell);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl Drop for OnCells {
    fn drop(&mut self) {
        self.is_over.flag.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.is_over.event, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(
    places: &Mutex<Places>,
    lost: &Mutex<BTreeSet<u32>>,
    is_over: &Over,
    begun: &Receiver<(u32, u32)>,
    control: &Control,
) {
    while !is_over.flag.load(Ordering::Relaxed) {
        let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok((rank, process)) = begun.try_recv() {
            places.began(rank, process);
        }
        let order = places.hear(BETWEEN_LOOKS, &is_over.event);
        drop(places);
        match order {
            Some(TaskOrder::End { signal }) => control.interrupt(signal),
            Some(TaskOrder::CellLost { cell }) => {
                lost.lock().unwrap_or_else(PoisonError::into_inner).insert(cell);
            }
            None => {}
        }
    }
}
