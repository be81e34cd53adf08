//! Threads that move pages while programs run.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use comb_kernel::thread::Ringer;

use super::{Backing, BackingError, Piece};

/// As many transfers are with the host at a time; the disks of today want more than one.
const WORKERS: usize = 4;

/// What is to be moved: first all that goes, and then, often into the same frames, what comes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ticket: u64,
    pub(super) backing: Arc<dyn Backing>,
    pub(super) going: Vec<(u64, Vec<Piece>)>,
    pub(super) coming: Option<(u64, Vec<Piece>)>,
    /// Who is told.
    pub(super) reports: Sender<Done>,
}

/// How it went. If something did not go, nothing has come.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ticket: u64,
    pub(super) has_gone: bool,
    pub(super) result: Result<(), BackingError>,
}

/// The threads of a kernel.
#[derive(Debug)]
pub(super) struct Disk {
    /// Taken when it ends.
    jobs: Option<Sender<(Job, Ringer)>>,
    /// Whether somebody listens to the bell for what is moved.
    is_awaited: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let (jobs, queue) = channel();
        let (queue, is_awaited) = (Arc::new(Mutex::new(queue)), Arc::new(AtomicBool::new(false)));
        let worker = |_| {
            let (queue, is_awaited) = (queue.clone(), is_awaited.clone());
            std::thread::spawn(move || work(&queue, &is_awaited))
        };
        let workers = (0..WORKERS).map(worker).collect();
        Self { jobs: Some(jobs), is_awaited, workers }
    }

    /// Whoever made the job hears by its reports; and by the bell, if it is awaited.
    pub(super) fn start(&self, job: Job, bell: Ringer) {
        let sent = self.jobs.as_ref().expect("it has not ended").send((job, bell));
        sent.expect("workers wait as long as somebody may ask");
    }

    /// From now on the bell rings for what was not reported before.
    pub(super) fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, SeqCst);
        fence(SeqCst);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            // One that has panicked has said so.
            let _ = worker.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<(Job, Ringer)>>, is_awaited: &AtomicBool) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((job, bell)) = job else { return };
        perform(job);
        fence(SeqCst);
        if is_awaited.load(SeqCst) {
            // Any number: who listens for this looks at all that he awaits.
            bell.ring(0);
        }
    }
}

/// Moves what is to be moved, now and in this thread.
pub(super) fn perform(job: Job) {
    let Job { ticket, backing, going, coming, reports } = job;
    let gone = going.iter().try_for_each(|(page, pieces)| backing.write(*page, pieces));
    let has_gone = gone.is_ok();
    let read = |(page, pieces): &(u64, Vec<Piece>)| backing.read(*page, pieces);
    let result = gone.and_then(|()| coming.as_ref().map_or(Ok(()), read));
    // Whoever does not listen any more does not need it.
    let _ = reports.send(Done { ticket, has_gone, result });
}
