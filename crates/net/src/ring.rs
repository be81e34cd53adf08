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
    /// A descriptor that points outside the region it names.
    #[error(
        "rule broken: a descriptor of {bytes} bytes at offset {offset} leaves its region of {region_bytes}"
    )]
    Descriptor {
        /// Alleged offset.
        offset: u32,
        /// Alleged length.
        bytes: u32,
        /// Size of the region.
        region_bytes: u32,
    },
    /// A message of a kind that this layer does not know.
    #[error("rule broken: message kind {0} means nothing here")]
    Kind(u8),
    /// A message whose content does not have the form that its kind demands.
    #[error("rule broken: {0}")]
    Form(&'static str),
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

/// The producing end.
#[derive(Debug)]
pub(crate) struct RingProducer<W> {
    words: W,
    /// Slots; a power of two.
    slots: u32,
    /// Messages sent so far, wrapping. The next one's sequence number is one more.
    sent: u32,
    acknowledged: u32,
    /// How far the control words alone have moved `acknowledged` since short counts were last known to be young.
    moved_by_control: u32,
    /// Headers still to come whose short counts may be too old to be understood.
    old_headers: u32,
    /// Slots of the ring that those headers come on.
    opposite_slots: u32,
}

/// A short count says 16 bits of 32. It is understood as long as it is less than half their range old.
const YOUNG: u32 = 1 << 14;

/// No ring has more slots, so no more headers can be unread in one.
const MOST_SLOTS: u32 = 1 << 14;

/// The ordering that publishes a slot. On its own, so that a test can run the ring with a broken one and see loom find
/// it.
#[cfg(not(all(loom, test)))]
const fn publish_ordering() -> Ordering {
    Ordering::Release
}
#[cfg(all(loom, test))]
use tests::publish_ordering;

impl<W: Words> RingProducer<W> {
    pub(crate) fn new(words: W, slots: u32) -> Self {
        assert!(slots.is_power_of_two() && slots <= MOST_SLOTS, "geometry is checked before a ring is made");
        Self {
            words,
            slots,
            sent: 0,
            acknowledged: 0,
            moved_by_control: 0,
            old_headers: 0,
            opposite_slots: MOST_SLOTS,
        }
    }

    /// Says how many slots the opposite ring has, on which short acknowledgements come.
    pub(crate) fn opposite(self, slots: u32) -> Self {
        Self { opposite_slots: slots, ..self }
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.sent.wrapping_sub(self.acknowledged)
    }

    pub(crate) fn free_slots(&self) -> u32 {
        self.slots - self.outstanding()
    }

    /// Messages sent and acknowledged so far, both wrapping.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.sent, self.acknowledged)
    }

    /// Writes one message. The caller has seen `free_slots() > 0`.
    #[inline]
    pub(crate) fn post(&mut self, kind: u8, length: u8, content: &[u64], acknowledged: u16) {
        debug_assert!(self.free_slots() > 0);
        let slot = self.words.slot((self.sent & (self.slots - 1)) as usize * SLOT_WORDS);
        for (word, &value) in slot[1..].iter().zip(content) {
            word.store(value, Ordering::Relaxed);
        }
        self.sent = self.sent.wrapping_add(1);
        let header = Header { sequence: self.sent, length, kind, acknowledged };
        slot[0].store(header.pack(), publish_ordering());
    }

    /// Takes the count of consumed messages from the peer's control words: an allegation.
    pub(crate) fn acknowledge(&mut self, consumed: u32) -> Result<(), Breach> {
        let alleged = consumed.wrapping_sub(self.acknowledged);
        let outstanding = self.outstanding();
        if alleged > outstanding {
            return Err(Breach::Acknowledgement { alleged, outstanding });
        }
        self.acknowledged = consumed;
        self.moved_by_control = self.moved_by_control.saturating_add(alleged);
        if self.moved_by_control > YOUNG {
            // Headers that wait unread since before this may tell counts of more than half the 16 bits ago, which
            // would look like counts of messages never sent, or, worse, like news. There are at most a ring of them.
            self.moved_by_control = 0;
            self.old_headers = self.opposite_slots;
        }
        Ok(())
    }

    /// Takes the low half of that count from a header. A short count that lies a little behind is an older
    /// announcement overtaken by the control words and says nothing new.
    #[inline]
    pub(crate) fn acknowledge_short(&mut self, consumed: u16) -> Result<(), Breach> {
        if self.old_headers > 0 {
            self.old_headers -= 1;
            return Ok(());
        }
        #[expect(clippy::cast_possible_truncation, reason = "low half, as on the wire")]
        let ahead = consumed.wrapping_sub(self.acknowledged as u16);
        if u32::from(ahead) <= self.outstanding() {
            self.acknowledged = self.acknowledged.wrapping_add(u32::from(ahead));
            Ok(())
        } else if ahead.wrapping_neg() <= 1 << 15 {
            Ok(())
        } else {
            Err(Breach::Acknowledgement { alleged: u32::from(ahead), outstanding: self.outstanding() })
        }
    }
}

