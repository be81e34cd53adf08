//! Emulated endpoints: many that share one real endpoint, for programs that need no speed. (Thesis §2.3.5)
//!
//! An endpoint costs memory and a place in every agent. A program with a thousand conversations of a message a minute
//! has no use for that, and should not need another interface for it: an [`EmulatedEndpoint`] opens, accepts, sends,
//! receives and polls like a real one. Its name is `process/endpoint#name`, where `process/endpoint` is that of the
//! [`Emulator`] that owns the real one.
//!
//! Every message carries the sub-address of its receiver, four bytes that the receiver's emulator made up when the
//! channel was opened. The emulator delivers only what comes over the real channel that belongs to the sub-address: so
//! an emulated endpoint is reached only by whom it opened or accepted. What one does not receive is held back by a
//! window of messages for each channel, not for all: [`WINDOW_MESSAGES`], then the sender is refused.
//!
//! A mutex guards the real endpoint, and whoever waits moves the messages of all. There is no thread of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Delivery, Endpoint, PostError, Received};
use crate::kinds;
use crate::life::Cause;
use crate::payload::Payload;
use crate::ring::Breach;

/// Messages on their way on one emulated channel, in one direction, that the receiver has not taken.
pub const WINDOW_MESSAGES: u32 = 32;

/// Channels of all emulated endpoints of one emulator: what peers can make us keep.
const MOST_CHANNELS: usize = 4096;
/// Answers that wait for room in one real channel. Who asks on and reads none of them is cut off: each emulated channel
/// has few under way, and there are only so many.
const MOST_ANSWERS: usize = MOST_CHANNELS;
/// Emulated endpoints are for programs that do not mind; the core belongs to others meanwhile.
const NAP: Duration = Duration::from_micros(50);

/// Asks for a channel: opener's sub-address, length of the name, name, opener's own name.
const OPEN: u8 = *kinds::EMULATED.start();
/// Grants it: opener's sub-address, accepter's.
const OPENED: u8 = OPEN + 1;
/// Refuses it: opener's sub-address, reason.
const REFUSED: u8 = OPEN + 2;
/// A message: receiver's sub-address, kind, bytes.
const DATA: u8 = OPEN + 3;
/// Room for more: sender's sub-address, count.
const CREDIT: u8 = OPEN + 4;
/// The end: receiver's sub-address.
const CLOSE: u8 = OPEN + 5;

/// Owns a real endpoint and serves emulated ones from it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Emulator {
    books: Arc<Mutex<Books>>,
}

#[derive(Debug)]
struct Books {
    endpoint: Endpoint,
    /// Who lives here, by name.
    residents: BTreeMap<String, Resident>,
    /// Real channels by the address of their peer.
    routes: BTreeMap<String, ChannelKey>,
    channels: Vec<Option<Channel>>,
    next_epoch: u16,
    /// Control messages that found no room.
    outbox: VecDeque<(ChannelKey, u8, Vec<u8>)>,
    strays: u64,
}

#[derive(Debug, Default)]
struct Resident {
    arrived: VecDeque<ChannelKey>,
    inbox: VecDeque<(ChannelKey, u8, Vec<u8>)>,
    ended: VecDeque<ChannelEnded>,
}

#[derive(Debug)]
struct Channel {
    key: ChannelKey,
    resident: String,
    real: ChannelKey,
    peer: String,
    state: State,
    /// Messages that we may still send.
    credit: u32,
    /// Messages that came and were not taken.
    unread: u32,
    /// Messages that were taken and for which no credit was given yet.
    taken: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Opening,
    /// With the peer's sub-address.
    Open(u32),
    Refused(String),
}

fn sub_address(key: ChannelKey) -> u32 {
    key.index << 16 | key.epoch
}

impl Emulator {
    /// Takes a real endpoint over.
    pub fn new(mut endpoint: Endpoint) -> Self {
        // A credit that is lost would hold its channel up for ever.
        endpoint.make_reliable();
        let books = Books {
            endpoint,
            residents: BTreeMap::new(),
            routes: BTreeMap::new(),
            channels: Vec::new(),
            next_epoch: 0,
            outbox: VecDeque::new(),
            strays: 0,
        };
        Self { books: Arc::new(Mutex::new(books)) }
    }

