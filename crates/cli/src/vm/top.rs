//! `comb vm top`: what machines do and what they have, again and again, in a terminal. Where there is none, once.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_vm::control::{Machines, Shown, proportional_bytes};
use serde_json::{Value, json};

use crate::failure::Outcome;
use crate::output::Output;
use crate::table;
use crate::top::{HOME_AND_CLEAR, Screen, wait};

const COLUMNS: &str = "\
CPU is what the engine takes of the host's cores, IDLE the part of the time in which the guest's processors had nothing to do, and WAITS that in which some program of the guest's waited for \
memory. CAME and WENT are all memory that a machine with a range has been given, and has given.

Examples:
  comb vm top
  comb vm top --once --json";

#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub(super) struct Top {
    /// Seconds from one look to the next
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::limit)]
    delay: Duration,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    looks: Option<u64>,
    /// End after one look
    #[arg(long, conflicts_with = "looks")]
    once: bool,
}

/// Shares of time are of so long a time at least.
const SHORTEST: Duration = Duration::from_millis(500);

/// What had been counted of a machine, and when.
struct Counted {
    at: Instant,
    engine: u32,
    used: Duration,
    idle: Duration,
    stalled: Duration,
}

impl Counted {
    fn of(shown: &Shown) -> Option<Self> {
        Some(Self {
            at: Instant::now(),
            engine: shown.engine,
            used: used(shown.engine)?,
            idle: Duration::from_millis(shown.guest.idle_ms),
            stalled: Duration::from_micros(shown.guest.stalled_us),
        })
    }

    /// Parts of the time since then; nothing: it is another engine.
    fn since(&self, before: &Self, processors: u32) -> Option<[f64; 3]> {
        let span = self.at.duration_since(before.at).as_secs_f64();
        let part = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / span;
        let idle = part(self.idle, before.idle) / f64::from(processors.max(1));
        // What a guest says may be anything.
        let shares =
            [part(self.used, before.used), idle.min(1.0), part(self.stalled, before.stalled).min(1.0)];
        (self.engine == before.engine && span > 0.0).then_some(shares)
    }
}

/// The processor time of a process.
fn used(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name may have anything in it.
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let ticks = ticks()? + ticks()?;
    let millis = ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(millis))
}

/// A machine at a look.
struct Seen {
    shown: Shown,
    host_bytes: Option<u64>,
    /// Of the engine, idle, waiting for memory.
    shares: Option<[f64; 3]>,
}

#[derive(Default)]
struct Looker(BTreeMap<String, Counted>);

impl Looker {
    fn look(&mut self, machines: &Machines) -> Vec<Seen> {
        let mut counted = BTreeMap::new();
        let mut all = Vec::new();
        for shown in machines.show_all().into_iter().filter_map(|(_, shown)| shown) {
            let now = Counted::of(&shown);
            let before = self.0.get(&shown.name);
            let processors = shown.hardware.processors;
            let shares = now.as_ref().zip(before).and_then(|(now, before)| now.since(before, processors));
            counted.extend(now.map(|now| (shown.name.clone(), now)));
            all.push(Seen { host_bytes: proportional_bytes(shown.engine), shown, shares });
        }
        self.0 = counted;
        all
    }
}

fn object(seen: &Seen) -> Value {
    let mut object = super::shown::object(&seen.shown, seen.host_bytes);
    let share = |at: usize| seen.shares.map(|shares| shares[at]);
    object["cpu_share"] = json!(share(0));
    object["idle_share"] = json!(share(1));
    object["stalled_share"] = json!(share(2));
    object
}

