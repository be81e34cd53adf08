//! The standard normal distribution, exact far out in its tail.

use std::f64::consts::{PI, SQRT_2};

/// Below this the power series around 0 is used, above it the continued fraction of the tail: both reach the precision of a double there
/// in fewer than a hundred terms, and the series has not yet lost digits to cancellation.
const SERIES_END: f64 = 2.5;

/// Here `1 − Φ` has long been 0 as a double, and the asymptotic series needs two terms.
const FAR: f64 = 1e4;

/// The density of the standard normal distribution.
pub fn normal_density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

/// P\[Z ≤ z\].
pub fn normal_cdf(z: f64) -> f64 {
    normal_survival(-z)
}

/// P\[Z > z\], with all its digits also where it is tiny.
pub fn normal_survival(z: f64) -> f64 {
    if z.abs() < SERIES_END {
        0.5 - normal_density(z) * central_series(z)
    } else if z > 0.0 {
        normal_density(z) * tail_fraction(z)
    } else {
        1.0 - normal_density(z) * tail_fraction(-z)
    }
}

/// ln P\[Z > z\], which does not underflow: a lognormal that has to imitate a Pareto tail sits hundreds of standard deviations away from it.
pub fn normal_log_survival(z: f64) -> f64 {
    if z < 0.0 {
        (-normal_survival(-z)).ln_1p()
    } else if z < SERIES_END {
        normal_survival(z).ln()
    } else {
        tail_fraction(z).ln() - 0.5 * z * z - 0.5 * (2.0 * PI).ln()
    }
}

/// Mills' ratio, P\[Z > z\] over the density at z: the inverse of the hazard. Infinite where the density underflows to the left.
pub fn normal_mills(z: f64) -> f64 {
    if z < SERIES_END { normal_survival(z) / normal_density(z) } else { tail_fraction(z) }
}

/// The complementary error function.
pub fn erfc(x: f64) -> f64 {
    2.0 * normal_survival(x * SQRT_2)
}

