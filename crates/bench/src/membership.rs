//! `comb bench membership`: who is up and what was agreed, beside peers and the classic way.
//!
//! Ordered update and the death of a member are measured with as many processes as a group has members, over channels of this
//! machine. Failure detection at scale is measured in the seeded world, where time is virtual: its numbers do not depend on the
//! machine, and a run with the same seed gives the same.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use comb_membership::scenario::Failure;
use comb_membership::scenario::gossip::{self, Measured, Trial};
use comb_membership::scenario::mscs::figures::{self, Parameters};
use comb_membership::scenario::mscs::load::Load;
use comb_membership::scenario::mscs::ours::{self, Timers};
use comb_net::agent::Server;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::between_hosts;
use crate::circles_way::CIRCLES;
use crate::coming_in;
use crate::farm::{self, Farm, View};
use crate::gossip_peers;
use crate::group_side::{Counts, Task, monotonic_ns};
use crate::net::median;
use crate::report::{Goal, Row, print};
use crate::room::Room;
use crate::write_gap;

const MEMBERS: u32 = 32;
const UPDATE_BYTES: usize = 64;
/// Updates of one sender that are under way when all send as fast as they can.
pub(crate) const OUTSTANDING: usize = 256;
const SECONDS: f64 = 1.5;
/// Between two measurements.
const REST: Duration = Duration::from_millis(500);
/// So long nothing happens.
const QUIET: Duration = Duration::from_secs(1);
/// Whatever a member was told, it has something to say by then, or nobody would ever know.
const LONGEST_SILENCE: Duration = Duration::from_secs(120);
/// A measurement that begins later would not end in time.
const LAST_BEGINS: Duration = Duration::from_secs(35);
/// Nodes of a world.
const SMALL: u32 = 64;
const LARGE: u32 = 1000;
const LARGEST: u32 = 10_000;

const NOTES: &str = "\
Processes: 32 on this machine's cores, all asleep unless something comes. An update is delivered when a majority holds it; the rate
is that of one member's deliveries, the median of all. Latency is from submission until the sender knows that a majority holds it.
Classic: MSCS's global update, with calls over the same channels and no other cost than theirs; the thesis's numbers come from
calls of 3-5 ms each. corosync: its process groups, a daemon for each node in a namespace of its own, as many nodes as ours has processes.
Write gap (--full): the longest time between two acknowledged writes around the end of a replica of three, for one client that goes to the next
replica on an error or after a second; ours in memory, etcd on a disk as it comes, and in memory with times as short as its manual allows.
Of a host: each replica is in a network namespace of its own, with an agent; a dead host is one whose cables are cut before all in it is
killed, and who is cut off is still reached by clients. No kernel says anything of either.
4 hosts: as many agents on this machine, sealed UDP over its loopback between their processes; a silent host is one whose processes are stopped.
31 processes: those that are left of the 32 when one was killed.
foca, chitchat (--full): libraries, in comb-sim's world as ours is. serf (--full): agents of this machine on loopback, in real time.
Virtual: comb-sim's world; messages take 100 to 200 µs. Not measured: real networks, members with work of their own.";

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The processes of one group.
pub(crate) struct Members {
    pub(crate) members: Vec<Member>,
    /// Whose protocols they speak.
    pub(crate) way: &'static str,
    _agents: Vec<Server>,
    pub(crate) room: Room,
}

pub(crate) struct Member {
    process: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both fail for one that has ended, which is as well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Member {
    fn tell(&mut self, task: &Task) -> std::io::Result<()> {
        writeln!(self.tell, "{}", serde_json::to_string(task).expect("plain data"))
    }

    /// It stands still, and nobody is told.
    pub(crate) fn stop(&self) -> Outcome<()> {
        let process = rustix::process::Pid::from_child(&self.process);
        Ok(rustix::process::kill_process(process, rustix::process::Signal::STOP)?)
    }

    pub(crate) fn hear(&mut self) -> Outcome<Value> {
        self.hear_within(LONGEST_SILENCE)?.ok_or_else(|| "a member does not answer".into())
    }

    /// None if it says nothing for so long.
    pub(crate) fn hear_within(&mut self, limit: Duration) -> Outcome<Option<Value>> {
        if self.hear.buffer().is_empty() {
            let mut sources = [PollFd::new(self.hear.get_ref(), PollFlags::IN)];
            if poll(&mut sources, Some(&Timespec::try_from(limit)?))? == 0 {
                return Ok(None);
            }
        }
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        Ok(Some(serde_json::from_str(&line)?))
    }
}

/// What a load came to.
pub(crate) struct Loaded {
    /// Delivered to a member in a second, the median of the members.
    pub(crate) per_second: f64,
    /// Of its own that each sender brought through in a second.
    own_per_second: Vec<f64>,
    /// Of the senders, the median: microseconds.
    pub(crate) p50_us: Option<f64>,
    p99_us: Option<f64>,
}

impl Members {
    pub(crate) fn start(way: &'static str, count: u32) -> Outcome<Self> {
        Self::start_on(way, count, 1)
    }

