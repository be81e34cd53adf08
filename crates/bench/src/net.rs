//! `comb bench net`: the wire beside its peers.
//!
//! All programs run in turn, round after round, in one invocation. Before and after each the bare ping-pong is taken:
//! it says how near the two cores are (see `cores.rs`), and a program during which that changed is not counted, ours
//! no more than a peer's. Only numbers of one placement are compared; each program is run in the one that it has fewer
//! numbers of, if that can be had.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cores::{Cores, NEAR_BELOW_NS, Placement};
use crate::program::{Missing, Priority, Sample};
use crate::report::{Goal, Row, print};

const ROUNDS: u32 = 5;
const FULL_ROUNDS: u32 = 20;
/// A program that would not end within this, going by its last run, is not begun.
const TIME_LIMIT: Duration = Duration::from_secs(43);
/// How much of a round may go into having the cores as they are wanted.
const SEEKING: Duration = Duration::from_secs(5);

/// Ours, for which it matters how near the cores are.
const PLACED: [&str; 4] = ["comb", "stream", "trapping", "layers"];
/// Ours that compare what they measure themselves, and that do without real-time priority: the kernel's own threads, or
/// more processes than there are cores, have to run as well.
const ANYWHERE: [&str; 4] = ["loopback", "veth", "idle", "hot_spot"];
/// Several times what any of ours takes: beside other load the ways through the kernel need it. Peers have as long.
const LIMIT_S: u32 = 20;

const PEERS: [&str; 7] = ["openmpi", "ucx", "libfabric", "iceoryx2", "unix", "udp", "tcp"];

const NOTES: &str = "\
Bandwidth: over channels made for it (Geometry::STREAM), which hold up to 4 MB once they have streamed; the row below each is
of the usual ones, which hold less than 64 KB. All other rows are of the usual ones.
One of 1000 channels: rings of 8 slots and no payload area, so that they fit in the cache as far as they can; the single
channel has the usual ones. UDP transport: frames as they are, which can be lost; what a channel between hosts has is the
row with go-back-N.
Idle channel: what both processes and the agent hold, by the channel; not what the kernel keeps for it.
Eight senders: processes on one core, the receiver on the other, which works 20 µs for each message, so that rings stay full
and the shares are our service. A receiver without work waits for them: then the shares are the kernel's scheduling.
Uninvolved flow: beside a refused flow of the same endpoint into a hot spot that eight processes overrun, by blocks without
offers to it. What processes lose to each other by sharing cores is in neither.";

/// "The best peer" is the best of all only if these were measured.
const STRONG_PEERS: [&str; 3] = ["openmpi", "ucx", "iceoryx2"];

/// Placement (none for [`ANYWHERE`]), program, test, length.
type Key = (Option<Placement>, String, String, u64);
type Values = BTreeMap<Key, Vec<f64>>;

/// All that was measured.
#[derive(Default)]
struct Measured {
    values: Values,
    /// Of our own programs: the value over the bare round trip taken right before it, or over what the program itself
    /// measured beside it.
    ratios: Values,
    missing: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    moved: u32,
    /// How long each program took when it last ran.
    took: BTreeMap<&'static str, Duration>,
}

/// Runs the benchmark and prints its table.
pub fn run(full: bool, json: bool) {
    let mut cores = Cores::new(Priority::highest_allowed());
    let mut measured = Measured::default();
    let (rounds, limit) = if full { (FULL_ROUNDS, None) } else { (ROUNDS, Some(TIME_LIMIT)) };
    let started = Instant::now();
    for round in 1..=rounds {
        measured.round(&mut cores, round, |name, took| {
            let fits = limit.is_none_or(|limit| started.elapsed() + took < limit);
            if fits && !json {
                eprint!("\rround {round} of up to {rounds}: {name:20}");
            }
            fits
        });
    }
    if !json {
        eprint!("\r{:60}\r", "");
        println!(
            "Two processes on cores 0 and 1, {}; {} runs of a program discarded, in whole or in part, because the cores moved.\n\
             near: bare ping-pong below {NEAR_BELOW_NS} ns; far: above. Medians over the rounds.\n",
            cores.priority().describe(),
            measured.moved
        );
    }
    print(&measured.rows(), json);
    if !json {
        println!("{NOTES}\n{}", measured.versions_line());
    }
}

