//! The part that a network interface would do: takes fragments in, sends work out. It never waits.

use std::collections::{BTreeMap, VecDeque};

use super::descriptor::{Completion, Loss, Operation, Side, WorkError, WorkId};
use super::interface::{Assembly, Interface, InterfaceKey, Reliability, State};
use super::memory::{Memory, pieces};
use super::message::{self, DATA_HEADER_BYTES, DataHeader};
use super::queue::QueueKey;
use crate::channel::ChannelKey;
use crate::endpoint::{Delivery, Endpoint, PostError};
use crate::ring::INLINE_BYTES;

/// All interfaces of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Engine {
    pub(super) memory: Memory,
    pub(super) interfaces: Vec<Interface>,
    by_channel: BTreeMap<ChannelKey, usize>,
    /// Completed descriptors, by completion queue.
    queues: Vec<VecDeque<(InterfaceKey, Side)>>,
    /// Peers that want a connection.
    pub(super) requests: VecDeque<(ChannelKey, Reliability)>,
    /// Short messages that are still to be sent.
    outbox: VecDeque<(ChannelKey, u8, Vec<u8>)>,
    /// Channels that are done with once the outbox has nothing more for them.
    closing: Vec<ChannelKey>,
    /// A message as it came, copied before it is looked at.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Engine {
    pub(super) fn new_queue(&mut self) -> QueueKey {
        self.queues.push(VecDeque::new());
        QueueKey(u32::try_from(self.queues.len() - 1).expect("fewer than 4 G completion queues"))
    }

    /// The next completion that a queue tells of. Those that were taken from the interface itself are passed over.
    pub(super) fn take_from(&mut self, queue: QueueKey) -> Option<Completion> {
        loop {
            let (interface, side) = self.queues.get_mut(queue.0 as usize)?.pop_front()?;
            let interface = &mut self.interfaces[interface.index as usize];
            let key = interface.key;
            if let Some(completion) = interface.queue(side).take(key, side) {
                return Some(completion);
            }
        }
    }

    pub(super) fn bind(&mut self, index: usize, channel: ChannelKey, peer: String, state: State) {
        let interface = &mut self.interfaces[index];
        interface.peer = peer;
        interface.state = state;
        self.by_channel.insert(channel, index);
    }

    pub(super) fn tell(&mut self, channel: ChannelKey, kind: u8, content: &[u8]) {
        self.outbox.push_back((channel, kind, content.to_vec()));
    }

    /// Closes a channel after what is to be said on it.
    pub(super) fn close(&mut self, channel: ChannelKey) {
        self.by_channel.remove(&channel);
        self.requests.retain(|(asking, _)| *asking != channel);
        self.closing.push(channel);
    }

    /// Whether something waits for room in a channel.
    pub(super) fn has_unsent(&mut self) -> bool {
        !self.outbox.is_empty()
            || self.interfaces.iter_mut().any(|interface| {
                matches!(interface.state, State::Connected(_)) && interface.sends.first_unsent().is_some()
            })
    }

    /// Tells the completion queues of what is newly complete.
    pub(super) fn announce(&mut self, index: usize) {
        let interface = &mut self.interfaces[index];
        let options = interface.options;
        for (side, queue) in [(Side::Send, options.send_queue), (Side::Receive, options.receive_queue)] {
            let new = interface.queue(side).announce();
            if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue.0 as usize)) {
                queue.extend(std::iter::repeat_n((interface.key, side), new));
            }
        }
    }

    /// Ends a connection on our side, and says so to the peer if it does not know.
    pub(super) fn break_connection(&mut self, index: usize, loss: Loss, tell: bool) {
        let interface = &mut self.interfaces[index];
        let channel = interface.channel();
        let code = match loss {
            Loss::NoDescriptor => 1,
            Loss::TooLong => 2,
            Loss::Memory => 3,
            _ => 0,
        };
        interface.lose(loss);
        self.announce(index);
        let Some(channel) = channel else { return };
        if tell {
            self.tell(channel, message::BROKEN, &[code]);
        }
        self.close(channel);
    }

    pub(super) fn channel_ended(&mut self, channel: ChannelKey, loss: Loss) {
        self.outbox.retain(|(to, ..)| *to != channel);
        self.closing.retain(|closing| *closing != channel);
        self.requests.retain(|(asking, _)| *asking != channel);
        if let Some(&index) = self.by_channel.get(&channel) {
            self.by_channel.remove(&channel);
            self.interfaces[index].lose(loss);
            self.announce(index);
        }
    }

    // ── receiving ──

    pub(super) fn deliver(&mut self, delivery: &Delivery<'_>) {
        let mut content = std::mem::take(&mut self.incoming);
        content.resize(delivery.payload.len(), 0);
        delivery.payload.copy_to(&mut content);
        if let Err(rule) = self.take(delivery.channel, delivery.kind, &content) {
            match self.by_channel.get(&delivery.channel) {
                Some(&index) => self.break_connection(index, Loss::Breach(rule), false),
                None => self.close(delivery.channel),
            }
        }
        self.incoming = content;
    }

    fn take(&mut self, channel: ChannelKey, kind: u8, content: &[u8]) -> Result<(), &'static str> {
        let Some(&index) = self.by_channel.get(&channel) else {
            if self.closing.contains(&channel) {
                return Ok(());
            }
            if kind != message::CONNECT || self.requests.iter().any(|(asking, _)| *asking == channel) {
                return Err("a message before the connection");
            }
            let reliability = message::decode_connect(content)?;
            self.requests.push_back((channel, reliability));
            return Ok(());
        };
        let interface = &mut self.interfaces[index];
        match (kind, &interface.state) {
            (message::ACCEPTED, State::Asked(_)) => interface.state = State::Connected(channel),
            (message::REFUSED, State::Asked(_)) => {
                let reason: String = String::from_utf8_lossy(content).chars().take(1000).collect();
                interface.state = State::Refused(reason);
                self.close(channel);
            }
            (message::DATA, State::Connected(_)) => {
                let (header, fragment) = DataHeader::decode(content)?;
                self.take_fragment(index, header, fragment)?;
                self.announce(index);
            }
            (message::ACKNOWLEDGED, State::Connected(_)) => {
                let entry = interface.sends.first_unacknowledged();
                let entry = entry.ok_or("an acknowledgement of nothing")?;
                entry.outcome = Some(Ok(entry.descriptor.bytes()));
                self.announce(index);
            }
            (message::BROKEN, State::Connected(_)) => {
                let loss = match content {
                    [1] => Loss::NoDescriptor,
                    [2] => Loss::TooLong,
                    [3] => Loss::Memory,
                    _ => return Err("it ended the connection without a reason"),
                };
                self.break_connection(index, loss, false);
            }
            _ => return Err("a message out of its turn"),
        }
        Ok(())
    }

    fn take_fragment(
        &mut self,
        index: usize,
        header: DataHeader,
        fragment: &[u8],
    ) -> Result<(), &'static str> {
        let (total, offset) = (header.total as usize, header.offset as usize);
        let interface = &mut self.interfaces[index];
        let mut assembly = match interface.assembly.take() {
            None if offset == 0 => match self.begin(index, header) {
                Some(assembly) => assembly,
                None => return Ok(()),
            },
            Some(assembly) if (assembly.total, assembly.received) == (total, offset) && !header.written => {
                assembly
            }
            _ => return Err("a fragment that does not continue its message"),
        };
        if header.written {
            return if fragment.is_empty() {
                assembly.received = total;
                self.finish(index, assembly);
                Ok(())
            } else {
                Err("a notice of an RDMA write with content")
            };
        }
        if fragment.len() > total - offset || (fragment.is_empty() && total > 0) {
            return Err("a fragment that is empty or beyond its message's end");
        }
        if let Some(work) = assembly.into {
            let interface = &mut self.interfaces[index];
            let entry = interface.receives.entry(work).expect("open until its message is whole");
            if let Err(error) = self.memory.scatter(&entry.descriptor.spans, offset, fragment) {
                entry.outcome = Some(Err(error.into()));
                self.refuse_message(index, Loss::Memory);
                assembly.into = None;
            }
        }
        assembly.received += fragment.len();
        if assembly.received == total {
            self.finish(index, assembly);
        } else if matches!(self.interfaces[index].state, State::Connected(_)) {
            self.interfaces[index].assembly = Some(assembly);
        }
        Ok(())
    }

    /// Finds the receive descriptor for a message. `None`: the connection is broken.
    fn begin(&mut self, index: usize, header: DataHeader) -> Option<Assembly> {
        let bytes = header.total as usize;
        let mut assembly = Assembly { total: bytes, received: 0, into: None, immediate: header.immediate };
        let fits = match self.interfaces[index].receives.first_open() {
            None => Err(Loss::NoDescriptor),
            Some(entry) => {
                let room = entry.descriptor.bytes();
                if bytes <= room || header.written {
                    Ok(entry.work)
                } else {
                    entry.outcome = Some(Err(WorkError::TooLong { bytes, room }));
                    Err(Loss::TooLong)
                }
            }
        };
        match fits {
            Ok(work) => assembly.into = Some(work),
            Err(loss) => {
                self.refuse_message(index, loss);
                if !matches!(self.interfaces[index].state, State::Connected(_)) {
                    return None;
                }
            }
        }
        Some(assembly)
    }

    /// A message cannot be taken: dropped and counted, or the end of the connection.
    fn refuse_message(&mut self, index: usize, loss: Loss) {
        let interface = &mut self.interfaces[index];
        if interface.options.reliability == Reliability::Unreliable {
            interface.dropped += 1;
        } else {
            self.break_connection(index, loss, true);
        }
    }

    fn finish(&mut self, index: usize, assembly: Assembly) {
        let interface = &mut self.interfaces[index];
        let Some(work) = assembly.into else { return };
        let entry = interface.receives.entry(work).expect("open until its message is whole");
        entry.immediate = assembly.immediate;
        entry.outcome = Some(Ok(assembly.total));
        if let (Reliability::Reception, Some(channel)) = (interface.options.reliability, interface.channel())
        {
            self.tell(channel, message::ACKNOWLEDGED, &[]);
        }
    }

    // ── sending ──

    /// Hands over as much as the channels take.
    pub(super) fn transmit(&mut self, endpoint: &mut Endpoint) {
        self.send_outbox(endpoint);
        for index in 0..self.interfaces.len() {
            self.transmit_work(index, endpoint);
        }
        let (outbox, closing) = (&self.outbox, &mut self.closing);
        closing.retain(|channel| {
            let unsaid = outbox.iter().any(|(to, ..)| to == channel);
            if !unsaid {
                endpoint.close(*channel);
            }
            unsaid
        });
    }

    fn send_outbox(&mut self, endpoint: &mut Endpoint) {
        // A full channel holds back its own messages only.
        let mut full = Vec::new();
        let mut ended = Vec::new();
        self.outbox.retain(|(channel, kind, content)| {
            if full.contains(channel) {
                return true;
            }
            match endpoint.post(*channel, *kind, content) {
                Err(PostError::Full(_)) => full.push(*channel),
                Err(PostError::Ended(end)) => ended.push(end),
                Ok(()) | Err(_) => {}
            }
            full.contains(channel)
        });
        for end in ended {
            self.channel_ended(end.channel, Loss::Ended(end.cause));
        }
    }

    /// Hands over as much of one interface's work as its channel takes.
    pub(super) fn transmit_work(&mut self, index: usize, endpoint: &mut Endpoint) {
        if !matches!(self.interfaces[index].state, State::Connected(_)) {
            return;
        }
        match self.try_work(index, endpoint) {
            Ok(()) | Err(PostError::Full(_)) => {}
            Err(PostError::Ended(ended)) => self.channel_ended(ended.channel, Loss::Ended(ended.cause)),
            Err(_) => self.break_connection(index, Loss::Breach("its channel takes no messages"), false),
        }
        self.announce(index);
    }

    fn try_work(&mut self, index: usize, endpoint: &mut Endpoint) -> Result<(), PostError> {
        let interface = &mut self.interfaces[index];
        let Some(channel) = interface.channel() else { return Ok(()) };
        let longest = endpoint.longest_message(channel).ok_or(PostError::NoChannel)?;
        // A quarter of what the channel takes at once, so that the receiver copies one fragment while we write another;
        // but never smaller than a slot.
        let longest = (longest / 4).max(INLINE_BYTES) - DATA_HEADER_BYTES;
        while let Some(entry) = interface.sends.first_unsent() {
            let spans = &entry.descriptor.spans;
            let total = entry.descriptor.bytes();
            let mut header = DataHeader {
                total: u32::try_from(total).expect("checked when it was posted"),
                offset: 0,
                immediate: entry.descriptor.immediate,
                written: false,
            };
            let to_window = match entry.descriptor.operation {
                Operation::Write { window, offset } => Some((window, offset)),
                Operation::Read { window, offset } => {
                    let read = interface.windows.get(&window).ok_or(unknown(window)).and_then(|window| {
                        for (span, at) in pieces(spans, 0, total) {
                            self.outgoing.resize(span.bytes, 0);
                            endpoint.get(window, offset.saturating_add(at), &mut self.outgoing)?;
                            self.memory.write(span.memory, span.offset, &self.outgoing)?;
                        }
                        Ok(total)
                    });
                    entry.outcome = Some(read);
                    continue;
                }
                Operation::Send | Operation::Receive => None,
            };
            if let Some((window, offset)) = to_window {
                // Done again if the notice found no room: the bytes are the same.
                let written = interface.windows.get(&window).ok_or(unknown(window)).and_then(|window| {
                    for (span, at) in pieces(spans, 0, total) {
                        self.outgoing.resize(span.bytes, 0);
                        self.memory.read(span.memory, span.offset, &mut self.outgoing)?;
                        endpoint.put(window, offset.saturating_add(at), &self.outgoing)?;
                    }
                    Ok(total)
                });
                if written.is_err() || entry.descriptor.immediate.is_none() {
                    entry.outcome = Some(written);
                    continue;
                }
                header.written = true;
                endpoint.post(channel, message::DATA, &header.encode())?;
            } else {
                loop {
                    let bytes = longest.min(total - entry.sent_bytes);
                    self.outgoing.resize(bytes, 0);
                    if let Err(error) = self.memory.gather(spans, entry.sent_bytes, &mut self.outgoing) {
                        debug_assert_eq!(entry.sent_bytes, 0, "memory in use is not deregistered");
                        entry.outcome = Some(Err(error.into()));
                        break;
                    }
                    header.offset = u32::try_from(entry.sent_bytes).expect("less than the total");
                    let parts: [&[u8]; 2] = [&header.encode(), &self.outgoing];
                    endpoint.post_gathered(channel, message::DATA, &parts)?;
                    entry.sent_bytes += bytes;
                    if entry.sent_bytes == total {
                        break;
                    }
                }
            }
            entry.sent = true;
            if interface.options.reliability != Reliability::Reception {
                entry.outcome.get_or_insert(Ok(total));
            }
        }
        Ok(())
    }

    /// Whether a posted descriptor names the memory.
    pub(super) fn uses(&self, memory: super::memory::MemoryHandle) -> bool {
        let queues = self.interfaces.iter().flat_map(|interface| [&interface.sends, &interface.receives]);
        queues.flat_map(|queue| queue.open()).any(|open| open.spans.iter().any(|span| span.memory == memory))
    }

    /// What is wrong with a descriptor from the start.
    pub(super) fn examine(
        &self,
        index: usize,
        descriptor: &super::descriptor::Descriptor,
    ) -> Result<(), WorkError> {
        let options = &self.interfaces[index].options;
        self.memory.check(options.tag, &descriptor.spans)?;
        let bytes = descriptor.bytes();
        if u32::try_from(bytes).is_err() {
            return Err(WorkError::Beyond(bytes));
        }
        let read = matches!(descriptor.operation, Operation::Read { .. });
        if read && options.reliability == Reliability::Unreliable {
            return Err(WorkError::Unreliable);
        }
        Ok(())
    }

    pub(super) fn is_complete(&self, index: usize, side: Side, work: WorkId) -> bool {
        let interface = &self.interfaces[index];
        match side {
            Side::Send => interface.sends.is_complete(work),
            Side::Receive => interface.receives.is_complete(work),
        }
    }
}

