//! Chapter 9 of the thesis, of a recording of this project's own build and tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use comb_trace::report::{self, Content, Report};
use comb_trace::snapshot::{Options, take};
use comb_trace::store;

use crate::items::{NO_NUMBER, item};
use crate::reproduce::{Item, ReproduceError, Reproduced};

/// What is built and tested: crates of this repository that take less than a minute.
const BUILT: [&str; 3] = ["comb-types", "comb-congestion", "comb-sim"];

/// An item, the paper's value and unit, and the row of the report that says the same.
type Claim = (&'static str, Option<f64>, &'static str, &'static str);

const CLAIMS: [Claim; 31] = [
    (
        "Table 9.1, throughput of a user, over 10 minutes",
        Some(24.0),
        "KB/s",
        "throughput of a user, in 10-minute intervals",
    ),
    (
        "Table 9.1, files open for less than 10 ms",
        Some(75.0),
        "%",
        "files with data moved that are open for less than 10 ms",
    ),
    ("Table 9.1, accessed files smaller than 26 KB", Some(80.0), "%", "opened files of less than 26 KB"),
    ("Table 9.1, accesses that are sequential", Some(60.0), "%", "sessions that go through a file in order"),
    ("Table 9.1, files of 4 MB or more", Some(20.0), "%", "opened files of 4 MB or more"),
    ("Table 9.1, new files overwritten within 4 ms", Some(26.0), "%", "new files overwritten within 4 ms"),
    ("Table 9.1, new files deleted within 5 s", Some(55.0), "%", "new files deleted within 5 s"),
    (
        "Table 9.1, opens for control or directory operations",
        Some(74.0),
        "%",
        "opens for control or directory operations alone",
    ),
    ("Table 9.1, reads from the cache", Some(60.0), "%", "reads whose data came from the page cache"),
    (
        "Table 9.1, opens for reading with which one prefetch was enough",
        Some(92.0),
        "%",
        "read sessions in which at most one read waited for pages",
    ),
    ("Table 9.1, reads by the short way (FastIO)", Some(59.0), "%", "reads that went the short way"),
    (
        "Table 9.1, writes by the short way (FastIO)",
        Some(96.0),
        "%",
        "write sessions that went the short way",
    ),
    ("Table 9.1, changes of content in user profiles", Some(94.0), "%", "changes that are in one subtree"),
    (
        "§9.6.2, read-only accesses of whole files in sequence",
        Some(68.0),
        "%",
        "read-only, whole file: of its sessions",
    ),
    ("§9.6.2, read-only data moved in sequence", Some(58.0), "%", "read-only, in order at all: of its bytes"),
    (
        "§9.6.2, sequential runs, 80 % are shorter than",
        Some(11.0),
        "KB",
        "four of five sequential runs are shorter",
    ),
    (
        "§9.6.2, all sessions that move data, 80 % are shorter than",
        Some(24.0),
        "KB",
        "four of five sessions move less",
    ),
    (
        "§9.6.2, operations to files of less than 2 KB",
        Some(40.0),
        "%",
        "reads and writes of files of less than 2 KB",
    ),
    ("§9.6.3, new files gone within 4 s", Some(80.0), "%", "new files gone within 4 s"),
    ("§9.6.3, deletes by truncation", Some(37.0), "%", "new files that ended: overwritten"),
    ("§9.6.3, deletes by a control operation", Some(62.0), "%", "new files that ended: deleted"),
    (
        "§9.6.3, deletes by the attribute for temporary files",
        Some(1.0),
        "%",
        "new files that ended: temporary by attribute",
    ),
    (
        "§9.6.3, overwritten by the process that made them",
        Some(94.0),
        "%",
        "overwritten by the process that made them",
    ),
    (
        "§9.6.3, deleted by the process that made them",
        Some(36.0),
        "%",
        "deleted by the process that made them",
    ),
    ("§9.8, opens within 1 ms of another", Some(40.0), "%", "opens within 1 ms of another"),
    ("§9.8, files closed within 1 ms", Some(40.0), "%", "files closed within 1 ms"),
    ("§9.8, seconds with opens, most", Some(24.0), "%", "seconds in which anything is opened"),
    ("§9.8.2, reads of 512 or 4096 B", Some(59.0), "%", "reads of 512 or 4096 bytes"),
    ("§9.8.4, opens that fail", Some(12.0), "%", "opens that fail"),
    ("§9.8.4, control operations that fail", Some(8.0), "%", "control and directory operations that fail"),
    ("§9.8.4, reads that fail", Some(0.2), "%", "reads that fail"),
];

/// The paper's items, of a report if there is one.
pub(crate) fn items(report: Option<&Report>) -> Vec<Item> {
    let find = |what: &str| {
        let rows = report.into_iter().flat_map(|report| &report.tables).flat_map(|table| &table.rows);
        rows.into_iter().find(|row| row.what == what)
    };
    let mut items: Vec<Item> = CLAIMS
        .into_iter()
        .map(|(name, value, unit, what)| {
            let row = find(what);
            let measured = row.and_then(|row| row.here.value);
            let note = row.map_or("", |row| row.note.as_str());
            let made = item("nt-files", name, value, unit).ours(measured);
            if measured.is_some() || report.is_none() {
                made.note(note)
            } else {
                made.pending("nothing of it was recorded, or it needs snapshots")
            }
        })
        .collect();
    // As the thesis goes by it: Hill's estimator of every variable that has one, whatever the verdict.
    let alphas: Vec<f64> = report
        .into_iter()
        .flat_map(|report| &report.distributions)
        .filter_map(|one| Some(one.hill_alpha?[0]))
        .collect();
    let note =
        "Hill's estimator alone, as the thesis goes by it; what may be said beyond doubt is the next item";
    for (name, value, found) in [
        ("least", 1.2, alphas.iter().copied().reduce(f64::min)),
        ("most", 1.7, alphas.iter().copied().reduce(f64::max)),
    ] {
        items.push(
            item("nt-files", &format!("Table 9.1, Hill estimator, {name}"), value, "").ours(found).note(note),
        );
    }
    let heavy = report.map(|report| {
        let heavy = report.distributions.iter().filter(|one| one.verdict == "heavy-tailed").count();
        (heavy, report.distributions.len())
    });
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let share = heavy.map(|(heavy, all)| heavy as f64 / all as f64 * 100.0);
    items.push(
        item("nt-files", "§9.7, variables with heavy tails", 100.0, "%")
            .ours(share)
            .note("the thesis goes by Hill and log-log plots alone"),
    );
    for (name, table) in [("Table 9.2, activity of users", "9.2"), ("Table 9.3, patterns of access", "9.3")] {
        let rows = report
            .and_then(|report| report.tables.iter().find(|one| one.number == table))
            .map(|table| table.rows.len());
        #[expect(clippy::cast_precision_loss, reason = "some dozens")]
        let rows = rows.map(|rows| rows as f64);
        items.push(
            item("nt-files", name, None, "rows")
                .ours(rows)
                .note(format!("{NO_NUMBER}; the report has the table")),
        );
    }
    items.push(
        item("nt-files", "Table 9.1, changes of a profile in the WWW cache, most", 90.0, "%")
            .pending("a build has no browser's cache"),
    );
    items.push(
        item("nt-files", "§9.3.2, load that the tracing adds, most", 0.5, "%")
            .pending("comb bench trace measures it"),
    );
    items
}

fn failed(error: impl std::fmt::Display) -> ReproduceError {
    ReproduceError::Nothing(error.to_string())
}

/// Records a build and its tests, and reports on it.
pub(crate) fn reproduce(into: &Path, talks: bool) -> Result<Reproduced, ReproduceError> {
    let root = repository()
        .ok_or_else(|| failed("it records the build of this project: run it in its repository"))?;
    let scratch = std::env::temp_dir().join(format!("comb-reproduce-nt-files-{}", std::process::id()));
    fs::create_dir(&scratch).map_err(failed)?;
    let done = record_and_report(&root, &scratch, into, talks);
    let _ = fs::remove_dir_all(&scratch);
    let (report, folder) = done?;
    let how = format!(
        "A recording of `cargo test {}` from nothing, of this repository, and `git status`, `find` and `grep` over it: {} operations in {} sessions, {:.0} s. A \
         scripted load: nobody types, and nobody hesitates. The whole report: {}",
        BUILT.map(|name| format!("-p {name}")).join(" "),
        report.about.operations,
        report.about.sessions,
        report.about.seconds,
        folder.join("index.html").display()
    );
    Ok(Reproduced { how, items: items(Some(&report)), drawings: Vec::new() })
}

/// The workspace that this runs in.
fn repository() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let found = here.ancestors().find(|folder| folder.join("crates/sim/Cargo.toml").is_file());
    found.map(Path::to_path_buf)
}

