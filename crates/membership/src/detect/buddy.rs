//! Few watch each node closely. (Galaxy §8.5.1, fast failure detector)
//!
//! The members stand in a ring whose order every node works out for itself; each is pinged by the few before it, and by the
//! hub if there is one. Whom one of these gets no answers from for longer than is likely, it suspects, and says so to the others;
//! if a quorum suspects it, it has failed. Whoever gets no answers from anybody has more reason to suspect itself, and becomes
//! more patient.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Dice, NodeId, Time};
use serde::{Deserialize, Serialize};

use super::staleness::Staleness;
use super::{Evidence, Kind, Source};
use crate::transmit::Transmit;
use crate::view::Member;
use crate::wire::{self, PeerError, Protocol};

/// The most that an observer's patience is multiplied by.
const MOST_PATIENCE: u32 = 8;

/// Whoever has answered none of so many pings is silent, however patient one has become.
const MOST_PINGS: u32 = 64;

/// No node counts as silent before so many pings.
const FEWEST_PINGS: u32 = 4;

/// How one node watches others.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ourselves.
    pub me: Member,
    /// For the dice.
    pub seed: u64,
    /// How many watch each node: 3 to 5.
    pub observers: usize,
    /// How many of them must suspect it.
    pub quorum: usize,
    /// From one ping to the next.
    pub interval: Duration,
    /// No node has this number or a greater one.
    pub most_nodes: u32,
    /// Of all gaps between two answers, how many may be so long that they raise a suspicion.
    pub false_suspicions_per_billion: u32,
}

impl Config {
    /// Three watch, two must agree, four pings a second.
    pub fn new(me: Member, seed: u64) -> Self {
        let interval = Duration::from_millis(250);
        // One in a million: two observers must err at once.
        let false_suspicions_per_billion = 1000;
        Self {
            me,
            seed,
            observers: 3,
            quorum: 2,
            interval,
            most_nodes: 1 << 16,
            false_suspicions_per_billion,
        }
    }
}

/// What comes in.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message.
    Message {
        /// Whence.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The members are these now. The ring follows.
    Members {
        /// In any order.
        members: &'a [Member],
        /// One that must be able to reach everybody, and so watches all.
        hub: Option<NodeId>,
        /// How much longer those may be silent whom we begin to watch now: they may still be starting.
        grace: Duration,
    },
    /// It was heard in another way: silence counts from now on.
    Alive(Member),
    /// The time of [`Buddy::next_timeout`] has come.
    Timeout,
}

/// What is to be known outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// We get no answers, or a quorum does not. It is said again as long as it is so.
    Evidence(Evidence),
    /// It has answered.
    Answered(Member),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    /// Are you there?
    Ping(Member),
    /// Yes.
    Ack(Member),
    /// I get no answers from it.
    Suspicion(Member),
}

/// One that we watch.
#[derive(Clone, Debug)]
struct Watched {
    member: Member,
    answered_at: Time,
    has_answered: bool,
}

/// Who watches one that we watch too, and what they say.
#[derive(Clone, Debug)]
struct Suspicion {
    subject: Member,
    by: NodeId,
    at: Time,
}

