//! Whether a sample is heavy-tailed: P\[X > x\] ~ x^−α with 0 < α < 2, so that its variance is infinite. (Thesis §9.7)
//!
//! Hill's estimate and a straight log-log plot alone call a wide lognormal heavy-tailed. Here a tail must be straight, and straighter than
//! a lognormal of as many values could make it. The longest straight tail is judged: of all that could be taken for a power law's it says most.
//!
//! What follows from the thresholds, by the example `calibrate_verdict` (σ from 0.5 to 4, exact and rounded to whole numbers; α from 1.2 to 1.7):
//!
//! | drawn from | values | samples | called heavy-tailed |
//! |---|---|---|---|
//! | lognormal | 200 to 1000 | 192,000 | none; the largest margin was 4.2 |
//! | lognormal | 10,000 | 12,000 | none; 4.5 |
//! | lognormal | 100,000 and 1,000,000 | 2100 | none; 3.9 |
//! | exponential, normal, uniform, Weibull 0.3 to 1 | 200 to 10,000 | 50,000 | none |
//! | Pareto | 1000 | 12,000 | 65 %, α off by up to 0.19 |
//! | Pareto | 2000 | 12,000 | 95 %, 0.13 |
//! | Pareto | 10,000 | 24,000 | all but one, 0.07 |
//! | Pareto | 100,000 | 12,000 | all, 0.02 |
//! | lognormal, above its 90th percentile Pareto | 100,000 | 600 | 99.5 %, 0.07 |
//! | any two lognormals, one of them 2, 10 or 30 % | 1000 to 100,000 | 3000 | 5 %: where the two meet in the tail |
//!
//! | file | the one idea in it |
//! |---|---|
//! | `tail` | which part of a sample is a straight tail |
//! | `reason` | what decided, as a plain sentence |

mod reason;
mod tail;

pub use reason::Reason;

use super::bend::LognormalTrend;
use super::hill::{HillPlot, HillPoint, Trend};
use super::likelihood::Alternatives;
use super::llcd::Llcd;
use super::sample::Sample;
use tail::{longest_straight, rounding_width, spread_logs, tails};

/// The judgement in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A power law with α < 2.
    HeavyTailed,
    /// Something else, over what the sample shows of it.
    NotHeavyTailed,
    /// The sample does not say.
    Inconclusive,
}

/// What was found in the longest straight tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Values above 0 in the whole sample.
    pub values: usize,
    /// How many of them are in the tail.
    pub tail_values: usize,
    /// The value above which the tail lies.
    pub x_min: f64,
    /// How many factors of ten lie between there and the largest value.
    pub decades: f64,
    /// Hill's estimate.
    pub alpha: f64,
    /// The lower end of its 95 % interval.
    pub alpha_low: f64,
    /// The upper end.
    pub alpha_high: f64,
    /// The distance of Kolmogorov and Smirnov between the tail and its Pareto distribution.
    pub distance: f64,
    /// Of the scaled log-spacings.
    pub trend: Trend,
    /// By how many standard deviations the tail is straighter than that of a lognormal of as many values.
    pub lognormal_margin: f64,
    /// By how many a perfect power law would be: if that is too few, no sample of such a size and tail could have shown it.
    pub lognormal_margin_of_straight: f64,
    /// The exponent by the log-log complementary plot; none if too few values are in the tail.
    pub llcd_alpha: Option<f64>,
    /// How straight that plot is.
    pub llcd_r_squared: Option<f64>,
    /// Likelihood ratios against a lognormal and an exponential above the same start.
    pub alternatives: Option<Alternatives>,
}

/// The judgement of a sample, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// In a word.
    pub verdict: Verdict,
    /// In a sentence.
    pub reason: Reason,
    /// In numbers; none where there is no straight tail.
    pub evidence: Option<Evidence>,
}

impl std::fmt::Display for Judgement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = match self.verdict {
            Verdict::HeavyTailed => "heavy-tailed",
            Verdict::NotHeavyTailed => "not heavy-tailed",
            Verdict::Inconclusive => "inconclusive",
        };
        write!(f, "{verdict}: {}", self.reason)
    }
}

/// With fewer values above 0 nothing is said: half of them would hardly make a tail.
pub const LEAST_VALUES: usize = 200;

/// The α of a shorter tail is off by more than a fifth in one sample of twenty.
pub const LEAST_TAIL: usize = 100;

/// Fewer distinct values are a few kinds of things.
pub const LEAST_DISTINCT: usize = 50;

/// A straight tail's trend, in standard deviations: one Pareto sample in 400 exceeds it at a given start, and nearly none at every start.
const LARGEST_TREND: f64 = 3.0;

