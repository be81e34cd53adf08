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
mod door;
mod line;
pub mod members;
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
use words::{CellState, CellWord, Join, Lie, Reception, Word};

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
/// Reasons why a host is not reached, that are written down until it is.
const MOST_TROUBLES_TOLD: usize = 4;
/// From one try to reach a host to the next.
const BETWEEN_DIALS: Duration = Duration::from_millis(300);
/// Of two hosts the one with the lesser name connects at once, the other one after this.
const COURTESY: Duration = Duration::from_millis(1500);
/// Before the first.
const AT_FIRST: Duration = Duration::from_millis(20);
/// A host that has lied is not spoken with for so long.
const AFTER_LIES: Duration = Duration::from_secs(10);
/// How cells are is told so often, whatever has changed.
const BETWEEN_CELLS: Duration = Duration::from_secs(1);
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
    /// A part of another host's task is to run here.
    Shell { host: String, wanted: shell::Shell, answer: mpsc::Sender<Result<shell::Seat, String>> },
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

/// Another host, as this one sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) line: Option<Line>,
    pub(crate) condition: HostCondition,
    since: Instant,
    /// When it is tried to reach it next, and whether that is under way.
    dial_at: Instant,
    is_dialling: bool,
    /// Why that does not come to anything, and which reasons were written down.
    pub(crate) trouble: Option<String>,
    troubles_told: Vec<String>,
    /// It has lied, and is not let in until then.
    barred_until: Option<Instant>,
    /// Its cells, as it said last; and whether it has on this line.
    pub(crate) cells: Vec<CellWord>,
    pub(crate) has_told: bool,
    counter: u64,
    /// Hosts that it says were put out.
    says_out: Vec<Key>,
}

impl Peer {
    fn new(dial_at: Instant) -> Self {
        Self {
            line: None,
            condition: HostCondition::Away,
            since: Instant::now(),
            dial_at,
            is_dialling: false,
            trouble: None,
            troubles_told: Vec::new(),
            barred_until: None,
            cells: Vec::new(),
            has_told: false,
            counter: 0,
            says_out: Vec::new(),
        }
    }

    fn be(&mut self, condition: HostCondition) {
        if self.condition != condition {
            (self.condition, self.since) = (condition, Instant::now());
        }
    }
}

/// A comb that others can belong to: its door is open.
#[derive(Debug)]
pub(crate) struct Comb {
    key: HostKey,
    next_key: Option<HostKey>,
    pub(crate) roster: Roster,
    listen: SocketAddr,
    pub(crate) tokens: Tokens,
    lets_strangers_in: Arc<AtomicBool>,
    pub(crate) peers: BTreeMap<String, Peer>,
    promised: Vec<(Instant, (u32, u32))>,
    next_question: u64,
    cells_told: Option<(Instant, Vec<Glance>)>,
    counter: u64,
    lives: BTreeMap<u32, u64>,
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

impl Comb {
    fn next_due(&self) -> Option<Instant> {
        let idle = self.peers.values().filter(|peer| peer.line.is_none() && !peer.is_dialling);
        let told = self.cells_told.as_ref().map(|(at, _)| *at + BETWEEN_CELLS);
        idle.map(|peer| peer.dial_at).chain(told.filter(|_| self.is_any_up())).min()
    }

    fn is_any_up(&self) -> bool {
        self.peers.values().any(|peer| peer.line.is_some())
    }

    /// A peer for each of the others.
    fn know_peers(&mut self) {
        let (roster, peers) = (&self.roster, &mut self.peers);
        peers.retain(|name, _| roster.get(name).is_some());
        let own = &roster.own().name;
        for member in roster.others() {
            let courtesy = if *own < member.name { Duration::ZERO } else { COURTESY };
            // It may have to hear first that it is one.
            let dial_at = Instant::now() + AT_FIRST + courtesy;
            peers.entry(member.name.clone()).or_insert_with(|| Peer::new(dial_at));
        }
    }

    /// Who belongs to the comb, to one or to all.
    pub(crate) fn tell_members(&self, to: Option<&str>) {
        let word = Word::Members {
            members: self.roster.members().cloned().collect(),
            out: self.roster.out().to_vec(),
        };
        match to {
            Some(host) => drop(self.say(host, &word)),
            None => self.say_all(&word),
        }
    }

    /// Says a word to a host. `false`: there is no line.
    pub(crate) fn say(&self, host: &str, word: &Word) -> bool {
        self.peers.get(host).and_then(|peer| peer.line.as_ref()).is_some_and(|line| line.say(word))
    }

    /// Says a word to all that there is a line to.
    pub(crate) fn say_all(&self, word: &Word) {
        for line in self.peers.values().filter_map(|peer| peer.line.as_ref()) {
            line.say(word);
        }
    }

    /// Whether the others are to hear how this host's cells are: it is time to, or there is something new.
    pub(crate) fn is_to_tell(&self, glances: &[Glance]) -> bool {
        let is_old = |(at, told): &(Instant, Vec<Glance>)| at.elapsed() >= BETWEEN_CELLS || told != glances;
        self.is_any_up() && self.cells_told.as_ref().is_none_or(is_old)
    }

