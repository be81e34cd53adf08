//! How long no news of a node is no evidence yet: learned from how long there usually is none.

use alloc::boxed::Box;
use core::time::Duration;

/// Of the interval: how finely gaps are told apart.
const PARTS: u32 = 8;
const BUCKETS: usize = 256;

/// What one gap counts at first. Else the few of the tail would be lost when all are halved.
const WEIGHT: u32 = 256;

/// Before so many gaps were seen, their tail is not known.
const FEWEST_GAPS: u32 = 128;
/// When so many were seen, the older ones begin to count half: about two minutes in a full zone.
const MOST_GAPS: u32 = 16_384;

/// One gap in so many belongs to the tail.
const TAIL: u32 = 100;

/// Watches the gaps between two rises of a version, and says after what gap a node is to be suspected.
///
/// Epidemics leave a gap of t with a probability that falls exponentially, once t is longer than most: each further round
/// without news needs each further message that could have brought it to be lost. So a threshold follows from what is observed: the
/// gap that one in a hundred exceeds, and by how much those exceed it in the mean. Loss, slow nodes and too little fan-out all
/// show in it, and need not be told apart. (Galaxy §8.5.1)
#[derive(Clone, Debug)]
pub(crate) struct Staleness {
    interval: Duration,
    /// Of all gaps, the share that may be taken for a failure.
    false_suspicions: f32,
    /// In weights, as in each bucket.
    gaps: u32,
    buckets: Box<[u32; BUCKETS]>,
}

impl Staleness {
    pub(crate) const MEMORY_BYTES: usize = BUCKETS * size_of::<u32>();

    /// `false_suspicions_per_billion`: of all gaps, how many may be taken for a failure.
    pub(crate) fn new(interval: Duration, false_suspicions_per_billion: u32) -> Self {
        let most = 1_000_000_000 / TAIL;
        let false_suspicions = false_suspicions_per_billion.clamp(1, most) as f32 / 1e9;
        Self { interval, false_suspicions, gaps: 0, buckets: Box::new([0; BUCKETS]) }
    }

    /// A version has risen after such a gap.
    pub(crate) fn saw(&mut self, gap: Duration) {
        let parts = gap.as_nanos() * u128::from(PARTS) / self.interval.as_nanos().max(1);
        let bucket = usize::try_from(parts).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.buckets[bucket] += WEIGHT;
        self.gaps += WEIGHT;
        if self.gaps >= MOST_GAPS * WEIGHT {
            self.buckets.iter_mut().for_each(|bucket| *bucket /= 2);
            self.gaps = self.buckets.iter().sum();
        }
    }

    /// The gap that is exceeded as seldom as was asked for; none before enough was seen.
    pub(crate) fn threshold(&self) -> Option<Duration> {
        if self.gaps < FEWEST_GAPS * WEIGHT {
            return None;
        }
        let tail = self.gaps.div_ceil(TAIL);
        // Those above the bucket that was looked at last: how many, and the sum of their distances to it, in buckets.
        let (mut above, mut excess) = (0_u32, 0_u64);
        for (start, &gaps) in self.buckets.iter().enumerate().rev() {
            excess += u64::from(above);
            above += gaps;
            if above >= tail {
                // Within its bucket a gap may lie anywhere: half a bucket each.
                let mean = (excess as f32 + above as f32 / 2.0) / above as f32;
                let in_tail = above as f32 / self.gaps as f32;
                let parts = start as f32 + mean * ln(in_tail / self.false_suspicions);
                return Some(self.interval.mul_f32(parts / PARTS as f32));
            }
        }
        None
    }
}

/// The natural logarithm, to a tenth: there is none in `core`, and a threshold needs no better.
fn ln(number: f32) -> f32 {
    let bits = number.to_bits() as f32 / (1_u32 << 23) as f32;
    (bits - 126.957) * core::f32::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::Dice;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_logarithm_is_near_enough() {
        for number in [1.0_f32, 1.5, 2.0, 77.0, 1e4, 3e7] {
            assert!((ln(number) - number.ln()).abs() < 0.1, "{number}: {}", ln(number));
        }
    }

    /// Gaps of a second and more: each further eighth of one follows with a probability.
    fn learned(more_per_million: u32) -> Duration {
        let mut staleness = Staleness::new(SECOND, 1000);
        assert_eq!(staleness.threshold(), None);
        let mut dice = Dice::new(1);
        for _ in 0..50_000 {
            let mut gap = SECOND;
            while dice.happens(more_per_million) {
                gap += SECOND / 8;
            }
            staleness.saw(gap);
        }
        staleness.threshold().expect("enough was seen")
    }

    /// Of such gaps, one in a million is longer than 1 + ln(10⁻⁶) / ln(probability) / 8 seconds.
    #[test]
    fn the_threshold_follows_what_is_observed() {
        for (more, seconds) in [(300_000, 2.4), (500_000, 3.5), (700_000, 5.8), (900_000, 17.4)] {
            let threshold = learned(more).as_secs_f32();
            assert!(
                (seconds * 0.85..seconds * 1.25).contains(&threshold),
                "{more}: {threshold} for {seconds}"
            );
        }
        assert!(learned(0) < Duration::from_millis(2500), "{:?}", learned(0));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut staleness = Staleness::new(SECOND, 1000);
        (0..20_000).for_each(|_| staleness.saw(5 * SECOND));
        let long = staleness.threshold();
        (0..200_000).for_each(|_| staleness.saw(SECOND));
        assert!(long > Some(4 * SECOND) && staleness.threshold() < Some(3 * SECOND));
    }
}
