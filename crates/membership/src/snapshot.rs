//! How the state of a group gets to a member that lacks too much: in pieces, at the pace of who takes it.
//!
//! The taker asks for a run of pieces, and for the next when it has them; what was lost it asks for again. The giver keeps what it
//! gave last for a while, so that many who come at once are given the same, and remembers nothing of any taker.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::transmit::Transmit;
use crate::wire::{self, PeerError, Protocol};

/// Pieces in a run: as many as may be under way at once.
const RUN_PIECES: usize = 16;
/// Snapshots that are kept for those who are in the middle of one.
const MOST_KEPT: usize = 3;
/// Takers that wait for a snapshot to be made.
const MOST_WAITING: usize = 1024;
/// Of a piece's message, besides the piece.
const OVERHEAD_BYTES: usize = 40;

/// How a snapshot is handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The longest message, envelope included.
    pub longest_message: usize,
    /// A larger snapshot is refused.
    pub most_bytes: u64,
    /// What has not come for so long is asked for again.
    pub resend: Duration,
    /// A snapshot that is younger is given to others too.
    pub fresh: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            longest_message: 1400,
            most_bytes: 1 << 30,
            resend: Duration::from_millis(20),
            fresh: Duration::from_millis(100),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Message<'a> {
    /// From the taker: a run from here on, of this snapshot; of any, if none is named.
    Ask { snapshot: Option<u64>, from: u64 },
    /// From the giver.
    Piece { snapshot: u64, total: u64, from: u64, bytes: &'a [u8] },
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask { snapshot: None, .. } => write!(f, "asks for a snapshot"),
            Self::Ask { snapshot: Some(snapshot), from } => {
                write!(f, "asks for snapshot {snapshot} from byte {from}")
            }
            Self::Piece { snapshot, total, from, bytes } => {
                write!(f, "snapshot {snapshot}: {} bytes from {from}, of {total}", bytes.len())
            }
        }
    }
}