    pub(crate) fn start_on(way: &'static str, count: u32, hosts: u32) -> Outcome<Self> {
        let room = Room::create()?;
        let agents = between_hosts::agents(room.path(), hosts)?;
        let mut members = Vec::new();
        for number in 0..count {
            members.push(start_member(room.path(), &format!("{way} {number} of {count} on {hosts}"))?);
        }
        let mut members = Self { members, way, _agents: agents, room };
        members.hear()?;
        Ok(members)
    }

    pub(crate) fn tell(&mut self, task: &Task) -> std::io::Result<()> {
        self.members.iter_mut().try_for_each(|member| member.tell(task))
    }

    pub(crate) fn hear(&mut self) -> Outcome<Vec<Value>> {
        self.members.iter_mut().map(Member::hear).collect()
    }

    pub(crate) fn end(mut self) -> Outcome<()> {
        Ok(self.tell(&Task::End)?)
    }

    /// The last so many members send. The first, which orders updates, sends only if all do. What was begun before is over then: those that
    /// have just started hold each other up, and so do those that have fallen behind.
    fn load(&mut self, senders: usize, outstanding: usize) -> Outcome<Loaded> {
        std::thread::sleep(REST);
        self.load_for(senders, outstanding, SECONDS)
    }

    pub(crate) fn load_for(&mut self, senders: usize, outstanding: usize, seconds: f64) -> Outcome<Loaded> {
        let silent = self.members.len() - senders;
        self.tell_load(silent, outstanding, seconds)?;
        let heard = self.hear()?;
        let all = |field: &str, from: usize| -> Vec<f64> {
            heard[from..].iter().filter_map(|line| line[field].as_f64()).collect()
        };
        Ok(Loaded {
            per_second: median(&all("delivered_per_second", 0)).unwrap_or_default(),
            own_per_second: all("own_per_second", silent),
            p50_us: median(&all("p50_us", silent)),
            p99_us: median(&all("p99_us", silent)),
        })
    }

    pub(crate) fn tell_load(
        &mut self,
        silent: usize,
        outstanding: usize,
        seconds: f64,
    ) -> std::io::Result<()> {
        for (number, member) in self.members.iter_mut().enumerate() {
            let outstanding = if number >= silent { outstanding } else { 0 };
            member.tell(&Task::Load { seconds, bytes: UPDATE_BYTES, outstanding })?;
        }
        Ok(())
    }

    /// What each has sent so far.
    pub(crate) fn counts_of_each(&mut self) -> Outcome<Vec<Counts>> {
        self.tell(&Task::Count)?;
        let said = self.hear()?.into_iter();
        Ok(said.map(serde_json::from_value).collect::<Result<_, _>>()?)
    }

    /// Kills a member, and says how long it took until the last other one had the next view, in milliseconds.
    pub(crate) fn kill_one(&mut self) -> Outcome<f64> {
        self.tell(&Task::AwaitView { least: 0, most: self.members.len() - 1 })?;
        self.hear()?;
        let mut victim = self.members.remove(self.members.len() / 2);
        let at = monotonic_ns();
        victim.process.kill()?;
        let views = self.hear()?;
        let last = views.iter().filter_map(|view| view["view_ns"].as_u64()).max().ok_or("no view came")?;
        Ok(last.saturating_sub(at) as f64 / 1e6)
    }
}

pub(crate) fn start_member(room: &Path, told: &str) -> Outcome<Member> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["bench-side", "group", "--answer"])
        .arg(room)
        .arg(told)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (tell, hear) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
    Ok(Member { process, tell, hear: BufReader::new(hear) })
}

