#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! 1. An [`Agent`] is a process's connection to the agent of its host: a daemon ([`agent::Server`]) or, for a program that
//!    is all of its own peers, [`InProcess`]. What may be is its [policy](agent::policy).
//! 2. [`Agent::endpoint`] makes an [`Endpoint`]. [`Endpoint::open`] and [`Endpoint::accept`] make channels, each known by
//!    its [`ChannelKey`].
//! 3. [`Endpoint::send`], [`Endpoint::receive`] and [`Endpoint::poll`] move messages; [`PostError`] says why one was not
//!    sent, [`ChannelEnded`] which peer's channel ended, and [`Cause`] why.
//! 4. How to wait: [`Endpoint::receive_within`] sleeps, [`Endpoint::event_descriptor`] is for event loops, [`upcall`]
//!    calls, and with the feature `tokio` there is `asynchronous`.
//! 5. Direct access: [`Endpoint::make_window`] opens a [`Window`] to a peer, who puts and gets by its [`RemoteWindow`].
//! 6. Layers, each over an endpoint that it takes over: [`active`] messages, typed calls ([`rpc`]), [`queues`] as U-Net has
//!    them, virtual interfaces ([`via`]), [`global`] pointers, [`emulated`] endpoints.
//! 7. Below: the [`transport`] trait and what carries channels between hosts; [`lossy`] for tests.
// Loom's atomics cannot stand in shared memory. For loom `tests/loom.rs` compiles the orderings alone.
#![cfg(not(loom))]

pub mod active;
pub mod agent;
#[cfg(feature = "tokio")]
pub mod asynchronous;
mod attention;
mod bell;
mod bypass;
mod channel;
mod clock;
mod copy;
mod credit;
#[cfg(feature = "hosts")]
pub mod datagram;
pub mod emulated;
mod ending;
mod endpoint;
mod events;
mod fence;
mod flagged;
mod flags;
mod gate;
pub mod global;
#[cfg(feature = "hosts")]
pub mod hosts;
pub mod icmp;
pub mod kinds;
mod life;
pub mod lossy;
pub mod mechanism;
mod news;
mod opening;
mod owed;
mod paced;
mod payload;
mod processor;
mod quench;
pub mod queues;
mod receiving;
pub mod reliable;
mod remote;
pub mod retransmit;
mod ring;
pub mod rpc;
#[cfg(feature = "hosts")]
pub mod seal;
mod segment;
#[cfg(feature = "hosts")]
mod segmenting;
mod sending;
mod shm;
mod silence;
mod sync;
pub mod transport;
#[cfg(feature = "hosts")]
pub mod udp;
pub mod upcall;
pub mod via;
mod waiting;
mod window;
mod withdrawal;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use comb_congestion::quench::{BadMarks, Marks, Order, Overrun, Signal};

pub use self::{
    active::{ActiveError, ActiveMessages, ActiveOptions},
    agent::{Agent, ConnectError, InProcess, RequestError},
    bell::MAIL_BYTE,
    channel::ChannelKey,
    endpoint::{ChannelEnded, Delivery, Endpoint, EndpointOptions, PostError, Received},
    events::TIMER_EVENT,
    life::Cause,
    opening::Opening,
    payload::Payload,
    ring::{Breach, INLINE_BYTES},
    segment::SharedRange,
    shm::{Geometry, pair_for_tests},
    transport::TransportCounters,
    window::{Access, AccessError, NotifyError, PutNotice, RemoteWindow, Window, WindowError},
};
