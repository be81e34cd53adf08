//! The statistics beside those of Python's powerlaw, scipy and numpy, on the same samples.
//!
//! `make setup-test` installs them in a folder of their own, at pinned versions. Without it the test says that it did not run; with it, whatever
//! goes wrong is a failure.

use comb_trace::statistics::dispersion::Dispersion;
use comb_trace::statistics::distributions::{
    Exponential, Lognormal, Pareto, Sampler, chi_square_survival, normal_log_survival, normal_quantile,
    student_two_sided,
};
use comb_trace::statistics::ecdf::Ecdf;
use comb_trace::statistics::hill::{HillPlot, hill};
use comb_trace::statistics::likelihood::{Alternatives, Comparison, LognormalFit};
use comb_trace::statistics::llcd::Llcd;
use comb_trace::statistics::powerlaw::ParetoFit;
use comb_trace::statistics::qq::QqPlot;
use comb_trace::statistics::sample::{Descriptors, Sample};
use comb_trace::statistics::spearman::spearman;
use comb_types::Dice;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const FRACTIONS: [f64; 9] = [0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0];
const RANKS: [usize; 4] = [10, 77, 500, 1500];
const INTERVAL_NS: u64 = 1_000_000_000;

/// The same value: JSON is read to the last digit but one.
const SAME: f64 = 1e-15;

/// A folder of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("comb-trace-peers-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    fn write(&self, name: &str, words: impl Iterator<Item = [u8; 8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, words.flatten().collect::<Vec<u8>>()).expect("a file");
        path.to_str().expect("a path in Unicode").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// None where the peers are not installed.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/.venv/bin/python");
    python.exists().then_some(python)
}

fn samples() -> Vec<(&'static str, Sample)> {
    let mut dice = Dice::new(2024);
    let pareto = Pareto { alpha: 1.4, x_min: 7.0, upper_bound: None };
    let lognormal = Lognormal { mu: 4.0, sigma: 1.8 };
    let tail = Pareto { alpha: 1.2, x_min: lognormal.quantile(0.6), upper_bound: None };
    let pareto_values = pareto.draw_many(2500, &mut dice);
    let lognormal_values = lognormal.draw_many(2000, &mut dice);
    let mut mixed: Vec<f64> = lognormal.draw_many(2000, &mut dice);
    mixed.retain(|value| *value < tail.x_min);
    mixed.extend(tail.draw_many(800, &mut dice));
    let whole = pareto.draw_many(2500, &mut dice).into_iter().map(f64::round).collect();
    let exponential = Exponential { mean: 300.0 }.draw_many(2000, &mut dice);
    vec![
        ("Pareto", Sample::new(pareto_values)),
        ("lognormal", Sample::new(lognormal_values)),
        ("a lognormal body and a Pareto tail", Sample::new(mixed)),
        ("whole numbers", Sample::new(whole)),
        ("exponential", Sample::new(exponential)),
    ]
}

fn arrivals() -> Vec<u64> {
    let mut dice = Dice::new(7);
    let gap = Pareto { alpha: 1.5, x_min: 2e7, upper_bound: None };
    let mut now = 0.0;
    let gaps = std::iter::repeat_with(|| gap.draw(&mut dice)).take(60_000);
    // Nanoseconds of an hour: exact in a double.
    gaps.map(|gap| {
        now += gap.round();
        format!("{now:.0}").parse().expect("a whole number")
    })
    .collect()
}

fn pairs() -> Vec<(f64, f64)> {
    let mut dice = Dice::new(8);
    let size = Lognormal { mu: 5.0, sigma: 2.0 };
    let life = Exponential { mean: 50.0 };
    (0..5000)
        .map(|_| {
            let size = size.draw(&mut dice).round();
            (size, (life.draw(&mut dice) + size.sqrt()).round())
        })
        .collect()
}

fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let difference = (found - expected).abs() / expected.abs().max(1e-300);
    assert!(found == expected || difference <= tolerance, "{what}: {found} here, {expected} there");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn all_close(what: &str, found: &[f64], expected: &Value, tolerance: f64) {
    let expected: Vec<f64> = expected.as_array().expect("a list").iter().map(number).collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        close(what, *found, expected, tolerance);
    }
}