    /// Tells how this host's cells are.
    pub(crate) fn tell_cells(&mut self, glances: Vec<Glance>, cells: Vec<CellWord>) {
        self.counter += 1;
        self.say_all(&Word::Cells { counter: self.counter, cells });
        self.cells_told = Some((Instant::now(), glances));
    }

    /// A question's number.
    pub(crate) fn question(&mut self) -> u64 {
        self.next_question += 1;
        self.next_question
    }

    /// A line has come to be. `false`: it is not to be.
    pub(crate) fn opened(&mut self, host: &str, key: PublicKey, line: Line) -> bool {
        // It may have been put out meanwhile.
        if self.roster.with_key(Key(key)).is_none_or(|member| member.name != host) {
            return false;
        }
        let own = self.roster.own().name.clone();
        let Some(peer) = self.peers.get_mut(host) else { return false };
        peer.is_dialling &= !line.was_dialled;
        if peer.barred_until.take_if(|until| *until <= Instant::now()).is_none()
            && peer.barred_until.is_some()
        {
            return false;
        }
        // Both may connect at once: the one that who has the lesser name has made stays.
        let is_proper = |line: &Line| line.was_dialled == (*own < *host);
        if peer.line.as_ref().is_some_and(|known| is_proper(known) && !is_proper(&line)) {
            return false;
        }
        peer.line = Some(line);
        (peer.counter, peer.has_told, peer.trouble) = (0, false, None);
        peer.troubles_told.clear();
        peer.be(HostCondition::Up);
        self.cells_told = None;
        self.tell_members(Some(host));
        true
    }

    /// A line is no more. `None`: it was not the one that counts.
    pub(crate) fn closed(&mut self, host: &str, line: u64, how: &How) -> Option<HostCondition> {
        let own = &self.roster.own().name;
        let peer = self.peers.get_mut(host)?;
        if peer.line.as_ref().is_none_or(|known| known.number != line) {
            return None;
        }
        peer.line = None;
        peer.has_told = false;
        peer.says_out.clear();
        let courtesy = if **own < *host { Duration::ZERO } else { COURTESY };
        peer.dial_at = Instant::now() + BETWEEN_DIALS + courtesy;
        let condition = match how {
            How::Silent => HostCondition::Lost,
            How::Lied(_) => {
                peer.barred_until = Some(Instant::now() + AFTER_LIES);
                peer.dial_at = Instant::now() + AFTER_LIES;
                HostCondition::CutOff
            }
            How::Farewell | How::Cut(_) | How::Dropped => HostCondition::Away,
        };
        peer.be(condition);
        // Whether they live is not known any more; that they did is.
        Some(condition)
    }

    /// It was tried, in vain. Whether that is worth a line in the log.
    pub(crate) fn unreached(&mut self, host: &str, why: &str) -> bool {
        let Some(peer) = self.peers.get_mut(host) else { return false };
        peer.is_dialling = false;
        let since = peer.since.elapsed();
        // Who has been gone for long is asked for less often.
        peer.dial_at =
            Instant::now() + if since < Duration::from_secs(60) { BETWEEN_DIALS } else { 10 * BETWEEN_DIALS };
        peer.trouble = Some(why.to_owned());
        let is_new = peer.troubles_told.len() < MOST_TROUBLES_TOLD
            && !peer.troubles_told.iter().any(|told| told == why);
        if is_new {
            peer.troubles_told.push(why.to_owned());
        }
        is_new
    }

    /// A line that is not served by who says so any more.
    pub(crate) fn is_current(&self, host: &str, line: u64) -> bool {
        self.peers.get(host).and_then(|peer| peer.line.as_ref()).is_some_and(|known| known.number == line)
    }

    /// A host says how its cells are.
    pub(crate) fn cells_are(&mut self, host: &str, counter: u64, cells: Vec<CellWord>) -> Result<(), Lie> {
        let member = self.roster.get(host).ok_or("it is none of the comb's")?;
        if let Some(strange) = cells.iter().find(|word| !member.has(word.cell)) {
            let whose = self.roster.host_of(strange.cell).map_or("nobody", |owner| &owner.name);
            return Err(format!("it speaks of cell {}, which is {whose}'s", strange.cell));
        }
        if cells.iter().enumerate().any(|(at, word)| cells[..at].iter().any(|other| other.cell == word.cell))
        {
            return Err("it says two things of one cell".to_owned());
        }
        let peer = self.peers.get_mut(host).ok_or("it is none of the comb's")?;
        if counter <= peer.counter {
            return Err("it says what it has said before".to_owned());
        }
        (peer.counter, peer.cells, peer.has_told) = (counter, cells, true);
        Ok(())
    }

