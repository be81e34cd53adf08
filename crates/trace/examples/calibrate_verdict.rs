//! How often samples of known distributions are judged to be what: the figures behind the thresholds of `statistics::verdict`.
//!
//! ```text
//! cargo run --release -p comb-trace --example calibrate_verdict -- lognormal 1000 200,1000,10000
//! ```
//!
//! The first argument is what is drawn (`lognormal`, `pareto`, `light`, `mixed`, `blocks`, `times`), then how many seeds, and of what sizes.

use comb_trace::statistics::dispersion::Dispersion;
use comb_trace::statistics::distributions::{
    Exponential, Lognormal, Pareto, Sampler, Weibull, normal_quantile, uniform,
};
use comb_trace::statistics::ecdf::Ecdf;
use comb_trace::statistics::hill::HillPlot;
use comb_trace::statistics::histogram::LogHistogram;
use comb_trace::statistics::likelihood::Alternatives;
use comb_trace::statistics::powerlaw::ParetoFit;
use comb_trace::statistics::qq::QqPlot;
use comb_trace::statistics::sample::Sample;
use comb_trace::statistics::verdict::{Judgement, Verdict, judge};
use comb_types::Dice;
use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("lognormal", String::as_str);
    let seeds = arguments.get(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    let sizes = arguments.get(2).map_or("1000,10000", String::as_str);
    let sizes: Vec<usize> = sizes.split(',').filter_map(|size| size.parse().ok()).collect();
    println!(
        "{:<28} {:>9} {:>7} {:>7} {:>7}  largest margin, worst α, reasons",
        "drawn from", "values", "heavy", "not", "unclear"
    );
    for count in sizes {
        match what {
            "lognormal" => {
                for sigma in [0.5, 1.0, 1.5, 2.0, 3.0, 4.0] {
                    let lognormal = Lognormal { mu: 8.0, sigma };
                    report(&format!("lognormal σ {sigma}"), None, count, seeds, |dice| {
                        lognormal.draw_many(count, dice)
                    });
                    let whole = |dice: &mut Dice| {
                        lognormal.draw_many(count, dice).iter().map(|x| x.round()).collect()
                    };
                    report(&format!("lognormal σ {sigma}, whole"), None, count, seeds, whole);
                }
            }
            "blocks" => blocks(count, seeds),
            "pareto" => {
                for alpha in [1.2, 1.3, 1.4, 1.5, 1.6, 1.7] {
                    let pareto = Pareto { alpha, x_min: 100.0, upper_bound: None };
                    report(&format!("Pareto α {alpha}"), Some(alpha), count, seeds, |dice| {
                        pareto.draw_many(count, dice)
                    });
                    let whole =
                        |dice: &mut Dice| pareto.draw_many(count, dice).iter().map(|x| x.round()).collect();
                    report(&format!("Pareto α {alpha}, whole"), Some(alpha), count, seeds, whole);
                }
            }
            "light" => light(count, seeds),
            "mixed" => mixed(count, seeds),
            _ => times(count),
        }
    }
}

/// Sizes in whole blocks, and times by a clock that ticks every 100 ns.
fn blocks(count: usize, seeds: u64) {
    let rounded =
        |values: Vec<f64>, block: f64| values.iter().map(|value| (value / block).ceil() * block).collect();
    for sigma in [1.0, 2.0, 4.0] {
        let lognormal = Lognormal { mu: 9.0, sigma };
        let draw = |dice: &mut Dice| rounded(lognormal.draw_many(count, dice), 4096.0);
        report(&format!("lognormal σ {sigma}, blocks"), None, count, seeds, draw);
        let draw = |dice: &mut Dice| rounded(lognormal.draw_many(count, dice), 100.0);
        report(&format!("lognormal σ {sigma}, ticks"), None, count, seeds, draw);
    }
    for alpha in [1.2, 1.7] {
        let pareto = Pareto { alpha, x_min: 2000.0, upper_bound: None };
        let draw = |dice: &mut Dice| rounded(pareto.draw_many(count, dice), 4096.0);
        report(&format!("Pareto α {alpha}, blocks"), Some(alpha), count, seeds, draw);
        let draw = |dice: &mut Dice| rounded(pareto.draw_many(count, dice), 100.0);
        report(&format!("Pareto α {alpha}, ticks"), Some(alpha), count, seeds, draw);
    }
}

