//! Which part of a sample is a straight tail.

use super::super::hill::{HillPlot, HillPoint};
use super::super::kolmogorov;
use super::super::ladder::ladder;
use super::{FARTHEST_FROM_FIT, LARGEST_TREND, LEAST_TAIL};

/// Tails tried, evenly spaced on a logarithmic axis: each has 3 to 6 % more values than the next.
const TAILS: usize = 200;

/// Below this much of the sample from the top: a body's lowest values weigh more in the sums than all others together, if it is a lognormal's.
const MOST_OF_SAMPLE: (usize, usize) = (19, 20);

/// A tail starts at so many rounding steps: there a step is an eighth. Nearer to the first step a lognormal of which half is rounded to it has as
/// straight a line as a Pareto's: in whole blocks, σ = 4 and 1000 values the margin was up to 9 standard deviations.
const LEAST_STEPS: f64 = 8.0;

/// The values that a sample stands for: logarithms in ascending order.
///
/// Sizes and times are whole numbers, or whole numbers of blocks. Each value stands for all that were rounded to it, so that equal ones are spread
/// evenly over their rounding interval: a spacing of 0 beside one that is too large is an artefact. What is rounded more coarsely than its
/// values' greatest common divisor says stays in lumps, and is no straight tail.
pub(super) fn spread_logs(positive: &[f64], width: f64) -> Vec<f64> {
    let mut logs = Vec::with_capacity(positive.len());
    for group in positive.chunk_by(|one, other| one == other) {
        let count = group.len() as f64;
        if width == 0.0 || group.len() == 1 {
            logs.extend(group.iter().map(|value| value.ln()));
        } else {
            let within = |index: usize| ((index as f64 + 0.5) / count - 0.5) * width;
            logs.extend(group.iter().enumerate().map(|(index, value)| (value + within(index)).ln()));
        }
    }
    logs
}

/// In what steps values were rounded: the greatest common divisor of whole numbers, 0 of others.
pub(super) fn rounding_width(positive: &[f64]) -> f64 {
    let mut divisor = 0.0_f64;
    for value in positive {
        if value.fract() != 0.0 {
            return 0.0;
        }
        let (mut one, mut other) = (*value, divisor);
        while other != 0.0 {
            (one, other) = (other, one % other);
        }
        divisor = one;
    }
    divisor
}

/// The Hill plot of all tails that may be judged.
pub(super) fn tails(logs: &[f64], width: f64) -> HillPlot {
    let rounded = logs.partition_point(|log| log.exp() < LEAST_STEPS * width);
    let most = (logs.len() * MOST_OF_SAMPLE.0 / MOST_OF_SAMPLE.1).min(logs.len() - rounded);
    HillPlot::at(logs, &ladder(LEAST_TAIL, most, TAILS))
}

/// The longest tail that is straight: neither its trend nor its distance from the fit is larger than a Pareto tail's.
pub(super) fn longest_straight<'a>(logs: &[f64], plot: &'a HillPlot) -> Option<(&'a HillPoint, f64)> {
    plot.points.iter().rev().filter(|point| point.trend.z.abs() <= LARGEST_TREND).find_map(|point| {
        let limit = FARTHEST_FROM_FIT.0.max(FARTHEST_FROM_FIT.1 / (point.tail_values as f64).sqrt());
        Some((point, distance(logs, point, limit)?))
    })
}

/// The distance of Kolmogorov and Smirnov from the tail's fit, if it is at most the limit.
fn distance(logs: &[f64], point: &HillPoint, limit: f64) -> Option<f64> {
    let start = logs.len() - point.tail_values;
    let tail = &logs[start..];
    let (threshold, count) = (logs[start - 1], point.tail_values as f64);
    let fitted = |index: usize| -(-point.alpha * (tail[index] - threshold)).exp_m1();
    kolmogorov::distance(tail.len(), fitted, |index| index as f64 / count, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_whole_numbers_are_spread_over_what_was_rounded_to_them() {
        let logs = spread_logs(&[4.0, 8.0, 8.0, 12.0], 4.0);
        let values: Vec<f64> = logs.iter().map(|log| (log.exp() * 1e9).round() / 1e9).collect();
        assert_eq!(values, [4.0, 7.0, 9.0, 12.0]);
        assert!(spread_logs(&[1.0, 1.0, 1.0, 1.0, 2.0], 1.0).is_sorted_by(|a, b| a < b));
        assert_eq!(spread_logs(&[0.5, 0.5], 0.0), [0.5_f64.ln(); 2], "no rounding is known of these");
    }

    #[test]
    fn the_rounding_is_the_greatest_common_divisor() {
        assert_eq!(rounding_width(&[4096.0, 8192.0, 20_480.0]), 4096.0);
        assert_eq!(rounding_width(&[6.0, 10.0, 15.0]), 1.0);
        assert_eq!((rounding_width(&[2.0, 2.5]), rounding_width(&[])), (0.0, 0.0));
    }
}
