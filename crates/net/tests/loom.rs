//! Every interleaving of the orderings that rings and sleeps rest on. The files are the crate's own, and their tests with
//! them; those who rely on the orderings are left out, and with them the crate itself.
#![cfg(loom)]
#![allow(dead_code, unreachable_pub, reason = "what they offer is offered to the crate")]

#[path = "../src/attention.rs"]
mod attention;
#[path = "../src/ring.rs"]
mod ring;
#[path = "../src/sync.rs"]
mod sync;
