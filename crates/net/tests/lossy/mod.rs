//! A transport between two threads that loses one frame in ten, doubles one in twenty and swaps neighbours, by seed.

use std::sync::mpsc::{Receiver, Sender, channel};

use comb_net::transport::{Capabilities, SendError, Transport, TransportCounters};
use comb_net::{Breach, Payload};

type Frame = (u8, Vec<u8>);

pub(crate) struct Lossy {
    out: Sender<Frame>,
    inbox: Receiver<Frame>,
    next: Option<Frame>,
    held: Option<Frame>,
    random: u64,
}

pub(crate) fn pair(seed: u64) -> (Lossy, Lossy) {
    let ((here, from_here), (there, from_there)) = (channel(), channel());
    let end = |out, inbox, random| Lossy { out, inbox, next: None, held: None, random };
    (end(here, from_there, seed | 1), end(there, from_here, !seed | 1))
}

impl Lossy {
    fn one_in(&mut self, chances: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.is_multiple_of(chances)
    }

    fn look(&mut self) {
        if self.next.is_none() {
            self.next = self.inbox.try_recv().ok();
        }
    }
}

impl Transport for Lossy {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: 1400, can_lose: true }
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        let frame = (kind, parts.concat());
        if self.one_in(10) {
            return Ok(());
        }
        if self.one_in(20) {
            let _ = self.out.send(frame.clone());
        }
        if self.held.is_none() && self.one_in(15) {
            self.held = Some(frame);
            return Ok(());
        }
        let _ = self.out.send(frame);
        if let Some(earlier) = self.held.take() {
            let _ = self.out.send(earlier);
        }
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        self.look();
        let Some((kind, bytes)) = self.next.take() else { return Ok(false) };
        sink(kind, Payload::Private(&bytes));
        Ok(true)
    }

    fn is_idle(&mut self) -> bool {
        self.look();
        self.next.is_none()
    }

    fn close(&mut self) {}

    fn peer_closed(&self) -> bool {
        false
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters::default()
    }
}
