//! `comb trace agent`.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use comb_host::federation::Book;
use comb_host::signals;
use comb_host::state_directory::StateDirectory;
use comb_trace::collect::{AgentEvent, AgentLimits, Beginning, Farewell, run_agent};
use comb_trace::kernel::Kernel;
use comb_trace::privacy::Privacy;
use comb_trace::source::Source;
use comb_trace::trace_file::Head;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;

use super::collecting::{DEFAULT_PORT, Line, Teller, counted};
use super::record::{duration, not_from_kernel, recorded};
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::region;

const EXAMPLES: &str = "\
The collector's host and this one are of one comb (comb token, comb join): each proves to the other that it is. What is recorded is kept in memory
until it is on the collector's disk. Without a collector nothing is recorded: at first it is waited for; if it goes away, recording is suspended
when patience or the buffer is used up, and goes on when it is back. Reports say what is missing between.

Examples:
  comb trace agent alpha                          all processes, until Ctrl-C
  comb trace agent alpha:7999 -p 1234 --for 8h    a process and its children, to a collector with --listen …:7999

The exit status is 0 if all that was recorded is on the collector's disk, and 6 if no collector was found.";

/// How soon it is noticed that a process is gone.
const BETWEEN_LOOKS: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Agent {
    /// The host with the collector, as `comb host ls` shows it: HOST, or HOST:PORT
    #[arg(value_name = "COLLECTOR")]
    collector: Place,
    /// Record only this process, and its children
    #[arg(short, long, value_name = "PID")]
    process: Option<u32>,
    /// End after this time, such as 90s, 10m or 2h, also if there was no collector
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// Write names of files as hashes, by a key that is thrown away
    #[arg(long)]
    hash_names: bool,
    /// What is kept until it is on the collector's disk
    #[arg(long, value_name = "BYTES", value_parser = buffer, default_value = "64M")]
    buffer: u64,
    /// How long recording goes on without a collector
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    patience: Duration,
    /// Say nothing but what goes wrong
    #[arg(short, long)]
    quiet: bool,
}

/// A few blocks of events, of which each may be a megabyte.
const LEAST_BUFFER: u64 = 4 << 20;

fn buffer(text: &str) -> Result<u64, &'static str> {
    region::bytes(text).and_then(|bytes| if bytes < LEAST_BUFFER { Err("at least 4M") } else { Ok(bytes) })
}

/// Where a collector is.
#[derive(Clone, Debug)]
struct Place {
    host: String,
    port: u16,
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok().filter(|&port| port > 0));
        let port = port.filter(|_| !host.is_empty()).ok_or("say HOST or HOST:PORT")?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl Agent {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let files = StateDirectory::from_environment();
        let book = Book::open(&files).map_err(Failure::new)?;
        book.member(&self.collector.host).map_err(Failure::not_found)?;
        // Who cannot record need not wait for a collector.
        Kernel::attach(self.process.is_none()).map_err(|error| not_from_kernel(&error))?;
        if let Some(process) = self.process.filter(|&process| !is_there(process)) {
            return Err(Failure::not_found(format!("there is no process {process}")));
        }
        let limits = AgentLimits {
            buffer_bytes: usize::try_from(self.buffer).unwrap_or(usize::MAX),
            patience: self.patience,
            ..AgentLimits::default()
        };
        let stop = Arc::new(AtomicBool::new(false));
        self.stop_when_due(signals::catch()?, Arc::clone(&stop));
        let Place { host, port } = &self.collector;
        let connect = || {
            let session = Book::open(&files).and_then(|book| book.connect(host, Some(*port)));
            Line::over(session.map_err(io::Error::other)?)
        };
        let privacy = if self.hash_names { Privacy::hashed() } else { Privacy::none() };
        let mut story = Story::new(host, self.patience, Teller { output, is_quiet: self.quiet });
        let report = |event| story.happened(&event);
        let farewell = run_agent(connect, || self.begin(&stop), &privacy, limits, &stop, report)?;
        story.end(farewell)
    }

    fn begin(&self, stop: &AtomicBool) -> io::Result<Beginning> {
        let mut source = Kernel::attach(self.process.is_none()).map_err(io::Error::other)?;
        if let Some(process) = self.process {
            match source.follow(process) {
                // It ended while nothing was recorded.
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                    stop.store(true, Ordering::Relaxed);
                }
                followed => followed?,
            }
        }
        let head = Head { processes: recorded(self.process), ..Head::default() };
        Ok(Beginning { source: Box::new(source), head })
    }

    /// At a signal, when its time is over, or when nothing is left to record.
    fn stop_when_due(&self, told: &'static OwnedFd, stop: Arc<AtomicBool>) {
        let (began, limit, process) = (Instant::now(), self.limit, self.process);
        std::thread::spawn(move || {
            loop {
                let _ = poll(&mut [PollFd::new(told, PollFlags::IN)], Some(&BETWEEN_LOOKS));
                let is_over = limit.is_some_and(|limit| began.elapsed() >= limit)
                    || process.is_some_and(|process| !is_there(process));
                if is_over || signals::take().is_some() {
                    return stop.store(true, Ordering::Relaxed);
                }
            }
        });
    }
}

