//! The process that acts for a cell: one thread, one loop, asleep unless somebody has something to say.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_net::agent::protocol::{self, ProtocolError};
use comb_net::{
    Agent, Cause, ChannelEnded, ChannelKey, ConnectError, Endpoint, EndpointOptions, PostError, RequestError,
};
use comb_region::named::home::{Home, HomeError, HomeOptions};
use comb_region::named::{Keeper, RemoteKeeper};
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::clock::{monotonic_ns, span};
use crate::heartbeat::{BEAT_BYTES, PING, PONG, Pulse};
use crate::journal;
use crate::notice::Notices;
use crate::supervision::{Order, Report, WIRE, cell_of_address, process_name};

/// How often a cell asks its peers whether they are there.
const BEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Peers asked at one beat, in turn: the cost of a cell does not grow with the number of cells.
const PEERS_A_BEAT: usize = 4;
/// Beats between two signs of life to the agent, once the first have been given one by one: whoever starts cells looks
/// at them at once.
const BEATS_BETWEEN_REPORTS: u64 = 5;
/// An agent that does not read for so long is stopped, and what it misses is the least of its troubles.
const MOST_UNSENT: usize = 1024;
/// An agent that is restarted is back within a second or two. Cells without an agent belong to nobody and end.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);
/// The agent may still hold the name of the life before, until it has seen its end.
const NAME_LIMIT: Duration = Duration::from_secs(2);

/// What a cell is told when it is started.
#[derive(Clone, Debug)]
pub struct CellOptions {
    /// Its number.
    pub number: u32,
    /// Which life of that number it is.
    pub incarnation: u64,
    /// Where the agent brokers channels.
    pub agent_socket: PathBuf,
    /// Where the agent hears its cells.
    pub cells_socket: PathBuf,
    /// The cgroup that it is to move into, if there is one.
    pub cgroup: Option<PathBuf>,
}

/// Why a cell could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The agent is not there, or does not want us.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Its regions have no home.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The agent refused the endpoint.
    #[error("the agent refused the endpoint {WIRE}: {0}")]
    Endpoint(#[from] RequestError),
    /// The system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: Errno,
    },
}

/// Runs a cell until its agent ends it, or is away for too long. To be called first thing in a process of its own.
pub fn run(options: CellOptions) -> Result<(), SupervisorError> {
    // Else the kernel sends a cell that is stopped, by a debugger say, SIGHUP when its agent dies: its process group is
    // an orphan then.
    let _ = rustix::process::setsid();
    if let Some(cgroup) = &options.cgroup
        && let Err(error) = std::fs::write(cgroup.join("cgroup.procs"), "0")
    {
        // Where making a cgroup is allowed, moving may not be. The agent kills by process as well.
        let who = format!("cell {}", options.number);
        journal::write(&who, format_args!("goes on outside its cgroup {}: {error}", cgroup.display()));
    }
    let mut supervisor = Supervisor::start(options)?;
    supervisor.run()
}

#[derive(Debug)]
struct Peer {
    cell: u32,
    address: String,
}

/// The connection to the agent, or since when there is none.
#[derive(Debug)]
enum Superior {
    Here(OwnedFd),
    Away { since: Instant, round_trips: u64 },
}

#[derive(Debug)]
struct Supervisor {
    options: CellOptions,
    who: String,
    endpoint: Endpoint,
    superior: Superior,
    /// Reports that its queue had no room for.
    unsent: Vec<Report>,
    peers: BTreeMap<ChannelKey, Peer>,
    /// Cells that the agent says can be opened to.
    present: BTreeSet<u32>,
    notices: Notices,
    pulse: Pulse,
    beats: u64,
    /// Whose turn to be asked it is.
    turn: usize,
    /// Named regions live here as long as the cell does.
    _home: Home,
}

impl Supervisor {
    fn start(options: CellOptions) -> Result<Self, SupervisorError> {
        let name = process_name(options.number);
        let title = std::ffi::CString::new(format!("comb-{name}")).expect("no zero in it");
        let _ = rustix::thread::set_name(&title);
        let agent = connect(&options, &name)?;
        let endpoint_options = EndpointOptions { channels: 256, events: true, ..EndpointOptions::default() };
        let endpoint = agent.endpoint_with(WIRE, endpoint_options)?;
        let runtime = options.agent_socket.parent().unwrap_or(Path::new("/")).to_owned();
        let (cell, incarnation) = (options.number, options.incarnation);
        let keeper = Some(Arc::new(RemoteKeeper::new(&runtime, cell, incarnation)) as Arc<dyn Keeper>);
        let of = HomeOptions { cell, incarnation, runtime, keeper };
        let home = Home::begin(&agent, of)?;
        let mut supervisor = Self {
            who: format!("cell {}", options.number),
            options,
            endpoint,
            superior: Superior::Away { since: Instant::now(), round_trips: 0 },
            unsent: Vec::new(),
            peers: BTreeMap::new(),
            present: BTreeSet::new(),
            notices: Notices::default(),
            pulse: Pulse::default(),
            beats: 0,
            turn: 0,
            _home: home,
        };
        supervisor.find_superior();
        Ok(supervisor)
    }

