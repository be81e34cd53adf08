//! One of the processes of a measured group. It does what it is told on its standard input, a line a task, and answers each with a
//! line of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use comb_group::{Event, Group, GroupOptions, Level, Names, NodeId, Stage};
use comb_net::{Agent, EndpointOptions};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::circles_way::CirclesWay;
use crate::classic_group::ClassicGroup;

/// How often standard input is looked at while nothing comes from the group.
const IDLE_SLEEP: Duration = Duration::from_millis(5);

/// So often a member under load notes how much was delivered to it.
pub(crate) const SPAN_NS: u64 = 10_000_000;

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Submit updates of so many bytes, with so many outstanding at most, and count what is delivered.
    Load {
        seconds: f64,
        bytes: usize,
        outstanding: usize,
    },
    /// Say when a view of so many members is installed, by the clock of all processes.
    AwaitView {
        least: usize,
        most: usize,
    },
    /// Say what was sent so far.
    Count,
    /// From now on, wait so long before each look at what has come.
    Delay {
        milliseconds: f64,
    },
    End,
}

/// How the processes of the measured group are called. The clocks and the kernel are one, but each host has its own agent.
pub(crate) fn names(own: u32, count: u32, hosts: u32) -> Names {
    let here = host_of(own, count, hosts);
    let elsewhere = (0..count).map(|node| (NodeId(node), host_of(node, count, hosts)));
    let elsewhere = elsewhere.filter(|(_, host)| *host != here).map(|(node, host)| (node, host_name(host)));
    Names { process: "member-".to_owned(), endpoint: "group".to_owned(), elsewhere: elsewhere.collect() }
}

/// Members stand on the hosts in the order of their numbers; one more is on the last.
fn host_of(node: u32, count: u32, hosts: u32) -> u32 {
    (node * hosts / count).min(hosts - 1)
}

pub(crate) fn host_name(host: u32) -> String {
    format!("host-{host}")
}

/// What happened to a member, as far as it is measured.
pub(crate) enum Happened {
    /// An update was applied.
    Delivered,
    /// An own update, by the number that it got, is where all will have it.
    Reached(u64),
    /// There is another view, of so many.
    View(usize),
}

/// What a member has sent.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// But for what is sent whatever happens: pings, gossip, heartbeats.
    pub(crate) messages: u64,
    /// Of these, questions that somebody waits for to be answered. Ours has none.
    pub(crate) calls: u64,
}

/// A member of a measured group.
pub(crate) trait Way {
    /// Whether all members are there.
    fn is_whole(&self) -> bool;
    /// Sends an update, or says that it cannot now.
    fn submit(&mut self, body: &[u8]) -> Option<u64>;
    /// Looks at what has come, and says what happened by it.
    fn poll(&mut self, happened: &mut Vec<Happened>);
    /// Waits until something comes.
    fn wait(&mut self, limit: Duration);
    /// Since it began.
    fn counts(&self) -> Counts;
}

/// Ours.
struct OurWay(Group);

/// One of the configured first members, who are as many as `count`; or, after them, one that comes in.
fn ours(agent: &Agent, own: NodeId, count: u32, names: Names) -> Result<Group, Box<dyn std::error::Error>> {
    let mut config = comb_group::Config::default();
    // Channels within a machine take longer messages than a network's packets.
    config.order.longest_message = 8 << 10;
    // Every message wakes a process, and there are more than cores.
    config.order.tell_after = Duration::from_millis(1);
    let options = GroupOptions { names, config, endpoint: EndpointOptions::default() };
    let members: Vec<_> = (0..count).map(NodeId).collect();
    let group = if own.0 < count { Group::configured } else { Group::joining };
    Ok(group(agent, own, &members, options)?)
}

impl Way for OurWay {
    fn is_whole(&self) -> bool {
        self.0.stack().regroup().is_some_and(|regroup| regroup.stage() == Stage::Settled)
    }

    fn submit(&mut self, body: &[u8]) -> Option<u64> {
        self.0.submit(Level::Majority, body).ok()
    }

    fn poll(&mut self, happened: &mut Vec<Happened>) {
        self.0.poll();
        while let Some(event) = self.0.next_event() {
            match event {
                Event::Delivered(_) => happened.push(Happened::Delivered),
                Event::Reached { number, .. } => happened.push(Happened::Reached(number)),
                Event::View(view) => happened.push(Happened::View(view.members.len())),
                // Who has fallen far behind under load goes on from this.
                Event::WantsState => self.0.give_state(b""),
                _ => {}
            }
        }
    }

    fn wait(&mut self, limit: Duration) {
        self.0.wait(limit);
    }

    fn counts(&self) -> Counts {
        Counts { messages: self.0.messages_sent(), calls: 0 }
    }
}

struct Side<W> {
    way: W,
    tasks: Receiver<Task>,
    delay: Duration,
    happened: Vec<Happened>,
}

