//! Credits: how many messages may be on their way in one channel.
//!
//! The receiver owns `capacity` places. Each side counts upwards from zero and never resets: the sender what
//! it posted, the receiver what it consumed. The receiver *announces* its counter (a word in its own memory
//! that the sender reads, or a field of a frame), and the sender may post up to `announced + capacity`. A
//! counter instead of "here are three more credits" has two merits: a lost or repeated announcement does no
//! harm, and what the peer says can be checked against what we did ourselves.
//!
//! Announcements must arrive in the order in which they were made. A word of shared memory and a
//! reliable transport give that; over a bare datagram put them behind a sequence number first.

use thiserror::Error;

/// What the other side did that no correct peer does. Our state is as before the call in every case: the
/// caller can report the peer and go on serving others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// The receiver's counter only ever counts up.
    #[error("the receiver announced {alleged} messages consumed after {announced}: it may not go backwards")]
    WentBackwards {
        /// Its last valid announcement.
        announced: u64,
        /// What it says now.
        alleged: u64,
    },
    /// Nobody can consume what was never posted.
    #[error("the receiver announced {alleged} messages consumed when only {posted} had been posted to it")]
    BeyondPosted {
        /// What we posted.
        posted: u64,
        /// What it says it consumed.
        alleged: u64,
    },
    /// The sender posted without credit.
    #[error("the sender posted {received} messages when its credits end at {limit}")]
    BeyondCredit {
        /// The last message that it may post, counted from one.
        limit: u64,
        /// What it posted with the message in question.
        received: u64,
    },
}

/// All credits are in use. Not an error of anyone's: try again after an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no credits left on this channel")]
pub struct OutOfCredits;

/// Announce when a quarter of the places have been freed. Each announcement moves a cache line or costs a
/// frame, so one for every message is too many; with a quarter, three quarters of the capacity still cover
/// the round trip, so a sender with a sensible capacity does not stall for an announcement that is being
/// saved up.
const ANNOUNCEMENTS_PER_ROUND: u64 = 4;

/// The receiver's side.
#[derive(Clone, Debug)]
pub struct Grantor {
    capacity: u64,
    received: u64,
    consumed: u64,
    announced: u64,
}

impl Grantor {
    /// For a channel with `capacity` places, all free.
    ///
    /// # Panics
    /// When `capacity` is zero: such a channel can never carry anything.
    pub fn new(capacity: u32) -> Grantor {
        assert!(capacity > 0, "a channel needs at least one place");
        Grantor { capacity: capacity.into(), received: 0, consumed: 0, announced: 0 }
    }

    /// Call when `count` messages arrived, before anything is done with them. A ring cannot overflow into
    /// foreign memory whatever its producer does, but a transport that queues for us can: this is its check.
    pub fn receive(&mut self, count: u32) -> Result<(), PeerError> {
        let received = self.received + u64::from(count);
        // What we consumed but did not announce is not the sender's to use: it cannot know of it.
        let limit = self.announced + self.capacity;
        if received > limit {
            return Err(PeerError::BeyondCredit { limit, received });
        }
        self.received = received;
        Ok(())
    }

    /// Call when `count` places are free again: the messages have been copied out or handled.
    ///
    /// # Panics
    /// When that is more than was received: our own defect, which would hand out places that are still in
    /// use.
    pub fn consume(&mut self, count: u32) {
        let consumed = self.consumed + u64::from(count);
        assert!(consumed <= self.received, "consumed {consumed} messages of {} received", self.received);
        self.consumed = consumed;
    }

    /// The counter to announce, when enough places have been freed to be worth it. Call after `consume`.
    pub fn poll_announce(&mut self) -> Option<u64> {
        let enough = self.capacity.div_ceil(ANNOUNCEMENTS_PER_ROUND);
        if self.consumed - self.announced < enough {
            return None;
        }
        self.flush()
    }

    /// The counter to announce if anything at all is unannounced. Call before going to sleep, or when a frame
    /// goes to that peer anyway.
    pub fn flush(&mut self) -> Option<u64> {
        if self.consumed == self.announced {
            return None;
        }
        self.announced = self.consumed;
        Some(self.announced)
    }

    /// Messages received and not yet consumed.
    pub fn waiting(&self) -> u64 {
        self.received - self.consumed
    }
}

/// The sender's side.
#[derive(Clone, Debug)]
pub struct Spender {
    capacity: u64,
    posted: u64,
    announced: u64,
}