/// (Φ(z) − ½) / φ(z) = z + z³/3 + z⁵/(3·5) + …
fn central_series(z: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (z, z, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    sum
}

/// (1 − Φ(z)) / φ(z) = 1/(z + 1/(z + 2/(z + 3/(z + …)))), from the inside out.
fn tail_fraction(z: f64) -> f64 {
    if z > FAR {
        return (1.0 - 1.0 / (z * z)) / z;
    }
    // As many levels as settle the last digit: many near the body, few far out.
    let levels = 12.0 + 900.0 / (z * z);
    let (mut level, mut inner) = (levels.ceil(), z);
    while level >= 1.0 {
        inner = z + level / inner;
        level -= 1.0;
    }
    1.0 / inner
}

/// The z with P\[Z ≤ z\] = p; infinite at 0 and 1. (Wichura, algorithm AS 241, 1988: 16 digits.)
pub fn normal_quantile(p: f64) -> f64 {
    let centred = p - 0.5;
    if centred.abs() <= 0.425 {
        let r = 0.180_625 - centred * centred;
        return centred * polynomial(&CENTRE_OVER, r) / polynomial(&CENTRE_UNDER, r);
    }
    let smaller = if centred < 0.0 { p } else { 1.0 - p };
    if smaller <= 0.0 {
        return f64::INFINITY.copysign(centred);
    }
    let r = (-smaller.ln()).sqrt();
    let z = if r <= 5.0 {
        polynomial(&SHOULDER_OVER, r - 1.6) / polynomial(&SHOULDER_UNDER, r - 1.6)
    } else {
        polynomial(&TAIL_OVER, r - 5.0) / polynomial(&TAIL_UNDER, r - 5.0)
    };
    z.copysign(centred)
}

/// Coefficients from the constant up.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

const CENTRE_OVER: [f64; 8] = [
    3.387_132_872_796_366_5,
    133.141_667_891_784_38,
    1_971.590_950_306_551_3,
    13_731.693_765_509_46,
    45_921.953_931_549_87,
    67_265.770_927_008_7,
    33_430.575_583_588_13,
    2_509.080_928_730_122_7,
];
const CENTRE_UNDER: [f64; 8] = [
    1.0,
    42.313_330_701_600_91,
    687.187_007_492_057_9,
    5_394.196_021_424_751,
    21_213.794_301_586_597,
    39_307.895_800_092_71,
    28_729.085_735_721_943,
    5_226.495_278_852_854,
];
const SHOULDER_OVER: [f64; 8] = [
    1.423_437_110_749_683_5,
    4.630_337_846_156_546,
    5.769_497_221_460_691,
    3.647_848_324_763_204_5,
    1.270_458_252_452_368_4,
    0.241_780_725_177_450_6,
    0.022_723_844_989_269_184,
    0.000_774_545_014_278_341_4,
];
const SHOULDER_UNDER: [f64; 8] = [
    1.0,
    2.053_191_626_637_759,
    1.676_384_830_183_803_8,
    0.689_767_334_985_1,
    0.148_103_976_427_480_08,
    0.015_198_666_563_616_457,
    0.000_547_593_808_499_534_5,
    1.050_750_071_644_417e-9,
];
const TAIL_OVER: [f64; 8] = [
    6.657_904_643_501_103,
    5.463_784_911_164_114,
    1.784_826_539_917_291_3,
    0.296_560_571_828_504_87,
    0.026_532_189_526_576_124,
    0.001_242_660_947_388_078_4,
    2.711_555_568_743_487_6e-5,
    2.010_334_399_292_288_1e-7,
];
const TAIL_UNDER: [f64; 8] = [
    1.0,
    0.599_832_206_555_888,
    0.136_929_880_922_735_8,
    0.014_875_361_290_850_615,
    0.000_786_869_131_145_613_3,
    1.846_318_317_510_054_8e-5,
    1.421_511_758_316_446e-7,
    2.044_263_103_389_939_8e-15,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, relative: f64) {
        assert!((found - expected).abs() <= relative * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn survival_has_its_digits_in_the_body_and_far_out() {
        close(normal_survival(0.0), 0.5, 1e-15);
        close(normal_survival(1.0), 0.158_655_253_931_457_05, 1e-14);
        close(normal_survival(-1.959_963_984_540_054), 0.975, 1e-14);
        close(normal_survival(2.499_999), 0.006_209_682_854_098_539, 1e-12);
        close(normal_survival(2.500_001), 0.006_209_647_797_499_557, 1e-12);
        close(normal_survival(6.0), 9.865_876_450_376_946e-10, 1e-13);
        close(normal_survival(-9.0), 1.0, 1e-15);
        close(normal_log_survival(40.0), -804.608_442_013_754_3, 1e-13);
        close(normal_log_survival(1e5), -5_000_000_012.431_864, 1e-14);
        close(normal_log_survival(-3.0), -0.001_350_809_964_748_193_8, 1e-12);
    }

    #[test]
    fn the_ways_to_compute_the_tail_meet() {
        for z in [SERIES_END, FAR] {
            close(normal_mills(z * (1.0 + 1e-12)), normal_mills(z * (1.0 - 1e-12)), 1e-11);
        }
        close(normal_mills(0.0), 1.253_314_137_315_500_3, 1e-14);
        close(erfc(0.5), 0.479_500_122_186_953_5, 1e-14);
        close(erfc(-1.0), 1.842_700_792_949_715, 1e-14);
    }

    #[test]
    fn quantiles_undo_the_distribution() {
        close(normal_quantile(0.975), 1.959_963_984_540_054, 1e-15);
        close(normal_quantile(1e-10), -6.361_340_902_404_056, 1e-14);
        close(normal_quantile(1e-100), -21.273_453_560_965_324, 1e-14);
        assert_eq!(normal_quantile(0.5), 0.0);
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        for p in [1e-300, 1e-12, 1e-3, 0.074, 0.076, 0.3, 0.6] {
            close(normal_cdf(normal_quantile(p)), p, 1e-12);
        }
    }
}
