//! Upcalls: closures that run when the receive queue is not empty, and when it is almost full. (Thesis §2.3.1)
//!
//! An upcall runs on the thread that polls: the one that calls [`Upcalls::poll`], or the one that [`Upcalls::spawn`]
//! starts and that then owns the queue. Never in a signal handler, and never two at a time. All messages that are pending
//! are for one upcall to consume: what it leaves is pending still, and calls it again at the next poll.
//!
//! A [`Gate`] disables upcalls: one addition to a word, no system call. What came in between is delivered when the last
//! who disabled them enables them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::endpoint::{ChannelEnded, Endpoint};
use crate::queues::Queues;

pub use crate::gate::{Disabled, Gate};

/// How long a dedicated thread naps while upcalls are disabled and messages are there. Critical sections are shorter
/// than a wake-up, mostly.
const NAP: Duration = Duration::from_micros(20);
/// How long it waits before it looks whether it is to stop.
const STOP_LOOK: Duration = Duration::from_millis(10);

/// What upcalls are made for.
pub trait ReceiveQueue {
    /// Moves what came to where it can be seen.
    fn service(&mut self) -> Result<(), ChannelEnded>;
    /// Whether nothing is to be received.
    fn is_empty(&mut self) -> bool;
    /// Whether senders will soon be held back.
    fn is_almost_full(&mut self) -> bool;
    /// Waits until something comes; may return early.
    fn wait(&mut self, limit: Duration);
}

/// An endpoint tells of the end of a channel as the result of a poll, so an end makes it not empty, too.
impl ReceiveQueue for Endpoint {
    fn service(&mut self) -> Result<(), ChannelEnded> {
        Ok(())
    }
    fn is_empty(&mut self) -> bool {
        !self.has_something()
    }
    fn is_almost_full(&mut self) -> bool {
        Endpoint::is_almost_full(self)
    }
    fn wait(&mut self, limit: Duration) {
        Endpoint::wait(self, limit);
    }
}

impl ReceiveQueue for Queues {
    fn service(&mut self) -> Result<(), ChannelEnded> {
        Queues::service(self).map(drop)
    }
    fn is_empty(&mut self) -> bool {
        self.state().received == 0
    }
    fn is_almost_full(&mut self) -> bool {
        Queues::is_almost_full(self)
    }
    fn wait(&mut self, limit: Duration) {
        // The end of a channel is not lost: the next service tells of it.
        self.wait_for_any(limit);
    }
}

type EndUpcall<Q> = Option<Box<dyn FnMut(&mut Q, ChannelEnded) + Send>>;
type Upcall<Q> = Option<Box<dyn FnMut(&mut Q) + Send>>;

/// A receive queue with its upcalls.
pub struct Upcalls<Q> {
    queue: Q,
    gate: Gate,
    non_empty: Upcall<Q>,
    almost_full: Upcall<Q>,
    ended: EndUpcall<Q>,
    /// Told once each time that it becomes true.
    was_almost_full: bool,
}

impl<Q: std::fmt::Debug> std::fmt::Debug for Upcalls<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upcalls")
            .field("queue", &self.queue)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl<Q: ReceiveQueue> Upcalls<Q> {
    /// Without upcalls so far.
    pub fn new(queue: Q) -> Self {
        let gate = Gate::default();
        Self { queue, gate, non_empty: None, almost_full: None, ended: None, was_almost_full: false }
    }

    /// What runs when the receive queue is not empty. It should take all that is there.
    pub fn on_non_empty(&mut self, upcall: impl FnMut(&mut Q) + Send + 'static) {
        self.non_empty = Some(Box::new(upcall));
    }

    /// What runs when the receive queue becomes almost full, before senders are held back.
    pub fn on_almost_full(&mut self, upcall: impl FnMut(&mut Q) + Send + 'static) {
        self.almost_full = Some(Box::new(upcall));
    }

    /// What runs, on a dedicated thread, when servicing tells of the end of a channel.
    pub fn on_ended(&mut self, upcall: impl FnMut(&mut Q, ChannelEnded) + Send + 'static) {
        self.ended = Some(Box::new(upcall));
    }

    /// Disables and enables the upcalls of this queue.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The queue. No upcall runs while it is borrowed.
    pub fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Services the queue and makes the upcalls that are due; says whether there was one.
    pub fn poll(&mut self) -> Result<bool, ChannelEnded> {
        let outcome = self.queue.service();
        let almost_full = self.queue.is_almost_full();
        let queue = &mut self.queue;
        let mut called = false;
        if almost_full
            && !self.was_almost_full
            && let Some(upcall) = &mut self.almost_full
        {
            called = self.gate.run(|| upcall(queue));
            // Not told while disabled: then it is still to be told.
            self.was_almost_full = called;
        } else {
            self.was_almost_full &= almost_full;
        }
        if !queue.is_empty()
            && let Some(upcall) = &mut self.non_empty
        {
            called |= self.gate.run(|| upcall(queue));
        }
        outcome.map(|()| called)
    }

    /// Runs `section` with upcalls disabled, then delivers what came in between.
    pub fn critical<R>(&mut self, section: impl FnOnce(&mut Self) -> R) -> Result<R, ChannelEnded> {
        let disabled = self.gate.disable();
        let result = section(self);
        drop(disabled);
        self.poll().map(|_| result)
    }
}

impl<Q: ReceiveQueue + Send + 'static> Upcalls<Q> {
    /// Gives the queue to a thread of its own, where all upcalls run from now on.
    pub fn spawn(mut self) -> std::io::Result<UpcallThread<Q>> {
        let gate = self.gate();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("comb-upcalls".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                match self.poll() {
                    Ok(true) => {}
                    // There is something, and nobody may be told now.
                    Ok(false) if !self.queue.is_empty() => std::thread::sleep(NAP),
                    Ok(false) => self.queue.wait(STOP_LOOK),
                    Err(ended) => {
                        if let Some(upcall) = &mut self.ended {
                            upcall(&mut self.queue, ended);
                        }
                    }
                }
            }
            self
        })?;
        Ok(UpcallThread { gate, stop, thread: Some(thread) })
    }
}

/// A thread that owns a receive queue and makes its upcalls. Dropping it stops the thread.
#[derive(Debug)]
pub struct UpcallThread<Q> {
    gate: Gate,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Upcalls<Q>>>,
}

impl<Q> UpcallThread<Q> {
    /// Disables and enables the upcalls of this thread.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Stops the thread and takes the queue back.
    ///
    /// # Panics
    /// If an upcall panicked.
    pub fn stop(mut self) -> Upcalls<Q> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("taken only here and at the end");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<Q> Drop for UpcallThread<Q> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
