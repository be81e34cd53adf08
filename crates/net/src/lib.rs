#![doc = include_str!("../README.md")]
// Under loom only the orderings are compiled, not those who rely on them.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
pub mod active;
#[cfg(not(loom))]
pub mod agent;
#[cfg(all(not(loom), feature = "tokio"))]
pub mod asynchronous;
mod attention;
#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod copy;
#[cfg(all(not(loom), feature = "hosts"))]
pub mod datagram;
#[cfg(not(loom))]
pub mod emulated;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod fence;
#[cfg(not(loom))]
mod flagged;
#[cfg(not(loom))]
pub mod global;
#[cfg(all(not(loom), feature = "hosts"))]
pub mod hosts;
#[cfg(not(loom))]
pub mod kinds;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
pub mod lossy;
#[cfg(not(loom))]
pub mod mechanism;
#[cfg(not(loom))]
mod payload;
#[cfg(not(loom))]
pub mod queues;
#[cfg(not(loom))]
pub mod reliable;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
pub mod retransmit;
mod ring;
#[cfg(not(loom))]
pub mod rpc;
#[cfg(all(not(loom), feature = "hosts"))]
pub mod seal;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod sending;
#[cfg(not(loom))]
mod shm;
#[cfg(not(loom))]
mod silence;
mod sync;
#[cfg(not(loom))]
pub mod transport;
#[cfg(all(not(loom), feature = "hosts"))]
pub mod udp;
#[cfg(not(loom))]
pub mod upcall;
#[cfg(not(loom))]
pub mod via;
#[cfg(not(loom))]
mod waiting;
#[cfg(not(loom))]
mod window;
#[cfg(all(not(loom), feature = "xdp"))]
pub mod xdp;

#[cfg(not(loom))]
pub use self::{
    active::{ActiveError, ActiveMessages, ActiveOptions},
    agent::{Agent, ConnectError, InProcess, RequestError},
    channel::ChannelKey,
    endpoint::{ChannelEnded, Delivery, Endpoint, EndpointOptions, PostError, Received},
    life::Cause,
    payload::Payload,
    segment::SharedRange,
    shm::{Geometry, pair_for_tests},
    transport::TransportCounters,
    window::{Access, AccessError, NotifyError, PutNotice, RemoteWindow, Window, WindowError},
};
pub use ring::{Breach, INLINE_BYTES};
