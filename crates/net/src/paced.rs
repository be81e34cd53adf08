//! A transport whose peer can quench it: to another host, signals are messages of the channel itself.

use comb_congestion::quench::Signal;

use crate::payload::Payload;
use crate::quench::{self, Pace, SIGNAL};
use crate::retransmit::Reliable;
use crate::ring::Breach;
use crate::transport::{SendError, Transport, TransportCounters};

/// See the [module](self).
pub(crate) struct Paced {
    transport: Option<Box<dyn Transport>>,
    pace: Pace,
    /// What the peer did wrong while nobody received.
    breach: Option<Breach>,
}

impl Paced {
    pub(crate) fn over(transport: Box<dyn Transport>) -> Self {
        Self { transport: Some(transport), pace: Pace::default(), breach: None }
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
        if !self.may_send() {
            return Err(self.breach.map_or(SendError::Full, SendError::Breach));
        }
        self.transport_mut().send(kind, parts)
    }

    pub(crate) fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        let mut signal = None;
        let mut came = self.transport_mut().receive(&mut |kind, payload| match kind {
            SIGNAL => signal = Some(quench::read(&payload)),
            _ => sink(kind, payload),
        })?;
        if let Some(signal) = signal {
            self.pace.obey(signal?)?;
            // What comes behind it is for the next poll.
            came = false;
        }
        self.obey();
        self.breach.take().map_or(Ok(came), Err)
    }

    pub(crate) fn is_idle(&mut self) -> bool {
        self.transport_mut().is_idle() && self.breach.is_none()
    }

    /// See [`Transport::has_in_hand`].
    pub(crate) fn has_in_hand(&mut self) -> bool {
        self.transport_mut().has_in_hand() || self.breach.is_some()
    }

    /// Tells the peer to stop or to go on. If that is lost, the lease bounds the harm.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let word = quench::pack(signal).to_le_bytes();
        let _ = self.transport_mut().send(SIGNAL, &[&word]);
    }

    /// Whether a send that was refused may now succeed.
    pub(crate) fn has_room(&mut self) -> bool {
        let room = self.may_send() && self.transport_mut().has_room();
        // Who waits in vain is to try again and be told why.
        room || self.breach.is_some()
    }

    /// Whether the peer lets this flow send, as far as it has said, which who only sends finds out here.
    fn may_send(&mut self) -> bool {
        self.obey();
        if !self.pace.may_send() {
            self.transport_mut().hear();
            self.obey();
        }
        self.breach.is_none() && self.pace.may_send()
    }

    fn obey(&mut self) {
        if let Some(signal) = self.transport_mut().take_signal()
            && let Err(breach) = self.pace.obey(signal)
        {
            self.breach = Some(breach);
        }
    }

    pub(crate) fn counters(&self) -> TransportCounters {
        TransportCounters { quenches: self.pace.quenches(), ..self.transport().counters() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::{Geometry, pair_for_tests};
    use comb_congestion::quench::Order;
    use std::time::{Duration, Instant};

    const SOON: Duration = Duration::from_secs(10);

    /// Two ends with retransmission, over a network that keeps half a window.
    fn pair() -> (Paced, Paced) {
        let (a, b) = pair_for_tests(Geometry { slots: 64, payload_bytes: 8192 });
        let end = |link| Paced::over(Box::new(Reliable::over(link)));
        (end(a), end(b))
    }

    fn quench(number: u32) -> Signal {
        Signal { number, order: Order::Quench { lease: Duration::from_secs(1) } }
    }

    /// A signal among messages that nobody received was not heard: a program that only sent was not stopped, and one that
    /// was stopped was not let go before its lease ended.
    #[test]
    fn who_only_sends_hears_signals_behind_messages_that_wait() {
        let (mut source, mut receiver) = pair();
        receiver.send(1, &[b"nobody takes this"]).unwrap();
        receiver.signal(quench(1));
        let started = Instant::now();
        // A window that is full makes it look for acknowledgements.
        while source.counters().quenches == 0 {
            let _ = source.send(2, &[b"x"]);
            assert!(started.elapsed() < SOON, "it does not hear");
        }
        receiver.signal(Signal { number: 2, order: Order::Unquench });
        while source.pace.is_stopped() {
            source.has_room();
            receiver.receive(&mut |_, _| {}).unwrap();
            assert!(started.elapsed() < SOON, "it is not let go");
        }
        let mut came = None;
        source.receive(&mut |kind, payload| came = Some((kind, payload.to_vec()))).unwrap();
        assert_eq!(came, Some((1, b"nobody takes this".to_vec())));
    }

    #[test]
    fn a_signal_is_nothing_that_came() {
        let (mut source, mut receiver) = pair();
        receiver.signal(quench(1));
        assert!(source.is_idle());
        assert_eq!(source.receive(&mut |_, _| panic!("it is no message")), Ok(false));
        assert_eq!(source.send(1, &[b"x"]), Err(SendError::Full));
    }

    #[test]
    fn a_bad_signal_is_a_breach_for_who_sends_and_for_who_receives() {
        let too_long = quench::pack(Signal {
            number: 1,
            order: Order::Quench { lease: Duration::from_micros(1_000_001) },
        });
        let short = &b"short"[..];
        for (signal, rule) in [(&too_long.to_le_bytes()[..], "longer than a second"), (short, "length")] {
            for sends in [false, true] {
                let (mut source, mut receiver) = pair();
                receiver.transport_mut().send(SIGNAL, &[signal]).unwrap();
                let breach = if sends {
                    source.transport_mut().hear();
                    while source.send(1, &[b"x"]).is_ok() {}
                    assert!(source.has_room() && !source.is_idle(), "nobody waits for it");
                    source.send(1, &[b"x"]).unwrap_err().to_string()
                } else {
                    source.receive(&mut |_, _| {}).unwrap_err().to_string()
                };
                assert!(breach.contains(rule), "{breach}");
            }
        }
    }
}