impl Measured {
    /// Runs every program once that `may` begin, which is told how long it took the last time.
    fn round(&mut self, cores: &mut Cores, round: u32, may: impl Fn(&str, Duration) -> bool) {
        let mut seeking = SEEKING;
        for name in PLACED.into_iter().chain(PEERS) {
            if self.missing.contains_key(name) || !may(name, self.last_took(name)) {
                continue;
            }
            let started = Instant::now();
            if let Some(wanted) = self.lacking(name) {
                seeking = seeking.saturating_sub(cores.seek(wanted, seeking));
            }
            let before = cores.bare_ns();
            let priority = cores.priority();
            let outcome =
                if PLACED.contains(&name) { priority.ours(name, LIMIT_S) } else { priority.peer(name) };
            self.take(outcome, before, cores.look());
            self.took.insert(name, started.elapsed());
        }
        // These have all their numbers at once; what a channel holds, and how senders share, hardly changes.
        let is_due = |name: &&str| match *name {
            "idle" | "hot_spot" => round % 10 == 2,
            _ => round.is_multiple_of(2),
        };
        for name in ANYWHERE.into_iter().filter(is_due) {
            if self.missing.contains_key(name) || !may(name, self.last_took(name)) {
                continue;
            }
            let started = Instant::now();
            self.take(priority_anywhere(name).ours(name, LIMIT_S), None, None);
            self.took.insert(name, started.elapsed());
        }
    }

    fn last_took(&self, name: &str) -> Duration {
        self.took.get(name).copied().unwrap_or_default()
    }

    /// The placement that there are fewer numbers of; none if there are as many of both.
    fn lacking(&self, name: &str) -> Option<Placement> {
        let of = |placement| {
            let values = self.values.iter().filter(|(key, _)| key.0 == Some(placement) && key.1 == name);
            values.map(|(_, values)| values.len()).max().unwrap_or(0)
        };
        match of(Placement::Far).cmp(&of(Placement::Near)) {
            Ordering::Less => Some(Placement::Far),
            Ordering::Greater => Some(Placement::Near),
            Ordering::Equal => None,
        }
    }

    fn take(&mut self, outcome: Result<Vec<Sample>, Missing>, before: Option<f64>, after: Option<f64>) {
        let samples = match outcome {
            Ok(samples) => samples,
            Err(Missing { peer, reason }) => {
                self.missing.insert(peer, reason);
                return;
            }
        };
        let mut discarded = false;
        for sample in samples {
            self.versions.insert(sample.peer.clone(), sample.version.clone());
            // Ours take the bare ping-pong themselves, too: it must say the same.
            let own = sample.bare_ns.or(before);
            let placement = match (own, before, after) {
                _ if sample.beside.is_some() => None,
                (Some(own), Some(before), Some(after))
                    if [before, after].into_iter().all(|bare| Placement::of(bare) == Placement::of(own)) =>
                {
                    Some(Placement::of(own))
                }
                _ => {
                    discarded = true;
                    continue;
                }
            };
            let key = (placement, sample.peer, sample.test, sample.bytes);
            if let Some(under) = sample.beside.or(sample.bare_ns) {
                self.ratios.entry(key.clone()).or_default().push(sample.value / under);
            }
            self.values.entry(key).or_default().push(sample.value);
        }
        self.moved += u32::from(discarded);
    }

    fn value(&self, placement: Placement, peer: &str, test: &str, bytes: u64) -> Option<f64> {
        median(self.values.get(&(Some(placement), peer.to_owned(), test.to_owned(), bytes))?)
    }

    fn rows(&self) -> Vec<Row> {
        let placed =
            [Placement::Far, Placement::Near].into_iter().flat_map(|placement| self.rows_of(placement));
        placed.chain(self.rows_between_hosts()).chain(self.rows_of_many()).collect()
    }

