//! `comb bench trace`: what it costs to be recorded, beside strace and perf trace; whether all is there; and how long a report takes.

mod account;
mod load;
mod usage;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use comb_trace::event::Event;
use comb_trace::trace_file::{Head, Listener, Moment, read_trace};
use comb_trace::{Class, Operation, store};
use comb_types::Dice;

use self::load::{Load, Place, WRITER};
use self::usage::{adopt, children_seconds, own_seconds, wait_for_adopted};
use crate::net::median;
use crate::report::{Goal, Row, print, shows_progress};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NOTES: &str = "\
Processor time of the workload and all who record it, user and system, by turns with the workload alone; medians. What recorders do themselves is counted, what they cost the programs is the median difference in each turn; where that cannot be told from nothing, it is \
nothing. A compile is of many files, by turns file by file, and the recorder's start counted once. Beside so much computing the difference is \
smaller than what the machine's own pace changes from turn to turn: the compile beside itself, alone both times, is shown too. So what comb takes of a compile is also \
counted, without a difference: its own processor time, and that of its programs in the kernel by the kernel's account, which takes some time to keep and does not know the way to a \
tracepoint (all of it is in the row of a program that only reads). strace -f --seccomp-bpf and perf trace write what they \
see to a file, as comb does; strace is asked for the same calls (trace=%file,%desc), perf trace for all calls, which is what it does. What comb takes to start (to be \
loaded into the kernel and checked there) is a row of its own, and part of all others. Operations include page-ins, which the two others do not see. The writer is a \
program that calls pread as fast as it can, or in bursts. The report is on events that are made up, of which none is like another. Not measured: other kernels and \
processors, spinning disks, machines with more cores.";

const ROUNDS: usize = 3;
const FULL_ROUNDS: usize = 9;

/// What a report is timed on.
const REPORT_EVENTS: u64 = 10_000_000;
const QUICK_REPORT_EVENTS: u64 = 2_000_000;

/// Who records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Nobody,
    /// The same once more: what a difference of nothing looks like.
    NobodyAgain,
    Comb,
    Preload,
    Strace,
    Perf,
}

impl Who {
    const ALL: [Self; 6] =
        [Self::Nobody, Self::NobodyAgain, Self::Comb, Self::Preload, Self::Strace, Self::Perf];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody | Self::NobodyAgain => "alone",
            Self::Comb => "comb",
            Self::Preload => "comb, by a library",
            Self::Strace => "strace",
            Self::Perf => "perf trace",
        }
    }

    /// The command that runs another one and records it, into a folder.
    fn command(self, to: &Path, load: &[String]) -> Command {
        let mut command = match self {
            Self::Nobody | Self::NobodyAgain => Command::new(&load[0]),
            Self::Comb | Self::Preload => Command::new("/proc/self/exe"),
            Self::Strace => Command::new("strace"),
            Self::Perf => Command::new("perf"),
        };
        let mechanism = if self == Self::Preload { "preload" } else { "kernel" };
        match self {
            Self::Nobody | Self::NobodyAgain => return command.args(&load[1..]).take(),
            Self::Comb | Self::Preload => {
                command
                    .args(["trace", "record", "--quiet", "--mechanism", mechanism, "--to"])
                    .arg(to)
                    .arg("--");
            }
            Self::Strace => {
                command.args(["-f", "--seccomp-bpf", "-e", "trace=%file,%desc", "-o"]).arg(to.join("strace"));
            }
            Self::Perf => {
                command.arg("trace").arg("-o").arg(to.join("perf"));
            }
        }
        command.args(load).take()
    }
}

/// A command by value, for chains of calls.
trait Take {
    fn take(&mut self) -> Command;
}

