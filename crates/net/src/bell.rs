//! The bell: how a sender tells a receiver that looks elsewhere, or sleeps, that something came.
//!
//! An endpoint owns one board of shared memory that all its peers may write: an attention word, a futex word, and a
//! flag for each of its channels; and, for those who outlive its process, its last word, twice, so that a wild store makes it none (a peer
//! that means to forge it can). Everything else on it is a hint. The rings are the truth: an endpoint looks at all its
//! rings now and then whatever the board says, and never sleeps longer than [`LONGEST_SLEEP`] in one go. A byte for
//! mail is raised for whoever polls while it computes, who is woken only when it has not looked for a while. A peer that
//! scribbles on the board costs the endpoint time, never a message.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::thread::futex;

use crate::attention;
use crate::fence::Fences;
use crate::flags;
use crate::segment::{Segment, SegmentError, Writers};
use crate::sync::{Ordering, Words};

/// The receiver sleeps on the futex word: change it and wake.
const ASLEEP: u64 = 1;
/// The receiver has too many channels to look at each: write the low byte of the count of messages to the channel's flag.
const MANY: u64 = 2;
/// The receiver waits in an event loop: write the channel's eventfd.
const EVENTS: u64 = 4;
/// Some channels of this endpoint want to be told of each message read: look at the channel's own word.
const CREDIT: u64 = 8;
/// Some flows into this endpoint are quenched: look at the channel's own word.
const QUENCHED: u64 = 16;
/// The receiver computes and looks at its mail byte often: raise that, and ring only if it has not looked for a while.
const POLLED: u64 = 32;

const ATTENTION_WORD: usize = 0;
/// Two words, and the same two inverted, so that a garbled one is none.
const LAST_WORD: usize = 1;
const FUTEX_WORD: usize = 8;
/// Not 0: something was posted to a receiver that polls. On the board's first page, at a place that programs know.
pub const MAIL_BYTE: usize = 96;
const FLAGS_START: usize = 128;

/// A bound on the harm of a garbled board: after this the sleeper looks for itself.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A bell, as seen by its owner or by a peer.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    board: Segment,
    /// Between its owner, who goes to sleep, and those who ring it.
    fences: Fences,
}

/// What a receiver wants a sender to do after it posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attention(u64);

impl Attention {
    /// Anything at all.
    #[inline]
    pub(crate) fn is_wanted(self) -> bool {
        self.0 & !CREDIT != 0
    }

    /// To write the channel's eventfd.
    pub(crate) fn wants_event(self) -> bool {
        self.0 & EVENTS != 0
    }

    /// To raise its mail, and to ring later if it has not looked.
    pub(crate) fn is_polled(self) -> bool {
        self.0 & POLLED != 0
    }

    /// To look whether its channel is quenched.
    pub(crate) fn has_quenched(self) -> bool {
        self.0 & QUENCHED != 0
    }
}

impl Bell {
    /// Bytes of a board for so many channels.
    pub(crate) fn board_bytes(channels: u32) -> usize {
        (FLAGS_START + channels as usize).next_multiple_of(4096)
    }

    /// `fences`: what all those are told to use who are to ring it.
    pub(crate) fn create(
        channels: u32,
        fences: Fences,
    ) -> Result<(Self, std::os::fd::OwnedFd), SegmentError> {
        let (board, fd) = Segment::create("comb-bell", Self::board_bytes(channels), Writers::Both)?;
        Ok((Self { board, fences }, fd))
    }

    /// A peer's board, already adopted.
    pub(crate) fn of_peer(board: Segment, fences: Fences) -> Self {
        Self { board, fences }
    }

    /// What whoever tells its owner something has to use.
    #[inline]
    pub(crate) fn fences(&self) -> Fences {
        self.fences
    }

    /// The sender's part, after it posted.
    #[inline]
    pub(crate) fn after_post(&self) -> Attention {
        Attention(attention::after_post(self.board.word(ATTENTION_WORD), || self.fences.after_post()))
    }

    /// Raises the flag of the channel that the receiver knows as `index`, and wakes it, if it wants that. `sent`: the
    /// count of messages.
    pub(crate) fn ring(&self, attention: Attention, index: usize, sent: u32) {
        if attention.0 & MANY != 0 {
            flags::raise(self.board.byte(FLAGS_START + index), sent);
        }
        if attention.0 & ASLEEP != 0 {
            self.wake();
        }
    }

    /// Whether some channel of the peer wants to be told of each message that we read.
    #[inline]
    pub(crate) fn peer_wants_credit(&self) -> bool {
        self.board.word(ATTENTION_WORD).load(Ordering::Relaxed) & CREDIT != 0
    }

