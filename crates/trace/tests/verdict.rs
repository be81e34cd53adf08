//! What samples of known distributions are called. The figures by thousands of seeds are had by the example `calibrate_verdict`.

use comb_trace::statistics::distributions::{
    Exponential, Lognormal, Pareto, Sampler, Weibull, normal_quantile, uniform,
};
use comb_trace::statistics::sample::Sample;
use comb_trace::statistics::verdict::{
    Judgement, LEAST_HEAVY_TAIL, LEAST_LOGNORMAL_MARGIN, LEAST_VALUES, Reason, Verdict, judge,
};
use comb_types::Dice;

fn judged(values: Vec<f64>) -> Judgement {
    judge(&Sample::new(values))
}

fn drawn(sampler: &impl Sampler, count: usize, seed: u64) -> Vec<f64> {
    sampler.draw_many(count, &mut Dice::new(seed))
}

#[test]
fn pareto_samples_are_heavy_tailed_and_their_alpha_is_found() {
    for alpha in [1.2, 1.3, 1.4, 1.5, 1.6, 1.7] {
        for seed in 0..20 {
            let values = drawn(&Pareto { alpha, x_min: 512.0, upper_bound: None }, 10_000, seed);
            let whole = values.iter().map(|value| value.round()).collect();
            for values in [values, whole] {
                let judgement = judged(values);
                assert_eq!(judgement.verdict, Verdict::HeavyTailed, "α {alpha}, seed {seed}: {judgement}");
                let evidence = judgement.evidence.expect("evidence");
                let llcd = evidence.llcd_alpha.expect("a plot");
                assert!(
                    (evidence.alpha - alpha).abs() < 0.1 && (llcd - alpha).abs() < 0.1,
                    "α {alpha}: {evidence:?}"
                );
                assert!(
                    evidence.alpha_low < alpha + 0.05 && evidence.alpha_high > alpha - 0.05,
                    "α {alpha}: {evidence:?}"
                );
                assert!(evidence.x_min < 700.0 && evidence.decades > 1.0, "{evidence:?}");
            }
        }
    }
}

/// A wide lognormal has an α below 2 and a straight plot by the estimators alone.
#[test]
fn no_lognormal_is_heavy_tailed() {
    for (sigma, seed) in [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0].into_iter().zip(0..) {
        let lognormal = Lognormal { mu: 7.0, sigma };
        for (count, seeds) in [(200, 60), (1000, 30), (10_000, 10), (100_000, 2)] {
            for seed in (0..seeds).map(|step| 1000 * step + seed) {
                let values = drawn(&lognormal, count, seed);
                let whole = values.iter().map(|value| value.round()).collect();
                for values in [values, whole] {
                    let judgement = judged(values);
                    assert_ne!(
                        judgement.verdict,
                        Verdict::HeavyTailed,
                        "σ {sigma}, {count}, {seed}: {judgement}"
                    );
                    let margin = judgement.evidence.map_or(0.0, |evidence| evidence.lognormal_margin);
                    assert!(margin < LEAST_LOGNORMAL_MARGIN, "σ {sigma}, {count}, {seed}: {judgement}");
                }
            }
        }
        let judgement = judged(drawn(&lognormal, 100_000, 77));
        assert_eq!(judgement.verdict, Verdict::NotHeavyTailed, "σ {sigma}: {judgement}");
    }
}

/// Half of these sizes are one block, and nearly all of the lower half of the tail is a few: their steps are not the tail's.
#[test]
fn a_lognormal_in_whole_blocks_is_no_straighter_than_it_was() {
    for seed in 0..150 {
        let sizes = drawn(&Lognormal { mu: 9.0, sigma: 4.0 }, 1000, seed);
        let judgement = judged(sizes.iter().map(|size| (size / 4096.0).ceil() * 4096.0).collect());
        assert_ne!(judgement.verdict, Verdict::HeavyTailed, "{seed}: {judgement}");
        let margin = judgement.evidence.map_or(0.0, |evidence| evidence.lognormal_margin);
        assert!(margin < LEAST_LOGNORMAL_MARGIN, "{seed}: {judgement}");
    }
}

