//! Channels whose messages travel as frames that a network carries: what UDP and AF_XDP have in common.
//!
//! A frame is sealed and opened by [`crate::seal`], in the memory that the wire sends from and receives into. Its
//! flags tell messages from the two things that a channel says by itself:
//!
//! ```text
//! flags 0   a message of the application's kind
//! flags 1   nothing will follow
//! flags 2   I am still here (sent when nothing else was for a while)
//! ```
//!
//! Nothing is sent twice here and nothing is put in order: see [`crate::reliable`] for that. Whatever does not prove
//! itself is counted and dropped.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use comb_types::{ChannelId, Version};
use rustix::io::Errno;

use crate::life::Cause;
use crate::payload::Payload;
use crate::ring::Breach;
use crate::seal::{Direction, Dropped, HEADER_BYTES, Opener, SealError, SealKey, Sealer, Suite};
use crate::transport::{Capabilities, SendError, Transport, TransportCounters};

const MESSAGE: u8 = 0;
const CLOSE: u8 = 1;
const HEARTBEAT: u8 = 2;

/// What fits one Ethernet packet with all headers and proofs around it, and leaves some for tunnels.
pub const DEFAULT_LONGEST_MESSAGE: usize = 1400;

/// A UDP datagram over IPv4 carries no more; the headers and the proof are taken off it.
pub(crate) const LONGEST_DATAGRAM: usize = 65_507;

/// Frames that one look takes from the network before it gives up on finding a message among them. A flood of garbage
/// then costs an endpoint a bounded part of each turn.
const FRAMES_A_LOOK: usize = 64;

/// The clock is read once in so many looks that found nothing, each of them a system call or close to one.
const LOOKS_A_TICK: u32 = 8;

/// Heartbeats in a silence limit: three may be lost.
const HEARTBEATS_IN_SILENCE: u32 = 4;

/// What the two ends of a channel have agreed on.
#[derive(Debug)]
pub struct Session {
    /// Its number; frames of another are dropped.
    pub channel: ChannelId,
    /// For what we send.
    pub send: SealKey,
    /// For what the peer sends.
    pub receive: SealKey,
    /// As the handshake settled it.
    pub version: Version,
    /// Bytes of the longest message; both ends must say the same.
    pub longest_message: usize,
    /// A peer that says nothing at all for so long is taken for dead, and our own heartbeats are so much more frequent
    /// that ours does not think the same of us. `None`: nobody minds silence.
    pub silence_limit: Option<Duration>,
}

impl Session {
    /// A session with keys, and the default limits.
    pub fn new(channel: ChannelId, send: SealKey, receive: SealKey) -> Self {
        Self {
            channel,
            send,
            receive,
            version: Version::CURRENT,
            longest_message: DEFAULT_LONGEST_MESSAGE,
            silence_limit: None,
        }
    }

    /// The two ends of a session without any protection: whoever can reach the port can speak in the peer's name.
    pub fn plain(channel: ChannelId, direction: Direction) -> Self {
        let other = match direction {
            Direction::FromConnector => Direction::FromAcceptor,
            Direction::FromAcceptor => Direction::FromConnector,
        };
        let key = |direction| SealKey::new(Suite::Plain, direction, [0; 32]);
        Self::new(channel, key(direction), key(other))
    }
}

/// The memory and the system calls below a channel: one frame out, one frame in.
pub trait Wire: Send + std::fmt::Debug {
    /// Where to write the next frame; `None`: no room now.
    fn space(&mut self) -> Option<&mut [u8]>;

    /// Sends the first `bytes` of what was written to [`Wire::space`]. [`Errno::AGAIN`]: no room now.
    fn transmit(&mut self, bytes: usize) -> Result<(), Errno>;

    /// Frames may be kept from now on, until [`Wire::release`], to be sent at once.
    fn gather(&mut self) {}

    /// Sends what was kept. What the network refuses then is lost.
    fn release(&mut self) {}

    /// Forgets the frame that was fetched before and fetches the next. Errors of the network are nothing that came.
    fn fetch(&mut self) -> bool;

    /// The frame that was fetched.
    fn frame(&mut self) -> &mut [u8];

    /// Frames that were dropped below, because they cannot be this channel's.
    fn strays(&self) -> u64 {
        0
    }