    /// Makes an emulated endpoint.
    pub fn endpoint(&self, name: &str) -> Result<EmulatedEndpoint, RequestError> {
        let mut emulator = self.lock();
        if name.is_empty() || name.len() > 255 || name.contains(['#', '/']) {
            return Err(RequestError::Refused(format!("{name:?} is no name for an emulated endpoint")));
        }
        if emulator.residents.contains_key(name) {
            return Err(RequestError::Refused(format!("the name {name:?} is taken")));
        }
        emulator.residents.insert(name.to_owned(), Resident::default());
        Ok(EmulatedEndpoint { emulator: self.clone(), name: name.to_owned() })
    }

    /// Moves what came to the emulated endpoints that it is for. Whoever waits does so, too.
    pub fn service(&self) {
        self.lock().pump();
    }

    /// Messages to sub-addresses that are nobody's any more: what was on its way when a channel was closed.
    pub fn strays(&self) -> u64 {
        self.lock().strays
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // Each change of the emulator's books is complete before anything in it can panic.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn until<T>(&self, limit: Duration, mut attempt: impl FnMut(&mut Books) -> Option<T>) -> Option<T> {
        let until = Instant::now() + limit;
        loop {
            let mut emulator = self.lock();
            emulator.pump();
            if let Some(value) = attempt(&mut emulator) {
                return Some(value);
            }
            drop(emulator);
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(NAP);
        }
    }
}

/// An endpoint that shares a real one with others. Its channels' keys are its own: no real channel's.
#[derive(Debug)]
pub struct EmulatedEndpoint {
    emulator: Emulator,
    name: String,
}

impl EmulatedEndpoint {
    /// `process/endpoint#name`: what a peer opens.
    pub fn address(&self) -> String {
        format!("{}#{}", self.emulator.lock().endpoint.address(), self.name)
    }

    /// Opens a channel to `process/endpoint#name`. Its emulator must be serviced for the answer to come.
    pub fn open(&mut self, to: &str, limit: Duration) -> Result<ChannelKey, RequestError> {
        let Some((real, name)) = to.split_once('#').filter(|(_, name)| name.len() <= 255) else {
            return Err(RequestError::Refused(format!("{to:?} is no address: say process/endpoint#name")));
        };
        let key = self.emulator.lock().ask(&self.name, real, name, to)?;
        let answer = self.emulator.until(limit, |emulator| {
            match emulator.channel(key).map(|channel| &channel.state) {
                Some(State::Opening) => None,
                Some(State::Open(_)) => Some(Ok(key)),
                Some(State::Refused(reason)) => Some(Err(reason.clone())),
                None => Some(Err("the channel to its emulator ended".to_owned())),
            }
        });
        let reason = match answer {
            Some(Ok(key)) => return Ok(key),
            Some(Err(reason)) => reason,
            None => format!("{to} has not answered within {limit:?}"),
        };
        self.emulator.lock().remove(key);
        Err(RequestError::Refused(reason))
    }

    /// Waits for a peer to open a channel to us.
    pub fn accept(&mut self, limit: Duration) -> Option<ChannelKey> {
        self.emulator.until(limit, |emulator| emulator.resident(&self.name).arrived.pop_front())
    }

    /// `process/endpoint#name` of a channel's peer.
    pub fn peer(&self, channel: ChannelKey) -> Option<String> {
        self.emulator.lock().ours(&self.name, channel).map(|channel| channel.peer.clone())
    }

    /// Sends one message, or says at once why not.
    pub fn send(&mut self, channel: ChannelKey, kind: u8, message: &[u8]) -> Result<(), PostError> {
        let mut emulator = self.emulator.lock();
        emulator.pump();
        let Some(found) = emulator.ours(&self.name, channel) else { return Err(PostError::NoChannel) };
        let State::Open(to) = found.state else { return Err(PostError::NoChannel) };
        if found.credit == 0 {
            return Err(PostError::Full(found.peer.clone()));
        }
        let (real, peer) = (found.real, found.peer.clone());
        match emulator.endpoint.post_gathered(real, DATA, &[&to.to_le_bytes(), &[kind], message]) {
            Ok(()) => {
                emulator.ours(&self.name, channel).expect("it was just used").credit -= 1;
                Ok(())
            }
            Err(PostError::Full(_)) => Err(PostError::Full(peer)),
            Err(PostError::TooLong { bytes, limit }) => {
                Err(PostError::TooLong { bytes: bytes - 5, limit: limit.saturating_sub(5) })
            }
            Err(PostError::Ended(ended)) => {
                emulator.real_ended(&ended);
                // Told here, so not once more by the next poll.
                let resident = emulator.resident(&self.name);
                let told = resident.ended.iter().position(|ended| ended.channel == channel);
                Err(told
                    .and_then(|told| resident.ended.remove(told))
                    .map_or(PostError::NoChannel, PostError::Ended))
            }
            Err(error) => Err(error),
        }
    }

