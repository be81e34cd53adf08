//! The process that acts for a cell: one thread, one loop, asleep unless somebody has something to say.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_group::environment::{Kind, Notice};
use comb_group::{
    Condition, Config, Event, Group, GroupError, GroupOptions, Member, Names, ViewEpoch, Watching,
};
use comb_memory::Published;
use comb_net::{Agent, Cause, ChannelKey, ConnectError, EndpointOptions, RequestError};
use comb_region::named::home::{Home, HomeError, HomeOptions, OtherCells};
use comb_region::named::{Keeper, RemoteKeeper};
use comb_types::{CellId, NodeId};
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno;

use crate::calls::Desk;
use crate::clock::{monotonic_ns, span};
use crate::containing::Containing;
use crate::faults::{self, Fault, Means};
use crate::heeding::{Ears, Heeding};
use crate::journal;
use crate::links::{BETWEEN_LOOKS, CONTAINMENT, HEARTBEAT, Links, News, SILENCE_LIMIT};
use crate::missed::Missed;
use crate::shown::{Others, Shown, ShownError};
use crate::superior::{Superior, Word};
use crate::supervision::{CellElsewhere, Order, Report, WIRE, process_name};
use crate::watch;
use crate::{notice, procedures};

/// How often a cell looks for what has no other time, asks a peer whether it is there, and gives its agent a sign of life. Peers are asked in turn: the cost
/// of a cell does not grow with the number of cells. Whether they move is seen without asking them.
const BETWEEN_BEATS: Duration = Duration::from_secs(1);
/// The same at its beginning, for whoever starts cells looks at them at once, and while its agent is away.
const BETWEEN_FIRST_BEATS: Duration = Duration::from_millis(250);
const FIRST_BEATS: u64 = 5;
/// From one question of the group's to a peer to the next. Who hangs or ends is known long before that is noticed.
const BETWEEN_PINGS: Duration = Duration::from_secs(2);
/// An agent that is restarted is back within a second or two. Cells without an agent belong to nobody and end.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);
/// What is not due for so long can wait for one tick more.
const LONG: Duration = Duration::from_millis(100);
/// What is lacking for a quorum does not come any more: a cell that was stopped has been voted out and ended by now.
const STUCK_LIMIT: Duration = Duration::from_secs(10);
/// The agent may still hold the name of the life before, until it has seen its end.
const NAME_LIMIT: Duration = Duration::from_secs(2);
/// The endpoint of the group that agrees on who lives.
const GROUP_ENDPOINT: &str = "group";

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
    /// How it comes to be one of the cells.
    pub beginning: Beginning,
    /// Bytes of page frames that it may have; none: all that the host has.
    pub most_bytes: Option<u64>,
    /// Whether it fails when it is told to: see [`crate::faults`].
    pub faults: bool,
    /// On which hosts cells are that are not on this one, by the names that its agent has for them.
    pub elsewhere: BTreeMap<u32, String>,
}

/// How a cell comes to be one of the cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// All of these begin together, this one among them.
    Together(Vec<u32>),
    /// These are there already.
    ComingIn(Vec<u32>),
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
    /// It cannot agree with the others.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// It cannot show anything.
    #[error(transparent)]
    Shown(#[from] ShownError),
    /// The agent refused the endpoint.
    #[error("the agent refused the endpoint {WIRE}: {0}")]
    Endpoint(#[from] RequestError),
    /// The others have gone on without it. What it had may be in use by others, so it ends at once.
    #[error("the other cells have gone on without this one (view {0})")]
    Excluded(u64),
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
    cut_off_with_a_panic(Arc::clone(supervisor.shown.published()));
    let outcome = supervisor.run();
    if let Err(error) = &outcome {
        supervisor.panic(error);
    }
    outcome
}

/// What wakes a cell.
#[derive(Clone, Copy, Debug)]
enum Waker {
    /// A channel to another cell.
    Link,
    /// A channel of the group's.
    Group,
    /// A job of a call is done.
    Job,
    /// The agent. It is watched anew when it has been away.
    Superior,
}

impl Waker {
    const COUNT: usize = 4;
}

fn watch(waking: &OwnedFd, waker: Waker, descriptor: impl AsFd) -> Result<(), SupervisorError> {
    let data = epoll::EventData::new_u64(waker as u64);
    epoll::add(waking, descriptor, data, epoll::EventFlags::IN).map_err(cannot_wait)
}

fn cannot_wait(source: Errno) -> SupervisorError {
    SupervisorError::System { doing: "cannot wait", source }
}

/// A thread of this cell that finds something impossible speaks for all of it. Before anything else nobody is to believe what it shows.
fn cut_off_with_a_panic(published: Arc<Published>) {
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        published.cut_off();
        says(panic);
        std::process::abort();
    }));
}

