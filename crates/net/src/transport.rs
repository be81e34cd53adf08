//! What carries the messages of one channel.
//!
//! One trait, one conformance suite (`tests/transports`), several ways: shared memory, UDP, AF_XDP, and a wrapper
//! that loses, delays, duplicates and reorders by seed. A transport moves datagrams: it keeps their limits, and it
//! either delivers each exactly once and in order, or says in its capabilities that it can lose. What makes a
//! losing one reliable is [`crate::retransmit`].

use std::os::fd::BorrowedFd;
use std::time::Instant;

use comb_congestion::quench::Signal;

use crate::life::Cause;
use crate::payload::Payload;
use crate::ring::Breach;

/// What a transport promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Bytes of the longest message.
    pub longest_message: usize,
    /// Whether messages can be lost, doubled or reordered.
    pub can_lose: bool,
}

/// Why a message was not sent. Nothing of it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// No room now: the peer has not read enough yet. Back-pressure, not a failure; try again after polling.
    #[error("no room: the peer has not read enough yet")]
    Full,
    /// The message can never be sent on this channel.
    #[error("a message of {bytes} bytes is longer than this channel's limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer broke a rule; the channel is to be closed.
    #[error(transparent)]
    Breach(Breach),
    /// The operating system refused.
    #[error("the network refused the message: {0}")]
    System(rustix::io::Errno),
}

/// What a transport counted. Readable by the application at any time. (Thesis §2.7.4)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransportCounters {
    /// Messages taken.
    pub sent: u64,
    /// Messages delivered.
    pub received: u64,
    /// Sends refused for want of room.
    pub refused: u64,
    /// Frames that arrived and were thrown away: forged, replayed, truncated, of another version.
    pub dropped: u64,
    /// Messages sent and not yet known to be read.
    pub outstanding: u32,
    /// Times that the peer told this flow to stand still for a while: its backlog had passed its high mark.
    pub quenches: u64,
}

/// A carrier of datagrams between two endpoints.
pub trait Transport: Send {
    /// What it promises.
    fn capabilities(&self) -> Capabilities;

    /// Takes one message, gathered from `parts`.
    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError>;

    /// Hands at most one message that has come to `sink`. `Ok(false)`: none.
    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach>;

    /// Whether nothing has come. May be wrong for a moment, never for ever.
    fn is_idle(&mut self) -> bool;

    /// How many bytes the next message has. Who cannot tell says how many it has at most.
    fn next_length(&mut self) -> Result<Option<usize>, Breach> {
        Ok((!self.is_idle()).then(|| self.capabilities().longest_message))
    }

    /// Looks at what has come although nobody receives now, and says what is due. So the peer hears of us, and what it says
    /// to the channel itself does not wait behind messages for the program.
    fn hear(&mut self) {
        let _ = self.is_idle();
    }

    /// The last quench signal, if one was heard that was not delivered as a message.
    fn take_signal(&mut self) -> Option<Signal> {
        None
    }

    /// Whether a message that was refused for want of room may be taken now.
    fn has_room(&mut self) -> bool {
        true
    }

    /// What is sent from now on may wait for [`Transport::end_burst`], to go out at once. Who loses messages may lose them then, and says nothing.
    fn begin_burst(&mut self) {}

    /// See [`Transport::begin_burst`].
    fn end_burst(&mut self) {}

    /// Whether it has taken in something that its descriptor no longer tells of.
    fn has_in_hand(&mut self) -> bool {
        !self.is_idle()
    }

    /// When it must be looked at again, even if nothing came: it may have to send something a second time.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Tells the peer, as far as that is possible, that nothing will follow.
    fn close(&mut self);

    /// After [`Transport::close`]: whether nothing is left to do. Until then what was sent may still have to be sent
    /// again; call this until it says so, or give the last messages up.
    fn settle(&mut self) -> bool {
        true
    }

    /// Whether the peer is known to have closed.
    fn peer_closed(&self) -> bool;

    /// Why the peer is taken for gone, once [`Transport::peer_closed`] says so.
    fn cause(&self) -> Option<Cause> {
        self.peer_closed().then(|| Cause::Left("it closed the channel".into()))
    }

    /// What it counted.
    fn counters(&self) -> TransportCounters;

    /// A descriptor that becomes readable when something comes, for transports that have one.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        (**self).send(kind, parts)
    }

    fn receive(&mut self, sink: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        (**self).receive(sink)
    }

    fn is_idle(&mut self) -> bool {
        (**self).is_idle()
    }

    fn next_length(&mut self) -> Result<Option<usize>, Breach> {
        (**self).next_length()
    }

    fn hear(&mut self) {
        (**self).hear();
    }

    fn take_signal(&mut self) -> Option<Signal> {
        (**self).take_signal()
    }

    fn has_room(&mut self) -> bool {
        (**self).has_room()
    }

    fn begin_burst(&mut self) {
        (**self).begin_burst();
    }

    fn end_burst(&mut self) {
        (**self).end_burst();
    }

    fn has_in_hand(&mut self) -> bool {
        (**self).has_in_hand()
    }

    fn next_timeout(&self) -> Option<Instant> {
        (**self).next_timeout()
    }

    fn close(&mut self) {
        (**self).close();
    }

    fn settle(&mut self) -> bool {
        (**self).settle()
    }

    fn peer_closed(&self) -> bool {
        (**self).peer_closed()
    }

    fn cause(&self) -> Option<Cause> {
        (**self).cause()
    }

    fn counters(&self) -> TransportCounters {
        (**self).counters()
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        (**self).readable()
    }
}