    /// From now on, or no longer, some channel wants to be told of each message read.
    pub(crate) fn demand_credit(&self, demanded: bool) {
        self.set(CREDIT, demanded);
    }

    /// From now on, or no longer, senders look whether they are quenched.
    pub(crate) fn demand_obedience(&self, demanded: bool) {
        self.set(QUENCHED, demanded);
    }

    /// For bits that are looked at soon enough without a fence.
    fn set(&self, bit: u64, wanted: bool) {
        let word = self.board.word(ATTENTION_WORD);
        let stands = word.load(Ordering::Relaxed) & bit != 0;
        match (stands, wanted) {
            (false, true) => attention::announce(word, bit, || {}),
            (true, false) => attention::withdraw(word, bit),
            _ => {}
        }
    }

    /// What peers, and the agent, find when the owner's process has ended.
    pub(crate) fn leave_word(&self, word: u128) {
        for (place, half) in halves(word).into_iter().enumerate() {
            self.board.word(LAST_WORD + place).store(half, Ordering::Release);
        }
    }

    /// What the owner left last. Of one whose process lives it says nothing: it may be about to change.
    pub(crate) fn last_word(&self) -> Option<u128> {
        whole(core::array::from_fn(|place| self.board.word(LAST_WORD + place).load(Ordering::Acquire)))
    }

    /// As [`Bell::last_word`], of a board that is not mapped here.
    pub(crate) fn last_word_on(board: BorrowedFd<'_>) -> Option<u128> {
        let mut bytes = [0; 32];
        let read = rustix::io::pread(board, &mut bytes, LAST_WORD as u64 * 8).ok()?;
        let words = bytes.as_chunks::<8>().0;
        (read == bytes.len())
            .then(|| whole(core::array::from_fn(|place| u64::from_ne_bytes(words[place]))))?
    }

    /// Wakes the owner if it sleeps; also used by its own watcher.
    pub(crate) fn wake(&self) {
        let word = self.board.word32(FUTEX_WORD);
        word.fetch_add(1, Ordering::SeqCst);
        // Waking can fail only for a bad address.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
    }