#[derive(Debug)]
struct Supervisor {
    options: CellOptions,
    who: String,
    links: Links,
    group: Group,
    containing: Containing,
    superior: Superior,
    notices: notice::Notices,
    shown: Shown,
    others: Others,
    heeding: Heeding,
    /// What the group asks its arbiter, until that is known; and since when it cannot go on.
    asked: Option<(ViewEpoch, Member)>,
    stuck: Option<(Instant, String)>,
    /// Cells that there is a channel to, and that the group is not in touch with yet.
    unsettled: BTreeMap<CellId, ChannelKey>,
    /// Which life of a cell a channel leads to, as the group counts.
    lives: BTreeMap<ChannelKey, Member>,
    /// Who is missed on other hosts.
    missed: Missed<ChannelKey>,
    beats: u64,
    /// Round trips when the agent went away.
    round_trips_before: u64,
    /// Whose turn to be asked it is.
    turn: usize,
    /// All that can wake this cell.
    waking: OwnedFd,
    /// When this cell shows next that it moves.
    next_tick: Instant,
    /// When it was last shown.
    ticked: Instant,
    /// It was told that no alarm comes before.
    alarms_from: Instant,
    /// Named regions live here as long as the cell does.
    home: Home,
}

impl Supervisor {
    fn start(options: CellOptions) -> Result<Self, SupervisorError> {
        let name = process_name(options.number);
        let title = std::ffi::CString::new(format!("comb-{name}")).expect("no zero in it");
        let _ = rustix::thread::set_name(&title);
        let agent = connect(&options, &name)?;
        let own = CellId(options.number);
        let cannot = |source: std::io::Error| SupervisorError::System {
            doing: "cannot serve calls",
            source: Errno::from_io_error(&source).unwrap_or(Errno::MFILE),
        };
        let shown = Shown::create(own, options.incarnation)?;
        let others = Others::of_whom(Arc::clone(shown.published()));
        let mut desk = Desk::new(Arc::clone(shown.published()), others.clone()).map_err(cannot)?;
        procedures::offer(&mut desk);
        let jobs = desk.event();
        let mut links = Links::new(&agent, own, desk)?;
        links.learn_where(options.elsewhere.clone(), BTreeSet::new());
        let waking = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(cannot_wait)?;
        watch(&waking, Waker::Job, jobs)?;
        watch(&waking, Waker::Link, links.event_descriptor())?;
        let runtime = options.agent_socket.parent().unwrap_or(Path::new("/")).to_owned();
        let (cell, incarnation) = (options.number, options.incarnation);
        let keeper = Some(Arc::new(RemoteKeeper::new(&runtime, cell, incarnation)) as Arc<dyn Keeper>);
        let published = Some(Arc::clone(shown.published()));
        let seen = Some(Arc::new(others.clone()) as Arc<dyn OtherCells>);
        let of = HomeOptions {
            cell,
            incarnation,
            runtime,
            keeper,
            published,
            others: seen,
            most_bytes: options.most_bytes,
        };
        let home = Home::begin(&agent, of)?;
        if let Some(regions) = home.shown() {
            shown.update(|face| face.regions = regions);
        }
        let (cgroup, most_bytes) = (options.cgroup.clone(), options.most_bytes.unwrap_or(0));
        let ears = Ears { cell, cgroup, most_bytes, hand: home.clock_hand(), others: others.clone() };
        let heeding = Heeding::begin(ears).map_err(cannot)?;
        let mut group = join(&agent, &options)?;
        watch(&waking, Waker::Group, group.endpoint().event_descriptor().expect("made with events"))?;
        let mut containing = Containing::new(own);
        containing.learn_where(options.elsewhere.keys().map(|&cell| CellId(cell)).collect());
        let mut missed = Missed::new();
        // Of a view that was configured no event tells.
        if let Some(view) = group.view() {
            containing.view(view);
            missed.view(view, monotonic_ns());
        }
        let stuck = group.view().is_none().then(|| (Instant::now(), "nobody lets it in".to_owned()));
        let mut supervisor = Self {
            who: format!("cell {}", options.number),
            links,
            group,
            containing,
            superior: Superior::at(options.cells_socket.clone()),
            notices: notice::Notices::default(),
            shown,
            others,
            heeding,
            options,
            asked: None,
            stuck,
            unsettled: BTreeMap::new(),
            lives: BTreeMap::new(),
            missed,
            alarms_from: Instant::now(),
            beats: 0,
            round_trips_before: 0,
            turn: 0,
            waking,
            next_tick: Instant::now(),
            ticked: Instant::now(),
            home,
        };
        // Others look at it from here on.
        supervisor.shown.tick();
        supervisor.find_superior();
        Ok(supervisor)
    }