/// The buddy detector of one node.
#[derive(Clone, Debug)]
pub struct Buddy {
    config: Config,
    dice: Dice,
    /// The order in which members watch each other.
    ring: Vec<Member>,
    hub: Option<NodeId>,
    watched: Vec<Watched>,
    suspicions: Vec<Suspicion>,
    staleness: Staleness,
    patience: u32,
    next_ping: Time,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Buddy {
    /// One that knows no members yet.
    pub fn new(config: Config, now: Time) -> Self {
        let mut dice = Dice::new(config.seed);
        let first = now.saturating_add(dice.between(Duration::ZERO..config.interval));
        let staleness = Staleness::new(config.interval, config.false_suspicions_per_billion);
        Self {
            config,
            dice,
            ring: Vec::new(),
            hub: None,
            watched: Vec::new(),
            suspicions: Vec::new(),
            staleness,
            patience: 1,
            next_ping: first,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Feeds one input. Call again at [`Buddy::next_timeout`]. An error names the peer that sent what it may not; nothing has
    /// changed by it.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        self.notice_pause(now);
        match input {
            Input::Message { from, bytes } => return self.receive(now, from, bytes),
            Input::Members { members, hub, grace } => self.set_members(now, members, hub, grace),
            Input::Alive(member) => self.heard(now, member),
            Input::Timeout if now >= self.next_ping => self.round(now),
            Input::Timeout => {}
        }
        Ok(())
    }

    /// The next message to be sent. Ask until there is none.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next thing to be known. Ask until there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Buddy::handle`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        Some(self.next_ping)
    }

    /// How long one that we watch may be silent now.
    pub fn limit(&self) -> Duration {
        let learned = self.staleness.threshold().unwrap_or(self.config.interval * FEWEST_PINGS * 2);
        let patient = learned.max(self.config.interval * FEWEST_PINGS) * self.patience;
        patient.min(self.config.interval * MOST_PINGS)
    }

    /// Those that we watch.
    pub fn watched(&self) -> impl Iterator<Item = Member> {
        self.watched.iter().map(|watched| watched.member)
    }

    /// Whether some pings go to it.
    pub fn is_in_ring(&self, member: Member) -> bool {
        self.ring.len() > 1 && self.ring.contains(&member)
    }

    /// Time in which we stood still is no evidence against others.
    fn notice_pause(&mut self, now: Time) {
        let late = now.since(self.next_ping);
        if late > self.config.interval / 2 {
            self.watched.iter_mut().for_each(|it| it.answered_at = it.answered_at.saturating_add(late));
            self.next_ping = self.next_ping.saturating_add(late);
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
    }

    fn set_members(&mut self, now: Time, members: &[Member], hub: Option<NodeId>, grace: Duration) {
        self.ring = members.to_vec();
        // Any order does that is the same for all; this one puts no neighbours side by side, who fail together.
        self.ring.sort_by_key(|member| (Dice::new(member.node.0.into()).roll(), *member));
        self.ring.dedup_by_key(|member| member.node);
        self.hub = hub;
        let me = self.config.me.node;
        let everybody = || self.ring.iter().copied().filter(|member| member.node != me).collect();
        let subjects = if hub == Some(me) { everybody() } else { self.around(me, 1) };
        let since = now.saturating_add(grace);
        let old = core::mem::take(&mut self.watched);
        let watch = |member: Member| {
            let known = old.iter().find(|watched| watched.member == member).cloned();
            let new = Watched { member, answered_at: since, has_answered: false };
            known.unwrap_or(new)
        };
        self.watched = subjects.into_iter().map(watch).collect();
        self.suspicions.retain(|suspicion| self.ring.contains(&suspicion.subject));
    }

    /// The few behind a node in the ring (its subjects), or before it (its observers).
    fn around(&self, node: NodeId, step: isize) -> Vec<Member> {
        let Some(place) = self.ring.iter().position(|member| member.node == node) else { return Vec::new() };
        let length = self.ring.len();
        let count = self.config.observers.min(length - 1);
        (1..=count)
            .map(|far| self.ring[if step > 0 { place + far } else { place + length - far } % length])
            .collect()
    }

    /// Who watches a node.
    fn observers(&self, node: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let ring = self.around(node, -1).into_iter().map(|member| member.node);
        let hub = self.hub.filter(|&hub| hub != node);
        let other_than_hub = move |observer: &NodeId| Some(*observer) != hub;
        ring.filter(other_than_hub).chain(hub)
    }

    fn round(&mut self, now: Time) {
        let limit = self.limit();
        let is_deaf = self.watched.len() > 1
            && self.watched.iter().all(|it| now.since(it.answered_at) >= self.config.interval * 2);
        self.patience = if is_deaf {
            (self.patience + 1).min(MOST_PATIENCE)
        } else {
            self.patience.saturating_sub(1).max(1)
        };
        for place in 0..self.watched.len() {
            let Watched { member, answered_at, .. } = self.watched[place];
            self.send(member.node, &Message::Ping(member));
            if now.since(answered_at) < limit {
                continue;
            }
            let no_answer = Evidence::new(member, Kind::NoAnswer, Source::Ourselves);
            self.events.push_back(Event::Evidence(no_answer));
            for observer in self.observers(member.node) {
                if observer != self.config.me.node {
                    self.send(observer, &Message::Suspicion(member));
                }
            }
            self.suspect(now, member, self.config.me.node);
        }
        let interval = self.config.interval;
        let next = self.dice.between(interval - interval / 8..interval + interval / 8);
        self.next_ping = now.saturating_add(next);
    }

    fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let message: Message = wire::decode(from, Protocol::Detect, bytes)?;
        let (Message::Ping(member) | Message::Ack(member) | Message::Suspicion(member)) = message;
        if member.node.0 >= self.config.most_nodes || from.0 >= self.config.most_nodes {
            return Err(PeerError::new(from, "a node that cannot be"));
        }
        match message {
            Message::Ping(asked) if asked.node != self.config.me.node => {
                return Err(PeerError::new(from, "a ping for another node"));
            }
            Message::Ping(_) => self.send(from, &Message::Ack(self.config.me)),
            Message::Ack(who) if who.node != from => {
                return Err(PeerError::new(from, "an answer for another node"));
            }
            Message::Ack(who) => self.answered(now, who),
            Message::Suspicion(subject) if subject.node == from => {
                return Err(PeerError::new(from, "a node that suspects itself"));
            }
            // Our rings may differ for a moment. Whom we do not know as an observer, we need not believe.
            Message::Suspicion(subject) => {
                if self.observers(subject.node).any(|observer| observer == from) {
                    self.suspect(now, subject, from);
                }
            }
        }
        Ok(())
    }

    fn answered(&mut self, now: Time, who: Member) {
        let Some(watched) = self.watched.iter_mut().find(|watched| watched.member == who) else { return };
        if watched.has_answered {
            self.staleness.saw(now.since(watched.answered_at));
        }
        watched.has_answered = true;
        self.heard(now, who);
        self.events.push_back(Event::Answered(who));
    }

    fn heard(&mut self, now: Time, who: Member) {
        for watched in self.watched.iter_mut().filter(|watched| watched.member == who) {
            watched.answered_at = now;
        }
        self.suspicions.retain(|suspicion| suspicion.subject != who);
    }

    fn suspect(&mut self, now: Time, subject: Member, by: NodeId) {
        let lasting = self.config.interval * FEWEST_PINGS;
        self.suspicions.retain(|old| (old.subject, old.by) != (subject, by) && now.since(old.at) < lasting);
        self.suspicions.push(Suspicion { subject, by, at: now });
        // Those who can agree are the observers; in a pair there is one.
        let quorum = self.config.quorum.min(self.ring.len().saturating_sub(1)).max(1);
        let count = self.suspicions.iter().filter(|suspicion| suspicion.subject == subject).count();
        if count >= quorum && self.ring.contains(&subject) {
            self.events.push_back(Event::Evidence(Evidence::new(subject, Kind::Buddies, Source::Ourselves)));
        }
    }

    fn send(&mut self, to: NodeId, message: &Message) {
        self.transmits.push_back(Transmit { to, bytes: wire::encode(Protocol::Detect, message) });
    }
}

/// What a node may make up: that healthy ones do not answer it, and what cannot be.
#[cfg(test)]
pub(crate) fn lie(dice: &mut Dice, me: Member, nodes: u32) -> Vec<u8> {
    let node = NodeId([dice.below(nodes), dice.below(nodes), u32::MAX][dice.index(3)]);
    let member = Member { node, incarnation: me.incarnation };
    let message = match dice.below(6) {
        0 => Message::Ping(member),
        1 => Message::Ack(member),
        _ => Message::Suspicion(member),
    };
    wire::encode(Protocol::Detect, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::Incarnation;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::format;

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(1) }
    }