fn unknown(window: u32) -> WorkError {
    crate::window::AccessError::Unknown(window).into()
}

#[cfg(test)]
mod tests {
    use super::super::descriptor::{Descriptor, Span};
    use super::super::interface::InterfaceOptions;
    use super::*;
    use proptest::prelude::*;

    const CHANNEL: ChannelKey = ChannelKey { index: 0, epoch: 1 };

    /// A connected interface with two receives of 100 bytes, and no endpoint under it.
    fn engine(reliability: Reliability) -> Engine {
        let mut engine = Engine::default();
        let tag = engine.memory.new_tag();
        let memory = engine.memory.register(super::super::memory::Backing::Private(vec![0; 100]), tag);
        let options = InterfaceOptions { reliability, ..InterfaceOptions::new(tag) };
        let mut interface = Interface::new(InterfaceKey { index: 0 }, options);
        for _ in 0..2 {
            let span = Span { memory, offset: 0, bytes: 100 };
            interface.receives.push(Descriptor::receive(&[span]), None);
        }
        engine.interfaces.push(interface);
        engine.bind(0, CHANNEL, "mallory/desk".into(), State::Connected(CHANNEL));
        engine
    }

    fn fragment(total: u32, offset: u32, bytes: usize) -> Vec<u8> {
        let mut message = DataHeader { total, offset, immediate: None, written: false }.encode().to_vec();
        message.resize(DATA_HEADER_BYTES + bytes, 7);
        message
    }

