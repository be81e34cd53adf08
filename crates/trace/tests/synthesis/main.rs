//! What is made up of a model is what the model says: by the report, by replay, and by the model that is measured of it again.

#[path = "../../src/temporary_folder.rs"]
mod temporary_folder;

mod model_file;

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use comb_trace::replay::fio::jobs;
use comb_trace::replay::{Fill, MOST_WORKERS, Pace, Plan, Sandbox, replay};
use comb_trace::report::{self, Content, Report};
use comb_trace::statistics::dispersion::{Burstiness, Dispersion};
use comb_trace::statistics::distributions::Sampler;
use comb_trace::store::{TABLES_FOLDER, ensure_tables};
use comb_trace::synthesis::{Amount, Model, Synthesized, Variable, generate, write_trace};
use comb_trace::{Event, Operation};
use comb_types::Dice;

use temporary_folder::TemporaryFolder;

/// As many sessions show the tails of periods.
const SESSIONS: u64 = 100_000;

/// A trace that was made up of a model, and its tables.
struct MadeUp {
    folder: TemporaryFolder,
}

impl MadeUp {
    fn of(model: &Model, seed: u64, amount: Amount) -> Self {
        let folder = TemporaryFolder::new();
        let file = File::create(folder.path().join("made-up.trace")).unwrap();
        write_trace(model, seed, amount, BufWriter::new(file)).unwrap();
        let faults = ensure_tables(folder.path(), &mut |_| {}).unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        Self { folder }
    }

    fn tables(&self) -> PathBuf {
        self.folder.path().join(TABLES_FOLDER)
    }

    fn report(&self) -> Report {
        report::make(self.folder.path(), None, &Content::default()).unwrap()
    }
}

/// Of one user: of several together the times between opens are nobody's.
fn of_one_user() -> Model {
    Model { sources: 1, ..Model::thesis() }
}

fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let difference = (found / expected - 1.0).abs();
    assert!(found == expected || difference <= tolerance, "{what}: {found}, and {expected} was expected");
}

#[test]
fn the_report_finds_the_distributions_of_the_model() {
    let model = of_one_user();
    let report = MadeUp::of(&model, 1, Amount::Sessions(SESSIONS)).report();
    let of = |what: &str| {
        let found = report.distributions.iter().find(|distribution| distribution.what == what);
        found.unwrap_or_else(|| panic!("the report has no {what}"))
    };
    for (what, variable, tolerance) in [
        ("bytes asked for by a read", &model.read_bytes, 0.05),
        // In the report there may be writes in between, which take their time.
        ("time from a read to the next of its session", &model.read_gap_ns, 0.25),
        ("time a file is open, with none moved", &model.control_open_ns, 0.05),
    ] {
        let found = of(what);
        for (p, found) in
            [(0.5, found.percentile_50), (0.9, found.percentile_90), (0.99, found.percentile_99)]
        {
            close(&format!("{what}, {p}"), found, variable.quantile(p), tolerance);
        }
    }
    for (what, variable) in [
        ("time a file is open, with none moved", &model.control_open_ns),
        ("time a file is open, with data moved", &model.held_ns),
        ("time from a read to the next of its session", &model.read_gap_ns),
    ] {
        let (found, alpha) = (of(what), variable.tail.unwrap().alpha);
        assert_eq!(found.verdict, "heavy-tailed", "{what}: {}", found.reason);
        let [hill, _, _] = found.hill_alpha.unwrap();
        assert!((hill - alpha).abs() <= 0.15, "{what}: {hill}, and {alpha} was made");
    }
    let rows: Vec<_> = report.tables.iter().flat_map(|table| &table.rows).collect();
    // What the text says of NT, and a model of it should be. (Thesis §9.1, §9.6, §9.8)
    for (what, least, most) in [
        ("opens for control or directory operations alone", 72.0, 76.0),
        ("files with data moved that are open for less than 10 ms", 72.0, 80.0),
        ("opened files of less than 26 KB", 76.0, 84.0),
        ("new files overwritten within 4 ms", 23.0, 29.0),
        ("opens within 1 ms of another", 37.0, 43.0),
        ("seconds in which anything is opened", 5.0, 30.0),
        ("reads of 512 or 4096 bytes", 57.0, 61.0),
        ("opens that fail", 11.0, 13.0),
        ("read-only, whole file: of its sessions", 64.0, 72.0),
    ] {
        let row = rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("no {what}"));
        let here = row.here.value.unwrap();
        assert!((least..=most).contains(&here), "{what}: {here}");
    }
}

#[test]
fn many_users_are_bursty_at_all_time_scales() {
    let model = Model { sources: 20, ..Model::thesis() };
    let opens: Vec<u64> = generate(&model, 1, Amount::Sessions(SESSIONS))
        .filter(|made| made.event.operation == Operation::Open as u8)
        .map(|made| made.event.start_ns)
        .collect();
    let dispersion = Dispersion::of(&opens, &mut Dice::new(1)).unwrap();
    assert_eq!(dispersion.burstiness, Burstiness::BurstierAtAllScales);
    let hurst = dispersion.hurst.unwrap();
    assert!(hurst > 0.6, "{hurst}");
    // Twice the users are twice the load, and no smoother than that.
    let twice = Model { sources: 40, ..model.clone() };
    let hour = Amount::Time(std::time::Duration::from_secs(3600));
    let [once, twice] = [&model, &twice].map(|model| generate(model, 2, hour).count() as f64);
    assert!((1.4..2.8).contains(&(twice / once)), "{once} {twice}");
}

