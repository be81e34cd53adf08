//! A transport that loses, made one that does not: [`GoBackN`] between the channel and the network. (Thesis §2.5.1)
//!
//! Active messages put this under every channel whose transport says that it can lose, and so do both ends, before
//! the first message. Raw endpoints stay as their network is: that is what U-Net promises, and no more.

use std::time::{Duration, Instant};

use comb_types::Time;

use crate::payload::Payload;
use crate::reliable::{Config, GoBackN, Input};
use crate::ring::Breach;
use crate::transport::{Capabilities, SendError, Transport, TransportCounters};

/// The kind under which frames of the protocol travel; the message's own kind is the first byte within.
const FRAME: u8 = *crate::kinds::CHANNEL.start();

/// See the [module](self).
pub(crate) struct Reliable {
    under: Box<dyn Transport>,
    protocol: GoBackN,
    started: Instant,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    limit: usize,
    counters: TransportCounters,
}

impl Reliable {
    pub(crate) fn over(under: Box<dyn Transport>) -> Self {
        let longest = under.capabilities().longest_message;
        let message = longest - crate::reliable::HEADER_BYTES;
        let protocol = GoBackN::new(Config {
            longest_message_bytes: message,
            // A thread that was not scheduled for some time is not a dead peer; death is told by other means.
            silence_limit: Duration::from_secs(10),
            ..Config::default()
        });
        Self {
            under,
            protocol,
            started: Instant::now(),
            outgoing: vec![0; longest],
            incoming: Vec::new(),
            limit: message - 1,
            counters: TransportCounters::default(),
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).expect("584 years"))
    }

    /// What the network takes now. What it refuses counts as lost: the protocol sends it again.
    fn transmit(&mut self) {
        let now = self.now();
        while let Some(bytes) = self.protocol.poll_transmit(now, &mut self.outgoing) {
            let _ = self.under.send(FRAME, &[&self.outgoing[..bytes]]);
        }
    }

    fn take_frame(&mut self) -> Result<bool, Breach> {
        let incoming = &mut self.incoming;
        let mut kind = FRAME;
        let came = self.under.receive(&mut |frame_kind, payload| {
            kind = frame_kind;
            incoming.resize(payload.len(), 0);
            payload.copy_to(incoming);
        })?;
        if came && kind != FRAME { Err(Breach::Kind(kind)) } else { Ok(came) }
    }
}

impl Transport for Reliable {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: self.limit, can_lose: false }
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        let kind = [kind];
        let message: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
        let outcome = self.protocol.send(&message).map_err(|error| match error {
            crate::reliable::SendError::WindowFull => SendError::Full,
            crate::reliable::SendError::TooLong { bytes, .. } => {
                SendError::TooLong { bytes: bytes - 1, limit: self.limit }
            }
            crate::reliable::SendError::PeerSilent => SendError::System(rustix::io::Errno::TIMEDOUT),
        });
        match outcome {
            Ok(()) => self.counters.sent += 1,
            Err(SendError::Full) => self.counters.refused += 1,
            Err(_) => {}
        }
        self.transmit();
        outcome
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        let mut delivered = false;
        while !delivered && self.take_frame()? {
            let now = self.now();
            let frame = Input::Frame { bytes: &self.incoming, room: true };
            let message = self
                .protocol
                .handle(now, frame)
                .map_err(|_| Breach::Form("a frame that the retransmission protocol does not allow"))?;
            if let Some(message) = message {
                let Some((&kind, message)) = message.split_first() else {
                    return Err(Breach::Form("a message without a kind"));
                };
                sink(kind, Payload::Private(message));
                self.counters.received += 1;
                delivered = true;
            }
        }
        let now = self.now();
        if self.protocol.next_timeout().is_some_and(|at| at <= now) {
            // Frames cannot make a timeout fail, and nothing is delivered by one.
            let _ = self.protocol.handle(now, Input::Timeout);
        }
        self.transmit();
        Ok(delivered)
    }

    fn is_idle(&mut self) -> bool {
        // A timeout is work: who sleeps on an idle channel would let its messages lie lost.
        self.under.is_idle() && self.protocol.next_timeout().is_none_or(|at| at > self.now())
    }

    fn close(&mut self) {
        self.under.close();
    }

    fn peer_closed(&self) -> bool {
        self.under.peer_closed()
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters { outstanding: self.protocol.unacknowledged(), ..self.counters }
    }

    fn readable(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.under.readable()
    }
}
