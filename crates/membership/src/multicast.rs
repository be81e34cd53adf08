//! How a message reaches thousands, almost certainly. (Galaxy §8.5.2)
//!
//! A message is sent to all once, as well as it goes. Then everybody tells somebody, chosen at random, in every round which
//! messages it has; who lacks one of them asks for it, and who has one that the other lacks sends it. After so many rounds
//! as make it improbable enough that somebody lacks it (see [`rounds`]), a message is forgotten.
//!
//! What was improbable happens, some time. A member that learns of a message and has not got it in so many rounds says so:
//! [`Event::Missed`]. The layer above ([`crate::circles`]) then asks for it in its own way.
//!
//! Messages are delivered when they come, in no order, each once in a life of its sender.

mod rounds;
#[cfg(test)]
mod tests;
mod track;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Dice, NodeId, Time};
use serde::{Deserialize, Serialize};

pub use rounds::rounds;
use track::{Range, Track};

use crate::transmit::{Cast, To};
use crate::view::{Member, View};
use crate::wire::{PeerError, Protocol, VERSION, protocol};

/// The most that a message adds to its body: an envelope, and four numbers.
const MOST_OVERHEAD_BYTES: usize = 48;

/// The most that one sender needs in a digest besides its ranges.
const MOST_CLAIM_BYTES: usize = 40;

/// Ranges that are told, or asked for, of one sender. The rest must wait for a later round.
const MOST_RANGES: usize = 8;

/// Rounds by which the members' clocks and the time on the way may set them apart.
const SLACK_ROUNDS: u32 = 2;

/// Where nothing is known to be open, only every so manieth round is held: it finds what nobody else has heard of.
const IDLE_ROUNDS: u32 = 16;

/// How it works. All members have the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The longest message, envelope included.
    pub longest_message: usize,
    /// How long a round is.
    pub interval: Duration,
    /// To how many a member turns in a round.
    pub fanout: u32,
    /// The probability that a message is lost, as far as it is planned for.
    pub loss: f64,
    /// The probability that a message does not reach all that may remain.
    pub epsilon: f64,
    /// Messages of one sender that may be open. More are refused to the sender, and given up by receivers.
    pub open_most: u64,
    /// Messages that are kept for others, of all senders.
    pub kept_most: usize,
    /// Messages that are sent to one member for one of its messages.
    pub repairs_most: usize,
}

impl Default for Config {
    /// For hosts in one machine room.
    fn default() -> Self {
        Self {
            longest_message: 1400,
            interval: Duration::from_millis(20),
            fanout: 2,
            loss: 0.05,
            epsilon: 1e-6,
            open_most: 1024,
            kept_most: 8192,
            repairs_most: 16,
        }
    }
}

impl Config {
    /// The longest body that fits a message.
    pub fn longest_body(&self) -> usize {
        self.longest_message.saturating_sub(MOST_OVERHEAD_BYTES)
    }
}

/// Why a message was not taken. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// It will never fit: see [`Config::longest_body`].
    #[error("the message is too long")]
    TooLong,
    /// Try again when earlier ones are forgotten.
    #[error("too many messages are open")]
    Full,
}

/// What the machine is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// A message came.
    Message {
        /// Whence, as the network below vouches for.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time of [`Multicast::next_timeout`] has come.
    Timeout,
    /// These are the members now.
    Members(View),
}

/// What the machine tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A message, own ones excepted.
    Delivered {
        /// Whose.
        from: Member,
        /// The how manieth of that.
        number: u64,
        /// What it says.
        body: Vec<u8>,
    },
    /// These will not come any more.
    Missed {
        /// Whose.
        from: Member,
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

/// What happened that nobody was told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// Messages that broke a rule.
    pub refused: u64,
    /// Messages of senders that are no members, or not any more.
    pub strangers: u64,
    /// Messages that came again.
    pub doubled: u64,
    /// Messages that were sent to one that lacked them.
    pub repaired: u64,
    /// Messages that were forgotten early, for want of room.
    pub crowded_out: u64,
}

/// What one member has of one sender.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Claim {
    sender: Member,
    /// Everything below has come, or was given up.
    next: u64,
    /// What has come beyond.
    extra: Vec<Range>,
    /// The highest that is known to be there.
    high: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Message<'a> {
    Data { sender: Member, number: u64, body: &'a [u8] },
    Digest { claims: Vec<Claim> },
    Ask { sender: Member, ranges: Vec<Range> },
}

#[derive(Clone, Debug)]
struct Kept {
    message: Arc<[u8]>,
    /// The round in which it is forgotten.
    until: u64,
}

