//! U-Net's queues: an endpoint as descriptors over a communication segment. (Thesis §2.3.1, §2.3.4)
//!
//! The program composes messages in a segment of bounded size and pushes descriptors; [`Queues::service`], in place of
//! the network interface, moves messages between segment and network:
//!
//! - A descriptor whose channel has no room stays in the send queue, and with it all later ones of that channel; a full
//!   send queue refuses the next push. That is the back-pressure.
//! - Each descriptor tells by [`Queues::send_state`] whether it was injected: then its part of the segment can be used
//!   again.
//! - A message that comes takes a descriptor of the receive queue. A small one stands in the descriptor; a larger one is
//!   scattered over free buffers, in no order that the program may rely on. Where descriptor or buffers are lacking, the
//!   message stays in its channel, which holds its sender back, and is counted.
//! - Channels that have something share what room there is evenly, by bytes. One that has taken half of the queue is
//!   quenched: its peer is told to stop until the program has dealt with half of that.
//!
//! The segment is private memory: what stands in it was copied out of the peer's reach. All of it belongs to one thread.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use comb_congestion::Flow;
use comb_congestion::quench::Marks;
use comb_congestion::share::Share;

use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Delivery, Endpoint, PostError};
use crate::payload::Payload;
use crate::ring::INLINE_BYTES;

/// Segments are for messages on their way, not for a program's data: "a limited resource", so a mistake in a size
/// should not take all memory.
const LARGEST_SEGMENT: usize = 256 << 20;

/// How long to wait with a message that waits for room or for buffers.
const STUCK_LOOK: Duration = Duration::from_millis(1);

/// The size of an endpoint's segment and queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuesOptions {
    /// Bytes of the communication segment.
    pub segment_bytes: usize,
    /// Descriptors of the send queue.
    pub send: usize,
    /// Descriptors of the receive queue.
    pub receive: usize,
    /// The receive queue is "almost full" with so many descriptors taken.
    pub almost_full: usize,
}

impl Default for QueuesOptions {
    fn default() -> Self {
        Self { segment_bytes: 256 << 10, send: 64, receive: 64, almost_full: 48 }
    }
}

/// A part of the communication segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Where it begins.
    pub offset: usize,
    /// How many bytes it has.
    pub length: usize,
}

/// What a descriptor of the send queue says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendDescriptor {
    /// Whither.
    pub channel: ChannelKey,
    /// What for.
    pub kind: u8,
    /// The message, gathered from the segment.
    pub parts: Vec<Buffer>,
}

/// Names a descriptor that was pushed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// How far a descriptor of the send queue has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendState {
    /// In the queue. Its parts of the segment are in use.
    Queued,
    /// In the network. Its parts can be used again.
    Injected,
    /// Never to be sent, and why. Its parts can be used again.
    Failed(PostError),
}

/// Why a descriptor or buffer was not taken. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PushError {
    /// Service the queues, then try again.
    #[error("the send queue is full: the network has not taken enough of it yet")]
    Full,
    /// The caller's mistake.
    #[error("{} bytes at {} are outside the communication segment", .0.length, .0.offset)]
    Outside(Buffer),
}

/// What a descriptor of the receive queue says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveDescriptor {
    /// Whence.
    pub channel: ChannelKey,
    /// What for.
    pub kind: u8,
    /// The message itself.
    pub content: Content,
}

/// Where a received message is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// In the descriptor.
    Small(SmallMessage),
    /// In the segment, in these buffers, each as long as what is in it. They are the program's until it pushes them to
    /// the free queue again, whole: [`Queues::release`] does that.
    Buffers(Vec<Filled>),
}

/// A free buffer with a message in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// The buffer as it was given.
    pub buffer: Buffer,
    /// How many bytes of it hold the message.
    pub bytes: usize,
}

/// A message of up to 56 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmallMessage {
    bytes: [u8; INLINE_BYTES],
    length: usize,
}

impl std::ops::Deref for SmallMessage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The state of the queues, for the program to look at. (Thesis §2.7.4)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuesState {
    /// Descriptors in the send queue, not injected yet.
    pub to_send: usize,
    /// Descriptors in the receive queue.
    pub received: usize,
    /// Buffers in the free queue.
    pub free_buffers: usize,
    /// Bytes of them.
    pub free_bytes: usize,
    /// Descriptors injected since the start.
    pub injected: u64,
    /// Descriptors that failed.
    pub failed: u64,
    /// Times that a message stayed in its channel because the receive queue was full.
    pub no_descriptor: u64,
    /// Times that a message stayed in its channel because free buffers were lacking.
    pub no_buffer: u64,
    /// Bytes of the last message that stayed for that.
    pub lacking_bytes: usize,
}

struct Slot {
    descriptor: SendDescriptor,
    state: SendState,
}