    /// Ways through the kernel: how near the cores are hardly matters.
    fn rows_between_hosts(&self) -> Vec<Row> {
        let row = |claim: &str, program: &str, test: &str, peer: &str, goal| {
            self.compared((None, program, test, 32), claim, "ns", peer, goal)
        };
        let (raw, udp) = ("raw spinning UDP", "UDP, a cable alike");
        vec![
            row("UDP transport, unencrypted", "loopback", "udp", raw, Goal::AtMost(1.1)),
            row("UDP transport, AES-256-GCM", "loopback", "udp_aes", raw, Goal::None),
            row("UDP transport, ChaCha20-Poly1305", "loopback", "udp_chacha", raw, Goal::None),
            row("UDP, AES-256-GCM and go-back-N", "loopback", "udp_reliable", raw, Goal::None),
            row("AF_XDP over veth, unencrypted", "veth", "xdp", udp, Goal::AtMost(0.6)),
            row("AF_XDP over veth, AES-256-GCM", "veth", "xdp_aes", udp, Goal::None),
        ]
    }

    /// Many channels, and many senders. See [`crate::idle`] and [`crate::hot_spot`].
    fn rows_of_many(&self) -> Vec<Row> {
        let held =
            |claim: &str, test: &str, goal| self.compared((None, "idle", test, 0), claim, "B", "64 KB", goal);
        let eight = |claim: &str, (test, bytes), unit, peer: &str, goal| {
            let mut row = self.compared((None, "hot_spot", test, bytes), claim, unit, peer, goal);
            let looks = (None, "hot_spot".to_owned(), format!("{test}_empty"), 64);
            if let Some(empty) = self.ratios.get(&looks).and_then(|ratios| median(ratios)) {
                row.note = format!("a ring was empty at {:.0}% of the looks", empty * 100.0);
            }
            row
        };
        let (fastest, others) = ("the most served", "median of the seven");
        vec![
            held("idle channel, every page touched", "longest", Goal::AtMost(1.0)),
            held("idle channel after 1,000 messages of 8 B", "small", Goal::None),
            eight("eight senders: the least served", ("even", 64), "1/s", fastest, Goal::AtLeast(0.8)),
            eight("all eight together", ("even_all", 64), "1/s", "the work alone", Goal::None),
            eight("the least served, receiver without work", ("unpaced", 64), "1/s", fastest, Goal::None),
            eight("one sends 4 KB, seven 64 B: messages", ("unequal", 4096), "1/s", others, Goal::None),
            eight("one sends 4 KB, seven 64 B: bytes", ("unequal_bytes", 4096), "B/s", others, Goal::None),
            eight("uninvolved flow", ("uninvolved", 64), "1/s", "without congestion", Goal::AtLeast(0.9)),
        ]
    }

    fn rows_of(&self, placement: Placement) -> Vec<Row> {
        let mut rows = Vec::new();
        let bare_goal = match placement {
            Placement::Far => 1.2,
            Placement::Near => 1.7,
        };
        for bytes in [8, 32, 56] {
            rows.push(self.against_bare(placement, "layers", "raw", bytes, Goal::AtMost(bare_goal)));
        }
        for (peer, goal) in [("openmpi", 1.2), ("ucx", 1.8), ("iceoryx2", 2.4)] {
            for bytes in [8, 56] {
                rows.push(self.round_trip(placement, peer, bytes, Goal::AtLeast(goal)));
            }
        }
        for peer in ["libfabric", "unix", "udp", "tcp"] {
            rows.push(self.round_trip(placement, peer, 8, Goal::AtLeast(2.0)));
        }
        for bytes in [1024, 4096] {
            rows.push(self.against_best(placement, ("comb", "round_trip"), bytes, Goal::AtLeast(1.0)));
            rows.push(self.against_best(placement, ("stream", "bandwidth"), bytes, Goal::AtLeast(1.0)));
            rows.push(self.against_best(placement, ("comb", "bandwidth"), bytes, Goal::None));
        }
        rows.push(self.against_best(placement, ("comb", "rate"), 64, Goal::AtLeast(1.2)));
        rows.push(self.layer(placement, "put 8 B and see it", "put", "bare", Goal::AtMost(1.1)));
        rows.push(self.layer(placement, "active message and its reply", "active", "raw", Goal::AtMost(1.09)));
        rows.push(self.layer(placement, "typed null call", "call", "raw", Goal::AtMost(1.5)));
        rows.push(self.layer(placement, "one of 1000 channels", "thousand", "raw", Goal::AtMost(2.0)));
        rows.push(self.layer(placement, "message over a virtual interface", "via", "raw", Goal::None));
        for bytes in [8, 1024] {
            rows.push(self.against_bare(placement, "trapping", "round_trip", bytes, Goal::None));
        }
        rows
    }