/// One member of a group that multicasts.
#[derive(Clone, Debug)]
pub struct Multicast {
    config: Config,
    me: Member,
    view: View,
    dice: Dice,
    /// For how many rounds a message is gossiped.
    rounds: u32,
    round: u64,
    round_at: Option<Time>,
    /// Of own messages.
    next: u64,
    tracks: BTreeMap<Member, Track>,
    kept: BTreeMap<(Member, u64), Kept>,
    /// The sender from whom the next digest goes on, if not all fit one.
    claim_from: usize,
    transmits: VecDeque<Cast>,
    events: VecDeque<Event>,
    counts: Counts,
}

impl Multicast {
    /// A member of a group that begins to multicast, as all of its members do. Panics if it is not in the view.
    pub fn new(config: Config, me: Member, view: View, dice: Dice) -> Self {
        let founders = view.members.clone();
        let mut multicast = Self::joining(config, me, view, dice);
        // All of them count from the first.
        multicast.tracks = founders.into_iter().map(|member| (member, Track::from(1))).collect();
        multicast
    }

    /// A member that comes to others, who have multicast before. What they say is told from the first message on that it hears of,
    /// and with what is still gossiped of before that. Panics if it is not in the view.
    pub fn joining(config: Config, me: Member, view: View, dice: Dice) -> Self {
        let mut multicast = Self {
            config,
            me,
            view: view.clone(),
            dice,
            rounds: 0,
            // So that "so many rounds ago" is never.
            round: 1,
            round_at: None,
            next: 1,
            tracks: [(me, Track::from(1))].into(),
            kept: BTreeMap::new(),
            claim_from: 0,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
        };
        multicast.set_members(view);
        multicast
    }

    /// Sends a message to all others, and says its number.
    pub fn send(&mut self, now: Time, body: &[u8]) -> Result<u64, SendError> {
        if body.len() > self.config.longest_body() {
            return Err(SendError::TooLong);
        }
        let own = self.kept.range((self.me, 0)..=(self.me, u64::MAX)).next();
        if own.is_some_and(|(&(_, first), _)| self.next - first >= self.config.open_most) {
            return Err(SendError::Full);
        }
        let number = self.next;
        self.next += 1;
        if let Some(track) = self.tracks.get_mut(&self.me) {
            track.receive(number, self.round);
        }
        if self.view.members.len() > 1 {
            let message = write(&Message::Data { sender: self.me, number, body });
            self.keep(self.me, number, message.clone());
            self.transmits.push_back(Cast { to: To::Others, bytes: message });
        }
        self.set_round(now);
        Ok(number)
    }

