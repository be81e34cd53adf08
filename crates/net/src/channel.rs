//! A channel: one peer, one way of carrying messages, one life.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_congestion::quench::Signal;
use comb_types::ChannelId;

use crate::bypass::Bypass;
use crate::endpoint::ChannelEnded;
use crate::events::ChannelEvent;
use crate::life::{Cause, Life};
use crate::paced::Paced;
use crate::payload::{Inline, Payload};
use crate::ring::{Breach, INLINE_BYTES};
use crate::shm::{ShmLink, Small};
use crate::transport::{Capabilities, SendError, Transport, TransportCounters};

/// Names a channel on its endpoint. A key of a channel that has ended is stale for ever, whoever takes its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelKey {
    pub(crate) index: u32,
    pub(crate) epoch: u32,
}

/// How its messages travel. Shared memory is called directly, the rest through the trait: a virtual call is nothing
/// beside a system call, and a tenth of a message in shared memory.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every channel is the large one, and a box would be one more line to fetch for each message"
)]
pub(crate) enum Link {
    Shm(ShmLink),
    Other(Paced),
}

impl Link {
    pub(crate) fn close(&mut self) {
        match self {
            Self::Shm(link) => link.close(),
            Self::Other(link) => link.transport_mut().close(),
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shm(_) => "Shm",
            Self::Other(_) => "Other",
        })
    }
}

/// One end of a channel.
#[derive(Debug)]
pub(crate) struct Channel {
    key: ChannelKey,
    id: ChannelId,
    peer: String,
    link: Link,
    life: Arc<Life>,
    /// Ours, in the endpoint's epoll set for as long as the channel lives.
    _event: Option<ChannelEvent>,
}

impl Channel {
    pub(crate) fn new(
        key: ChannelKey,
        id: ChannelId,
        peer: String,
        link: Link,
        life: Arc<Life>,
        event: Option<ChannelEvent>,
    ) -> Self {
        Self { key, id, peer, link, life, _event: event }
    }

    #[inline]
    pub(crate) fn key(&self) -> ChannelKey {
        self.key
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.id
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    #[inline]
    pub(crate) fn send(&mut self, kind: u8, message: &[u8]) -> Result<(), SendError> {
        match &mut self.link {
            Link::Shm(link) => link.send(kind, message),
            Link::Other(link) => link.send(kind, &[message]),
        }
    }

    /// Sends one message if that takes next to nothing. `false`: [`Channel::send`] knows why not.
    #[inline]
    pub(crate) fn post_small(&mut self, kind: u8, message: &[u8]) -> bool {
        match &mut self.link {
            Link::Shm(link) => link.post_small(kind, message),
            Link::Other(_) => false,
        }
    }

    #[inline]
    pub(crate) fn send_gathered(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), SendError> {
        match &mut self.link {
            Link::Shm(link) => link.send_gathered(kind, parts),
            Link::Other(link) => link.send(kind, parts),
        }
    }

    /// Wakes the peer if it polls and has not looked since something has come to it. `whoever`: from others, too.
    pub(crate) fn ring(&mut self, whoever: bool) {
        if let Link::Shm(link) = &mut self.link {
            link.ring(whoever);
        }
    }

    /// Up to seven words as one message.
    #[inline]
    pub(crate) fn send_words(&mut self, kind: u8, words: &[u64]) -> Result<(), SendError> {
        match &mut self.link {
            Link::Shm(link) => link.send_words(kind, words),
            Link::Other(link) => {
                let mut bytes = [0; INLINE_BYTES];
                for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                    *chunk = word.to_le_bytes();
                }
                link.send(kind, &[&bytes[..words.len() * 8]])
            }
        }
    }

    #[inline]
    pub(crate) fn post_words<const N: usize>(&mut self, kind: u8, bytes: u8, words: &[u64; N]) -> bool {
        match &mut self.link {
            Link::Shm(link) => link.post_words(kind, bytes, words),
            Link::Other(_) => false,
        }
    }

    /// How many bytes the next message has; of a transport that cannot tell, how many it has at most.
    pub(crate) fn next_length(&mut self) -> Result<Option<usize>, Breach> {
        match &mut self.link {
            Link::Shm(link) => link.next_length(),
            Link::Other(link) => link.transport_mut().next_length(),
        }
    }

    /// What the channel's flag says when all is read.
    #[inline]
    pub(crate) fn flag_when_read(&self) -> u8 {
        match &self.link {
            Link::Shm(link) => link.flag_when_read(),
            Link::Other(_) => 0,
        }
    }

    /// Whether so many messages can lie in its ring that its flag says the same again.
    #[inline]
    pub(crate) fn has_long_ring(&self) -> bool {
        match &self.link {
            Link::Shm(link) => link.has_long_ring(),
            Link::Other(_) => false,
        }
    }

    pub(crate) fn is_almost_full(&self) -> bool {
        match &self.link {
            Link::Shm(link) => link.is_almost_full(),
            Link::Other(_) => false,
        }
    }

