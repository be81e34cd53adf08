//! Threads that move pages while programs run.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

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
    jobs: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let worker = |_| {
            let queue = queue.clone();
            std::thread::spawn(move || work(&queue))
        };
        Self { jobs: Some(jobs), workers: (0..WORKERS).map(worker).collect() }
    }

    pub(super) fn start(&self, job: Job) {
        let sent = self.jobs.as_ref().expect("it has not ended").send(job);
        sent.expect("workers wait as long as somebody may ask");
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

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        perform(job);
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