    /// What becomes readable when something comes.
    fn readable(&self) -> Option<BorrowedFd<'_>>;
}

/// A message that was fetched and opened, and still stands in the wire's memory.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    kind: u8,
    bytes: usize,
}

/// One end of a channel over frames.
#[derive(Debug)]
pub struct Datagrams<W> {
    wire: W,
    sealer: Sealer,
    opener: Opener,
    longest_message: usize,
    fetched: Option<Fetched>,
    ended: Option<Cause>,
    closed: bool,
    pulse: Pulse,
    counters: TransportCounters,
    /// Genuine frames that nevertheless made no sense.
    senseless: u64,
}

/// The longest message of a session whose frames may have `frame_bytes`.
pub(crate) fn fitting(longest_message: usize, suite_overhead: usize) -> usize {
    longest_message.min(LONGEST_DATAGRAM - suite_overhead)
}

impl<W: Wire> Datagrams<W> {
    pub(crate) fn over(wire: W, session: Session) -> Self {
        let Session { channel, send, receive, version, longest_message, silence_limit } = session;
        Self {
            wire,
            sealer: Sealer::new(send, channel, version),
            opener: Opener::new(receive, channel, longest_message),
            longest_message,
            fetched: None,
            ended: None,
            closed: false,
            pulse: Pulse::new(Instant::now(), silence_limit),
            counters: TransportCounters::default(),
            senseless: 0,
        }
    }

    /// Frames that were dropped, by reason.
    pub fn dropped(&self) -> Dropped {
        self.opener.dropped()
    }

    fn post(&mut self, kind: u8, flags: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        let Some(space) = self.wire.space() else { return Err(SendError::Full) };
        let bytes = self.sealer.seal(kind, flags, parts, space).map_err(|error| match error {
            // Which of the two limits it is, the caller sees by the numbers; both mean a new channel.
            SealError::NoRoom { needed, available } => SendError::TooLong { bytes: needed, limit: available },
            SealError::Exhausted => SendError::System(Errno::KEYEXPIRED),
        })?;
        match self.wire.transmit(bytes) {
            Ok(()) => {
                self.pulse.sent = true;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => Err(SendError::Full),
            Err(error) => Err(SendError::System(error)),
        }
    }

    /// Fetches the next message, unless there is one already.
    #[inline]
    fn look(&mut self) -> bool {
        if self.fetched.is_some() {
            return true;
        }
        for _ in 0..FRAMES_A_LOOK {
            if !self.wire.fetch() {
                self.beat();
                return false;
            }
            if let Some(fetched) = self.open() {
                self.fetched = Some(fetched);
                self.pulse.looks += 1;
                return true;
            }
        }
        self.beat();
        false
    }

    #[inline]
    fn open(&mut self) -> Option<Fetched> {
        // What a closed end still gets is nobody's business any more.
        if self.closed || self.ended.is_some() {
            return None;
        }
        let opened = self.opener.open(self.wire.frame()).ok()?;
        self.pulse.heard = true;
        match opened.flags {
            MESSAGE => return Some(Fetched { kind: opened.kind, bytes: opened.payload.len() }),
            CLOSE => self.ended = Some(Cause::Left("it closed the channel".into())),
            HEARTBEAT => {}
            // Of a version to come, or forged where nothing is proved.
            _ => self.senseless += 1,
        }
        None
    }

    /// Looks at the clock now and then: is the peer silent, are we?
    #[inline]
    fn beat(&mut self) {
        self.pulse.looks += LOOKS_A_TICK;
        if self.pulse.looks >= LOOKS_A_TICK * LOOKS_A_TICK {
            self.tick(Instant::now());
        }
    }

    #[cold]
    fn tick(&mut self, now: Instant) {
        if self.closed || self.ended.is_some() {
            return;
        }
        match self.pulse.tick(now) {
            Beat::Nothing => {}
            Beat::Speak => {
                // Without room there are frames on the way that say as much.
                let _ = self.post(0, HEARTBEAT, &[]);
            }
            Beat::Silent(limit) => self.ended = Some(Cause::Silent(limit)),
        }
    }
}

impl<W: Wire> Transport for Datagrams<W> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: self.longest_message, can_lose: true }
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        let (bytes, limit) = (parts.iter().map(|part| part.len()).sum::<usize>(), self.longest_message);
        if bytes > limit {
            return Err(SendError::TooLong { bytes, limit });
        }
        match self.post(kind, MESSAGE, parts) {
            Ok(()) => self.counters.sent += 1,
            Err(error) => {
                self.counters.refused += 1;
                return Err(error);
            }
        }
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        if !self.look() {
            return Ok(false);
        }
        let Some(Fetched { kind, bytes }) = self.fetched.take() else { return Ok(false) };
        sink(kind, Payload::Private(&self.wire.frame()[HEADER_BYTES..HEADER_BYTES + bytes]));
        self.counters.received += 1;
        Ok(true)
    }

    fn is_idle(&mut self) -> bool {
        !self.look()
    }

    fn begin_burst(&mut self) {
        self.wire.gather();
    }

    fn end_burst(&mut self) {
        self.wire.release();
    }

    fn has_in_hand(&mut self) -> bool {
        self.fetched.is_some()
    }

    fn close(&mut self) {
        if !self.closed {
            // One that is lost is made good by the peer's silence limit.
            let _ = self.post(0, CLOSE, &[]);
            self.closed = true;
        }
    }

    fn peer_closed(&self) -> bool {
        self.ended.is_some()
    }

    fn cause(&self) -> Option<Cause> {
        self.ended.clone()
    }

    fn counters(&self) -> TransportCounters {
        let dropped = self.opener.dropped().total() + self.senseless + self.wire.strays();
        TransportCounters { dropped, ..self.counters }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.wire.readable()
    }
}