fn light(count: usize, seeds: u64) {
    report("exponential", None, count, seeds, |dice| Exponential { mean: 3.0 }.draw_many(count, dice));
    report("normal", None, count, seeds, |dice| {
        (0..count).map(|_| 50.0 + 10.0 * normal_quantile(uniform(dice))).collect()
    });
    report("uniform", None, count, seeds, |dice| (0..count).map(|_| uniform(dice)).collect());
    report("log-uniform", None, count, seeds, |dice| {
        (0..count).map(|_| (20.0 * uniform(dice)).exp()).collect()
    });
    report("whole numbers up to 1000", None, count, seeds, |dice| {
        (0..count).map(|_| f64::from(1 + dice.below(1000))).collect()
    });
    for shape in [0.3, 0.5, 0.7, 1.0] {
        let weibull = Weibull { shape, scale: 1000.0 };
        report(&format!("Weibull {shape}"), None, count, seeds, |dice| weibull.draw_many(count, dice));
        let whole = |dice: &mut Dice| weibull.draw_many(count, dice).iter().map(|x| x.round()).collect();
        report(&format!("Weibull {shape}, whole"), None, count, seeds, whole);
    }
    report("powers of two, α 1.2", None, count, seeds, |dice| {
        let exponent = |dice: &mut Dice| (-uniform(dice).log2() / 1.2).floor();
        (0..count).map(|_| exponent(dice).exp2()).collect()
    });
    report("70 sizes, evenly", None, count, seeds, |dice| {
        (0..count).map(|_| f64::from(dice.below(70)).mul_add(0.3, 1.0).exp2().round()).collect()
    });
    report("20 popular sizes, exponential", None, count, seeds, |dice| {
        let popular = |dice: &mut Dice| f64::from(1 + dice.below(20)).exp2();
        (0..count)
            .map(|_| {
                if dice.happens(500_000) {
                    popular(dice)
                } else {
                    Exponential { mean: 5000.0 }.draw(dice).ceil()
                }
            })
            .collect()
    });
    report("two exponentials", None, count, seeds, |dice| {
        (0..count)
            .map(|_| Exponential { mean: if dice.happens(100_000) { 100.0 } else { 1.0 } }.draw(dice))
            .collect()
    });
    report("two lognormals", None, count, seeds, |dice| {
        let (near, far) = (Lognormal { mu: 5.0, sigma: 1.0 }, Lognormal { mu: 9.0, sigma: 2.0 });
        (0..count).map(|_| if dice.happens(200_000) { far.draw(dice) } else { near.draw(dice) }).collect()
    });
    for weight in [20_000, 100_000, 300_000] {
        report(&format!("any two lognormals, {weight}"), None, count, seeds, |dice| {
            let mut spread = |from: f64, to: f64| from + (to - from) * uniform(dice);
            let near = Lognormal { mu: 5.0, sigma: spread(0.5, 2.5) };
            let far = Lognormal { mu: spread(6.0, 12.0), sigma: spread(0.5, 2.5) };
            (0..count).map(|_| if dice.happens(weight) { far.draw(dice) } else { near.draw(dice) }).collect()
        });
    }
    report("Pareto α 2.5", None, count, seeds, |dice| {
        Pareto { alpha: 2.5, x_min: 1.0, upper_bound: None }.draw_many(count, dice)
    });
    report("Pareto α 1.2 up to 100", None, count, seeds, |dice| {
        Pareto { alpha: 1.2, x_min: 1.0, upper_bound: Some(100.0) }.draw_many(count, dice)
    });
}

