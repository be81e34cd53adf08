//! Calls between cells. (Hive §6)
//!
//! A call is a request with a procedure's number. It is served in the receive path if it cannot block: the procedure answers at once. If it
//! finds that it would have to wait, it gives a *job* instead, which a pool of threads does; the answer is a message of its own then. So a
//! procedure may be tried where it is fast, and fall back. Every call has a limit, and whoever calls gets an answer or an error within it. Arguments that would
//! not be copied in a moment are left where they are, for whoever serves the call to read them carefully.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comb_memory::{Far, Published, Structure};
use comb_net::active::Request;
use comb_net::{Cause, ChannelKey};
use comb_types::CellId;
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::heartbeat::Pulse;
use crate::links::CALL;
use crate::shown::Others;
use crate::supervision::cell_of_address;

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
    /// Not sent.
    #[error("arguments of {0} bytes find no room")]
    TooLong(usize),
    /// Not sent: there is no channel, or no room on it.
    #[error("it cannot be reached")]
    Unreachable,
}

/// Arguments that are longer are not sent but shown, and read carefully by whoever serves the call. (Hive §6)
pub const LONGEST_SENT: usize = 1024;
/// Longer arguments are none.
pub const LONGEST_SHOWN: usize = 1 << 20;

/// Eight bytes of arguments that are shown.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Word([u8; 8]);

impl Structure for Word {
    const TAG: u32 = u32::from_le_bytes(*b"args");
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
    /// Its arguments, if they are shown.
    shown: Option<Far<Word>>,
}

/// What comes and goes with messages.
pub struct Desk {
    published: Arc<Published>,
    others: Others,
    procedures: BTreeMap<u16, Procedure>,
    pool: Pool,
    pub(crate) pulse: Pulse,
    heard: VecDeque<(ChannelKey, Vec<u8>)>,
    answered: Vec<(ChannelKey, u64)>,
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
    /// Shows long arguments there, and reads those of the others.
    pub fn new(published: Arc<Published>, others: Others) -> std::io::Result<Self> {
        Ok(Self {
            published,
            others,
            procedures: BTreeMap::new(),
            pool: Pool::new()?,
            pulse: Pulse::default(),
            heard: VecDeque::new(),
            answered: Vec::new(),
            guilty: Vec::new(),
            next_call: 0,
            open: BTreeMap::new(),
            answers: VecDeque::new(),
        })
    }

    /// From now on others can call it.
    pub fn offer(&mut self, number: u16, procedure: Procedure) {
        let before = self.procedures.insert(number, procedure);
        assert!(before.is_none(), "procedure {number} is there already");
    }

    /// Readable when a job is done.
    pub(crate) fn event(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pool.event)
    }

    // ── what others say ──

    pub(crate) fn hear_beat(&mut self, from: ChannelKey, arguments: &[u64]) {
        let now_ns = crate::clock::monotonic_ns();
        match self.pulse.pong(arguments, now_ns) {
            Some(asked_ns) => self.answered.push((from, asked_ns)),
            None => self.guilty.push((from, "it sent what is no heartbeat")),
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

    /// On which channels a heartbeat has come back, and when it was sent.
    pub(crate) fn answered(&mut self) -> Vec<(ChannelKey, u64)> {
        std::mem::take(&mut self.answered)
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
        let shown = match *request.arguments() {
            [_, offset, bytes] => Some(self.read_shown(&request, offset, bytes)),
            _ => None,
        };
        let served = match (self.procedures.get_mut(&number), shown) {
            (Some(procedure), None) => procedure(request.from(), request.payload()),
            (Some(procedure), Some(Ok(shown))) => procedure(request.from(), &shown),
            (Some(_), Some(Err(why))) => Served::Refused(why),
            (None, _) => Served::Refused(format!("there is no procedure {number}")),
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

    /// Arguments that the caller shows: as careful as with all that others show.
    fn read_shown(&self, request: &Request<'_>, offset: u64, bytes: u64) -> Result<Vec<u8>, String> {
        // One of another host has shown nothing that could be looked at here.
        let caller = cell_of_address(request.peer(), |_| None);
        let caller = caller.map(CellId).ok_or("only cells of this host show arguments")?;
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= LONGEST_SHOWN);
        let bytes = bytes.ok_or("its arguments are longer than any")?;
        let far = Far::<Word>::alleged(caller, offset);
        let words = self.others.read(caller, |c| c.array(far, bytes.div_ceil(8)));
        let words = words.ok_or_else(|| format!("nothing of {caller} is seen here"))?;
        let mut shown: Vec<u8> =
            words.map_err(|error| error.to_string())?.iter().flat_map(|word| word.0).collect();
        if shown.len() < bytes {
            return Err("its arguments are shorter than it says".to_owned());
        }
        shown.truncate(bytes);
        Ok(shown)
    }

    /// Answers that jobs have made, with the words that go before them.
    pub(crate) fn completed(&mut self) -> Vec<(ChannelKey, u64, Vec<u8>)> {
        self.pool.done()
    }

    // ── calls of ours ──

    /// A call is open from now on: its number, and the words that go before it. Behind three of them nothing follows.
    pub(crate) fn begin(
        &mut self,
        to: ChannelKey,
        procedure: u16,
        arguments: &[u8],
        limit: Duration,
    ) -> Result<(u32, Vec<u64>), CallError> {
        let shown = if arguments.len() > LONGEST_SENT { Some(self.show(arguments)?) } else { None };
        self.next_call = self.next_call.wrapping_add(1);
        let call = self.next_call;
        self.open.insert(call, Open { to, since: Instant::now(), limit, shown });
        let mut words = vec![u64::from(call) << 32 | u64::from(procedure)];
        if let Some(shown) = shown {
            words.extend([shown.offset(), arguments.len() as u64]);
        }
        Ok((call, words))
    }

    fn show(&self, arguments: &[u8]) -> Result<Far<Word>, CallError> {
        if arguments.len() > LONGEST_SHOWN {
            return Err(CallError::TooLong(arguments.len()));
        }
        let words: Vec<Word> = arguments
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                Word(word)
            })
            .collect();
        self.published.allocate_array(&words).map_err(|_| CallError::TooLong(arguments.len()))
    }

    /// A call is over.
    fn close(&mut self, open: &Open) {
        if let Some(shown) = open.shown {
            self.published.free(shown);
        }
    }

    /// It could not be sent.
    pub(crate) fn unsent(&mut self, call: u32) {
        if let Some(open) = self.open.remove(&call) {
            self.close(&open);
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
        if let Some(open) = self.open.remove(&call) {
            self.close(&open);
        }
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
        late.iter().for_each(|(_, open)| self.close(open));
        self.answers.extend(late.into_iter().map(|(call, open)| (call, Err(CallError::Late(open.limit)))));
        to
    }

    /// When [`Desk::expire`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.open.values().map(|open| open.since + open.limit).min()
    }

    /// A channel has ended.
    pub(crate) fn forget(&mut self, channel: ChannelKey, cause: &Cause) {
        let lost: Vec<(u32, Open)> = self.open.extract_if(.., |_, open| open.to == channel).collect();
        lost.iter().for_each(|(_, open)| self.close(open));
        let lost = lost.into_iter();
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
            let (jobs, result, event) =
                (Arc::clone(&self.jobs), self.result.clone(), Arc::clone(&self.event));
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