/// Who has said something lately. Reads no clock itself.
#[derive(Debug)]
struct Pulse {
    limit: Option<Duration>,
    looks: u32,
    ticked: Instant,
    sent: bool,
    heard: bool,
    since_sent: Duration,
    since_heard: Duration,
}

#[derive(PartialEq, Eq, Debug)]
enum Beat {
    Nothing,
    Speak,
    Silent(Duration),
}

impl Pulse {
    fn new(now: Instant, limit: Option<Duration>) -> Self {
        Self {
            limit,
            looks: 0,
            ticked: now,
            sent: false,
            heard: false,
            since_sent: Duration::ZERO,
            since_heard: Duration::ZERO,
        }
    }

    fn tick(&mut self, now: Instant) -> Beat {
        self.looks = 0;
        let gap = now.saturating_duration_since(std::mem::replace(&mut self.ticked, now));
        let Some(limit) = self.limit else { return Beat::Nothing };
        let interval = limit / HEARTBEATS_IN_SILENCE;
        let (sent, heard) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.heard));
        self.since_sent = if sent { Duration::ZERO } else { self.since_sent + gap };
        // A gap between two looks that is as long as a heartbeat's interval counts as one: who was stopped for a
        // minute has not been listening, and must not blame the peer for the minute.
        self.since_heard = if heard { Duration::ZERO } else { self.since_heard + gap.min(interval) };
        if self.since_heard >= limit {
            return Beat::Silent(limit);
        }
        if self.since_sent >= interval {
            self.since_sent = Duration::ZERO;
            return Beat::Speak;
        }
        Beat::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(4);

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_silent_peer_is_found_at_the_limit_and_not_before() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, Some(LIMIT));
        for n in 1..4 {
            assert_eq!(pulse.tick(start + second(n)), Beat::Speak);
        }
        pulse.heard = true;
        for n in 4..8 {
            assert_ne!(pulse.tick(start + second(n)), Beat::Silent(LIMIT));
        }
        assert_eq!(pulse.tick(start + second(8)), Beat::Silent(LIMIT));
    }

    /// An endpoint that computed for a minute without polling found all its peers dead.
    #[test]
    fn who_did_not_listen_does_not_blame_the_peer() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, Some(LIMIT));
        assert_eq!(pulse.tick(start + second(60)), Beat::Speak);
        pulse.heard = true;
        assert_eq!(pulse.tick(start + second(120)), Beat::Speak);
    }

    #[test]
    fn who_sends_needs_no_heartbeats_and_no_limit_means_none() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, Some(LIMIT));
        for n in 1..20 {
            (pulse.sent, pulse.heard) = (true, true);
            assert_eq!(pulse.tick(start + second(n)), Beat::Nothing);
        }
        let mut patient = Pulse::new(start, None);
        assert_eq!(patient.tick(start + second(1_000_000)), Beat::Nothing);
    }
}
