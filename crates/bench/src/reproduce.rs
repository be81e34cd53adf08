//! `comb reproduce`: what the papers claim, measured again here.
//!
//! A number of thirty years ago is history: it stands beside ours for the record. What is compared is ours with the
//! classic way, of the same processes in the same run.

mod findings;
mod item;
mod markup;
pub(crate) mod messages;
mod page;
mod paper;
mod plot;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use self::findings::{Failed, Findings, Folder, Run};
use self::item::{Counts, readable};
pub(crate) use self::item::{Item, PENDING, State};
pub use self::paper::Paper;
use crate::figure::{Drawing, FigureError};
use crate::report::shows_progress;
use crate::{blizzard_items, blizzard_tables, cc, cell, hive_items, memory, mscs_figures};

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// The measured processes failed.
    #[error("nothing was measured: {0}")]
    Nothing(String),
    /// No command measures it.
    #[error("nothing here measures {0} yet: its items are pending")]
    Pending(&'static str),
    /// Of all papers some failed; the others are in the report.
    #[error("not all papers were measured: {0}")]
    NotAll(String),
    /// What another command was to have written cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The report cannot be written.
    #[error("{path}: the report cannot be written there: {source}")]
    Unwritable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nobody takes what is printed.
    #[error(transparent)]
    Output(io::Error),
    /// A figure could not be drawn.
    #[error(transparent)]
    Figure(#[from] FigureError),
}

/// What was found out about a paper.
pub(crate) struct Reproduced {
    /// How it was measured.
    pub(crate) how: String,
    pub(crate) items: Vec<Item>,
    pub(crate) drawings: Vec<Drawing>,
}

/// How it is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Where the report is, or is to be.
    pub into: &'a Path,
    /// For programs: one object a line.
    pub json: bool,
    /// Where the lines of `comb inject` are, for Hive's Table 7.4.
    pub injected: Option<&'a Path>,
}

impl Order<'_> {
    /// Measures a paper, puts that into the report, and prints it.
    pub fn one(&self, paper: Paper) -> Result<(), ReproduceError> {
        let injected = self.injected()?;
        self.prepare()?;
        self.measure(paper, injected.as_deref())
    }

    /// All that can be measured, one after the other. One that fails stops none of the others.
    pub fn all(&self) -> Result<(), ReproduceError> {
        let injected = self.injected()?;
        self.prepare()?;
        let (measured, pending): (Vec<_>, Vec<_>) =
            Paper::ALL.into_iter().partition(|paper| paper.takes().is_some());
        let mut failed = Vec::new();
        for (place, paper) in (1..).zip(&measured) {
            let takes = page::about(paper.takes().unwrap_or_default());
            eprintln!("{} ({place} of {}), about {takes}", paper.name(), measured.len());
            match self.measure(*paper, injected.as_deref()) {
                Ok(()) => {}
                // Nobody is there to be told of the others.
                Err(ReproduceError::Output(error)) => return Err(ReproduceError::Output(error)),
                Err(error) => {
                    eprintln!("{} failed: {error}", paper.name());
                    failed.push(paper.name());
                }
            }
        }
        let pending: Vec<&str> = pending.into_iter().map(Paper::name).collect();
        eprintln!("pending, as nothing here measures them yet: {}", pending.join(", "));
        if failed.is_empty() {
            Ok(())
        } else {
            Err(ReproduceError::NotAll(format!("{} failed", failed.join(", "))))
        }
    }

    /// Prints which papers there are, and what is known of them.
    pub fn list(&self) -> Result<(), ReproduceError> {
        // To look at it changes nothing; who measures puts it aside.
        let findings = Findings::read(self.into).unwrap_or_else(|why| {
            eprintln!("{} {why}", Folder(self.into).file().display());
            Findings::default()
        });
        let rows: Vec<Listed> = Paper::ALL.into_iter().map(|paper| Listed::of(paper, &findings)).collect();
        let text = if self.json {
            rows.iter().map(|row| serde_json::to_string(row).expect("plain data") + "\n").collect()
        } else {
            table(&rows)
        };
        said(&text)
    }

    fn injected(&self) -> Result<Option<String>, ReproduceError> {
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|source| ReproduceError::Unreadable { path: path.to_owned(), source })
        };
        self.injected.map(read).transpose()
    }

    fn prepare(&self) -> Result<(), ReproduceError> {
        let aside = Folder(self.into).prepare().map_err(|source| self.unwritable(source))?;
        aside.into_iter().for_each(|says| eprintln!("{says}"));
        Ok(())
    }

    fn unwritable(&self, source: io::Error) -> ReproduceError {
        ReproduceError::Unwritable { path: self.into.to_owned(), source }
    }

    fn measure(&self, paper: Paper, injected: Option<&str>) -> Result<(), ReproduceError> {
        if paper.takes().is_none() {
            // The page has them as well.
            self.add(paper, None)?;
            self.print(&paper.unmeasured())?;
            return Err(ReproduceError::Pending(paper.name()));
        }
        let started = Instant::now();
        let found = measure(paper, shows_progress(self.json), injected)
            .and_then(|found| Ok((self.draw(&found)?, found)));
        let (files, found) = match found {
            Ok(found) => found,
            Err(error) => {
                self.add(paper, Some(Err(Failed { at: findings::now(), why: error.to_string() })))?;
                return Err(error);
            }
        };
        self.add(paper, Some(Ok(Run::of(&found, started.elapsed()))))?;
        self.tell(&found, &files)
    }

    fn draw(&self, found: &Reproduced) -> Result<Vec<PathBuf>, ReproduceError> {
        let mut files = Vec::new();
        for drawing in &found.drawings {
            files.extend(drawing.draw(self.into)?);
        }
        Ok(files)
    }

    fn add(&self, paper: Paper, outcome: Option<Result<Run, Failed>>) -> Result<(), ReproduceError> {
        let aside = Folder(self.into).add(paper.name(), outcome).map_err(|source| self.unwritable(source))?;
        aside.into_iter().for_each(|says| eprintln!("{says}"));
        Ok(())
    }

    fn tell(&self, found: &Reproduced, files: &[PathBuf]) -> Result<(), ReproduceError> {
        let (page, file) = (Folder(self.into).page(), Folder(self.into).file());
        let written: Vec<&PathBuf> = files.iter().chain([&file, &page]).collect();
        if self.json {
            self.print(&found.items)?;
            written.iter().for_each(|path| eprintln!("{}", path.display()));
            return Ok(());
        }
        said(&format!(
            "{}\nThe papers' numbers are history; ours stand beside the classic way (baseline) of the same run.\n\n",
            found.how
        ))?;
        self.print(&found.items)?;
        let Counts { items, measured, history, pending } = Counts::of(&found.items);
        let mut text = format!(
            "\n{items} items: {measured} measured, {history} history, {pending} pending (not measured)\n"
        );
        for path in files {
            text.push_str(&format!("figure: {}\n", path.display()));
        }
        text.push_str(&format!("report: {}, and as data {}\n", page.display(), file.display()));
        said(&text)
    }

    fn print(&self, items: &[Item]) -> Result<(), ReproduceError> {
        if !self.json {
            return said(&rows(items));
        }
        let lines = items.iter().map(|item| serde_json::to_string(item).expect("plain data") + "\n");
        said(&lines.collect::<String>())
    }
}