    /// Feeds one input. Call again at [`Self::next_timeout`] even if nothing came.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        let outcome = match input {
            Input::Message { from, bytes } => self.message(from, bytes),
            Input::Timeout => Ok(()),
            Input::Members(view) => {
                self.set_members(view);
                Ok(())
            }
        };
        if outcome.is_err() {
            self.counts.refused += 1;
        }
        if self.round_at.is_some_and(|at| at <= now) {
            self.round_at = None;
            self.hold_round();
        }
        self.set_round(now);
        outcome
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Cast> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle`] if nothing comes before.
    pub fn next_timeout(&self) -> Option<Time> {
        self.round_at
    }

    /// Who is meant by [`To::Others`].
    pub fn view(&self) -> &View {
        &self.view
    }

    /// For how many rounds a message is gossiped.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Whether an own message is still gossiped of.
    pub fn is_open(&self, number: u64) -> bool {
        self.kept.contains_key(&(self.me, number))
    }

    /// The first message of a sender that has not come and was not given up; none if nothing is known of it.
    pub fn expects(&self, sender: Member) -> Option<u64> {
        self.tracks.get(&sender).map(Track::next)
    }

    /// Messages that are kept for others.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// What happened that nobody was told of.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A message in words.
    pub fn describe(bytes: &[u8]) -> String {
        match read(NodeId(u32::MAX), bytes) {
            Ok(Message::Data { sender, number, .. }) => alloc::format!("message {number} of {}", sender.node),
            Ok(Message::Digest { claims }) => alloc::format!("what I have, of {} senders", claims.len()),
            Ok(Message::Ask { sender, ranges }) => alloc::format!("I lack {ranges:?} of {}", sender.node),
            Err(error) => alloc::format!("no message of multicast: {}", error.rule),
        }
    }

    fn set_members(&mut self, view: View) {
        assert!(view.members.contains(&self.me), "only members multicast");
        let is_member = |member: &Member| view.members.contains(member);
        self.tracks.retain(|member, _| is_member(member));
        // Whoever comes begins with its first message.
        let come = view.members.iter().filter(|member| !self.view.members.contains(member));
        self.tracks.extend(come.map(|&member| (member, Track::from(1))));
        // Who is alone holds no rounds, and need not tell anybody.
        self.kept.retain(|(member, _), _| view.members.len() > 1 && is_member(member));
        let members = u32::try_from(view.members.len()).unwrap_or(u32::MAX);
        // Each sender is spoken of in one digest of so many.
        let fit = self.config.longest_message.saturating_sub(MOST_OVERHEAD_BYTES) / MOST_CLAIM_BYTES;
        let digests = members.div_ceil(u32::try_from(fit.max(1)).unwrap_or(u32::MAX));
        self.rounds = digests * rounds(members, self.config.fanout, self.config.loss, self.config.epsilon);
        self.view = view;
    }

    /// Sets the time of the next round. The first is at any time within one, so that not all turn to each other at once.
    fn set_round(&mut self, now: Time) {
        let is_busy = !self.kept.is_empty() || self.tracks.values().any(|track| !track.lacks(1).is_empty());
        let interval = if is_busy { self.config.interval } else { self.config.interval * IDLE_ROUNDS };
        let wait = self.dice.between(interval / 2..interval + interval / 2);
        let latest = now.saturating_add(interval + interval / 2);
        if self.view.members.len() < 2 {
            self.round_at = None;
        } else if self.round_at.is_none_or(|at| at > latest) {
            self.round_at = Some(now.saturating_add(wait));
        }
    }

    fn keep(&mut self, sender: Member, number: u64, message: Arc<[u8]>) {
        if self.kept.len() >= self.config.kept_most {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.until).map(|(&name, _)| name);
            if let Some(oldest) = oldest {
                self.kept.remove(&oldest);
                self.counts.crowded_out += 1;
            }
        }
        let until = self.round + u64::from(self.rounds + SLACK_ROUNDS);
        self.kept.insert((sender, number), Kept { message, until });
    }

    /// Tells some others what this member has; forgets what was told long enough, and gives up what was lacked too long.
    fn hold_round(&mut self) {
        self.round += 1;
        let round = self.round;
        self.kept.retain(|_, kept| kept.until > round);
        let patience = u64::from(self.rounds + SLACK_ROUNDS);
        let known_by = round.saturating_sub(patience);
        for (&sender, track) in &mut self.tracks {
            give_up(track, sender, known_by, self.config.open_most, &mut self.events);
        }
        let digest = self.digest();
        let others: Vec<NodeId> = self.view.nodes().filter(|&node| node != self.me.node).collect();
        for _ in 0..self.config.fanout {
            let to = others[self.dice.index(others.len())];
            self.transmits.push_back(Cast { to: To::One(to), bytes: digest.clone() });
        }
    }

    /// What this member has, of as many senders as fit. Where one digest ends the next begins; this member itself is in each.
    fn digest(&mut self) -> Arc<[u8]> {
        let claim = |(&sender, track): (&Member, &Track)| Claim {
            sender,
            next: track.next(),
            extra: track.extra(MOST_RANGES),
            high: track.high(),
        };
        let mut claims: Vec<_> = self.tracks.get_key_value(&self.me).into_iter().map(claim).collect();
        let room = self.config.longest_message.saturating_sub(MOST_OVERHEAD_BYTES);
        let mut used = 2 * MOST_CLAIM_BYTES;
        let count = self.tracks.len();
        let begin = self.claim_from % count.max(1);
        let mut taken = 0;
        for (sender, track) in self.tracks.iter().cycle().skip(begin).take(count) {
            let claim = claim((sender, track));
            used += MOST_CLAIM_BYTES + 20 * claim.extra.len();
            if used > room && taken > 0 {
                break;
            }
            taken += 1;
            if *sender != self.me {
                claims.push(claim);
            }
        }
        self.claim_from = begin + taken;
        write(&Message::Digest { claims })
    }

    fn message(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let message = read(from, bytes)?;
        if !self.view.contains(from) || from == self.me.node {
            return Err(PeerError::new(from, "a message from somebody who is no other member"));
        }
        match message {
            Message::Data { sender, number, body } => self.data(from, sender, number, body, bytes),
            Message::Digest { claims } => self.claimed(from, &claims),
            Message::Ask { sender, ranges } => {
                if ranges.len() > MOST_RANGES || ranges.iter().any(|range| range.0 > range.1) {
                    return Err(PeerError::new(from, "a request that asks for nothing, or for too much"));
                }
                self.repair(from, sender, &ranges);
                Ok(())
            }
        }
    }

    fn data(
        &mut self,
        from: NodeId,
        sender: Member,
        number: u64,
        body: &[u8],
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        if number == 0 || number == u64::MAX {
            return Err(PeerError::new(from, "a number that cannot be"));
        }
        if sender == self.me && number >= self.next {
            return Err(PeerError::new(from, "a message of ours that we never sent"));
        }
        if self.kept.get(&(sender, number)).is_some_and(|kept| *kept.message != *bytes) {
            return Err(PeerError::new(from, "one number for two messages"));
        }
        if !self.view.members.contains(&sender) {
            self.counts.strangers += 1;
            return Ok(());
        }
        let most = self.config.open_most;
        let track = self.tracks.entry(sender).or_insert_with(|| Track::joining(number, most));
        if !track.receive(number, self.round) {
            self.counts.doubled += 1;
            return Ok(());
        }
        self.events.push_back(Event::Delivered { from: sender, number, body: body.to_vec() });
        give_up(track, sender, 0, self.config.open_most, &mut self.events);
        self.keep(sender, number, bytes.into());
        Ok(())
    }

    /// Somebody says what it has: what it lacks is sent, what this member lacks is asked for.
    fn claimed(&mut self, from: NodeId, claims: &[Claim]) -> Result<(), PeerError> {
        for claim in claims {
            let is_sound = claim.next > 0
                && claim.high < u64::MAX
                && claim.next - 1 <= claim.high
                && claim
                    .extra
                    .iter()
                    .all(|&(first, last)| claim.next < first && first <= last && last <= claim.high)
                && claim.extra.is_sorted_by(|a, b| a.1 + 1 < b.0);
            if !is_sound {
                return Err(PeerError::new(from, "a digest that contradicts itself"));
            }
            if claim.sender == self.me && claim.high >= self.next {
                return Err(PeerError::new(from, "a message of ours that we never sent"));
            }
        }
        for claim in claims {
            if !self.view.members.contains(&claim.sender) {
                self.counts.strangers += 1;
                continue;
            }
            let (heard, most) = (claim.high + 1, self.config.open_most);
            let track = self.tracks.entry(claim.sender).or_insert_with(|| Track::joining(heard, most));
            track.exists(claim.high, self.round);
            let asked: Vec<_> = track
                .lacks(MOST_RANGES)
                .into_iter()
                .filter(|&(first, last)| {
                    first < claim.next || claim.extra.iter().any(|has| has.0 <= last && has.1 >= first)
                })
                .collect();
            if !asked.is_empty() {
                let ask = write(&Message::Ask { sender: claim.sender, ranges: asked });
                self.transmits.push_back(Cast { to: To::One(from), bytes: ask });
            }
            let mut first = claim.next;
            let mut lacked = Vec::new();
            for &(begin, end) in &claim.extra {
                lacked.push((first, begin - 1));
                first = end + 1;
            }
            lacked.push((first, u64::MAX));
            self.repair(from, claim.sender, &lacked);
        }
        Ok(())
    }

    /// Sends what is kept of these, within bounds.
    fn repair(&mut self, to: NodeId, sender: Member, ranges: &[Range]) {
        let kept = ranges.iter().flat_map(|&(first, last)| self.kept.range((sender, first)..=(sender, last)));
        for (_, kept) in kept.take(self.config.repairs_most) {
            self.counts.repaired += 1;
            self.transmits.push_back(Cast { to: To::One(to), bytes: kept.message.clone() });
        }
    }
}

/// Tells of what is lacked since a round or longer, and of what leaves too much open.
fn give_up(track: &mut Track, from: Member, known_by: u64, most: u64, events: &mut VecDeque<Event>) {
    while let Some((first, last)) = track.give_up(known_by, most) {
        events.push_back(Event::Missed { from, first, last });
    }
}

fn write(message: &Message<'_>) -> Arc<[u8]> {
    let start = alloc::vec![VERSION, Protocol::Multicast as u8];
    postcard::to_extend(message, start).expect("our own messages can be written").into()
}

fn read(from: NodeId, bytes: &[u8]) -> Result<Message<'_>, PeerError> {
    if protocol(from, bytes)? != Protocol::Multicast {
        return Err(PeerError::new(from, "a message of another protocol"));
    }
    match postcard::take_from_bytes(&bytes[2..]) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(PeerError::new(from, "a message with something behind it")),
        Err(_) => Err(PeerError::new(from, "a message that cannot be read")),
    }
}