impl Spender {
    /// For a channel whose receiver owns `capacity` places; both sides must have agreed on that number.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn new(capacity: u32) -> Spender {
        assert!(capacity > 0, "a channel needs at least one place");
        Spender { capacity: capacity.into(), posted: 0, announced: 0 }
    }

    /// How many messages may be posted now.
    pub fn available(&self) -> u64 {
        self.announced + self.capacity - self.posted
    }

    /// Takes `count` credits, all or none. Call before posting.
    pub fn spend(&mut self, count: u32) -> Result<(), OutOfCredits> {
        if u64::from(count) > self.available() {
            return Err(OutOfCredits);
        }
        self.posted += u64::from(count);
        Ok(())
    }

    /// Takes in the counter that the receiver announces, an allegation until checked here. Returns how many
    /// credits that gave: zero for a repetition.
    ///
    /// The check bounds what a lying receiver can do: it gets back places of its own queue that it has not
    /// emptied, so it can lose its own messages, never another's.
    pub fn announced(&mut self, alleged: u64) -> Result<u64, PeerError> {
        if alleged < self.announced {
            return Err(PeerError::WentBackwards { announced: self.announced, alleged });
        }
        if alleged > self.posted {
            return Err(PeerError::BeyondPosted { posted: self.posted, alleged });
        }
        let gained = alleged - self.announced;
        self.announced = alleged;
        Ok(gained)
    }

    /// Messages posted so far.
    pub fn posted(&self) -> u64 {
        self.posted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[test]
    fn all_places_and_no_more() {
        let mut spender = Spender::new(3);
        assert_eq!(spender.spend(2), Ok(()));
        assert_eq!(spender.spend(2), Err(OutOfCredits));
        assert_eq!(spender.available(), 1, "a refusal takes nothing");
        assert_eq!(spender.spend(1), Ok(()));
        assert_eq!(spender.spend(1), Err(OutOfCredits));
        assert_eq!(spender.announced(2), Ok(2));
        assert_eq!(spender.announced(2), Ok(0));
        assert_eq!(spender.available(), 2);
    }

    #[test]
    fn a_peer_that_breaks_a_rule_is_told_which() {
        let mut spender = Spender::new(8);
        spender.spend(5).unwrap();
        spender.announced(3).unwrap();
        assert_eq!(spender.announced(2), Err(PeerError::WentBackwards { announced: 3, alleged: 2 }));
        assert_eq!(spender.announced(6), Err(PeerError::BeyondPosted { posted: 5, alleged: 6 }));
        assert_eq!(
            spender.announced(u64::MAX),
            Err(PeerError::BeyondPosted { posted: 5, alleged: u64::MAX })
        );
        assert_eq!(spender.available(), 6, "a false announcement changes nothing");

        let mut grantor = Grantor::new(8);
        grantor.receive(8).unwrap();
        grantor.consume(1);
        // One place is free, but the sender has not been told: it cannot have used it honestly.
        assert_eq!(grantor.receive(1), Err(PeerError::BeyondCredit { limit: 8, received: 9 }));
        assert_eq!(grantor.flush(), Some(1));
        assert_eq!(grantor.receive(1), Ok(()));
    }

    #[test]
    fn announcements_are_saved_up_but_not_for_ever() {
        let mut grantor = Grantor::new(8);
        grantor.receive(4).unwrap();
        grantor.consume(1);
        assert_eq!(grantor.poll_announce(), None);
        grantor.consume(1);
        assert_eq!(grantor.poll_announce(), Some(2));
        assert_eq!(grantor.flush(), None);
        grantor.consume(1);
        assert_eq!(grantor.flush(), Some(3));
        assert_eq!(grantor.waiting(), 1);
    }

    #[test]
    #[should_panic(expected = "consumed 1 messages of 0 received")]
    fn consuming_what_never_came_is_our_own_defect() {
        Grantor::new(1).consume(1);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Post(u32),
        Deliver,
        Consume(u32),
        Flush,
        Announce,
        Lie(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u32..5).prop_map(Step::Post),
            4 => Just(Step::Deliver),
            4 => (1u32..5).prop_map(Step::Consume),
            1 => Just(Step::Flush),
            4 => Just(Step::Announce),
            1 => any::<u64>().prop_map(Step::Lie),
        ]
    }

    proptest! {
        /// The one thing credits are for: whatever the order of events, the receiver never holds more than it
        /// has places, and no honest party is ever accused.
        #[test]
        fn the_receiver_is_never_overrun(
            capacity in 1u32..20,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let (mut spender, mut grantor) = (Spender::new(capacity), Grantor::new(capacity));
            // The truth, counted here and not by the parties.
            let (mut posted, mut consumed) = (0u64, 0u64);
            let mut messages = VecDeque::new();
            let mut announcements = VecDeque::new();
            for step in steps {
                match step {
                    Step::Post(count) => {
                        if spender.spend(count).is_ok() {
                            posted += u64::from(count);
                            messages.push_back(count);
                        }
                    }
                    Step::Deliver => {
                        if let Some(count) = messages.pop_front() {
                            prop_assert_eq!(grantor.receive(count), Ok(()));
                        }
                    }
                    Step::Consume(most) => {
                        let count = most.min(u32::try_from(grantor.waiting()).unwrap());
                        grantor.consume(count);
                        consumed += u64::from(count);
                        announcements.extend(grantor.poll_announce());
                    }
                    Step::Flush => announcements.extend(grantor.flush()),
                    Step::Announce => {
                        if let Some(counter) = announcements.pop_front() {
                            prop_assert!(spender.announced(counter).is_ok());
                        }
                    }
                    // A lie that the sender believes must be one that it cannot tell from the truth, and
                    // one that it does not believe must leave no trace.
                    Step::Lie(alleged) => {
                        let before = spender.clone();
                        let mut lied_to = spender.clone();
                        if lied_to.announced(alleged).is_err() {
                            prop_assert_eq!(lied_to.available(), before.available());
                        } else {
                            prop_assert!(alleged <= posted);
                        }
                    }
                }
                prop_assert!(posted - consumed <= u64::from(capacity));
            }
            // Once everything has been consumed and said, every place is free again: no credit leaks.
            for count in messages {
                prop_assert_eq!(grantor.receive(count), Ok(()));
            }
            let rest = u32::try_from(grantor.waiting()).unwrap();
            grantor.consume(rest);
            announcements.extend(grantor.flush());
            for counter in announcements {
                prop_assert!(spender.announced(counter).is_ok());
            }
            prop_assert_eq!(spender.available(), u64::from(capacity));
        }

        /// No deadlock by thrift: a receiver that consumes all it got always announces without being flushed,
        /// so a sender that stands at its limit goes on.
        #[test]
        fn a_full_round_is_always_announced(capacity in 1u32..200) {
            let mut grantor = Grantor::new(capacity);
            grantor.receive(capacity).unwrap();
            grantor.consume(capacity);
            prop_assert_eq!(grantor.poll_announce(), Some(u64::from(capacity)));
        }
    }
}