/// Runs member `number` of `count` until it is told to end: `ours 3 of 32 on 4`, `classic 3 of 32 on 1`. The first members are counted
/// from nought: `ours 32 of 32 on 1` comes in to them.
pub(crate) fn run(room: &Path, told: &str) -> Result<(), Box<dyn std::error::Error>> {
    let [way, number, "of", count, "on", hosts] = told.split(' ').collect::<Vec<_>>()[..] else {
        return Err("which member of how many, on how many hosts?".into());
    };
    let (number, count, hosts): (u32, u32, u32) = (number.parse()?, count.parse()?, hosts.parse()?);
    let (own, names) = (NodeId(number), names(number, count, hosts));
    let agent = room.join(host_name(host_of(number, count, hosts)));
    let agent = Agent::connect(&agent, &names.process(own))?;
    let (tell, tasks) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(task) = serde_json::from_str(&line) else { return };
            if tell.send(task).is_err() {
                return;
            }
        }
    });
    let start_ns = monotonic_ns();
    match way {
        "ours" => Side::new(OurWay(ours(&agent, own, count, names)?), tasks).run(start_ns),
        "circles" => {
            let group = ours(&agent, own, count, names)?;
            Side::new(CirclesWay::new(group, own, count), tasks).run(start_ns)
        }
        "classic" => Side::new(ClassicGroup::new(&agent, own, count, names)?, tasks).run(start_ns),
        _ => Err("neither ours nor classic, and no circles".into()),
    }
}

impl<W: Way> Side<W> {
    fn new(way: W, tasks: Receiver<Task>) -> Self {
        Self { way, tasks, delay: Duration::ZERO, happened: Vec::new() }
    }

    fn run(&mut self, start_ns: u64) -> Result<(), Box<dyn std::error::Error>> {
        while !self.way.is_whole() {
            self.turn(|_| {});
        }
        say(&json!({ "start_ns": start_ns, "view_ns": monotonic_ns() }))?;
        loop {
            match self.tasks.try_recv() {
                Ok(Task::Load { seconds, bytes, outstanding }) => self.load(seconds, bytes, outstanding)?,
                Ok(Task::AwaitView { least, most }) => self.await_view(least..=most)?,
                Ok(Task::Count) => say(&serde_json::to_value(self.way.counts())?)?,
                Ok(Task::Delay { milliseconds }) => self.delay = Duration::from_secs_f64(milliseconds / 1e3),
                Ok(Task::End) | Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::TryRecvError::Empty) => self.turn(|_| {}),
            }
        }
    }

    /// Looks once at what has come; waits for something if nothing has.
    fn turn(&mut self, each: impl FnMut(Happened)) {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        self.way.poll(&mut self.happened);
        if self.happened.is_empty() {
            self.way.wait(IDLE_SLEEP);
        }
        self.happened.drain(..).for_each(each);
    }

    fn load(
        &mut self,
        seconds: f64,
        bytes: usize,
        outstanding: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let (body, limit) = (vec![7; bytes], Duration::from_secs_f64(seconds));
        let (started, start_ns) = (Instant::now(), monotonic_ns());
        let mut sent: BTreeMap<u64, Instant> = BTreeMap::new();
        let (mut latencies, mut delivered, mut view_ns) = (Vec::new(), 0_u64, None);
        let mut spans: Vec<u64> = Vec::new();
        while started.elapsed() < limit {
            while sent.len() < outstanding
                && let Some(number) = self.way.submit(&body)
            {
                sent.insert(number, Instant::now());
            }
            self.turn(|happened| match happened {
                Happened::Delivered => delivered += 1,
                Happened::Reached(number) => {
                    latencies.extend(sent.remove(&number).map(|at| at.elapsed().as_secs_f64() * 1e6));
                }
                Happened::View(_) => view_ns = Some(monotonic_ns()),
            });
            let span = started.elapsed().as_nanos() / u128::from(SPAN_NS);
            spans.resize(usize::try_from(span)?.max(spans.len()), delivered);
        }
        let seconds = started.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        let percentile = |part: usize| latencies.get(latencies.len() * part / 100);
        say(&json!({
            "delivered_per_second": delivered as f64 / seconds,
            "own_per_second": latencies.len() as f64 / seconds,
            "p50_us": percentile(50),
            "p99_us": percentile(99),
            "start_ns": start_ns,
            "view_ns": view_ns,
            "delivered_by_span": spans,
        }))
    }

    fn await_view(&mut self, members: RangeInclusive<usize>) -> Result<(), Box<dyn std::error::Error>> {
        say(&json!({ "waits": true }))?;
        let mut at = None;
        while at.is_none() {
            if let Err(mpsc::TryRecvError::Disconnected) = self.tasks.try_recv() {
                return Err("who asked is gone".into());
            }
            self.turn(|happened| {
                if let Happened::View(here) = happened
                    && members.contains(&here)
                {
                    at = Some(monotonic_ns());
                }
            });
        }
        say(&json!({ "view_ns": at }))
    }
}

/// The clock that all processes of a machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(time).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn say(line: &serde_json::Value) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
