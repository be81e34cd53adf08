//! The slot ring: one producer, one consumer, a cache line a message.
//!
//! A slot is 64 bytes: an 8-byte header and 56 bytes of content. The header's sequence number is the valid flag: the
//! consumer polls the header of the slot it expects next until the number is the one it waits for. No counter is
//! shared on the way of a message, so a message costs one cache line. A ring is small (64 slots are one page),
//! because lines that come round soon are still in both caches: 64 slots cost 1.0–1.1 × a bare ping-pong here where
//! 256 cost 1.4 ×.
//!
//! The consumer tells what it consumed in two ways: for free in the `acknowledged` field of the headers that it sends
//! itself on the opposite ring, and otherwise in its own control words (see [`crate::shm`]).
//!
//! The producer's memory is written by the producer alone. What the consumer reads there is an allegation: a header
//! whose sequence number is neither the expected one nor the one of the lap before is a breach and ends the channel.

use comb_congestion::credits::{Grantor, PeerError, Spender};

use crate::sync::{AtomicU64, Ordering, Words};

/// Words in a slot.
pub(crate) const SLOT_WORDS: usize = 8;
/// Bytes of content that fit in a slot beside its header.
pub const INLINE_BYTES: usize = 56;
/// Content words of a slot.
pub(crate) const CONTENT_WORDS: usize = SLOT_WORDS - 1;

/// What a peer wrote that it may not write. The channel ends; nobody else is affected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// A slot holds a sequence number that is neither the next message's nor the one of a lap before.
    #[error(
        "rule broken: a slot's sequence number is {found}, where only {expected} or an older lap's may stand"
    )]
    Sequence {
        /// The number of the message that the slot may hold.
        expected: u32,
        /// What stood there.
        found: u32,
    },
    /// An acknowledgement of messages that were never sent, or one that goes backwards.
    #[error("rule broken: the peer acknowledged {alleged} messages beyond the {outstanding} outstanding")]
    Acknowledgement {
        /// How many newly acknowledged messages the peer alleges.
        alleged: u32,
        /// How many could be.
        outstanding: u32,
    },
    /// An inline length beyond the slot.
    #[error("rule broken: an inline length of {0} bytes, where a slot holds {INLINE_BYTES}")]
    InlineLength(u8),
    /// A descriptor that points outside the payload area.
    #[error(
        "rule broken: a descriptor of {bytes} bytes at offset {offset} leaves the payload area of {area_bytes}"
    )]
    Descriptor {
        /// Alleged offset.
        offset: u32,
        /// Alleged length.
        bytes: u32,
        /// Size of the area.
        area_bytes: u32,
    },
    /// A message of a kind that this layer does not know.
    #[error("rule broken: message kind {0} means nothing here")]
    Kind(u8),
    /// A message whose content does not have the form that its kind demands.
    #[error("rule broken: {0}")]
    Form(&'static str),
}

impl From<PeerError> for Breach {
    fn from(error: PeerError) -> Self {
        Self::Acknowledgement { alleged: error.alleged, outstanding: error.outstanding }
    }
}

/// The first word of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) sequence: u32,
    /// Bytes of inline content; [`Header::DESCRIPTOR`] if the content describes bytes elsewhere.
    pub(crate) length: u8,
    pub(crate) kind: u8,
    /// Low half of the count of messages that the sender of this header has consumed on the opposite ring.
    pub(crate) acknowledged: u16,
}

impl Header {
    pub(crate) const DESCRIPTOR: u8 = 0xFF;

    fn pack(self) -> u64 {
        u64::from(self.sequence)
            | u64::from(self.length) << 32
            | u64::from(self.kind) << 40
            | u64::from(self.acknowledged) << 48
    }

    #[expect(clippy::cast_possible_truncation, reason = "fields of one word, cut out on purpose")]
    fn unpack(word: u64) -> Self {
        Self {
            sequence: word as u32,
            length: (word >> 32) as u8,
            kind: (word >> 40) as u8,
            acknowledged: (word >> 48) as u16,
        }
    }
}