    /// The bare ping-pong carries a number and checks it: so does what it is compared with.
    fn against_bare(&self, placement: Placement, program: &str, test: &str, bytes: u64, goal: Goal) -> Row {
        let what = if program == "trapping" { ", read in full, wild stores trapped" } else { "" };
        let claim = format!("{} round trip {bytes} B{what}", placement.name());
        self.compared((Some(placement), program, test, bytes), &claim, "ns", "bare ping-pong", goal)
    }

    /// A value and what stood beside it each time: the ratio is the median of the ratios.
    fn compared(
        &self,
        (placement, program, test, bytes): (Option<Placement>, &str, &str, u64),
        claim: &str,
        unit: &'static str,
        peer: &str,
        goal: Goal,
    ) -> Row {
        let key = (placement, program.to_owned(), test.to_owned(), bytes);
        let of = |values: &Values| values.get(&key).and_then(|values| median(values));
        let (ours, ratio) = (of(&self.values), of(&self.ratios));
        Row {
            claim: claim.to_owned(),
            ours,
            unit,
            peer: peer.to_owned(),
            theirs: ours.zip(ratio).map(|(ours, ratio)| ours / ratio),
            ratio,
            goal,
            note: self.note(placement, ratio.is_some(), [program; 2]),
        }
    }

    /// A layer over what it stands on, both of one pair of processes.
    fn layer(&self, placement: Placement, claim: &str, test: &str, under: &str, goal: Goal) -> Row {
        let peer = if under == "bare" { "bare ping-pong" } else { "raw endpoint" };
        self.times(placement, claim, ("layers", test), ("layers", under, peer), 8, goal)
    }

    fn round_trip(&self, placement: Placement, peer: &str, bytes: u64, goal: Goal) -> Row {
        let claim = format!("round trip {bytes} B, read in full");
        self.times(placement, &claim, ("comb", "round_trip"), (peer, "round_trip", peer), bytes, goal)
    }

    /// Two times, each measured for itself. A goal of so much at most is over theirs; of so much at least, how many times
    /// faster.
    fn times(
        &self,
        placement: Placement,
        claim: &str,
        (program, test): (&str, &str),
        (other, other_test, peer): (&str, &str, &str),
        bytes: u64,
        goal: Goal,
    ) -> Row {
        let ours = self.value(placement, program, test, bytes);
        let theirs = self.value(placement, other, other_test, bytes);
        let ratio = ours.zip(theirs).map(|(ours, theirs)| match goal {
            Goal::AtLeast(_) => theirs / ours,
            _ => ours / theirs,
        });
        Row {
            claim: format!("{} {claim}", placement.name()),
            ours,
            unit: "ns",
            peer: peer.to_owned(),
            theirs,
            ratio,
            goal,
            note: self.note(Some(placement), ratio.is_some(), [program, other]),
        }
    }

