//! Whether arrivals are burstier than a Poisson process of the same rate, at several time scales.
//!
//! Were they Poisson, they would smooth out at coarser scales; file system requests do not. (Thesis §9.7, figure 9.8)

use super::distributions::{Exponential, Sampler, chi_square_survival};
use super::ladder::nearest;
use super::qq::Line;
use super::sample::Descriptors;
use comb_types::Dice;

/// Each scale is ten times the one before.
pub const SCALES: usize = 3;
const STEP: u64 = 10;

/// The finest scale, if the trace is long enough for the coarsest.
const FINEST_NS: u64 = 1_000_000_000;

/// A variance of fewer counts than this says little: with 30 of them a Poisson sample's index lies between 0.5 and 1.6.
const LEAST_INTERVALS: u64 = 30;

/// No clock of ours resolves less.
const FINEST_OF_ALL_NS: u64 = 1000;

/// Memory for counts has an end: a trace of four months has ten million seconds, and a longer one is counted at coarser scales.
const MOST_INTERVALS: u64 = 10_000_000;

/// So unlikely must a Poisson process be at a scale. One in a thousand, because there are three scales and many traces.
const SIGNIFICANT: f64 = 0.001;

/// Arrivals counted in intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// How many arrived in each interval, from the first arrival on.
    pub counts: Vec<u64>,
    /// Their mean.
    pub mean: f64,
    /// Their variance.
    pub variance: f64,
    /// The index of dispersion for counts: variance over mean, 1 for a Poisson process.
    pub index: f64,
    /// How likely a Poisson process is to be as bursty or burstier: (n − 1)·index is χ² with n − 1 degrees of freedom.
    pub burstier_p_value: f64,
    /// How likely it is to be as regular or more so.
    pub smoother_p_value: f64,
}

impl Counts {
    /// None of fewer than two intervals, or of no arrivals.
    pub fn of(counts: Vec<u64>) -> Option<Self> {
        let values: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
        let all = Descriptors::of(&values).filter(|all| all.count > 1 && all.mean > 0.0)?;
        let variance = all.standard_deviation * all.standard_deviation;
        let index = variance / all.mean;
        let degrees = (all.count - 1) as f64;
        let burstier_p_value = chi_square_survival(degrees * index, degrees);
        let smoother_p_value = 1.0 - burstier_p_value;
        Some(Self { counts, mean: all.mean, variance, index, burstier_p_value, smoother_p_value })
    }

    fn merged(&self, intervals: usize) -> Option<Self> {
        Self::of(self.counts.chunks_exact(intervals).map(|chunk| chunk.iter().sum()).collect())
    }
}

/// One time scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// How long an interval is.
    pub interval_ns: u64,
    /// What arrived.
    pub arrivals: Counts,
    /// What a Poisson process of the same rate brought in the same time.
    pub poisson: Counts,
}

/// What is to be said of arrivals as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burstiness {
    /// At every scale.
    BurstierAtAllScales,
    /// At some: they smooth out, or their bursts are longer than the finest scale.
    BurstierAtSomeScales,
    /// At none.
    NotBurstier,
    /// At none, and more regular at one or more: a clock drives them.
    SmootherThanPoisson,
}

impl std::fmt::Display for Burstiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BurstierAtAllScales => "burstier than Poisson at all time scales",
            Self::BurstierAtSomeScales => "burstier than Poisson at some time scales",
            Self::NotBurstier => "no burstier than Poisson at any time scale",
            Self::SmootherThanPoisson => "more regular than Poisson",
        })
    }
}

/// Arrivals at several time scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispersion {
    /// From the finest to the coarsest.
    pub scales: Vec<Scale>,
    /// The judgement.
    pub burstiness: Burstiness,
    /// From the slope of the variance of an interval's mean over the interval's length: ½ for a Poisson process, towards 1 the longer what
    /// has happened is felt. An indication; none if the trace is too short for four lengths.
    pub hurst: Option<f64>,
}

impl Dispersion {
    /// Of moments in nanoseconds, in any order. At 1, 10 and 100 s; all a tenth of that, and again, until the coarsest has thirty intervals.
    /// The dice make the Poisson process. None if there are too few moments, or all within 3 ms.
    pub fn of(arrivals_ns: &[u64], dice: &mut Dice) -> Option<Self> {
        let first = *arrivals_ns.iter().min()?;
        let span = arrivals_ns.iter().max()? - first;
        Self::at(arrivals_ns, finest_for(span)?, dice)
    }

