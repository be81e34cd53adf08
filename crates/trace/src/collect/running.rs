//! The agent: a thread that records, and one that speaks to the collector.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comb_types::Dice;
use thiserror::Error;

use super::agent::{Agent, Event, Put};
use super::refusal::{PeerFault, Refusal};
use super::stream::{Outgoing, read};
use super::{AgentLimits, Stream};
use crate::machine;
use crate::privacy::Privacy;
use crate::recorder::{Output, RecordError, Recorder};
use crate::source::Source;
use crate::trace_file::{Frame, Head, Moment, Suspension, SuspensionCause, framed};

/// So long one read or write waits, and a thread that has nothing to do. It bounds how late it sees that the other one has something for it.
const PATIENCE: Duration = Duration::from_millis(50);

/// So much is read at once: all that comes is short.
const PIECE_BYTES: usize = 4096;

/// After so many messages that went out, it is looked whether something came.
const MESSAGES_BETWEEN_LOOKS: usize = 16;

/// What a recording begins with: who sees, already told whom to look at, and what is there when it begins.
pub struct Beginning {
    /// Who sees. It is dropped when recording is suspended, and detaches then.
    pub source: Box<dyn Source>,
    /// The command and the processes. The rest is filled in.
    pub head: Head,
}

/// What an agent may tell.
#[derive(Debug)]
pub enum AgentEvent {
    /// A collector took this agent.
    Connected,
    /// The connection is lost. Recording goes on for a while.
    Disconnected(Option<PeerFault>),
    /// No connection could be made. It is tried again.
    Unreachable(io::Error),
    /// A collector took nothing, or no more. It is tried again.
    Refused(Refusal),
    /// A recording began.
    Recording,
    /// Nothing is recorded until what was has been delivered.
    Suspended(SuspensionCause),
    /// A recording is on the collector's disk, from its head to its end.
    Delivered,
}

/// How it went, when the agent has been stopped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Farewell {
    /// Recordings that are on a collector's disk, to the end.
    pub delivered: u64,
    /// Events that were recorded, and may not be on a collector's disk.
    pub undelivered: u64,
}

/// Why an agent ended by itself.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Nothing can be seen here.
    #[error("nothing can be recorded: {0}")]
    Source(io::Error),
}

/// What the two threads share.
struct Shared {
    agent: Mutex<Agent>,
    /// The one has something for the other.
    changed: Condvar,
    began: Instant,
    is_over: AtomicBool,
    failures: Mutex<Vec<io::Error>>,
}

impl Shared {
    fn agent(&self) -> MutexGuard<'_, Agent> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until the other has something, or this long.
    fn wait(&self, agent: MutexGuard<'_, Agent>, most: Duration) {
        drop(self.changed.wait_timeout(agent, most).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Ends the other thread, also if this one panics: it is waited for.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

/// Takes a recorder's frames to the buffer.
struct Frames<'a> {
    shared: &'a Shared,
    recording: u64,
    bytes: u64,
}

impl Output for Frames<'_> {
    fn put(&mut self, frame: &[u8]) -> Result<(), RecordError> {
        if self.shared.agent().put(self.recording, frame) == Put::Refused {
            return Err(RecordError::Behind);
        }
        self.bytes += frame.len() as u64;
        self.shared.changed.notify_all();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Records on this machine and sends it to a collector, until `stop` is set. It waits for a collector before it begins to record, and
/// whenever recording had to be suspended.
///
/// `connect` is called by a thread of its own, again and again with a growing time between; it should give up after some seconds. `begin` is called
/// by the caller's thread when there is a collector: at first, and after each suspension. Its failure ends the agent.
pub fn run_agent<S: Stream>(
    connect: impl FnMut() -> io::Result<S> + Send,
    begin: impl FnMut() -> io::Result<Beginning>,
    privacy: &Privacy,
    limits: AgentLimits,
    stop: &AtomicBool,
    report: impl FnMut(AgentEvent),
) -> Result<Farewell, AgentError> {
    let random = RandomState::new();
    let dice = Dice::new(random.hash_one(1));
    let shared = Shared {
        agent: Mutex::new(Agent::new(&machine::names().0, limits, dice)),
        changed: Condvar::new(),
        began: Instant::now(),
        is_over: AtomicBool::new(false),
        failures: Mutex::default(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| speak(&shared, connect));
        let recording = Recording {
            shared: &shared,
            begin,
            report,
            privacy,
            random,
            recorder: None,
            number: 0,
            suspended: None,
            farewell: Farewell::default(),
        };
        let _over = Over(&shared);
        recording.run(limits, stop)
    })
}

/// The caller's thread.
struct Recording<'a, B, R> {
    shared: &'a Shared,
    begin: B,
    report: R,
    privacy: &'a Privacy,
    random: RandomState,
    recorder: Option<Recorder<Frames<'a>>>,
    /// Of the recording that is, or was the last.
    number: u64,
    suspended: Option<Suspension>,
    farewell: Farewell,
}

impl<B: FnMut() -> io::Result<Beginning>, R: FnMut(AgentEvent)> Recording<'_, B, R> {
    fn run(mut self, limits: AgentLimits, stop: &AtomicBool) -> Result<Farewell, AgentError> {
        let mut stopped: Option<Instant> = None;
        loop {
            if stopped.is_none() && stop.load(Ordering::Relaxed) {
                stopped = Some(Instant::now());
                self.shared.agent().stop();
                self.end();
            }
            self.shared.agent().tick(self.shared.now());
            self.follow()?;
            let is_done = self.shared.agent().is_done();
            if stopped.is_some_and(|stopped| is_done || stopped.elapsed() >= limits.farewell) {
                self.farewell.undelivered += self.shared.agent().undelivered();
                return Ok(self.farewell);
            }
            let sleep = match self.recorder.as_mut().map(Recorder::step) {
                None => PATIENCE,
                Some(Ok(sleep)) => sleep,
                Some(Err(_)) => {
                    self.end();
                    Duration::ZERO
                }
            };
            // Not woken by the other thread: events that wait in the kernel are fetched when it suits the recorder.
            std::thread::sleep(sleep);
        }
    }

