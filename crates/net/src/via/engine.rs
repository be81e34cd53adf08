//! The part that a network interface would do: takes fragments in, sends work out. It never waits.

use std::collections::VecDeque;

use super::descriptor::{Completion, Descriptor, Loss, Operation, Side, WorkError, WorkId};
use super::interface::{Assembly, Interface, InterfaceKey, InterfaceOptions, Reliability, State};
use super::memory::{Memory, MemoryHandle};
use super::message::{self, DATA_HEADER_BYTES, DataHeader};
use super::mover::Mover;
use super::places::{Place, Places};
use super::queue::QueueKey;
use crate::channel::ChannelKey;
use crate::endpoint::{Delivery, Endpoint, PostError};
use crate::payload::Payload;

/// All interfaces of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Engine {
    pub(super) memory: Memory,
    pub(super) interfaces: Places<Interface>,
    by_channel: ByChannel,
    /// Completed descriptors, by completion queue.
    queues: Places<VecDeque<(InterfaceKey, Side)>>,
    /// Peers that want a connection.
    pub(super) requests: VecDeque<(ChannelKey, Reliability)>,
    /// Interfaces with work that found no room in its channel.
    waiting: Vec<Place>,
    /// Short messages that are still to be sent.
    outbox: VecDeque<(ChannelKey, u8, Vec<u8>)>,
    /// Channels that are done with once the outbox has nothing more for them.
    closing: Vec<ChannelKey>,
    /// What cannot be sent from where it is.
    buffer: Vec<u8>,
}

/// Whose a channel is: looked up for every message.
#[derive(Debug, Default)]
struct ByChannel(Vec<Option<(ChannelKey, Place)>>);

impl ByChannel {
    #[inline]
    fn get(&self, channel: ChannelKey) -> Option<Place> {
        let (key, place) = (*self.0.get(channel.index as usize)?)?;
        (key == channel).then_some(place)
    }

    fn insert(&mut self, channel: ChannelKey, place: Place) {
        let index = channel.index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some((channel, place));
    }

    fn remove(&mut self, channel: ChannelKey) -> Option<Place> {
        let place = self.get(channel)?;
        self.0[channel.index as usize] = None;
        Some(place)
    }
}

impl Engine {
    pub(super) fn new_queue(&mut self) -> QueueKey {
        QueueKey(self.queues.add(|_| VecDeque::new()))
    }

    pub(super) fn remove_queue(&mut self, queue: QueueKey) {
        self.queues.remove(queue.0);
    }

    pub(super) fn new_interface(&mut self, options: InterfaceOptions) -> InterfaceKey {
        InterfaceKey(self.interfaces.add(|place| Interface::new(InterfaceKey(place), options)))
    }

    /// Ends an interface with its connection and whatever stood in its queues.
    pub(super) fn remove_interface(&mut self, key: InterfaceKey) {
        let place = key.0;
        let Some(interface) = self.interfaces.get(place) else { return };
        if interface.channel().is_some() {
            self.break_connection(place, Loss::Disconnected, false);
        }
        for side in [Side::Send, Side::Receive] {
            let interface = &mut self.interfaces[place];
            let told = interface.queue(side).is_told_of();
            if let Some(queue) = interface.completion_queue(side).filter(|_| told)
                && let Some(queue) = self.queues.get_mut(queue.0)
            {
                queue.retain(|(of, _)| *of != key);
            }
        }
        self.waiting.retain(|waiting| *waiting != place);
        self.interfaces.remove(place);
    }

    /// The next completion that a queue tells of. Those that were taken from the interface itself are passed over.
    pub(super) fn take_from(&mut self, queue: QueueKey) -> Option<Completion> {
        loop {
            let (key, side) = self.queues.get_mut(queue.0)?.pop_front()?;
            let queue = self.interfaces[key.0].queue(side);
            queue.told_of();
            if let Some(completion) = queue.take(key, side) {
                return Some(completion);
            }
        }
    }

    pub(super) fn bind(&mut self, place: Place, channel: ChannelKey, peer: String, state: State) {
        let interface = &mut self.interfaces[place];
        interface.peer = peer;
        interface.state = state;
        self.by_channel.insert(channel, place);
    }

