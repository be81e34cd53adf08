//! What was recorded is done again, in a directory where it harms nothing: to see how another file system, disk or kernel would have borne
//! it. Bursts, pauses and outliers come along, which no made-up load has. (Thesis §9.7)
//!
//! | module | question |
//! |---|---|
//! | `namespace`, `descriptors` | which file was it, whatever it was called then? |
//! | `plan`, `step` | what is to be there before, and what is to be done? |
//! | `order` | what has to wait for what? |
//! | `sandbox` | how does nothing get out? |
//! | `run`, `perform` | who does it, and does the same come of it? |
//! | [`fio`] | how does `fio` do it? |
//!
//! A trace does not hold what was in files, where links led, which attributes were set, or what a control operation was; so what is written
//! here are other bytes, a link leads to the directory that it is in, attributes are times that are set to now, and the rest is left out and
//! counted. Pages of mapped files are read, not touched in memory: another thread may cut the file meanwhile, and a touch would end the
//! process.
//!
//! ```no_run
//! # use comb_trace::replay::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plan = Plan::read(std::fs::File::open("day.trace")?, MOST_WORKERS)?;
//! let sandbox = Sandbox::prepare("/mnt/new/sandbox".as_ref(), &plan, Fill::Bytes)?;
//! let summary = replay(&plan, &sandbox, Pace::AsFastAsPossible);
//! println!("{} operations came out differently", summary.differences);
//! sandbox.clean(&plan);
//! # Ok(())
//! # }
//! ```

mod descriptors;
pub mod fio;
mod namespace;
mod order;
mod perform;
mod plan;
mod run;
mod sandbox;
mod step;

pub use self::plan::{Left, MOST_WORKERS, Plan};
pub use self::run::{Difference, Done, Outcome, Pace, Summary, replay};
pub use self::sandbox::{Fill, PrepareError, Sandbox};