    fn members(count: u32) -> Vec<Member> {
        (0..count).map(member).collect()
    }

    fn buddy(node: u32, count: u32) -> Buddy {
        let mut buddy = Buddy::new(Config::new(member(node), 1), Time::ZERO);
        set_members(&mut buddy, &members(count), None, Duration::ZERO);
        buddy
    }

    fn set_members(buddy: &mut Buddy, members: &[Member], hub: Option<u32>, grace: Duration) {
        let input = Input::Members { members, hub: hub.map(NodeId), grace };
        buddy.handle(Time::ZERO, input).expect("no peer is concerned");
    }

    /// Lets time go on by rounds; those for whom it is said answer at once. What is then known, each thing once.
    fn run(buddy: &mut Buddy, rounds: u32, answers: impl Fn(NodeId) -> bool) -> Vec<Event> {
        for _ in 0..rounds {
            let now = buddy.next_timeout().expect("it always pings");
            buddy.handle(now, Input::Timeout).expect("no peer is concerned");
            while let Some(transmit) = buddy.poll_transmit() {
                let message: Message =
                    wire::decode(NodeId(0), Protocol::Detect, &transmit.bytes).expect("ours");
                if let Message::Ping(who) = message
                    && answers(who.node)
                {
                    let bytes = wire::encode(Protocol::Detect, &Message::Ack(who));
                    buddy.handle(now, Input::Message { from: who.node, bytes: &bytes }).expect("honest");
                }
            }
        }
        let mut events: Vec<_> = core::iter::from_fn(|| buddy.poll_event()).collect();
        events.retain(|event| matches!(event, Event::Evidence(_)));
        events.dedup();
        events
    }