#[test]
fn the_statistics_are_those_of_powerlaw_and_scipy() {
    let Some(python) = python() else {
        eprintln!("not tested: powerlaw and scipy are not installed; make setup-test installs them");
        return;
    };
    let folder = Folder::new();
    let samples = samples();
    let mut asked = serde_json::Map::new();
    for (number, (name, sample)) in samples.iter().enumerate() {
        let values = sample.ascending();
        let file = folder.write(&format!("sample-{number}"), values.iter().map(|value| value.to_le_bytes()));
        let values: Vec<f64> = [0.05, 0.5, 0.99].iter().filter_map(|p| sample.quantile(*p)).collect();
        let llcd_values: Vec<f64> =
            line_of(sample).points.iter().filter(|point| point.in_line).map(|point| point.value).collect();
        asked.insert(
            (*name).to_owned(),
            json!({ "file": file, "fractions": FRACTIONS, "values": values, "ranks": RANKS, "llcd_values": llcd_values }),
        );
    }
    let arrivals_file = folder.write("arrivals", arrivals().iter().map(|at| at.to_le_bytes()));
    let pairs_file =
        folder.write("pairs", pairs().iter().flat_map(|(x, y)| [x.to_le_bytes(), y.to_le_bytes()]));
    let question = folder.0.join("asked.json");
    let asked = json!({ "samples": asked, "arrivals": arrivals_file, "interval_ns": INTERVAL_NS, "pairs": pairs_file });
    std::fs::write(&question, asked.to_string()).expect("a file");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/statistics.py");
    let output = Command::new(python).arg(script).arg(&question).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    for (name, sample) in &samples {
        compare(name, sample, &theirs["samples"][*name]);
    }
    compare_dispersion(&theirs["dispersion"]);
    let ranks = spearman(&pairs()).expect("pairs");
    close("Spearman", ranks.correlation, number(&theirs["spearman"][0]), 1e-12);
    close("Spearman's p", ranks.p_value, number(&theirs["spearman"][1]), 1e-6);
    compare_functions(&theirs["functions"]);
}

fn line_of(sample: &Sample) -> Llcd {
    Llcd::of(sample.ascending(), sample.quantile(0.3).expect("values"), 60).expect("a plot")
}

fn compare(name: &str, sample: &Sample, theirs: &Value) {
    let values = sample.ascending();
    let all = Descriptors::of(values).expect("values");
    let descriptors = &theirs["descriptors"];
    for (what, found) in [
        ("minimum", all.minimum),
        ("maximum", all.maximum),
        ("mean", all.mean),
        ("standard_deviation", all.standard_deviation),
    ] {
        close(&format!("{name}: {what}"), found, number(&descriptors[what]), 1e-12);
    }

    let distribution = &theirs["distribution"];
    let ecdf = Ecdf::of(sample);
    let quantiles = FRACTIONS.map(|p| ecdf.quantile(p).expect("values"));
    all_close(&format!("{name}: quantiles"), &quantiles, &distribution["quantiles"], SAME);
    let mut weighted: Vec<(f64, f64)> = values.iter().map(|value| (*value, *value)).collect();
    let weighted = Ecdf::weighted(&mut weighted);
    let quantiles = FRACTIONS.map(|p| weighted.quantile(p).expect("values"));
    all_close(&format!("{name}: quantiles by weight"), &quantiles, &distribution["by_weight"], SAME);
    let at = [0.05, 0.5, 0.99].map(|p| ecdf.fraction_at_or_below(sample.quantile(p).expect("values")));
    all_close(&format!("{name}: fractions"), &at, &distribution["at_or_below"], 1e-14);

    compare_tail(name, sample, &theirs["tail"]);
    let hills = RANKS.map(|k| hill(values, k).expect("an estimate"));
    all_close(&format!("{name}: Hill"), &hills, &theirs["hill"], 1e-10);
    let whole_plot = HillPlot::of(values, values.len());
    // A point for each k from 2 on.
    let trends = RANKS.map(|k| whole_plot.points[k - 2].trend.statistic);
    all_close(&format!("{name}: trend"), &trends, &theirs["trend"], 1e-8);

    let line = line_of(sample);
    close(&format!("{name}: α of the plot"), line.alpha, number(&theirs["llcd"]["alpha"]), 1e-10);
    close(&format!("{name}: intercept"), line.intercept, number(&theirs["llcd"]["intercept"]), 1e-9);
    close(&format!("{name}: R²"), line.r_squared, number(&theirs["llcd"]["r_squared"]), 1e-10);
    close(
        &format!("{name}: error of α"),
        line.standard_error,
        number(&theirs["llcd"]["standard_error"]),
        1e-8,
    );

    let qq = &theirs["qq"];
    let normal = QqPlot::against_normal(values, 50).expect("a plot");
    close(&format!("{name}: QQ, normal"), normal.correlation, number(&qq["normal"]), 1e-10);
    let ends = [normal.points[0].theoretical, normal.points[normal.points.len() - 1].theoretical];
    all_close(&format!("{name}: QQ's ends"), &ends, &qq["normal_theoretical"], 1e-10);
    let pareto = QqPlot::against_pareto(values, 50).expect("a plot");
    // scipy goes by way of a normal quantile, and back.
    close(&format!("{name}: QQ, Pareto"), pareto.correlation, number(&qq["pareto"]), 1e-7);
    let logarithmic = pareto.log_correlation.expect("positive");
    close(&format!("{name}: QQ, Pareto, logarithmic"), logarithmic, number(&qq["pareto_logarithmic"]), 1e-8);
}