impl Take for Command {
    fn take(&mut self) -> Command {
        std::mem::replace(self, Self::new("true"))
    }
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs the benchmark and prints its rows.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let rounds = if full { FULL_ROUNDS } else { ROUNDS };
    let say = |what: &str| {
        if shows_progress(json) {
            eprint!("\r{what:70}");
        }
    };
    adopt()?;
    let place = Place::new()?;
    let mut rows = Vec::new();
    for load in [Load::compile(&place)?, Load::git(&place)?, Load::find()] {
        let Some(load) = load else { continue };
        rows.extend(costs(&place, &load, rounds, &say)?);
        if load.is_compile {
            rows.push(account::row(&place, &load, rounds, &say)?);
        }
    }
    say("starting and stopping");
    rows.push(start(&place, rounds)?);
    say("a steady stream of calls");
    rows.extend(steady(&place, rounds)?);
    rows.extend(report_rows(&place, full, &say)?);
    rows.extend(exponents());
    say("");
    print(&rows, json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

/// Seconds of processor time.
#[derive(Clone, Copy)]
struct Took {
    /// Of the process that was started: who records, if somebody does.
    own: f64,
    /// Of all that it started.
    others: f64,
}

impl Took {
    fn all(&self) -> f64 {
        self.own + self.others
    }
}

/// What a command takes with all that it starts.
fn time(command: &mut Command) -> Outcome<Took> {
    let before = children_seconds();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let own = own_seconds(&child);
    let status = child.wait()?;
    wait_for_adopted()?;
    let (own, all) = (own?, children_seconds() - before);
    if status.success() {
        Ok(Took { own, others: all - own })
    } else {
        Err(format!("{}: {status}", command.get_program().display()).into())
    }
}

/// What was measured of somebody, turn by turn.
#[derive(Default)]
struct Turns {
    pieces: Vec<Took>,
    /// With nothing to record.
    starts: Vec<Took>,
}

impl Turns {
    /// How much more processor time recording all pieces at once takes. What recorders do themselves is counted; what they cost the programs
    /// is the difference to the same without one, and nothing if that cannot be told from nothing.
    fn more(&self, alone: &Self, pieces: usize) -> Option<f64> {
        let own = |turns: &[Took]| median(&turns.iter().map(|took| took.own).collect::<Vec<_>>());
        let in_programs = self.difference(alone, |took| took.others)?.max(0.0);
        let (piece, start) = (own(&self.pieces)?, own(&self.starts).unwrap_or(0.0));
        Some(start + number(pieces as u64) * ((piece - start).max(0.0) + in_programs))
    }

    /// The median difference between this of a piece and the whole of the same one alone.
    fn difference(&self, alone: &Self, of: fn(&Took) -> f64) -> Option<f64> {
        median(&self.differences(alone, of))
    }

    fn differences(&self, alone: &Self, of: fn(&Took) -> f64) -> Vec<f64> {
        self.pieces.iter().zip(&alone.pieces).map(|(with, alone)| of(with) - alone.all()).collect()
    }

    /// The standard error of the mean of those differences, for all pieces at once.
    fn error(&self, alone: &Self, pieces: usize) -> f64 {
        let differences = self.differences(alone, |took| took.others);
        let count = number(differences.len() as u64);
        let mean = differences.iter().sum::<f64>() / count;
        let variance = differences.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (variance / count).sqrt() * number(pieces as u64)
    }
}

/// What one load costs with each who records it.
fn costs(place: &Place, load: &Load, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let mut turns: BTreeMap<Who, Turns> = BTreeMap::new();
    let mut counted = Counted::default();
    let mut bytes = 0;
    let pieces = load.pieces.len();
    let mut here: Vec<Who> = Who::ALL
        .into_iter()
        .filter(|who| match who {
            Who::Strace => is_here("strace"),
            Who::Perf => is_here("perf"),
            Who::NobodyAgain => load.is_compile,
            Who::Nobody | Who::Comb | Who::Preload => true,
        })
        .collect();
    for round in 0..=rounds {
        // The first round warms the caches.
        for piece in &load.pieces[..if round == 0 { 1 } else { pieces }] {
            // Whoever is next to a change of the machine's pace is another one each time.
            here.rotate_left(1);
            for &who in &here {
                say(&format!("{}: round {round} of {rounds}, {}", load.name, who.name()));
                let to = place.fresh()?;
                let took = time(who.command(&to, piece).stderr(Stdio::null()))?;
                if who == Who::Comb && round == rounds {
                    bytes += count(&to, &mut counted)?;
                }
                fs::remove_dir_all(&to)?;
                if round == 0 {
                    continue;
                }
                let turns = turns.entry(who).or_default();
                turns.pieces.push(took);
                if pieces > 1 {
                    let to = place.fresh()?;
                    turns.starts.push(time(who.command(&to, &["true".to_owned()]).stderr(Stdio::null()))?);
                    fs::remove_dir_all(&to)?;
                }
            }
        }
    }
    let nobody = &turns[&Who::Nobody];
    let all: Vec<f64> = nobody.pieces.iter().map(Took::all).collect();
    let alone = median(&all).unwrap_or(0.0) * number(pieces as u64);
    let more = |who: Who| turns.get(&who)?.more(nobody, pieces);
    let control = turns
        .get(&Who::NobodyAgain)
        .and_then(|again| Some(again.difference(nobody, Took::all)? * number(pieces as u64)));
    let events = number(counted.events);
    let rate = events / alone;
    let name = load.name;
    let mut rows = Vec::new();
    let mut cost = row(
        format!("{name}: more processor time, by comb"),
        more(Who::Comb).map(|more| more / alone * 100.0),
        "%",
    );
    cost.note = format!(
        "{events:.0} operations, {rate:.0} in a second of processor time, of which it takes {alone:.1} alone"
    );
    if load.is_compile {
        (cost.peer, cost.theirs) =
            ("alone, beside itself".to_owned(), control.map(|more| more / alone * 100.0));
        let error = turns[&Who::Comb].error(nobody, pieces) / alone * 100.0;
        cost.note = format!("{}; standard error of the difference {error:.1} %", cost.note);
    }
    rows.push(cost);
    rows.push(row(
        format!("{name}: an operation, by comb"),
        more(Who::Comb).map(|more| more / events * 1e6),
        "µs",
    ));
    for (who, least) in [(Who::Strace, 5.0), (Who::Perf, 1.0)] {
        let (ours, theirs) = (more(Who::Comb), more(who));
        let ratio = theirs.zip(ours).map(|(theirs, ours)| theirs / ours);
        rows.push(Row {
            claim: format!("{name}: more processor time, beside {}", who.name()),
            ours: ours.map(|ours| ours * 1e3),
            unit: "ms",
            peer: who.name().to_owned(),
            theirs: theirs.map(|theirs| theirs * 1e3),
            ratio,
            goal: Goal::AtLeast(least),
            note: if here.contains(&who) { String::new() } else { format!("{} is not here", who.name()) },
        });
    }
    rows.push(row(
        format!("{name}: more processor time, by a library that programs load"),
        more(Who::Preload).map(|more| more * 1e3),
        "ms",
    ));
    rows.push(limit(format!("{name}: an operation on disk"), Some(number(bytes) / events), "bytes", 10.0));
    rows.push(limit_zero(format!("{name}: events lost"), counted.lost));
    Ok(rows)
}

/// How long it takes to record nothing.
fn start(place: &Place, rounds: usize) -> Outcome<Row> {
    let mut values = Vec::new();
    for _ in 0..rounds {
        let to = place.fresh()?;
        let before = children_seconds();
        Who::Comb.command(&to, &["true".to_owned()]).status()?;
        values.push((children_seconds() - before) * 1e3);
        fs::remove_dir_all(&to)?;
    }
    Ok(row("to start and to stop".to_owned(), median(&values), "ms"))
}

/// A program that reads all the time, and one that does in bursts.
fn steady(place: &Place, rounds: usize) -> Outcome<Vec<Row>> {
    const SHORT: u64 = 200_000;
    const LONG: u64 = 2_200_000;
    let writer = place.compile("writer", WRITER)?;
    // What it takes to start is in both.
    let cost = |who: Who, calls: u64, to: &Path| -> Outcome<f64> {
        let before = children_seconds();
        let status =
            who.command(to, &[writer.display().to_string(), calls.to_string(), "0".to_owned()]).status()?;
        if status.success() {
            Ok(children_seconds() - before)
        } else {
            Err(format!("the writer: {status}").into())
        }
    };
    let mut each = Vec::new();
    for _ in 0..rounds {
        let mut more = [0.0; 2];
        for (calls, more) in [SHORT, LONG].into_iter().zip(&mut more) {
            let to = place.fresh()?;
            *more = cost(Who::Comb, calls, &to)? - cost(Who::Nobody, calls, &to)?;
            fs::remove_dir_all(&to)?;
        }
        each.push((more[1] - more[0]) / number(LONG - SHORT) * 1e6);
    }
    let mut rows = vec![limit("an event, of a program that only reads".to_owned(), median(&each), "µs", 0.6)];
    // Two hundred thousand a second, for five seconds.
    let to = place.fresh()?;
    let calls = 1_000_000_u64;
    let began = Instant::now();
    let status = Who::Comb
        .command(&to, &[writer.display().to_string(), calls.to_string(), "200000".to_owned()])
        .status()?;
    let rate = number(calls) / began.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("the writer: {status}").into());
    }
    let mut counted = Counted::default();
    count(&to, &mut counted)?;
    let mut lost = limit_zero("events lost at 200,000 calls in a second".to_owned(), counted.lost);
    lost.note = format!("{rate:.0} in a second");
    rows.push(lost);
    let read = counted.by_operation.get("read").copied().unwrap_or(0);
    rows.push(Row {
        claim: "calls recorded, of those that it made".to_owned(),
        ours: Some(number(read + counted.lost)),
        unit: "",
        peer: "its own count".to_owned(),
        theirs: Some(number(calls)),
        ratio: Some(number(read + counted.lost) / number(calls)),
        goal: Goal::AtLeast(1.0),
        note: String::new(),
    });
    fs::remove_dir_all(&to)?;
    Ok(rows)
}