/// A straight tail's distance from its fit: an absolute one that no eye sees in a plot, so that popular sizes in a sample of millions do not
/// rule out every tail, or this over √k: one Pareto sample in a hundred exceeds 1.3 over √k.
const FARTHEST_FROM_FIT: (f64, f64) = (0.01, 1.6);

/// How much straighter than a lognormal's a heavy tail is, in standard deviations. In 206,100 lognormal samples the longest straight tail was so by
/// 4.45 at most; in Pareto samples of 10,000 values by a hundred and more, and by ten where they are but the upper tenth of a sample of 100,000.
pub const LEAST_LOGNORMAL_MARGIN: f64 = 5.0;

/// The tail's outer quarter is straighter as well, by less: it has a quarter of the values.
const OUTER_PART: usize = 4;

/// Of samples of two lognormals at random, in which they meet somewhere in the tail, 11 % were heavy-tailed without this and with less strict
/// limits on R² and on the distance, and 5 % are with them. More would cost too many of the true ones: of 10,000 Pareto values one sample in
/// twenty thousand fails at 3.
const LEAST_OUTER_MARGIN: f64 = 3.0;

/// Of a shorter tail the outer quarter is none.
pub const LEAST_HEAVY_TAIL: usize = OUTER_PART * LEAST_TAIL;

/// A tail bends if its trend is so many standard deviations from a power law's; and is no more than so many straighter than a lognormal's.
const BEND: f64 = -4.0;
const LIKE_LOGNORMAL: f64 = 4.0;

/// A bend is looked for in tails up to so many times longer than the longest straight one: farther down is the body.
const BEND_REACH: usize = 20;

/// A lognormal above the same start is likelier, if its lead is so unlikely to be chance.
const LOGNORMAL_LIKELIER: f64 = 0.05;

/// The plot agrees with Hill's estimate if it is so straight, and its slope at most so far from it. R² is above 0.99 in Pareto samples of 10,000.
const LEAST_R_SQUARED: f64 = 0.985;
const FARTHEST_SLOPE: f64 = 0.25;

/// Points of the plot.
const LLCD_POINTS: usize = 100;

/// A power law is one over a range: a decade at the least.
const LEAST_DECADES: f64 = 1.0;

/// Of a normal distribution's 95 % interval.
const TWO_SIDED_95: f64 = 1.959_963_984_540_054;

/// Judges a sample. Values of 0 and below are left out: they are no part of a tail.
pub fn judge(sample: &Sample) -> Judgement {
    let positive = sample.positive();
    let without_evidence = |verdict, reason| Judgement { verdict, reason, evidence: None };
    if positive.len() < LEAST_VALUES {
        let reason = Reason::TooFewValues { values: positive.len(), needed: LEAST_VALUES };
        return without_evidence(Verdict::Inconclusive, reason);
    }
    let distinct = positive.chunk_by(|one, other| one == other).take(LEAST_DISTINCT).count();
    if distinct == 1 {
        return without_evidence(Verdict::NotHeavyTailed, Reason::OneValue);
    }
    if distinct < LEAST_DISTINCT {
        let reason = Reason::FewDistinctValues { distinct, needed: LEAST_DISTINCT };
        return without_evidence(Verdict::Inconclusive, reason);
    }
    let width = rounding_width(positive);
    let logs = spread_logs(positive, width);
    let plot = tails(&logs, width);
    let Some((point, distance)) = longest_straight(&logs, &plot) else {
        return match plot.points.first().map(|farthest| farthest.trend.z) {
            Some(trend) if trend <= BEND => {
                without_evidence(Verdict::NotHeavyTailed, Reason::Bends { trend })
            }
            _ => without_evidence(Verdict::Inconclusive, Reason::NoStraightTail),
        };
    };
    let evidence = gather(positive, &logs, point, distance);
    let (verdict, reason) = decide(&evidence, &plot);
    Judgement { verdict, reason, evidence: Some(evidence) }
}

fn gather(positive: &[f64], logs: &[f64], point: &HillPoint, distance: f64) -> Evidence {
    let start = positive.len() - point.tail_values;
    let excesses: Vec<f64> = logs[start..].iter().map(|log| log - logs[start - 1]).collect();
    let largest = positive[positive.len() - 1];
    let lognormal = LognormalTrend::of(point.tail_values, positive.len());
    let llcd = Llcd::of(positive, point.threshold, LLCD_POINTS);
    Evidence {
        values: positive.len(),
        tail_values: point.tail_values,
        x_min: point.threshold,
        decades: (largest / point.threshold).log10(),
        alpha: point.alpha,
        alpha_low: point.alpha - TWO_SIDED_95 * point.standard_error,
        alpha_high: point.alpha + TWO_SIDED_95 * point.standard_error,
        distance,
        trend: point.trend,
        lognormal_margin: lognormal.margin(&point.trend),
        lognormal_margin_of_straight: lognormal.margin_of_straight(),
        llcd_alpha: llcd.as_ref().map(|plot| plot.alpha),
        llcd_r_squared: llcd.as_ref().map(|plot| plot.r_squared),
        alternatives: Alternatives::with_excesses(&positive[start..], &excesses, point.threshold),
    }
}

