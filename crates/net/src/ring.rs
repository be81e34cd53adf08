//! The slot ring: one producer, one consumer, a cache line a message.
//!
//! A slot is 64 bytes: an 8-byte header and 56 bytes of content. The header's sequence number is the valid flag: the
//! consumer polls the header of the slot it expects next until the number is the one it waits for. No counter is
//! shared on the way of a message, so a message costs one cache line.
//!
//! A producer that knows that all it sent was read *starts over* at the first slot: who asks and answers uses one line
//! for each way, over and over. A walk through 64 slots takes a fifth to a third longer (the processors' prefetchers run
//! ahead and take slots from the side that is about to use them; two slots do not suffer), and of a thousand channels
//! only one line each way has to stay in a cache. The consumer therefore looks at two slots: the next, and the first.
//!
//! The consumer tells what it consumed in two ways: for free in the `acknowledged` field of the headers that it sends
//! itself on the opposite ring, and otherwise in its own control words (see [`crate::shm`]).
//!
//! The producer's memory is written by the producer alone. What the consumer reads there is an allegation: a header
//! whose sequence number is of a message that cannot stand there yet is a breach and ends the channel.

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
    /// A slot holds a sequence number that is neither the next message's nor an older one's.
    #[error(
        "rule broken: a slot's sequence number is {found}, where only {expected} or an older one may stand"
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
    /// The slot of the next message, unless it is the first.
    next: u32,
}