fn said(text: &str) -> Result<(), ReproduceError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(ReproduceError::Output)
}

fn measure(paper: Paper, talks: bool, injected: Option<&str>) -> Result<Reproduced, ReproduceError> {
    match paper {
        Paper::Unet => messages::unet(talks),
        Paper::Via => messages::via(talks),
        Paper::Mscs => mscs_figures::reproduce(talks),
        Paper::Blizzard => of_memory(talks),
        Paper::Hive => of_cells(talks, injected),
        Paper::Giganet
        | Paper::Quintet
        | Paper::Galaxy
        | Paper::NtFiles
        | Paper::Disco
        | Paper::CacheKernel => Err(ReproduceError::Pending(paper.name())),
    }
}

/// Of shared memory, by the parts of `comb bench memory`.
fn of_memory(talks: bool) -> Result<Reproduced, ReproduceError> {
    let measured =
        memory::measure(false, talks).map_err(|error| ReproduceError::Nothing(error.to_string()))?;
    let mut how = "Processes of this machine, whose blocks are copied as between hosts if nothing else is said. Medians of `comb bench memory`, \
                   and what `comb bench cc` measures of compiled programs."
        .to_owned();
    let mut or_why = |what: &str, error: Box<dyn std::error::Error>| {
        how.push_str(&format!("\n{what} were not measured: {error}"));
    };
    let compiled = cc::measure(None, false, talks).unwrap_or_else(|error| {
        or_why("Compiled programs", error);
        cc::Measured::default()
    });
    let figure = cc::figure_1::measure(talks).unwrap_or_else(|error| {
        or_why("Figure 1's programs", error);
        cc::figure_1::Measured::default()
    });
    let items = blizzard_items::blizzard(&measured, &compiled, &figure);
    let drawings = [figure.drawing()].into_iter().chain(blizzard_tables::drawings(&items)).collect();
    Ok(Reproduced { how, items, drawings })
}