    pub(super) fn tell(&mut self, channel: ChannelKey, kind: u8, content: &[u8]) {
        self.outbox.push_back((channel, kind, content.to_vec()));
    }

    /// Closes a channel after what is to be said on it.
    pub(super) fn close(&mut self, channel: ChannelKey) {
        self.by_channel.remove(channel);
        self.requests.retain(|(asking, _)| *asking != channel);
        self.closing.push(channel);
    }

    /// Whether something waits for room in a channel.
    pub(super) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty() || !self.waiting.is_empty()
    }

    /// Counts what is newly complete, and tells its completion queue.
    #[inline]
    pub(super) fn announce(&mut self, place: Place, side: Side) {
        let interface = &mut self.interfaces[place];
        interface.queue(side).announce();
        if let Some(queue) = interface.completion_queue(side)
            && let Some(queue) = self.queues.get_mut(queue.0)
        {
            let new = interface.queue(side).tell();
            queue.extend(std::iter::repeat_n((interface.key, side), new));
        }
    }

    /// Ends a connection on our side, and says so to the peer if it does not know.
    pub(super) fn break_connection(&mut self, place: Place, loss: Loss, tell: bool) {
        let channel = self.interfaces[place].channel();
        let code = match loss {
            Loss::NoDescriptor => 1,
            Loss::TooLong => 2,
            Loss::Memory => 3,
            _ => 0,
        };
        self.lose(place, loss);
        let Some(channel) = channel else { return };
        if tell {
            self.tell(channel, message::BROKEN, &[code]);
        }
        self.close(channel);
    }

    fn lose(&mut self, place: Place, loss: Loss) {
        self.interfaces[place].lose(loss);
        self.announce(place, Side::Send);
        self.announce(place, Side::Receive);
    }

    pub(super) fn channel_ended(&mut self, channel: ChannelKey, loss: Loss) {
        self.outbox.retain(|(to, ..)| *to != channel);
        self.closing.retain(|closing| *closing != channel);
        self.requests.retain(|(asking, _)| *asking != channel);
        if let Some(place) = self.by_channel.remove(channel) {
            self.lose(place, loss);
        }
    }

    // ── receiving ──

    #[inline]
    pub(super) fn deliver(&mut self, delivery: &Delivery<'_>) {
        if let Err(rule) = self.take(delivery.channel, delivery.kind, &delivery.payload) {
            self.broke_a_rule(delivery.channel, rule);
        }
    }

    #[cold]
    fn broke_a_rule(&mut self, channel: ChannelKey, rule: &'static str) {
        match self.by_channel.get(channel) {
            Some(place) => self.break_connection(place, Loss::Breach(rule), false),
            None => self.close(channel),
        }
    }

    #[inline]
    fn take(&mut self, channel: ChannelKey, kind: u8, content: &Payload<'_>) -> Result<(), &'static str> {
        let connected = self.by_channel.get(channel).filter(|&place| self.interfaces[place].is_connected());
        let (Some(place), message::DATA | message::WHOLE) = (connected, kind) else {
            return self.take_control(channel, kind, &content.to_vec());
        };
        if kind == message::WHOLE {
            if self.take_at_once(place, content) {
                return Ok(());
            }
            let total = u32::try_from(content.len()).map_err(|_| "a message of 4 GB")?;
            let header = DataHeader { total, offset: 0, immediate: None, written: false };
            self.take_fragment(place, header, content, 0)?;
        } else {
            self.take_fragment(place, DataHeader::decode(content)?, content, DATA_HEADER_BYTES)?;
        }
        self.announce(place, Side::Receive);
        Ok(())
    }

    fn take_control(&mut self, channel: ChannelKey, kind: u8, content: &[u8]) -> Result<(), &'static str> {
        let Some(place) = self.by_channel.get(channel) else {
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
        let interface = &mut self.interfaces[place];
        match (kind, &interface.state) {
            (message::ACCEPTED, State::Asked(_)) => interface.state = State::Connected(channel),
            (message::REFUSED, State::Asked(_)) => {
                let reason: String = String::from_utf8_lossy(content).chars().take(1000).collect();
                interface.state = State::Refused(reason);
                self.close(channel);
            }
            (message::ACKNOWLEDGED, State::Connected(_)) => {
                let entry = interface.sends.first_unacknowledged();
                let entry = entry.ok_or("an acknowledgement of nothing")?;
                entry.outcome = Some(Ok(entry.descriptor.bytes()));
                self.announce(place, Side::Send);
            }
            (message::BROKEN, State::Connected(_)) => {
                let loss = match content {
                    [1] => Loss::NoDescriptor,
                    [2] => Loss::TooLong,
                    [3] => Loss::Memory,
                    _ => return Err("it ended the connection without a reason"),
                };
                self.break_connection(place, loss, false);
            }
            _ => return Err("a message out of its turn"),
        }
        Ok(())
    }

    /// What most messages are: whole, for a descriptor that is long enough. `false`: nothing was done.
    #[inline]
    fn take_at_once(&mut self, place: Place, content: &Payload<'_>) -> bool {
        let interface = &mut self.interfaces[place];
        let Some((_, entry)) = interface.receives.first_open() else { return false };
        let bytes = content.len();
        if interface.assembly.is_some()
            || bytes > entry.descriptor.bytes()
            || self.memory.scatter(entry.descriptor.spans(), 0, content, 0).is_err()
        {
            return false;
        }
        entry.outcome = Some(Ok(bytes));
        if let (Reliability::Reception, Some(channel)) = (interface.options.reliability, interface.channel())
        {
            self.tell(channel, message::ACKNOWLEDGED, &[]);
        }
        self.announce(place, Side::Receive);
        true
    }

    /// Takes a fragment whose bytes stand behind the first `start` of the content.
    #[inline]
    fn take_fragment(
        &mut self,
        place: Place,
        header: DataHeader,
        content: &Payload<'_>,
        start: usize,
    ) -> Result<(), &'static str> {
        let (total, offset) = (header.total as usize, header.offset as usize);
        let bytes = content.len() - start;
        let mut assembly = match self.interfaces[place].assembly.take() {
            None if offset == 0 => match self.begin(place, header) {
                Some(assembly) => assembly,
                None => return Ok(()),
            },
            Some(assembly) if (assembly.total, assembly.received) == (total, offset) && !header.written => {
                assembly
            }
            _ => return Err("a fragment that does not continue its message"),
        };
        if header.written {
            if bytes > 0 {
                return Err("a notice of an RDMA write with content");
            }
            self.finish(place, assembly);
            return Ok(());
        }
        if bytes > total - offset || (bytes == 0 && total > 0) {
            return Err("a fragment that is empty or beyond its message's end");
        }
        if let Some(work) = assembly.into {
            let receives = &mut self.interfaces[place].receives;
            let entry = receives.entry(work).expect("open until its message is whole");
            if let Err(error) = self.memory.scatter(entry.descriptor.spans(), offset, content, start) {
                entry.outcome = Some(Err(Box::new(error.into())));
                self.refuse_message(place, Loss::Memory);
                assembly.into = None;
            }
        }
        assembly.received += bytes;
        if assembly.received == total {
            self.finish(place, assembly);
        } else if self.interfaces[place].is_connected() {
            self.interfaces[place].assembly = Some(assembly);
        }
        Ok(())
    }

    /// Finds the receive descriptor for a message. `None`: the connection is broken.
    #[inline]
    fn begin(&mut self, place: Place, header: DataHeader) -> Option<Assembly> {
        let bytes = header.total as usize;
        let mut assembly = Assembly { total: bytes, received: 0, into: None, immediate: header.immediate };
        let loss = match self.interfaces[place].receives.first_open() {
            None => Loss::NoDescriptor,
            Some((work, entry)) => {
                let room = entry.descriptor.bytes();
                if bytes <= room || header.written {
                    assembly.into = Some(work);
                    return Some(assembly);
                }
                entry.outcome = Some(Err(Box::new(WorkError::TooLong { bytes, room })));
                Loss::TooLong
            }
        };
        self.refuse_message(place, loss);
        self.interfaces[place].is_connected().then_some(assembly)
    }

    /// A message cannot be taken: dropped and counted, or the end of the connection.
    #[cold]
    fn refuse_message(&mut self, place: Place, loss: Loss) {
        let interface = &mut self.interfaces[place];
        if interface.options.reliability == Reliability::Unreliable {
            interface.dropped += 1;
        } else {
            self.break_connection(place, loss, true);
        }
    }

    #[inline]
    fn finish(&mut self, place: Place, assembly: Assembly) {
        let interface = &mut self.interfaces[place];
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
    #[inline]
    pub(super) fn transmit(&mut self, endpoint: &mut Endpoint) {
        if self.has_unsent() || !self.closing.is_empty() {
            self.transmit_all(endpoint);
        }
    }

    fn transmit_all(&mut self, endpoint: &mut Endpoint) {
        self.send_outbox(endpoint);
        for place in std::mem::take(&mut self.waiting) {
            self.interfaces[place].waits = false;
            self.transmit_work(place, endpoint);
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
    #[inline]
    pub(super) fn transmit_work(&mut self, place: Place, endpoint: &mut Endpoint) {
        let State::Connected(channel) = self.interfaces[place].state else { return };
        match self.try_work(place, channel, endpoint) {
            Ok(()) => {}
            Err(PostError::Full(_)) => {
                if !std::mem::replace(&mut self.interfaces[place].waits, true) {
                    self.waiting.push(place);
                }
            }
            Err(PostError::Ended(ended)) => self.channel_ended(ended.channel, Loss::Ended(ended.cause)),
            Err(_) => self.break_connection(place, Loss::Breach("its channel takes no messages"), false),
        }
        self.announce(place, Side::Send);
    }

    #[inline]
    fn try_work(
        &mut self,
        place: Place,
        channel: ChannelKey,
        endpoint: &mut Endpoint,
    ) -> Result<(), PostError> {
        let interface = &mut self.interfaces[place];
        let mut mover = Mover { endpoint, channel, memory: &mut self.memory, buffer: &mut self.buffer };
        while let Some((entry, sent_bytes)) = interface.sends.first_unsent() {
            let descriptor = &entry.descriptor;
            let total = descriptor.bytes();
            match descriptor.operation {
                Operation::Read { window, offset } => {
                    let window = interface.windows.get(&window).ok_or(unknown(window));
                    let read = window.and_then(|window| mover.read(window, offset, descriptor.spans()));
                    entry.outcome = Some(read.map(|()| total).map_err(Box::new));
                    continue;
                }
                Operation::Write { window, offset } => {
                    // Done again if the notice found no room: the bytes are the same.
                    let window = interface.windows.get(&window).ok_or(unknown(window));
                    let written = window.and_then(|window| mover.write(window, offset, descriptor.spans()));
                    if written.is_err() || descriptor.immediate.is_none() {
                        entry.outcome = Some(written.map(|()| total).map_err(Box::new));
                        continue;
                    }
                    let header = DataHeader { written: true, ..header_of(descriptor) };
                    mover.endpoint.post(channel, message::DATA, &header.encode())?;
                }
                Operation::Send | Operation::Receive => {
                    mover.send(&header_of(descriptor), descriptor.spans(), sent_bytes)?;
                }
            }
            if interface.options.reliability != Reliability::Reception {
                entry.outcome = Some(Ok(total));
            }
            interface.sends.sent();
        }
        Ok(())
    }

    /// Whether a posted descriptor names the memory.
    pub(super) fn uses(&self, memory: MemoryHandle) -> bool {
        let queues = self.interfaces.iter().flat_map(|interface| [&interface.sends, &interface.receives]);
        queues
            .flat_map(|queue| queue.open())
            .any(|open| open.spans().iter().any(|span| span.memory == memory))
    }

    pub(super) fn is_complete(&self, key: InterfaceKey, side: Side, work: WorkId) -> bool {
        self.interfaces.get(key.0).is_some_and(|interface| match side {
            Side::Send => interface.sends.is_complete(work),
            Side::Receive => interface.receives.is_complete(work),
        })
    }
}

#[inline]
fn header_of(descriptor: &Descriptor) -> DataHeader {
    DataHeader {
        total: u32::try_from(descriptor.bytes()).expect("checked when it was posted"),
        offset: 0,
        immediate: descriptor.immediate,
        written: false,
    }
}

fn unknown(window: u32) -> WorkError {
    crate::window::AccessError::Unknown(window).into()
}

#[cfg(test)]
mod tests {
    use super::super::descriptor::Span;
    use super::*;
    use proptest::prelude::*;

    const CHANNEL: ChannelKey = ChannelKey { index: 0, epoch: 1 };

    /// A connected interface with two receives of 100 bytes, and no endpoint under it.
    fn engine(reliability: Reliability) -> (Engine, InterfaceKey) {
        let mut engine = Engine::default();
        let tag = engine.memory.new_tag();
        let memory = engine.memory.register(super::super::memory::Backing::Private(vec![0; 100]), tag);
        let options = InterfaceOptions { reliability, ..InterfaceOptions::new(tag) };
        let key = engine.new_interface(options);
        for _ in 0..2 {
            let span = Span { memory, offset: 0, bytes: 100 };
            engine.interfaces[key.0].receives.push(Descriptor::receive(&[span]), None);
        }
        engine.bind(key.0, CHANNEL, "mallory/desk".into(), State::Connected(CHANNEL));
        (engine, key)
    }

    fn fragment(total: u32, offset: u32, bytes: usize) -> Vec<u8> {
        let mut message = DataHeader { total, offset, immediate: None, written: false }.encode().to_vec();
        message.resize(DATA_HEADER_BYTES + bytes, 7);
        message
    }

    #[test]
    fn fragments_that_do_not_fit_together_are_a_breach() {
        let breaks = |messages: &[(u8, Vec<u8>)]| {
            let (mut engine, _) = engine(Reliability::Delivery);
            let (last, before) = messages.split_last().unwrap();
            for (kind, content) in before {
                engine.take(CHANNEL, *kind, &Payload::Private(content)).unwrap();
            }
            engine.take(CHANNEL, last.0, &Payload::Private(&last.1)).unwrap_err();
        };
        breaks(&[(message::DATA, fragment(20, 10, 10))]);
        breaks(&[(message::DATA, fragment(20, 0, 21))]);
        breaks(&[(message::DATA, fragment(20, 0, 0))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::DATA, fragment(20, 0, 10))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::DATA, fragment(90, 10, 80))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::DATA, fragment(20, 10, 11))]);
        breaks(&[(message::DATA, fragment(20, 0, 10)), (message::WHOLE, vec![7; 10])]);
        breaks(&[(message::ACKNOWLEDGED, vec![])]);
        breaks(&[(message::CONNECT, vec![1, 1])]);
        breaks(&[(message::BROKEN, vec![9])]);
        breaks(&[(3, b"an application's".to_vec())]);
    }

    /// A program may take its completions from the interface and leave the completion queue alone.
    #[test]
    fn a_completion_queue_that_nobody_reads_is_bounded_and_still_right() {
        let (mut engine, key) = engine(Reliability::Delivery);
        let queue = engine.new_queue();
        engine.interfaces[key.0].options.receive_queue = Some(queue);
        let descriptor = || Descriptor::receive(&[]);
        let message =
            |engine: &mut Engine| engine.take(CHANNEL, message::WHOLE, &Payload::Private(b"")).unwrap();
        for _ in 0..100 {
            message(&mut engine);
            assert!(engine.interfaces[key.0].receives.take(key, Side::Receive).is_some());
            engine.interfaces[key.0].receives.push(descriptor(), None);
            assert!(engine.queues[queue.0].len() <= 2, "not more than there are descriptors");
        }
        message(&mut engine);
        message(&mut engine);
        assert!(engine.take_from(queue).is_some() && engine.take_from(queue).is_some(), "each is told of");
        assert_eq!(engine.take_from(queue), None);
    }

    proptest! {
        #[test]
        fn no_messages_do_harm(
            reliability in 0_u8..3,
            messages in prop::collection::vec(
                (0x8F_u8..0x98, 0_u32..120, 0_u32..120, 0_u32..4, 0_usize..120, any::<bool>()), 1..30),
        ) {
            let (mut engine, key) = engine(Reliability::from_code(reliability).unwrap());
            for (kind, total, offset, flags, bytes, garbled) in messages {
                let mut content = fragment(total, offset, bytes);
                content[12] = u8::try_from(flags).unwrap();
                if garbled {
                    content.truncate(bytes);
                }
                let _ = engine.take(CHANNEL, kind, &Payload::Private(&content));
                let receives = &mut engine.interfaces[key.0].receives;
                while let Some(done) = receives.take(key, Side::Receive) {
                    prop_assert!(done.outcome.is_err() || done.outcome.unwrap() <= 120);
                }
            }
        }
    }
}
