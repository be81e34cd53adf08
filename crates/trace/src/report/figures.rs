//! Figures 9.1 to 9.14.

use comb_types::Dice;

use super::gathering::{Gathered, READ, WRITE, Way};
use super::{Axis, Figure, Scale, Series, Style};
use crate::lifetimes::Death;
use crate::statistics::dispersion::Dispersion;
use crate::statistics::ecdf::Ecdf;
use crate::statistics::histogram::{By, LogHistogram};
use crate::statistics::llcd::Llcd;
use crate::statistics::powerlaw::ParetoFit;
use crate::statistics::qq::QqPlot;
use crate::statistics::sample::Sample;
use crate::statistics::spearman::spearman;

/// So many points make a curve.
const POINTS: usize = 300;

/// So many points can be told apart in a cloud.
const MOST_CLOUD_POINTS: usize = 2000;

/// So many intervals of arrivals are drawn.
const MOST_INTERVALS: usize = 200;

fn percent(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Linear }
}

fn log(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Log }
}

fn linear(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Linear }
}

/// A cumulative distribution in percent; values are multiplied, for an axis in another unit.
fn cumulative(name: impl Into<String>, histogram: &LogHistogram, by: By, unit: f64) -> Series {
    let points = histogram.points(by);
    // Of very many points as many as can be seen.
    let step = points.len().div_ceil(POINTS).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate().filter(|(place, _)| place % step == 0 || *place == last);
    let points = kept.map(|(_, point)| (point.value * unit, point.fraction * 100.0)).collect();
    Series { name: name.into(), style: Style::Steps, points }
}

fn cumulative_of(name: impl Into<String>, values: Vec<f64>) -> Series {
    let ecdf = Ecdf::of(&Sample::new(values));
    let points = ecdf.points(POINTS).into_iter().map(|point| (point.value, point.fraction * 100.0)).collect();
    Series { name: name.into(), style: Style::Steps, points }
}

fn merged<'a>(histograms: impl IntoIterator<Item = &'a LogHistogram>) -> LogHistogram {
    let mut sum = LogHistogram::new();
    histograms.into_iter().for_each(|histogram| sum.merge(histogram));
    sum
}

const NANOSECONDS_TO_MILLISECONDS: f64 = 1e-6;
const NANOSECONDS_TO_MICROSECONDS: f64 = 1e-3;

/// All of them, in order.
pub(super) fn all(gathered: &Gathered) -> Vec<Figure> {
    let mut figures = vec![
        runs(gathered, By::Count),
        runs(gathered, By::Weight),
        sizes(gathered, By::Count),
        sizes(gathered, By::Weight),
        open_times(gathered),
        lifetimes(gathered),
        lifetimes_and_sizes(gathered),
    ];
    figures.extend(arrivals(gathered));
    figures.push(quantiles(gathered));
    figures.push(tail(gathered));
    figures.push(between_opens(gathered));
    figures.push(session_times(gathered));
    figures.push(service(gathered));
    figures.push(request_sizes(gathered));
    for figure in &mut figures {
        figure.series.retain(|series| !series.points.is_empty());
    }
    figures
}

fn runs(gathered: &Gathered, by: By) -> Figure {
    let (number, title, y) = match by {
        By::Count => ("9.1", "Length of sequential runs, by number of runs", "runs (%)"),
        By::Weight => ("9.2", "Length of sequential runs, by bytes", "bytes (%)"),
    };
    Figure {
        number,
        title,
        note: "A run is what calls move from one place on without a jump, in one direction and session."
            .to_owned(),
        x: log("length of run (bytes)"),
        y: percent(y),
        series: vec![
            cumulative("read", &gathered.runs[READ], by, 1.0),
            cumulative("written", &gathered.runs[WRITE], by, 1.0),
        ],
    }
}

fn sizes(gathered: &Gathered, by: By) -> Figure {
    let (number, title, y) = match by {
        By::Count => ("9.3", "Size of opened files, by opens", "opens (%)"),
        By::Weight => ("9.4", "Size of opened files, by bytes moved", "bytes (%)"),
    };
    let names = ["read-only", "write-only", "read-write"];
    let series =
        names.iter().zip(&gathered.sizes).map(|(name, sizes)| cumulative(*name, sizes, by, 1.0)).collect();
    Figure {
        number,
        title,
        note: "The larger of a file's sizes at open and close, of sessions that moved bytes.".to_owned(),
        x: log("size of file (bytes)"),
        y: percent(y),
        series,
    }
}

