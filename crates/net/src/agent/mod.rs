//! The agent: it introduces processes to each other and then is out of the way. (Thesis §2.3.2: "an operating system
//! service needs to assist the application".)
//!
//! ```text
//! opener                      agent                        accepter
//!   makes, maps, seals its ring
//!   ── Open + ring ───────────▶ who is it? may it? limits?
//!                               checks seals and size
//!                               ── Offer + ring, bell, pidfd ─▶ checks, maps; makes, maps, seals its own
//!                               ◀───────────── Accept + ring ──
//!   ◀─ Opened + ring, bell, pidfd
//!   checks, maps
//!   ◀═══════════════ messages, without the agent ══════════════▶
//! ```
//!
//! [`protocol`] is what they say, [`broker`] decides, [`server`] runs it over sockets (as a daemon or inside a
//! process), [`client`] is the side of a process that wants channels.

pub mod broker;
pub mod client;
pub mod comb_name;
pub mod credentials;
pub mod listener;
mod parting;
pub mod policy;
pub mod protocol;
#[cfg_attr(not(feature = "hosts"), path = "without_hosts.rs")]
pub mod remote;
pub mod runtime_directory;
pub mod server;
pub(crate) mod visitor;

pub use client::{Agent, ConnectError, RequestError};
pub use policy::{Identity, Limits, Policy, SameUser};
pub use remote::{Guests, Hosts};
pub use server::{InProcess, Server};