    /// Copies the next message into `buffer`.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, ChannelEnded> {
        let mut emulator = self.emulator.lock();
        emulator.pump();
        let Some((channel, kind, message)) = emulator.take(&self.name)? else { return Ok(None) };
        let taken = message.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&message[..taken]);
        Ok(Some(Received { channel, kind, bytes: message.len() }))
    }

    /// As [`EmulatedEndpoint::receive`], but waits.
    pub fn receive_within(
        &mut self,
        buffer: &mut [u8],
        limit: Duration,
    ) -> Result<Option<Received>, ChannelEnded> {
        let name = self.name.clone();
        let ready = |emulator: &mut Books| {
            let resident = emulator.resident(&name);
            (!resident.inbox.is_empty() || !resident.ended.is_empty()).then_some(())
        };
        let emulator = self.emulator.clone();
        if emulator.until(limit, ready).is_some() { self.receive(buffer) } else { Ok(None) }
    }

    /// Hands every message that has come to `deliver`, and returns how many. `Err`: one channel ended.
    pub fn poll(&mut self, mut deliver: impl FnMut(Delivery<'_>)) -> Result<usize, ChannelEnded> {
        let mut messages = 0;
        self.emulator.service();
        loop {
            // The lock is not held while the program looks at its message.
            let taken = match self.emulator.lock().take(&self.name) {
                Err(ended) if messages == 0 => return Err(ended),
                Err(ended) => {
                    self.emulator.lock().resident(&self.name).ended.push_front(ended);
                    None
                }
                Ok(taken) => taken,
            };
            let Some((channel, kind, message)) = taken else { return Ok(messages) };
            deliver(Delivery { channel, kind, payload: Payload::Private(&message) });
            messages += 1;
        }
    }

    /// Closes a channel. The peer reads what we sent before and is then told.
    pub fn close(&mut self, channel: ChannelKey) {
        let mut emulator = self.emulator.lock();
        if emulator.ours(&self.name, channel).is_some() {
            emulator.close(channel);
            emulator.resident(&self.name).inbox.retain(|(of, ..)| *of != channel);
        }
    }
}

impl Drop for EmulatedEndpoint {
    fn drop(&mut self) {
        let mut emulator = self.emulator.lock();
        let ours = emulator.channels.iter().flatten().filter(|channel| channel.resident == self.name);
        for key in ours.map(|channel| channel.key).collect::<Vec<_>>() {
            emulator.close(key);
        }
        emulator.residents.remove(&self.name);
    }
}

impl Books {
    fn resident(&mut self, name: &str) -> &mut Resident {
        self.residents.get_mut(name).expect("an emulated endpoint lives as long as its name")
    }

    fn channel(&mut self, key: ChannelKey) -> Option<&mut Channel> {
        self.channels.get_mut(key.index as usize)?.as_mut().filter(|channel| channel.key == key)
    }

    fn ours(&mut self, name: &str, key: ChannelKey) -> Option<&mut Channel> {
        self.channel(key).filter(|channel| channel.resident == name)
    }

    fn add(&mut self, resident: &str, real: ChannelKey, peer: &str, state: State) -> Option<ChannelKey> {
        let free = self.channels.iter().position(Option::is_none);
        let index = free.unwrap_or(self.channels.len());
        if index >= MOST_CHANNELS {
            return None;
        }
        // From 1 to 65535: a sub-address of all zeros is nobody's.
        self.next_epoch = self.next_epoch.checked_add(1).unwrap_or(1);
        let key = ChannelKey { index: u32::try_from(index).ok()?, epoch: u32::from(self.next_epoch) };
        let channel = Channel {
            key,
            resident: resident.to_owned(),
            real,
            peer: peer.to_owned(),
            state,
            credit: WINDOW_MESSAGES,
            unread: 0,
            taken: 0,
        };
        if index == self.channels.len() {
            self.channels.push(None);
        }
        self.channels[index] = Some(channel);
        Some(key)
    }

