//! What may be said of a sample whose variance could be infinite. (Thesis §9.7)
//!
//! Pure functions over slices; most take values in ascending order, which a [`Sample`](sample::Sample) has.
//!
//! | file | the one idea in it |
//! |---|---|
//! | [`sample`] | values sorted once, and their mean and standard deviation |
//! | [`ecdf`] | the distribution of a sample, by count or by bytes |
//! | [`histogram`] | the same of values that stream by, in bounded memory, to within 0.4 % |
//! | [`reservoir`] | a random part of values that stream by, for questions that need values |
//! | [`qq`] | a sample beside a normal and a Pareto distribution |
//! | [`llcd`] | the log-log complementary plot, and the line through its tail |
//! | [`hill`] | Hill's estimate of α, its plot, and an exact test of whether it drifts |
//! | `bend` | how much the tail of a lognormal of so many values bends |
//! | [`powerlaw`] | the likeliest Pareto tail, and where it starts |
//! | [`likelihood`] | whether a lognormal or an exponential is likelier |
//! | [`dispersion`] | whether arrivals are burstier than Poisson, at several time scales |
//! | [`verdict`] | whether a sample is heavy-tailed, with the reason and the evidence |
//! | [`spearman`](mod@spearman) | whether one quantity grows with another |
//! | [`distributions`] | the distributions' functions, and samples drawn from them |
//! | `kolmogorov` | the distance between a sample and a fit, without looking at every value |
//! | `ladder` | whole numbers evenly spaced on a logarithmic axis |

mod bend;
pub mod dispersion;
pub mod distributions;
pub mod ecdf;
pub mod hill;
pub mod histogram;
mod kolmogorov;
mod ladder;
pub mod likelihood;
pub mod llcd;
pub mod powerlaw;
pub mod qq;
pub mod reservoir;
pub mod sample;
pub mod spearman;
pub mod verdict;