    fn against_best(
        &self,
        placement: Placement,
        (program, test): (&str, &str),
        bytes: u64,
        goal: Goal,
    ) -> Row {
        let shorter_is_better = test == "round_trip";
        let values: Vec<(&str, f64)> = PEERS
            .iter()
            .filter_map(|peer| Some((*peer, self.value(placement, peer, test, bytes)?)))
            .collect();
        // The best of those that happened to be measured is not the best: the strong ones must be among them.
        let absent = STRONG_PEERS.iter().find(|strong| values.iter().all(|(peer, _)| peer != *strong));
        let best = values
            .into_iter()
            .reduce(|one, other| if (one.1 < other.1) == shorter_is_better { one } else { other })
            .filter(|_| absent.is_none());
        let ours = match test {
            "bandwidth" => self.value(placement, program, "rate", bytes).map(|rate| rate * bytes as f64),
            test => self.value(placement, program, test, bytes),
        };
        let theirs = best.map(|(_, value)| value);
        let decisive = best.map_or(program, |(name, _)| name);
        let ratio = ours.zip(theirs).map(
            |(ours, theirs)| {
                if shorter_is_better { theirs / ours } else { ours / theirs }
            },
        );
        let (what, unit) = match test {
            "bandwidth" => ("bandwidth", "B/s"),
            "rate" => ("messages, one way,", "1/s"),
            _ => ("round trip, read in full,", "ns"),
        };
        let room = if (program, test) == ("comb", "bandwidth") { ", usual geometry" } else { "" };
        Row {
            claim: format!("{} {what} {bytes} B{room}", placement.name()),
            ours,
            unit,
            peer: best.map_or_else(|| "best peer".to_owned(), |(name, _)| format!("best: {name}")),
            theirs,
            ratio,
            goal,
            note: self.note(Some(placement), ratio.is_some(), [program, absent.copied().unwrap_or(decisive)]),
        }
    }

    /// What there is to say about a comparison of these programs: why there is none, or that one did not last.
    fn note(&self, placement: Option<Placement>, measured: bool, programs: [&str; 2]) -> String {
        let failed = programs.into_iter().find_map(|name| self.missing.get_key_value(name));
        match (failed, measured, placement) {
            (Some((program, reason)), true, _) => format!("{program} in a later round: {reason}"),
            (Some((program, reason)), false, _) => format!("{program} is missing: {reason}"),
            (None, true, _) => String::new(),
            (None, false, Some(placement)) if self.values.keys().all(|key| key.0 != Some(placement)) => {
                format!("the cores were never {}", placement.name())
            }
            _ => "no undisturbed run".into(),
        }
    }

    fn versions_line(&self) -> String {
        let known: Vec<String> = self
            .versions
            .iter()
            .filter(|(_, version)| !version.is_empty())
            .map(|(peer, version)| format!("{peer} {version}"))
            .collect();
        format!(
            "Peers: {}",
            if known.is_empty() { "none (make setup-bench fetches them)".into() } else { known.join(", ") }
        )
    }
}