/// One message as it stands in a slot, its header checked for sequence only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) header: Header,
    first_word: usize,
}

/// No header: its length is beyond a slot and no descriptor.
const NOTHING_STALE: u64 = (Header::DESCRIPTOR as u64 - 1) << 32;

/// The consuming end.
#[derive(Debug)]
pub(crate) struct RingConsumer<W> {
    words: W,
    slots: u32,
    /// Messages consumed so far, wrapping.
    consumed: u32,
    /// What stands in the next slot while nothing has come: seen once, it need not be understood again.
    stale: u64,
}

impl<W: Words> RingConsumer<W> {
    pub(crate) fn new(words: W, slots: u32) -> Self {
        assert!(slots.is_power_of_two() && slots <= MOST_SLOTS, "geometry is checked before a ring is made");
        Self { words, slots, consumed: 0, stale: NOTHING_STALE }
    }

    pub(crate) fn consumed(&self) -> u32 {
        self.consumed
    }

    /// The next message, if it has come. Call [`RingConsumer::consume`] when done with it.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Result<Option<Slot>, Breach> {
        let first_word = (self.consumed & (self.slots - 1)) as usize * SLOT_WORDS;
        let word = self.words.slot(first_word)[0].load(Ordering::Acquire);
        if word == self.stale { Ok(None) } else { self.examine(word, first_word) }
    }

    #[inline]
    fn examine(&mut self, word: u64, first_word: usize) -> Result<Option<Slot>, Breach> {
        let header = Header::unpack(word);
        let expected = self.consumed.wrapping_add(1);
        if header.sequence == expected {
            return Ok(Some(Slot { header, first_word }));
        }
        // What else may stand there is the message of the lap before, or nothing in the first lap.
        if header.sequence == expected.wrapping_sub(self.slots) || self.first_lap(header.sequence) {
            self.stale = word;
            return Ok(None);
        }
        Err(Breach::Sequence { expected, found: header.sequence })
    }

    fn first_lap(&self, found: u32) -> bool {
        found == 0 && self.consumed < self.slots
    }

    /// The content words of the message, each read once: the producer may change them under our eyes.
    #[inline]
    pub(crate) fn content(&self, slot: Slot) -> [u64; CONTENT_WORDS] {
        let words = self.words.slot(slot.first_word);
        std::array::from_fn(|index| words[1 + index].load(Ordering::Relaxed))
    }

    /// Whether so many quarters of the ring hold messages that were not consumed yet. A hint: messages come in order,
    /// so one slot tells, and what a peer puts there to deceive us is found out when its turn comes.
    pub(crate) fn has_at_least_quarters(&self, quarters: u32) -> bool {
        let last = self.consumed.wrapping_add(self.slots / 4 * quarters - 1);
        let word =
            self.words.slot((last & (self.slots - 1)) as usize * SLOT_WORDS)[0].load(Ordering::Acquire);
        Header::unpack(word).sequence == last.wrapping_add(1)
    }

    /// Gives the slot back.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
        self.stale = NOTHING_STALE;
    }
}