    pub(crate) fn make_reliable(&mut self) {
        if let Link::Other(link) = &mut self.link {
            link.make_reliable();
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, mut sink: impl FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        match &mut self.link {
            Link::Shm(link) => Ok(link.receive(sink)?.is_some()),
            Link::Other(link) => link.receive(&mut sink),
        }
    }

    /// Delivers the next message if that takes next to nothing, and `take` wants it.
    #[inline(always)]
    pub(crate) fn receive_small<R>(&mut self, take: impl FnOnce(u8, Inline<'_>) -> Option<R>) -> Small<R> {
        match &mut self.link {
            Link::Shm(link) => link.receive_small(take),
            Link::Other(_) => Small::Unclear,
        }
    }

    /// How longer bytes are written that this peer will read.
    pub(crate) fn bypass(&mut self) -> Option<&mut Bypass> {
        match &mut self.link {
            Link::Shm(link) => Some(link.bypass()),
            Link::Other(_) => None,
        }
    }

    pub(crate) fn shm(&self) -> Option<&ShmLink> {
        match &self.link {
            Link::Shm(link) => Some(link),
            Link::Other(_) => None,
        }
    }

    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.link, Link::Other(_))
    }

    fn transport(&self) -> &dyn Transport {
        match &self.link {
            Link::Shm(link) => link,
            Link::Other(link) => link.transport(),
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.transport().capabilities()
    }

    /// Whether the next message is there, as far as a load can tell.
    #[inline]
    pub(crate) fn has_next(&mut self) -> bool {
        match &mut self.link {
            Link::Shm(link) => link.has_next(),
            Link::Other(link) => !link.is_idle(),
        }
    }

    #[inline]
    pub(crate) fn is_idle(&mut self) -> bool {
        match &mut self.link {
            Link::Shm(link) => link.is_idle(),
            Link::Other(link) => link.is_idle(),
        }
    }

    /// Whether something is there that no descriptor of a socket tells of.
    pub(crate) fn has_untold(&mut self) -> bool {
        match &mut self.link {
            Link::Shm(link) => !link.is_idle(),
            Link::Other(link) => link.has_in_hand(),
        }
    }

    pub(crate) fn close(&mut self) {
        self.link.close();
    }

    pub(crate) fn counters(&self) -> TransportCounters {
        match &self.link {
            Link::Shm(link) => Transport::counters(link),
            Link::Other(link) => link.counters(),
        }
    }

    pub(crate) fn has_room(&mut self) -> bool {
        match &mut self.link {
            Link::Shm(link) => ShmLink::has_room(link),
            Link::Other(link) => link.has_room(),
        }
    }

    /// Hears a transport that rings no bell, though nobody receives now.
    pub(crate) fn hear(&mut self) {
        if let Link::Other(link) = &mut self.link {
            link.transport_mut().hear();
        }
    }

    /// When a transport that rings no bell must be looked at again.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.transport().next_timeout()
    }

    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.transport().readable()
    }

    /// After its close: the transport, if messages of ours may still have to be sent again.
    pub(crate) fn into_unsettled(self) -> Option<Box<dyn Transport>> {
        match self.link {
            Link::Other(link) => {
                let mut transport = link.into_transport();
                (!transport.settle()).then_some(transport)
            }
            Link::Shm(_) => None,
        }
    }

    /// Tells the peer to stop sending on this channel, or to go on.
    pub(crate) fn signal(&mut self, signal: Signal) {
        match &mut self.link {
            Link::Shm(link) => link.signal(signal),
            Link::Other(link) => link.signal(signal),
        }
    }

    /// The peer is told of all that was read.
    pub(crate) fn pay_credit(&mut self) {
        if let Link::Shm(link) = &mut self.link {
            link.pay_credit();
        }
    }

    /// Shows the peer that we move, and pays what is owed to it.
    pub(crate) fn tick(&mut self, tick: u64) {
        if let Link::Shm(link) = &mut self.link {
            link.tick(tick);
        }
    }

    pub(crate) fn is_silent(&mut self, now: Instant, limit: Duration) -> bool {
        match &mut self.link {
            Link::Shm(link) => link.is_silent(now, limit),
            Link::Other(_) => false,
        }
    }

    pub(crate) fn want_credit(&self, wanted: bool) {
        if let Link::Shm(link) = &self.link {
            link.want_credit(wanted);
        }
    }

    /// What is to be said of its end.
    pub(crate) fn ended(&self, cause: Cause) -> ChannelEnded {
        let last_word = match (&cause, &self.link) {
            (Cause::Exited(_), Link::Shm(link)) => link.last_word(),
            _ => self.life.last_word(),
        };
        ChannelEnded { channel: self.key, peer: self.peer.clone(), cause, last_word }
    }

    /// Why the channel has ended, if it has.
    pub(crate) fn cause(&self) -> Option<Cause> {
        if self.life.has_ended() { self.life.cause() } else { self.transport().cause() }
    }
}