fn snapshot(trees: &[PathBuf], to: &Path) -> Result<(), ReproduceError> {
    let mut file = std::io::BufWriter::new(fs::File::create_new(to).map_err(failed)?);
    take(trees, &Options::default(), &mut file).map_err(failed)?;
    std::io::Write::flush(&mut file).map_err(failed)
}

fn record_and_report(
    root: &Path,
    scratch: &Path,
    into: &Path,
    talks: bool,
) -> Result<(Report, PathBuf), ReproduceError> {
    let packages = BUILT.map(|name| format!("-p {name}")).join(" ");
    // What cargo downloads is there before: a network is no file.
    let fetched = Command::new("cargo").args(["fetch", "--quiet"]).current_dir(root).status();
    if !fetched.map_err(|error| failed(format!("cargo: {error}")))?.success() {
        return Err(failed("cargo fetch failed"));
    }
    if talks {
        eprint!("\rrecording a build and its tests");
    }
    let script = format!(
        "cargo test --quiet {packages} && git status >/dev/null && find . -name '*.rs' -size +8k >/dev/null && grep -rl unsafe crates >/dev/null"
    );
    let recording = scratch.join("recording");
    let [before, after] = ["before", "after"].map(|name| scratch.join(name).with_extension("snapshot"));
    let target = scratch.join("target");
    fs::create_dir(&target).map_err(failed)?;
    let trees = [root.to_path_buf(), target.clone()];
    snapshot(&trees, &before)?;
    let status = Command::new("/proc/self/exe")
        .args(["trace", "record", "--quiet", "--mechanism", "kernel", "--to"])
        .arg(&recording)
        .args(["--", "sh", "-c", &script])
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTC_WRAPPER")
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    let status = status.map_err(failed)?;
    if !status.success() {
        return Err(failed(format!("the recorded build: {status}")));
    }
    snapshot(&trees, &after)?;
    let content = Content::of(Some(&before), Some(&after)).map_err(failed)?;
    store::ensure_tables(&recording, &mut |_| {}).map_err(failed)?;
    let report = report::make(&recording, Some(report::By::Process), &content).map_err(failed)?;
    let folder = into.join("nt-files");
    report::write(&report, &folder).map_err(failed)?;
    Ok((report, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each claim is looked up by the words of a row: they have to be there.
    #[test]
    fn every_claim_names_a_row_of_the_report() {
        let sources = [
            include_str!("../../trace/src/report/observations.rs"),
            include_str!("../../trace/src/report/tables.rs"),
        ];
        for (name, _, _, what) in CLAIMS {
            let is_made = what.starts_with("read-only");
            assert!(
                is_made || sources.iter().any(|source| source.contains(&format!("\"{what}\""))),
                "{name}: {what}"
            );
        }
    }

    #[test]
    fn without_a_report_nothing_is_measured() {
        assert!(items(None).iter().all(|item| item.measured.is_none()));
    }
}
