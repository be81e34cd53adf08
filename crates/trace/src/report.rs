//! The report: what the thesis' chapter 9 shows of Windows NT, of a recording of Linux. (Thesis §9.5–9.10)
//!
//! One pass over the table of operations and one over that of sessions gather all that is needed; tables, figures, observations and
//! verdicts are made of that, and written as a page, as JSON and as CSV. Where Linux differs from NT, the figure's note says how.

mod content;
mod csv;
mod figures;
mod gathering;
mod groups;
mod observations;
mod page;
mod plot;
mod samples;
mod tables;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

pub use self::content::{Content, ContentError};
pub use self::groups::By;

use self::gathering::Gathered;
use crate::store::{StoreError, TABLES_FOLDER};

/// Of what a report is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct About {
    /// The machines, each with its kernel, and how it was recorded.
    pub machines: Vec<Machine>,
    /// How many operations.
    pub operations: u64,
    /// How many sessions between an open and its close.
    pub sessions: u64,
    /// How many events were lost. Then counts are too low, and sessions may be too long.
    pub lost: u64,
    /// How long, from the first operation to the last.
    pub seconds: f64,
}

impl About {
    /// That recording was suspended meanwhile, where, and for how long in all, in a sentence; nothing if it was not.
    pub fn suspended(&self) -> Option<String> {
        let mut machines = BTreeSet::new();
        let (mut seconds, mut undelivered) = (0.0, 0);
        for (machine, suspension) in
            self.machines.iter().filter_map(|machine| Some((machine, machine.suspension.as_ref()?)))
        {
            machines.insert(machine.name.as_str());
            seconds += suspension.seconds;
            undelivered += suspension.undelivered;
        }
        let on = machines.iter().copied().collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "recording was suspended for {seconds:.1} s in all, on {on}: what happened then is in no count"
        );
        if undelivered > 0 {
            text.push_str(&format!("; {undelivered} events before may never have arrived"));
        }
        (!machines.is_empty()).then_some(text)
    }
}

/// One machine of a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its kernel.
    pub kernel: String,
    /// How calls were seen.
    pub mechanism: String,
    /// What was not.
    pub lacks: String,
    /// What was recorded, if it was a command.
    pub command: String,
    /// By how much the clock on the wall was set meanwhile.
    pub clock_step_ns: i64,
    /// If it is a recording that goes on after another one of the same agent: what is between the two.
    pub suspension: Option<Suspension>,
}

/// A time in which nothing was recorded on a machine. (Thesis §9.3)
#[derive(Clone, Debug, Default, Serialize)]
pub struct Suspension {
    /// How long it was.
    pub seconds: f64,
    /// Why.
    pub cause: String,
    /// How many events before it may never have reached the collector.
    pub undelivered: u64,
}

/// A value in a table: what was found over all, and the least and the most of single machines and users.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Value {
    /// Over all. Nothing where there is nothing to say.
    pub value: Option<f64>,
    /// The least of any one.
    pub least: Option<f64>,
    /// The most.
    pub most: Option<f64>,
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is about.
    pub what: String,
    /// In which unit.
    pub unit: &'static str,
    /// What was found here.
    pub here: Value,
    /// What the thesis says of NT, Sprite and BSD; nothing where its text gives no number.
    pub nt: Option<String>,
    /// See there.
    pub sprite: Option<String>,
    /// See there.
    pub bsd: Option<String>,
    /// What else one must know.
    pub note: String,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Its number in the thesis.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// How it was made.
    pub note: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// How an axis runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten.
    Log,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Style {
    /// As a line.
    Line,
    /// As steps: what is counted.
    Steps,
    /// As points.
    Points,
}

/// What belongs together in a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What it measures.
    pub label: &'static str,
    /// How it runs.
    pub scale: Scale,
}

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its number in the thesis.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What Linux's differs in, and how it is to be read.
    pub note: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// What may be said of how something is distributed.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// Of what.
    pub what: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// How many values there were.
    pub values: u64,
    /// How many of them were judged: of very many a random part.
    pub judged: u64,
    /// Their mean, and the values below which so many percent lie.
    pub mean: f64,
    /// See there.
    pub percentile_50: f64,
    /// See there.
    pub percentile_90: f64,
    /// See there.
    pub percentile_99: f64,
    /// The largest.
    pub most: f64,
    /// Heavy-tailed, not, or inconclusive.
    pub verdict: String,
    /// Why, in a sentence.
    pub reason: String,
    /// The exponent of the tail by Hill's estimator, where there is one, and the range it lies in with 95 % confidence.
    pub hill_alpha: Option<[f64; 3]>,
    /// And by a line through the log-log plot.
    pub line_alpha: Option<f64>,
    /// How straight quantiles lie against those of a normal and of a Pareto distribution: 1 is a line.
    pub normal_straightness: Option<f64>,
    /// See there.
    pub pareto_straightness: Option<f64>,
    /// The Hill plot: how many values of the tail, and the exponent they say.
    pub hill_plot: Vec<(f64, f64)>,
    /// The log-log plot.
    pub line_plot: Vec<(f64, f64)>,
}

/// A group of a drill-down.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What its operations have in common.
    pub name: String,
    /// How many operations.
    pub operations: u64,
    /// How many failed.
    pub errors: u64,
    /// How many sessions, and how many of them moved bytes.
    pub sessions: u64,
    /// See there.
    pub data_sessions: u64,
    /// How many bytes were read, and written.
    pub read_bytes: u64,
    /// See there.
    pub written_bytes: u64,
    /// What share of data sessions took all of a file in order.
    pub whole_file_share: Option<f64>,
    /// What share had jumps.
    pub random_share: Option<f64>,
    /// Half of the sessions were open for less, and nine of ten.
    pub open_ms_50: Option<f64>,
    /// See there.
    pub open_ms_90: Option<f64>,
}

/// A whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of what.
    pub about: About,
    /// Tables 9.1, 9.2 and 9.3.
    pub tables: Vec<Table>,
    /// Figures 9.1 to 9.14.
    pub figures: Vec<Figure>,
    /// What may be said of each variable.
    pub distributions: Vec<Distribution>,
    /// By what the groups are, if a drill-down was asked for.
    pub by: Option<&'static str>,
    /// The groups, the busiest first.
    pub groups: Vec<Group>,
}

/// Makes the report of a trace's directory, whose tables are there.
pub fn make(directory: &Path, by: Option<By>, content: &Content) -> Result<Report, StoreError> {
    let tables = directory.join(TABLES_FOLDER);
    let gathered = Gathered::of(&tables, by)?;
    let distributions = gathered.samples.distributions();
    Ok(Report {
        about: gathered.about.clone(),
        tables: vec![
            observations::table(&gathered, &distributions, content),
            tables::activity(&gathered),
            tables::patterns(&gathered),
        ],
        figures: figures::all(&gathered),
        distributions,
        by: by.map(By::name),
        groups: gathered.groups(),
    })
}

/// Writes a report to a folder: `index.html`, `report.json`, and a CSV file for each table and figure.
pub fn write(report: &Report, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("index.html"), page::page(report))?;
    let json = serde_json::to_vec_pretty(report).map_err(io::Error::other)?;
    fs::write(folder.join("report.json"), json)?;
    for (name, text) in csv::files(report) {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