/// What the two sides want done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// To the giver: make a snapshot, and [`Snapshots::give`] it.
    Make,
    /// To the taker: there is more of it than before.
    Progress,
    /// To the taker: this is the whole of it.
    Taken {
        /// Whence.
        from: NodeId,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

#[derive(Clone, Debug)]
struct Given {
    number: u64,
    at: Time,
    bytes: Arc<[u8]>,
}

#[derive(Clone, Debug)]
struct Taking {
    giver: NodeId,
    snapshot: Option<u64>,
    total: u64,
    got: Vec<u8>,
    /// The run that was asked for ends here.
    run_ends: usize,
    resend_at: Time,
}

/// Both sides of one node.
#[derive(Clone, Debug)]
pub struct Snapshots {
    config: Config,
    given: VecDeque<Given>,
    number: u64,
    /// Who waits until one is made.
    waiting: Vec<NodeId>,
    taking: Option<Taking>,
    out: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Snapshots {
    /// Gives and takes nothing yet.
    pub fn new(config: Config) -> Self {
        assert!(config.longest_message > OVERHEAD_BYTES, "a message must have room for a piece");
        Self {
            config,
            given: VecDeque::new(),
            number: 0,
            waiting: Vec::new(),
            taking: None,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes a snapshot from a node; what was begun with another is given up.
    pub fn take(&mut self, now: Time, giver: NodeId) {
        let resend_at = now.saturating_add(self.config.resend);
        let taking = Taking { giver, snapshot: None, total: 0, got: Vec::new(), run_ends: 0, resend_at };
        self.taking = Some(taking);
        self.ask(now);
    }

    /// From whom one is being taken.
    pub fn giver(&self) -> Option<NodeId> {
        self.taking.as_ref().map(|taking| taking.giver)
    }

    /// The answer to [`Event::Make`].
    pub fn give(&mut self, now: Time, bytes: &[u8]) {
        self.number += 1;
        self.given.push_back(Given { number: self.number, at: now, bytes: bytes.into() });
        if self.given.len() > MOST_KEPT {
            self.given.pop_front();
        }
        for taker in core::mem::take(&mut self.waiting) {
            self.send_run(taker, self.number, 0);
        }
    }

    /// Takes a message. An error names a peer that broke a rule; nothing has changed then.
    pub fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        match wire::decode_borrowed(from, Protocol::Snapshot, bytes)? {
            Message::Ask { snapshot, from: offset } => self.asked(now, from, snapshot, offset),
            Message::Piece { snapshot, total, from: offset, bytes } => {
                self.came(now, from, snapshot, (offset, total), bytes)
            }
        }
    }

    /// Asks again for what has not come.
    pub fn timeout(&mut self, now: Time) {
        if self.next_timeout().is_some_and(|due| due <= now) {
            self.ask(now);
        }
    }

    /// When to call [`Snapshots::timeout`].
    pub fn next_timeout(&self) -> Option<Time> {
        self.taking.as_ref().map(|taking| taking.resend_at)
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    /// The next thing to be done.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn piece_bytes(&self) -> usize {
        self.config.longest_message - OVERHEAD_BYTES
    }

    fn ask(&mut self, now: Time) {
        let run = RUN_PIECES * self.piece_bytes();
        let Some(taking) = &mut self.taking else { return };
        taking.run_ends = taking.got.len() + run;
        taking.resend_at = now.saturating_add(self.config.resend);
        let message = Message::Ask { snapshot: taking.snapshot, from: taking.got.len() as u64 };
        self.out.push_back(Transmit { to: taking.giver, bytes: wire::encode(Protocol::Snapshot, &message) });
    }

    fn asked(&mut self, now: Time, taker: NodeId, snapshot: Option<u64>, from: u64) -> Result<(), PeerError> {
        let kept = match snapshot {
            Some(number) => self.given.iter().find(|given| given.number == number),
            None => self.given.back().filter(|given| now.since(given.at) < self.config.fresh),
        };
        match kept {
            Some(given) if from > given.bytes.len() as u64 => {
                Err(PeerError::new(taker, "a question for what lies behind a snapshot"))
            }
            Some(given) => {
                let number = given.number;
                self.send_run(taker, number, from);
                Ok(())
            }
            // Given up meanwhile: it gets another, from its beginning.
            None => {
                if self.waiting.is_empty() {
                    self.events.push_back(Event::Make);
                }
                if !self.waiting.contains(&taker) && self.waiting.len() < MOST_WAITING {
                    self.waiting.push(taker);
                }
                Ok(())
            }
        }
    }

    fn send_run(&mut self, taker: NodeId, number: u64, from: u64) {
        let Some(given) = self.given.iter().find(|given| given.number == number) else { return };
        let (whole, piece) = (given.bytes.clone(), self.piece_bytes());
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(whole.len());
        let run = &whole[start..whole.len().min(start + RUN_PIECES * piece)];
        // An empty snapshot is one empty piece.
        let pieces = run.chunks(piece).chain(run.is_empty().then_some(run));
        for (index, bytes) in pieces.enumerate() {
            let (total, from) = (whole.len() as u64, (start + index * piece) as u64);
            let message = Message::Piece { snapshot: number, total, from, bytes };
            self.out.push_back(Transmit { to: taker, bytes: wire::encode(Protocol::Snapshot, &message) });
        }
    }

    fn came(
        &mut self,
        now: Time,
        from: NodeId,
        snapshot: u64,
        (offset, total): (u64, u64),
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let Some(taking) = self.taking.as_mut().filter(|taking| taking.giver == from) else {
            // Late: it was taken, or another giver was chosen.
            return Ok(());
        };
        if total > self.config.most_bytes {
            return Err(PeerError::new(from, "a snapshot that is too large"));
        }
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > total) {
            return Err(PeerError::new(from, "a piece that lies behind its snapshot"));
        }
        if taking.snapshot == Some(snapshot) && taking.total != total {
            return Err(PeerError::new(from, "a snapshot that changes its length"));
        }
        if taking.snapshot.is_none_or(|before| before < snapshot) && offset == 0 {
            (taking.snapshot, taking.total) = (Some(snapshot), total);
            taking.got.clear();
        }
        if taking.snapshot != Some(snapshot) || offset != taking.got.len() as u64 {
            return Ok(());
        }
        taking.got.extend_from_slice(bytes);
        taking.resend_at = now.saturating_add(self.config.resend);
        if taking.got.len() as u64 == total {
            let bytes = core::mem::take(&mut taking.got);
            self.taking = None;
            self.events.push_back(Event::Taken { from, bytes });
        } else {
            self.events.push_back(Event::Progress);
            if taking.got.len() >= taking.run_ends {
                self.ask(now);
            }
        }
        Ok(())
    }
}

/// A message in words, for logs.
pub fn describe(from: NodeId, bytes: &[u8]) -> String {
    match wire::decode_borrowed::<Message<'_>>(from, Protocol::Snapshot, bytes) {
        Ok(message) => message.to_string(),
        Err(error) => error.to_string(),
    }
}

/// What a node may make up.
#[cfg(test)]
pub(crate) fn lie(dice: &mut comb_types::Dice) -> Vec<u8> {
    let mut number = || [0, 1, 1 << 20, u64::MAX - 1, u64::MAX][dice.index(5)];
    let (snapshot, from, total) = (number(), number(), number());
    let message = if number() < 2 {
        Message::Ask { snapshot: (snapshot > 0).then_some(snapshot), from }
    } else {
        Message::Piece { snapshot, total, from, bytes: &[7; 1000] }
    };
    wire::encode(Protocol::Snapshot, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use comb_types::Dice;
    use proptest::prelude::*;

    const GIVER: NodeId = NodeId(0);
    const TAKER: NodeId = NodeId(1);

    fn config() -> Config {
        Config { longest_message: 100, most_bytes: 100_000, ..Config::default() }
    }

    /// Carries messages between the two, of which so many in a million are lost, until one is taken. Says what was taken, and how
    /// many messages were sent.
    fn carry(
        giver: &mut Snapshots,
        taker: &mut Snapshots,
        whole: &[u8],
        lost: u32,
        seed: u64,
    ) -> (Vec<u8>, u32) {
        let (mut dice, mut now, mut sent) = (Dice::new(seed), Time::ZERO, 0);
        loop {
            let ways = [(TAKER, taker.poll_transmit()), (GIVER, giver.poll_transmit())];
            for (from, transmit) in ways.into_iter().filter_map(|(from, transmit)| Some((from, transmit?))) {
                sent += 1;
                if !dice.happens(lost) {
                    let to = if transmit.to == GIVER { &mut *giver } else { &mut *taker };
                    to.receive(now, from, &transmit.bytes).expect("honest");
                }
            }
            while let Some(event) = giver.poll_event() {
                assert_eq!(event, Event::Make);
                giver.give(now, whole);
            }
            while let Some(event) = taker.poll_event() {
                if let Event::Taken { from, bytes } = event {
                    assert_eq!(from, GIVER);
                    return (bytes, sent);
                }
            }
            // Slow enough that a run takes longer than the time after which a silent giver is asked again.
            now = now.saturating_add(Duration::from_millis(2));
            assert!(lost > 0 || taker.next_timeout() > Some(now), "whoever gets it all need not ask again");
            taker.timeout(now);
            assert!(now < Time::from_millis(1_000_000), "it never comes");
        }
    }

    fn both() -> (Snapshots, Snapshots) {
        let (giver, mut taker) = (Snapshots::new(config()), Snapshots::new(config()));
        taker.take(Time::ZERO, GIVER);
        (giver, taker)
    }

    #[test]
    fn snapshots_of_any_length_arrive_whole_whatever_is_lost() {
        for (seed, bytes) in (0..).zip([0, 1, 59, 60, 61, 960, 961, 10_000]) {
            let whole: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
            for lost in [0, 300_000] {
                let (mut giver, mut taker) = both();
                assert_eq!(carry(&mut giver, &mut taker, &whole, lost, seed).0, whole, "{bytes} bytes");
                assert_eq!(taker.next_timeout(), None);
            }
        }
    }

    #[test]
    fn nothing_is_sent_twice_if_nothing_is_lost() {
        let (mut giver, mut taker) = both();
        let (_, sent) = carry(&mut giver, &mut taker, &[7; 6000], 0, 1);
        // A question for each run of sixteen pieces, and the pieces.
        assert_eq!(sent, 7 + 100);
    }

    #[test]
    fn many_who_come_at_once_are_given_the_same() {
        let (mut giver, _) = both();
        let ask = wire::encode(Protocol::Snapshot, &Message::Ask { snapshot: None, from: 0 });
        let late = Time::ZERO.saturating_add(config().fresh);
        for taker in [1, 2, 3, 1, 4] {
            giver.receive(Time::ZERO, NodeId(taker), &ask).unwrap();
        }
        assert_eq!((giver.poll_event(), giver.poll_event()), (Some(Event::Make), None));
        giver.give(Time::ZERO, b"state");
        giver.receive(Time::from_millis(1), NodeId(9), &ask).unwrap();
        assert_eq!(giver.poll_event(), None, "it is fresh");
        assert_eq!(core::iter::from_fn(|| giver.poll_transmit()).count(), 5);
        giver.receive(late, NodeId(9), &ask).unwrap();
        assert_eq!(giver.poll_event(), Some(Event::Make));
    }

    #[test]
    fn who_asks_for_one_that_is_kept_no_more_gets_another_from_its_beginning() {
        let (mut giver, mut taker) = both();
        let first = taker.poll_transmit().unwrap();
        giver.receive(Time::ZERO, TAKER, &first.bytes).unwrap();
        giver.give(Time::ZERO, &[1; 5000]);
        for _ in 0..3 {
            taker.receive(Time::ZERO, GIVER, &giver.poll_transmit().unwrap().bytes).unwrap();
        }
        while giver.poll_transmit().is_some() {}
        (0..MOST_KEPT).for_each(|_| giver.give(Time::ZERO, &[2; 3000]));
        taker.timeout(Time::from_millis(500));
        // It is late already, and one in a million more may be lost.
        assert_eq!(carry(&mut giver, &mut taker, &[2; 3000], 1, 1).0, vec![2; 3000]);
    }

    #[test]
    fn no_more_wait_for_a_snapshot_than_may() {
        let (mut giver, _) = both();
        let ask = wire::encode(Protocol::Snapshot, &Message::Ask { snapshot: None, from: 0 });
        for taker in 1..2000 {
            giver.receive(Time::ZERO, NodeId(taker), &ask).unwrap();
        }
        giver.give(Time::ZERO, b"state");
        assert_eq!(core::iter::from_fn(|| giver.poll_transmit()).count(), MOST_WAITING);
    }

    #[test]
    fn a_piece_that_comes_again_undoes_nothing() {
        let (_, mut taker) = both();
        for (from, bytes) in [(0, b"one"), (3, b"two"), (0, b"one"), (3, b"two"), (6, b"six")] {
            let piece =
                wire::encode(Protocol::Snapshot, &Message::Piece { snapshot: 1, total: 9, from, bytes });
            taker.receive(Time::ZERO, GIVER, &piece).unwrap();
        }
        let taken = core::iter::from_fn(|| taker.poll_event()).filter(|event| *event != Event::Progress);
        assert_eq!(taken.collect::<Vec<_>>(), [Event::Taken { from: GIVER, bytes: b"onetwosix".to_vec() }]);
    }

    #[test]
    fn lies_are_refused_with_their_reason_and_change_nothing() {
        let (mut giver, mut taker) = both();
        let piece = |snapshot, total, from, bytes: &[u8]| {
            wire::encode(Protocol::Snapshot, &Message::Piece { snapshot, total, from, bytes })
        };
        let rule = |side: &mut Snapshots, from, bytes: &[u8]| {
            side.receive(Time::ZERO, from, bytes).unwrap_err().rule
        };
        assert_eq!(rule(&mut taker, GIVER, &piece(1, 1 << 40, 0, b"x")), "a snapshot that is too large");
        assert_eq!(rule(&mut taker, GIVER, &piece(1, 1, 1, b"x")), "a piece that lies behind its snapshot");
        assert_eq!(
            rule(&mut taker, GIVER, &piece(1, 9, u64::MAX, b"x")),
            "a piece that lies behind its snapshot"
        );
        taker.receive(Time::ZERO, GIVER, &piece(1, 9, 0, b"good")).unwrap();
        assert_eq!(rule(&mut taker, GIVER, &piece(1, 8, 4, b"bad")), "a snapshot that changes its length");
        taker.receive(Time::ZERO, NodeId(7), &piece(1, 9, 4, b"other")).unwrap();
        taker.receive(Time::ZERO, GIVER, &piece(1, 9, 4, b"right")).unwrap();
        let taken = core::iter::from_fn(|| taker.poll_event()).last();
        assert_eq!(taken, Some(Event::Taken { from: GIVER, bytes: b"goodright".to_vec() }));
        giver.give(Time::ZERO, b"state");
        let behind = wire::encode(Protocol::Snapshot, &Message::Ask { snapshot: Some(1), from: 6 });
        assert_eq!(rule(&mut giver, TAKER, &behind), "a question for what lies behind a snapshot");
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(messages in prop::collection::vec((0_u32..3, prop::collection::vec(any::<u8>(), 0..40)), 0..40)) {
            let (mut giver, mut taker) = both();
            giver.give(Time::ZERO, &[3; 500]);
            for (from, mut bytes) in messages {
                if let [version, protocol, ..] = &mut bytes[..] {
                    (*version, *protocol) = (wire::VERSION, Protocol::Snapshot as u8);
                }
                for side in [&mut giver, &mut taker] {
                    if let Err(error) = side.receive(Time::ZERO, NodeId(from), &bytes) {
                        prop_assert_eq!(error.from, NodeId(from));
                    }
                }
            }
        }
    }
}