    #[test]
    fn who_may_err_less_often_waits_longer() {
        let limit = |false_suspicions_per_billion| {
            let config = Config { false_suspicions_per_billion, ..Config::new(member(0), 1) };
            let mut buddy = Buddy::new(config, Time::ZERO);
            set_members(&mut buddy, &members(4), None, Duration::ZERO);
            for _ in 0..100 {
                run(&mut buddy, 5, |_| false);
                run(&mut buddy, 1, |_| true);
            }
            buddy.limit()
        };
        assert!(limit(10_000_000) < limit(1000) && limit(1000) < limit(1));
    }

    #[test]
    fn each_member_is_watched_by_as_many_as_wanted_and_all_agree_by_whom() {
        for count in [2, 3, 4, 20] {
            let all: Vec<_> = (0..count).map(|node| buddy(node, count)).collect();
            let wanted = 3.min(count as usize - 1);
            for node in 0..count {
                let watches = |buddy: &&Buddy| buddy.watched().any(|watched| watched == member(node));
                let by: BTreeSet<_> = all.iter().filter(watches).map(|buddy| buddy.config.me.node).collect();
                let told = all[0].around(NodeId(node), -1).iter().map(|member| member.node).collect();
                assert_eq!((by.len(), by), (wanted, told), "node {node} of {count}");
            }
        }
    }

    #[test]
    fn one_suspicion_is_no_failure_and_two_are() {
        let mut buddy = buddy(0, 20);
        let subject = buddy.watched().next().expect("it watches some");
        let other =
            buddy.around(subject.node, -1).into_iter().find(|it| it.node != NodeId(0)).expect("three do");
        assert_eq!(run(&mut buddy, 40, |_| true), [], "all answer");
        let evidence = |kind| Event::Evidence(Evidence::new(subject, kind, Source::Ourselves));
        assert_eq!(run(&mut buddy, 20, |node| node != subject.node), [evidence(Kind::NoAnswer)]);
        let now = buddy.next_ping;
        let stranger = (1..20).map(NodeId).find(|&node| {
            node != subject.node && buddy.around(subject.node, -1).iter().all(|it| it.node != node)
        });
        let suspicion = wire::encode(Protocol::Detect, &Message::Suspicion(subject));
        for (from, agrees) in [(stranger.expect("few watch it"), false), (other.node, true)] {
            buddy.handle(now, Input::Message { from, bytes: &suspicion }).expect("honest");
            let told = buddy.poll_event();
            assert_eq!(told, agrees.then(|| evidence(Kind::Buddies)), "{from}");
        }
        run(&mut buddy, 1, |_| true);
        assert_eq!(run(&mut buddy, 20, |_| true), [], "it answers again");
    }