    fn say(&self, what: impl std::fmt::Display) {
        journal::write(&self.who, what);
    }

    fn run(&mut self) -> Result<(), SupervisorError> {
        let mut next_beat = Instant::now() + self.until_beat();
        loop {
            self.tick();
            self.hear_cells();
            self.hear_group()?;
            if self.hear_superior() {
                self.say("ends, as its agent says");
                return Ok(());
            }
            self.contain();
            self.report_settled();
            for notice in self.notices.take_due(monotonic_ns()) {
                self.say(notice);
            }
            if Instant::now() >= next_beat {
                self.beat();
                next_beat = Instant::now() + self.until_beat();
            }
            if self.superior.away_for().is_some_and(|away| away > ORPHAN_LIMIT) {
                self.say(format_args!("ends: its agent has been away for {} s", ORPHAN_LIMIT.as_secs()));
                return Ok(());
            }
            // Its agent may be away since a moment ago.
            next_beat = next_beat.min(Instant::now() + self.until_beat());
            self.sleep(next_beat)?;
        }
    }

    /// Shows that this cell moves, if it is time to, or has not been shown for a moment though there was much to do.
    fn tick(&mut self) {
        let now = Instant::now();
        let is_due = now >= self.next_tick;
        if is_due {
            self.next_tick = now + watch::until_tick(monotonic_ns(), self.containing.place());
            self.heeding.show(&self.shown);
        }
        if is_due || now >= self.ticked + watch::BETWEEN_TICKS {
            self.ticked = now;
            self.shown.tick();
        }
    }

    /// Until somebody has something to say, or it is time for something. Ticks meanwhile: a cell at rest does nothing else for most of its time, so
    /// a tick is no turn of the loop. Its endpoints stay armed, and the agent's socket is not asked: a descriptor would have told.
    fn sleep(&mut self, next_beat: Instant) -> Result<(), SupervisorError> {
        let until = self.next_due(next_beat);
        // Both, whatever the first says.
        let mut is_quiet = self.links.arm() & self.group.endpoint().arm();
        while is_quiet {
            let now = Instant::now();
            if now >= until {
                break;
            }
            if now >= self.next_tick {
                self.tick();
                is_quiet = self.containing.watch(&self.others) && !self.home.is_accusing();
                continue;
            }
            is_quiet = !self.wait(until.min(self.next_tick) - now)?;
        }
        self.links.disarm();
        self.group.endpoint().disarm();
        Ok(())
    }