/// The receiving half, apart from the endpoint that fills it.
struct Receiving {
    segment: Vec<u8>,
    free: VecDeque<Buffer>,
    /// Each with what it takes of the room.
    queue: VecDeque<(ReceiveDescriptor, u32)>,
    costs: Costs,
    limit: usize,
    state: QueuesState,
}

/// See the [module](self).
pub struct Queues {
    endpoint: Endpoint,
    receiving: Receiving,
    /// By ticket, modulo its length. A slot is used again only when it is done with.
    send: Vec<Option<Slot>>,
    /// The first ticket that is not done with, and the next one.
    pending: Range<u64>,
    blocked: Vec<ChannelKey>,
    almost_full: usize,
    turns: Turns,
    /// All that came lacks buffers, which only the program can give.
    lacks_buffers: bool,
}

/// What messages take of the receiving half, which has descriptors and bytes: the larger part of either, in bytes.
#[derive(Clone, Copy)]
struct Costs {
    /// Of the whole.
    room: u32,
    descriptor: u32,
    /// What a channel may take before another has its turn.
    turn: u32,
}

impl Costs {
    fn of(options: &QueuesOptions) -> Self {
        let descriptors = u32::try_from(options.receive).expect("as many as fit in memory");
        let bytes = u32::try_from(options.segment_bytes).expect("checked before");
        let room = bytes.max(descriptors).max(8);
        let descriptor = room / descriptors;
        Self { room, descriptor, turn: descriptor.max(room / 8) }
    }

    fn of_message(self, bytes: usize) -> u32 {
        u32::try_from(bytes).map_or(self.room, |bytes| bytes.clamp(self.descriptor, self.room))
    }

    /// Stop a channel at half of the room, let it go on at a quarter. Its peer sends less than another quarter before it
    /// hears that. (No channel is beyond its capacity before the queue itself is full.)
    fn marks(self) -> Marks {
        let quarter = self.room / 4;
        Marks::new(quarter, quarter, 2 * quarter, 2 * self.room).expect("a quarter, a half, the double")
    }
}

/// Whose turn it is to be received from.
struct Turns {
    share: Share,
    /// The channels that the places of the endpoint were given to when last seen.
    keys: Vec<Option<ChannelKey>>,
}