/// Runs the benchmark and prints its table.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let mut bench = Bench { rows: Vec::new(), started: Instant::now(), full, json };
    bench.ordered_update()?;
    bench.circles()?;
    bench.between_hosts()?;
    bench.classic()?;
    bench.join()?;
    bench.corosync()?;
    if full {
        bench.write_gap();
        bench.detection_and_classic_death()?;
        gossip_peers::compare(&mut bench)?;
        bench.write_gap_of_hosts();
    } else {
        bench.detection()?;
    }
    if !json {
        eprint!("\r{:60}\r", "");
    }
    print(&bench.rows, json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

pub(crate) struct Bench {
    rows: Vec<Row>,
    started: Instant,
    full: bool,
    json: bool,
}

impl Bench {
    pub(crate) fn says(&self, what: &str) {
        if !self.json {
            eprint!("\r{what:60}");
        }
    }

    /// Ours beside a number that was set as the goal.
    fn set(&mut self, claim: &str, ours: Option<f64>, unit: &'static str, limit: f64, is_least: bool) {
        let goal = if is_least { Goal::AtLeast(1.0) } else { Goal::AtMost(1.0) };
        // What must never happen at all has no ratio but that of having not.
        let ratio = ours.map(|ours| if limit == 0.0 { 1.0 + ours } else { ours / limit });
        self.rows.push(Row {
            claim: claim.to_owned(),
            ours,
            unit,
            peer: "the goal".to_owned(),
            theirs: Some(limit),
            ratio,
            goal,
            note: String::new(),
        });
    }

    /// Ours beside somebody else's, for the record: how many times better.
    fn beside(&mut self, claim: &str, both: (Option<f64>, Option<f64>), unit: &'static str, peer: &str) {
        let is_missing = both.1.is_none() && peer != NOBODY;
        let note = if is_missing { "not measured: make setup-bench" } else { "" };
        self.for_the_record(claim, both, unit, peer, note.to_owned());
    }

    /// The same, where more is to be said.
    pub(crate) fn for_the_record(
        &mut self,
        claim: &str,
        (ours, theirs): (Option<f64>, Option<f64>),
        unit: &'static str,
        peer: &str,
        note: String,
    ) {
        let both = ours.zip(theirs);
        let ratio = both.map(|(ours, theirs)| if unit == "1/s" { ours / theirs } else { theirs / ours });
        self.rows.push(Row {
            claim: claim.to_owned(),
            ours,
            unit,
            peer: peer.to_owned(),
            theirs,
            // Nothing beside nothing, or beside never.
            ratio: ratio.filter(|ratio| ratio.is_finite()),
            goal: Goal::None,
            note,
        });
    }

    /// What each try took, where one that was not in while there was load took for ever: the median, and whether all came in.
    fn set_coming_in(&mut self, claim: &str, tries_ms: &[Option<f64>]) {
        let in_time: Vec<f64> = tries_ms.iter().copied().flatten().collect();
        self.set(claim, Some(in_time.len() as f64), "ms", tries_ms.len() as f64, true);
        if let Some(row) = self.rows.last_mut() {
            let all: Vec<f64> = tries_ms.iter().map(|took| took.unwrap_or(f64::INFINITY)).collect();
            (row.ours, row.theirs) = (median(&all).filter(|took| took.is_finite()), None);
            row.note = format!("{} of {} came in; the time has no goal", in_time.len(), tries_ms.len());
        }
    }

    /// Until the last observer has learnt of a crash. One that somebody never learns of has failed the goal, whatever it is.
    fn set_learning(&mut self, claim: &str, measured: &Measured, limit_s: f64) {
        let last = measured.last_learns.map(|span| span.as_secs_f64());
        self.set(claim, last, "s virtual", limit_s, false);
        if let Some(row) = self.rows.last_mut().filter(|_| last.is_none()) {
            row.ratio = Some(f64::INFINITY);
            row.note = format!("{} crashes were not learnt of by all", measured.missed);
        }
    }

    fn found(&self, claim: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.claim == claim).and_then(|row| row.ours)
    }

    fn ordered_update(&mut self) -> Outcome<()> {
        self.says("ours: 32 processes");
        let mut members = Members::start("ours", MEMBERS)?;
        let all = members.load(MEMBERS as usize, OUTSTANDING)?;
        self.set(RATE, Some(all.per_second), "1/s", 25_000.0, true);
        let one = members.load(1, 1)?;
        self.set(LATENCY, one.p50_us, "µs", 700.0, false);
        self.beside("… 99 of 100", (one.p99_us, None), "µs", NOBODY);
        let each = members.load(MEMBERS as usize, 1)?;
        self.set(
            "32 senders, one outstanding each: all together",
            Some(each.per_second),
            "1/s",
            2_000.0,
            true,
        );
        let least = each.own_per_second.iter().copied().reduce(f64::min);
        let middle = median(&each.own_per_second);
        let share = least.zip(middle).map(|(least, middle)| least / middle);
        self.set("… the least of them, over the median", share, "", 0.25, true);
        let last = members.kill_one()?;
        self.set(DEATH, Some(last), "ms", 20.0, false);
        members.tell(&Task::Delay { milliseconds: 3.0 })?;
        let delayed = members.load(MEMBERS as usize - 1, OUTSTANDING)?;
        self.set("31 processes, 3 ms of delay at each", Some(delayed.per_second), "1/s", 1_000.0, true);
        members.end()
    }

    /// Small groups on the large one: what they cost while nothing happens, and when somebody dies.
    fn circles(&mut self) -> Outcome<()> {
        self.says("ours: thousands of circles on 32 processes");
        let mut members = Members::start("circles", MEMBERS)?;
        // Each has answered when it had all of its circles, and others may have had something to say to the last.
        std::thread::sleep(QUIET);
        let sent = |counts: Vec<Counts>| counts.iter().map(|counts| counts.messages).sum::<u64>();
        let before = sent(members.counts_of_each()?);
        std::thread::sleep(QUIET);
        let meanwhile = sent(members.counts_of_each()?) - before;
        let claim = format!("{CIRCLES} circles on 32 processes: their messages in a second of quiet");
        self.set(&claim, Some(meanwhile as f64), "", 0.0, false);
        let last = members.kill_one()?;
        let claim = "… kill -9 of a member: all have the view, and a notice for each circle that it was in";
        self.set(claim, Some(last), "ms", 100.0, false);
        members.end()
    }

    fn between_hosts(&mut self) -> Outcome<()> {
        self.says("ours: 32 processes on 4 hosts");
        let measured = between_hosts::measure(MEMBERS)?;
        let rate = Some(measured.updates_per_second);
        self.beside("4 hosts: ordered updates of 64 B, all together", (rate, None), "1/s", NOBODY);
        let death = Some(measured.death_ms);
        self.set("4 hosts: kill -9 of a member: all others have the next view", death, "ms", 2000.0, false);
        let silence = Some(measured.silence_ms);
        self.set(SILENCE, silence, "ms", 2000.0, false);
        Ok(())
    }

    fn classic(&mut self) -> Outcome<()> {
        self.says("the classic way: 32 processes");
        let mut members = Members::start("classic", MEMBERS)?;
        let all = members.load(MEMBERS as usize, 1)?;
        self.beside(
            "… beside the classic way",
            (self.found(RATE), Some(all.per_second)),
            "1/s",
            "MSCS's global update",
        );
        let one = members.load(1, 1)?;
        self.beside("one update beside it", (self.found(LATENCY), one.p50_us), "µs", "MSCS's global update");
        members.end()
    }

    /// The last process comes in to all others.
    fn join(&mut self) -> Outcome<()> {
        self.says("ours: the last of 32 processes comes in");
        let came = coming_in::measure(MEMBERS - 1, if self.full { 5 } else { 1 })?;
        let mut group = Members::start("classic", MEMBERS - 1)?;
        let (start, end) = group.let_in_idle()?;
        group.end()?;
        let classic_ms = end.saturating_sub(start) as f64 / 1e6;
        let parameters = Parameters { nodes: MEMBERS, load: Load::Idle, seed: 1 };
        let classic = figures::join(parameters)?.total.map(|total| total.as_secs_f64() * 1e3);
        self.set(JOIN, came.idle_ms, "ms", 50.0, false);
        self.beside("… beside the classic way", (came.idle_ms, Some(classic_ms)), "ms", "MSCS's join");
        let claim = "… beside it where a call takes 3-5 ms, virtual";
        self.beside(claim, (came.idle_ms, classic), "ms", "MSCS's join");
        // One round more fetches the state.
        let rounds = ours::join(parameters, Timers::Own)?.rounds - 1;
        self.set("… rounds of the joiner, the state's apart, virtual", Some(rounds.into()), "", 4.0, false);
        self.set_coming_in("… under full load, in every try", &came.loaded_ms);
        let claim = "… updates a second meanwhile, over those before";
        self.beside(claim, (came.share_under_load, None), "", NOBODY);
        Ok(())
    }

    /// Both with as many processes.
    fn corosync(&mut self) -> Outcome<()> {
        let nodes: u32 = if self.full { MEMBERS } else { 4 };
        let (rate, latency, death) = if nodes == MEMBERS {
            (self.found(RATE), self.found(LATENCY), self.found(DEATH))
        } else {
            self.says("ours, as many as corosync has nodes");
            let mut members = Members::start("ours", nodes)?;
            let all = members.load(nodes as usize, OUTSTANDING)?;
            let one = members.load(1, 1)?;
            let death = members.kill_one()?;
            members.end()?;
            (Some(all.per_second), one.p50_us, Some(death))
        };
        let silence = self.found(SILENCE);
        self.says("corosync");
        let brief = if self.full { &[][..] } else { &["brief"] };
        let lines = peer_lines(&[&["corosync", &nodes.to_string()], brief].concat());
        let of = |what: &str| {
            let is_it = |line: &&Value| line["what"] == what && line["nodes"] == nodes;
            lines.iter().find(is_it).and_then(|line| line["value"].as_f64())
        };
        let peer = format!("corosync, {nodes} nodes");
        // What went wrong after some numbers were had is said of the others.
        let reasons = lines.iter().filter(|line| line["nodes"] == nodes || line["nodes"].is_null());
        let reason = reasons.filter_map(|line| line["missing"].as_str()).next_back();
        let reason = reason.unwrap_or("not measured: make setup-bench");
        let mut row = |what: &str, ours: Option<f64>, theirs: Option<f64>, unit| {
            let note = if theirs.is_none() { reason } else { "" };
            let claim = format!("{nodes} processes: {what}");
            self.for_the_record(&claim, (ours, theirs), unit, &peer, note.to_owned());
        };
        row("ordered updates of 64 B, all together", rate, of("ordered_messages_per_second"), "1/s");
        row("one update", latency, of("ordered_latency_p50_us"), "µs");
        row("a process's death", death, of("process_death_seconds").map(|seconds| seconds * 1e3), "ms");
        if !self.full {
            return Ok(());
        }
        let claim = format!("4 hosts: a host's death, by silence alone; of corosync, one of {nodes}");
        let theirs = of("node_death_seconds").map(|seconds| seconds * 1e3);
        let note = if theirs.is_none() { reason } else { "its timeout grows with the nodes" };
        self.for_the_record(&claim, (silence, theirs), "ms", &peer, note.to_owned());
        Ok(())
    }

    fn write_gap(&mut self) {
        self.says("three replicas that are killed");
        self.gaps(write_gap::compare(self.full));
    }

    /// Last, for silence takes its time.
    fn write_gap_of_hosts(&mut self) {
        self.says("three replicas whose hosts die or are cut off");
        self.gaps(write_gap::compare_hosts(self.full));
    }

    fn gaps(&mut self, gaps: Vec<write_gap::Gap>) {
        for gap in gaps {
            self.beside(&gap.claim, (gap.ours_ms, gap.theirs_ms), "ms", gap.peer);
            if let (Some(row), Some(missing)) = (self.rows.last_mut(), gap.missing) {
                row.note = missing;
            }
        }
    }

    /// The classic way takes ten seconds to miss a member, most of them silence: the world has the processor meanwhile.
    fn detection_and_classic_death(&mut self) -> Outcome<()> {
        let classic = || {
            let mut members = Members::start("classic", MEMBERS)?;
            let last = members.kill_one()?;
            members.end()?;
            Ok(last)
        };
        std::thread::scope(|scope| {
            let death =
                scope.spawn(|| classic().map_err(|error: Box<dyn std::error::Error>| error.to_string()));
            self.detection()?;
            let death = death.join().map_err(|_| "the classic way's death was not measured")??;
            self.beside("a death beside it", (self.found(DEATH), Some(death)), "ms", "MSCS's regroup");
            Ok(())
        })
    }

    fn detection(&mut self) -> Outcome<()> {
        let small = self.farm("64 nodes", Trial::quiet(1, SMALL))?;
        let storm = Trial { lost_per_million: 750_000, ..Trial::quiet(1, SMALL) };
        let storm = self.farm("64 nodes, 75% loss", storm)?;
        self.set("64 nodes, 75% loss: false failures", Some(f64::from(storm.false_failures)), "", 0.0, false);
        self.set_learning("… last observer learns of a crash", &storm, 30.0);
        let half = Duration::from_secs(5);
        let stutter = Trial { stutter: Some((half, half)), crashes: 0, ..Trial::quiet(1, SMALL) };
        let stutter = self.farm("64 nodes, half of them stutter", stutter)?;
        let claim = "half of the nodes paused half of the time: healthy ones falsely failed";
        self.set(claim, Some(f64::from(stutter.false_failures)), "", 0.0, false);
        let large = self.farm("1,000 nodes", Trial::quiet(1, LARGE))?;
        self.set_learning("1,000 nodes: last observer learns of a crash", &large, 8.0);
        self.set("… traffic of a node", Some(large.mean_bytes), "B/s", 5000.0, false);
        if self.started.elapsed() < LAST_BEGINS || self.full {
            let lasting = Duration::from_secs(if self.full { 3600 } else { 120 });
            let lossy = Trial { lost_per_million: 250_000, lasting, crashes: 0, ..Trial::quiet(1, LARGE) };
            let lossy = self.farm("1,000 nodes, 25% loss", lossy)?;
            let claim =
                format!("1,000 nodes, 25% loss, {} virtual minutes: false failures", lasting.as_secs() / 60);
            self.set(&claim, Some(f64::from(lossy.false_failures)), "", 0.0, false);
        }
        if !self.full {
            return Ok(());
        }
        self.says("10,000 nodes");
        let Farm { measured: largest, real_s, resident_bytes_a_node, .. } =
            farm::elsewhere(farm::WORLD, LARGEST)?;
        self.set_learning("10,000 nodes: last observer learns of a crash", &largest, 12.0);
        self.set("… two virtual minutes take", Some(real_s), "s", 60.0, false);
        self.set(
            "… the world's process holds, by the nodes in it",
            Some(resident_bytes_a_node),
            "B",
            1e6,
            false,
        );
        self.set("… a node's state, as it counts itself", Some(largest.memory_bytes), "B", 4e6, false);
        self.says("a process that knows 10,000 nodes");
        let view: View = farm::elsewhere(farm::VIEW, LARGEST)?;
        self.set("… a process with such a view, over one that is alone", Some(view.bytes), "B", 4e6, false);
        let rates = [small.mean_bytes, large.mean_bytes, largest.mean_bytes];
        let (least, most) =
            (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        self.set(
            "traffic of a node, 64 to 10,000 nodes: most over least",
            Some(most / least),
            "",
            1.5,
            false,
        );
        Ok(())
    }

    fn farm(&self, what: &str, trial: Trial) -> Result<Measured, Failure> {
        self.says(what);
        gossip::measure(trial, None, None)
    }
}

/// For the record, beside nobody's.
const NOBODY: &str = "–";
const RATE: &str = "32 processes: ordered updates of 64 B, all together";
const LATENCY: &str = "one sender, one outstanding: until a majority holds it, p50";
const JOIN: &str = "the 32nd process comes in: everybody has the view with it";
const SILENCE: &str = "4 hosts: one falls silent: all others have the next view";
const DEATH: &str = "kill -9 of a member: all others have the next view";

/// What a peer's program prints. Nothing, where it is not there.
pub(crate) fn peer_lines(arguments: &[&str]) -> Vec<Value> {
    let Some(folder) = crate::program::peers_folder() else { return Vec::new() };
    let output = Command::new(folder.join("membership.sh")).args(arguments).stdin(Stdio::null()).output();
    let Ok(output) = output else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(tell: impl FnOnce(&mut Bench)) -> (Option<bool>, String) {
        let mut bench = Bench { rows: Vec::new(), started: Instant::now(), full: false, json: true };
        tell(&mut bench);
        let row = bench.rows.last().expect("it told of something");
        (row.met(), row.note.clone())
    }

    /// Such a row said 0 s, and that this was met.
    #[test]
    fn a_crash_that_nobody_learnt_of_is_not_met() {
        let learns = |lasting| {
            let trial = Trial { lasting: Duration::from_secs(lasting), ..Trial::quiet(1, 8) };
            let measured = gossip::measure(trial, None, None).expect("only counted");
            met(|bench| bench.set_learning("a crash", &measured, 30.0))
        };
        assert_eq!(learns(60), (Some(true), String::new()));
        let (met, why) = learns(4);
        assert_eq!(met, Some(false), "two seconds are too short for anybody");
        assert!(why.contains("not learnt of"), "{why}");
    }

    #[test]
    fn one_join_of_several_that_was_not_done_is_not_met() {
        let tries = |tries: &[Option<f64>]| met(|bench| bench.set_coming_in("a join", tries)).0;
        assert_eq!(tries(&[Some(40.0), Some(2000.0)]), Some(true));
        assert_eq!(tries(&[Some(40.0), None, Some(50.0)]), Some(false));
        assert_eq!(tries(&[None]), Some(false));
    }
}