    #[test]
    fn the_hub_watches_all_and_counts_as_an_observer_of_each() {
        let mut all: Vec<_> = (0..20).map(|node| buddy(node, 20)).collect();
        all.iter_mut().for_each(|buddy| set_members(buddy, &members(20), Some(7), Duration::ZERO));
        for node in 0..20 {
            let watches = |buddy: &&Buddy| buddy.watched().any(|watched| watched == member(node));
            let by: BTreeSet<_> = all.iter().filter(watches).map(|buddy| buddy.config.me.node).collect();
            let told: Vec<_> = all[0].observers(NodeId(node)).collect();
            assert_eq!((told.len(), by.contains(&NodeId(7))), (by.len(), node != 7));
            assert_eq!(by, told.into_iter().collect(), "node {node}");
        }
    }

    #[test]
    fn who_may_still_be_starting_is_not_suspected_and_who_has_answered_has_started() {
        let mut buddy = Buddy::new(Config::new(member(0), 1), Time::ZERO);
        set_members(&mut buddy, &members(20), None, Duration::from_secs(10));
        let subject = buddy.watched().next().expect("it watches some").node;
        assert_eq!(run(&mut buddy, 35, |_| false), []);
        assert_ne!(run(&mut buddy.clone(), 100, |node| node != subject), [], "it never starts");
        run(&mut buddy, 1, |_| true);
        assert_ne!(run(&mut buddy, 15, |node| node != subject), [], "it had started");
    }

    #[test]
    fn who_is_heard_in_another_way_is_as_if_it_had_answered() {
        let mut buddy = buddy(0, 20);
        run(&mut buddy, 40, |_| true);
        let subject = buddy.watched().next().expect("it watches some");
        for _ in 0..20 {
            assert_eq!(run(&mut buddy, 2, |node| node != subject.node), []);
            let now = buddy.next_ping;
            buddy.handle(now, Input::Alive(subject)).expect("no peer is concerned");
        }
        assert_ne!(run(&mut buddy, 10, |node| node != subject.node), []);
    }

    #[test]
    fn of_two_one_is_enough() {
        let mut buddy = buddy(0, 2);
        run(&mut buddy, 40, |_| true);
        let told = run(&mut buddy, 20, |_| false);
        let failed = Event::Evidence(Evidence::new(member(1), Kind::Buddies, Source::Ourselves));
        assert!(told.contains(&failed), "{told:?}");
    }

    #[test]
    fn who_is_silent_stays_so_when_the_members_are_told_again() {
        let mut buddy = buddy(0, 20);
        run(&mut buddy, 40, |_| true);
        let subject = buddy.watched().next().expect("it watches some");
        let mut told = Vec::new();
        for _ in 0..20 {
            told.extend(run(&mut buddy, 1, |node| node != subject.node));
            set_members(&mut buddy, &members(20), None, Duration::ZERO);
        }
        told.dedup();
        assert_eq!(told, [Event::Evidence(Evidence::new(subject, Kind::NoAnswer, Source::Ourselves))]);
    }

    #[test]
    fn who_is_answered_by_nobody_or_stood_still_becomes_patient() {
        let mut deaf = buddy(0, 20);
        run(&mut deaf, 40, |_| true);
        let usual = deaf.limit();
        assert_eq!(run(&mut deaf, 5, |_| false), [], "it does not blame all others at once");
        assert!(deaf.limit() >= 2 * usual, "{:?} after {usual:?}", deaf.limit());
        run(&mut deaf, 40, |_| true);
        assert!(deaf.limit() < 2 * usual);
        let late = deaf.next_ping.saturating_add(Duration::from_secs(60));
        deaf.handle(late, Input::Timeout).expect("no peer is concerned");
        assert_eq!(deaf.poll_event(), None, "a minute that passed only for others");
    }

