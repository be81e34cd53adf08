//! `comb events`: what has happened, for people; `-o json` is the file itself.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comb_cell::journal;
use comb_host::RuntimeDirectory;
use comb_host::events::{Event, Following, What};
use comb_host::timeline::{Failure as Fault, Failures};

use crate::failure::{Failure, Kind, Outcome};
use crate::output::{Colour, Output};

const FOLLOW_INTERVAL: Duration = Duration::from_millis(25);

const EXAMPLES: &str = "\
Examples:
  comb events                        what has happened since `comb up`
  comb events -f --cell 2            and what comes, of cell 2
  comb events --failures             each failure, step by step
  comb events -f -o json | jq .      one object a line, for programs";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    /// Go on printing what happens, until the cells are taken down
    #[arg(short, long)]
    follow: bool,
    /// Only the last COUNT
    #[arg(short = 'n', long, value_name = "COUNT")]
    lines: Option<usize>,
    /// Only what is about that cell
    #[arg(long)]
    cell: Option<u32>,
    /// Failures, and how far each has come when
    #[arg(long, conflicts_with_all = ["follow", "lines"])]
    failures: bool,
}

impl Events {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        directory.check()?;
        if !directory.events_file().exists() {
            let text = format!("nothing has happened in {directory}: `comb up` starts cells there");
            return Err(Failure::of(Kind::NotRunning, text));
        }
        let mut following = Following::of(&directory);
        if self.failures {
            return self.tell_failures(&mut following, output);
        }
        let mut out = std::io::stdout().lock();
        let before: Vec<Event> =
            std::iter::from_fn(|| following.next_event()).filter(|event| self.means(event)).collect();
        let from = self.lines.map_or(0, |wanted| before.len().saturating_sub(wanted));
        for event in &before[from..] {
            write(event, output, &mut out)?;
        }
        if self.follow {
            self.go_on(&mut following, output, &mut out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn means(&self, event: &Event) -> bool {
        self.cell.is_none_or(|cell| event.what.cell() == Some(cell))
    }

    /// What comes, until everything was taken down.
    fn go_on(&self, following: &mut Following, output: Output, out: &mut impl Write) -> std::io::Result<()> {
        loop {
            // Asked first: what was written before the end is still read.
            let is_over = following.is_over();
            while let Some(event) = following.next_event() {
                if self.means(&event) {
                    write(&event, output, out)?;
                }
            }
            out.flush()?;
            if is_over {
                return Ok(());
            }
            std::thread::sleep(FOLLOW_INTERVAL);
        }
    }

    fn tell_failures(&self, following: &mut Following, output: Output) -> Outcome {
        let mut failures = Failures::default();
        while let Some(event) = following.next_event() {
            failures.take(&event);
        }
        let known: Vec<&Fault> =
            failures.all().filter(|failure| self.cell.is_none_or(|cell| failure.cell == cell)).collect();
        output.show(&known, || match known[..] {
            [] => "no cell has failed\n".to_owned(),
            _ => known.iter().map(|failure| story(failure)).collect::<Vec<_>>().join("\n"),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write(event: &Event, output: Output, out: &mut impl Write) -> std::io::Result<()> {
    if output.is_json() {
        return writeln!(out, "{}", serde_json::to_string(event)?);
    }
    let when = journal::timestamp(event.at_ms / 1000, u32::try_from(event.at_ms % 1000).unwrap_or(0));
    match colour(&event.what).filter(|_| output.has_colours()) {
        Some(colour) => writeln!(out, "{} {}", Colour::Dim.paint(&when), colour.paint(&event.text)),
        None => writeln!(out, "{when} {}", event.text),
    }
}

fn colour(what: &What) -> Option<Colour> {
    match what {
        What::CellStruck { .. } | What::CellEnded { .. } | What::CellCondemned { .. } => Some(Colour::Red),
        What::CellStaysDown { .. } | What::CellDraining { .. } => Some(Colour::Yellow),
        What::CellUp { .. } | What::CellRecovered { .. } => Some(Colour::Green),
        _ => None,
    }
}

/// A failure, step by step.
pub(crate) fn story(failure: &Fault) -> String {
    let when = journal::timestamp(failure.at_ms / 1000, u32::try_from(failure.at_ms % 1000).unwrap_or(0));
    let cause = if failure.cause.is_empty() { "has not ended yet" } else { failure.cause.as_str() };
    let mut text = format!("{when} cell {}, incarnation {}: {cause}\n", failure.cell, failure.incarnation);
    for reached in &failure.steps {
        text += &format!("  {:>9.3} ms  {:<12}  {}\n", reached.after_ms, reached.step.name(), reached.detail);
    }
    let of = if failure.regions.is_empty() {
        String::new()
    } else {
        format!(" of {}", failure.regions.join(", "))
    };
    let pages = if failure.discarded_pages == 1 { "page" } else { "pages" };
    text + &format!("  {} {pages}{of} discarded\n", failure.discarded_pages)
}