    #[test]
    fn fragments_that_do_not_fit_together_are_a_breach() {
        let breaks = |messages: &[(u8, Vec<u8>)]| {
            let mut engine = engine(Reliability::Delivery);
            let (last, before) = messages.split_last().unwrap();
            for (kind, content) in before {
                engine.take(CHANNEL, *kind, content).unwrap();
            }
            engine.take(CHANNEL, last.0, &last.1).unwrap_err();
        };
        breaks(&[(message::DATA, fragment(20, 10, 10))]);
        breaks(&[(message::DATA, fragment(20, 0, 21))]);
        breaks(&[(message::DATA, fragment(20, 0, 0))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::DATA, fragment(20, 0, 10))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::DATA, fragment(90, 10, 80))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::DATA, fragment(20, 10, 11))]);
        breaks(&[(message::ACKNOWLEDGED, vec![])]);
        breaks(&[(message::CONNECT, vec![1, 1])]);
        breaks(&[(message::BROKEN, vec![9])]);
        breaks(&[(3, b"an application's".to_vec())]);
    }

    proptest! {
        #[test]
        fn no_messages_do_harm(
            reliability in 0_u8..3,
            messages in prop::collection::vec(
                (0x8F_u8..0x97, 0_u32..120, 0_u32..120, 0_u32..4, 0_usize..120, any::<bool>()), 1..30),
        ) {
            let mut engine = engine(Reliability::from_code(reliability).unwrap());
            for (kind, total, offset, flags, bytes, garbled) in messages {
                let mut content = fragment(total, offset, bytes);
                content[12] = u8::try_from(flags).unwrap();
                if garbled {
                    content.truncate(bytes);
                }
                let _ = engine.take(CHANNEL, kind, &content);
                let receives = &mut engine.interfaces[0].receives;
                while let Some(done) = receives.take(InterfaceKey { index: 0 }, Side::Receive) {
                    prop_assert!(done.outcome.is_err() || done.outcome.unwrap() <= 120);
                }
            }
        }
    }
}
