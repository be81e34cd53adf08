//! A task at work. Its components fail together.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Output;
use super::crew::{Event, Order, Stream, Watched};
use super::printer::Printer;
use super::process::How;
use super::remote::Parts;
use crate::report::Part;

/// What components get to tidy up when another one has failed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Who was killed and does not end by then is stuck in the kernel, or its host is.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// What `timeout` exits with.
const STATUS_OF_LATE: i32 = 124;

/// A task at work. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Running {
    control: Control,
    events: Option<Receiver<Event>>,
    output: Output,
    /// To whom it matters whether component 0 wants more input.
    reader: Option<Sender<bool>>,
    /// Who wants to know which processes the components are.
    begins: Option<Sender<(u32, u32)>>,
    /// How long it may take, and until when that is.
    limit: Option<(Duration, Instant)>,
    /// By rank: whether it has.
    ended: Vec<bool>,
}

/// By which other threads, or a signal's handler's, end a task.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None`: the task is over.
    crews: Mutex<Option<Crews>>,
    interrupted: Mutex<Option<Interrupted>>,
    /// For whoever waits to look at `interrupted`.
    news: SyncSender<Event>,
}

/// Where the components are.
#[derive(Debug)]
pub(super) enum Crews {
    Here(Watched),
    There(Parts),
}

#[derive(Clone, Copy, Debug)]
struct Interrupted {
    signal: i32,
    at: Instant,
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The component that failed first, with which the task ended.
    pub failed: Option<End>,
    /// When that was heard.
    pub failed_at: Option<Instant>,
    /// The signal by which the task was told to end.
    pub interrupted: Option<i32>,
    /// The [limit](super::Launch::limit) within which the task was not over; it was told to end.
    pub late: Option<Duration>,
    /// With [`Output::Collected`]: what each component wrote, by rank.
    pub printed: Vec<Printed>,
    /// With [`report`](super::Launch::report): what each component recorded, by rank. Nothing of one that did not come to its end, or says what
    /// is no part.
    pub parts: Vec<Option<Part>>,
}

/// What a component wrote.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Printed {
    /// To standard output.
    pub output: Vec<u8>,
    /// To standard error.
    pub error: Vec<u8>,
}

impl Printed {
    pub(super) fn of(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        }
    }
}

/// How a component ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Which.
    pub rank: u32,
    /// Its process, as its host numbers it.
    pub process: u32,
    /// How.
    pub how: How,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, process, how } = self;
        match how {
            How::Exited(status) => write!(f, "component {rank} (pid {process}) failed with status {status}"),
            How::Killed(signal) => {
                write!(f, "component {rank} (pid {process}) was killed by signal {signal}")?;
                let name = Signal::from_named_raw(*signal).and_then(name);
                name.map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            How::NotStarted(reason) => write!(f, "component {rank} could not be started: {reason}"),
            How::Lost(reason) => write!(f, "component {rank} is lost: {reason}"),
        }
    }
}

/// Those that end programs.
fn name(signal: Signal) -> Option<&'static str> {
    Some(match signal {
        Signal::KILL => "SIGKILL",
        Signal::TERM => "SIGTERM",
        Signal::INT => "SIGINT",
        Signal::HUP => "SIGHUP",
        Signal::SEGV => "SIGSEGV",
        Signal::BUS => "SIGBUS",
        Signal::ABORT => "SIGABRT",
        Signal::FPE => "SIGFPE",
        Signal::ILL => "SIGILL",
        Signal::PIPE => "SIGPIPE",
        _ => return None,
    })
}

impl Outcome {
    /// The exit status that tells it, as shells have it: of the first component that failed, or 128 and the signal; 124, as `timeout` has it, of
    /// a task that was not over within its limit.
    pub fn status(&self) -> i32 {
        if self.late.is_some() {
            return STATUS_OF_LATE;
        }
        match (self.interrupted, &self.failed) {
            (_, None) => 0,
            (Some(signal), _) => 128 + signal,
            (None, Some(End { how, .. })) => match how {
                How::Exited(status) => *status,
                How::Killed(signal) => 128 + signal,
                // As shells say that a program could not be executed.
                How::NotStarted(_) => 126,
                How::Lost(_) => 1,
            },
        }
    }

    /// Whether all components ended by themselves, with status 0.
    pub fn is_success(&self) -> bool {
        self.failed.is_none() && self.late.is_none()
    }
}