    fn announce(&self, bit: u64) {
        attention::announce(self.board.word(ATTENTION_WORD), bit, || self.fences.before_sleep());
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

    /// Eight flags at a glance. Panics beyond the board.
    #[inline]
    pub(crate) fn flags(&self, group: usize) -> u64 {
        self.board.glance(FLAGS_START / 8 + group)
    }

    /// How many blocks of 64 flags, from the one of that number on, are as in `read` before one is not.
    #[inline]
    pub(crate) fn same_blocks(&self, block: usize, read: &[[u64; 8]]) -> usize {
        self.board.same_blocks(FLAGS_START / 8 + block * 8, read)
    }

    /// The flag of one channel.
    pub(crate) fn flag(&self, index: usize) -> u8 {
        self.board.byte(FLAGS_START + index).load(Ordering::Relaxed)
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

    /// From now on senders write their channel's eventfd; of a receiver that polls, late. The caller looks at its rings once more before it waits.
    pub(crate) fn demand_events(&self, polled: bool) {
        self.take_mail();
        self.announce(if polled { EVENTS | POLLED } else { EVENTS });
    }

    /// No eventfds any more. What comes from now on is found without.
    pub(crate) fn demand_no_events(&self) {
        self.withdraw(EVENTS | POLLED);
        self.take_mail();
    }

    /// A sender's part: the receiver sees that when it polls.
    pub(crate) fn raise_mail(&self) {
        attention::raise_mail(self.mail());
    }

    /// A sender's part, some time after it raised the mail: whether the receiver has not looked, and waits for events.
    pub(crate) fn is_unread(&self) -> bool {
        attention::is_unread(self.mail(), self.board.word(ATTENTION_WORD), EVENTS)
    }

    /// Before the receiver looks at its rings: what was posted before the mail was raised is found there.
    fn take_mail(&self) {
        attention::take_mail(self.mail());
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.mail().load(Ordering::Relaxed) != 0
    }

    fn mail(&self) -> &crate::sync::AtomicU64 {
        self.board.word(MAIL_BYTE / 8)
    }
}

/// A word as it stands on the board.
fn halves(word: u128) -> [u64; 4] {
    #[expect(clippy::cast_possible_truncation, reason = "one half after the other")]
    let [low, high] = [word as u64, (word >> 64) as u64];
    [low, high, !low, !high]
}

fn whole([low, high, not_low, not_high]: [u64; 4]) -> Option<u128> {
    (not_low == !low && not_high == !high).then(|| u128::from(high) << 64 | u128::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flagged::Flagged;

    #[test]
    fn a_ring_before_the_sleep_is_not_missed() {
        let (bell, _fd) = Bell::create(4, Fences::Full).unwrap();
        let peer = bell.clone();
        let started = std::time::Instant::now();
        // The message comes after the announcement and before the wait: the futex word has changed.
        bell.sleep(Duration::from_secs(5), || {
            peer.ring(peer.after_post(), 0, 1);
            true
        });
        assert!(started.elapsed() < LONGEST_SLEEP);
        assert!(!peer.after_post().is_wanted(), "awake again");
    }

    /// A board that peers raise flags on.
    fn demanded(channels: u32) -> (Bell, Flagged) {
        let (bell, _fd) = Bell::create(channels, Fences::Full).unwrap();
        let mut flagged = Flagged::default();
        (0..channels as usize).for_each(|index| flagged.look_at(index));
        flagged.demand(&bell, channels as usize);
        (bell, flagged)
    }

    /// What is found until nothing is, each read in full.
    fn looked_at(bell: &Bell, flagged: &mut Flagged) -> Vec<usize> {
        let mut found = Vec::new();
        while let Some((index, flag)) = flagged.next(bell) {
            flagged.record(index, flag);
            found.push(index);
        }
        found
    }

    #[test]
    fn miri_flags_name_the_channels_that_were_posted_to() {
        // Under miri each look at a flag takes a microsecond.
        const CHANNELS: u32 = if cfg!(miri) { 130 } else { 1000 };
        const LAST: usize = CHANNELS as usize - 1;
        let (bell, mut flagged) = demanded(CHANNELS);
        let looks = looked_at(&bell, &mut flagged).len();
        assert_eq!(looks, LAST + 1, "each is looked at once, whatever its flag says");
        for index in [LAST, 3, 64, 65] {
            bell.ring(bell.after_post(), index, 1);
        }
        assert_eq!(looked_at(&bell, &mut flagged), [3, 64, 65, LAST]);
        assert!(!flagged.any(&bell));
        bell.ring(bell.after_post(), 64, 2);
        assert!(flagged.any(&bell));
        assert_eq!(flagged.next(&bell), Some((64, 2)));
        flagged.record(64, 1);
        assert_eq!(flagged.next(&bell), Some((64, 2)), "it stays up until all is read");
    }

    #[test]
    fn busy_channels_take_turns() {
        let (bell, mut flagged) = demanded(24);
        looked_at(&bell, &mut flagged);
        for index in [1, 2, 9, 23] {
            bell.ring(bell.after_post(), index, 1);
        }
        let turns: Vec<usize> = (0..60).map(|_| flagged.next(&bell).expect("none was read").0).collect();
        for index in [1, 2, 9, 23] {
            assert_eq!(turns.iter().filter(|turn| **turn == index).count(), 15, "channel {index}");
        }
    }

    #[test]
    fn the_last_word_is_what_was_left_last_or_none() {
        use std::os::fd::AsFd;
        let (bell, fd) = Bell::create(4, Fences::Full).unwrap();
        let both = || (bell.last_word(), Bell::last_word_on(fd.as_fd()));
        assert_eq!(both(), (None, None), "nothing was left");
        for word in [0, 1 << 64 | 2, u128::MAX] {
            bell.leave_word(word);
            assert_eq!(both(), (Some(word), Some(word)));
        }
        for place in LAST_WORD..LAST_WORD + 4 {
            bell.leave_word(7);
            bell.board.word(place).fetch_xor(1, Ordering::Relaxed);
            assert_eq!(both(), (None, None), "a peer scribbled on it");
        }
        assert!(!bell.after_post().is_wanted() && bell.flags(0) == 0, "nothing else is touched");
    }

    #[test]
    fn a_garbled_board_only_wakes_too_often() {
        let (bell, _fd) = Bell::create(16, Fences::Full).unwrap();
        for word in 0..bell.board.len() / 8 {
            bell.board.word(word).store(u64::MAX, Ordering::Relaxed);
        }
        let mut flagged = Flagged::default();
        (0..16).for_each(|index| flagged.look_at(index));
        // Those too that no channel has: there nothing is found.
        assert_eq!(looked_at(&bell, &mut flagged).len(), 64);
        assert!(bell.after_post().wants_event());
        bell.sleep(Duration::from_millis(1), || true);
    }
}
