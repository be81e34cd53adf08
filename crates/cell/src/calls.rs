//! Calls between cells. (Hive §6)
//!
//! A call is a request with a procedure's number. It is served in the receive path if it cannot block: the procedure answers at once. If it
//! finds that it would have to wait, it gives a *job* instead, which a pool of threads does; the answer is a message of its own then. So a
//! procedure may be tried where it is fast, and fall back. Every call has a limit, and whoever calls gets an answer or an error within it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_net::ChannelKey;
use comb_net::Cause;
use comb_net::active::Request;
use rustix::event::{EventfdFlags, eventfd};

use crate::heartbeat::Pulse;
use crate::links::CALL;

/// Threads that do what would hold up the receive path.
const WORKERS: usize = 2;
/// Jobs that wait. More calls than that are refused.
const MOST_JOBS: usize = 1024;
/// Messages about containment that have not been taken in yet: the loop takes them at once.
const MOST_HEARD: usize = 4096;

/// What a procedure makes of a call.
pub enum Served {
    /// The answer.
    Done(Vec<u8>),
    /// It would have to wait.
    Later(Job),
    /// Why not.
    Refused(String),
}

impl Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done(answer) => write!(f, "Done({} bytes)", answer.len()),
            Self::Later(_) => write!(f, "Later"),
            Self::Refused(why) => write!(f, "Refused({why})"),
        }
    }
}

/// What a thread of the pool does for a call.
pub type Job = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// Serves one procedure. Who calls is by its channel.
pub type Procedure = Box<dyn FnMut(ChannelKey, &[u8]) -> Served + Send>;

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// It did not answer in time. What it does of it is not known.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// Its channel ended.
    #[error("it is gone: {0}")]
    Gone(String),
    /// It said why not. Nothing was done.
    #[error("{0}")]
    Refused(String),
    /// Not sent: there is no channel, or no room on it.
    #[error("it cannot be reached")]
    Unreachable,
}

/// An answer's first byte.
const DONE: u8 = 0;
const REFUSED: u8 = 1;

/// The number of a call, in the upper half of its word; whether an answer is to come later in the lower.
const LATER: u64 = 1;

/// A call of ours.
#[derive(Debug)]
struct Open {
    to: ChannelKey,
    since: Instant,
    limit: Duration,
}

/// What comes and goes with messages.
pub(crate) struct Desk {
    procedures: BTreeMap<u16, Procedure>,
    pool: Pool,
    pub(crate) pulse: Pulse,
    heard: VecDeque<(ChannelKey, Vec<u8>)>,
    guilty: Vec<(ChannelKey, &'static str)>,
    next_call: u32,
    open: BTreeMap<u32, Open>,
    answers: VecDeque<(u32, Result<Vec<u8>, CallError>)>,
}

impl Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Desk {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            procedures: BTreeMap::new(),
            pool: Pool::new()?,
            pulse: Pulse::default(),
            heard: VecDeque::new(),
            guilty: Vec::new(),
            next_call: 0,
            open: BTreeMap::new(),
            answers: VecDeque::new(),
        })
    }

    /// From now on others can call it.
    pub(crate) fn offer(&mut self, number: u16, procedure: Procedure) {
        let before = self.procedures.insert(number, procedure);
        assert!(before.is_none(), "procedure {number} is there already");
    }

    /// Readable when a job is done.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.pool.event.as_fd()
    }

    // ── what others say ──

    pub(crate) fn hear_beat(&mut self, from: ChannelKey, arguments: &[u64]) {
        let now_ns = crate::clock::monotonic_ns();
        if !self.pulse.pong(arguments, now_ns) {
            self.guilty.push((from, "it sent what is no heartbeat"));
        }
    }

    pub(crate) fn hear(&mut self, from: ChannelKey, message: &[u8]) {
        if self.heard.len() < MOST_HEARD {
            self.heard.push_back((from, message.to_vec()));
        }
    }

    /// The next message about containment.
    pub(crate) fn next_heard(&mut self) -> Option<(ChannelKey, Vec<u8>)> {
        self.heard.pop_front()
    }

    /// Who has said what it may not.
    pub(crate) fn guilty(&mut self) -> Vec<(ChannelKey, &'static str)> {
        std::mem::take(&mut self.guilty)
    }

    pub(crate) fn serve(&mut self, request: Request<'_>) {
        let Some(&word) = request.arguments().first() else {
            self.guilty.push((request.from(), "it sent a call without a word"));
            return;
        };
        let number = u16::try_from(word & 0xffff).expect("sixteen bits");
        let call = word >> 32 << 32;
        let served = match self.procedures.get_mut(&number) {
            Some(procedure) => procedure(request.from(), request.payload()),
            None => Served::Refused(format!("there is no procedure {number}")),
        };
        let sent = match served {
            Served::Done(answer) if answer.is_empty() => request.reply(CALL, &[call], &[]),
            Served::Done(answer) => request.reply(CALL, &[call], &packed(DONE, &answer)),
            Served::Refused(why) => request.reply(CALL, &[call], &packed(REFUSED, why.as_bytes())),
            Served::Later(job) => {
                let word = [call | LATER];
                match self.pool.put(request.from(), call, job) {
                    Ok(()) => request.reply(CALL, &word, &[]),
                    Err(why) => request.reply(CALL, &[call], &packed(REFUSED, why.as_bytes())),
                }
            }
        };
        // An answer that can never be sent is one that the caller does not get: it has a limit.
        drop(sent);
    }

    /// Answers that jobs have made, with the words that go before them.
    pub(crate) fn completed(&mut self) -> Vec<(ChannelKey, u64, Vec<u8>)> {
        self.pool.done()
    }

    // ── calls of ours ──

    /// The word that goes before a call, which is open from now on.
    pub(crate) fn begin(&mut self, to: ChannelKey, procedure: u16, limit: Duration) -> (u32, u64) {
        self.next_call = self.next_call.wrapping_add(1);
        let call = self.next_call;
        self.open.insert(call, Open { to, since: Instant::now(), limit });
        (call, u64::from(call) << 32 | u64::from(procedure))
    }

    /// It could not be sent.
    pub(crate) fn unsent(&mut self, call: u32) {
        if self.open.remove(&call).is_some() {
            self.answers.push_back((call, Err(CallError::Unreachable)));
        }
    }

    pub(crate) fn hear_answer(&mut self, from: ChannelKey, arguments: &[u64], payload: &[u8]) {
        let Some(&word) = arguments.first() else {
            self.guilty.push((from, "it answered without a word"));
            return;
        };
        let call = u32::try_from(word >> 32).expect("the upper half");
        // A call that was given up, or another's: no harm.
        if self.open.get(&call).is_none_or(|open| open.to != from) || word & LATER == LATER {
            return;
        }
        self.open.remove(&call);
        let answer = match payload.split_first() {
            None => Ok(Vec::new()),
            Some((&DONE, answer)) => Ok(answer.to_vec()),
            Some((_, why)) => Err(CallError::Refused(String::from_utf8_lossy(why).into_owned())),
        };
        self.answers.push_back((call, answer));
    }

    /// The next call that is over.
    pub(crate) fn next_answer(&mut self) -> Option<(u32, Result<Vec<u8>, CallError>)> {
        self.answers.pop_front()
    }

    /// Calls that have waited long enough are over; whom they were to.
    pub(crate) fn expire(&mut self) -> Vec<ChannelKey> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let late: Vec<(u32, Open)> =
            self.open.extract_if(.., |_, open| open.since.elapsed() >= open.limit).collect();
        let to = late.iter().map(|(_, open)| open.to).collect();
        self.answers.extend(late.into_iter().map(|(call, open)| (call, Err(CallError::Late(open.limit)))));
        to
    }

    /// When [`Desk::expire`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.open.values().map(|open| open.since + open.limit).min()
    }

    /// A channel has ended.
    pub(crate) fn forget(&mut self, channel: ChannelKey, cause: &Cause) {
        let lost = self.open.extract_if(.., |_, open| open.to == channel);
        self.answers.extend(lost.map(|(call, _)| (call, Err(CallError::Gone(cause.to_string())))));
        self.heard.retain(|(from, _)| *from != channel);
    }
}