    #[test]
    fn patience_has_an_end_and_goes_as_it_came() {
        let mut deaf = buddy(0, 20);
        run(&mut deaf, 40, |_| true);
        run(&mut deaf, 100, |_| false);
        assert_eq!(deaf.patience, MOST_PATIENCE);
        let mut slow = deaf.clone();
        (0..200).for_each(|_| slow.staleness.saw(slow.config.interval * 20));
        assert_eq!(slow.limit(), slow.config.interval * MOST_PINGS);
        run(&mut deaf, 1, |_| true);
        run(&mut deaf, 1, |_| true);
        assert!(deaf.patience > 1 && deaf.patience < MOST_PATIENCE, "{}", deaf.patience);
        run(&mut deaf, 20, |_| true);
        assert_eq!(deaf.patience, 1);
        let late = deaf.next_ping.saturating_add(Duration::from_secs(60));
        for _ in 0..3 {
            deaf.handle(late, Input::Alive(member(0))).expect("no peer is concerned");
            assert_eq!(deaf.patience, 2, "it stood still once");
        }
        for pause in 1..9 {
            let later = late.saturating_add(Duration::from_secs(60) * pause);
            deaf.handle(later, Input::Alive(member(0))).expect("no peer is concerned");
        }
        assert_eq!(deaf.patience, MOST_PATIENCE);
    }

    #[test]
    fn how_long_is_too_long_is_learned_and_never_shorter_than_a_few_pings() {
        let mut buddy = buddy(0, 20);
        let before = buddy.limit();
        assert_eq!(before, buddy.config.interval * FEWEST_PINGS * 2);
        run(&mut buddy, 200, |_| true);
        assert_eq!(buddy.limit(), buddy.config.interval * FEWEST_PINGS, "all have answered at once");
    }

    #[test]
    fn nobody_is_pinged_before_the_time() {
        let mut buddy = buddy(0, 20);
        run(&mut buddy, 1, |_| true);
        buddy.handle(Time::ZERO, Input::Timeout).expect("no peer is concerned");
        assert_eq!(buddy.poll_transmit(), None);
    }

    #[test]
    fn the_ring_is_of_others_and_has_each_once() {
        let next = |node| Member { incarnation: Incarnation(2), ..member(node) };
        let mut buddy = buddy(0, 3);
        assert!(buddy.is_in_ring(member(1)) && !buddy.is_in_ring(member(3)) && !buddy.is_in_ring(next(1)));
        set_members(&mut buddy, &[member(0), member(1), next(1)], None, Duration::ZERO);
        assert_eq!(buddy.ring.len(), 2);
        set_members(&mut buddy, &[member(0)], None, Duration::ZERO);
        assert!(!buddy.is_in_ring(member(0)), "nobody pings it");
    }

    #[test]
    fn another_life_begins_anew_and_of_who_has_left_nothing_is_kept() {
        let mut buddy = buddy(0, 4);
        run(&mut buddy, 200, |_| true);
        assert_ne!(run(&mut buddy, 6, |node| node != NodeId(1)), []);
        assert!(!buddy.suspicions.is_empty());
        let mut members = members(4);
        members[1].incarnation = Incarnation(2);
        let now = buddy.next_ping;
        let input = Input::Members { members: &members, hub: None, grace: Duration::ZERO };
        buddy.handle(now, input).expect("no peer is concerned");
        assert!(buddy.suspicions.is_empty());
        assert_eq!(run(&mut buddy, 3, |node| node != NodeId(1)), [], "it has just come");
        // What its former life still had to say is not about this one.
        let late = wire::encode(Protocol::Detect, &Message::Ack(member(1)));
        buddy.handle(buddy.next_ping, Input::Message { from: NodeId(1), bytes: &late }).expect("honest");
        let is_answered = |event| matches!(event, Event::Answered(who) if who.node == NodeId(1));
        assert!(!core::iter::from_fn(|| buddy.poll_event()).any(is_answered));
    }

