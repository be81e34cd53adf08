//! What gossip has given up is asked for once more, of its sender and of some others: they keep what they had last.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Dice, NodeId, Time};

use super::Event;
use super::message::Message;
use super::table::CircleId;
use crate::transmit::{Cast, To};
use crate::view::Member;
use crate::wire::{Protocol, encode};

/// Messages that came by gossip and cannot be told yet.
pub(super) const MOST_HELD: usize = 1024;
/// Messages that are kept for those who missed them.
const MOST_KEPT: usize = 1024;
/// Of one sender: more is not asked for.
const MOST_LACKED: u64 = 256;
/// That are sent at once.
const MOST_ANSWERED: usize = 64;
/// So many are asked before a message is given up.
const MOST_TRIES: u32 = 4;
/// So long is an answer waited for.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A message that came by gossip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub circle: CircleId,
    pub to: Option<NodeId>,
    pub since: u64,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Lacking {
    numbers: BTreeSet<u64>,
    tries: u32,
    asked: Option<NodeId>,
    ask_at: Time,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    kept: BTreeMap<(Member, u64), Vec<u8>>,
    oldest: VecDeque<(Member, u64)>,
    lacking: BTreeMap<Member, Lacking>,
}

impl Recovery {
    /// Keeps a message, and forgets the oldest.
    pub(super) fn keep(&mut self, sender: Member, number: u64, bytes: Vec<u8>) {
        if self.kept.insert((sender, number), bytes).is_none() {
            self.oldest.push_back((sender, number));
        }
        if self.oldest.len() > MOST_KEPT
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.kept.remove(&oldest);
        }
    }

    /// These were given up. What is too much to be asked for, the oldest, is missed.
    pub(super) fn begin(&mut self, now: Time, from: Member, first: u64, last: u64) -> Vec<Event> {
        let lacking = self.lacking.entry(from).or_insert_with(|| Lacking {
            numbers: BTreeSet::new(),
            tries: 0,
            asked: None,
            ask_at: now,
        });
        let asked = first.max(last.saturating_sub(MOST_LACKED - 1));
        lacking.numbers.extend(asked..=last);
        let mut dropped = BTreeSet::new();
        while lacking.numbers.len() as u64 > MOST_LACKED {
            dropped.extend(lacking.numbers.pop_first());
        }
        let at_once = (first < asked).then(|| (first, asked - 1));
        missed(from, ranges(&dropped).chain(at_once)).collect()
    }

    /// The first that is asked for, of a sender.
    pub(super) fn first_lacked(&self, from: Member) -> Option<u64> {
        self.lacking.get(&from)?.numbers.first().copied()
    }

    pub(super) fn lacks(&self, sender: Member, number: u64) -> bool {
        self.lacking.get(&sender).is_some_and(|lacking| lacking.numbers.contains(&number))
    }

    /// Somebody has sent one that was lacked.
    pub(super) fn has_come(&mut self, sender: Member, number: u64) {
        let Some(lacking) = self.lacking.get_mut(&sender) else { return };
        lacking.numbers.remove(&number);
        lacking.tries = 0;
        if lacking.numbers.is_empty() {
            self.lacking.remove(&sender);
        }
    }

    /// Whoever was asked has no more of these: the next is asked at once.
    pub(super) fn has_no_more(&mut self, now: Time, from: NodeId, sender: Member, first: u64, last: u64) {
        if let Some(lacking) = self.lacking.get_mut(&sender)
            && lacking.asked == Some(from)
            && lacking.numbers.range(first..=last.max(first)).next().is_some()
        {
            lacking.ask_at = now;
        }
    }

    /// What is kept of these, within bounds, and a word if that is all.
    pub(super) fn answer(&self, to: NodeId, sender: Member, first: u64, last: u64) -> Vec<Cast> {
        let cast = |message: &Message<'_>| Cast {
            to: To::One(to),
            bytes: encode(Protocol::Circles, message).into(),
        };
        let mut found = self.kept.range((sender, first)..=(sender, last));
        let some = found.by_ref().take(MOST_ANSWERED);
        let mut casts: Vec<_> =
            some.map(|(&(_, number), body)| cast(&Message::Recovered { sender, number, body })).collect();
        if found.next().is_none() {
            casts.push(cast(&Message::NoMore { sender, first, last }));
        }
        casts
    }

    /// Asks for what is lacked: first its sender, then others. Says what was asked for in vain.
    pub(super) fn go_on(&mut self, now: Time, others: &[NodeId], dice: &mut Dice) -> (Vec<Cast>, Vec<Event>) {
        let (mut casts, mut in_vain) = (Vec::new(), Vec::new());
        self.lacking.retain(|&from, lacking| {
            if lacking.ask_at > now {
                return true;
            }
            let (Some(&first), Some(&last)) = (lacking.numbers.first(), lacking.numbers.last()) else {
                return false;
            };
            if lacking.tries == MOST_TRIES || others.is_empty() {
                in_vain.extend(missed(from, ranges(&lacking.numbers)));
                return false;
            }
            let is_first = lacking.tries == 0 && lacking.asked.is_none();
            let sender = others.iter().copied().find(|&node| is_first && node == from.node);
            let to = sender.unwrap_or_else(|| others[dice.index(others.len())]);
            lacking.tries += 1;
            lacking.asked = Some(to);
            lacking.ask_at = now.saturating_add(ASK_AGAIN);
            let ask = Message::Recover { sender: from, first, last };
            casts.push(Cast { to: To::One(to), bytes: encode(Protocol::Circles, &ask).into() });
            true
        });
        (casts, in_vain)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.lacking.values().map(|lacking| lacking.ask_at).min()
    }
}

fn missed(from: Member, ranges: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = Event> {
    ranges.map(move |(first, last)| Event::Missed { from, first, last })
}

/// Numbers as ranges, each from the first to the last.
fn ranges(numbers: &BTreeSet<u64>) -> impl Iterator<Item = (u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some(range) if range.1 + 1 == number => range.1 = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges.into_iter()
}
