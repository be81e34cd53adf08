//! `comb bench net`: the wire beside its peers.
//!
//! All programs run in turn, round after round, in one invocation. Before and after each the bare ping-pong is taken:
//! it says how near the two cores are (virtual machines move), and a program during which that changed is not counted.
//! Only numbers of one placement are compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::program::{Missing, Priority, Sample};
use crate::report::{Goal, Row, print};

/// Two threads of one core answer each other within 100 ns here, two cores in 350.
const NEAR_BELOW_NS: f64 = 200.0;
const ROUNDS: u32 = 3;
const FULL_ROUNDS: u32 = 10;
/// A round takes 13 s with all peers; the whole is to end within 45.
const TIME_LIMIT: Duration = Duration::from_secs(33);

const PEERS: [&str; 7] = ["openmpi", "ucx", "libfabric", "iceoryx2", "unix", "udp", "tcp"];

/// "The best peer" is the best of all only if these were measured.
const STRONG_PEERS: [&str; 3] = ["openmpi", "ucx", "iceoryx2"];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Placement {
    Near,
    Far,
}

impl Placement {
    pub(crate) fn of(bare_ns: f64) -> Self {
        if bare_ns < NEAR_BELOW_NS { Self::Near } else { Self::Far }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

type Values = BTreeMap<(Placement, String, String, u64), Vec<f64>>;

/// All that was measured, by placement, program, test and length.
#[derive(Default)]
struct Measured {
    values: Values,
    /// Of our own programs: the value over the bare round trip taken right before it.
    over_bare: Values,
    missing: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    moved: u32,
}

/// Runs the benchmark and prints its table.
pub fn run(full: bool, json: bool) {
    let priority = Priority::highest_allowed();
    let mut measured = Measured::default();
    let started = Instant::now();
    let rounds = if full { FULL_ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        if round > 0 && !full && started.elapsed() > TIME_LIMIT * round / rounds.max(1) + TIME_LIMIT / 3 {
            break;
        }
        measured.round(priority, &format!("round {} of {rounds}", round + 1), json);
    }
    if !json {
        eprint!("\r{:60}\r", "");
        println!(
            "Two processes on cores 0 and 1, {}; {} programs discarded because the cores moved meanwhile.\n\
             near: bare ping-pong below {NEAR_BELOW_NS} ns; far: above. Medians over the rounds.\n",
            priority.describe(),
            measured.moved
        );
    }
    print(&measured.rows(), json);
    if !json {
        println!("{}", measured.versions_line());
    }
}

impl Measured {
    fn round(&mut self, priority: Priority, label: &str, quiet: bool) {
        let mut before = bare(priority);
        for name in ["comb", "trapping", "layers", "loopback", "veth"].into_iter().chain(PEERS) {
            if self.missing.contains_key(name) {
                continue;
            }
            if !quiet {
                eprint!("\r{label}: {name:20}");
            }
            let ours = !PEERS.contains(&name);
            let through_kernel = matches!(name, "loopback" | "veth");
            let priority = if through_kernel { Priority::ordinary() } else { priority };
            let outcome = if ours { priority.ours(name) } else { priority.peer(name) };
            let after = bare(priority);
            match outcome {
                Err(Missing { peer, reason }) => {
                    self.missing.insert(peer, reason);
                }
                Ok(samples) => self.take(samples, before, after),
            }
            before = after;
        }
    }

    fn take(&mut self, samples: Vec<Sample>, before: Option<f64>, after: Option<f64>) {
        for sample in samples {
            self.versions.insert(sample.peer.clone(), sample.version.clone());
            let placement = match (sample.bare_ns, before, after) {
                (Some(bare), _, _) => Placement::of(bare),
                (None, Some(before), Some(after)) if Placement::of(before) == Placement::of(after) => {
                    Placement::of(before)
                }
                _ => {
                    self.moved += 1;
                    continue;
                }
            };
            let key = (placement, sample.peer, sample.test, sample.bytes);
            if let Some(bare) = sample.bare_ns {
                self.over_bare.entry(key.clone()).or_default().push(sample.value / bare);
            }
            self.values.entry(key).or_default().push(sample.value);
        }
    }

    fn value(&self, placement: Placement, peer: &str, test: &str, bytes: u64) -> Option<f64> {
        median(self.values.get(&(placement, peer.to_owned(), test.to_owned(), bytes))?)
    }

    fn rows(&self) -> Vec<Row> {
        let placed =
            [Placement::Far, Placement::Near].into_iter().flat_map(|placement| self.rows_of(placement));
        placed.chain(self.rows_between_hosts()).collect()
    }

    /// Ways through the kernel: how near the cores are hardly matters, so the placements are taken together. The ratio
    /// is the median of each run's own.
    fn rows_between_hosts(&self) -> Vec<Row> {
        let row = |claim: &str, program: &str, test: &str, peer: &str, goal| {
            let ours = Self::anywhere(&self.values, program, test);
            let ratio = Self::anywhere(&self.over_bare, program, test);
            Row {
                claim: claim.to_owned(),
                ours,
                unit: "ns",
                peer: peer.to_owned(),
                theirs: ours.zip(ratio).map(|(ours, ratio)| ours / ratio),
                ratio,
                goal,
                note: self
                    .missing
                    .get(program)
                    .map_or_else(String::new, |reason| format!("missing: {reason}")),
            }
        };
        let (raw, udp) = ("raw spinning UDP", "UDP, same cable");
        vec![
            row("UDP transport, unencrypted", "loopback", "udp", raw, Goal::AtMost(1.1)),
            row("UDP transport, AES-256-GCM", "loopback", "udp_aes", raw, Goal::None),
            row("UDP transport, ChaCha20-Poly1305", "loopback", "udp_chacha", raw, Goal::None),
            row("AF_XDP over veth, unencrypted", "veth", "xdp", udp, Goal::AtMost(0.6)),
            row("AF_XDP over veth, AES-256-GCM", "veth", "xdp_aes", udp, Goal::None),
        ]
    }

    fn anywhere(values: &Values, program: &str, test: &str) -> Option<f64> {
        let all = values.iter().filter(|(key, _)| key.1 == program && key.2 == test);
        median(&all.flat_map(|(_, values)| values.iter().copied()).collect::<Vec<_>>())
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
            rows.push(self.against_best(placement, "round_trip", bytes, 1.0));
            rows.push(self.against_best(placement, "bandwidth", bytes, 1.0));
        }
        rows.push(self.against_best(placement, "rate", 64, 1.2));
        rows.push(self.layer(placement, "put 8 B and see it", "put", "bare", Goal::AtMost(1.1)));
        rows.push(self.layer(placement, "active message and its reply", "active", "raw", Goal::AtMost(1.09)));
        rows.push(self.layer(placement, "typed null call", "call", "raw", Goal::AtMost(1.5)));
        rows.push(self.layer(placement, "one of 1000 channels", "thousand", "raw", Goal::AtMost(2.0)));
        for bytes in [8, 1024] {
            rows.push(self.against_bare(placement, "trapping", "round_trip", bytes, Goal::None));
        }
        rows
    }

    /// The bare ping-pong carries a number and checks it: so does what it is compared with.
    fn against_bare(&self, placement: Placement, program: &str, test: &str, bytes: u64, goal: Goal) -> Row {
        let key = (placement, program.to_owned(), test.to_owned(), bytes);
        let ours = self.value(placement, program, test, bytes);
        let ratio = self.over_bare.get(&key).and_then(|ratios| median(ratios));
        let what = if program == "trapping" { ", read in full, wild stores trapped" } else { "" };
        Row {
            claim: format!("{} round trip {bytes} B{what}", placement.name()),
            ours,
            unit: "ns",
            peer: "bare ping-pong".into(),
            theirs: ours.zip(ratio).map(|(ours, ratio)| ours / ratio),
            ratio,
            goal,
            note: self.why_nothing(placement, ratio.is_none(), program),
        }
    }

    /// A layer over what it stands on, both of one pair of processes.
    fn layer(&self, placement: Placement, claim: &str, test: &str, under: &str, goal: Goal) -> Row {
        let ours = self.value(placement, "layers", test, 8);
        let theirs = self.value(placement, "layers", under, 8);
        let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        let peer = if under == "bare" { "bare ping-pong" } else { "raw endpoint" };
        Row {
            claim: format!("{} {claim}", placement.name()),
            ours,
            unit: "ns",
            peer: peer.to_owned(),
            theirs,
            ratio,
            goal,
            note: self.why_nothing(placement, ratio.is_none(), "layers"),
        }
    }

    fn round_trip(&self, placement: Placement, peer: &str, bytes: u64, goal: Goal) -> Row {
        let ours = self.value(placement, "comb", "round_trip", bytes);
        let theirs = self.value(placement, peer, "round_trip", bytes);
        let ratio = ours.zip(theirs).map(|(ours, theirs)| theirs / ours);
        Row {
            claim: format!("{} round trip {bytes} B, read in full", placement.name()),
            ours,
            unit: "ns",
            peer: peer.to_owned(),
            theirs,
            ratio,
            goal,
            note: self.why_nothing(placement, ratio.is_none(), peer),
        }
    }

    fn against_best(&self, placement: Placement, test: &str, bytes: u64, goal: f64) -> Row {
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
            "bandwidth" => self.value(placement, "comb", "rate", bytes).map(|rate| rate * bytes as f64),
            test => self.value(placement, "comb", test, bytes),
        };
        let theirs = best.map(|(_, value)| value);
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
        Row {
            claim: format!("{} {what} {bytes} B", placement.name()),
            ours,
            unit,
            peer: best.map_or_else(|| "best peer".to_owned(), |(name, _)| format!("best: {name}")),
            theirs,
            ratio,
            goal: Goal::AtLeast(goal),
            note: absent.map_or_else(String::new, |peer| {
                format!("{peer}: {}", self.why_nothing(placement, true, peer))
            }),
        }
    }

    fn why_nothing(&self, placement: Placement, nothing: bool, program: &str) -> String {
        if !nothing {
            return String::new();
        }
        match self.missing.get(program) {
            Some(reason) => format!("missing: {reason}"),
            None if self.values.keys().any(|key| key.0 == placement) => "no undisturbed run".into(),
            None => format!("the cores were never {}", placement.name()),
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

fn bare(priority: Priority) -> Option<f64> {
    let samples = priority.ours("bare").ok()?;
    median(&samples.iter().map(|sample| sample.value).collect::<Vec<_>>())
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