    /// When there is something to do besides ticking. What is not due for long is done with a tick, for which this cell wakes anyway.
    fn next_due(&mut self, next_beat: Instant) -> Instant {
        let now = Instant::now();
        let group = now + self.group.nothing_is_due_for();
        let notices = self.notices.next_due_ns();
        let notices = notices.map(|due| now + Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        let dues = [notices, self.links.desk().next_expiry(), self.containing.next_due()];
        let due = dues.into_iter().flatten().chain([group, next_beat]).min().unwrap_or(next_beat);
        if due < now + LONG { due } else { watch::tick_behind(due, self.next_tick) }
    }

    /// Whether somebody has something to say.
    fn wait(&mut self, limit: Duration) -> Result<bool, SupervisorError> {
        // Not by the set itself, which counts whole milliseconds.
        let limit = limit.try_into().expect("at most one beat");
        let limit = (Instant::now() >= self.alarms_from).then_some(&limit);
        let mut waiting = [PollFd::new(&self.waking, PollFlags::IN)];
        match rustix::event::poll(&mut waiting, limit) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(true),
            Err(source) => return Err(cannot_wait(source)),
        }
        let none = rustix::time::Timespec::default();
        let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); Waker::COUNT];
        let (came, _) = epoll::wait(&self.waking, &mut space, Some(&none)).map_err(cannot_wait)?;
        // Edge-triggered events stay in the set until they are taken.
        let mut space = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 64];
        for event in came.iter() {
            let data = event.data.u64();
            if data == Waker::Link as u64 {
                let _ = epoll::wait(self.links.event_descriptor(), &mut space, Some(&none));
            } else if data == Waker::Group as u64 {
                let set = self.group.endpoint().event_descriptor().expect("made with events");
                let _ = epoll::wait(set, &mut space, Some(&none));
            }
        }
        Ok(!came.is_empty())
    }

    // ── the other cells ──

    fn hear_cells(&mut self) {
        self.links.poll();
        for (channel, asked_ns) in self.links.desk().answered() {
            if let Some(cell) = self.links.cell(channel) {
                self.missed.answered(cell.0, channel, asked_ns);
            }
        }
        for news in self.links.news() {
            match news {
                News::Linked(cell, channel) => {
                    self.notices.channel_opened(cell.0);
                    self.unsettled.insert(cell, channel);
                }
                News::Ended { cell, channel, address, cause, at_ns } => {
                    self.channel_ended((cell, channel), address, &cause, at_ns);
                }
                News::Stranger(address) => {
                    self.say(format_args!("closed a channel that {address} opened: it is no cell"));
                }
            }
        }
    }

    /// A cell counts as linked when the group has it as well: then its end is known in every way there is. (In a large group there is no
    /// channel of the group's between hosts.)
    fn report_settled(&mut self) {
        if self.unsettled.is_empty() {
            return;
        }
        let unreached: Vec<NodeId> = self.group.unreached().collect();
        let is_in = |cell: &CellId| {
            let node = NodeId(cell.0);
            self.group.view().is_some_and(|view| view.nodes().any(|other| other == node))
                && (!unreached.contains(&node) || self.links.is_elsewhere(*cell))
        };
        let settled: Vec<CellId> = self.unsettled.keys().copied().filter(is_in).collect();
        for cell in settled {
            let member = self.group.view().and_then(|view| view.member(NodeId(cell.0)));
            if let Some((channel, member)) = self.unsettled.remove(&cell).zip(member) {
                self.lives.insert(channel, member);
            }
            self.superior.report(Report::Linked { peer: cell.0 });
            // Who has answered once can be missed.
            if self.links.is_elsewhere(cell) {
                self.ask(cell);
            }
        }
    }

    fn channel_ended(
        &mut self,
        (cell, channel): (CellId, ChannelKey),
        address: String,
        cause: &Cause,
        at_ns: u64,
    ) {
        if self.unsettled.get(&cell) == Some(&channel) {
            self.unsettled.remove(&cell);
        }
        self.missed.ended(channel, cause);
        let known = self.lives.remove(&channel);
        if let Cause::Exited(process) = cause
            && let Some(life) = known.or_else(|| self.life_in(cell, *process))
        {
            self.group.exited(life);
        }
        self.containing.noticed(at_ns);
        self.superior.report(Report::Noticed { peer: cell.0, at_ns, cause: cause.to_string() });
        self.notices.channel_ended(cell.0, at_ns, address, cause);
    }

    /// Which life of a cell ran in a process that is gone, if it is the one that is seen. The next may be in the view already, but then its process is seen
    /// as well.
    fn life_in(&self, cell: CellId, process: u32) -> Option<Member> {
        let (seen, _) = self.others.moved(cell)?;
        self.group.view()?.member(NodeId(cell.0)).filter(|_| seen == process)
    }

    fn until_beat(&self) -> Duration {
        let is_settled = self.beats >= FIRST_BEATS && self.superior.away_for().is_none();
        if is_settled { BETWEEN_BEATS } else { BETWEEN_FIRST_BEATS }
    }

    fn beat(&mut self) {
        self.beats += 1;
        let cells: Vec<CellId> = self.links.linked().collect();
        if !cells.is_empty() {
            self.ask(cells[self.turn % cells.len()]);
            self.turn = self.turn.wrapping_add(1);
        }
        if self.superior.away_for().is_some() {
            self.find_superior();
        } else if self.superior.send_unsent() {
            let pulse = self.links.desk().pulse;
            let (round_trips, last_round_trip_ns) = (pulse.round_trips, pulse.last_round_trip_ns);
            let received = self.links.received();
            self.superior.report(Report::Alive { round_trips, last_round_trip_ns, received });
        }
        self.links.open_to_lower();
        self.tell_of_lost_hosts();
    }

    /// Whether it is there. A peer that does not read misses a heartbeat; nothing else is lost.
    fn ask(&mut self, cell: CellId) {
        let beat = self.links.desk().pulse.ping(monotonic_ns());
        self.links.send(cell, HEARTBEAT, &beat, &[]);
    }

    // ── who lives ──

    fn hear_group(&mut self) -> Result<(), SupervisorError> {
        self.group.poll();
        while let Some(event) = self.group.next_event() {
            match event {
                Event::View(view) => {
                    (self.asked, self.stuck) = (None, None);
                    self.containing.view(&view);
                    self.missed.view(&view, monotonic_ns());
                }
                Event::Acquire { epoch, seat } => {
                    self.asked = Some((epoch, seat));
                    // That of another host may be lost for good, and nobody says so.
                    let is_elsewhere = |node: NodeId| self.links.is_elsewhere(CellId(node.0));
                    if self.group.view().is_some_and(|view| view.nodes().any(is_elsewhere)) {
                        let why = || "the other cell, on another host, may go on without it".to_owned();
                        self.stuck.get_or_insert_with(|| (Instant::now(), why()));
                    }
                }
                Event::Stuck(why) => {
                    self.stuck.get_or_insert_with(|| (Instant::now(), why.to_string()));
                }
                Event::Excluded { by } => return Err(SupervisorError::Excluded(by.0)),
                Event::WantsState => self.group.give_state(&[]),
                _ => {}
            }
        }
        while self.group.next_broken_rule().is_some() {}
        self.arbitrate();
        Ok(())
    }

    /// Of two cells that are left, which may go on without the other? The one that knows from the kernel that the other is dead: it can
    /// never have been told the same.
    fn arbitrate(&mut self) {
        if let Some((epoch, seat)) = self.asked {
            let others = self.group.view().into_iter().flat_map(|view| &view.members);
            let is_dead = |member: &Member| self.group.stack().condition(*member) == Condition::Fenced;
            // Between hosts nobody may ever know. Of the two only the lower says so of the other, and it is the same two for both.
            let is_mine = |member: &Member| {
                member.node > seat.node && self.links.is_elsewhere(CellId(member.node.0)) || is_dead(member)
            };
            if others.filter(|member| **member != seat).all(is_mine) {
                self.asked = None;
                self.group.acquired(epoch, true);
            }
        }
        if let Some((since, why)) = &mut self.stuck
            && since.elapsed() > STUCK_LIMIT
        {
            // Once more later, should the agent be away.
            *since = Instant::now();
            let why = why.clone();
            self.say(format_args!("cannot go on: {why}"));
            self.superior.report(Report::Stranded { why });
        }
    }

    fn contain(&mut self) {
        while let Some((channel, message)) = self.links.desk().next_heard() {
            let Some(from) = self.links.cell(channel) else { continue };
            if let Err(why) = self.containing.hear(from, &message) {
                self.say(format_args!("{from} {why}"));
                self.links.cut(channel, "it sent about failures what cannot be");
            }
        }
        let late: Vec<CellId> = {
            let late = self.links.desk().expire();
            late.into_iter().filter_map(|channel| self.links.cell(channel)).collect()
        };
        self.containing.late(&late);
        self.heeding.recovering(self.containing.is_recovering());
        self.containing.work(&self.others, &self.home, &mut || self.shown.tick());
        self.containing.asked().into_iter().for_each(|cell| self.ask(cell));
        for (to, message) in self.containing.transmits() {
            match to {
                Some(cell) => drop(self.links.send(cell, CONTAINMENT, &[], &message)),
                None => {
                    let cells: Vec<CellId> = self.links.linked().collect();
                    for cell in cells {
                        self.links.send(cell, CONTAINMENT, &[], &message);
                    }
                }
            }
        }
        for report in self.containing.reports() {
            if let Some(line) = crate::containing::sentence(&report) {
                self.say(line);
            }
            self.superior.report(report);
        }
    }

    // ── the agent ──

    /// Takes what the agent says. `true`: the cell is to end.
    fn hear_superior(&mut self) -> bool {
        while let Some(word) = self.superior.hear() {
            match word {
                Word::Away => {
                    self.round_trips_before = self.links.desk().pulse.round_trips;
                    self.say("its agent is away; channels go on without it");
                }
                Word::Order(Order::End, _) => return true,
                Word::Order(Order::Leave, _) => {
                    self.say("ends, to be started anew");
                    std::process::exit(0);
                }
                Word::Order(Order::Ended { cell, killed_at_ns, .. }, _) => {
                    self.notices.agent_said(monotonic_ns(), cell, killed_at_ns);
                }
                Word::Order(Order::Peers { cells }, _) => {
                    self.links.present = cells.into_iter().collect();
                    self.links.open_to_lower();
                }
                Word::Order(Order::Shows { cell, incarnation, pid }, files) => {
                    self.see(CellId(cell), incarnation, pid, files);
                }
                Word::Order(Order::Hints { incarnation }, files) => {
                    let heard = files.first().map(|file| self.heeding.policy(incarnation, file));
                    if let Some(Err(error)) = heard {
                        self.say(format_args!("hints cannot be looked at: {error}"));
                    }
                }
                Word::Order(Order::Tasks { tasks }, _) => self.heeding.tasks(tasks, &self.shown),
                Word::Order(Order::Inject(fault), _) => self.inject(&fault),
                Word::Order(Order::Elsewhere { cells }, _) => self.learn_where(cells),
            }
        }
        false
    }

    /// Fails, as it is told.
    fn inject(&mut self, fault: &Fault) {
        let published = self.shown.published();
        let (links, endpoint) = (&mut self.links, self.group.endpoint());
        let prepared = if self.options.faults {
            faults::prepare(fault, published, self.home.shown(), &self.others)
        } else {
            Err("it was not started to fail".to_owned())
        };
        let (at_ns, refused) = (monotonic_ns(), prepared.as_ref().err().cloned());
        self.superior.report(Report::Injected { at_ns, refused });
        if let Ok(prepared) = prepared {
            journal::write(&self.who, format_args!("fails as it is told: {fault:?}"));
            let alarms_from = &mut self.alarms_from;
            faults::commit(prepared, &mut Means { published, links, group: endpoint, alarms_from });
        }
    }

    fn see(&mut self, cell: CellId, incarnation: u64, process: u32, files: Vec<OwnedFd>) {
        let Some(file) = files.into_iter().next() else { return };
        if let Err(error) = self.others.see(cell, incarnation, process, &file) {
            self.say(format_args!("what {cell} shows cannot be looked at: {error}"));
        }
    }

    /// Where the cells of other hosts are, and which of them are there.
    fn learn_where(&mut self, cells: Vec<CellElsewhere>) {
        for cell in self.missed.hosts(&cells) {
            self.group.told(Notice::Over { node: NodeId(cell), kind: Kind::Buddies });
        }
        let present = cells.iter().filter(|cell| cell.is_up).map(|cell| cell.cell).collect();
        let elsewhere: BTreeMap<u32, String> = cells.into_iter().map(|cell| (cell.cell, cell.host)).collect();
        if elsewhere != self.options.elsewhere {
            let before = std::mem::replace(&mut self.options.elsewhere, elsewhere.clone());
            let gone = before.into_keys().filter(|cell| !elsewhere.contains_key(cell));
            self.missed.expel(gone, |cell| elsewhere.contains_key(&cell));
            let not_here = elsewhere.keys().copied().chain(self.missed.expelled());
            self.containing.learn_where(not_here.map(CellId).collect());
            self.group.learn_where(nodes_elsewhere(&elsewhere));
        }
        self.links.learn_where(elsewhere, present);
        self.links.open_to_lower();
        self.tell_of_lost_hosts();
    }

    /// A cell of another host that neither its own channel nor its host's agent says anything of has failed, as far as this host can
    /// see. It may live all the same: who of the two sides goes on is the group's to decide.
    fn tell_of_lost_hosts(&mut self) {
        let has_no_channel = |life: &Member| self.links.channel(CellId(life.node.0)).is_none();
        let lost: Vec<Member> = self.missed.lives().filter(has_no_channel).collect();
        for Member { node, .. } in lost {
            let kind = Kind::Buddies;
            self.group.told(Notice::Seen { node, kind, confidence: kind.usual_confidence() });
        }
    }

    fn find_superior(&mut self) {
        let away_for = self.superior.away_for();
        let settled = self.links.linked().filter(|cell| !self.unsettled.contains_key(cell));
        let linked = settled.map(|cell| cell.0).collect();
        let hello = Report::Hello {
            cell: self.options.number,
            incarnation: self.options.incarnation,
            linked,
            is_member: self.group.view().is_some(),
        };
        if !self.superior.find(&hello, Some((&Report::Shows, self.shown.file()))) {
            return;
        }
        if let Some(descriptor) = self.superior.descriptor() {
            // A cell that cannot do this hears its agent at the next beat.
            let _ = watch(&self.waking, Waker::Superior, descriptor);
        }
        if let Some(away) = away_for.filter(|_| self.beats > 0) {
            let away = span(u64::try_from(away.as_nanos()).unwrap_or(u64::MAX));
            let beats = self.links.desk().pulse.round_trips - self.round_trips_before;
            self.say(format_args!("its agent is back after {away}; {beats} heartbeats came back meanwhile"));
        }
    }

    // ── the end ──

    /// This cell finds itself wrong: nobody is to read or hear it from now on. (Hive's memory cutoff, Table 8.1)
    fn panic(&mut self, why: &SupervisorError) {
        self.shown.cut_off();
        self.links.cut_all();
        self.say(format_args!("cuts itself off: {why}"));
    }
}