/// A control word: a count that one side announces and the other reads.
pub(crate) fn announce(word: &AtomicU64, count: u32) {
    word.store(u64::from(count), Ordering::Release);
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
                let mut consumer = RingConsumer::new(their_ring, 2);
                while consumer.consumed() < 3 {
                    match consumer.peek().expect("a well-behaved producer") {
                        Some(slot) => {
                            let content = consumer.content(slot)[0];
                            assert_eq!(
                                content,
                                u64::from(consumer.consumed()) + 100,
                                "content before header"
                            );
                            consumer.consume();
                            announce(their_control.word(0), consumer.consumed());
                        }
                        None => loom::thread::yield_now(),
                    }
                }
            });
            let mut producer = RingProducer::new(ring, 2);
            let mut next = 0;
            while next < 3 {
                #[expect(clippy::cast_possible_truncation, reason = "a count of at most 3")]
                let consumed = control.word(0).load(Ordering::Acquire) as u32;
                producer.acknowledge(consumed).expect("a well-behaved consumer");
                if producer.free_slots() > 0 {
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
        const MESSAGES: u32 = if cfg!(miri) { 200 } else { 100_000 };
        let ring = PlainWords::new(8 * SLOT_WORDS);
        let control = PlainWords::new(1);
        let (their_ring, their_control) = (ring.clone(), control.clone());
        let consumer = std::thread::spawn(move || {
            let mut consumer = RingConsumer::new(their_ring, 8);
            while consumer.consumed() < MESSAGES {
                if let Some(slot) = consumer.peek().unwrap() {
                    assert_eq!(consumer.content(slot)[6], u64::from(consumer.consumed()));
                    consumer.consume();
                    announce(their_control.word(0), consumer.consumed());
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let mut producer = RingProducer::new(ring, 8);
        let mut next = 0;
        while next < MESSAGES {
            producer.acknowledge(u32::try_from(control.word(0).load(Ordering::Acquire)).unwrap()).unwrap();
            if producer.free_slots() == 0 {
                std::thread::yield_now();
                continue;
            }
            producer.post(1, 56, &[0, 0, 0, 0, 0, 0, u64::from(next)], 0);
            next += 1;
        }
        consumer.join().unwrap();
    }

    #[cfg(not(loom))]
    mod alleged {
        use super::*;
        use proptest::prelude::*;

        #[test]
        fn sequence_numbers_wrap() {
            let words = PlainWords::new(4 * SLOT_WORDS);
            let mut producer = RingProducer::new(words.clone(), 4);
            let mut consumer = RingConsumer::new(words, 4);
            let start = u32::MAX - 5;
            producer.sent = start;
            producer.acknowledged = start;
            consumer.consumed = start;
            for lap in 0..12_u64 {
                producer.post(0, 8, &[lap], 0);
                let slot = consumer.peek().unwrap_or(None);
                // The words start zeroed, which no lap before this one wrote: the first four may be refused.
                if let Some(slot) = slot {
                    assert_eq!(consumer.content(slot)[0], lap);
                }
                consumer.consume();
                producer.acknowledge(consumer.consumed()).unwrap();
            }
        }

        #[test]
        fn short_acknowledgements_follow_the_long_ones() {
            let mut producer = RingProducer::new(PlainWords::new(8 * SLOT_WORDS), 8);
            for _ in 0..3 {
                producer.post(0, 0, &[], 0);
            }
            producer.acknowledge_short(2).unwrap();
            assert_eq!(producer.outstanding(), 1);
            producer.acknowledge_short(1).unwrap();
            assert_eq!(producer.outstanding(), 1, "an older announcement says nothing new");
            assert!(producer.acknowledge_short(4).is_err(), "message 4 was never sent");
            assert!(producer.acknowledge(4).is_err());
            assert!(producer.acknowledge(1).is_err(), "control words never go backwards");
        }

        /// A peer that said one thing and was not heard while it read 40,000 messages was cut off for acknowledging
        /// what was never sent: its count, 40,000 old, looked like one that is 25,536 ahead. Between 65,472 and
        /// 65,535 it would have freed slots that it had not read.
        #[test]
        fn a_short_acknowledgement_that_waited_too_long_is_not_understood() {
            for unheard in [40_000, 65_500, 65_536] {
                let mut producer = RingProducer::new(PlainWords::new(64 * SLOT_WORDS), 64);
                for consumed in 0..unheard {
                    producer.post(0, 0, &[], 0);
                    producer.acknowledge(consumed + 1).unwrap();
                }
                for _ in 0..64 {
                    producer.post(0, 0, &[], 0);
                }
                producer.acknowledge_short(0).unwrap();
                assert_eq!(producer.outstanding(), 64, "a count of {unheard} ago frees nothing");
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
                let mut consumer = RingConsumer::new(words.clone(), 8);
                consumer.consumed = consumed;
                words.word((consumed & 7) as usize * SLOT_WORDS).store(word, Ordering::Release);
                let sequence = Header::unpack(word).sequence;
                match consumer.peek() {
                    Ok(Some(slot)) => prop_assert_eq!(slot.header.sequence, consumed.wrapping_add(1)),
                    Ok(None) => prop_assert!(
                        sequence == consumed.wrapping_sub(7) || (sequence == 0 && consumed < 8)
                    ),
                    Err(_) => prop_assert!(
                        ![consumed.wrapping_add(1), consumed.wrapping_sub(7)].contains(&sequence)
                            && (sequence != 0 || consumed >= 8)
                    ),
                }
            }
        }
    }
}
