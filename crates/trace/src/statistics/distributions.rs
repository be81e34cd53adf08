//! The distributions themselves: their functions, and samples drawn from them by seed.
//!
//! | file | the one idea in it |
//! |---|---|
//! | `normal` | the normal distribution, exact far out in its tail, and its quantiles |
//! | `gamma` | p-values of χ² and of Student's t |
//! | `samplers` | Pareto, lognormal, exponential and others by inverse transform; ON/OFF periods |

mod gamma;
mod normal;
mod samplers;

pub use gamma::{chi_square_survival, log_gamma, student_two_sided};
pub use normal::{
    erfc, normal_cdf, normal_density, normal_log_survival, normal_mills, normal_quantile, normal_survival,
};
pub use samplers::{Exponential, Lognormal, OnOff, Pareto, Period, Sampler, Weibull, uniform};