/// Once in so many messages a producer walks through its whole ring instead of starting over, so that no slot holds a
/// number so old that it comes round again.
const RENEWAL: u32 = 1 << 28;

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
        Self { words, credit: Spender::new(slots, opposite_slots), next: 0 }
    }

    /// Whether the next message may stand in the first slot: all were read, and no walk is due.
    #[inline]
    fn may_start_over(&self) -> bool {
        let walks = 2 * self.credit.capacity();
        self.credit.outstanding() == 0 && low_half(self.credit.sent()) & (RENEWAL - 1) >= walks
    }

    /// Asks for the line of the next slot, for who will probably answer what it has just read: the line travels while the
    /// answer is made, which saves up to a quarter of a round trip. Called when a message is read and the books are
    /// written: the earlier, the likelier that the peer, which waits for the answer, looks again and takes the line back
    /// before it is written.
    #[inline]
    pub(crate) fn ask_for_next(&self) {
        let next = if self.may_start_over() { 0 } else { self.next };
        self.words.ask_for_slot(first_word(next));
    }

    /// Writes one message. The caller has seen that there is credit.
    #[inline]
    pub(crate) fn post(&mut self, kind: u8, length: u8, content: impl Content, acknowledged: u16) {
        if self.may_start_over() {
            self.next = 0;
        }
        let slot = self.words.slot(first_word(self.next));
        self.next = (self.next + 1) & (self.credit.capacity() - 1);
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

#[inline]
fn first_word(slot: u32) -> usize {
    slot as usize * SLOT_WORDS
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
    header: u64,
    first_word: usize,
}

impl Slot {
    #[inline]
    pub(crate) fn header(self) -> Header {
        Header::unpack(self.header)
    }
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
    /// What stood in the next slot when nothing had come: seen once, it need not be understood again. Who asks and answers
    /// finds it there after every message.
    stale: u64,
    /// The slot of the next message, unless it is the first.
    next: u32,
    slots: u32,
}

impl<W: Words> RingConsumer<W> {
    /// `payload_bytes`: what the messages of the ring can take besides their slots.
    pub(crate) fn new(words: W, slots: u32, payload_bytes: u32) -> Self {
        assert!(slots.is_power_of_two(), "geometry is checked before a ring is made");
        Self { words, credit: Grantor::new(slots, payload_bytes), stale: NOTHING_STALE, next: 0, slots }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The next message, if it has come. Call [`RingConsumer::consume`] when done with it.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Result<Option<Slot>, Breach> {
        match self.find() {
            Ok(slot) => Ok(Some(slot)),
            Err(word) if self.is_stale(word) => Ok(None),
            Err(word) => self.examine(word),
        }
    }

    /// The next message, if it has come; else what stands in its slot.
    #[inline(always)]
    pub(crate) fn find(&mut self) -> Result<Slot, u64> {
        let expected = self.expected();
        let word = self.header(self.next);
        if low_half(word) == expected {
            return Ok(self.slot_of(word));
        }
        let first = self.header(0);
        if low_half(first) == expected {
            self.next = 0;
            return Ok(self.slot_of(first));
        }
        Err(word)
    }

    /// Whether the next message stands behind the last.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        low_half(self.header(self.next)) == self.expected()
    }

    /// Whether what stands in the next slot was understood before, and is no message.
    #[inline]
    pub(crate) fn is_stale(&self, word: u64) -> bool {
        word == self.stale
    }

    #[inline]
    fn expected(&self) -> u32 {
        low_half(self.credit.consumed() + 1)
    }

    #[inline]
    fn header(&self, slot: u32) -> u64 {
        self.words.slot(first_word(slot))[0].load(Ordering::Acquire)
    }

    #[inline]
    fn slot_of(&self, header: u64) -> Slot {
        Slot { header, first_word: first_word(self.next) }
    }

    /// What else may stand in the next slot is an older message, or nothing yet. A newer one may if its producer has
    /// started over, but then the message in the first slot would have been found: it was there before.
    #[inline]
    fn examine(&mut self, word: u64) -> Result<Option<Slot>, Breach> {
        let (expected, found) = (self.expected(), low_half(word));
        if expected.wrapping_sub(found) > u32::MAX / 2 {
            return Err(Breach::Sequence { expected, found });
        }
        self.stale = word;
        Ok(None)
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
        let ahead = self.slots / 4 * quarters;
        let last = low_half(self.credit.consumed()).wrapping_add(ahead);
        // Behind the next slot, or behind the first if the producer has started over.
        [self.next, 0]
            .into_iter()
            .any(|from| low_half(self.header((from + ahead - 1) & (self.slots - 1))) == last)
    }

    /// Gives the slot back, and `bytes` that the message had elsewhere.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: u32) {
        self.credit.consume(bytes);
        self.next = (self.next + 1) & (self.slots - 1);
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

    /// A producer and a consumer over the same two slots, with the consumer's count in a word of its own. So late that the
    /// producer starts over when it can.
    #[cfg(loom)]
    fn hand_over_three_messages() {
        const BEFORE: u64 = 4;
        loom::model(|| {
            let ring = PlainWords::new(2 * SLOT_WORDS);
            let control = PlainWords::new(1);
            let (their_ring, their_control) = (ring.clone(), control.clone());
            let consumer = loom::thread::spawn(move || {
                let mut consumer = RingConsumer::new(their_ring, 2, 0);
                consumer.credit = Grantor::after(BEFORE, 2, 0);
                while consumer.credit.consumed() < BEFORE + 3 {
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
            producer.credit = Spender::after(BEFORE, 2, 2);
            let mut next = BEFORE;
            while next < BEFORE + 3 {
                #[expect(clippy::cast_possible_truncation, reason = "a small count")]
                let consumed = control.word(0).load(Ordering::Acquire) as u32;
                if consumed > 0 {
                    producer.credit.announced(consumed).expect("a well-behaved consumer");
                }
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

        /// Both ends of a ring that has carried so many messages, all of them read.
        fn pair(before: u64, slots: u32) -> (PlainWords, RingProducer<PlainWords>, RingConsumer<PlainWords>) {
            let words = PlainWords::new(slots as usize * SLOT_WORDS);
            let mut producer = RingProducer::new(words.clone(), slots, slots);
            producer.credit = Spender::after(before, slots, slots);
            let mut consumer = after(before, words.clone(), slots);
            let mut exchange = |count: u32| {
                (0..count).for_each(|_| producer.post(0, 8, &[0], 0));
                (0..count).for_each(|_| take(&mut consumer).map(drop).expect("posted"));
                producer.credit.announced(consumer.credit.announce()).unwrap();
            };
            // No slot is as fresh memory: they were all used.
            exchange(slots);
            exchange(1);
            (words, producer, consumer)
        }

        /// The next message's first word.
        fn take(consumer: &mut RingConsumer<PlainWords>) -> Option<u64> {
            let slot = consumer.peek().expect("no breach")?;
            let word = consumer.content(slot)[0];
            consumer.consume(0);
            Some(word)
        }

        #[test]
        fn sequence_numbers_wrap() {
            let (_, mut producer, mut consumer) = pair(u64::from(u32::MAX) - 10, 4);
            for number in 0..20_u64 {
                producer.post(0, 8, &[number], 0);
                assert_eq!(take(&mut consumer), Some(number));
                assert_eq!(take(&mut consumer), None);
                producer.credit.announced(consumer.credit.announce()).unwrap();
            }
        }

        /// Who asks and answers uses one line over and over.
        #[test]
        fn a_producer_whose_messages_were_all_read_starts_over() {
            let (words, mut producer, mut consumer) = pair(1000, 8);
            let untouched = |slot: usize| words.word(slot * SLOT_WORDS).load(Ordering::Relaxed);
            let before: Vec<u64> = (1..8).map(untouched).collect();
            for number in 0..20 {
                producer.post(0, 8, &[number], 0);
                assert_eq!(take(&mut consumer), Some(number));
                producer.credit.announced(consumer.credit.announce()).unwrap();
            }
            assert_eq!((1..8).map(untouched).collect::<Vec<_>>(), before);
        }

        /// The consumer waits at its second slot; the producer has started over and got so far that a message stands there
        /// which is not the next.
        #[test]
        fn a_newer_message_in_the_next_slot_is_no_breach_if_the_first_slot_holds_the_next() {
            let (_, mut producer, mut consumer) = pair(1000, 8);
            producer.post(0, 8, &[1], 0);
            assert_eq!(take(&mut consumer), Some(1));
            producer.credit.announced(consumer.credit.announce()).unwrap();
            (2..=9).for_each(|number| producer.post(0, 8, &[number], 0));
            assert!(consumer.has_at_least_quarters(4));
            assert_eq!(
                (2..=9).map(|_| take(&mut consumer).unwrap()).collect::<Vec<_>>(),
                (2..=9).collect::<Vec<_>>()
            );
            assert_eq!(take(&mut consumer), None);
        }

        /// A slot that was not used for 2³² messages would hold the number of the next one.
        #[test]
        fn no_slot_grows_as_old_as_its_number() {
            let slots = 8;
            let (words, mut producer, mut consumer) = pair(u64::from(RENEWAL) - 20, slots);
            for number in 0..40 {
                producer.post(0, 8, &[number], 0);
                assert_eq!(take(&mut consumer), Some(number));
                producer.credit.announced(consumer.credit.announce()).unwrap();
            }
            for slot in 0..slots as usize {
                let sequence = low_half(words.word(slot * SLOT_WORDS).load(Ordering::Relaxed));
                assert!(sequence > RENEWAL, "slot {slot} was walked over");
            }
        }

        proptest! {
            /// Whatever a peer writes into the two slots that are looked at, peek says so or says nothing; it never takes
            /// an old message.
            #[test]
            fn any_header_is_survived(
                rest in any::<u32>(),
                consumed in prop_oneof![any::<u32>(), 0_u32..20],
                around in prop_oneof![any::<i32>(), -20..20],
                zero in any::<bool>(),
                slot in prop_oneof![Just(0_u32), 0_u32..8],
            ) {
                // Numbers that mean something are few: the next, an older one, nothing yet.
                let alleged = if zero { 0 } else { consumed.wrapping_add_signed(around) };
                let word = u64::from(rest) << 32 | u64::from(alleged);
                let words = PlainWords::new(8 * SLOT_WORDS);
                let mut consumer = after(consumed.into(), words.clone(), 8);
                consumer.next = 5;
                words.word(5 * SLOT_WORDS).store(consumed.into(), Ordering::Relaxed);
                words.word(slot as usize * SLOT_WORDS).store(word, Ordering::Release);
                let sequence = Header::unpack(word).sequence;
                let next = consumed.wrapping_add(1);
                let older = next.wrapping_sub(sequence) <= u32::MAX / 2;
                match consumer.peek() {
                    Ok(Some(found)) => {
                        prop_assert_eq!(found.header().sequence, next);
                        prop_assert!(slot == 5 || slot == 0);
                    }
                    Ok(None) => prop_assert!(sequence != next && (older || slot != 5) || ![0, 5].contains(&slot)),
                    Err(_) => prop_assert!(sequence != next && !older && slot == 5),
                }
            }

            /// Messages arrive whole and in order whatever is sent, read and told when, and how many wait is never said
            /// wrong.
            #[test]
            fn starting_over_loses_and_repeats_nothing(
                before in prop_oneof![Just(1000_u64), Just(u64::from(RENEWAL) - 30), Just(u64::from(u32::MAX) - 30)],
                steps in prop::collection::vec((0_u32..9, 0_u32..9, any::<bool>()), 1..60),
            ) {
                let (_, mut producer, mut consumer) = pair(before, 8);
                let (mut sent, mut read) = (0, 0);
                for (posts, takes, told) in steps {
                    for _ in 0..posts.min(producer.credit.available()) {
                        producer.post(0, 8, &[sent], 0);
                        sent += 1;
                    }
                    prop_assert_eq!(consumer.has_at_least_quarters(3), sent - read >= 6);
                    for _ in 0..takes {
                        let expected = (read < sent).then_some(read);
                        prop_assert_eq!(take(&mut consumer), expected);
                        read += u64::from(expected.is_some());
                    }
                    if told {
                        producer.credit.announced(consumer.credit.announce()).unwrap();
                    }
                }
            }
        }
    }
}
