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
    pub(super) going: Vec<(u64, Vec<Piece>)>,
    pub(super) coming: Option<(u64, Vec<Piece>)>,
}

/// How it went. If something did not go, nothing has come.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ticket: u64,
    pub(super) has_gone: bool,
    pub(super) result: Result<(), BackingError>,
}

/// The threads of a segment.
#[derive(Debug)]
pub(super) struct Disk {
    /// Taken when it ends.
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    workers: Vec<JoinHandle<()>>,
}

impl Disk {
    pub(super) fn new(backing: &Arc<dyn Backing>) -> Self {
        let (jobs, queue) = channel();
        let (reports, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let workers = (0..WORKERS)
            .map(|_| {
                let (backing, queue, reports) = (backing.clone(), queue.clone(), reports.clone());
                std::thread::spawn(move || work(&*backing, &queue, &reports))
            })
            .collect();
        Self { jobs: Some(jobs), done, workers }
    }

    pub(super) fn start(&self, job: Job) {
        let sent = self.jobs.as_ref().expect("it has not ended").send(job);
        sent.expect("workers wait as long as somebody may ask");
    }

    /// Something that is done, if there is.
    pub(super) fn poll(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    /// Waits until something is done. Only while something was started and is not.
    pub(super) fn wait(&self) -> Done {
        self.done.recv().expect("workers wait as long as somebody may ask")
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

fn work(backing: &dyn Backing, queue: &Mutex<Receiver<Job>>, reports: &Sender<Done>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { ticket, going, coming }) = job else { return };
        let gone = going.iter().try_for_each(|(page, pieces)| backing.write(*page, pieces));
        let has_gone = gone.is_ok();
        let result =
            gone.and_then(|()| coming.as_ref().map_or(Ok(()), |(page, pieces)| backing.read(*page, pieces)));
        // Whoever does not listen any more does not need it.
        let _ = reports.send(Done { ticket, has_gone, result });
    }
}
