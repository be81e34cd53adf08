//! A raw endpoint as a way.

use std::time::Duration;

use comb_net::{ChannelKey, Endpoint, PostError};

use crate::workload::{Way, read_payload, write_payload};

pub(crate) const LONGEST: usize = 16 << 10;

/// One channel of an endpoint; the buffers are the application's.
pub(crate) struct EndpointWay {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: ChannelKey,
    out: Vec<u8>,
    into: Vec<u8>,
}

impl EndpointWay {
    pub(crate) fn new(endpoint: Endpoint, channel: ChannelKey) -> Self {
        Self { endpoint, channel, out: vec![0; LONGEST], into: vec![0; LONGEST] }
    }

    /// Sleeps until the first message; a spinning process could keep the agent from its core.
    pub(crate) fn wait_for_the_other_side(&mut self) {
        self.endpoint.send(self.channel, 0, b"ready").expect("a fresh channel");
        let came = self.endpoint.receive_within(&mut self.into, Duration::from_secs(10));
        came.expect("the other side lives").expect("the other side is ready");
    }
}

impl Way for EndpointWay {
    #[inline]
    fn send(&mut self, bytes: usize, first: u64) {
        write_payload(&mut self.out[..bytes], first);
        loop {
            match self.endpoint.send(self.channel, 0, &self.out[..bytes]) {
                Ok(()) => return,
                Err(PostError::Full(_)) => std::hint::spin_loop(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[inline]
    fn receive(&mut self, bytes: usize) -> u64 {
        loop {
            if let Some(received) = self.endpoint.receive(&mut self.into[..bytes]).expect("a live peer") {
                assert_eq!(received.bytes, bytes);
                return read_payload(&self.into[..bytes]);
            }
        }
    }
}
