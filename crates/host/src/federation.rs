//! The other hosts of this comb: who they are, the lines to their agents, and what these have said.
//!
//! ```text
//! comb token ─▶ agent of alpha                                agent of beta ◀─ comb join --token …
//!               keeps the secret's hash   ◀══ TLS, the key in the token is pinned ══ its door is open already
//!                                         ◀── Join: secret, name, cells ───
//!               numbers, the book of hosts ── Admitted: all hosts, their keys and cells ─▶ the same book
//!               tells all others
//!               ◀══════ one line between any two hosts: who belongs, how cells are, what is to be done ══════▶
//! ```
//!
//! Nothing of this is in the way of a message between cells, and nothing here waits: lines have threads, and what comes over them is
//! queued for the agent's loop. What is said by others is bounded and looked at; see [`words`].

pub mod access;
mod book;
mod comb;
mod door;
mod line;
pub mod members;
pub mod passage;
mod policy;
pub mod shell;
mod shown;
pub mod token;
pub mod words;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comb_net::agent::{Hosts, Server};
use comb_net::hosts::{HostKey, KnownHosts, PublicKey};
use rustix::event::EventfdFlags;

use crate::state_directory::StateDirectory;
use access::Access;
use door::{Door, Way};
use line::Line;
use members::{Key, Member, Roster, Saved};
use token::{Token, Tokens};
use words::{CellWord, Join, Word};

pub use book::Book;
pub(crate) use comb::Comb;
pub(crate) use door::Knock;
pub(crate) use line::How;
pub(crate) use policy::{Blocks, CombPolicy};
pub use shown::{HostCondition, HostStatus};

/// Where agents listen, if nothing else is said.
pub const DEFAULT_PORT: u16 = 7170;
/// Events that wait for the agent's loop. Lines wait when there are more.
const MOST_EVENTS: usize = 1024;
/// So many are taken in a turn of the loop, which has other work as well.
const MOST_EVENTS_A_TURN: usize = 64;
/// Numbers that were promised to one who comes in, and who did not come.
const PROMISE_LIMIT: Duration = Duration::from_secs(60);

/// What threads tell the agent's loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// There is a line.
    Opened { host: String, key: PublicKey, line: Line },
    /// A word has come.
    Heard { host: String, line: u64, word: Word },
    /// A line is no more.
    Closed { host: String, line: u64, how: How },
    /// A host could not be reached.
    Unreached { host: String, why: String },
    /// A host came that speaks otherwise.
    Unheard { why: String },
    /// A part of another host's task is to run here, or a machine comes from there.
    Shell {
        host: String,
        program: shell::Program,
        wanted: shell::Shell,
        answer: mpsc::Sender<Result<shell::Seat, String>>,
    },
    /// Somebody wants in.
    Knocks(Knock),
    /// What came of our own wish to be let in.
    Joined { connection: u64, outcome: Result<(String, String, Vec<Member>), String> },
}

/// What of a cell is told at once when it changes: number, life, whether it is up, runs and agrees with the others, and its channels.
pub(crate) type Glance = (u32, u64, bool, bool, bool, usize);

/// How threads speak to the agent's loop.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    events: SyncSender<Event>,
    wake: Arc<OwnedFd>,
}

impl Queue {
    fn tell(&self, event: Event) {
        // An agent that has ended hears nothing.
        let _ = self.events.send(event);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Federation {
    files: StateDirectory,
    pub(crate) access: Access,
    queue: Queue,
    events: Receiver<Event>,
    blocks: Blocks,
    /// None: no door is open, and this host is alone.
    pub(crate) comb: Option<Comb>,
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What people call this machine, as far as a host may be called so.
pub(crate) fn usual_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default().to_owned();
    if KnownHosts::is_name(&short) { short } else { "host".to_owned() }
}

/// An address of this machine by which others may reach it: the first that is not its loopback.
fn usual_address() -> Option<IpAddr> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let own = lines.windows(2).filter(|two| two[1].starts_with("/32 host LOCAL"));
    let own = own.filter_map(|two| two[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok());
    own.map(IpAddr::V4).find(|address| !address.is_loopback())
}

impl Federation {
    pub(crate) fn new(files: StateDirectory, access: Access, blocks: Blocks) -> std::io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, events) = mpsc::sync_channel(MOST_EVENTS);
        let queue = Queue { events: sender, wake: Arc::new(wake) };
        Ok(Self { files, access, queue, events, blocks, comb: None })
    }