/// A report on many events.
fn report_rows(place: &Place, full: bool, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let events = if full { REPORT_EVENTS } else { QUICK_REPORT_EVENTS };
    say("making up events");
    let to = place.fresh()?;
    let bytes = load::make_up(&to.join("made.trace"), events)?;
    say("tables of them");
    let began = Instant::now();
    store::ensure_tables(&to, &mut |_| {})?;
    let stored = began.elapsed().as_secs_f64();
    let tables = folder_bytes(&to.join(store::TABLES_FOLDER).join(store::TRACE.name))?;
    say("a report on them");
    // In a process of its own, whose memory is its own.
    let began = Instant::now();
    let status = Command::new("/proc/self/exe")
        .args(["trace", "report", "--json"])
        .arg(&to)
        .stdout(Stdio::null())
        .status()?;
    let took = began.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("comb trace report: {status}").into());
    }
    let most = usage::largest_child_bytes();
    fs::remove_dir_all(&to)?;
    let scale = number(REPORT_EVENTS) / number(events);
    let mut report = limit("a report on ten million events".to_owned(), Some(took * scale), "s", 10.0);
    let mut memory = limit("the memory that it takes".to_owned(), Some(number(most) / 1e6), "MB", 500.0);
    if !full {
        report.note = format!("of {events}, times {scale:.0}; --full takes all");
        memory.note = format!("of {events}, or of any other process of this run");
    }
    Ok(vec![
        report,
        memory,
        row("tables of ten million events".to_owned(), Some(stored * scale), "s"),
        limit(
            "a made-up event on disk, as recorded".to_owned(),
            Some(number(bytes) / number(events)),
            "bytes",
            10.0,
        ),
        limit(
            "a made-up event on disk, as a row of a table".to_owned(),
            Some(number(tables) / number(events)),
            "bytes",
            10.0,
        ),
    ])
}