impl Control {
    pub(super) fn order(&self, order: &Order) {
        match &*self.shared.crews.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Crews::Here(watched)) => watched.order(order.clone()),
            Some(Crews::There(parts)) => parts.order(order),
            None => {}
        }
    }

    /// Tells all components to end by a signal. A second time they are killed. What ends by it is not the task's failure but its
    /// [interruption](Outcome::interrupted).
    pub fn interrupt(&self, signal: i32) {
        let mut interrupted = self.shared.interrupted.lock().unwrap_or_else(PoisonError::into_inner);
        if interrupted.is_some() {
            return self.kill();
        }
        *interrupted = Some(Interrupted { signal, at: Instant::now() });
        drop(interrupted);
        self.order(&Order::Signal(signal));
        // Only a hint to look: one that finds no room finds somebody awake.
        let _ = self.shared.news.try_send(Event::Look);
    }

    /// Signals all components.
    pub fn signal(&self, signal: i32) {
        self.order(&Order::Signal(signal));
    }

    /// Kills all components.
    pub fn kill(&self) {
        self.signal(Signal::KILL.as_raw());
    }

    fn interruption(&self) -> Option<Interrupted> {
        *self.shared.interrupted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the end of a task has come.
enum Stage {
    /// Nobody has failed.
    Works,
    /// All were told to end, and have until then.
    Told(Instant),
    /// All were killed.
    Killed(Instant),
}

impl Running {
    pub(super) fn new(
        components: u32,
        crews: Crews,
        news: SyncSender<Event>,
        events: Receiver<Event>,
        output: Output,
    ) -> Self {
        let shared = Shared { crews: Mutex::new(Some(crews)), interrupted: Mutex::new(None), news };
        Self {
            control: Control { shared: Arc::new(shared) },
            events: Some(events),
            output,
            reader: None,
            begins: None,
            limit: None,
            ended: vec![false; components as usize],
        }
    }

    /// Component 0 is on another host, and is to read what this process would.
    pub(super) fn forward_input(&mut self) -> std::io::Result<()> {
        self.reader = Some(super::input::forward(self.control())?);
        Ok(())
    }

    /// It may take so long from now on.
    pub(super) fn limit(&mut self, limit: Duration) {
        // What lies too far ahead for a clock is never.
        self.limit = Instant::now().checked_add(limit).map(|until| (limit, until));
    }

    /// Rank and process of each component that begins go there, while this is waited for.
    pub fn tell_begins(&mut self, to: Sender<(u32, u32)>) {
        self.begins = Some(to);
    }

    /// For other threads, while this one waits.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits until all components have ended. When the first has failed, or the task has run into its limit, the others are told to end (SIGTERM),
    /// and killed two seconds later.
    pub fn wait(mut self) -> Outcome {
        let events = self.events.take().expect("taken once");
        let count = u32::try_from(self.ended.len()).expect("counted in 32 bits");
        let mut printer = Printer::new(self.output, count);
        let (mut stage, mut failed, mut failed_at, mut late) = (Stage::Works, None, None, None);
        let mut parts = vec![None; self.ended.len()];
        while self.ended.contains(&false) {
            match self.next(&events, &stage) {
                Ok(Event::Printed { rank, stream, bytes }) => printer.print(rank, stream, &bytes),
                Ok(Event::Began { rank, process }) => {
                    let _ = self.begins.as_ref().map(|begins| begins.send((rank, process)));
                }
                Ok(Event::Reported { rank, part }) => {
                    parts[rank as usize] = Part::decode(&part).ok().filter(|part| part.rank == rank);
                }
                // Its host was lost after it had ended.
                Ok(Event::Ended { rank, .. }) if self.ended[rank as usize] => {}
                Ok(Event::Ended { rank, process, how }) => {
                    self.ended[rank as usize] = true;
                    printer.end(rank);
                    if how != How::Exited(0) && failed.is_none() {
                        failed = Some(End { rank, process, how });
                    }
                }
                Ok(Event::Read { wants_more }) => {
                    let _ = self.reader.as_ref().map(|reader| reader.send(wants_more));
                }
                Ok(Event::Look) => {}
                Err(RecvTimeoutError::Timeout) if matches!(stage, Stage::Works) => {}
                // Past the limit; or nobody is there to tell of anything, which the next round finds.
                Err(_) => stage = self.insist(&stage, &mut failed),
            }
            failed_at = failed_at.or_else(|| failed.is_some().then(Instant::now));
            if matches!(stage, Stage::Works) {
                late = self.limit.filter(|&(_, until)| Instant::now() >= until).map(|(limit, _)| limit);
                stage = self.look(failed.is_some() || late.is_some());
            }
        }
        Outcome {
            failed,
            failed_at,
            late,
            interrupted: self.control.interruption().map(|interrupted| interrupted.signal),
            printed: printer.collected(),
            parts,
        }
    }

    fn next(&self, events: &Receiver<Event>, stage: &Stage) -> Result<Event, RecvTimeoutError> {
        match stage {
            Stage::Works if let Some((_, until)) = self.limit => {
                events.recv_timeout(until.saturating_duration_since(Instant::now()))
            }
            Stage::Works => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Stage::Told(limit) | Stage::Killed(limit) => {
                events.recv_timeout(limit.saturating_duration_since(Instant::now()))
            }
        }
    }

    /// Whether the task is to end, and by when.
    fn look(&self, is_to_end: bool) -> Stage {
        match self.control.interruption() {
            // By Ctrl-C a program may do something else than to end. Whoever wants more says so again.
            Some(Interrupted { signal, at }) if signal != Signal::INT.as_raw() => Stage::Told(at + END_LIMIT),
            _ if is_to_end => {
                self.control.signal(Signal::TERM.as_raw());
                Stage::Told(Instant::now() + END_LIMIT)
            }
            _ => Stage::Works,
        }
    }

    /// Who has not ended within the limit is killed; who does not even end then is given up.
    fn insist(&mut self, stage: &Stage, failed: &mut Option<End>) -> Stage {
        if let Stage::Killed(_) = stage {
            for (rank, ended) in (0..).zip(&mut self.ended).filter(|(_, ended)| !**ended) {
                *ended = true;
                let how = How::Lost("it was killed and did not end".to_owned());
                failed.get_or_insert(End { rank, process: 0, how });
            }
        }
        self.control.kill();
        Stage::Killed(Instant::now() + KILL_LIMIT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nobody takes events any more: who has one to give must not wait.
        self.events = None;
        let crews = self.control.shared.crews.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(crews);
    }
}
