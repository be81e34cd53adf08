//! Messages between processes from user space.

#[cfg(not(loom))]
pub mod active;
#[cfg(not(loom))]
pub mod agent;
#[cfg(all(not(loom), feature = "tokio"))]
pub mod asynchronous;
#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
pub mod emulated;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod fence;
pub mod kinds;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
pub mod mechanism;
#[cfg(not(loom))]
mod payload;
#[cfg(not(loom))]
pub mod queues;
#[cfg(not(loom))]
pub mod reliable;
#[cfg(not(loom))]
mod retransmit;
mod ring;
#[cfg(not(loom))]
pub mod rpc;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod shm;
mod sync;
#[cfg(not(loom))]
pub mod transport;
#[cfg(not(loom))]
pub mod upcall;
#[cfg(not(loom))]
mod waiting;
#[cfg(not(loom))]
mod window;

#[cfg(not(loom))]
pub use self::{
    active::{ActiveError, ActiveMessages, ActiveOptions},
    agent::{Agent, ConnectError, InProcess, RequestError},
    channel::ChannelKey,
    endpoint::{ChannelEnded, Delivery, Endpoint, EndpointOptions, PostError, Received},
    life::Cause,
    payload::Payload,
    segment::SharedRange,
    shm::Geometry,
    transport::TransportCounters,
};
pub use ring::{Breach, INLINE_BYTES};