fn folder_bytes(folder: &Path) -> Outcome<u64> {
    let sizes = fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum::<std::io::Result<u64>>().map_err(Into::into)
}

/// What the verdict says of samples whose distribution is known.
fn exponents() -> Vec<Row> {
    use comb_trace::statistics::distributions::{Lognormal, Pareto, Sampler};
    use comb_trace::statistics::sample::Sample;
    use comb_trace::statistics::verdict::{Verdict, judge};
    const VALUES: usize = 10_000;
    const SAMPLES: u64 = 20;
    let mut worst = 0.0_f64;
    for tenth in 12..=17 {
        let alpha = f64::from(tenth) / 10.0;
        for seed in 0..SAMPLES {
            let values =
                Pareto { alpha, x_min: 1.0, upper_bound: None }.draw_many(VALUES, &mut Dice::new(seed));
            let found = judge(&Sample::new(values)).evidence.map_or(f64::NAN, |evidence| evidence.alpha);
            worst = worst.max((found - alpha).abs());
        }
    }
    let mut heavy = 0;
    for sigma in [0.5, 1.0, 2.0, 3.0, 4.0] {
        for seed in 0..SAMPLES {
            let values = Lognormal { mu: 5.0, sigma }.draw_many(VALUES, &mut Dice::new(seed));
            heavy += u64::from(judge(&Sample::new(values)).verdict == Verdict::HeavyTailed);
        }
    }
    vec![
        limit("α of Pareto samples of 1.2 to 1.7, off by at most".to_owned(), Some(worst), "", 0.1),
        limit_zero("lognormal samples called heavy-tailed, of 100".to_owned(), heavy),
    ]
}