/// The ways through the kernel need its threads, for which favoured processes would leave no time.
fn priority_anywhere(name: &str) -> Priority {
    if matches!(name, "loopback" | "veth") { Priority::Ordinary } else { Priority::Favoured }
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(peer: &str, bare_ns: Option<f64>) -> Sample {
        let (peer, test, version) = (peer.to_owned(), "round_trip".to_owned(), String::new());
        Sample { peer, test, bytes: 8, value: 500.0, version, bare_ns, beside: None }
    }

    /// Without a measurement every claim is there, and says that it was not measured.
    #[test]
    fn no_claim_with_a_goal_disappears() {
        let rows = Measured::default().rows();
        let promised: Vec<String> = rows
            .iter()
            .filter(|row| row.goal != Goal::None)
            .map(|row| format!("{} | {} | {}", row.claim, row.peer, row.goal))
            .collect();
        let placed = |near: bool| {
            let (name, bare) = if near { ("near", "1.7") } else { ("far", "1.2") };
            PROMISED_PLACED.map(|line| format!("{name} {}", line.replace("BARE", bare)))
        };
        let expected: Vec<String> = placed(false)
            .into_iter()
            .chain(placed(true))
            .chain(PROMISED_ANYWHERE.map(str::to_owned))
            .collect();
        assert_eq!(promised, expected);
        assert!(rows.iter().all(|row| row.met() != Some(true)));
        let json = rows.iter().map(|row| row.json());
        assert!(json.filter(|line| line.contains("\"met\":false")).count() == expected.len());
    }

    /// The bare ping-pong says nothing of nine processes: none stands round them.
    #[test]
    fn what_a_program_compared_itself_needs_no_placement() {
        let mut measured = Measured::default();
        let sample = |value| Sample {
            peer: "hot_spot".into(),
            test: "even".into(),
            bytes: 64,
            value,
            version: String::new(),
            bare_ns: None,
            beside: Some(1000.0),
        };
        for value in [700.0, 900.0, 950.0] {
            measured.take(Ok(vec![sample(value)]), None, None);
        }
        assert_eq!(measured.moved, 0);
        let rows = measured.rows();
        let row = rows.iter().find(|row| row.claim == "eight senders: the least served").unwrap();
        assert_eq!((row.ratio, row.met()), (Some(0.9), Some(true)));
    }

    /// Neither is a peer counted during which the cores moved, nor a program of ours that says where they are itself.
    #[test]
    fn a_program_during_which_the_cores_moved_is_not_counted() {
        let mut measured = Measured::default();
        for (before, after) in [(400.0, 90.0), (90.0, 400.0), (90.0, 90.0)] {
            measured.take(Ok(vec![round_trip("comb", Some(400.0))]), Some(before), Some(after));
        }
        measured.take(Ok(vec![round_trip("ucx", None)]), Some(400.0), Some(90.0));
        assert_eq!((measured.values.len(), measured.moved), (0, 4));
        measured.take(Ok(vec![round_trip("comb", Some(400.0))]), Some(390.0), Some(410.0));
        measured.take(Ok(vec![round_trip("ucx", None)]), Some(390.0), Some(410.0));
        assert_eq!((measured.values.len(), measured.moved), (2, 4));
    }

    /// What failed later keeps its numbers, and the rows say that it failed; what never ran is named.
    #[test]
    fn a_program_that_failed_is_named_in_its_rows() {
        let mut measured = Measured::default();
        for peer in ["comb", "ucx"] {
            measured.take(Ok(vec![round_trip(peer, None)]), Some(400.0), Some(400.0));
        }
        for peer in ["ucx", "openmpi"] {
            let reason = "it failed".to_owned();
            measured.take(Err(Missing { peer: peer.into(), reason }), Some(400.0), Some(400.0));
        }
        let note = |peer| measured.round_trip(Placement::Far, peer, 8, Goal::None).note;
        assert_eq!(note("ucx"), "ucx in a later round: it failed");
        assert_eq!(note("openmpi"), "openmpi is missing: it failed");
    }

    const PROMISED_PLACED: [&str; 22] = [
        "round trip 8 B | bare ping-pong | ≤ BARE",
        "round trip 32 B | bare ping-pong | ≤ BARE",
        "round trip 56 B | bare ping-pong | ≤ BARE",
        "round trip 8 B, read in full | openmpi | ≥ 1.2",
        "round trip 56 B, read in full | openmpi | ≥ 1.2",
        "round trip 8 B, read in full | ucx | ≥ 1.8",
        "round trip 56 B, read in full | ucx | ≥ 1.8",
        "round trip 8 B, read in full | iceoryx2 | ≥ 2.4",
        "round trip 56 B, read in full | iceoryx2 | ≥ 2.4",
        "round trip 8 B, read in full | libfabric | ≥ 2",
        "round trip 8 B, read in full | unix | ≥ 2",
        "round trip 8 B, read in full | udp | ≥ 2",
        "round trip 8 B, read in full | tcp | ≥ 2",
        "round trip, read in full, 1024 B | best peer | ≥ 1",
        "bandwidth 1024 B | best peer | ≥ 1",
        "round trip, read in full, 4096 B | best peer | ≥ 1",
        "bandwidth 4096 B | best peer | ≥ 1",
        "messages, one way, 64 B | best peer | ≥ 1.2",
        "put 8 B and see it | bare ping-pong | ≤ 1.1",
        "active message and its reply | raw endpoint | ≤ 1.09",
        "typed null call | raw endpoint | ≤ 1.5",
        "one of 1000 channels | raw endpoint | ≤ 2",
    ];

    const PROMISED_ANYWHERE: [&str; 5] = [
        "UDP transport, unencrypted | raw spinning UDP | ≤ 1.1",
        "AF_XDP over veth, unencrypted | UDP, a cable alike | ≤ 0.6",
        "idle channel, every page touched | 64 KB | ≤ 1",
        "eight senders: the least served | the most served | ≥ 0.8",
        "uninvolved flow | without congestion | ≥ 0.9",
    ];
}