    /// The same, with intervals of this length at the finest scale.
    pub fn at(arrivals_ns: &[u64], finest_ns: u64, dice: &mut Dice) -> Option<Self> {
        let first = *arrivals_ns.iter().min()?;
        let span = arrivals_ns.iter().max()? - first;
        let intervals = span.checked_div(finest_ns)?;
        let finest = Counts::of(count(arrivals_ns.iter().map(|at| at - first), finest_ns, intervals))?;
        let poisson = Counts::of(count(poisson(arrivals_ns.len(), span, dice), finest_ns, intervals))?;
        let mut scales = Vec::with_capacity(SCALES);
        let (mut factor, mut interval_ns) = (1, finest_ns);
        for _ in 0..SCALES {
            scales.push(Scale {
                interval_ns,
                arrivals: finest.merged(factor)?,
                poisson: poisson.merged(factor)?,
            });
            factor *= 10;
            interval_ns *= STEP;
        }
        Some(Self { burstiness: judge(&scales), hurst: hurst(&finest.counts), scales })
    }
}

fn finest_for(span: u64) -> Option<u64> {
    let coarsest = STEP.pow(2);
    let mut finest = FINEST_NS;
    while span / (finest * coarsest) < LEAST_INTERVALS {
        finest /= STEP;
        if finest < FINEST_OF_ALL_NS {
            return None;
        }
    }
    while span / finest > MOST_INTERVALS {
        finest *= STEP;
    }
    Some(finest)
}

/// The last interval, which the trace ends in, is left out.
fn count(offsets: impl Iterator<Item = u64>, interval_ns: u64, intervals: u64) -> Vec<u64> {
    let mut counts = vec![0; usize::try_from(intervals).unwrap_or(0)];
    for offset in offsets {
        if let Some(count) = usize::try_from(offset / interval_ns).ok().and_then(|at| counts.get_mut(at)) {
            *count += 1;
        }
    }
    counts
}

/// Offsets of a Poisson process that is expected to have as many arrivals within the span.
fn poisson(arrivals: usize, span: u64, dice: &mut Dice) -> impl Iterator<Item = u64> {
    let gap = Exponential { mean: span as f64 / arrivals as f64 };
    let mut now = 0.0;
    std::iter::repeat_with(move || {
        now += gap.draw(dice);
        now
    })
    .take_while(move |now| *now < span as f64)
    .map(|now| nearest(now.floor()) as u64)
}

fn judge(scales: &[Scale]) -> Burstiness {
    let with =
        |significant: fn(&Counts) -> bool| scales.iter().filter(|scale| significant(&scale.arrivals)).count();
    let burstier = with(|counts| counts.burstier_p_value < SIGNIFICANT);
    if burstier == scales.len() {
        Burstiness::BurstierAtAllScales
    } else if burstier > 0 {
        Burstiness::BurstierAtSomeScales
    } else if with(|counts| counts.smoother_p_value < SIGNIFICANT) > 0 {
        Burstiness::SmootherThanPoisson
    } else {
        Burstiness::NotBurstier
    }
}

