//! A task whose components belong to cells: the agent says where, hears which processes they are, and tells of cells that are lost.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comb_host::RuntimeDirectory;
use comb_host::control::ControlError;
use comb_host::tasks::{Places, TaskOrder, Wanted};
use comb_region::belonging;
use comb_region::launch::{Control, How, InCell, Launch, Outcome as Ended, Running};

/// How soon an order, or a component's beginning, is seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// A component may have been killed with its cell, or have failed for what it used of another: then the agent says so within this, before or after.
const WORD_LIMIT: Duration = Duration::from_millis(500);
/// A task that runs again waits so long for a cell that it can run on: its own may be on its way back.
const RETURN_LIMIT: Duration = Duration::from_secs(10);
/// Where nothing but a sentence hangs on it.
const SENTENCE_LIMIT: Duration = Duration::from_millis(20);

/// That the task is over: a flag, and a descriptor that wakes who waits for something else.
struct Over {
    flag: AtomicBool,
    event: OwnedFd,
}

/// Places in cells, and a thread that keeps in touch with the agent.
pub(super) struct OnCells {
    directory: RuntimeDirectory,
    /// Until the thread has them.
    places: Option<Places>,
    /// The cells of the components, by rank.
    cells: Vec<u32>,
    /// Which cells, and when that was heard.
    lost: Receiver<(u32, Instant)>,
    loses: Sender<(u32, Instant)>,
    is_over: Arc<Over>,
    thread: Option<JoinHandle<()>>,
}

impl OnCells {
    pub(super) fn find(directory: &RuntimeDirectory, wanted: &Wanted) -> Result<Self, ControlError> {
        let until = Instant::now() + RETURN_LIMIT;
        let places = loop {
            match Places::ask(directory, wanted) {
                Err(ControlError::Refused(_)) if wanted.restarts > 0 && Instant::now() < until => {
                    std::thread::sleep(BETWEEN_LOOKS);
                }
                asked => break asked?,
            }
        };
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let (loses, lost) = mpsc::channel();
        Ok(Self {
            directory: directory.clone(),
            cells: places.seats().iter().map(|seat| seat.cell).collect(),
            places: Some(places),
            lost,
            loses,
            is_over: Arc::new(Over { flag: AtomicBool::new(false), event }),
            thread: None,
        })
    }

    /// What is launched belongs to the cells.
    pub(super) fn put(&self, launch: Launch) -> Launch {
        let seats = self.places.as_ref().map_or(&[][..], Places::seats);
        launch.in_cells(seats.iter().map(|seat| InCell {
            cgroup: seat.cgroup.clone(),
            mark: belonging::mark(self.directory.path(), seat.cell),
        }))
    }

    /// It runs: what the agent has to say of it is heard from now on.
    pub(super) fn watch(&mut self, running: &mut Running) -> std::io::Result<()> {
        let (begins, begun) = mpsc::channel();
        running.tell_begins(begins);
        let places = self.places.take().expect("watched once");
        let (loses, is_over, control) = (self.loses.clone(), Arc::clone(&self.is_over), running.control());
        let keeps = move || keep(places, &loses, &is_over, &begun, &control);
        self.thread = Some(std::thread::Builder::new().name("comb-places".into()).spawn(keeps)?);
        Ok(())
    }

    /// The cell for whose end the task failed, just now, as far as can be told: that of the component that failed first, or another one that was lost at
    /// about that time. `matters`: whether the task is to run again for it.
    pub(super) fn lost_with(&self, ended: &Ended, matters: bool) -> Option<Loss> {
        let failed = ended.failed.as_ref()?;
        let own = *self.cells.get(failed.rank as usize)?;
        let is_killed = matches!(failed.how, How::Killed(_));
        let until = Instant::now() + if matters || is_killed { WORD_LIMIT } else { SENTENCE_LIMIT };
        let left = || until.saturating_duration_since(Instant::now());
        let is_of_now = |&(cell, at): &(u32, Instant)| {
            cell == own || ended.failed_at.is_none_or(|failed| at + WORD_LIMIT >= failed)
        };
        let (cell, _) = std::iter::from_fn(|| self.lost.recv_timeout(left()).ok()).find(is_of_now)?;
        Some(if cell == own { Loss::OfItsCell(cell) } else { Loss::OfAnother(cell) })
    }
}

/// Of a cell, as a component that failed sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    OfItsCell(u32),
    OfAnother(u32),
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
    mut places: Places,
    loses: &Sender<(u32, Instant)>,
    is_over: &Over,
    begun: &Receiver<(u32, u32)>,
    control: &Control,
) {
    while !is_over.flag.load(Ordering::Relaxed) {
        begun.try_iter().for_each(|(rank, process)| places.began(rank, process));
        match places.hear(BETWEEN_LOOKS, &is_over.event) {
            Some(TaskOrder::End { signal }) => control.interrupt(signal),
            Some(TaskOrder::CellLost { cell }) => {
                let _ = loses.send((cell, Instant::now()));
            }
            None => {}
        }
    }
}