/// Of cells, by the parts of `comb bench cell`.
fn of_cells(talks: bool, injected: Option<&str>) -> Result<Reproduced, ReproduceError> {
    let mut measured = cell::measure(None, false, talks);
    let mut how =
        "Processes and cells of this machine. Medians of `comb bench cell`, if nothing else is said."
            .to_owned();
    if let Err(error) = cell::writable::measure(&mut measured) {
        how.push_str(&format!("\nWritable pages were not looked at: {error}"));
    }
    for (part, why) in measured.missing() {
        how.push_str(&format!("\n{part:?} was not measured to its end: {why}"));
    }
    Ok(Reproduced { how, items: hive_items::hive(&measured, injected), drawings: Vec::new() })
}

fn rows(items: &[Item]) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), readable);
    let width = items.iter().map(|row| row.item.chars().count()).max().unwrap_or(0);
    let mut text =
        format!("{:width$}  {:>9} {:>9} {:>9}  {:7} note\n", "item", "paper", "measured", "baseline", "unit");
    for row in items {
        let ours = match row.state() {
            State::Measured => number(row.measured),
            State::History => "–".to_owned(),
            State::Pending => PENDING.to_owned(),
        };
        let (paper, classic) = (number(row.paper_value), number(row.baseline));
        let line =
            format!("{:width$}  {paper:>9} {ours:>9} {classic:>9}  {:7} {}", row.item, row.unit, row.note);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A paper in the list.
#[derive(Serialize)]
struct Listed {
    paper: &'static str,
    title: &'static str,
    items: usize,
    /// Of its last run here.
    measured: usize,
    history: usize,
    /// Of its last run; before one, what nothing measures.
    pending: usize,
    /// About; none while nothing measures it.
    takes_s: Option<u64>,
    /// When its last run came to its end.
    measured_at: Option<String>,
}

impl Listed {
    fn of(paper: Paper, findings: &Findings) -> Self {
        let run = findings.of(paper.name()).and_then(|part| part.run.as_ref());
        let (counts, pending) = match run {
            Some(run) => (Counts::of(&run.items), Counts::of(&run.items).pending),
            None => {
                let items = paper.unmeasured();
                // Some hold by construction: they are not measured for that.
                let counts = Counts { measured: 0, ..Counts::of(&items) };
                (counts, items.iter().filter(|item| item.is_waiting()).count())
            }
        };
        Self {
            paper: paper.name(),
            title: paper.title(),
            items: counts.items,
            measured: counts.measured,
            history: counts.history,
            pending,
            takes_s: paper.takes().map(|takes| takes.as_secs()),
            measured_at: run.map(|run| run.measured_at.clone()),
        }
    }
}

fn table(rows: &[Listed]) -> String {
    let line = |paper: &str, items: &str, pending: &str, takes: &str, last: &str, title: &str| {
        format!("{paper:<13} {items:>5} {pending:>8}  {takes:>7}  {last:<17} {title}\n")
    };
    let mut text = line("PAPER", "ITEMS", "PENDING", "TAKES", "LAST RUN", "CLAIMS OF");
    for row in rows {
        let (takes, last) = match (row.takes_s, &row.measured_at) {
            (None, None) => ("–".to_owned(), "–".to_owned()),
            (takes, at) => (
                takes.map_or_else(String::new, |takes| page::about(Duration::from_secs(takes))),
                at.as_deref().map_or_else(|| "never".to_owned(), page::day),
            ),
        };
        text.push_str(&line(
            row.paper,
            &row.items.to_string(),
            &row.pending.to_string(),
            &takes,
            &last,
            row.title,
        ));
    }
    text.push_str(
        "\nItems are pending that nothing here measures yet, and after a run those that it did not measure. Times are about, on \
         two cores and beside little else; comb reproduce all measures one after the other all that has one.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_is_listed_with_what_is_known_of_it() {
        let rows: Vec<Listed> =
            Paper::ALL.into_iter().map(|paper| Listed::of(paper, &Findings::default())).collect();
        for row in &rows {
            assert!(row.pending + row.history <= row.items && row.measured_at.is_none(), "{}", row.paper);
            if row.takes_s.is_none() {
                assert_eq!(
                    row.pending + row.history,
                    row.items,
                    "{}: what does the rest wait for?",
                    row.paper
                );
            } else {
                assert!(row.pending < row.items, "{}: a run would measure nothing", row.paper);
            }
        }
        let text = table(&rows);
        for paper in Paper::ALL {
            assert!(text.contains(&format!("\n{:<13}", paper.name())), "{text}");
        }
    }

    #[test]
    fn people_see_what_is_pending() {
        let items = Paper::Disco.unmeasured();
        let text = rows(&items);
        assert_eq!(text.lines().count(), items.len() + 1);
        assert!(text.lines().skip(1).all(|line| line.matches(PENDING).count() == 2), "a word and a reason");
    }
}