/// Whether two variables are the same to three hundredths of their values and this part of a value; of small counts one is no difference.
fn is_like(found: &Variable, expected: &Variable, tolerance: f64) -> bool {
    const SHARE: f64 = 0.03;
    let is_at_most = |low: f64, high: f64| low <= high * (1.0 + tolerance) + 1.0;
    [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95].into_iter().all(|p| {
        let value = expected.quantile(p);
        is_at_most(found.quantile(p - SHARE), value) && is_at_most(value, found.quantile(p + SHARE))
    })
}

fn compare(what: &str, found: &Model, expected: &Model, tolerance: f64) {
    let mut unlike = Vec::new();
    for ((name, found), (_, expected)) in found.variables().into_iter().zip(expected.variables()) {
        if !is_like(found, expected, tolerance) {
            unlike.push((name, found, expected));
        }
        if let (Some(found), Some(expected)) = (found.tail, expected.tail) {
            let difference = (found.alpha - expected.alpha).abs();
            assert!(difference <= 0.15, "{what}: {name}: {found:?} {expected:?}");
        }
    }
    assert!(unlike.is_empty(), "{what}: {unlike:?}");
    let sum = |model: &Model| {
        let json = serde_json::to_value(model.kinds).unwrap();
        let shares: Vec<f64> =
            json.as_object().unwrap().values().map(|share| share.as_f64().unwrap()).collect();
        let sum: f64 = shares.iter().sum();
        shares.into_iter().map(|share| share / sum).collect::<Vec<_>>()
    };
    for (found, expected) in sum(found).into_iter().zip(sum(expected)) {
        assert!((found - expected).abs() < 0.01, "{what}: {:?} {:?}", found, expected);
    }
    close("failed opens", found.failed_opens, expected.failed_opens, 0.1);
    let births = (&found.births, &expected.births);
    close("overwritten", births.0.overwritten, births.1.overwritten, 0.1);
    close("deleted", births.0.deleted, births.1.deleted, 0.15);
    close("truncating", births.0.truncating, births.1.truncating, 0.15);
    assert!((found.reuse.discount - expected.reuse.discount).abs() < 0.1, "{:?}", found.reuse);
    assert_eq!(found.sources, expected.sources);
}

#[test]
fn a_model_of_what_was_made_up_is_the_model_it_was_made_of() {
    let thesis = Model { path_questions: 1.4, end_reads: 0.6, ..of_one_user() };
    let first = Model::of(&MadeUp::of(&thesis, 3, Amount::Sessions(SESSIONS)).tables()).unwrap();
    first.check().unwrap();
    compare("thesis", &first, &thesis, 0.25);
    // Enough values for a verdict; what is judged heavy has the exponent that it was made with, which `compare` sees to.
    for name in ["silent_ns", "control_open_ns", "held_ns", "read_gap_ns", "file_bytes"] {
        let variables = first.variables();
        let (_, variable) = variables.iter().find(|(known, _)| *known == name).unwrap();
        assert!(variable.tail.is_some(), "{name} is heavy-tailed");
    }
    close("reads that find the end", first.end_reads, 0.6, 0.05);
    close("path questions", first.path_questions, 1.4, 0.01);
    let second = Model::of(&MadeUp::of(&first, 4, Amount::Sessions(SESSIONS)).tables()).unwrap();
    compare("second", &second, &first, 0.15);
}

#[test]
fn what_is_made_up_is_replayed_without_a_difference() {
    let model = Model { path_questions: 0.5, end_reads: 0.5, ..Model::thesis() };
    let mut trace = Vec::new();
    write_trace(&model, 5, Amount::Sessions(4000), &mut trace).unwrap();
    let plan = Plan::read(trace.as_slice(), MOST_WORKERS).unwrap();
    assert!(plan.left().is_empty(), "{:?}", plan.left());
    assert!(plan.threads() >= 10);
    let folder = TemporaryFolder::new();
    let sandbox = Sandbox::prepare(folder.path(), &plan, Fill::Holes).unwrap();
    let summary = replay(&plan, &sandbox, Pace::AsFastAsPossible);
    assert_eq!(summary.first_differences, []);
    for operation in [Operation::Open, Operation::Read, Operation::Write, Operation::Delete, Operation::Sync]
    {
        assert!(summary.done[&operation].count > 0, "{operation}");
    }
    let jobs = jobs(&plan);
    assert!(jobs.iter().map(|job| job.read.requests + job.written.requests).sum::<u64>() > 1000);
}

#[test]
fn one_seed_is_one_trace_and_another_seed_another() {
    let made = |seed| {
        let mut trace = Vec::new();
        write_trace(&Model::thesis(), seed, Amount::Sessions(2000), &mut trace).unwrap();
        trace
    };
    let one = made(7);
    assert!(one == made(7));
    assert!(one != made(8));
}

#[test]
fn a_trace_is_as_long_as_it_should_be() {
    let model = of_one_user();
    let opens = |made: &Synthesized| made.event.operation == Operation::Open as u8 && made.event.result >= 0;
    let truncating = |event: &Event| event.argument & 0o1000 != 0;
    let sessions = generate(&model, 1, Amount::Sessions(5000)).filter(opens);
    let (over_and_above, asked_for): (Vec<_>, Vec<_>) = sessions.partition(|made| truncating(&made.event));
    // Of what empties a file, a part was asked for.
    assert!(asked_for.len() <= 5000 && asked_for.len() + over_and_above.len() >= 5000);
    let minute = std::time::Duration::from_secs(60);
    let last = generate(&model, 1, Amount::Time(minute)).map(|made| made.event.start_ns).max().unwrap();
    assert!((30_000_000_000..=60_000_000_000).contains(&last), "{last}");
}
