//! Credits: how many messages may be on their way in one channel.
//!
//! The receiver owns `capacity` places. Each side counts upwards from zero and never resets: the sender what
//! it posted, the receiver what it consumed. The receiver *announces* its count, and the sender may post up to
//! that plus `capacity`. A count instead of "here are three more credits" has two merits: a lost or repeated
//! announcement does no harm, and what the peer says can be checked against what we did ourselves.
//!
//! An announcement is the low half of the count, which the sender reads in order (a word of shared memory,
//! a reliable transport), or its lowest sixteen bits, for free in a message that goes the other way anyway. These
//! *short* ones may be old when they are read; whatever is said in between, a short count is understood or ignored,
//! never misunderstood.

use thiserror::Error;

/// The receiver acknowledged what was never sent, or took back what it had acknowledged. Our state is as before the
/// call: the caller can report the peer and go on serving others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the receiver acknowledged {alleged} messages of the {outstanding} that were outstanding")]
pub struct PeerError {
    /// How many newly consumed messages the peer alleges.
    pub alleged: u32,
    /// How many could be.
    pub outstanding: u32,
}

/// A short count says 16 bits. It is understood as long as it is less than half their range old.
const YOUNG: u16 = 1 << 14;

/// The largest capacity: twice as many messages must be less than what a short count can tell apart.
pub const MOST_PLACES: u32 = 1 << 14;

/// The sender's side.
#[derive(Clone, Debug)]
pub struct Spender {
    sent: u64,
    acknowledged: u64,
    capacity: u32,
    /// The capacity; zero while the flow is to stand still.
    open: u32,
    /// How far full announcements alone have moved `acknowledged` since short ones were last known to be young.
    moved_by_full: u16,
    /// Short announcements still to come that may be too old to be understood.
    old_shorts: u16,
    /// How many short announcements can be on their way.
    most_shorts: u16,
}

impl Spender {
    /// For a channel whose receiver owns `capacity` places; both sides must have agreed on that number.
    /// `most_shorts`: how many messages with short announcements can be on their way to us, unread.
    ///
    /// # Panics
    /// When `capacity` is zero, or one of both beyond [`MOST_PLACES`].
    pub fn new(capacity: u32, most_shorts: u32) -> Spender {
        assert!((1..=MOST_PLACES).contains(&capacity), "a channel of {capacity} places");
        assert!(most_shorts <= MOST_PLACES, "{most_shorts} short announcements under way");
        Spender {
            sent: 0,
            acknowledged: 0,
            capacity,
            open: capacity,
            moved_by_full: 0,
            old_shorts: 0,
            most_shorts: u16::try_from(most_shorts).expect("asserted above"),
        }
    }

    /// One that goes on after `sent` messages, all of them consumed.
    pub fn after(sent: u64, capacity: u32, most_shorts: u32) -> Spender {
        Spender { sent, acknowledged: sent, ..Spender::new(capacity, most_shorts) }
    }

    /// How many messages may be posted now.
    #[inline]
    pub fn available(&self) -> u32 {
        self.open.saturating_sub(self.outstanding())
    }

    /// Messages sent and not known to be consumed.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        low_half(self.sent - self.acknowledged)
    }

    /// The places that the receiver owns.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Messages sent so far.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages known to be consumed.
    #[inline]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Takes one credit. Call only when one is [`available`](Spender::available).
    #[inline]
    pub fn spend(&mut self) {
        debug_assert!(self.available() > 0, "no credits left on this channel");
        self.sent += 1;
    }

    /// From now on nothing is available, whatever is announced. What is outstanding stays so.
    pub fn stop(&mut self) {
        self.open = 0;
    }

    /// Undoes [`stop`](Spender::stop).
    pub fn go_on(&mut self) {
        self.open = self.capacity;
    }

    /// Whether the flow was stopped.
    pub fn is_stopped(&self) -> bool {
        self.open == 0
    }

    /// Takes in the low half of the receiver's count: an allegation until checked here.
    ///
    /// The check bounds what a lying receiver can do: it gets back places of its own queue that it has not
    /// emptied, so it can lose its own messages, never another's.
    pub fn announced(&mut self, consumed: u32) -> Result<(), PeerError> {
        let alleged = consumed.wrapping_sub(low_half(self.acknowledged));
        let outstanding = self.outstanding();
        if alleged > outstanding {
            return Err(PeerError { alleged, outstanding });
        }
        self.acknowledged += u64::from(alleged);
        let alleged = u16::try_from(alleged).expect("at most as many as there are places");
        self.moved_by_full = self.moved_by_full.saturating_add(alleged);
        if self.moved_by_full > YOUNG {
            // Short counts that wait unread since before this may be of more than half of 16 bits ago, which
            // would look like counts of messages never sent, or, worse, like news.
            self.moved_by_full = 0;
            self.old_shorts = self.most_shorts;
        }
        Ok(())
    }

    /// Whether [`announced`](Spender::announced) would learn something: not from a count that short ones have
    /// overtaken.
    pub fn is_news(&self, consumed: u32) -> bool {
        let ahead = consumed.wrapping_sub(low_half(self.acknowledged));
        ahead != 0 && ahead <= u32::MAX / 2
    }

    /// Takes in the lowest bits of the receiver's count. One that lies a little behind was overtaken by a full
    /// announcement and says nothing new. Call for each one that arrives.
    #[inline]
    pub fn announced_short(&mut self, consumed: u16) -> Result<(), PeerError> {
        if self.old_shorts > 0 {
            self.old_shorts -= 1;
            return Ok(());
        }
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
        let ahead = consumed.wrapping_sub(self.acknowledged as u16);
        if u32::from(ahead) <= self.outstanding() {
            self.acknowledged += u64::from(ahead);
            Ok(())
        } else if ahead.wrapping_neg() <= 1 << 15 {
            Ok(())
        } else {
            Err(PeerError { alleged: u32::from(ahead), outstanding: self.outstanding() })
        }
    }
}