    fn say(&self, what: impl std::fmt::Display) {
        journal::write(&self.who, what);
    }

    fn run(&mut self) -> Result<(), SupervisorError> {
        let mut next_beat = Instant::now() + BEAT_INTERVAL;
        loop {
            self.hear_peers();
            if self.hear_superior() {
                self.say("ends, as its agent says");
                return Ok(());
            }
            for notice in self.notices.take_due(monotonic_ns()) {
                self.say(notice);
            }
            if Instant::now() >= next_beat {
                next_beat = Instant::now() + BEAT_INTERVAL;
                self.beat();
            }
            if let Superior::Away { since, .. } = self.superior
                && since.elapsed() > ORPHAN_LIMIT
            {
                self.say(format_args!("ends: its agent has been away for {} s", ORPHAN_LIMIT.as_secs()));
                return Ok(());
            }
            self.sleep(next_beat)?;
        }
    }

    /// Until somebody has something to say, or it is time for something.
    fn sleep(&mut self, next_beat: Instant) -> Result<(), SupervisorError> {
        let mut limit = next_beat.saturating_duration_since(Instant::now());
        if let Some(due) = self.notices.next_due_ns() {
            limit = limit.min(Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        }
        if self.endpoint.arm() {
            let events = self.endpoint.event_descriptor().expect("made with events");
            let mut waiting = vec![PollFd::new(&events, PollFlags::IN)];
            if let Superior::Here(socket) = &self.superior {
                waiting.push(PollFd::new(socket, PollFlags::IN));
            }
            let limit = limit.try_into().expect("at most one beat");
            match rustix::event::poll(&mut waiting, Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(source) => return Err(SupervisorError::System { doing: "cannot wait", source }),
            }
            // Edge-triggered events stay in the set until they are taken.
            let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 64];
            let none = rustix::time::Timespec::default();
            let _ = epoll::wait(events, &mut space, Some(&none));
        }
        self.endpoint.disarm();
        Ok(())
    }

    // ── peers ──

    fn hear_peers(&mut self) {
        loop {
            let mut came = Vec::new();
            let outcome = self.endpoint.poll(|delivery| {
                let mut beat = [0; BEAT_BYTES];
                let whole = delivery.payload.len() == BEAT_BYTES;
                if whole {
                    delivery.payload.copy_to(&mut beat);
                }
                came.push((delivery.channel, delivery.kind, whole.then_some(beat)));
            });
            let now_ns = monotonic_ns();
            self.meet_newcomers();
            for (channel, kind, beat) in came {
                self.hear(channel, kind, beat, now_ns);
            }
            match outcome {
                Ok(0) => return,
                Ok(_) => {}
                Err(ended) => self.channel_ended(&ended, now_ns),
            }
        }
    }

    fn hear(&mut self, channel: ChannelKey, kind: u8, beat: Option<[u8; BEAT_BYTES]>, now_ns: u64) {
        let good = match (kind, beat) {
            (PING, Some(beat)) => {
                self.post(channel, PONG, &beat);
                true
            }
            (PONG, Some(beat)) => self.pulse.pong(&beat, now_ns),
            _ => false,
        };
        if !good && let Some(peer) = self.peers.remove(&channel) {
            self.endpoint.close(channel);
            let cause = Cause::Left("it sent what is no heartbeat, and was cut off".to_owned());
            self.report_end(peer, &cause, now_ns);
        }
    }

    fn post(&mut self, channel: ChannelKey, kind: u8, message: &[u8]) {
        // A peer that does not read misses a heartbeat; nothing else is lost.
        if let Err(PostError::Ended(ended)) = self.endpoint.send(channel, kind, message) {
            self.channel_ended(&ended, monotonic_ns());
        }
    }

    /// Channels that others opened to us since we looked.
    fn meet_newcomers(&mut self) {
        let unknown: Vec<ChannelKey> =
            self.endpoint.channels().filter(|key| !self.peers.contains_key(key)).collect();
        for key in unknown {
            let _ = self.endpoint.accept(Duration::ZERO);
            let address = self.endpoint.peer(key).unwrap_or_default().to_owned();
            match cell_of_address(&address) {
                Some(cell) => self.linked(key, cell, address),
                None => {
                    self.say(format_args!("closed a channel that {address} opened: it is no cell"));
                    self.endpoint.close(key);
                }
            }
        }
    }

    fn linked(&mut self, key: ChannelKey, cell: u32, address: String) {
        self.notices.channel_opened(cell);
        self.peers.insert(key, Peer { cell, address });
        self.report(Report::Linked { peer: cell });
    }