#[test]
fn lighter_tails_are_not_heavy() {
    let normal = |dice: &mut Dice| 100.0 + 10.0 * normal_quantile(uniform(dice));
    for count in [200, 1000, 10_000, 50_000] {
        for seed in 0..5 {
            let mut dice = Dice::new(seed);
            let mut samples = vec![
                drawn(&Exponential { mean: 40.0 }, count, seed),
                (0..count).map(|_| normal(&mut dice)).collect(),
                (0..count).map(|_| uniform(&mut dice)).collect(),
                (0..count).map(|_| f64::from(1 + dice.below(500))).collect(),
            ];
            samples
                .extend([0.3, 0.5, 0.7, 1.0].map(|shape| drawn(&Weibull { shape, scale: 1e4 }, count, seed)));
            for (sample, number) in samples.into_iter().zip(0..) {
                let judgement = judged(sample);
                assert_ne!(judgement.verdict, Verdict::HeavyTailed, "{number}, {count}, {seed}: {judgement}");
                if count == 50_000 {
                    assert_eq!(
                        judgement.verdict,
                        Verdict::NotHeavyTailed,
                        "{number}, {count}, {seed}: {judgement}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_few_sizes_and_constants_have_no_tail() {
    let constant = judged(vec![4096.0; 10_000]);
    assert_eq!((constant.verdict, constant.reason), (Verdict::NotHeavyTailed, Reason::OneValue));
    let mut dice = Dice::new(3);
    // Each power of two half as frequent as the one before: a power law of a few sizes.
    let sizes: Vec<f64> = (0..10_000).map(|_| (-uniform(&mut dice).log2()).floor().exp2() * 512.0).collect();
    let judgement = judged(sizes);
    assert!(matches!(judgement.reason, Reason::FewDistinctValues { .. }), "{judgement}");
    // Most requests are of eight popular sizes; the others are exponential.
    let popular = |dice: &mut Dice| f64::from(4 + dice.below(8)).exp2();
    let other = Exponential { mean: 9000.0 };
    let mixed = (0..20_000)
        .map(|_| if dice.happens(700_000) { popular(&mut dice) } else { other.draw(&mut dice).ceil() })
        .collect();
    assert_ne!(judged(mixed).verdict, Verdict::HeavyTailed);
    // Sizes from 512 B to 256 KB in steps of 5 %, each as frequent.
    let steps = (0..20_000).map(|_| (512.0 * 1.05_f64.powf(f64::from(dice.below(128)))).round()).collect();
    assert_ne!(judged(steps).verdict, Verdict::HeavyTailed);
}

/// Small things, and a fifth of them larger ones: of a thousand such values the whole looks straight more often than not, and the outer part bends.
#[test]
fn two_kinds_of_things_are_seldom_taken_for_one_tail() {
    let (small, large) = (Lognormal { mu: 5.0, sigma: 1.0 }, Lognormal { mu: 9.0, sigma: 2.0 });
    let reasons = (0..50).map(|seed| {
        let mut dice = Dice::new(seed);
        judged(
            (0..1000)
                .map(|_| if dice.happens(200_000) { large.draw(&mut dice) } else { small.draw(&mut dice) })
                .collect(),
        )
    });
    let reasons: Vec<Reason> = reasons.map(|judgement| judgement.reason).collect();
    let straight = reasons.iter().filter(|reason| matches!(reason, Reason::StraightTail { .. })).count();
    let bent = reasons.iter().filter(|reason| matches!(reason, Reason::OuterPartBends { .. })).count();
    assert!(straight <= 2 && bent > 10, "{straight} {bent}");
}

/// Nothing written to a disk is larger than the disk.
#[test]
fn a_tail_that_is_seen_to_end_is_not_heavy() {
    let pareto = Pareto { alpha: 1.2, x_min: 1.0, upper_bound: Some(100.0) };
    let judgement = judged(drawn(&pareto, 100_000, 9));
    assert_eq!(judgement.verdict, Verdict::NotHeavyTailed, "{judgement}");
}

#[test]
fn a_pareto_tail_above_another_body_is_heavy() {
    let body = Lognormal { mu: 8.0, sigma: 1.0 };
    for (alpha, seed) in [1.2, 1.4, 1.7].into_iter().zip(0..) {
        let tail = Pareto { alpha, x_min: body.quantile(0.9), upper_bound: None };
        let mut dice = Dice::new(seed);
        let values = (0..100_000)
            .map(|_| match uniform(&mut dice) {
                p if p < 0.9 => body.quantile(p).round(),
                _ => tail.draw(&mut dice).round(),
            })
            .collect();
        let judgement = judged(values);
        assert_eq!(judgement.verdict, Verdict::HeavyTailed, "{judgement}");
        let evidence = judgement.evidence.expect("evidence");
        assert!((evidence.alpha - alpha).abs() < 0.1, "{alpha}: {evidence:?}");
        assert!(evidence.tail_values > 5000 && evidence.tail_values < 20_000, "{evidence:?}");
    }
}

#[test]
fn what_a_sample_cannot_say_is_inconclusive() {
    let pareto = Pareto { alpha: 1.3, x_min: 1.0, upper_bound: None };
    let short = judged(drawn(&pareto, 150, 1));
    assert_eq!(short.reason, Reason::TooFewValues { values: 150, needed: LEAST_VALUES });
    assert_eq!(judged(vec![0.0; 5000]).reason, Reason::TooFewValues { values: 0, needed: LEAST_VALUES });
    let rather_short = judged(drawn(&pareto, 300, 1));
    let Reason::ShortTail { tail_values, needed: LEAST_HEAVY_TAIL } = rather_short.reason else {
        panic!("{rather_short}")
    };
    assert!(tail_values < 300);
    let finite = judged(drawn(&Pareto { alpha: 2.3, x_min: 1.0, upper_bound: None }, 20_000, 1));
    assert!(matches!(finite.reason, Reason::FiniteVariance { .. }), "{finite}");
    assert_eq!(finite.verdict, Verdict::NotHeavyTailed);
    let either = judged(drawn(&Pareto { alpha: 2.0, x_min: 1.0, upper_bound: None }, 20_000, 1));
    assert!(matches!(either.reason, Reason::VarianceUndecided { .. }), "{either}");
    // A Pareto tail of a hundred values: no sample of this size could tell.
    let body = Lognormal { mu: 0.0, sigma: 1.0 };
    let mut values = drawn(&body, 20_000, 5);
    values.retain(|value| *value < 10.0);
    values.extend(drawn(&Pareto { alpha: 1.1, x_min: 10.0, upper_bound: None }, 150, 6));
    assert_eq!(judged(values).verdict, Verdict::Inconclusive);
}

#[test]
fn a_judgement_is_a_sentence() {
    let heavy = judged(drawn(&Pareto { alpha: 1.5, x_min: 1.0, upper_bound: None }, 10_000, 4)).to_string();
    assert!(heavy.starts_with("heavy-tailed: the tail is that of a power law with α = 1."), "{heavy}");
    let light = judged(drawn(&Lognormal { mu: 0.0, sigma: 2.0 }, 10_000, 4)).to_string();
    assert!(light.starts_with("not heavy-tailed: the tail steepens outwards"), "{light}");
    let short = judged(vec![1.0, 2.0]).to_string();
    assert_eq!(short, "inconclusive: 2 values above 0 are too few to see a tail: it takes 200");
}