    #[test]
    fn the_other_observers_are_told_and_nobody_else() {
        let mut buddy = buddy(0, 20);
        let subject = buddy.watched().next().expect("it watches some");
        let mut told = BTreeSet::new();
        for _ in 0..30 {
            let now = buddy.next_ping;
            buddy.handle(now, Input::Timeout).expect("no peer is concerned");
            while let Some(transmit) = buddy.poll_transmit() {
                match wire::decode(NodeId(0), Protocol::Detect, &transmit.bytes).expect("ours") {
                    Message::Ping(who) if who != subject => {
                        let bytes = wire::encode(Protocol::Detect, &Message::Ack(who));
                        buddy.handle(now, Input::Message { from: who.node, bytes: &bytes }).expect("honest");
                    }
                    Message::Suspicion(about) => {
                        told.insert((about, transmit.to));
                    }
                    _ => {}
                }
            }
        }
        let others = buddy.observers(subject.node).filter(|node| *node != NodeId(0));
        assert_eq!(told, others.map(|node| (subject, node)).collect());
    }

    #[test]
    fn suspicions_count_for_a_while_and_only_of_one_member() {
        let agreed = |suspicions: &[(u64, u32, u32)]| {
            let mut buddy = buddy(0, 5);
            for &(millis, subject, by) in suspicions {
                buddy.suspect(Time::from_millis(millis), member(subject), NodeId(by));
            }
            core::iter::from_fn(|| buddy.poll_event()).count()
        };
        assert_eq!(agreed(&[(1, 1, 2), (2, 1, 3)]), 1);
        assert_eq!(agreed(&[(1, 1, 2), (2, 1, 2)]), 0, "the same says it twice");
        assert_eq!(agreed(&[(1, 1, 2), (2, 4, 3)]), 0, "of two members");
        assert_eq!(agreed(&[(1, 1, 2), (1001, 1, 3)]), 0, "the first is over");
        assert_eq!(agreed(&[(1, 9, 2), (2, 9, 3)]), 0, "it is no member");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut buddy = buddy(0, 5);
        let mut rule = |from, message| {
            let bytes = wire::encode(Protocol::Detect, &message);
            let from = NodeId(from);
            buddy.handle(Time::ZERO, Input::Message { from, bytes: &bytes }).expect_err("refused").rule
        };
        assert_eq!(rule(1, Message::Ping(member(2))), "a ping for another node");
        assert_eq!(rule(1, Message::Ack(member(2))), "an answer for another node");
        assert_eq!(rule(1, Message::Suspicion(member(1))), "a node that suspects itself");
        assert_eq!(rule(1, Message::Suspicion(member(1 << 16))), "a node that cannot be");
        assert_eq!(rule(1 << 16, Message::Ping(member(0))), "a node that cannot be");
    }

    proptest! {
        #[test]
        fn any_messages_do_no_harm(
            messages in prop::collection::vec((0_u32..8, 0_u8..4, 0_u32..8, 0_u64..3, any::<Option<u8>>()), 50),
        ) {
            let mut buddy = buddy(0, 6);
            for (from, kind, node, incarnation, garbled) in messages {
                let who = Member { node: NodeId(node), incarnation: Incarnation(incarnation) };
                let message = [Message::Ping, Message::Ack, Message::Suspicion][usize::from(kind % 3)](who);
                let mut bytes = wire::encode(Protocol::Detect, &message);
                if let Some(garbled) = garbled {
                    let place = usize::from(garbled) % bytes.len();
                    bytes[place] ^= garbled;
                }
                let before = format!("{buddy:?}");
                let refused = buddy.handle(Time::ZERO, Input::Message { from: NodeId(from), bytes: &bytes }).is_err();
                let after = format!("{buddy:?}");
                prop_assert!(!refused || before == after);
            }
            prop_assert!(buddy.suspicions.len() <= 8 * 8 * 3);
        }
    }
}