/// The producing end. One cache line, which is all of a channel that is touched for a message that goes, besides its
/// slot.
#[derive(Debug)]
pub(crate) struct RingProducer<W> {
    words: W,
    /// A credit is a free slot.
    pub(crate) credit: Spender,
}

/// The ordering that publishes a slot. On its own, so that a test can run the ring with a broken one and see loom find
/// it.
#[cfg(not(all(loom, test)))]
const fn publish_ordering() -> Ordering {
    Ordering::Release
}
#[cfg(all(loom, test))]
use tests::publish_ordering;

impl<W: Words> RingProducer<W> {
    /// `opposite_slots`: how many the ring has on which short acknowledgements come.
    pub(crate) fn new(words: W, slots: u32, opposite_slots: u32) -> Self {
        assert!(slots.is_power_of_two(), "geometry is checked before a ring is made");
        Self { words, credit: Spender::new(slots, opposite_slots) }
    }

    /// Writes one message. The caller has seen that there is credit.
    #[inline]
    pub(crate) fn post(&mut self, kind: u8, length: u8, content: impl Content, acknowledged: u16) {
        let slot = self.words.slot(place(self.credit.sent(), self.credit.capacity()));
        content.write_to(&slot[1..]);
        self.credit.spend();
        let header = Header { sequence: low_half(self.credit.sent()), length, kind, acknowledged };
        slot[0].store(header.pack(), publish_ordering());
    }
}

/// What a slot can be filled with. Straight from where it stands: a copy in between is some nanoseconds of a round trip.
pub(crate) trait Content {
    /// Writes it, at most 56 bytes, into the words of a slot.
    fn write_to(self, words: &[AtomicU64]);
}

impl Content for &[u64] {
    #[inline]
    fn write_to(self, words: &[AtomicU64]) {
        for (word, &value) in words.iter().zip(self) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Content for &[u64; N] {
    #[inline]
    fn write_to(self, words: &[AtomicU64]) {
        self[..].write_to(words);
    }
}

/// The last word is padded with zeros.
impl Content for &[u8] {
    #[inline]
    fn write_to(self, words: &[AtomicU64]) {
        let (whole, tail) = self.as_chunks::<8>();
        for (word, &chunk) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(chunk), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            let mut last = [0; 8];
            last[..tail.len()].copy_from_slice(tail);
            words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }
}

/// The first word of the slot of the message after so many.
#[inline]
fn place(count: u64, slots: u32) -> usize {
    (low_half(count) & (slots - 1)) as usize * SLOT_WORDS
}

#[inline]
pub(crate) fn low_half(count: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "counts travel by their low half")]
    let low = count as u32;
    low
}

/// One message as it stands in a slot, its header checked for sequence only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) header: Header,
    first_word: usize,
}

/// No header: its length is beyond a slot and no descriptor.
const NOTHING_STALE: u64 = (Header::DESCRIPTOR as u64 - 1) << 32;

/// The consuming end. One cache line, which is all of a channel that is touched for a message that comes, besides its
/// slot.
#[derive(Debug)]
pub(crate) struct RingConsumer<W> {
    words: W,
    /// Each message consumed is a credit given back.
    pub(crate) credit: Grantor,
    /// What stands in the next slot while nothing has come: seen once, it need not be understood again.
    stale: u64,
    slots: u32,
}