fn decide(evidence: &Evidence, plot: &HillPlot) -> (Verdict, Reason) {
    let Evidence { tail_values, alpha, alpha_low, alpha_high, lognormal_margin, .. } = *evidence;
    if alpha_low >= 2.0 {
        return (Verdict::NotHeavyTailed, Reason::FiniteVariance { alpha_low });
    }
    if lognormal_margin < LEAST_LOGNORMAL_MARGIN {
        return match bend_below(evidence, plot) {
            Some(trend) => (Verdict::NotHeavyTailed, Reason::Bends { trend }),
            None => {
                let reason = Reason::LognormalPossible {
                    tail_values,
                    margin: lognormal_margin,
                    of_straight: evidence.lognormal_margin_of_straight,
                    needed: LEAST_LOGNORMAL_MARGIN,
                };
                (Verdict::Inconclusive, reason)
            }
        };
    }
    match objection(evidence).or_else(|| outer_part_bends(evidence, plot)) {
        Some(reason) => (Verdict::Inconclusive, reason),
        None if alpha_high >= 2.0 => {
            (Verdict::Inconclusive, Reason::VarianceUndecided { alpha_low, alpha_high })
        }
        None => (Verdict::HeavyTailed, Reason::StraightTail { alpha, lognormal_margin }),
    }
}

/// The strongest trend in longer tails, if they bend, and none of them less than a lognormal's: then the straight tail is the end of such a one,
/// too short to show it.
fn bend_below(evidence: &Evidence, plot: &HillPlot) -> Option<f64> {
    let longer = |point: &&HillPoint| {
        point.tail_values >= evidence.tail_values && point.tail_values / BEND_REACH <= evidence.tail_values
    };
    // Every tenth is a third or so longer than the one before.
    let longer: Vec<&HillPoint> = plot.points.iter().filter(longer).step_by(10).collect();
    let strongest = longer.iter().map(|point| point.trend.z).fold(0.0, f64::min);
    let like_lognormal = |point: &&HillPoint| {
        LognormalTrend::of(point.tail_values, evidence.values).margin(&point.trend) <= LIKE_LOGNORMAL
    };
    (strongest <= BEND && longer.iter().all(like_lognormal)).then_some(strongest)
}

/// The margin of the tail's outer quarter, if it is no tail of a power law's. Two kinds of things, a few of them large, make a straight line of two
/// bent ones as far as their sum goes; the outer part is of one kind, and bends.
fn outer_part_bends(evidence: &Evidence, plot: &HillPlot) -> Option<Reason> {
    let (tail_values, needed) = (evidence.tail_values, LEAST_HEAVY_TAIL);
    if tail_values < needed {
        return Some(Reason::ShortTail { tail_values, needed });
    }
    let outer = |point: &&HillPoint| point.tail_values <= evidence.tail_values / OUTER_PART;
    let point = plot.points.iter().rev().find(outer)?;
    let margin = LognormalTrend::of(point.tail_values, evidence.values).margin(&point.trend);
    let needed = LEAST_OUTER_MARGIN;
    (margin < needed).then_some(Reason::OuterPartBends { tail_values: point.tail_values, margin, needed })
}

/// What else speaks against a straight tail.
fn objection(evidence: &Evidence) -> Option<Reason> {
    if evidence.decades < LEAST_DECADES {
        return Some(Reason::ShortRange { decades: evidence.decades });
    }
    let alternatives = evidence.alternatives.as_ref()?;
    let lognormal = &alternatives.against_lognormal;
    if lognormal.normalised < 0.0 && lognormal.p_value < LOGNORMAL_LIKELIER {
        return Some(Reason::LognormalLikelier { p_value: lognormal.p_value });
    }
    let exponential = &alternatives.against_exponential;
    // The sign alone: against an exponential the differences have infinite variance, and where one huge value is most of it, Vuong's p says nothing.
    if exponential.log_likelihood_ratio <= 0.0 {
        return Some(Reason::ExponentialLikelier { p_value: exponential.p_value });
    }
    let (llcd, r_squared) = evidence.llcd_alpha.zip(evidence.llcd_r_squared)?;
    let hill = evidence.alpha;
    let agrees = r_squared >= LEAST_R_SQUARED && (llcd / hill - 1.0).abs() <= FARTHEST_SLOPE;
    (!agrees).then_some(Reason::PlotDisagrees { hill, llcd, r_squared })
}
