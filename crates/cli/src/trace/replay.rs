//! `comb trace replay` and `comb trace fio`.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use comb_trace::replay::fio::{LogVersion, iolog, job_file};
use comb_trace::replay::{Fill, MOST_WORKERS, Pace, Plan, Sandbox, Summary, replay};
use comb_trace::store::recordings;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::table;

const EXAMPLES: &str = "\
All that was done to files is done again, below one directory: nothing outside it is touched. What a recording does not say is made up: contents
of files are zeros, links lead nowhere. A recording made with --mechanism preload or with lost events comes out differently in places.

Examples:
  comb trace replay comb-trace-… /mnt/new/sandbox              as fast as it goes
  comb trace replay comb-trace-… /mnt/new/sandbox --timed 2    at twice the speed it had
  comb trace fio comb-trace-… --to jobs                        for fio: jobs/jobs.fio, and jobs/log for exact replay";

/// Does again what was recorded, in a directory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Replay {
    /// A recording, or a directory with one
    recording: PathBuf,
    /// Where: a directory that is empty or not there yet
    directory: PathBuf,
    /// Keep the pace of the recording, or so many times that
    #[arg(long, value_name = "SPEED", num_args = 0..=1, default_missing_value = "1")]
    timed: Option<f64>,
    /// Fill the files that were there before; otherwise they are holes
    #[arg(long)]
    fill: bool,
    /// Remove all that was made afterwards
    #[arg(long)]
    clean: bool,
}

/// The plan of a recording.
fn plan(output: Output, place: &Path) -> Result<Plan, Failure> {
    let path = if place.is_dir() {
        let mut found = recordings(place)?;
        match found.len() {
            0 => {
                return Err(Failure::not_found(format!("{}: no recording (*.trace) in it", place.display())));
            }
            1 => found.remove(0),
            more => {
                return Err(Failure::usage(format!("{} has {more} recordings: name one", place.display())));
            }
        }
    } else {
        place.to_path_buf()
    };
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let file =
        File::open(&path).map_err(|error| Failure::not_found(format!("{}: {error}", path.display())))?;
    let plan = Plan::read(BufReader::new(file), MOST_WORKERS).map_err(|error| failed(&error))?;
    if let Some(fault) = plan.fault() {
        output.warn(format!("{}: {fault}", path.display()));
    }
    Ok(plan)
}

impl Replay {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let pace = match self.timed {
            None => Pace::AsFastAsPossible,
            Some(speed) if speed > 0.0 && speed.is_finite() => Pace::Timed { speed },
            Some(_) => return Err(Failure::usage("a speed is a number above 0, such as 1 or 0.5")),
        };
        let plan = plan(output, &self.recording)?;
        let fill = if self.fill { Fill::Bytes } else { Fill::Holes };
        let progress = Progress::begin(output, format!("making {} files", plan.prior_files()));
        let sandbox = Sandbox::prepare(&self.directory, &plan, fill)
            .map_err(|error| Failure::new(error.to_string()))?;
        drop(progress);
        let progress = Progress::begin(
            output,
            format!("doing {} operations by {} threads", plan.operations(), plan.threads()),
        );
        let summary = replay(&plan, &sandbox, pace);
        drop(progress);
        if self.clean {
            sandbox.clean(&plan);
        }
        tell(output, &plan, &summary)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(output: Output, plan: &Plan, summary: &Summary) -> Result<(), Failure> {
    let left: u64 = plan.left().values().sum();
    let (took, recorded) = (summary.elapsed.as_secs_f64(), summary.recorded.as_secs_f64());
    let first: Vec<String> = summary
        .first_differences
        .iter()
        .map(|one| {
            format!(
                "{} of {}: {:?} then, {:?} now",
                one.operation,
                String::from_utf8_lossy(&one.path),
                one.recorded,
                one.replayed
            )
        })
        .collect();
    let done: Vec<_> = summary.done.iter().map(|(operation, done)| json!({ "operation": operation.name(), "count": done.count, "bytes": done.bytes })).collect();
    let object = json!({
        "operations": plan.operations(), "left_out": left, "seconds": took, "recorded_seconds": recorded, "read_bytes": summary.read_bytes,
        "written_bytes": summary.written_bytes, "differences": summary.differences, "first_differences": first, "done": done,
    });
    output.show(&object, || {
        let mut text = format!(
            "{} operations in {took:.3} s ({recorded:.3} s when recorded): {} read, {} written; {} came out differently, {left} were left out\n",
            plan.operations(),
            table::bytes(summary.read_bytes),
            table::bytes(summary.written_bytes),
            summary.differences
        );
        for ((operation, why), count) in plan.left() {
            text.push_str(&format!("  left out: {count} of {operation}, {}\n", why.reason()));
        }
        for difference in &first {
            text.push_str(&format!("  {difference}\n"));
        }
        text
    })
}

/// Writes what was recorded down for fio
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Fio {
    /// A recording, or a directory with one
    recording: PathBuf,
    /// The folder to write jobs.fio and log into
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Where fio is to have its files [default: files, in that folder]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

impl Fio {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let plan = plan(output, &self.recording)?;
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", self.to.display()));
        fs::create_dir_all(&self.to).map_err(failed)?;
        let (jobs, log) = (self.to.join("jobs.fio"), self.to.join("log"));
        let write = |path: &Path, what: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>| {
            let mut file = BufWriter::new(File::create(path)?);
            what(&mut file)?;
            file.flush()
        };
        write(&jobs, &|file| job_file(&plan, file)).map_err(failed)?;
        let files = self.files.clone().unwrap_or_else(|| self.to.join("files"));
        let files = std::path::absolute(&files).map_err(failed)?;
        write(&log, &|file| iolog(&plan, &files.to_string_lossy(), LogVersion::Three, file))
            .map_err(failed)?;
        output.tell(
            &json!({ "jobs": jobs, "log": log }),
            format_args!("{}\n{}", jobs.display(), log.display()),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
