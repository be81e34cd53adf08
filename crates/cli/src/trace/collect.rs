//! `comb trace collect`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;
use comb_host::federation::Book;
use comb_host::signals;
use comb_host::state_directory::StateDirectory;
use comb_trace::collect::{Collector, Limits, OpenFolderError, Refusal, ServeError, ServeEvent};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;

use super::collecting::{DEFAULT_PORT, Line, Teller, counted};
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::{region, table, token};

const EXAMPLES: &str = "\
Agents come from hosts of this comb (comb token, comb join), and each proves that it does; no cells need to run. A recording is a file. Each can
be read while it grows, and goes on in the same file if the collector was ended, or killed, and is there again.

Examples:
  comb trace collect week                            on host alpha, until Ctrl-C
  comb trace agent alpha                             on each host that is to be recorded, as root
  comb trace report week --by machine                what all of them did";

/// Connections at the same time whose ends have not proved yet who they are; and of known hosts beyond the agents that there may be, which are told
/// so.
const MOST_STRANGERS: usize = 64;

/// When there are no descriptors for another connection.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Collect {
    /// Where recordings go; made if need be
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where to listen for agents: ADDRESS, or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = listen, default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)))]
    listen: SocketAddr,
    /// How many agents there may be at the same time
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().most_agents as u32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    most_agents: u32,
    /// What all recordings in the directory may take [default: what the disk has]
    #[arg(long, value_name = "BYTES", value_parser = region::bytes)]
    most_bytes: Option<u64>,
    /// What may come from one host while this runs [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = region::bytes)]
    most_host_bytes: Option<u64>,
    /// Say nothing but what goes wrong
    #[arg(short, long)]
    quiet: bool,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    token::address(text, DEFAULT_PORT)
}

/// What all connections have in common.
struct Desk {
    files: StateDirectory,
    collector: Collector,
    most_agents: usize,
    teller: Teller,
    strangers: AtomicUsize,
    tally: Mutex<Tally>,
}

/// For the last line.
#[derive(Default)]
struct Tally {
    hosts: BTreeSet<String>,
    recordings: BTreeSet<PathBuf>,
    whole: BTreeSet<PathBuf>,
}

impl Collect {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let files = StateDirectory::from_environment();
        Book::open(&files).map_err(Failure::new)?;
        let limits = Limits {
            most_agents: self.most_agents as usize,
            most_bytes: self.most_bytes.unwrap_or(u64::MAX),
            most_peer_bytes: self.most_host_bytes.unwrap_or(u64::MAX),
            ..Limits::default()
        };
        let collector = Collector::new(&self.directory, limits).map_err(|error| match error {
            OpenFolderError::InUse(_) => Failure::from(error).into_kind(Kind::Refused),
            OpenFolderError::Io { .. } => Failure::from(error),
        })?;
        let listener = TcpListener::bind(self.listen).map_err(|error| self.cannot_listen(&error))?;
        let address = listener.local_addr()?;
        let told = signals::catch()?;
        let teller = Teller { output, is_quiet: self.quiet };
        let place = self.directory.display();
        let object = json!({ "event": "listening", "address": address, "directory": self.directory });
        teller.tell(&object, format!("listening on {address} for agents, into {place}"));
        let desk = Desk {
            files,
            collector,
            most_agents: limits.most_agents,
            teller,
            strangers: AtomicUsize::new(0),
            tally: Mutex::default(),
        };
        desk.serve_all(&listener, told)?;
        desk.sum_up(&self.directory);
        Ok(ExitCode::SUCCESS)
    }

    fn cannot_listen(&self, error: &std::io::Error) -> Failure {
        let what = if error.kind() == std::io::ErrorKind::AddrInUse {
            "somebody else listens there; `--listen ADDRESS:PORT` says where else".to_owned()
        } else {
            error.to_string()
        };
        Failure::new(format!("cannot listen for agents on {}: {what}", self.listen))
    }
}