    /// Readable when something has happened.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.queue.wake
    }

    /// What has happened. Some of it, if it is much; the rest the next time.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let _ = rustix::io::read(&*self.queue.wake, &mut [0; 8]);
        let events: Vec<Event> = self.events.try_iter().take(MOST_EVENTS_A_TURN).collect();
        if events.len() == MOST_EVENTS_A_TURN {
            let _ = rustix::io::write(&*self.queue.wake, &1_u64.to_ne_bytes());
        }
        events
    }

    /// Whether there are other hosts.
    pub(crate) fn has_others(&self) -> bool {
        self.comb.as_ref().is_some_and(|comb| comb.roster.others().next().is_some())
    }

    /// The host that has a cell, if it is another.
    pub(crate) fn host_of(&self, cell: u32) -> Option<&Member> {
        let roster = &self.comb.as_ref()?.roster;
        roster.host_of(cell).filter(|member| member.name != roster.own().name)
    }

    fn load_key(&self) -> Result<HostKey, String> {
        self.files.create()?;
        let file = self.files.key_file();
        if !file.exists() {
            HostKey::generate().save(&file).map_err(|error| error.to_string())?;
        }
        HostKey::load(&file).map_err(|error| error.to_string())
    }

    /// What was written down: that this host belongs to a comb with others.
    pub(crate) fn saved(&self) -> Result<Option<Saved>, String> {
        saved(&self.files)
    }

    /// Opens the door, if it is not open. `cells`: those of this host, if it is the first of a comb.
    pub(crate) fn open(
        &mut self,
        server: &mut Server,
        listen: Option<SocketAddr>,
        name: Option<&str>,
        address: Option<IpAddr>,
        (first, count): (u32, u32),
    ) -> Result<&mut Comb, String> {
        if self.comb.is_none() {
            let key = self.load_key()?;
            let listen = listen.unwrap_or((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into());
            let name = name.map_or_else(usual_name, str::to_owned);
            if !KnownHosts::is_name(&name) {
                return Err(format!(
                    "{name:?} is no name of a host: letters, digits, dots, hyphens and underscores"
                ));
            }
            let is_any = listen.ip().is_unspecified();
            let at = address.or_else(|| if is_any { usual_address() } else { Some(listen.ip()) });
            let at = at.unwrap_or(Ipv4Addr::LOCALHOST.into());
            let own = Member {
                name,
                key: Key(key.public()),
                next_key: None,
                address: SocketAddr::new(at, listen.port()),
                first,
                count,
                since_s: now_s(),
            };
            self.begin(server, key, Roster::of(own), listen, BTreeMap::new())?;
        }
        let comb = self.comb.as_mut().expect("it is open");
        if let Some(wanted) = listen.filter(|wanted| *wanted != comb.listen) {
            return Err(format!(
                "this agent listens on {} already, and cannot on {wanted} as well",
                comb.listen
            ));
        }
        Ok(comb)
    }

    /// Goes on with what was written down.
    pub(crate) fn resume(&mut self, server: &mut Server, saved: &Saved) -> Result<(), String> {
        let key = self.load_key()?;
        let mut roster = saved.roster()?;
        roster.own_mut().key = Key(key.public());
        roster.own_mut().next_key = None;
        self.begin(server, key, roster, saved.listen, saved.lives.clone())
    }

    fn begin(
        &mut self,
        server: &mut Server,
        key: HostKey,
        mut roster: Roster,
        listen: SocketAddr,
        lives: BTreeMap<u32, u64>,
    ) -> Result<(), String> {
        let lets_strangers_in = Arc::new(AtomicBool::new(false));
        let door = Door { queue: self.queue.clone(), lets_strangers_in: Arc::clone(&lets_strangers_in) };
        let hosts = Hosts {
            name: roster.own().name.clone(),
            key: key.clone(),
            known: roster.known(&self.files.hosts_file()),
            listen,
            addresses: roster.addresses(),
            plain: false,
            af_xdp: Vec::new(),
        };
        let opened = server.open_door(hosts, Arc::new(door)).map_err(|error| {
            let what = if error.kind() == std::io::ErrorKind::AddrInUse {
                "somebody else listens there; `--listen ADDRESS:PORT` says where else".to_owned()
            } else {
                error.to_string()
            };
            format!("cannot listen for other hosts on {listen}: {what}")
        })?;
        if listen.port() == 0 {
            roster.own_mut().address.set_port(opened.port());
        }
        let listen = SocketAddr::new(listen.ip(), opened.port());
        self.comb = Some(Comb {
            key,
            next_key: None,
            roster,
            listen,
            tokens: Tokens::default(),
            lets_strangers_in,
            peers: BTreeMap::new(),
            promised: Vec::new(),
            next_question: 1,
            cells_told: None,
            counter: 0,
            lives,
        });
        self.hosts_changed(server);
        Ok(())
    }

    /// Who belongs to the comb has changed: that is written down, and known at the door.
    pub(crate) fn hosts_changed(&mut self, server: &Server) {
        let Some(comb) = &mut self.comb else { return };
        comb.know_peers();
        self.blocks.set(&comb.roster);
        server.know(comb.key.clone(), comb.roster.known(&self.files.hosts_file()), comb.roster.addresses());
        self.save();
        let comb = self.comb.as_ref().expect("seen above");
        comb.tell_members(None);
    }

    /// Writes down what is to outlive this agent.
    pub(crate) fn save(&self) {
        let Some(comb) = &self.comb else { return };
        let saved = Saved::of(&comb.roster, comb.listen, comb.lives.clone());
        if let Err(error) = saved.write(&self.files.hosts_file()) {
            say(format_args!("cannot write {}: {error}", self.files.hosts_file().display()));
        }
    }

    /// A life of a cell of ours begins. None of that number was before it, whatever is left in the runtime directory.
    pub(crate) fn life_begins(&mut self, cell: u32, incarnation: u64) {
        if let Some(comb) = &mut self.comb {
            comb.lives.insert(cell, incarnation);
            self.save();
        }
    }

    /// The last life of a cell of ours that is known.
    pub(crate) fn last_life(&self, cell: u32) -> u64 {
        self.comb.as_ref().and_then(|comb| comb.lives.get(&cell).copied()).unwrap_or(0)
    }

    /// A token for one who comes in.
    pub(crate) fn token(
        &mut self,
        ttl: Duration,
        uses: u32,
        address: Option<IpAddr>,
    ) -> Result<Token, String> {
        let comb = self.comb.as_mut().ok_or("no door is open")?;
        let own = comb.roster.own().address;
        let at = SocketAddr::new(address.unwrap_or(own.ip()), own.port());
        if at.ip().is_loopback() && !comb.listen.ip().is_loopback() {
            return Err("this machine has no address by which others could reach it: `comb token --address ADDRESS` says one".into());
        }
        comb.lets_strangers_in.store(true, Ordering::Release);
        let secret = comb.tokens.make(Instant::now(), ttl, uses);
        Ok(Token { address: at, key: comb.key.public(), secret })
    }

    /// Wants in, by way of the host at that address.
    pub(crate) fn join(&self, address: SocketAddr, key: PublicKey, join: Join, connection: u64) {
        let Some(comb) = &self.comb else { return };
        // Nobody knows its name yet.
        let host = "it".to_owned();
        let known = KnownHosts::of(std::path::Path::new("the token"), [(host.as_str(), key)]);
        let label = address.to_string();
        Way { host, label, address, key: comb.key.clone(), known }.join(join, connection, self.queue.clone());
    }

    /// Begins what is due, and says when something is next.
    pub(crate) fn tend(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let file = self.files.hosts_file();
        let comb = self.comb.as_mut()?;
        comb.promised.retain(|(since, _)| since.elapsed() < PROMISE_LIMIT);
        if comb.tokens.open_until().is_none_or(|until| until <= now) {
            comb.lets_strangers_in.store(false, Ordering::Release);
        }
        let known = comb.roster.known(&file);
        for (host, peer) in &mut comb.peers {
            if peer.line.is_some() || peer.is_dialling || peer.dial_at > now {
                continue;
            }
            let Some(member) = comb.roster.get(host) else { continue };
            peer.is_dialling = true;
            let (host, key, known) = (host.clone(), comb.key.clone(), known.clone());
            let label = host.clone();
            Way { host, label, address: member.address, key, known }.dial(self.queue.clone());
        }
        comb.next_due()
    }

    /// When [`Federation::tend`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.comb.as_ref().and_then(Comb::next_due)
    }

    /// This host proves itself by the new key from now on, and tells all that it does.
    pub(crate) fn switch_key(&mut self, server: &Server) -> Result<(), String> {
        let file = self.files.key_file();
        let comb = self.comb.as_mut().ok_or("no door is open")?;
        let key = comb.next_key.take().ok_or("no new key was made")?;
        let fresh = file.with_extension("key.new");
        let _ = std::fs::remove_file(&fresh);
        key.save(&fresh).map_err(|error| error.to_string())?;
        std::fs::rename(&fresh, &file).map_err(|error| format!("{}: {error}", file.display()))?;
        comb.key = key;
        comb.roster.own_mut().key = Key(comb.key.public());
        comb.say_all(&Word::Switched);
        self.hosts_changed(server);
        Ok(())
    }

    /// This host belongs to no comb any more: what was written down is removed.
    pub(crate) fn forget(&mut self) {
        self.comb = None;
        forget(&self.files);
    }

    /// All hosts, this one first; none if no door is open.
    pub(crate) fn status(&self, own_cells: Vec<CellWord>) -> Vec<HostStatus> {
        let Some(comb) = &self.comb else { return Vec::new() };
        let status = |member: &Member, condition, since: Duration, cells, trouble| HostStatus {
            name: member.name.clone(),
            address: member.address.to_string(),
            condition,
            trouble,
            fingerprint: member.key.0.to_string(),
            for_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            first: member.first,
            count: member.count,
            cells,
        };
        let own = comb.roster.own();
        let belongs = Duration::from_secs(now_s().saturating_sub(own.since_s));
        let mut all = vec![status(own, HostCondition::Here, belongs, own_cells, None)];
        all.extend(comb.roster.others().filter_map(|member| {
            let peer = comb.peers.get(&member.name)?;
            let trouble = peer.trouble.clone().filter(|_| peer.line.is_none());
            Some(status(member, peer.condition, peer.since.elapsed(), peer.cells.clone(), trouble))
        }));
        all
    }
}

/// What was written down: that this host belongs to a comb with others.
pub fn saved(files: &StateDirectory) -> Result<Option<Saved>, String> {
    Ok(Saved::read(&files.hosts_file())?.filter(|saved| saved.members.len() > 1))
}

/// Removes it, and the key by which others knew this host.
pub fn forget(files: &StateDirectory) {
    let _ = std::fs::remove_file(files.hosts_file());
    let _ = std::fs::remove_file(files.key_file());
}

fn say(what: impl std::fmt::Display) {
    comb_cell::journal::write("agent", what);
}
