//! The dashboard of a comb: one page, served to who knows its token, and the same in numbers for Prometheus.
//!
//! The agent keeps a process of this running, and gives it the sockets on which to listen; nothing here is in the way of anything. It asks the agent
//! and the cells what they know, as any command does, and only while somebody looks.
//!
//! | file | the one idea in it |
//! |---|---|
//! | `server` | what is served: the page, states and events as a stream, actions, metrics |
//! | `pass` | who may see, and who may act: tokens, and no word from other sites |
//! | `visits` | so many connections at a time, and no more |
//! | `gather` | looks about once a second while somebody watches |
//! | `snapshot` | what is seen at one moment |
//! | `dependencies` | which cells a task depends on, and why |
//! | `page` | the page's files |
//! | `otlp` | the same to an OpenTelemetry collector, with the feature `otlp` |
//! | `metrics` | the same as text for Prometheus |

pub mod dependencies;
mod gather;
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod pass;
mod server;
pub mod snapshot;
mod visits;

pub use gather::{Looker, look};
pub use server::{DashboardError, Options, run};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