fn packed(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(1 + rest.len());
    packed.push(first);
    packed.extend_from_slice(rest);
    packed
}

/// Threads that wait in the place of the receive path. They are started when they are first needed.
struct Pool {
    jobs: Arc<(Mutex<VecDeque<Work>>, Condvar)>,
    workers: usize,
    results: mpsc::Receiver<(ChannelKey, u64, Vec<u8>)>,
    /// Each worker has a clone.
    result: mpsc::Sender<(ChannelKey, u64, Vec<u8>)>,
    event: Arc<OwnedFd>,
}

struct Work {
    channel: ChannelKey,
    call: u64,
    job: Job,
}

impl Pool {
    fn new() -> std::io::Result<Self> {
        let (result, results) = mpsc::channel();
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { jobs: Arc::default(), workers: 0, results, result, event })
    }

    fn put(&mut self, channel: ChannelKey, call: u64, job: Job) -> Result<(), String> {
        while self.workers < WORKERS {
            let (jobs, result, event) = (Arc::clone(&self.jobs), self.result.clone(), Arc::clone(&self.event));
            let works = move || work(&jobs, &result, &event);
            let spawned = std::thread::Builder::new().name("comb-calls".to_owned()).spawn(works);
            match spawned {
                Ok(_) => self.workers += 1,
                Err(error) if self.workers == 0 => return Err(format!("no thread for it: {error}")),
                Err(_) => break,
            }
        }
        let (queue, come) = &*self.jobs;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= MOST_JOBS {
            return Err(format!("{MOST_JOBS} calls wait already"));
        }
        queue.push_back(Work { channel, call, job });
        come.notify_one();
        Ok(())
    }

    fn done(&mut self) -> Vec<(ChannelKey, u64, Vec<u8>)> {
        let done: Vec<_> = self.results.try_iter().collect();
        if !done.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        done
    }
}

fn work(
    jobs: &(Mutex<VecDeque<Work>>, Condvar),
    result: &mpsc::Sender<(ChannelKey, u64, Vec<u8>)>,
    event: &OwnedFd,
) {
    let (queue, come) = jobs;
    loop {
        let mut waiting = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Work { channel, call, job } = loop {
            match waiting.pop_front() {
                Some(work) => break work,
                None => waiting = come.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(waiting);
        let answer = match job() {
            Ok(answer) => packed(DONE, &answer),
            Err(why) => packed(REFUSED, why.as_bytes()),
        };
        if result.send((channel, call, answer)).is_err() {
            return;
        }
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}