impl<W: Words> RingConsumer<W> {
    /// `payload_bytes`: what the messages of the ring can take besides their slots.
    pub(crate) fn new(words: W, slots: u32, payload_bytes: u32) -> Self {
        assert!(slots.is_power_of_two(), "geometry is checked before a ring is made");
        Self { words, credit: Grantor::new(slots, payload_bytes), stale: NOTHING_STALE, slots }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The next message, if it has come. Call [`RingConsumer::consume`] when done with it.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Result<Option<Slot>, Breach> {
        let first_word = place(self.credit.consumed(), self.slots);
        let word = self.words.slot(first_word)[0].load(Ordering::Acquire);
        if word == self.stale { Ok(None) } else { self.examine(word, first_word) }
    }

    #[inline]
    fn examine(&mut self, word: u64, first_word: usize) -> Result<Option<Slot>, Breach> {
        let header = Header::unpack(word);
        let expected = low_half(self.credit.consumed() + 1);
        if header.sequence == expected {
            return Ok(Some(Slot { header, first_word }));
        }
        // What else may stand there is the message of the lap before, or nothing in the first lap.
        let first_lap = self.credit.consumed() < u64::from(self.slots);
        let before = if first_lap { 0 } else { expected.wrapping_sub(self.slots) };
        if header.sequence == before {
            self.stale = word;
            return Ok(None);
        }
        Err(Breach::Sequence { expected, found: header.sequence })
    }

    /// The message's slot, header and content: the producer may change it under our eyes.
    #[inline]
    pub(crate) fn slot(&self, slot: Slot) -> &[AtomicU64; SLOT_WORDS] {
        self.words.slot(slot.first_word)
    }

    /// The content words of the message, each read once.
    #[inline]
    pub(crate) fn content(&self, slot: Slot) -> [u64; CONTENT_WORDS] {
        std::array::from_fn(|index| self.slot(slot)[1 + index].load(Ordering::Relaxed))
    }

    /// Whether so many quarters of the ring hold messages that were not consumed yet. A hint: messages come in order,
    /// so one slot tells, and what a peer puts there to deceive us is found out when its turn comes.
    pub(crate) fn has_at_least_quarters(&self, quarters: u32) -> bool {
        let last = self.credit.consumed() + u64::from(self.slots / 4 * quarters);
        let word = self.words.slot(place(last - 1, self.slots))[0].load(Ordering::Acquire);
        Header::unpack(word).sequence == low_half(last)
    }

    /// Gives the slot back, and `bytes` that the message had elsewhere.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: u32) {
        self.credit.consume(bytes);
        self.stale = NOTHING_STALE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::plain::PlainWords;

    #[cfg(loom)]
    pub(super) fn publish_ordering() -> Ordering {
        if BROKEN.load(std::sync::atomic::Ordering::Relaxed) { Ordering::Relaxed } else { Ordering::Release }
    }
    #[cfg(loom)]
    static BROKEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    /// A producer and a consumer over the same two slots, with the consumer's count in a word of its own.
    #[cfg(loom)]
    fn hand_over_three_messages() {
        loom::model(|| {
            let ring = PlainWords::new(2 * SLOT_WORDS);
            let control = PlainWords::new(1);
            let (their_ring, their_control) = (ring.clone(), control.clone());
            let consumer = loom::thread::spawn(move || {
                let mut consumer = RingConsumer::new(their_ring, 2, 0);
                while consumer.credit.consumed() < 3 {
                    match consumer.peek().expect("a well-behaved producer") {
                        Some(slot) => {
                            let content = consumer.content(slot)[0];
                            assert_eq!(content, consumer.credit.consumed() + 100, "content before header");
                            consumer.consume(0);
                            their_control.word(0).store(consumer.credit.announce().into(), Ordering::Release);
                        }
                        None => loom::thread::yield_now(),
                    }
                }
            });
            let mut producer = RingProducer::new(ring, 2, 2);
            let mut next = 0;
            while next < 3 {
                #[expect(clippy::cast_possible_truncation, reason = "a count of at most 3")]
                let consumed = control.word(0).load(Ordering::Acquire) as u32;
                producer.credit.announced(consumed).expect("a well-behaved consumer");
                if producer.credit.available() > 0 {
                    producer.post(0, 8, &[next + 100], 0);
                    next += 1;
                } else {
                    loom::thread::yield_now();
                }
            }
            consumer.join().unwrap();
        });
    }

    #[cfg(loom)]
    #[test]
    fn loom_content_is_there_when_the_header_is_and_a_broken_ordering_is_found() {
        hand_over_three_messages();
        BROKEN.store(true, std::sync::atomic::Ordering::Relaxed);
        let found = std::panic::catch_unwind(hand_over_three_messages).is_err();
        assert!(found, "loom must see that a relaxed header publishes nothing");
    }

    #[cfg(not(loom))]
    #[test]
    fn miri_messages_cross_between_threads_in_order() {
        const MESSAGES: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let ring = PlainWords::new(8 * SLOT_WORDS);
        let control = PlainWords::new(1);
        let (their_ring, their_control) = (ring.clone(), control.clone());
        let consumer = std::thread::spawn(move || {
            let mut consumer = RingConsumer::new(their_ring, 8, 0);
            while consumer.credit.consumed() < MESSAGES {
                if let Some(slot) = consumer.peek().unwrap() {
                    assert_eq!(consumer.content(slot)[6], consumer.credit.consumed());
                    consumer.consume(0);
                    their_control.word(0).store(consumer.credit.announce().into(), Ordering::Release);
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let mut producer = RingProducer::new(ring, 8, 8);
        let mut next = 0;
        while next < MESSAGES {
            let consumed = u32::try_from(control.word(0).load(Ordering::Acquire)).unwrap();
            producer.credit.announced(consumed).unwrap();
            if producer.credit.available() == 0 {
                std::thread::yield_now();
                continue;
            }
            producer.post(1, 56, &[0, 0, 0, 0, 0, 0, next], 0);
            next += 1;
        }
        consumer.join().unwrap();
    }

    #[cfg(not(loom))]
    mod alleged {
        use super::*;
        use proptest::prelude::*;

        /// A consumer that has read so many already.
        fn after(consumed: u64, words: PlainWords, slots: u32) -> RingConsumer<PlainWords> {
            let mut consumer = RingConsumer::new(words, slots, 0);
            consumer.credit = Grantor::after(consumed, slots, 0);
            consumer
        }

        #[test]
        fn sequence_numbers_wrap() {
            let words = PlainWords::new(4 * SLOT_WORDS);
            let start = u64::from(u32::MAX) - 5;
            let mut producer = RingProducer::new(words.clone(), 4, 4);
            producer.credit = Spender::after(start, 4, 4);
            let mut consumer = after(start, words, 4);
            for lap in 0..12_u64 {
                producer.post(0, 8, &[lap], 0);
                let slot = consumer.peek().unwrap().expect("just posted");
                assert_eq!(consumer.content(slot)[0], lap);
                consumer.consume(0);
                producer.credit.announced(consumer.credit.announce()).unwrap();
            }
        }

        proptest! {
            /// Whatever a peer writes into a slot, peek says so or says nothing; it never takes an old message.
            #[test]
            fn any_header_is_survived(
                rest in any::<u32>(),
                consumed in prop_oneof![any::<u32>(), 0_u32..20],
                around in prop_oneof![any::<i32>(), -20..20],
                zero in any::<bool>(),
            ) {
                // Numbers that mean something are few: the next, a lap before, nothing yet.
                let alleged = if zero { 0 } else { consumed.wrapping_add_signed(around) };
                let word = u64::from(rest) << 32 | u64::from(alleged);
                let words = PlainWords::new(8 * SLOT_WORDS);
                let mut consumer = after(consumed.into(), words.clone(), 8);
                words.word((consumed & 7) as usize * SLOT_WORDS).store(word, Ordering::Release);
                let sequence = Header::unpack(word).sequence;
                let next = consumed.wrapping_add(1);
                let before = if consumed < 8 { 0 } else { consumed - 7 };
                match consumer.peek() {
                    Ok(Some(slot)) => prop_assert_eq!(slot.header.sequence, next),
                    Ok(None) => prop_assert_eq!(sequence, before),
                    Err(_) => prop_assert!(sequence != next && sequence != before),
                }
            }
        }
    }
}
