//! A transport whose peer can quench it: to another host, signals are messages of the channel itself.

use comb_congestion::quench::Signal;

use crate::payload::Payload;
use crate::quench::{self, Pace};
use crate::retransmit::Reliable;
use crate::ring::Breach;
use crate::transport::{SendError, Transport, TransportCounters};

/// The kind under which signals travel.
const SIGNAL: u8 = *crate::kinds::CHANNEL.start() + 1;

/// See the [module](self).
pub(crate) struct Paced {
    transport: Option<Box<dyn Transport>>,
    pace: Pace,
}

impl Paced {
    pub(crate) fn over(transport: Box<dyn Transport>) -> Self {
        Self { transport: Some(transport), pace: Pace::default() }
    }

    /// The transport underneath.
    pub(crate) fn transport(&self) -> &dyn Transport {
        &**self.transport.as_ref().expect("taken only for a moment")
    }

    pub(crate) fn transport_mut(&mut self) -> &mut dyn Transport {
        &mut **self.transport.as_mut().expect("taken only for a moment")
    }

    pub(crate) fn into_transport(self) -> Box<dyn Transport> {
        self.transport.expect("taken only for a moment")
    }

    /// Puts retransmission under it, if it can lose.
    pub(crate) fn make_reliable(&mut self) {
        if self.transport().capabilities().can_lose {
            let losing = self.transport.take().expect("taken only here");
            self.transport = Some(Box::new(Reliable::over(losing)));
        }
    }

    pub(crate) fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        if !self.pace.may_send() {
            return Err(SendError::Full);
        }
        self.transport_mut().send(kind, parts)
    }

    pub(crate) fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        let mut signal = None;
        let came = self.transport_mut().receive(&mut |kind, payload| match kind {
            SIGNAL => signal = Some(word(&payload)),
            _ => sink(kind, payload),
        })?;
        match signal {
            None => Ok(came),
            Some(None) => Err(Breach::Form("a quench signal of another length than eight bytes")),
            // What comes behind it is for the next poll.
            Some(Some(word)) => self.pace.obey(quench::unpack(word)).map(|()| false),
        }
    }

    /// Tells the peer to stop or to go on. If that is lost, the lease bounds the harm.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let word = quench::pack(signal).to_le_bytes();
        let _ = self.transport_mut().send(SIGNAL, &[&word]);
    }

    /// Whether a send that was refused may now succeed, as far as the peer has said.
    pub(crate) fn may_send(&self) -> bool {
        self.pace.may_send()
    }

    pub(crate) fn counters(&self) -> TransportCounters {
        TransportCounters { quenches: self.pace.quenches(), ..self.transport().counters() }
    }
}

fn word(payload: &Payload<'_>) -> Option<u64> {
    let mut bytes = [0; 8];
    (payload.len() == bytes.len()).then(|| {
        payload.copy_to(&mut bytes);
        u64::from_le_bytes(bytes)
    })
}
