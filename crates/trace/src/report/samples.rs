//! Variables of which it is to be said how they are distributed.

use super::Distribution;
use crate::statistics::hill::HillPlot;
use crate::statistics::histogram::{By, LogHistogram};
use crate::statistics::llcd::Llcd;
use crate::statistics::qq::QqPlot;
use crate::statistics::reservoir::Reservoir;
use crate::statistics::sample::Sample;
use crate::statistics::verdict::{Verdict, judge};

/// So many points make a plot.
const POINTS: usize = 200;

/// Values as they come by: all of them counted, a random part of them kept.
pub(super) struct Variable {
    what: &'static str,
    unit: &'static str,
    /// How they are distributed, to half a percent.
    pub(super) histogram: LogHistogram,
    kept: Reservoir,
}

impl Variable {
    fn new(what: &'static str, unit: &'static str) -> Self {
        Self { what, unit, histogram: LogHistogram::new(), kept: Reservoir::default() }
    }

    /// One more.
    pub(super) fn add(&mut self, value: u64) {
        self.histogram.record(value, 1);
        #[expect(clippy::cast_precision_loss, reason = "a measurement")]
        self.kept.add(value as f64);
    }

    /// What is kept, sorted.
    pub(super) fn sample(&self) -> Sample {
        Sample::new(self.kept.kept().to_vec())
    }

    fn distribution(&self) -> Option<Distribution> {
        let descriptors = self.histogram.descriptors()?;
        let percentile = |p| self.histogram.quantile(By::Count, p).unwrap_or(0.0);
        let sample = self.sample();
        let judgement = judge(&sample);
        let evidence = judgement.evidence.as_ref();
        let positive = sample.positive();
        let tail = evidence.map_or(positive, |evidence| sample.at_least(evidence.x_min));
        let line = evidence.and_then(|evidence| Llcd::of(positive, evidence.x_min, POINTS));
        Some(Distribution {
            what: self.what,
            unit: self.unit,
            values: self.kept.seen(),
            judged: self.kept.kept().len() as u64,
            mean: descriptors.mean,
            percentile_50: percentile(0.5),
            percentile_90: percentile(0.9),
            percentile_99: percentile(0.99),
            most: descriptors.maximum,
            verdict: match judgement.verdict {
                Verdict::HeavyTailed => "heavy-tailed",
                Verdict::NotHeavyTailed => "not heavy-tailed",
                Verdict::Inconclusive => "inconclusive",
            }
            .to_owned(),
            reason: judgement.reason.to_string(),
            hill_alpha: evidence.map(|evidence| [evidence.alpha, evidence.alpha_low, evidence.alpha_high]),
            line_alpha: evidence.and_then(|evidence| evidence.llcd_alpha),
            normal_straightness: QqPlot::against_normal(sample.ascending(), POINTS)
                .map(|plot| plot.straightness()),
            pareto_straightness: QqPlot::against_pareto(tail, POINTS).map(|plot| plot.straightness()),
            hill_plot: hill_plot(positive),
            line_plot: line.map_or_else(Vec::new, |line| {
                line.points.iter().map(|point| (point.value, point.fraction_above)).collect()
            }),
        })
    }
}

fn hill_plot(positive: &[f64]) -> Vec<(f64, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "for a plot")]
    let points = HillPlot::of(positive, POINTS)
        .points
        .iter()
        .map(|point| (point.tail_values as f64, point.alpha))
        .collect();
    points
}

/// All variables. (Thesis §9.7, and those of processes that it names there)
pub(super) struct Samples {
    /// Between two opens on a machine.
    pub(super) open_gap_ns: Variable,
    /// How long sessions were open that moved bytes.
    pub(super) data_session_ns: Variable,
    /// And those that did not.
    pub(super) control_session_ns: Variable,
    pub(super) read_bytes: Variable,
    pub(super) write_bytes: Variable,
    /// From the end of a read to the next, in a session.
    pub(super) read_gap_ns: Variable,
    pub(super) write_gap_ns: Variable,
    pub(super) session_bytes: Variable,
    pub(super) session_operations: Variable,
    pub(super) run_bytes: Variable,
    pub(super) file_bytes: Variable,
    /// How long new files lived.
    pub(super) lifetime_ns: Variable,
    pub(super) program_ns: Variable,
    /// How many files a program opened, and how many libraries it mapped.
    pub(super) program_opens: Variable,
    pub(super) program_libraries: Variable,
    pub(super) operations_per_second: Variable,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            open_gap_ns: Variable::new("time between two opens", "ns"),
            data_session_ns: Variable::new("time a file is open, with data moved", "ns"),
            control_session_ns: Variable::new("time a file is open, with none moved", "ns"),
            read_bytes: Variable::new("bytes asked for by a read", "bytes"),
            write_bytes: Variable::new("bytes of a write", "bytes"),
            read_gap_ns: Variable::new("time from a read to the next of its session", "ns"),
            write_gap_ns: Variable::new("time from a write to the next of its session", "ns"),
            session_bytes: Variable::new("bytes moved in a session", "bytes"),
            session_operations: Variable::new("reads and writes in a session", "operations"),
            run_bytes: Variable::new("bytes moved from one place on without a jump", "bytes"),
            file_bytes: Variable::new("size of an opened file", "bytes"),
            lifetime_ns: Variable::new("lifetime of a new file", "ns"),
            program_ns: Variable::new("lifetime of a program", "ns"),
            program_opens: Variable::new("files opened by a program", "files"),
            program_libraries: Variable::new("libraries mapped by a program", "files"),
            operations_per_second: Variable::new("operations in a second", "operations"),
        }
    }
}

impl Samples {
    /// What may be said of each; of those that have values.
    pub(super) fn distributions(&self) -> Vec<Distribution> {
        [
            &self.open_gap_ns,
            &self.data_session_ns,
            &self.control_session_ns,
            &self.read_bytes,
            &self.write_bytes,
            &self.read_gap_ns,
            &self.write_gap_ns,
            &self.session_bytes,
            &self.session_operations,
            &self.run_bytes,
            &self.file_bytes,
            &self.lifetime_ns,
            &self.program_ns,
            &self.program_opens,
            &self.program_libraries,
            &self.operations_per_second,
        ]
        .into_iter()
        .filter_map(Variable::distribution)
        .collect()
    }
}