    fn open_to_lower(&mut self) {
        let mine = self.options.number;
        let missing: Vec<u32> = self
            .present
            .range(..mine)
            .copied()
            .filter(|&cell| self.peers.values().all(|peer| peer.cell != cell))
            .collect();
        for cell in missing {
            let address = format!("{}/{WIRE}", process_name(cell));
            // Refused or no agent: tried again at the next beat.
            if let Ok(key) = self.endpoint.open(&address) {
                self.linked(key, cell, address);
            }
        }
    }

    fn channel_ended(&mut self, ended: &ChannelEnded, now_ns: u64) {
        if let Some(peer) = self.peers.remove(&ended.channel) {
            self.report_end(peer, &ended.cause, now_ns);
        }
    }

    fn report_end(&mut self, peer: Peer, cause: &Cause, at_ns: u64) {
        self.report(Report::Noticed { peer: peer.cell, at_ns, cause: cause.to_string() });
        self.notices.channel_ended(peer.cell, at_ns, peer.address, cause);
    }

    fn beat(&mut self) {
        self.beats += 1;
        let keys: Vec<ChannelKey> = self.peers.keys().copied().collect();
        for step in 0..keys.len().min(PEERS_A_BEAT) {
            let beat = self.pulse.ping(monotonic_ns());
            self.post(keys[(self.turn + step) % keys.len()], PING, &beat);
        }
        self.turn = self.turn.wrapping_add(PEERS_A_BEAT);
        if matches!(self.superior, Superior::Away { .. }) {
            self.find_superior();
        } else if self.beats < BEATS_BETWEEN_REPORTS || self.beats.is_multiple_of(BEATS_BETWEEN_REPORTS) {
            self.send_unsent();
            if self.unsent.is_empty() {
                let Pulse { round_trips, last_round_trip_ns, .. } = self.pulse;
                self.report(Report::Alive { round_trips, last_round_trip_ns });
            }
        }
        self.open_to_lower();
    }

    // ── the agent ──

    /// Takes what the agent says. `true`: the cell is to end.
    fn hear_superior(&mut self) -> bool {
        loop {
            let Superior::Here(socket) = &self.superior else { return false };
            match protocol::receive::<Order>(socket) {
                Ok((Order::End, _)) => return true,
                Ok((Order::Ended { cell, killed_at_ns, .. }, _)) => {
                    self.notices.agent_said(monotonic_ns(), cell, killed_at_ns);
                }
                Ok((Order::Peers { cells }, _)) => {
                    self.present = cells.into_iter().collect();
                    self.open_to_lower();
                }
                Err(ProtocolError::System(Errno::AGAIN)) => return false,
                Err(_) => {
                    self.superior_left();
                    return false;
                }
            }
        }
    }

    /// Tells the agent, now or when it has read what it was told before: a queue takes a few hundred messages.
    fn report(&mut self, report: Report) {
        if matches!(self.superior, Superior::Here(_)) && self.unsent.len() < MOST_UNSENT {
            self.unsent.push(report);
            self.send_unsent();
        }
    }

    fn send_unsent(&mut self) {
        while let (Superior::Here(socket), Some(report)) = (&self.superior, self.unsent.first()) {
            match protocol::send(socket, report, &[]) {
                Ok(()) => drop(self.unsent.remove(0)),
                Err(ProtocolError::System(Errno::AGAIN)) => return,
                Err(_) => self.superior_left(),
            }
        }
    }

    fn superior_left(&mut self) {
        if matches!(self.superior, Superior::Here(_)) {
            // What was not said is in the next hello.
            self.unsent.clear();
            self.superior = Superior::Away { since: Instant::now(), round_trips: self.pulse.round_trips };
            self.say("its agent is away; channels go on without it");
        }
    }

    fn find_superior(&mut self) {
        let Ok(socket) = connect_cells_socket(&self.options) else { return };
        let hello = Report::Hello {
            cell: self.options.number,
            incarnation: self.options.incarnation,
            linked: self.peers.values().map(|peer| peer.cell).collect(),
        };
        if protocol::send(&socket, &hello, &[]).is_ok() {
            if let Superior::Away { since, round_trips } = self.superior
                && self.beats > 0
            {
                let away = span(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
                let beats = self.pulse.round_trips - round_trips;
                self.say(format_args!(
                    "its agent is back after {away}; {beats} heartbeats came back meanwhile"
                ));
            }
            self.superior = Superior::Here(socket);
        }
    }
}

fn connect(options: &CellOptions, name: &str) -> Result<Agent, ConnectError> {
    let started = Instant::now();
    loop {
        match Agent::connect(&options.agent_socket, name) {
            Err(ConnectError::Refused(_)) if started.elapsed() < NAME_LIMIT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

fn connect_cells_socket(options: &CellOptions) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(socket.as_fd(), &SocketAddrUnix::new(&options.cells_socket)?)?;
    Ok(socket)
}