fn row(seen: &Seen) -> Vec<String> {
    let Seen { shown, host_bytes, shares } = seen;
    let dash = || "-".to_owned();
    let share = |at: usize| shares.map_or_else(dash, |shares| format!("{:.1} %", shares[at] * 100.0));
    let used = shown.guest.total_bytes.min(shown.memory.bytes).saturating_sub(shown.guest.available_bytes);
    let hardware = &shown.hardware;
    let range = || format!("{}..{}", table::bytes(hardware.memory_bytes), table::bytes(hardware.most_bytes));
    vec![
        shown.name.clone(),
        shown.state.as_str().to_owned(),
        share(0),
        share(1),
        share(2),
        table::bytes(used),
        table::bytes(shown.memory.bytes),
        if hardware.has_room() { range() } else { dash() },
        host_bytes.map_or_else(dash, table::bytes),
        table::bytes(shown.memory.came_bytes),
        table::bytes(shown.memory.went_bytes),
    ]
}

fn text(all: &[Seen], output: Output, lines: Option<usize>) -> String {
    let sum = |of: fn(&Seen) -> u64| table::bytes(all.iter().map(of).sum());
    let (has, host) = (sum(|seen| seen.shown.memory.bytes), sum(|seen| seen.host_bytes.unwrap_or(0)));
    let keys = if lines.is_some() { "   q: quit" } else { "" };
    let heading = format!("{} machines with {has}, {host} of the host's{keys}\n\n", all.len());
    let columns =
        ["MACHINE", "STATE", "CPU", "IDLE", "WAITS", "USES", "HAS", "RANGE", "OF HOST", "CAME", "WENT"];
    let mut rows = vec![columns.map(String::from).to_vec()];
    rows.extend(all.iter().map(row));
    let is_state = |column: usize, text: &str| table::state_colour(text).filter(|_| column == 1);
    let text = heading + &table::painted(&rows, output, is_state);
    match lines {
        // The last line is the cursor's.
        Some(lines) => text.lines().take(lines.saturating_sub(1)).map(|line| format!("{line}\n")).collect(),
        None => text,
    }
}

impl Top {
    pub(super) fn run(self, machines: &Machines, output: Output) -> Outcome {
        let is_terminal = std::io::stdout().is_terminal() && !output.is_json();
        let is_once = self.once || self.looks.is_none() && !std::io::stdout().is_terminal();
        let most = if is_once { Some(1) } else { self.looks };
        let mut looker = Looker::default();
        // Shares are of the time between two looks.
        looker.look(machines);
        let screen = if is_terminal && !is_once { Some(Screen::begin()?) } else { None };
        if !wait(SHORTEST.min(self.delay), screen.is_some())? {
            return Ok(ExitCode::SUCCESS);
        }
        let mut looks = 0;
        loop {
            let all = looker.look(machines);
            looks += 1;
            if output.is_json() {
                output.line(&all.iter().map(object).collect::<Vec<_>>())?;
            } else {
                let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
                let lines = size.map(|size| usize::from(size.ws_row)).filter(|_| screen.is_some());
                let clear = if screen.is_some() { HOME_AND_CLEAR } else { "" };
                write!(std::io::stdout(), "{clear}{}", text(&all, output, lines))?;
                std::io::stdout().flush()?;
            }
            let is_last = most.is_some_and(|most| looks >= most);
            if is_last || !wait(self.delay, screen.is_some())? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_looks_at_one_engine() {
        let at = Instant::now();
        let seconds = Duration::from_secs_f64;
        let before = Counted { at, engine: 7, used: seconds(1.0), idle: seconds(8.0), stalled: seconds(0.0) };
        let now = Counted {
            at: at + seconds(2.0),
            engine: 7,
            used: seconds(1.5),
            idle: seconds(11.0),
            stalled: seconds(0.5),
        };
        assert_eq!(now.since(&before, 2), Some([0.25, 0.75, 0.25]));
        assert_eq!(Counted { idle: seconds(99.0), ..now }.since(&before, 1).unwrap()[1], 1.0);
        let other = Counted { engine: 8, ..before };
        assert_eq!(before_and(&other), None);
        assert!(used(std::process::id()).is_some());
    }

    fn before_and(other: &Counted) -> Option<[f64; 3]> {
        let later = Counted { at: other.at + SHORTEST, engine: other.engine + 1, ..*other };
        later.since(other, 1)
    }
}
