//! `comb reproduce`: what the papers claim, measured again here.
//!
//! A number of thirty years ago is history: it stands beside ours for the record. What is compared is ours with the
//! classic way, of the same processes in the same run.

mod findings;
mod item;
mod list;
mod markup;
pub(crate) mod messages;
mod page;
mod paper;
mod plot;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use self::findings::{Failed, Findings, Folder, Run};
use self::item::{Counts, readable};
pub(crate) use self::item::{Item, PENDING, State};
pub use self::paper::Paper;
use crate::figure::{Drawing, FigureError};
use crate::report::shows_progress;
use crate::{
    blizzard_items, blizzard_tables, cc, cell, disco_items, hive_items, kernel, memory, mscs_figures,
    nt_files,
};

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// The measured processes failed.
    #[error("nothing was measured: {0}")]
    Nothing(String),
    /// No command measures it.
    #[error("nothing here measures {0} yet: its items are pending")]
    Pending(&'static str),
    /// Of all papers some failed.
    #[error("these papers failed: {0}; the others are in the report")]
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
        let done = one_by_one(&measured, |paper| self.measure(paper, injected.as_deref()));
        let pending: Vec<&str> = pending.into_iter().map(Paper::name).collect();
        eprintln!("pending, as nothing here measures them yet: {}", pending.join(", "));
        done
    }

    /// Prints which papers there are, and what is known of them.
    pub fn list(&self) -> Result<(), ReproduceError> {
        // To look at it changes nothing; who measures puts it aside.
        let findings = Findings::read(self.into).unwrap_or_else(|why| {
            eprintln!("{} {why}", Folder(self.into).file().display());
            Findings::default()
        });
        said(&list::list(&findings, self.json))
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
        let found = measure(paper, self.into, shows_progress(self.json), injected)
            .and_then(|found| Ok((self.draw(&found)?, found)));
        let (files, found) = match found {
            Ok(found) => found,
            Err(error) => {
                let failed = Failed { at: findings::now(), why: error.to_string() };
                self.add(paper, Some(Err(failed))).unwrap_or_else(|unwritable| eprintln!("{unwritable}"));
                return Err(error);
            }
        };
        self.add(paper, Some(Ok(Run::of(&found, started.elapsed()))))?;
        self.tell(paper, &found, &files)
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

    fn tell(&self, paper: Paper, found: &Reproduced, files: &[PathBuf]) -> Result<(), ReproduceError> {
        let (page, file) = (Folder(self.into).page(), Folder(self.into).file());
        let written: Vec<&PathBuf> = files.iter().chain([&file, &page]).collect();
        if self.json {
            self.print(&found.items)?;
            written.iter().for_each(|path| eprintln!("{}", path.display()));
            return Ok(());
        }
        said(&format!(
            "{}\n{}\nSame experiment, today's hardware: the paper's numbers are history; ours stand beside the classic way (baseline) of the same run.\n\n",
            paper.title(),
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

fn one_by_one(
    papers: &[Paper],
    mut measure: impl FnMut(Paper) -> Result<(), ReproduceError>,
) -> Result<(), ReproduceError> {
    let mut failed = Vec::new();
    for (place, paper) in (1..).zip(papers) {
        let takes = page::about(paper.takes().unwrap_or_default());
        eprintln!("{} ({place} of {}), about {takes}", paper.name(), papers.len());
        match measure(*paper) {
            Ok(()) => {}
            // Nobody is there to be told of the others.
            Err(ReproduceError::Output(error)) => return Err(ReproduceError::Output(error)),
            Err(error) => {
                eprintln!("{} failed: {error}", paper.name());
                failed.push(paper.name());
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(ReproduceError::NotAll(failed.join(", "))) }
}

fn said(text: &str) -> Result<(), ReproduceError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(ReproduceError::Output)
}

fn measure(
    paper: Paper,
    into: &Path,
    talks: bool,
    injected: Option<&str>,
) -> Result<Reproduced, ReproduceError> {
    match paper {
        Paper::Unet => messages::unet(talks),
        Paper::Via => messages::via(talks),
        Paper::Mscs => mscs_figures::reproduce(talks),
        Paper::Blizzard => of_memory(talks),
        Paper::Hive => of_cells(talks, injected),
        Paper::NtFiles => nt_files::reproduce(into, talks),
        Paper::CacheKernel => kernel::reproduce(talks),
        Paper::Disco => disco_items::reproduce(talks),
        Paper::Giganet | Paper::Quintet | Paper::Galaxy => Err(ReproduceError::Pending(paper.name())),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_that_fails_stops_none_of_the_others() {
        let papers = [Paper::Unet, Paper::Via, Paper::Hive];
        let mut tried = Vec::new();
        let done = one_by_one(&papers, |paper| {
            tried.push(paper);
            if paper == Paper::Via { Err(ReproduceError::Nothing("no".to_owned())) } else { Ok(()) }
        });
        assert_eq!(tried, papers);
        assert_eq!(done.unwrap_err().to_string(), "these papers failed: via; the others are in the report");
        assert!(one_by_one(&papers, |_| Ok(())).is_ok());
        let mut tried = 0;
        let done = one_by_one(&papers, |_| {
            tried += 1;
            Err(ReproduceError::Output(io::ErrorKind::BrokenPipe.into()))
        });
        assert!(matches!(done, Err(ReproduceError::Output(_))) && tried == 1, "nobody reads on");
    }

    #[test]
    fn people_see_what_is_pending() {
        let items = Paper::Giganet.unmeasured();
        let text = rows(&items);
        assert_eq!(text.lines().count(), items.len() + 1);
        assert!(text.lines().skip(1).all(|line| line.matches(PENDING).count() == 2), "a word and a reason");
    }
}