impl Desk {
    /// Until a signal comes, and then until all have been told.
    fn serve_all(&self, listener: &TcpListener, told: &OwnedFd) -> std::io::Result<()> {
        // Who has connected may be gone again before we look.
        listener.set_nonblocking(true)?;
        thread::scope(|scope| {
            loop {
                let mut ready = [PollFd::new(told, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
                // An interruption only makes it look early.
                let _ = poll(&mut ready, None);
                if signals::take().is_some() {
                    break self.collector.stop();
                }
                match listener.accept() {
                    Ok((socket, from)) => {
                        let is_crowded = self.strangers.load(Ordering::Relaxed) >= MOST_STRANGERS
                            || self.collector.agents() >= self.most_agents + MOST_STRANGERS;
                        if is_crowded {
                            continue;
                        }
                        self.strangers.fetch_add(1, Ordering::Relaxed);
                        let serve = move || self.serve(socket, from);
                        if thread::Builder::new().spawn_scoped(scope, serve).is_err() {
                            self.strangers.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        });
        Ok(())
    }

    fn serve(&self, socket: TcpStream, from: SocketAddr) {
        let session = Book::open(&self.files).and_then(|book| book.accept(socket));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        let line = session.and_then(|session| {
            let host = session.peer().to_owned();
            Ok((host, Line::over(session).map_err(|error| error.to_string())?))
        });
        match line {
            Ok((host, line)) => self.collect(line, &host, from),
            Err(why) => {
                let object = json!({ "event": "refused", "address": from, "why": why });
                self.teller.trouble(&object, format!("refused {from}: {why}"));
            }
        }
    }

    fn collect(&self, line: Line, host: &str, from: SocketAddr) {
        let served = self.collector.serve(line, host, |event| self.happened(host, from, event));
        let error = match served {
            Ok(served) => {
                let object = json!({ "event": "left", "host": host, "bytes": served.bytes });
                let bytes = table::bytes(served.bytes);
                return self.teller.tell(&object, format!("{host} has left, {bytes} came"));
            }
            Err(error) => error,
        };
        match &error {
            ServeError::Refused { refusal: Refusal::Stopping, .. } => {}
            ServeError::Stream { error, .. } => {
                let object = json!({ "event": "left", "host": host, "why": error.to_string() });
                self.teller.trouble(&object, format!("{host} is gone: {error}"));
            }
            ServeError::Peer { .. } | ServeError::Refused { .. } | ServeError::Disk { .. } => {
                let why = match &error {
                    ServeError::Peer { fault, .. } => fault.to_string(),
                    ServeError::Refused { refusal, .. } => refusal.to_string(),
                    error => error.to_string(),
                };
                let object = json!({ "event": "refused", "host": host, "address": from, "why": why });
                self.teller.trouble(&object, format!("refused {host}: {why}"));
            }
        }
    }

    fn happened(&self, host: &str, from: SocketAddr, event: ServeEvent<'_>) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ServeEvent::Connected { machine } => {
                tally.hosts.insert(host.to_owned());
                let object =
                    json!({ "event": "connected", "host": host, "machine": machine, "address": from });
                // A machine is called as its agent says: nothing that a terminal would act upon.
                let machine = machine.escape_debug();
                self.teller.tell(&object, format!("{host} has connected, machine {machine} at {from}"));
            }
            ServeEvent::Opened(path) => {
                tally.recordings.insert(path.to_owned());
                let object = json!({ "event": "recording", "host": host, "recording": path });
                self.teller.tell(&object, format!("{host} sends {}", path.display()));
            }
            ServeEvent::Delivered(path) => {
                tally.whole.insert(path.to_owned());
                let bytes = length(path);
                let object = json!({ "event": "delivered", "host": host, "recording": path, "bytes": bytes });
                let bytes = table::bytes(bytes);
                self.teller.tell(&object, format!("{host} has delivered {}, {bytes}", path.display()));
            }
        }
    }

    fn sum_up(&self, directory: &Path) {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: u64 = tally.recordings.iter().map(|path| length(path)).sum();
        let [hosts, recordings, whole] =
            [tally.hosts.len(), tally.recordings.len(), tally.whole.len()].map(|count| count as u64);
        let object = json!({
            "event": "ended", "directory": directory, "hosts": hosts, "recordings": recordings, "whole": whole, "bytes": bytes,
        });
        let (place, bytes) = (directory.display(), table::bytes(bytes));
        let text = format!(
            "{} of {} in {bytes}, {whole} of them to the end: {place} (comb trace report {place})",
            counted(recordings, "recording"),
            counted(hosts, "host")
        );
        self.teller.tell(&object, text);
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}
