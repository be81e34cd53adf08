//! `comb trace top`: who does what with which files, as it happens.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_trace::history::{Chronicler, Fact, FileId, History, Instance, Known, ProgramId};
use comb_trace::kernel::Kernel;
use comb_trace::source::Source;
use comb_trace::trace_file::{Head, Listener};
use comb_trace::{Class, Operation, machine};
use serde_json::{Value, json};

use super::record::not_from_kernel;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table;
use crate::top::{HOME_AND_CLEAR, Screen, wait};

/// Shows who does what with which files, again and again
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only this process and its children [default: all processes]
    #[arg(short, long, value_name = "PID")]
    process: Option<u32>,
    /// Seconds from one look to the next
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::limit)]
    delay: Duration,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "COUNT")]
    looks: Option<u64>,
}

/// As many events are fetched before one looks at the clock again.
const MOST_AT_ONCE: usize = 1 << 16;

/// So often what there is is fetched, whatever the delay is: the ring is not to run over.
const FETCH_INTERVAL: Duration = Duration::from_millis(50);

/// So many of each are shown where nobody says how many there is room for.
const SHOWN: usize = 15;

#[derive(Clone, Copy, Default)]
struct Tally {
    operations: u64,
    opens: u64,
    errors: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Tally {
    fn add(&mut self, fact: &Fact) {
        self.operations += 1;
        self.opens += u64::from(fact.operation == Operation::Open);
        self.errors += u64::from(fact.error != 0);
        if fact.operation.class() == Class::Data {
            let is_written =
                fact.operation == Operation::Write || fact.flags & comb_trace::event::flag::SECOND != 0;
            let sum = if is_written { &mut self.written_bytes } else { &mut self.read_bytes };
            *sum = sum.saturating_add(fact.moved);
        }
    }
}

/// What happened since the last look.
#[derive(Default)]
struct Look {
    all: Tally,
    programs: BTreeMap<ProgramId, Tally>,
    files: BTreeMap<FileId, Tally>,
}

impl Chronicler for Look {
    fn operation(&mut self, fact: &Fact, _known: Known<'_>) {
        self.all.add(fact);
        self.programs.entry(fact.program).or_default().add(fact);
        if let Some(file) = fact.file {
            self.files.entry(file).or_default().add(fact);
        }
    }

    fn instance(&mut self, _instance: &Instance, _known: Known<'_>) {}
}

impl Top {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let mut kernel = Kernel::attach(self.process.is_none()).map_err(|error| not_from_kernel(&error))?;
        let mut wanted = Vec::new();
        if let Some(process) = self.process {
            kernel
                .follow(process)
                .map_err(|error| Failure::not_found(format!("process {process}: {error}")))?;
            wanted = machine::descendants(process);
        }
        let own = std::process::id();
        let processes =
            machine::processes(|number| number != own && (wanted.is_empty() || wanted.contains(&number)));
        let mut history = History::new(Look::default());
        history.head(&Head {
            processes,
            mounts: machine::mounts(),
            began: machine::now(),
            ..Head::default()
        });
        let is_page = std::io::stdout().is_terminal() && !output.is_json();
        let screen = if is_page { Some(Screen::begin()?) } else { None };
        let mut looks = 0;
        let mut since = Instant::now();
        loop {
            while kernel.fetch(MOST_AT_ONCE, &mut |event, texts| history.event(event, texts)) == MOST_AT_ONCE
            {
            }
            if since.elapsed() >= self.delay {
                let look = std::mem::take(&mut history.chronicler);
                let rows = rustix::termios::tcgetwinsize(std::io::stdout())
                    .ok()
                    .map(|size| usize::from(size.ws_row))
                    .filter(|_| is_page);
                show(output, &look, history.known(), since.elapsed(), kernel.counters().lost, rows)?;
                looks += 1;
                since = Instant::now();
            }
            let is_last = self.looks.is_some_and(|most| looks >= most);
            if is_last || !wait(FETCH_INTERVAL.min(self.delay), screen.is_some())? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// The busiest first.
fn busiest<K: Copy>(tallies: &BTreeMap<K, Tally>, most: usize) -> Vec<(K, Tally)> {
    let mut sorted: Vec<(K, Tally)> = tallies.iter().map(|(key, tally)| (*key, *tally)).collect();
    sorted.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.operations));
    sorted.truncate(most);
    sorted
}

fn show(
    output: Output,
    look: &Look,
    known: Known<'_>,
    took: Duration,
    lost: u64,
    rows: Option<usize>,
) -> Result<(), Failure> {
    // Two tables with their headings, and two lines above.
    let most = rows.map_or(SHOWN, |rows| rows.saturating_sub(6) / 2).max(1);
    let name = |program: ProgramId| {
        String::from_utf8_lossy(&known.processes.programs()[program.0 as usize].name).into_owned()
    };
    let number = |program: ProgramId| known.processes.programs()[program.0 as usize].process;
    let path =
        |file: FileId| String::from_utf8_lossy(&known.files.files()[file.0 as usize].path).into_owned();
    let (programs, files) = (busiest(&look.programs, most), busiest(&look.files, most));
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    let rate = |count: u64| count as f64 / took.as_secs_f64();
    if output.is_json() {
        let tally = |tally: &Tally| {
            json!({
                "operations": tally.operations, "opens": tally.opens, "errors": tally.errors, "read_bytes": tally.read_bytes,
                "written_bytes": tally.written_bytes,
            })
        };
        let with = |mut object: Value, key: &str, value: Value| {
            object[key] = value;
            object
        };
        let programs = programs.iter().map(|(program, of)| {
            with(with(tally(of), "process", name(*program).into()), "pid", number(*program).into())
        });
        let files = files.iter().map(|(file, of)| with(tally(of), "path", path(*file).into()));
        let object = json!({
            "seconds": took.as_secs_f64(), "lost": lost, "all": tally(&look.all), "processes": programs.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
        });
        return Ok(output.line(&object)?);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate of bytes, rounded")]
    let per_second = |bytes: u64| format!("{}/s", table::bytes(rate(bytes) as u64));
    let columns = |tally: &Tally| {
        vec![
            format!("{:.0}", rate(tally.operations)),
            format!("{:.0}", rate(tally.opens)),
            format!("{:.0}", rate(tally.errors)),
            per_second(tally.read_bytes),
            per_second(tally.written_bytes),
        ]
    };
    let heading = ["OPERATIONS/S", "OPENS/S", "FAILED/S", "READ", "WRITTEN"].map(str::to_owned).to_vec();
    let mut processes = vec![[heading.clone(), vec!["PID".to_owned(), "PROCESS".to_owned()]].concat()];
    processes.extend(programs.iter().map(|(program, tally)| {
        [columns(tally), vec![number(*program).to_string(), name(*program)]].concat()
    }));
    let mut of_files = vec![[heading, vec!["FILE".to_owned()]].concat()];
    of_files.extend(files.iter().map(|(file, tally)| [columns(tally), vec![path(*file)]].concat()));
    let keys = if rows.is_some() { "   q: quit" } else { "" };
    let clear = if rows.is_some() { HOME_AND_CLEAR } else { "" };
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{clear}{:.0} operations/s, {} read, {} written; {lost} lost{keys}\n\n{}\n{}",
        rate(look.all.operations),
        per_second(look.all.read_bytes),
        per_second(look.all.written_bytes),
        table::format(&processes),
        table::format(&of_files)
    )?;
    out.flush()?;
    Ok(())
}