    /// A host says who belongs to the comb: those who were added, and those who are gone by the word of most.
    pub(crate) fn members_are(
        &mut self,
        by: &str,
        members: Vec<Member>,
        out: &[(String, Key)],
    ) -> Result<(Vec<Member>, Vec<String>), Lie> {
        let speaker = self.roster.get(by).ok_or("it is none of the comb's")?.clone();
        let (mut added, own) = (Vec::new(), self.roster.own().name.clone());
        for member in members {
            if member.name == by {
                // Of itself it may say where it is, and nothing else that is not known.
                if member.key != speaker.key && speaker.next_key != Some(member.key)
                    || member.cells() != speaker.cells()
                {
                    return Err("it says of itself what is not so".to_owned());
                }
                if let Some(known) = self.roster.get_mut(by).filter(|known| known.address != member.address) {
                    known.address = member.address;
                    added.push(known.clone());
                }
                continue;
            }
            // What differs from what is known here may be older or wrong: nobody changes it by saying so of another.
            if member.name != own && self.roster.get(&member.name).is_none() {
                let member = Member { next_key: None, ..member };
                if let Ok(true) = self.roster.add(member.clone()) {
                    added.push(member);
                }
            }
        }
        if let Some(peer) = self.peers.get_mut(by) {
            peer.says_out = out.iter().map(|(_, key)| *key).collect();
        }
        Ok((added, self.voted_out()))
    }

    /// Hosts that this one cannot reach, and that most of those it can say were put out.
    fn voted_out(&self) -> Vec<String> {
        let up = self.peers.values().filter(|peer| peer.line.is_some());
        let is_out = |member: &&Member| {
            let votes = up.clone().filter(|peer| peer.says_out.contains(&member.key)).count();
            let is_reached = self.peers.get(&member.name).is_some_and(|peer| peer.line.is_some());
            !is_reached && 2 * votes > up.clone().count()
        };
        self.roster.others().filter(is_out).map(|member| member.name.clone()).collect()
    }

    /// Numbers for one who comes in, if it is this host that gives them.
    pub(crate) fn promise(&mut self, count: u32) -> Result<u32, String> {
        let giver = self.roster.giver();
        if giver.name != self.roster.own().name {
            return Err(format!("numbers for cells are given by host {}", giver.name));
        }
        let promised: Vec<(u32, u32)> = self.promised.iter().map(|(_, block)| *block).collect();
        let first = self.roster.free_block(count, &promised)?;
        self.promised.push((Instant::now(), (first, count)));
        Ok(first)
    }

    /// Lets one in, with these numbers.
    pub(crate) fn admit(&mut self, knock: &Knock, first: u32) -> Result<Reception, String> {
        let Knock { key, from, join, .. } = knock;
        let secret = join.secret.as_deref().ok_or("a token is needed")?;
        self.tokens.check(Instant::now(), secret)?;
        let name = if join.is_name_meant { join.name.clone() } else { self.roster.free_name(&join.name) };
        let at = if join.address.ip().is_unspecified() { from.ip() } else { join.address.ip() };
        let member = Member {
            name: name.clone(),
            key: Key(*key),
            next_key: None,
            address: SocketAddr::new(at, join.address.port()),
            first,
            count: join.cells,
            since_s: now_s(),
        };
        self.roster.add(member)?;
        self.promised.retain(|(_, (promised, _))| *promised != first);
        self.tokens.used(secret);
        Ok(self.admitted(&name))
    }

    /// What one hears who belongs to the comb.
    pub(crate) fn admitted(&self, name: &str) -> Reception {
        let (you, by) = (name.to_owned(), self.roster.own().name.clone());
        Reception::Admitted { you, by, members: self.roster.members().cloned().collect() }
    }

    /// What others say to one who has come in is so from now on. What this host said of itself before it was one was for want of better.
    pub(crate) fn become_member(&mut self, you: &str, members: &[Member]) -> Result<(), String> {
        let own = members.iter().find(|member| member.name == you);
        let own = own.filter(|own| own.key == Key(self.key.public()) && own.check().is_ok());
        let mut roster = Roster::of(own.ok_or("it let in another than this host")?.clone());
        for member in members {
            roster.add(member.clone())?;
        }
        self.roster = roster;
        Ok(())
    }

    /// A new key, by which this host is to prove itself soon.
    pub(crate) fn make_next_key(&mut self) -> Key {
        let key = HostKey::generate();
        let public = key.public();
        self.next_key = Some(key);
        Key(public)
    }

    /// Cells of other hosts that can let others in.
    pub(crate) fn contacts(&self) -> Vec<u32> {
        let up = self.peers.values().filter(|peer| peer.line.is_some() && peer.has_told);
        let cells = up.flat_map(|peer| &peer.cells);
        cells.filter(|cell| cell.state == CellState::Up && cell.is_member).map(|cell| cell.cell).collect()
    }

    /// Whether this host may begin a new group of cells: all others are there, none of them has a cell that lives, and nobody has lower
    /// numbers.
    pub(crate) fn may_found(&self) -> bool {
        let lives = |cell: &CellWord| matches!(cell.state, CellState::Up | CellState::Starting);
        let is_empty = |peer: &Peer| peer.line.is_some() && peer.has_told && !peer.cells.iter().any(lives);
        self.peers.values().all(is_empty) && self.roster.giver().name == self.roster.own().name
    }
}

fn say(what: impl std::fmt::Display) {
    comb_cell::journal::write("agent", what);
}
