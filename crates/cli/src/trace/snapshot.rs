//! `comb trace snapshot` and `comb trace difference`.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use comb_trace::privacy::Privacy;
use comb_trace::snapshot::{Change, Options, difference, take};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::table;

const EXAMPLES: &str = "\
Examples:
  comb trace snapshot /home --to monday.snapshot
  comb trace difference monday.snapshot tuesday.snapshot          what came, went, changed and moved, and where most of that is
  comb trace report comb-trace-… --before monday.snapshot --after tuesday.snapshot

Every day at four (in a crontab):
  0 4 * * *  comb trace snapshot /home --to /var/lib/snapshots/$(date +\\%F).snapshot";

/// Takes down which files there are
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Snapshot {
    /// Directories, with all that is below them
    #[arg(required = true, value_name = "TREE")]
    trees: Vec<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Go into other file systems that are mounted below
    #[arg(long)]
    cross: bool,
    /// Write names as hashes, by a key that is thrown away: such snapshots cannot be compared
    #[arg(long)]
    hash_names: bool,
}

impl Snapshot {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let privacy = if self.hash_names { Privacy::hashed() } else { Privacy::none() };
        let options = Options { crosses_file_systems: self.cross, privacy };
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", self.to.display()));
        let mut file = BufWriter::new(File::create_new(&self.to).map_err(failed)?);
        let progress = Progress::begin(output, "walking");
        let taken = take(&self.trees, &options, &mut file);
        drop(progress);
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                drop(file);
                // A part of a tree would look like a tree of which the rest is gone.
                let _ = fs::remove_file(&self.to);
                return Err(Failure::new(error.to_string()));
            }
        };
        file.flush().map_err(failed)?;
        if taken.end.unreadable > 0 {
            output.warn(format!("{} files or directories could not be looked at", taken.end.unreadable));
        }
        let object = json!({
            "snapshot": self.to, "files": taken.end.files, "directories": taken.end.directories, "vanished": taken.end.vanished,
            "unreadable": taken.end.unreadable, "bytes": taken.bytes,
        });
        let text = format!(
            "{} files and {} directories in {}: {}",
            taken.end.files,
            taken.end.directories,
            table::bytes(taken.bytes),
            self.to.display()
        );
        output.tell(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Compares two snapshots
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Difference {
    /// The earlier one
    old: PathBuf,
    /// The later one
    new: PathBuf,
    /// List every file that came, went, changed or moved
    #[arg(long)]
    files: bool,
}

fn open(path: &Path) -> Result<BufReader<File>, Failure> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| Failure::not_found(format!("{}: {error}", path.display())))
}

/// Places are named that so much of the changes is in, or more.
const MOST_OF_THEM: f64 = 0.75;

impl Difference {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let mut listed: Vec<(&str, String)> = Vec::new();
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let found = difference(open(&self.old)?, open(&self.new)?, |change| {
            if self.files {
                listed.push(match change {
                    Change::Added(entry) => ("added", text(&entry.path)),
                    Change::Removed(entry) => ("removed", text(&entry.path)),
                    Change::Changed { new, .. } => ("changed", text(&new.path)),
                    Change::Moved { old, new } => {
                        ("moved", format!("{} -> {}", text(&old.path), text(&new.path)))
                    }
                });
            }
        });
        let found = found.map_err(|error| Failure::new(error.to_string()))?;
        if let Some(fault) = &found.fault {
            output.warn(fault);
        }
        let places: Vec<(String, f64)> =
            found.by_place.down_to(MOST_OF_THEM).iter().map(|step| (text(&step.path), step.share)).collect();
        let by_category: Vec<_> = found.by_category().into_iter().collect();
        let object = json!({
            "added": found.files.added, "removed": found.files.removed, "changed": found.files.changed, "moved": found.files.moved,
            "unchanged": found.unchanged_files, "grown_bytes": found.grown_bytes, "shrunk_bytes": found.shrunk_bytes,
            "places": places.iter().map(|(path, share)| json!({ "path": path, "share": share })).collect::<Vec<_>>(),
            "categories": by_category.iter().map(|(category, changes)| json!({
                "category": category, "added": changes.added, "removed": changes.removed, "changed": changes.changed, "moved": changes.moved,
            })).collect::<Vec<_>>(),
            "files": listed.iter().map(|(what, path)| json!({ "what": what, "path": path })).collect::<Vec<_>>(),
        });
        output.show(&object, || {
            let mut lines = String::new();
            for (what, path) in &listed {
                lines.push_str(&format!("{what:<8} {path}\n"));
            }
            let mut rows = vec![["", "ADDED", "REMOVED", "CHANGED", "MOVED"].map(str::to_owned).to_vec()];
            for (name, changes) in std::iter::once(("all files", found.files)).chain(by_category) {
                let counts = [changes.added, changes.removed, changes.changed, changes.moved]
                    .map(|count| count.to_string());
                rows.push(std::iter::once(name.to_owned()).chain(counts).collect());
            }
            lines.push_str(&table::format(&rows));
            for (path, share) in &places {
                lines.push_str(&format!("{:.0} % of the changes are in {path}\n", share * 100.0));
            }
            lines
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