impl Turns {
    fn ready(&mut self, place: usize, key: ChannelKey) {
        if self.keys.len() <= place {
            self.keys.resize(place + 1, None);
        }
        let flow = Flow(key.index);
        let last = self.keys[place].replace(key);
        if last != Some(key) {
            if last.is_some() {
                self.share.close(flow);
            }
            self.share.open(flow);
        }
        self.share.ready(flow);
    }
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues")
            .field("endpoint", &self.endpoint)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Queues {
    /// Associates a segment and queues with an endpoint.
    ///
    /// # Panics
    /// If a queue has no descriptor, or the segment more than 256 MB.
    pub fn new(mut endpoint: Endpoint, options: QueuesOptions) -> Self {
        assert!(options.send > 0 && options.receive > 0, "queues have at least one descriptor");
        assert!(options.segment_bytes <= LARGEST_SEGMENT, "a segment has at most {LARGEST_SEGMENT} bytes");
        let costs = Costs::of(&options);
        endpoint.watch_backlog(costs.marks());
        Self {
            endpoint,
            turns: Turns { share: Share::new(costs.turn), keys: Vec::new() },
            receiving: Receiving {
                segment: vec![0; options.segment_bytes],
                free: VecDeque::new(),
                queue: VecDeque::with_capacity(options.receive),
                costs,
                limit: options.receive,
                state: QueuesState::default(),
            },
            send: std::iter::repeat_with(|| None).take(options.send).collect(),
            pending: 0..0,
            blocked: Vec::new(),
            almost_full: options.almost_full.min(options.receive),
            lacks_buffers: false,
        }
    }

    /// The endpoint underneath, to look at.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Opens a channel to `process/endpoint`.
    pub fn open(&mut self, to: &str) -> Result<ChannelKey, RequestError> {
        self.endpoint.open(to)
    }

    /// Waits for a peer to open a channel to us.
    pub fn accept(&mut self, limit: Duration) -> Option<ChannelKey> {
        self.endpoint.accept(limit)
    }

    /// The communication segment. Parts that are in the free queue, or in a descriptor that is not injected, are not
    /// the program's to change; who changes them spoils its own messages.
    pub fn segment(&mut self) -> &mut [u8] {
        &mut self.receiving.segment
    }

    /// A part of the segment.
    pub fn bytes(&self, buffer: Buffer) -> Option<&[u8]> {
        self.receiving.segment.get(buffer.offset..buffer.offset.checked_add(buffer.length)?)
    }

    fn check(&self, buffer: Buffer) -> Result<(), PushError> {
        self.bytes(buffer).map(drop).ok_or(PushError::Outside(buffer))
    }

    // ── sending ──

    /// Puts a message into the send queue.
    pub fn push(&mut self, descriptor: SendDescriptor) -> Result<Ticket, PushError> {
        descriptor.parts.iter().try_for_each(|&part| self.check(part))?;
        if self.pending.end - self.pending.start == self.send.len() as u64 {
            return Err(PushError::Full);
        }
        let ticket = self.pending.end;
        self.pending.end += 1;
        *self.slot(ticket) = Some(Slot { descriptor, state: SendState::Queued });
        Ok(Ticket(ticket))
    }

    /// How far a descriptor has come; `None` when its place in the queue has been taken by a later one.
    pub fn send_state(&self, ticket: Ticket) -> Option<&SendState> {
        let length = self.send.len() as u64;
        let known = self.pending.end.saturating_sub(length)..self.pending.end;
        let index = usize::try_from(ticket.0 % length).expect("below a length");
        self.send[index].as_ref().filter(|_| known.contains(&ticket.0)).map(|slot| &slot.state)
    }

    /// Whether a descriptor was injected, so that its part of the segment can be used again. One that failed never is: of
    /// that tells [`Queues::send_state`].
    pub fn is_injected(&self, ticket: Ticket) -> bool {
        self.send_state(ticket).is_none_or(|state| *state == SendState::Injected)
    }

    fn slot(&mut self, ticket: u64) -> &mut Option<Slot> {
        let index = ticket % self.send.len() as u64;
        &mut self.send[usize::try_from(index).expect("below a length")]
    }

    fn inject(&mut self) -> usize {
        let mut injected = 0;
        self.blocked.clear();
        for ticket in self.pending.clone() {
            let index = usize::try_from(ticket % self.send.len() as u64).expect("below a length");
            let Some(slot) = &mut self.send[index] else { continue };
            let channel = slot.descriptor.channel;
            // One full channel does not hold up the others, but on one channel nothing overtakes.
            if slot.state != SendState::Queued || self.blocked.contains(&channel) {
                continue;
            }
            let segment = &self.receiving.segment;
            let part = |part: &Buffer| &segment[part.offset..part.offset + part.length];
            let parts: Vec<&[u8]> = slot.descriptor.parts.iter().map(part).collect();
            match self.endpoint.send_gathered(channel, slot.descriptor.kind, &parts) {
                Ok(()) => {
                    slot.state = SendState::Injected;
                    injected += 1;
                }
                Err(PostError::Full(_)) => self.blocked.push(channel),
                Err(error) => {
                    slot.state = SendState::Failed(error);
                    self.receiving.state.failed += 1;
                }
            }
        }
        while !self.pending.is_empty() && !self.is_queued(self.pending.start) {
            self.pending.start += 1;
        }
        self.receiving.state.injected += injected as u64;
        injected
    }

    fn is_queued(&self, ticket: u64) -> bool {
        self.send_state(Ticket(ticket)) == Some(&SendState::Queued)
    }

    // ── receiving ──

    /// Gives a buffer for messages to come.
    pub fn push_free(&mut self, buffer: Buffer) -> Result<(), PushError> {
        self.check(buffer)?;
        if buffer.length > 0 {
            self.receiving.free.push_back(buffer);
            self.receiving.state.free_bytes += buffer.length;
        }
        Ok(())
    }

    /// Takes the next message from the receive queue.
    pub fn pop(&mut self) -> Option<ReceiveDescriptor> {
        let (descriptor, cost) = self.receiving.queue.pop_front()?;
        self.endpoint.dealt_with(descriptor.channel, cost);
        Some(descriptor)
    }

    /// A received message, in one piece.
    pub fn read(&self, descriptor: &ReceiveDescriptor) -> Vec<u8> {
        match &descriptor.content {
            Content::Small(message) => message.to_vec(),
            Content::Buffers(buffers) => buffers
                .iter()
                .flat_map(|filled| &self.receiving.segment[filled.buffer.offset..][..filled.bytes])
                .copied()
                .collect(),
        }
    }

    /// Gives a message's buffers back to the free queue.
    pub fn release(&mut self, descriptor: ReceiveDescriptor) {
        if let Content::Buffers(buffers) = descriptor.content {
            for filled in buffers {
                // They came from the free queue, where only what lies in the segment gets in.
                let _ = self.push_free(filled.buffer);
            }
        }
    }

    /// Does the network interface's work: injects what there is room for, takes what came, and says how many messages
    /// moved. `Err`: one channel ended, which is said once.
    pub fn service(&mut self) -> Result<usize, ChannelEnded> {
        let injected = self.inject();
        Ok(injected + self.take_what_came()?)
    }

    fn take_what_came(&mut self) -> Result<usize, ChannelEnded> {
        self.endpoint.begin_poll()?;
        for place in 0..self.endpoint.places() {
            if let Some(key) = self.endpoint.has_message(place) {
                self.turns.ready(place, key);
            }
        }
        let mut messages = 0;
        let no_buffer = self.receiving.state.no_buffer;
        while let Some(flow) = self.turns.share.next() {
            let place = flow.0 as usize;
            let taken = self.endpoint.take_accepted(
                place,
                &mut self.receiving,
                Receiving::accepts,
                Receiving::take,
            )?;
            if let Some(key) = taken {
                messages += 1;
                let (_, counted) = self.receiving.queue.back_mut().expect("just taken");
                let cost = *counted;
                if self.endpoint.took_in(key, cost).is_err() {
                    // More than the segment holds: the program gave a buffer twice.
                    *counted = 0;
                }
                let more = self.endpoint.has_message(place).is_some();
                self.turns.share.served(flow, cost.min(self.receiving.costs.turn), more);
            } else if self.receiving.queue.len() >= self.receiving.limit {
                // Nobody has a place; it stays this channel's turn.
                break;
            } else {
                // A shorter message of another may find its buffers.
                self.turns.share.served(flow, 0, false);
            }
        }
        self.lacks_buffers = messages == 0 && self.receiving.state.no_buffer != no_buffer;
        if messages == 0 {
            self.endpoint.when_idle()?;
        }
        Ok(messages)
    }

    /// Services until the receive queue has something, at most for `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<bool, ChannelEnded> {
        let until = std::time::Instant::now() + limit;
        loop {
            self.service()?;
            if !self.receiving.queue.is_empty() {
                return Ok(true);
            }
            let Some(left) = until.checked_duration_since(std::time::Instant::now()) else {
                return Ok(false);
            };
            // What waits for room is looked at again soon.
            self.wait_for_any(left);
        }
    }