    fn remove(&mut self, key: ChannelKey) -> Option<Channel> {
        self.channel(key)?;
        self.channels[key.index as usize].take()
    }

    fn close(&mut self, key: ChannelKey) {
        if let Some(Channel { real, state: State::Open(to), .. }) = self.remove(key) {
            self.tell(real, CLOSE, to.to_le_bytes().to_vec());
        }
    }

    fn ask(&mut self, from: &str, to: &str, name: &str, peer: &str) -> Result<ChannelKey, RequestError> {
        let real = match self.routes.get(to).copied().filter(|&real| self.endpoint.peer(real).is_some()) {
            Some(real) => real,
            None => {
                let real = self.endpoint.open(to)?;
                self.routes.insert(to.to_owned(), real);
                real
            }
        };
        let key = self.add(from, real, peer, State::Opening);
        let key =
            key.ok_or_else(|| RequestError::Refused("this emulator has all of its channels".to_owned()))?;
        let mut message = sub_address(key).to_le_bytes().to_vec();
        message.push(u8::try_from(name.len()).expect("checked by who asks"));
        message.extend(name.as_bytes());
        message.extend(from.as_bytes());
        self.tell(real, OPEN, message);
        Ok(key)
    }

    /// Sends a control message, now or as soon as there is room.
    fn tell(&mut self, real: ChannelKey, kind: u8, message: Vec<u8>) {
        self.outbox.push_back((real, kind, message));
        self.send_outbox();
    }

    fn send_outbox(&mut self) {
        let mut blocked = Vec::new();
        for (real, kind, message) in std::mem::take(&mut self.outbox) {
            let outcome = if blocked.contains(&real) {
                Err(PostError::Full(String::new()))
            } else {
                self.endpoint.post(real, kind, &message)
            };
            match outcome {
                Err(PostError::Full(_)) => {
                    blocked.push(real);
                    self.outbox.push_back((real, kind, message));
                }
                Err(PostError::Ended(ended)) => self.real_ended(&ended),
                _ => {}
            }
        }
    }

    /// The next message for a resident, or the end of one of its channels after the last message.
    fn take(&mut self, name: &str) -> Result<Option<(ChannelKey, u8, Vec<u8>)>, ChannelEnded> {
        let resident = self.resident(name);
        let Some(message) = resident.inbox.pop_front() else {
            return resident.ended.pop_front().map_or(Ok(None), Err);
        };
        if let Some(channel) = self.channel(message.0) {
            channel.unread -= 1;
            channel.taken += 1;
            if channel.taken >= WINDOW_MESSAGES / 2
                && let State::Open(to) = channel.state
            {
                let (real, taken) = (channel.real, std::mem::take(&mut channel.taken));
                let credit = [to.to_le_bytes(), taken.to_le_bytes()].concat();
                self.tell(real, CREDIT, credit);
            }
        }
        Ok(Some(message))
    }

    fn pump(&mut self) {
        loop {
            let mut came = Vec::new();
            let outcome = self.endpoint.poll(|delivery| {
                came.push((delivery.channel, delivery.kind, delivery.payload.to_vec()));
            });
            for (real, kind, message) in came {
                // A channel may have been cut off for an earlier message of this turn.
                if self.endpoint.peer(real).is_some()
                    && let Err(breach) = self.handle(real, kind, &message)
                    && let Some(ended) = self.endpoint.end_channel(real, Cause::Breach(breach))
                {
                    self.real_ended(&ended);
                }
            }
            match outcome {
                Ok(0) => break,
                // A poll that finds nothing pauses: what has come is not to wait for that.
                Ok(_) if !self.endpoint.has_more() => break,
                Ok(_) => {}
                Err(ended) => self.real_ended(&ended),
            }
        }
        self.send_outbox();
    }