fn open_times(gathered: &Gathered) -> Figure {
    let all = merged([&gathered.open_local, &gathered.open_remote]);
    let unit = NANOSECONDS_TO_MILLISECONDS;
    let mut series = vec![
        cumulative("all", &all, By::Count, unit),
        cumulative("local file systems", &gathered.open_local, By::Count, unit),
    ];
    if gathered.open_remote.total(By::Count) > 0 {
        series.push(cumulative("remote file systems", &gathered.open_remote, By::Count, unit));
    }
    Figure {
        number: "9.5",
        title: "How long files are open in which bytes are moved",
        note: "From the end of the open to the close of its last descriptor.".to_owned(),
        x: log("time open (ms)"),
        y: percent("sessions (%)"),
        series,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a plot")]
fn lifetimes(gathered: &Gathered) -> Figure {
    let of = |death: Death| {
        let ended = gathered.ended.iter().filter(|ended| ended.death == death);
        ended.map(|ended| ended.lived_ns as f64 / 1e9).collect::<Vec<_>>()
    };
    let names =
        [(Death::Overwritten, "overwritten"), (Death::Deleted, "deleted"), (Death::Nameless, "never named")];
    let series = names.map(|(death, name)| cumulative_of(name, of(death)));
    Figure {
        number: "9.6",
        title: "How long new files live, by what ends them",
        note: format!(
            "From the open that made or emptied a file to its last name's deletion, or to its being emptied or replaced by a rename, which NT \
             does not have. Of {} new files {} were still there at the end, and are not in it.",
            gathered.lifetimes.made,
            gathered.lifetimes.still_alive(),
        ),
        x: log("lifetime (s)"),
        y: percent("files (%)"),
        series: series.into(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a plot")]
fn lifetimes_and_sizes(gathered: &Gathered) -> Figure {
    let pairs: Vec<(f64, f64)> =
        gathered.ended.iter().map(|ended| (ended.bytes as f64, ended.lived_ns as f64 / 1e9)).collect();
    let correlation = spearman(&pairs);
    let step = pairs.len().div_ceil(MOST_CLOUD_POINTS).max(1);
    // A size of nothing has a place on the logarithmic axis, too: left of one byte.
    let points = pairs.iter().step_by(step).map(|&(bytes, seconds)| (bytes.max(0.5), seconds)).collect();
    let note = match correlation {
        Some(found) => format!(
            "Ranks correlate by {:.2} (p = {:.1e}, {} files): no statement on causes.",
            found.correlation, found.p_value, found.pairs
        ),
        None => "Too few files to say whether the two go together.".to_owned(),
    };
    Figure {
        number: "9.7",
        title: "Lifetime and size of new files",
        note,
        x: log("size at the end (bytes; none at 0.5)"),
        y: log("lifetime (s)"),
        series: vec![Series { name: "file".to_owned(), style: Style::Points, points }],
    }
}

/// Three time scales, each with a Poisson process of the same rate beside it.
#[expect(clippy::cast_precision_loss, reason = "for a plot")]
fn arrivals(gathered: &Gathered) -> Vec<Figure> {
    let mut opens_ns = gathered.opens_ns.clone();
    opens_ns.sort_unstable();
    let Some(dispersion) = Dispersion::of(&opens_ns, &mut Dice::new(1)) else { return Vec::new() };
    let numbers = ["9.8a", "9.8b", "9.8c"];
    let figures = dispersion.scales.iter().zip(numbers).map(|(scale, number)| {
        let points = |counts: &[u64]| {
            let seconds = scale.interval_ns as f64 / 1e9;
            counts.iter().take(MOST_INTERVALS).enumerate().map(|(place, count)| (place as f64 * seconds, *count as f64)).collect()
        };
        let hurst = dispersion.hurst.map_or_else(String::new, |hurst| format!(" The variance–time line says H = {hurst:.2}."));
        Figure {
            number,
            title: "Opens in intervals of one length, beside a Poisson process of the same rate",
            note: format!(
                "Intervals of {} s: the index of dispersion is {:.1} for the opens, {:.1} for the Poisson process (p = {:.1e} that a Poisson \
                 process is so bursty). {}.{hurst}",
                scale.interval_ns as f64 / 1e9,
                scale.arrivals.index,
                scale.poisson.index,
                scale.arrivals.burstier_p_value,
                dispersion.burstiness,
            ),
            x: linear("time (s)"),
            y: linear("opens"),
            series: vec![
                Series { name: "recorded".to_owned(), style: Style::Steps, points: points(&scale.arrivals.counts) },
                Series { name: "Poisson".to_owned(), style: Style::Steps, points: points(&scale.poisson.counts) },
            ],
        }
    });
    figures.collect()
}

fn quantiles(gathered: &Gathered) -> Figure {
    let sample = gathered.samples.open_gap_ns.sample();
    let normal = QqPlot::against_normal(sample.ascending(), POINTS);
    let straightness = normal.as_ref().map(QqPlot::straightness);
    // On logarithmic axes: what a normal distribution says below zero cannot be drawn.
    let points = normal.map_or_else(Vec::new, |plot| {
        let points = plot.points.iter().map(|point| (point.theoretical / 1e6, point.observed / 1e6));
        points.filter(|(x, y)| *x > 0.0 && *y > 0.0).collect()
    });
    let tail =
        ParetoFit::closest(sample.positive()).map_or(sample.positive(), |fit| sample.at_least(fit.x_min));
    let pareto = QqPlot::against_pareto(tail, POINTS);
    let pareto_straightness = pareto.as_ref().map(QqPlot::straightness);
    let pareto_points = pareto.map_or_else(Vec::new, |plot| {
        plot.points.iter().map(|point| (point.theoretical / 1e6, point.observed / 1e6)).collect()
    });
    let told = |straightness: Option<f64>| {
        straightness.map_or("–".to_owned(), |straightness| format!("{straightness:.3}"))
    };
    Figure {
        number: "9.9",
        title: "Quantiles of the time between two opens against those of a normal and of a Pareto distribution",
        note: format!(
            "R² of the points: {} against a normal distribution, {} against a Pareto distribution (of the tail where that fits best).",
            told(straightness),
            told(pareto_straightness)
        ),
        x: log("quantile of the distribution (ms)"),
        y: log("quantile found (ms)"),
        series: vec![
            Series { name: "normal".to_owned(), style: Style::Points, points },
            Series { name: "Pareto".to_owned(), style: Style::Points, points: pareto_points },
        ],
    }
}

fn tail(gathered: &Gathered) -> Figure {
    let sample = gathered.samples.open_gap_ns.sample();
    let fit = ParetoFit::closest(sample.positive());
    let line = fit.as_ref().and_then(|fit| Llcd::of(sample.positive(), fit.x_min, POINTS));
    let mut note = "Too few values for a tail.".to_owned();
    let mut series = Vec::new();
    if let Some(line) = &line {
        note = format!(
            "The line through the tail has α = {:.2} (R² {:.3}, {} values above {:.3} ms); what may be said of it, the verdict on “time \
             between two opens” says.",
            line.alpha,
            line.r_squared,
            line.tail_values,
            line.x_min / 1e6
        );
        let points = line
            .points
            .iter()
            .map(|point| (point.value / 1e6, point.fraction_above))
            .filter(|(_, y)| *y > 0.0)
            .collect();
        series.push(Series { name: "found".to_owned(), style: Style::Points, points });
        let fitted = line.points.iter().filter(|point| point.in_line);
        let fitted = fitted
            .map(|point| (point.value / 1e6, 10_f64.powf(line.intercept - line.alpha * point.value.log10())));
        series.push(Series {
            name: "line".to_owned(),
            style: Style::Line,
            points: fitted.filter(|(_, y)| *y > 0.0).collect(),
        });
    }
    Figure {
        number: "9.10",
        title: "Log-log plot of how much of the time between two opens lies above a value",
        note,
        x: log("time between two opens (ms)"),
        y: log("part above"),
        series,
    }
}

fn between_opens(gathered: &Gathered) -> Figure {
    let unit = NANOSECONDS_TO_MILLISECONDS;
    Figure {
        number: "9.11",
        title: "Time from an open to the next on the machine",
        note: "By what the later session then did.".to_owned(),
        x: log("time between two opens (ms)"),
        y: percent("opens (%)"),
        series: vec![
            cumulative("bytes were moved", &gathered.gap_data, By::Count, unit),
            cumulative("control alone", &gathered.gap_control, By::Count, unit),
        ],
    }
}

fn session_times(gathered: &Gathered) -> Figure {
    let unit = NANOSECONDS_TO_MILLISECONDS;
    let all = merged([&gathered.open_local, &gathered.open_remote, &gathered.open_control]);
    let mut series = vec![
        cumulative("all", &all, By::Count, unit),
        cumulative("control alone", &gathered.open_control, By::Count, unit),
    ];
    let names = ["read-only", "write-only", "read-write"];
    series.extend(
        names
            .iter()
            .zip(&gathered.open_by_access)
            .map(|(name, open)| cumulative(*name, open, By::Count, unit)),
    );
    Figure {
        number: "9.12",
        title: "How long files are open",
        note: "Sessions whose open and close were both seen. NT opens files to delete or to execute them, Linux does not.".to_owned(),
        x: log("time open (ms)"),
        y: percent("sessions (%)"),
        series,
    }
}

/// The four kinds of requests here, for NT's two ways with two directions each.
const WAYS: [(Way, &str); 4] = [
    (Way::CachedRead, "read, all in the page cache"),
    (Way::MissedRead, "read, pages had to come"),
    (Way::Write, "write"),
    (Way::PageIn, "page-in of a mapped file"),
];

fn service(gathered: &Gathered) -> Figure {
    // How long a page-in takes is not seen.
    let series = WAYS[..3].iter().map(|(way, name)| {
        cumulative(*name, &gathered.service[*way as usize], By::Count, NANOSECONDS_TO_MICROSECONDS)
    });
    Figure {
        number: "9.13",
        title: "How long requests take, by the way they go",
        note: "NT tells its packet path from its direct path; on Linux the difference is whether the page cache had all that was wanted."
            .to_owned(),
        x: log("time (µs)"),
        y: percent("requests (%)"),
        series: series.collect(),
    }
}

fn request_sizes(gathered: &Gathered) -> Figure {
    let series =
        WAYS.iter().map(|(way, name)| cumulative(*name, &gathered.requested[*way as usize], By::Count, 1.0));
    Figure {
        number: "9.14",
        title: "How much is asked for, by the way requests go",
        note: "Of page-ins: how much was mapped at once.".to_owned(),
        x: log("bytes asked for"),
        y: percent("requests (%)"),
        series: series.collect(),
    }
}