    /// Waits until there may be something to service.
    pub(crate) fn wait_for_any(&mut self, limit: Duration) {
        let short = limit.min(STUCK_LOOK);
        if self.lacks_buffers {
            // The endpoint has something, and would not wait at all.
            std::thread::sleep(short);
            return;
        }
        let stuck = !self.pending.is_empty();
        self.endpoint.wait(if stuck { short } else { limit });
    }

    /// Whether the receive queue will soon have no place for more. (Thesis §2.3.1)
    pub fn is_almost_full(&self) -> bool {
        self.receiving.queue.len() >= self.almost_full
    }

    /// How the queues stand.
    pub fn state(&self) -> QueuesState {
        let to_send = self.pending.clone().filter(|&ticket| self.is_queued(ticket)).count();
        let Receiving { queue, free, .. } = &self.receiving;
        QueuesState { to_send, received: queue.len(), free_buffers: free.len(), ..self.receiving.state }
    }
}

impl Receiving {
    /// Whether there is a place for a message of that length, as its header alleges.
    fn accepts(&mut self, bytes: usize) -> bool {
        if self.queue.len() >= self.limit {
            self.state.no_descriptor += 1;
            return false;
        }
        if bytes > INLINE_BYTES && bytes > self.state.free_bytes {
            self.state.no_buffer += 1;
            self.state.lacking_bytes = bytes;
            return false;
        }
        true
    }

    fn take(&mut self, delivery: Delivery<'_>) {
        let Delivery { channel, kind, payload } = delivery;
        let length = payload.len();
        let (content, stored) = if length <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            payload.copy_to(&mut bytes[..length]);
            (Content::Small(SmallMessage { bytes, length }), length)
        } else {
            let filled = self.scatter(&payload);
            let stored = filled.iter().map(|filled| filled.bytes).sum();
            (Content::Buffers(filled), stored)
        };
        // What is here, not what its peer alleges.
        let cost = self.costs.of_message(stored);
        self.queue.push_back((ReceiveDescriptor { channel, kind, content }, cost));
    }

    /// A peer that made its message longer after we looked gets it cut: what came is what it wrote, and its problem.
    fn scatter(&mut self, payload: &Payload<'_>) -> Vec<Filled> {
        if let Some(&buffer) = self.free.front()
            && buffer.length >= payload.len()
        {
            self.free.pop_front();
            self.state.free_bytes -= buffer.length;
            payload.copy_to(&mut self.segment[buffer.offset..buffer.offset + payload.len()]);
            return vec![Filled { buffer, bytes: payload.len() }];
        }
        let message = payload.to_vec();
        let mut filled = Vec::new();
        let mut at = 0;
        while at < message.len() {
            let Some(buffer) = self.free.pop_front() else { break };
            self.state.free_bytes -= buffer.length;
            let bytes = buffer.length.min(message.len() - at);
            self.segment[buffer.offset..buffer.offset + bytes].copy_from_slice(&message[at..at + bytes]);
            filled.push(Filled { buffer, bytes });
            at += bytes;
        }
        filled
    }
}