fn hurst(counts: &[u64]) -> Option<f64> {
    let mut line = Line::default();
    let mut lengths = 0;
    let mut merged: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
    let mut length = 1.0_f64;
    while merged.len() as u64 >= LEAST_INTERVALS {
        let deviation = Descriptors::of(&merged)?.standard_deviation;
        if deviation > 0.0 {
            line.add(length.ln(), 2.0 * (deviation / length).ln());
            lengths += 1;
        }
        merged = merged.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        length *= 2.0;
    }
    (lengths >= 4).then(|| 1.0 + line.slope() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{OnOff, Pareto, Period};
    use super::*;

    const SECOND: f64 = 1e9;

    fn poisson_trace(seed: u64) -> Vec<u64> {
        poisson(40_000, 4_000_000_000_000, &mut Dice::new(seed)).collect()
    }

    /// Thirty sources with heavy-tailed busy and idle times.
    fn bursty_trace() -> Vec<u64> {
        let mut dice = Dice::new(4);
        let period = Pareto { alpha: 1.3, x_min: SECOND, upper_bound: None };
        let mut arrivals = Vec::new();
        for _ in 0..30 {
            let mut now = 0.0;
            for one in (OnOff { on: period, off: period }).periods(dice.fork()) {
                let (Period::On(length) | Period::Off(length)) = one;
                if matches!(one, Period::On(_)) {
                    let requests = nearest(length.min(4000.0 * SECOND) / SECOND * 4.0);
                    arrivals.extend(
                        (0..requests).map(|request| nearest(now + request as f64 * SECOND / 4.0) as u64),
                    );
                }
                now += length;
                if now > 4000.0 * SECOND {
                    break;
                }
            }
        }
        arrivals
    }

    #[test]
    fn poisson_arrivals_are_called_that_and_smooth_out() {
        let burstier = (0..20).filter(|seed| {
            let dispersion = Dispersion::of(&poisson_trace(*seed), &mut Dice::new(99)).expect("a long trace");
            assert_eq!(
                dispersion.scales.iter().map(|scale| scale.interval_ns / FINEST_NS).collect::<Vec<_>>(),
                [1, 10, 100]
            );
            assert!((0.3..0.7).contains(&dispersion.hurst.expect("a long trace")), "{:?}", dispersion.hurst);
            dispersion.burstiness != Burstiness::NotBurstier
        });
        assert!(burstier.count() <= 1);
    }

    #[test]
    fn heavy_tailed_sources_are_bursty_at_all_scales() {
        let dispersion = Dispersion::of(&bursty_trace(), &mut Dice::new(1)).expect("a long trace");
        assert_eq!(dispersion.burstiness, Burstiness::BurstierAtAllScales, "{:?}", dispersion.hurst);
        assert!(dispersion.hurst.expect("a long trace") > 0.65, "{:?}", dispersion.hurst);
        let beside: Vec<_> = dispersion.scales.iter().map(|scale| scale.poisson.index).collect();
        assert!(beside.iter().all(|index| (0.5..1.6).contains(index)), "{beside:?}");
        let [fine, .., coarse] = &dispersion.scales[..] else { panic!("three scales") };
        assert!(coarse.arrivals.index > 3.0 * fine.arrivals.index, "the index grows with the scale");
        let means = [fine.arrivals.mean / fine.poisson.mean, coarse.arrivals.mean / coarse.poisson.mean];
        assert!(means.iter().all(|ratio| (ratio - 1.0).abs() < 0.05), "the same rate: {means:?}");
    }

    #[test]
    fn a_clock_is_smoother_and_bursts_of_a_moment_are_at_the_fine_scale_only() {
        let clock: Vec<u64> = (0..8000).map(|tick| tick * 500_000_000).collect();
        let dispersion = Dispersion::of(&clock, &mut Dice::new(1)).expect("a long trace");
        assert_eq!(dispersion.burstiness, Burstiness::SmootherThanPoisson);
        // Five at once every ten seconds.
        let beat: Vec<u64> = (0..2000).map(|burst| burst / 5 * 10 * FINEST_NS).collect();
        let dispersion = Dispersion::of(&beat, &mut Dice::new(1)).expect("a long trace");
        assert_eq!(dispersion.burstiness, Burstiness::BurstierAtSomeScales);
    }

    #[test]
    fn short_traces_are_seen_at_finer_scales_and_tiny_ones_not_at_all() {
        assert_eq!(finest_for(4000 * FINEST_NS), Some(FINEST_NS));
        assert_eq!(finest_for(60 * FINEST_NS), Some(FINEST_NS / 100));
        assert_eq!(finest_for(1_000_000), None);
        assert_eq!(finest_for(u64::MAX), Some(STEP.pow(13)));
        assert_eq!(Dispersion::of(&[], &mut Dice::new(1)), None);
        assert_eq!(Dispersion::of(&[5, 5, 5], &mut Dice::new(1)), None);
    }

    #[test]
    fn the_index_by_hand() {
        let counts = Counts::of(vec![0, 4, 0, 4]).expect("counts");
        assert_eq!(counts.mean, 2.0);
        assert!((counts.index - 16.0 / 3.0 / 2.0).abs() < 1e-14, "{counts:?}");
        // χ² of 8 with 3 degrees of freedom.
        assert!((counts.burstier_p_value - 0.046_011_7).abs() < 1e-6, "{counts:?}");
    }
}