/// Announce when a quarter of the places have been freed. Each full announcement moves a cache line or costs a
/// frame, so one for every message is too many; with a quarter, three quarters of the capacity still cover
/// the round trip, so a sender with a sensible capacity does not stall for an announcement that is being
/// saved up.
const ANNOUNCEMENTS_PER_ROUND: u32 = 4;

/// The receiver's side.
#[derive(Clone, Debug)]
pub struct Grantor {
    consumed: u64,
    unannounced: u32,
    unannounced_bytes: u32,
    worthwhile: u32,
    worthwhile_bytes: u32,
}

impl Grantor {
    /// For a channel with `capacity` places, all free, whose messages may take `capacity_bytes` besides.
    pub fn new(capacity: u32, capacity_bytes: u32) -> Grantor {
        Grantor {
            consumed: 0,
            unannounced: 0,
            unannounced_bytes: 0,
            worthwhile: capacity.div_ceil(ANNOUNCEMENTS_PER_ROUND),
            worthwhile_bytes: capacity_bytes / ANNOUNCEMENTS_PER_ROUND,
        }
    }

    /// One that goes on after `consumed` messages, all of them announced.
    pub fn after(consumed: u64, capacity: u32, capacity_bytes: u32) -> Grantor {
        Grantor { consumed, ..Grantor::new(capacity, capacity_bytes) }
    }

    /// Call when a message was copied out or handled, and its place, with `bytes` of other room, is free again.
    #[inline]
    pub fn consume(&mut self, bytes: u32) {
        self.consumed += 1;
        self.unannounced += 1;
        self.unannounced_bytes = self.unannounced_bytes.saturating_add(bytes);
    }

    /// Messages consumed so far.
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether enough has been freed to be worth a full announcement.
    #[inline]
    pub fn is_worthwhile(&self) -> bool {
        self.unannounced >= self.worthwhile || self.unannounced_bytes > self.worthwhile_bytes
    }

    /// Whether anything is unannounced. Announce it before going to sleep, or when there is nothing else to do: the
    /// sender may be waiting for the last place.
    #[inline]
    pub fn owes(&self) -> bool {
        self.unannounced > 0
    }

    /// What a full announcement says; from now on nothing is owed.
    #[inline]
    pub fn announce(&mut self) -> u32 {
        (self.unannounced, self.unannounced_bytes) = (0, 0);
        low_half(self.consumed)
    }

    /// What a short announcement says. It pays no debt: nobody knows when it is read.
    #[inline]
    pub fn short(&self) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
        let short = self.consumed as u16;
        short
    }
}

