//! What each channel owes and is owed, and the sending that both sides' promises rest on.
//!
//! A side has at most `w` requests outstanding. So what it has not read of its peer's is at most `w` requests and `w`
//! replies or acknowledgements, and a ring of 4w slots always has room to complete a request, even while a quarter of
//! it is read but not yet announced. Only a reply whose payload finds no room in the payload area, or whose ring is
//! filled with other things, waits in an outbox, which is bounded by `w` too: so no handler ever waits. (Thesis §2.5.1)

use std::collections::VecDeque;

use super::wire::{ACKNOWLEDGEMENT, ARGUMENTS, Head, Message, REPLY, REQUEST};
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Endpoint, PostError};
use crate::life::Cause;
use crate::ring::Breach;

/// One channel's book.
#[derive(Debug)]
pub(super) struct Peer {
    key: ChannelKey,
    /// Our requests so far.
    pub(super) sent: u64,
    /// Those that the peer has not completed.
    pub(super) outstanding: u32,
    /// The peer's requests that were handled without a reply, and that it has not been told of.
    owed: u32,
    /// Replies that found no room.
    outbox: VecDeque<(u8, Vec<u8>)>,
    /// Whether it is on the list of those to settle with.
    listed: bool,
}

impl Peer {
    fn new(key: ChannelKey) -> Self {
        Self { key, sent: 0, outstanding: 0, owed: 0, outbox: VecDeque::new(), listed: false }
    }

    /// How many of our requests the peer has handled at least, counted from the first. It handles them in order, and
    /// completes each after it was handled: if so many are completed, then the first so many are handled, whichever the
    /// completed ones are.
    pub(super) fn handled(&self) -> u64 {
        self.sent - u64::from(self.outstanding)
    }

    fn take_owed(&mut self) -> u16 {
        let owed = u16::try_from(self.owed).unwrap_or(u16::MAX);
        self.owed -= u32::from(owed);
        owed
    }
}

/// The endpoint and the books of its channels.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) endpoint: Endpoint,
    pub(super) window: u32,
    books: Vec<Peer>,
    unsettled: Vec<ChannelKey>,
    /// Ends that were met where they could not be told.
    pub(super) ended: VecDeque<ChannelEnded>,
}

impl Peers {
    pub(super) fn new(endpoint: Endpoint, window: u32) -> Self {
        Self { endpoint, window, books: Vec::new(), unsettled: Vec::new(), ended: VecDeque::new() }
    }

    /// The book of a channel that is live.
    #[inline]
    pub(super) fn book(&mut self, key: ChannelKey) -> Option<&mut Peer> {
        let index = key.index as usize;
        if self.books.get(index).is_none_or(|book| book.key != key) {
            return self.new_book(key);
        }
        Some(&mut self.books[index])
    }

    #[cold]
    fn new_book(&mut self, key: ChannelKey) -> Option<&mut Peer> {
        self.endpoint.channel(key)?;
        let index = key.index as usize;
        for index in self.books.len()..=index {
            self.books.push(Peer::new(ChannelKey { index: u32::try_from(index).ok()?, epoch: 0 }));
        }
        self.books[index] = Peer::new(key);
        Some(&mut self.books[index])
    }

    /// Sends one message: head, arguments, data.
    #[inline]
    pub(super) fn post(&mut self, key: ChannelKey, message: Message<'_>) -> Result<(), PostError> {
        let Message { kind, head, words, data } = message;
        let mut all = [0; 7];
        all[0] = head.pack();
        all[1..=words.len()].copy_from_slice(words);
        let all = &all[..=words.len()];
        if data.is_empty() {
            return self.endpoint.send_words(key, kind, all);
        }
        let mut bytes = [[0; 8]; 7];
        for (chunk, word) in bytes.iter_mut().zip(all) {
            *chunk = word.to_le_bytes();
        }
        self.endpoint.post_gathered(key, kind, &[bytes[..all.len()].as_flattened(), data])
    }

    /// What most messages are: arguments and no data, room in the window and in the ring. `false`: nothing was sent.
    #[inline]
    fn post_small(&mut self, key: ChannelKey, kind: u8, head: Head, arguments: &[u64]) -> bool {
        let mut words = [head.pack(), 0, 0, 0, 0];
        for (word, &argument) in words[1..].iter_mut().zip(arguments) {
            *word = argument;
        }
        self.endpoint.post_words(key, kind, 8 + head.arguments * 8, &words)
    }

    /// Sends one request that needs nothing but a slot. `false`: nothing was sent.
    #[inline]
    pub(super) fn request_small(&mut self, key: ChannelKey, head: Head, arguments: &[u64]) -> bool {
        match self.books.get(key.index as usize) {
            Some(book) if book.key == key && book.outstanding < self.window && book.owed == 0 => {}
            _ => return false,
        }
        let posted = self.post_small(key, REQUEST, head, arguments);
        let book = &mut self.books[key.index as usize];
        book.outstanding += u32::from(posted);
        book.sent += u64::from(posted);
        posted
    }

    /// Sends one request, if the window has room. `Ok(false)`: it has not.
    #[inline]
    pub(super) fn request(&mut self, key: ChannelKey, message: Message<'_>) -> Result<bool, PostError> {
        let window = self.window;
        let Some(book) = self.book(key) else { return Err(PostError::NoChannel) };
        if book.outstanding >= window {
            return Ok(false);
        }
        let completes = book.take_owed();
        let head = Head { completes, ..message.head };
        let outcome = self.post(key, Message { head, ..message });
        if let Some(book) = self.book(key) {
            match outcome {
                Ok(()) => (book.outstanding, book.sent) = (book.outstanding + 1, book.sent + 1),
                Err(_) => book.owed += u32::from(completes),
            }
        }
        outcome.map(|()| true)
    }

