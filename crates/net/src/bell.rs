//! The bell: how a sender tells a receiver that looks elsewhere, or sleeps, that something came.
//!
//! An endpoint owns one board of shared memory that all its peers may write: an attention word, a futex word, and a
//! flag for each of its channels. Everything on it is a hint. The rings are the truth: an endpoint looks at all its
//! rings now and then whatever the board says, and never sleeps longer than [`LONGEST_SLEEP`] in one go. A peer that
//! scribbles on the board costs the endpoint time, never a message.

use std::time::Duration;

use rustix::thread::futex;

use crate::attention;
use crate::fence::{Fences, before_sleep};
use crate::flags;
use crate::segment::{Segment, SegmentError, Writers};
use crate::sync::{Ordering, Words};

/// The receiver sleeps on the futex word: change it and wake.
const ASLEEP: u64 = 1;
/// The receiver has too many channels to look at each: set the channel's flag.
const MANY: u64 = 2;
/// The receiver waits in an event loop: write the channel's eventfd.
const EVENTS: u64 = 4;

const ATTENTION_WORD: usize = 0;
const FUTEX_WORD: usize = 8;
const FLAGS_START: usize = 128;

/// A bound on the harm of a garbled board: after this the sleeper looks for itself.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A bell, as seen by its owner or by a peer.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    board: Segment,
}

/// What a sender has to do besides setting the flag; all three are rare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ring {
    /// Nothing.
    Silent,
    /// Write the channel's eventfd.
    Event,
}

impl Bell {
    /// Bytes of a board for so many channels.
    pub(crate) fn board_bytes(channels: u32) -> usize {
        (FLAGS_START + channels as usize).next_multiple_of(4096)
    }

    pub(crate) fn create(channels: u32) -> Result<(Self, std::os::fd::OwnedFd), SegmentError> {
        let (board, fd) = Segment::create("comb-bell", Self::board_bytes(channels), Writers::Both)?;
        Ok((Self { board }, fd))
    }

    /// A peer's board, already adopted.
    pub(crate) fn of_peer(board: Segment) -> Self {
        Self { board }
    }

    /// How many channels the board has flags for.
    pub(crate) fn channels(&self) -> usize {
        self.board.len() - FLAGS_START
    }

    /// The sender's part, after it posted to the channel that the receiver knows as `index`.
    #[inline]
    pub(crate) fn after_post(&self, fences: Fences, index: usize) -> Ring {
        let attention = attention::after_post(self.board.word(ATTENTION_WORD), || fences.after_post());
        if attention == 0 { Ring::Silent } else { self.ring(attention, index) }
    }

    #[cold]
    fn ring(&self, attention: u64, index: usize) -> Ring {
        if attention & MANY != 0 {
            flags::raise(self.board.byte(FLAGS_START + index));
        }
        if attention & ASLEEP != 0 {
            self.wake();
        }
        if attention & EVENTS != 0 { Ring::Event } else { Ring::Silent }
    }

    /// Wakes the owner if it sleeps; also used by its own watcher.
    pub(crate) fn wake(&self) {
        let word = self.board.word32(FUTEX_WORD);
        word.fetch_add(1, Ordering::SeqCst);
        // Waking can fail only for a bad address.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
    }

    fn announce(&self, bit: u64) {
        attention::announce(self.board.word(ATTENTION_WORD), bit, before_sleep);
    }

    fn withdraw(&self, bit: u64) {
        attention::withdraw(self.board.word(ATTENTION_WORD), bit);
    }

    /// From now on senders set flags.
    pub(crate) fn demand_flags(&self) {
        self.announce(MANY);
    }

    /// As [`Bell::demand_flags`], after that: repairs the demand if somebody wiped it.
    pub(crate) fn keep_demanding_flags(&self) {
        if self.board.word(ATTENTION_WORD).load(Ordering::Relaxed) & MANY == 0 {
            self.demand_flags();
        }
    }

    /// Takes the flags that are set and calls `visit` with their channels.
    #[inline]
    pub(crate) fn take_flags(&self, channels: usize, mut visit: impl FnMut(usize)) {
        let channels = channels.min(self.channels());
        for group in 0..channels.div_ceil(8) {
            if !self.board.bytes_are_set(FLAGS_START / 8 + group) {
                continue;
            }
            for index in group * 8..(group * 8 + 8).min(channels) {
                if flags::take(self.board.byte(FLAGS_START + index)) {
                    visit(index);
                }
            }
        }
    }

    /// Sleeps until a sender rings, at most `limit`. `is_idle` is asked once more after the sleep was announced.
    pub(crate) fn sleep(&self, limit: Duration, is_idle: impl FnOnce() -> bool) {
        let word = self.board.word32(FUTEX_WORD);
        let before = word.load(Ordering::SeqCst);
        self.announce(ASLEEP);
        if is_idle() {
            let limit = limit.min(LONGEST_SLEEP);
            let limit = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(limit.subsec_nanos()).clamp(1, 999_999_999),
            };
            // Woken, timed out, interrupted or changed before: the caller looks again in each case.
            let _ = futex::wait(word, futex::Flags::empty(), before, Some(&limit));
        }
        self.withdraw(ASLEEP);
    }

    /// From now on senders write their channel's eventfd. The caller looks at its rings once more before it waits.
    pub(crate) fn demand_events(&self) {
        self.announce(EVENTS);
    }

    /// No eventfds any more.
    pub(crate) fn demand_no_events(&self) {
        self.withdraw(EVENTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_is_not_missed() {
        let (bell, _fd) = Bell::create(4).unwrap();
        let peer = bell.clone();
        let started = std::time::Instant::now();
        // The message comes after the announcement and before the wait: the futex word has changed.
        bell.sleep(Duration::from_secs(5), || {
            peer.after_post(Fences::Full, 0);
            true
        });
        assert!(started.elapsed() < LONGEST_SLEEP);
        assert_eq!(peer.after_post(Fences::Full, 0), Ring::Silent, "awake again");
    }

    #[test]
    fn miri_flags_name_the_channels_that_were_posted_to() {
        let (bell, _fd) = Bell::create(1000).unwrap();
        bell.demand_flags();
        for index in [3, 64, 999] {
            bell.after_post(Fences::Asymmetric, index);
        }
        let mut seen = Vec::new();
        bell.take_flags(1000, |index| seen.push(index));
        assert_eq!(seen, [3, 64, 999]);
        bell.take_flags(1000, |index| panic!("flag {index} was taken"));
    }

    #[test]
    fn a_garbled_board_only_wakes_too_often() {
        let (bell, _fd) = Bell::create(16).unwrap();
        for word in 0..bell.board.len() / 8 {
            bell.board.word(word).store(u64::MAX, Ordering::Relaxed);
        }
        let mut visits = 0;
        bell.take_flags(16, |_| visits += 1);
        assert_eq!(visits, 16);
        assert_eq!(bell.after_post(Fences::Full, 5), Ring::Event);
        bell.sleep(Duration::from_millis(1), || true);
    }
}
