//! Messages between processes from user space.

#[cfg(not(loom))]
pub mod agent;
mod attention;
#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod fence;
#[cfg(not(loom))]
mod flagged;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
pub mod mechanism;
#[cfg(not(loom))]
mod payload;
mod ring;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod shm;
#[cfg(not(loom))]
mod silence;
mod sync;
#[cfg(not(loom))]
pub mod transport;
#[cfg(not(loom))]
mod waiting;
#[cfg(not(loom))]
mod window;

#[cfg(not(loom))]
pub use self::{
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