    /// Sends one reply that needs nothing but a slot. `false`: nothing was sent.
    #[inline]
    pub(super) fn reply_small(&mut self, key: ChannelKey, head: Head, arguments: &[u64]) -> bool {
        match self.books.get(key.index as usize) {
            Some(book) if book.key == key && book.owed == 0 && book.outbox.is_empty() => {}
            _ => return false,
        }
        self.post_small(key, REPLY, head, arguments)
    }

    /// Sends what completes one request of the peer; keeps it where there is no room now. `Err` only for what can never
    /// be sent.
    #[inline(never)]
    pub(super) fn reply(&mut self, key: ChannelKey, message: Message<'_>) -> Result<(), PostError> {
        let Some(book) = self.book(key) else { return Ok(()) };
        let completes = book.take_owed();
        let head = Head { completes, ..message.head };
        let outcome = if book.outbox.is_empty() {
            self.post(key, Message { head, ..message })
        } else {
            Err(PostError::Full(String::new()))
        };
        match outcome {
            Ok(()) | Err(PostError::NoChannel) => Ok(()),
            Err(PostError::Full(_)) => {
                let mut content = head.pack().to_le_bytes().to_vec();
                message.words.iter().for_each(|word| content.extend(word.to_le_bytes()));
                content.extend(message.data);
                if let Some(book) = self.book(key) {
                    book.outbox.push_back((message.kind, content));
                }
                self.list(key);
                Ok(())
            }
            Err(PostError::Ended(ended)) => {
                self.ended.push_back(ended);
                Ok(())
            }
            Err(never) => {
                self.book(key).expect("it was there").owed += u32::from(completes);
                Err(never)
            }
        }
    }

    /// A request of the peer was handled and got no reply.
    #[inline]
    pub(super) fn owe(&mut self, key: ChannelKey) {
        let half = self.window / 2;
        let Some(book) = self.book(key) else { return };
        book.owed += 1;
        if book.owed >= half.max(1) {
            self.acknowledge(key);
        } else if !book.listed {
            self.list(key);
        }
    }

    fn list(&mut self, key: ChannelKey) {
        if let Some(book) = self.book(key)
            && !std::mem::replace(&mut book.listed, true)
        {
            self.unsettled.push(key);
        }
    }

    fn acknowledge(&mut self, key: ChannelKey) {
        let Some(book) = self.book(key) else { return };
        let completes = book.take_owed();
        let head = Head { completes, ..Head::default() };
        match self.post(key, Message { kind: ACKNOWLEDGEMENT, head, words: &[], data: &[] }) {
            Ok(()) | Err(PostError::NoChannel) => {}
            Err(PostError::Ended(ended)) => self.ended.push_back(ended),
            Err(_) => {
                self.book(key).expect("it was there").owed += u32::from(completes);
                self.list(key);
            }
        }
    }

    /// Takes what a message of the peer says of our requests.
    #[inline]
    pub(super) fn completed(&mut self, key: ChannelKey, requests: u32) -> Result<(), Breach> {
        let Some(book) = self.book(key) else { return Ok(()) };
        if requests > book.outstanding {
            return Err(Breach::Acknowledgement { alleged: requests, outstanding: book.outstanding });
        }
        book.outstanding -= requests;
        Ok(())
    }

    /// Whether the peer keeps to its window: what it sent and we have not completed is never more than that.
    #[inline]
    pub(super) fn may_request(&mut self, key: ChannelKey) -> Result<(), Breach> {
        let window = self.window as usize;
        let Some(book) = self.book(key) else { return Ok(()) };
        if book.owed as usize + book.outbox.len() >= window {
            return Err(Breach::Form("more requests are outstanding than the window allows"));
        }
        Ok(())
    }

    /// The live channels over which requests are not completed.
    pub(super) fn awaited(&self) -> Vec<ChannelKey> {
        let awaited = self.books.iter().filter(|book| book.outstanding > 0).map(|book| book.key);
        awaited.filter(|&key| self.endpoint.channel(key).is_some()).collect()
    }

    /// Whether something waits to be said that nothing said so far.
    #[inline]
    pub(super) fn is_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Says it, as far as there is room.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.unsettled) {
            let Some(book) = self.book(key) else { continue };
            book.listed = false;
            while let Some((kind, message)) = self.book(key).and_then(|book| book.outbox.pop_front()) {
                match self.endpoint.post(key, kind, &message) {
                    Ok(()) => {}
                    Err(PostError::Ended(ended)) => self.ended.push_back(ended),
                    Err(_) => {
                        if let Some(book) = self.book(key) {
                            book.outbox.push_front((kind, message));
                        }
                        self.list(key);
                        break;
                    }
                }
            }
            if self.book(key).is_some_and(|book| book.owed > 0) {
                self.acknowledge(key);
            }
        }
    }

    /// Ends a channel whose peer broke a rule.
    #[cold]
    pub(super) fn cut_off(&mut self, key: ChannelKey, breach: Breach) {
        // It may have ended while its message was handled; then that is noted already.
        self.ended.extend(self.endpoint.end_channel(key, Cause::Breach(breach)));
    }

    /// What is due when nothing has come.
    #[inline]
    pub(super) fn when_idle(&mut self) {
        if let Err(ended) = self.endpoint.when_idle() {
            self.ended.push_back(ended);
        }
    }
}

/// Panics for more arguments than a message has: the caller's mistake, whatever the peer does.
#[inline]
pub(super) fn count(arguments: &[u64]) -> u8 {
    assert!(arguments.len() <= ARGUMENTS, "an active message has up to four arguments");
    #[expect(clippy::cast_possible_truncation, reason = "at most 4")]
    let count = arguments.len() as u8;
    count
}