fn compare_tail(name: &str, sample: &Sample, theirs: &Value) {
    let fit = ParetoFit::closest(sample.ascending()).expect("a fit");
    println!("{name}: {fit:?}\n    {theirs}");
    close(&format!("{name}: x_min"), fit.x_min, number(&theirs["x_min"]), SAME);
    assert_eq!(Some(fit.tail_values as u64), theirs["tail_values"].as_u64(), "{name}: tail");
    // Above a density's exponent of 3 the package searches for the maximum, to 1e-4.
    let tolerance = if fit.alpha < 2.0 { 1e-9 } else { 1e-4 };
    close(&format!("{name}: α"), fit.alpha, number(&theirs["alpha"]), tolerance);
    close(&format!("{name}: error of α"), fit.standard_error, number(&theirs["standard_error"]), tolerance);
    close(&format!("{name}: distance"), fit.distance, number(&theirs["distance"]), 10.0 * tolerance);

    let found = Alternatives::of(sample.at_least(fit.x_min), fit.x_min).expect("a tail");
    println!("    {found:?}");
    close(&format!("{name}: rate"), found.exponential_rate, number(&theirs["exponential"]), 1e-3);
    let against = |other: &str| (number(&theirs["against"][other][0]), number(&theirs["against"][other][1]));
    compare_ratio(&format!("{name}: exponential"), &found.against_exponential, against("exponential"));
    if matches!(found.lognormal, LognormalFit::Fitted { .. }) {
        compare_ratio(&format!("{name}: lognormal"), &found.against_lognormal, against("lognormal"));
    }
    // In the limit the package's own ratio is noise: it stops where its normaliser underflows. What it has found is no likelier than what we have, to
    // the rounding of its sums.
    let (ours, exact) = (found.against_lognormal.log_likelihood_ratio, number(&theirs["exact_ratio"]));
    assert!(ours <= exact + 1e-6, "{name}: a lognormal likelier than ours: {ours} {exact}");
}

/// The package searches for the maximum by simplex and stops at 1e-4, we compute it: ratios agree to a hundredth, p-values to what follows from that.
fn compare_ratio(what: &str, found: &Comparison, (ratio, p_value): (f64, f64)) {
    assert!((found.normalised - ratio).abs() <= 0.01 * ratio.abs().max(1.0), "{what}: {found:?} {ratio}");
    assert!((found.p_value - p_value).abs() <= 0.01, "{what}: {found:?} {p_value}");
}

fn compare_dispersion(theirs: &Value) {
    let dispersion = Dispersion::at(&arrivals(), INTERVAL_NS, &mut Dice::new(1)).expect("a long trace");
    for (scale, theirs) in dispersion.scales.iter().zip(theirs.as_array().expect("a list")) {
        let what = format!("arrivals in {} ns", scale.interval_ns);
        close(&what, scale.arrivals.mean, number(&theirs[0]), 1e-12);
        close(&what, scale.arrivals.index, number(&theirs[1]), 1e-10);
        close(&what, scale.arrivals.burstier_p_value, number(&theirs[2]), 1e-6);
    }
}

fn compare_functions(theirs: &Value) {
    let found = [-8.0, -1.0, 0.5, 2.4, 2.6, 7.0, 35.0, 400.0].map(normal_log_survival);
    all_close("ln of the normal survival", &found, &theirs["normal_log_survival"], 1e-12);
    let found = [1e-200, 1e-9, 0.02, 0.07, 0.08, 0.4, 0.9, 1.0 - 1e-12].map(normal_quantile);
    all_close("normal quantiles", &found, &theirs["normal_quantile"], 1e-12);
    let found = [(0.1, 1.0), (30.0, 12.0), (900.0, 1000.0), (12_000.0, 11_900.0), (1e6, 998_000.0)]
        .map(|(x, degrees)| chi_square_survival(x, degrees));
    all_close("χ²", &found, &theirs["chi_square_survival"], 1e-7);
    let found = [(0.2, 3.0), (2.5, 8.0), (4.0, 500.0), (1.1, 100_000.0)]
        .map(|(t, degrees)| student_two_sided(t, degrees));
    all_close("Student's t", &found, &theirs["student_two_sided"], 1e-8);
}