    /// Does what the agent says.
    fn follow(&mut self) -> Result<(), AgentError> {
        let failures =
            std::mem::take(&mut *self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner));
        failures.into_iter().for_each(|error| (self.report)(AgentEvent::Unreachable(error)));
        loop {
            let event = self.shared.agent().poll_event();
            let told = match event {
                None => return Ok(()),
                Some(Event::Record) => {
                    self.record()?;
                    AgentEvent::Recording
                }
                Some(Event::Suspend(cause)) => {
                    self.suspend(cause);
                    self.end();
                    AgentEvent::Suspended(cause)
                }
                Some(Event::Abandon { undelivered }) => {
                    self.suspend(SuspensionCause::Refused);
                    let unwritten = self.recorder.take().map_or(0, |recorder| unwritten(&recorder));
                    let undelivered = undelivered + unwritten;
                    self.farewell.undelivered += undelivered;
                    self.suspended.as_mut().expect("just suspended").undelivered += undelivered;
                    AgentEvent::Suspended(SuspensionCause::Refused)
                }
                Some(Event::Connected) => AgentEvent::Connected,
                Some(Event::Disconnected(fault)) => AgentEvent::Disconnected(fault),
                Some(Event::Refused(refusal)) => AgentEvent::Refused(refusal),
                Some(Event::Delivered { .. }) => {
                    self.farewell.delivered += 1;
                    AgentEvent::Delivered
                }
            };
            (self.report)(told);
        }
    }

    fn record(&mut self) -> Result<(), AgentError> {
        let Beginning { source, mut head } = (self.begin)().map_err(AgentError::Source)?;
        head.suspension = self.suspended.take();
        let began_wall_ns = machine::now().wall_ns;
        self.number = self.random.hash_one((began_wall_ns, self.number));
        self.shared.agent().begin(self.shared.now(), self.number, began_wall_ns);
        let frames = Frames { shared: self.shared, recording: self.number, bytes: 0 };
        match Recorder::new(source, frames, self.privacy.clone(), head) {
            Ok(recorder) => self.recorder = Some(recorder),
            // Its head alone is more than may be sent, or the agent has given the recording up.
            Err(_) => self.shared.agent().disown(self.shared.now()),
        }
        Ok(())
    }

    /// From now on nothing is recorded, unless it already was not.
    fn suspend(&mut self, cause: SuspensionCause) {
        let from = machine::now();
        self.suspended.get_or_insert(Suspension { from, cause, after: self.number, undelivered: 0 });
    }

    /// Ends the recording in order. What there is no room for is counted as lost.
    fn end(&mut self) {
        let Some(mut recorder) = self.recorder.take() else { return };
        if recorder.end().is_err() {
            let counters = recorder.summary().counters;
            let lost = counters.lost + unwritten(&recorder);
            let moment = Moment {
                recorded: recorder.summary().written,
                lost,
                foreign: counters.foreign,
                ..machine::now()
            };
            self.shared.agent().put(self.number, &framed(&Frame::End(moment)));
        }
    }
}

fn unwritten(recorder: &Recorder<Frames<'_>>) -> u64 {
    let summary = recorder.summary();
    summary.counters.recorded.saturating_sub(summary.written)
}

/// The other thread.
fn speak<S: Stream>(shared: &Shared, mut connect: impl FnMut() -> io::Result<S>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let mut agent = shared.agent();
        let now = shared.now();
        if !agent.poll_connect(now) {
            let wait = agent.next_timeout().saturating_sub(now).min(PATIENCE);
            shared.wait(agent, wait.max(Duration::from_millis(1)));
            continue;
        }
        drop(agent);
        let stream = connect().and_then(|mut stream| stream.set_patience(PATIENCE).map(|()| stream));
        let ended = stream.and_then(|mut stream| {
            shared.agent().connected(shared.now());
            converse(shared, &mut stream)
        });
        if let Err(error) = ended {
            shared.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        }
        shared.agent().disconnected(shared.now());
    }
}

/// Speaks to a collector for as long as that has a use.
fn converse(shared: &Shared, stream: &mut impl Stream) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut looked = Instant::now();
    loop {
        {
            let mut agent = shared.agent();
            agent.tick(shared.now());
            if !agent.is_linked() || agent.is_done() || shared.is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        let mut next = || shared.agent().poll_transmit(shared.now());
        let are_all_out = outgoing.write(stream, &mut next, MESSAGES_BETWEEN_LOOKS)?;
        // A look waits; while there is something to be said it is not worth a wait each time.
        if !are_all_out && looked.elapsed() < PATIENCE {
            continue;
        }
        looked = Instant::now();
        match read(stream, &mut piece)? {
            None => {}
            Some(0) => return Ok(()),
            Some(bytes) => shared.agent().received(shared.now(), &piece[..bytes]),
        }
    }
}
