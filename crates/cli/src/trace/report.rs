//! `comb trace report`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comb_trace::report::{self, Content};
use serde_json::json;

use super::store::tables;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

const EXAMPLES: &str = "\
The report is a page (index.html) with all tables and figures, the same as report.json, and a CSV file for each. What it may say and
what not is in docs/tracing.md.

Examples:
  comb trace report comb-trace-…                          into comb-trace-…/report
  comb trace report week --to week.report --by process    and what each program did";

/// By what a report drills down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    Category,
    Type,
    Process,
    User,
    Machine,
    /// Hours of the clock, in universal time
    #[value(alias = "time")]
    Hour,
    Operation,
}

impl From<By> for report::By {
    fn from(by: By) -> Self {
        match by {
            By::Category => Self::Category,
            By::Type => Self::Type,
            By::Process => Self::Process,
            By::User => Self::User,
            By::Machine => Self::Machine,
            By::Hour => Self::Hour,
            By::Operation => Self::Operation,
        }
    }
}

/// Writes tables and figures
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Report {
    /// A directory with recordings, or with their tables
    directory: PathBuf,
    /// Where the report goes [default: report, in that directory]
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
    /// Break it down
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Snapshots of the files (comb trace snapshot), before and after: what the thesis observes of content is in the report then
    #[arg(long, value_name = "SNAPSHOT")]
    before: Option<PathBuf>,
    /// See there
    #[arg(long, value_name = "SNAPSHOT")]
    after: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let content = Content::of(self.before.as_deref(), self.after.as_deref())?;
        tables(output, &self.directory)?;
        let progress = Progress::begin(output, "reading the tables");
        let made = report::make(&self.directory, self.by.map(Into::into), &content)?;
        drop(progress);
        let folder = self.to.unwrap_or_else(|| self.directory.join("report"));
        report::write(&made, &folder)
            .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        if made.about.lost > 0 {
            output.warn(format!(
                "{} events were lost when this was recorded: counts are too low",
                made.about.lost
            ));
        }
        if let Some(suspended) = made.about.suspended() {
            output.warn(suspended);
        }
        let page = folder.join("index.html");
        let object =
            json!({ "page": page, "operations": made.about.operations, "sessions": made.about.sessions });
        output.tell(
            &object,
            format_args!(
                "{} operations in {} sessions: {}",
                made.about.operations,
                made.about.sessions,
                page.display()
            ),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