/// What a recording holds.
#[derive(Default)]
struct Counted {
    events: u64,
    by_operation: BTreeMap<&'static str, u64>,
    lost: u64,
}

impl Listener for Counted {
    fn head(&mut self, _head: &Head) {}

    fn event(&mut self, event: &Event, _texts: &[u8]) {
        let Some(operation) =
            Operation::of_number(event.operation).filter(|operation| operation.class() != Class::Note)
        else {
            return;
        };
        self.events += 1;
        *self.by_operation.entry(operation.name()).or_default() += 1;
    }

    fn moment(&mut self, moment: &Moment) {
        self.lost = moment.lost;
    }
}

/// Adds what is in the recording of a folder. Returns how long that is.
fn count(folder: &Path, counted: &mut Counted) -> Outcome<u64> {
    let found: Vec<PathBuf> = store::recordings(folder)?;
    let path = found.first().ok_or("nothing was recorded")?;
    let lost = std::mem::take(&mut counted.lost);
    read_trace(std::io::BufReader::new(fs::File::open(path)?), counted)?;
    counted.lost += lost;
    Ok(fs::metadata(path)?.len())
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn number(count: u64) -> f64 {
    count as f64
}

fn row(claim: String, ours: Option<f64>, unit: &'static str) -> Row {
    Row {
        claim,
        ours,
        unit,
        peer: String::new(),
        theirs: None,
        ratio: None,
        goal: Goal::None,
        note: String::new(),
    }
}

fn limit(claim: String, ours: Option<f64>, unit: &'static str, most: f64) -> Row {
    Row {
        peer: "what it may be".to_owned(),
        theirs: Some(most),
        ratio: ours.map(|ours| ours / most),
        goal: Goal::AtMost(1.0),
        ..row(claim, ours, unit)
    }
}

/// What is not to happen at all.
fn limit_zero(claim: String, count: u64) -> Row {
    let ours = number(count);
    Row {
        peer: "none".to_owned(),
        theirs: Some(0.0),
        ratio: Some(ours),
        goal: Goal::AtMost(0.0),
        ..row(claim, Some(ours), "")
    }
}