fn join(agent: &Agent, options: &CellOptions) -> Result<Group, GroupError> {
    let elsewhere = nodes_elsewhere(&options.elsewhere);
    let names = Names { process: "cell-".to_owned(), endpoint: GROUP_ENDPOINT.to_owned(), elsewhere };
    let endpoint = EndpointOptions {
        channels: 256,
        events: true,
        looks_after: BETWEEN_LOOKS,
        silence_limit_elsewhere: SILENCE_LIMIT,
        ..EndpointOptions::default()
    };
    let watching = Watching { ping: BETWEEN_PINGS, ..Watching::default() };
    let group = GroupOptions { names, config: Config { watching, ..Config::default() }, endpoint };
    let nodes = |cells: &[u32]| cells.iter().map(|&cell| NodeId(cell)).collect::<Vec<_>>();
    let own = NodeId(options.number);
    match &options.beginning {
        Beginning::Together(cells) => Group::configured(agent, own, &nodes(cells), group),
        Beginning::ComingIn(cells) => Group::joining(agent, own, &nodes(cells), group),
    }
}

fn nodes_elsewhere(elsewhere: &BTreeMap<u32, String>) -> BTreeMap<NodeId, String> {
    elsewhere.iter().map(|(&cell, host)| (NodeId(cell), host.clone())).collect()
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