#[inline]
fn low_half(count: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "counts are told by their low half")]
    let low = count as u32;
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    fn spend(spender: &mut Spender, count: u32) {
        (0..count).for_each(|_| spender.spend());
    }

    #[test]
    fn all_places_and_no_more() {
        let mut spender = Spender::new(3, 3);
        spend(&mut spender, 3);
        assert_eq!(spender.available(), 0);
        spender.announced(2).unwrap();
        spender.announced(2).unwrap();
        assert_eq!(spender.available(), 2, "a repetition gives nothing");
        spender.announced_short(3).unwrap();
        assert_eq!(spender.available(), 3);
    }

    #[test]
    fn a_stopped_flow_has_no_credit_and_loses_none() {
        let mut spender = Spender::new(8, 8);
        spend(&mut spender, 5);
        spender.stop();
        spender.announced(2).unwrap();
        assert_eq!(spender.available(), 0);
        spender.go_on();
        assert_eq!(spender.available(), 5);
    }

    #[test]
    fn a_peer_that_breaks_a_rule_is_told_which() {
        let mut spender = Spender::new(8, 8);
        spend(&mut spender, 5);
        spender.announced(3).unwrap();
        assert_eq!(spender.announced(2), Err(PeerError { alleged: u32::MAX, outstanding: 2 }), "backwards");
        assert_eq!(spender.announced(6), Err(PeerError { alleged: 3, outstanding: 2 }), "never sent");
        assert_eq!(spender.announced_short(6), Err(PeerError { alleged: 3, outstanding: 2 }));
        assert_eq!(spender.announced_short(2), Ok(()), "an older short one says nothing");
        assert_eq!(spender.available(), 6, "a false announcement changes nothing");
    }

    /// A peer that said one thing and was not heard while it read 40,000 messages was cut off for acknowledging
    /// what was never sent: its count, 40,000 old, looked like one that is 25,536 ahead. Between 65,472 and
    /// 65,535 it would have freed places that it had not emptied.
    #[test]
    fn a_short_announcement_that_waited_too_long_is_not_understood() {
        for unheard in [40_000, 65_500, 65_536] {
            let mut spender = Spender::new(64, 64);
            for consumed in 0..unheard {
                spender.spend();
                spender.announced(consumed + 1).unwrap();
            }
            spend(&mut spender, 64);
            spender.announced_short(0).unwrap();
            assert_eq!(spender.outstanding(), 64, "a count of {unheard} ago frees nothing");
        }
    }

    #[test]
    fn announcements_are_saved_up_but_not_for_ever() {
        let mut grantor = Grantor::new(8, 4000);
        grantor.consume(0);
        assert!(grantor.owes() && !grantor.is_worthwhile());
        grantor.consume(0);
        assert!(grantor.is_worthwhile(), "a quarter of the places");
        assert_eq!(grantor.announce(), 2);
        assert!(!grantor.owes());
        grantor.consume(1001);
        assert!(grantor.is_worthwhile(), "a quarter of the bytes");
        assert_eq!((grantor.announce(), grantor.short()), (3, 3));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Post(u32),
        Consume(u32),
        Announce,
        Short,
        HearFull,
        HearShort,
        LieFull(u32),
        LieShort(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_u32..70).prop_map(Step::Post),
            4 => (1_u32..70).prop_map(Step::Consume),
            3 => Just(Step::Announce),
            2 => Just(Step::Short),
            3 => Just(Step::HearFull),
            2 => Just(Step::HearShort),
            1 => any::<u32>().prop_map(Step::LieFull),
            1 => any::<u16>().prop_map(Step::LieShort),
        ]
    }

    proptest! {
        /// The one thing credits are for: whatever the order of events, the receiver never holds more than it
        /// has places, and no honest party is ever accused. Counts start anywhere, the wrapping points included.
        #[test]
        fn the_receiver_is_never_overrun(
            capacity in 1_u32..100,
            most_shorts in 1_usize..20,
            start in prop_oneof![Just(0_u64), any::<u32>().prop_map(u64::from), Just(u64::from(u32::MAX) - 50)],
            steps in prop::collection::vec(step(), 0..600),
        ) {
            let most = u32::try_from(most_shorts).unwrap();
            let mut spender = Spender::after(start, capacity, most);
            let mut grantor = Grantor::after(start, capacity, 0);
            let mut full = low_half(start);
            let mut shorts = VecDeque::new();
            for step in steps {
                match step {
                    Step::Post(count) => {
                        (0..count.min(spender.available())).for_each(|_| spender.spend());
                    }
                    Step::Consume(count) => {
                        let waiting = spender.sent() - grantor.consumed();
                        (0..u64::from(count).min(waiting)).for_each(|_| grantor.consume(0));
                    }
                    Step::Announce => full = grantor.announce(),
                    Step::Short if shorts.len() < most_shorts => shorts.push_back(grantor.short()),
                    Step::Short => {}
                    Step::HearFull => {
                        if spender.is_news(full) {
                            prop_assert!(spender.announced(full).is_ok());
                        }
                    }
                    Step::HearShort => {
                        if let Some(short) = shorts.pop_front() {
                            prop_assert!(spender.announced_short(short).is_ok());
                        }
                    }
                    // A lie that is not believed must leave no trace, and one that is must be one that cannot be
                    // told from the truth.
                    Step::LieFull(alleged) => {
                        let mut lied_to = spender.clone();
                        if lied_to.announced(alleged).is_err() {
                            prop_assert_eq!(lied_to.available(), spender.available());
                        } else {
                            prop_assert!(lied_to.acknowledged() <= lied_to.sent());
                        }
                    }
                    Step::LieShort(alleged) => {
                        let mut lied_to = spender.clone();
                        let _ = lied_to.announced_short(alleged);
                        prop_assert!(lied_to.acknowledged() <= lied_to.sent());
                    }
                }
                prop_assert!(spender.acknowledged() <= grantor.consumed(), "a place is freed that is not empty");
                prop_assert!(spender.sent() - grantor.consumed() <= u64::from(capacity));
            }
            // Once everything has been consumed and said, every place is free again: no credit leaks.
            while grantor.consumed() < spender.sent() {
                grantor.consume(0);
            }
            if grantor.owes() {
                full = grantor.announce();
            }
            if spender.is_news(full) {
                prop_assert!(spender.announced(full).is_ok());
            }
            prop_assert_eq!(spender.available(), capacity);
        }

        /// No deadlock by thrift: a receiver that consumes all it got announces without being asked,
        /// so a sender that stands at its limit goes on.
        #[test]
        fn a_full_round_is_always_announced(capacity in 1_u32..200) {
            let mut grantor = Grantor::new(capacity, 4096);
            (0..capacity).for_each(|_| grantor.consume(0));
            prop_assert!(grantor.is_worthwhile());
        }
    }
}