fn mixed(count: usize, seeds: u64) {
    for (alpha, share) in [(1.2, 0.1), (1.4, 0.1), (1.7, 0.1), (1.4, 0.3), (1.4, 0.01)] {
        report(&format!("lognormal, above {share} α {alpha}"), Some(alpha), count, seeds, |dice| {
            let body = Lognormal { mu: 6.0, sigma: 1.2 };
            let x_min = body.quantile(1.0 - share);
            let tail = Pareto { alpha, x_min, upper_bound: None };
            let value =
                |p: f64, dice: &mut Dice| if p < 1.0 - share { body.quantile(p) } else { tail.draw(dice) };
            (0..count).map(|_| value(uniform(dice), dice).round()).collect()
        });
    }
}

fn times(count: usize) {
    for (name, sample) in [
        (
            "Pareto",
            Pareto { alpha: 1.3, x_min: 100.0, upper_bound: None }.draw_many(count, &mut Dice::new(1)),
        ),
        ("lognormal", Lognormal { mu: 8.0, sigma: 2.0 }.draw_many(count, &mut Dice::new(1))),
    ] {
        let mut last = Instant::now();
        let mut took = |what: &str| {
            println!("{name} {count} {what}: {:.3} s", last.elapsed().as_secs_f64());
            last = Instant::now();
        };
        let sample = Sample::new(sample);
        took("sorted");
        println!("{}", judge(&sample));
        took("judged");
        println!("{:?}", ParetoFit::closest(sample.ascending()));
        took("closest Pareto");
        println!("{} points", HillPlot::of(sample.ascending(), 200).points.len());
        took("Hill plot");
        println!("{} points", Ecdf::of(&sample).points(300).len());
        took("distribution");
        println!("{:?}", QqPlot::against_pareto(sample.positive(), 300).map(|plot| plot.straightness()));
        took("QQ plot");
        println!(
            "{:?}",
            Alternatives::of(sample.positive(), sample.positive()[0]).map(|fits| fits.lognormal)
        );
        took("lognormal and exponential fitted to all");
        let times: Vec<u64> = sample.ascending().iter().map(|value| value.to_bits() >> 20).collect();
        let mut histogram = LogHistogram::new();
        times.iter().for_each(|time| histogram.record(*time, 1));
        took("histogram");
        let steady: Vec<u64> = (0..count as u64).map(|at| at * 10_000_000).collect();
        took("made arrivals");
        println!("{:?}", Dispersion::of(&steady, &mut Dice::new(1)).map(|arrivals| arrivals.burstiness));
        took("dispersion");
    }
}

fn report(name: &str, alpha: Option<f64>, count: usize, seeds: u64, draw: impl Fn(&mut Dice) -> Vec<f64>) {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let (mut verdicts, mut margin, mut worst) = ([0_u64; 3], f64::NEG_INFINITY, 0.0_f64);
    for seed in 0..seeds {
        // Each line has seeds of its own: how a lognormal is judged does not depend on σ, and would be the same in each.
        let seed = name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        let judgement: Judgement = judge(&Sample::new(draw(&mut Dice::new(seed))));
        verdicts[match judgement.verdict {
            Verdict::HeavyTailed => 0,
            Verdict::NotHeavyTailed => 1,
            Verdict::Inconclusive => 2,
        }] += 1;
        let reason = format!("{:?}", judgement.reason);
        *reasons.entry(reason.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        if let Some(evidence) = judgement.evidence {
            margin = margin.max(evidence.lognormal_margin);
            if judgement.verdict == Verdict::HeavyTailed {
                worst = worst.max(alpha.map_or(0.0, |alpha| (evidence.alpha - alpha).abs()));
            }
        }
    }
    let [heavy, not, unclear] = verdicts;
    println!("{name:<28} {count:>9} {heavy:>7} {not:>7} {unclear:>7}  {margin:.2}, {worst:.3}, {reasons:?}");
}
