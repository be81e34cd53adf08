//! `comb trace show`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comb_trace::event::flag;
use comb_trace::history::{Chronicler, Fact, History, Instance, Known};
use comb_trace::store::{calendar, recordings};
use comb_trace::trace_file::{Moment, Suspension, read_trace};
use comb_trace::{Class, Operation};
use rustix::io::Errno;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Reads a recording aloud
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A directory with recordings, or one recording
    place: PathBuf,
    /// Only operations on files whose path contains this
    #[arg(long, value_name = "TEXT")]
    path: Option<String>,
    /// Only operations of programs with this name
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Only these operations, such as open,read,page-in
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = operation)]
    operations: Vec<Operation>,
    /// Only those that failed
    #[arg(long)]
    failed: bool,
}

fn operation(name: &str) -> Result<Operation, String> {
    let mut all = Operation::ALL.into_iter().filter(|operation| operation.class() != Class::Note);
    let names: Vec<_> = all.clone().map(Operation::name).collect();
    all.find(|operation| operation.name() == name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

impl Show {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let found = if self.place.is_dir() { recordings(&self.place)? } else { vec![self.place.clone()] };
        if found.is_empty() {
            return Err(Failure::not_found(format!(
                "{}: no recording (*.trace) in it",
                self.place.display()
            )));
        }
        for path in found {
            let file = File::open(&path)
                .map_err(|error| Failure::not_found(format!("{}: {error}", path.display())))?;
            let out = BufWriter::new(std::io::stdout().lock());
            let printer = Printer { out, show: &self, is_json: output.is_json(), result: Ok(()) };
            let mut history = History::new(printer);
            let read = read_trace(BufReader::new(file), &mut history);
            history.finish();
            let began = history.head.began;
            let suspension = history.head.suspension;
            let mut printer = history.chronicler;
            printer.result?;
            printer.out.flush()?;
            if let Some(suspension) = suspension {
                output.warn(format!("{}: {}", path.display(), gap(&suspension, &began)));
            }
            match read {
                Ok(()) => {}
                Err(error) if error.leaves_good_part() => output.warn(format!("{}: {error}", path.display())),
                Err(error) => return Err(Failure::new(format!("{}: {error}", path.display()))),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is between the recording before and this one.
fn gap(suspension: &Suspension, began: &Moment) -> String {
    let Suspension { from, cause, undelivered, .. } = suspension;
    let second = i64::try_from(from.wall_ns / 1_000_000_000).unwrap_or(0);
    let [_, second, minute, hour, _, day, month, year] = calendar(second);
    let mut text = format!(
        "from {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC on nothing was recorded for {:.1} s: {cause}",
        suspension.silence(began).as_secs_f64()
    );
    if *undelivered > 0 {
        text.push_str(&format!("; {undelivered} events before may never have arrived"));
    }
    text
}

struct Printer<'a, W> {
    out: W,
    show: &'a Show,
    is_json: bool,
    result: std::io::Result<()>,
}

impl<W: Write> Chronicler for Printer<'_, W> {
    fn operation(&mut self, fact: &Fact, known: Known<'_>) {
        let path = fact.file.map_or(&[][..], |file| &known.files.files()[file.0 as usize].path);
        let path = String::from_utf8_lossy(path);
        let program = &known.processes.programs()[fact.program.0 as usize];
        let process = String::from_utf8_lossy(&program.name);
        let show = self.show;
        let is_wanted = show.path.as_ref().is_none_or(|wanted| path.contains(wanted.as_str()))
            && show.process.as_ref().is_none_or(|wanted| process == wanted.as_str())
            && (show.operations.is_empty() || show.operations.contains(&fact.operation))
            && (!show.failed || fact.error != 0);
        if !is_wanted || self.result.is_err() {
            return;
        }
        let wall_ns = known.wall_ns(fact.start_ns);
        let error = (fact.error != 0).then(|| Errno::from_raw_os_error(fact.error.into()));
        self.result = if self.is_json {
            let object = json!({
                "time_ns": wall_ns, "duration_ns": fact.duration_ns, "process": process, "pid": program.process, "thread": fact.thread,
                "operation": fact.operation.name(), "path": path, "instance": fact.instance, "descriptor": fact.descriptor,
                "result": fact.result, "error": fact.error, "offset": fact.offset, "asked": fact.asked, "moved": fact.moved,
                "argument": fact.argument, "size": fact.size, "pages": fact.pages, "flags": fact.flags,
            });
            writeln!(self.out, "{object}")
        } else {
            let second = wall_ns / 1_000_000_000 % 86_400;
            let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
            let micros = wall_ns / 1000 % 1_000_000;
            let head =
                format!("{hour:02}:{minute:02}:{second:02}.{micros:06} {process}[{}]", program.process);
            let took = format!("{}.{:03} µs", fact.duration_ns / 1000, fact.duration_ns % 1000);
            writeln!(self.out, "{head} {} {path}{} {took}", fact.operation.name(), details(fact, error))
        };
    }

    fn instance(&mut self, _instance: &Instance, _known: Known<'_>) {}
}

fn details(fact: &Fact, error: Option<Errno>) -> String {
    let mut text = String::new();
    if fact.operation.class() == Class::Data || matches!(fact.operation, Operation::PageIn | Operation::Map) {
        text.push_str(&format!(" {} of {} at {}", fact.moved, fact.asked, fact.offset));
    }
    if fact.flags & flag::CREATED != 0 {
        text.push_str(" made");
    }
    if fact.pages > 0 {
        text.push_str(&format!(" {} pages", fact.pages));
    }
    if let Some(error) = error {
        text.push_str(&format!(" failed: {error}"));
    }
    text
}