    fn handle(&mut self, real: ChannelKey, kind: u8, message: &[u8]) -> Result<(), Breach> {
        if !(OPEN..=CLOSE).contains(&kind) {
            return Err(Breach::Kind(kind));
        }
        let short = Breach::Form("a message to an emulated endpoint is shorter than its header");
        let (address, rest) = message.split_first_chunk::<4>().ok_or(short)?;
        let address = u32::from_le_bytes(*address);
        let answers = || self.outbox.iter().filter(|(to, ..)| *to == real).count();
        if matches!(kind, OPEN | OPENED) && answers() >= MOST_ANSWERS {
            return Err(Breach::Form("questions to an emulator whose answers it does not read"));
        }
        if kind == OPEN {
            return self.asked(real, address, rest);
        }
        let key = ChannelKey { index: address >> 16, epoch: address & 0xFFFF };
        let Some(channel) = self.channel(key) else {
            self.strays += 1;
            // Who gave up waiting leaves no channel behind at the other side.
            if kind == OPENED {
                self.tell(real, CLOSE, rest.to_vec());
            }
            return Ok(());
        };
        if channel.real != real {
            return Err(Breach::Form("a sub-address that belongs to another channel"));
        }
        match (kind, channel.state.clone()) {
            (OPENED, State::Opening) => {
                let to = rest.try_into().map_err(|_| short)?;
                channel.state = State::Open(u32::from_le_bytes(to));
            }
            (REFUSED, State::Opening) => {
                channel.state = State::Refused(String::from_utf8_lossy(rest).into_owned());
            }
            (DATA, State::Open(_)) => {
                let (&kind, bytes) = rest.split_first().ok_or(short)?;
                if channel.unread + channel.taken >= WINDOW_MESSAGES {
                    return Err(Breach::Form("more messages to an emulated endpoint than its window"));
                }
                channel.unread += 1;
                let resident = channel.resident.clone();
                self.resident(&resident).inbox.push_back((key, kind, bytes.to_vec()));
            }
            (CREDIT, State::Open(_)) => {
                let credit = u32::from_le_bytes(rest.try_into().map_err(|_| short)?);
                let total = channel.credit.checked_add(credit).filter(|&total| total <= WINDOW_MESSAGES);
                channel.credit = total.ok_or(Breach::Form("credit for messages that were not sent"))?;
            }
            (CLOSE, State::Open(_)) => self.end(key, Cause::Left("it closed the channel".to_owned()), None),
            _ => return Err(Breach::Form("a message that an emulated channel in this state does not take")),
        }
        Ok(())
    }

    fn asked(&mut self, real: ChannelKey, address: u32, rest: &[u8]) -> Result<(), Breach> {
        let form = Breach::Form("a request for an emulated channel without names");
        let (&length, names) = rest.split_first().ok_or(form)?;
        let (name, from) = names.split_at_checked(usize::from(length)).ok_or(form)?;
        let name = std::str::from_utf8(name).map_err(|_| form)?;
        let from = std::str::from_utf8(from).map_err(|_| form)?;
        // The emulator's name is what the agent says; only the part behind # is the peer's own word.
        let peer = format!("{}#{from}", self.endpoint.peer(real).unwrap_or_default());
        let refuse = |reason: &str| [&address.to_le_bytes()[..], reason.as_bytes()].concat();
        if !self.residents.contains_key(name) {
            let reason = refuse(&format!("no emulated endpoint {name:?} lives there"));
            self.tell(real, REFUSED, reason);
        } else if let Some(key) = self.add(name, real, &peer, State::Open(address)) {
            self.resident(name).arrived.push_back(key);
            self.tell(real, OPENED, [address.to_le_bytes(), sub_address(key).to_le_bytes()].concat());
        } else {
            self.tell(real, REFUSED, refuse("its emulator has all of its channels"));
        }
        Ok(())
    }

    fn end(&mut self, key: ChannelKey, cause: Cause, last_word: Option<u128>) {
        let Some(channel) = self.remove(key) else { return };
        let resident = self.resident(&channel.resident);
        resident.ended.push_back(ChannelEnded { channel: key, peer: channel.peer, cause, last_word });
    }

    /// The real channel has ended, and all that it carried.
    fn real_ended(&mut self, ended: &ChannelEnded) {
        self.routes.retain(|_, real| *real != ended.channel);
        self.outbox.retain(|(real, ..)| *real != ended.channel);
        let over = self.channels.iter().flatten().filter(|channel| channel.real == ended.channel);
        let over: Vec<_> = over.map(|channel| (channel.key, channel.state.clone())).collect();
        for (key, state) in over {
            match state {
                State::Open(_) => self.end(key, ended.cause.clone(), ended.last_word),
                State::Opening | State::Refused(_) => drop(self.remove(key)),
            }
        }
    }
}