fn is_there(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// What has happened so far, and how it is told.
struct Story<'a> {
    host: &'a str,
    patience: Duration,
    teller: Teller,
    is_connected: bool,
    is_recording: bool,
    has_recorded: bool,
    /// Troubles that were told since there was a connection: what is tried again and again need not be said each time.
    told: BTreeSet<String>,
}

impl<'a> Story<'a> {
    fn new(host: &'a str, patience: Duration, teller: Teller) -> Self {
        Self {
            host,
            patience,
            teller,
            is_connected: false,
            is_recording: false,
            has_recorded: false,
            told: BTreeSet::new(),
        }
    }

    fn happened(&mut self, event: &AgentEvent) {
        let host = self.host;
        match event {
            AgentEvent::Connected => {
                self.is_connected = true;
                self.told.clear();
                self.tell("connected", format!("connected to {host}"));
            }
            AgentEvent::Recording => {
                let text = if self.has_recorded { "recording again" } else { "recording" };
                (self.has_recorded, self.is_recording) = (true, true);
                self.tell("recording", text.to_owned());
            }
            AgentEvent::Delivered => self.tell("delivered", format!("a recording is on {host}'s disk")),
            AgentEvent::Suspended(cause) => {
                self.is_recording = false;
                self.trouble("suspended", &cause.to_string(), &format!("recording is suspended: {cause}"));
            }
            AgentEvent::Refused(refusal) => {
                self.trouble("refused", &refusal.to_string(), &format!("{host} takes nothing: {refusal}"));
            }
            AgentEvent::Unreachable(error) => {
                self.trouble("unreachable", &error.to_string(), &format!("no collector: {error}"));
            }
            AgentEvent::Disconnected(fault) => {
                if std::mem::take(&mut self.is_connected) {
                    let why = fault.map_or_else(|| "it hung up".to_owned(), |fault| fault.to_string());
                    let mut text = format!("the collector on {host} is gone: {why}");
                    if self.is_recording {
                        text += &format!("; recording goes on for {:?} at most", self.patience);
                    }
                    self.trouble("disconnected", &why, &text);
                }
            }
        }
    }

    fn tell(&self, event: &str, text: String) {
        self.teller.tell(&json!({ "event": event, "host": self.host }), text);
    }

    fn trouble(&mut self, event: &str, why: &str, text: &str) {
        if self.told.insert(text.to_owned()) {
            self.teller.trouble(&json!({ "event": event, "host": self.host, "why": why }), text);
        }
    }

    fn end(self, farewell: Farewell) -> Outcome {
        let Self { host, has_recorded, teller, .. } = self;
        let Farewell { delivered, undelivered } = farewell;
        let object =
            json!({ "event": "ended", "host": host, "delivered": delivered, "undelivered": undelivered });
        teller.tell(&object, format!("{} on {host}'s disk, to the end", counted(delivered, "recording")));
        if undelivered > 0 {
            return Err(Failure::new(format!(
                "{} of what was recorded may not be on {host}'s disk",
                counted(undelivered, "event")
            )));
        }
        if !has_recorded {
            let text = format!("no collector on {host} took this agent: nothing was recorded");
            return Err(Failure::of(Kind::NoAnswer, text));
        }
        Ok(ExitCode::SUCCESS)
    }
}
