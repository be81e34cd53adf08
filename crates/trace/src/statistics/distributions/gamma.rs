//! p-values of χ² and of Student's t.

use super::normal_survival;
use std::f64::consts::PI;

/// More terms than either expansion needs below [`MANY_DEGREES`].
const TERMS: u32 = 100_000;

/// From here on the cube root of χ² is normal to seven digits of the p-value (Wilson and Hilferty), and the series would be slow.
const MANY_DEGREES: f64 = 1e7;

/// ln Γ(x) for x > 0.
pub fn log_gamma(x: f64) -> f64 {
    // Stirling's series is exact to the last digit from 10 on; what is smaller is raised there.
    let (mut raised, mut product) = (x, 1.0);
    while raised < 10.0 {
        product *= raised;
        raised += 1.0;
    }
    let inverse = 1.0 / (raised * raised);
    let correction = (1.0 / 12.0
        - inverse
            * (1.0 / 360.0
                - inverse
                    * (1.0 / 1260.0
                        - inverse
                            * (1.0 / 1680.0 - inverse * (1.0 / 1188.0 - inverse * 691.0 / 360_360.0)))))
        / raised;
    (raised - 0.5) * raised.ln() - raised + 0.5 * (2.0 * PI).ln() + correction - product.ln()
}

/// P\[χ² > statistic\] with so many degrees of freedom.
pub fn chi_square_survival(statistic: f64, degrees: f64) -> f64 {
    if statistic <= 0.0 {
        return 1.0;
    }
    if degrees >= MANY_DEGREES {
        let spread = 2.0 / (9.0 * degrees);
        return normal_survival(((statistic / degrees).cbrt() - (1.0 - spread)) / spread.sqrt());
    }
    gamma_survival(0.5 * degrees, 0.5 * statistic)
}

/// The regularised upper incomplete gamma function.
fn gamma_survival(shape: f64, x: f64) -> f64 {
    let scale = (shape * x.ln() - x - log_gamma(shape)).exp();
    if x < shape + 1.0 {
        let (mut term, mut sum, mut at) = (1.0 / shape, 1.0 / shape, shape);
        for _ in 0..TERMS {
            at += 1.0;
            term *= x / at;
            sum += term;
            if term < 1e-17 * sum {
                break;
            }
        }
        return (1.0 - scale * sum).max(0.0);
    }
    scale * continued_fraction(x + 1.0 - shape, |step| (-step * (step - shape), x + 1.0 - shape + 2.0 * step))
}

/// 1/(b₀ + a₁/(b₁ + a₂/(b₂ + …))) by Lentz's method; `terms` gives aᵢ and bᵢ from i = 1.
fn continued_fraction(first: f64, terms: impl Fn(f64) -> (f64, f64)) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |x: f64| if x.abs() < TINY { TINY } else { x };
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / away_from_zero(first);
    let mut value = d;
    for step in 1..TERMS {
        let (a, b) = terms(f64::from(step));
        d = 1.0 / away_from_zero(b + a * d);
        c = away_from_zero(b + a / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// P\[|t| > statistic\] for Student's t with so many degrees of freedom.
pub fn student_two_sided(statistic: f64, degrees: f64) -> f64 {
    let x = degrees / (degrees + statistic * statistic);
    beta_cdf(0.5 * degrees, 0.5, x)
}

/// The regularised incomplete beta function.
fn beta_cdf(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // Beyond its mean the fraction is slow: the other side is not.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_cdf(b, a, 1.0 - x);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    front
        * continued_fraction(1.0, |step| {
            let half = (step / 2.0).floor();
            let numerator = if step % 2.0 == 0.0 {
                half * (b - half) * x / ((a + 2.0 * half - 1.0) * (a + 2.0 * half))
            } else {
                -(a + half) * (a + b + half) * x / ((a + 2.0 * half) * (a + 2.0 * half + 1.0))
            };
            (numerator, 1.0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, relative: f64) {
        assert!((found - expected).abs() <= relative * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn log_gamma_of_known_values() {
        close(log_gamma(0.5), PI.sqrt().ln(), 1e-14);
        close(log_gamma(5.0), 24.0_f64.ln(), 1e-14);
        close(log_gamma(101.0), 363.739_375_555_563_5, 1e-14);
    }

    #[test]
    fn chi_square_of_known_values() {
        close(chi_square_survival(3.841_458_820_694_124, 1.0), 0.05, 1e-12);
        close(chi_square_survival(2.0, 2.0), (-1.0_f64).exp(), 1e-14);
        close(chi_square_survival(18.307_038_053_275_146, 10.0), 0.05, 1e-12);
        close(chi_square_survival(200.0, 10.0), 1.613_930_533_697_345_5e-37, 1e-10);
        assert_eq!(chi_square_survival(0.0, 3.0), 1.0);
        // The cube root's approximation meets the series.
        let (statistic, degrees) = (1_002_000.0_f64, 1_000_000.0_f64);
        let spread = 2.0 / (9.0 * degrees);
        let cube = normal_survival(((statistic / degrees).cbrt() - (1.0 - spread)) / spread.sqrt());
        close(chi_square_survival(statistic, degrees), cube, 1e-5);
    }

    #[test]
    fn student_of_known_values() {
        close(student_two_sided(2.5, 100.0), 0.014_045_789_124_077_118, 1e-12);
        close(student_two_sided(1.0, 1.0), 0.5, 1e-13);
        close(student_two_sided(0.1, 30.0), 0.921_009_611_790_271_2, 1e-13);
    }
}
