//! Why a sample was judged as it was, in a plain sentence.

use std::fmt;

/// What decided. The numbers are those that the sentence says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Heavy-tailed: a straight tail with infinite variance, straighter than any lognormal's of as many values.
    StraightTail {
        /// The tail's exponent.
        alpha: f64,
        /// How many standard deviations straighter.
        lognormal_margin: f64,
    },
    /// Not heavy-tailed: a value is all there is.
    OneValue,
    /// Not heavy-tailed: the straight tail is steep enough for a finite variance.
    FiniteVariance {
        /// The lower end of the exponent's 95 % interval.
        alpha_low: f64,
    },
    /// Not heavy-tailed: the tail steepens outwards at least as much as a lognormal's.
    Bends {
        /// How many standard deviations more than a power law's.
        trend: f64,
    },
    /// Inconclusive: too short a sample.
    TooFewValues {
        /// Values above 0.
        values: usize,
        /// How many it takes.
        needed: usize,
    },
    /// Inconclusive: what is straight is too short to see its outer part.
    ShortTail {
        /// Values in it.
        tail_values: usize,
        /// How many it takes.
        needed: usize,
    },
    /// Inconclusive: a few sizes, and no tail.
    FewDistinctValues {
        /// How many there are.
        distinct: usize,
        /// How many it takes.
        needed: usize,
    },
    /// Inconclusive: lumps or several kinds, at whatever value the tail is said to start.
    NoStraightTail,
    /// Inconclusive: a lognormal of as many values may have such a tail.
    LognormalPossible {
        /// How many values the tail has.
        tail_values: usize,
        /// How many standard deviations straighter than a lognormal's it is.
        margin: f64,
        /// How many a perfect power law of that length would be.
        of_straight: f64,
        /// How many it takes.
        needed: f64,
    },
    /// Inconclusive: what is straight as a whole may bend in its outer part, as two kinds of things do together.
    OuterPartBends {
        /// How many values the outer part has.
        tail_values: usize,
        /// How many standard deviations straighter than a lognormal's it is.
        margin: f64,
        /// How many it takes.
        needed: f64,
    },
    /// Inconclusive: a lognormal above the same start is likelier.
    LognormalLikelier {
        /// How likely that is by chance.
        p_value: f64,
    },
    /// Inconclusive: an exponential above the same start is likelier.
    ExponentialLikelier {
        /// How likely that is by chance.
        p_value: f64,
    },
    /// Inconclusive: the exponent may be above or below 2.
    VarianceUndecided {
        /// The lower end of the exponent's 95 % interval.
        alpha_low: f64,
        /// The upper end.
        alpha_high: f64,
    },
    /// Inconclusive: the plot of the tail is not the line that the estimate says.
    PlotDisagrees {
        /// Hill's estimate.
        hill: f64,
        /// The plot's slope.
        llcd: f64,
        /// How straight the plot is.
        r_squared: f64,
    },
    /// Inconclusive: the tail is straight over too short a range.
    ShortRange {
        /// Factors of ten.
        decades: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::StraightTail { alpha, lognormal_margin } => write!(
                f,
                "the tail is that of a power law with α = {alpha:.2}, and straighter than any lognormal of as many values has \
                 ({lognormal_margin:.0} standard deviations)"
            ),
            Self::OneValue => write!(f, "all values are equal"),
            Self::FiniteVariance { alpha_low } => {
                write!(
                    f,
                    "the tail falls off so steeply that the variance is finite: α is at least {alpha_low:.2}"
                )
            }
            Self::Bends { trend } => write!(
                f,
                "the tail steepens outwards as a lognormal's does or more: {:.0} standard deviations from a power law",
                trend.abs()
            ),
            Self::TooFewValues { values, needed } => {
                write!(f, "{values} values above 0 are too few to see a tail: it takes {needed}")
            }
            Self::ShortTail { tail_values, needed } => {
                write!(
                    f,
                    "the {tail_values} values that look like a power law are too few: it takes {needed}"
                )
            }
            Self::FewDistinctValues { distinct, needed } => {
                write!(f, "{distinct} distinct values are too few to see a tail: it takes {needed}")
            }
            Self::NoStraightTail => {
                write!(
                    f,
                    "no part of the tail is a straight line: values come in lumps, or are of several kinds"
                )
            }
            Self::LognormalPossible { tail_values, margin, of_straight, needed } if of_straight < needed => {
                write!(
                    f,
                    "the largest {tail_values} values look like a power law, but are too few to tell it from a lognormal: they are \
                 straighter by {margin:.1} standard deviations, a perfect power law would be by {of_straight:.1}, and it takes {needed:.0}"
                )
            }
            Self::LognormalPossible { tail_values, margin, needed, .. } => write!(
                f,
                "the largest {tail_values} values look like a power law, but those of a lognormal may as well: they are straighter by \
                 {margin:.1} standard deviations, and it takes {needed:.0}"
            ),
            Self::OuterPartBends { tail_values, margin, needed } => write!(
                f,
                "the tail looks like a power law as a whole, but its outermost {tail_values} values may be a lognormal's: they are \
                 straighter by {margin:.1} standard deviations, and it takes {needed:.0}"
            ),
            Self::LognormalLikelier { p_value } => {
                write!(f, "a lognormal describes the tail better than a power law (p = {p_value:.2e})")
            }
            Self::ExponentialLikelier { p_value } => {
                write!(f, "an exponential describes the tail better than a power law (p = {p_value:.2e})")
            }
            Self::VarianceUndecided { alpha_low, alpha_high } => {
                write!(
                    f,
                    "α is between {alpha_low:.2} and {alpha_high:.2}: the variance may be finite or not"
                )
            }
            Self::PlotDisagrees { hill, llcd, r_squared } => write!(
                f,
                "the estimators disagree: Hill's α is {hill:.2}, that of the plot {llcd:.2} with R² = {r_squared:.2}"
            ),
            Self::ShortRange { decades } => {
                write!(f, "the tail is straight over {decades:.1} decades only")
            }
        }
    }
}
