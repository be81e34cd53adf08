//! Mutates what a peer or a disk may say, for a bounded time: true messages of every protocol, recorded from groups that work, with
//! bits turned over, cut off, spliced, with numbers that are too large, told late, twice, or by somebody else. Whatever comes: no
//! panic, the right one is named, what is refused changes nothing, and nothing grows without end.
//!
//! `COMB_FUZZ_SECONDS` is the time of each test (1), `COMB_FUZZ_SEED` replays one. A failure prints its seed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use comb_membership::circles::Terms;
use comb_membership::mscs::{self, Mscs, NodeSet};
use comb_membership::multicast::{self, Multicast};
use comb_membership::order::{self, Level, Order};
use comb_membership::stack::{self, Config, Input, Stack};
use comb_membership::wire::{Protocol, protocol};
use comb_membership::{
    Cast, Dice, Incarnation, Member, NodeId, PeerError, Time, To, Transmit, View, ViewEpoch, join,
};
use comb_types::fuzz::Fuzz;

/// Members of the first view; one more comes in.
const MEMBERS: u32 = 4;

/// One that belongs to nothing.
const STRANGER: NodeId = NodeId(77);

/// Mutations that one machine gets before another takes its place.
const LIFE: u32 = 200;

/// A machine that is written out is never longer. An honest one is a hundred times shorter.
const MOST_WRITTEN: usize = 8 << 20;

/// What is drawn by chance, and what is made of messages.
trait Chance {
    fn dice(&mut self) -> &mut Dice;

    fn chance(&mut self, one_in: u32) -> bool {
        self.dice().below(one_in) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.dice().index(from.len())]
    }

    /// What is made of a true message, and of another.
    fn mutated(&mut self, message: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        for _ in 0..1 + self.dice().below(3) {
            self.mutate_message(&mut bytes, other);
        }
        bytes
    }

    fn mutate_message(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        // The envelope is mostly left alone: behind it is more to be found.
        let start = if self.chance(20) { 0 } else { 2.min(bytes.len()) };
        let at = start + self.dice().index(bytes.len() - start + 1);
        match self.dice().below(9) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << self.dice().below(8),
            2 if at < bytes.len() => bytes[at] = *self.pick(&[0, 1, 0x7F, 0x80, 0xFF]),
            3 if at < bytes.len() => {
                bytes[at] =
                    if self.chance(2) { bytes[at].wrapping_add(1) } else { bytes[at].wrapping_sub(1) };
            }
            4 => bytes.truncate(at),
            5 => {
                let tail = self.dice().index(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[tail..]);
            }
            6 => {
                // A number at the end of all numbers, or at half of them, in the place of what is there.
                let number = [u64::MAX, u64::MAX - 1, u64::MAX / 2, u64::from(u32::MAX), 1 << 40]
                    [self.dice().index(5)];
                let end = (at + 1).min(bytes.len());
                bytes.splice(at..end, varint(number));
            }
            7 => {
                let piece = bytes[at..(at + self.dice().index(9)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            8 => drop(bytes.drain(at..(at + self.dice().index(5)).min(bytes.len()))),
            _ => bytes.push(self.dice().roll().to_le_bytes()[0]),
        }
    }
}

impl Chance for Fuzz {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

/// A machine without what may change although nothing happened: the time of the last input, what it counts, and the dice.
fn written(machine: &impl Debug) -> String {
    let text = format!("{machine:?}");
    let mut rest = &text[..];
    let mut kept = String::new();
    while let Some(at) =
        ["now: ", "refused: ", "dice: "].iter().filter_map(|key| Some(rest.find(key)? + key.len())).min()
    {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let end =
            if rest.starts_with('{') { rest.find('}').map(|end| end + 1) } else { rest.find([',', ' ']) };
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    kept.push_str(rest);
    kept
}

/// What is refused changes nothing.
fn compare(error: &PeerError, before: &str, after: &str) {
    if before != after {
        let same = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
        let near = |text: &str| text.chars().skip(same.saturating_sub(200)).take(400).collect::<String>();
        panic!("{error}, and something has changed:\n{}\n{}", near(before), near(after));
    }
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

fn first_view() -> View {
    View { epoch: ViewEpoch(1), members: (0..MEMBERS).map(member).collect(), tie_breaker: NodeId(0) }
}

/// A message that was truly sent.
#[derive(Clone, Debug)]
struct Recorded {
    from: NodeId,
    bytes: Vec<u8>,
}

/// What was said in a group that works, and its members at many moments.
#[derive(Default)]
struct Recording<M> {
    messages: BTreeMap<u8, Vec<Recorded>>,
    moments: Vec<(Time, M)>,
    /// Of each member with a log.
    records: Vec<Vec<Vec<u8>>>,
}

impl<M> Recording<M> {
    fn new() -> Self {
        Self { messages: BTreeMap::new(), moments: Vec::new(), records: Vec::new() }
    }

    fn heard(&mut self, from: NodeId, bytes: &[u8]) {
        let protocol = protocol(from, bytes).expect("ours");
        let recorded = self.messages.entry(protocol as u8).or_default();
        // The first of many that are much the same do.
        if recorded.len() < 3000 {
            recorded.push(Recorded { from, bytes: bytes.to_vec() });
        }
    }

    fn of(&self, protocol: Protocol) -> &[Recorded] {
        self.messages.get(&(protocol as u8)).map_or(&[], |recorded| recorded)
    }
}

/// Whole members, whose network delivers everything at once.
struct Group {
    now: Time,
    stacks: BTreeMap<NodeId, Stack>,
    recording: Recording<Stack>,
}

impl Group {
    fn config(has_log: bool) -> Config {
        let contacts = (0..MEMBERS).map(NodeId).collect();
        let join = join::Config { contacts, ..join::Config::default() };
        let mut config = Config { join, ..Config::default() };
        (config.watching.gossip, config.watching.starting) = (Duration::from_millis(200), Duration::ZERO);
        (config.watching.most_nodes, config.order.has_log, config.log.most_bytes) = (100, has_log, 3000);
        config.order.history_most = 64;
        config
    }

    fn new(has_log: bool) -> Self {
        let now = Time::from_millis(1);
        let stack =
            |node| (NodeId(node), Stack::configured(Self::config(has_log), member(node), first_view(), now));
        let mut recording = Recording::new();
        recording.records = (0..=MEMBERS).map(|_| Vec::new()).collect();
        Self { now, stacks: (0..MEMBERS).map(stack).collect(), recording }
    }

    /// Carries messages until there are none, and does what the members ask for.
    fn deliver(&mut self) {
        loop {
            let mut under_way = Vec::new();
            for (&from, stack) in &mut self.stacks {
                while let Some(cast) = stack.poll_transmit(self.now) {
                    under_way.extend(
                        receivers(stack, &cast).into_iter().map(|to| (from, to, cast.bytes.to_vec())),
                    );
                }
                while let Some(event) = stack.poll_event() {
                    match event {
                        stack::Event::WantsState => {
                            stack.handle(self.now, Input::State(&[5; 4000])).expect("our own input");
                        }
                        stack::Event::Persist { number, bytes } => {
                            self.recording.records[from.0 as usize].push(bytes);
                            stack.handle(self.now, Input::Persisted { number }).expect("our own input");
                        }
                        stack::Event::Replace { number, records } => {
                            self.recording.records[from.0 as usize] = records;
                            stack.handle(self.now, Input::Persisted { number }).expect("our own input");
                        }
                        _ => {}
                    }
                }
            }
            if under_way.is_empty() {
                return;
            }
            for (from, to, bytes) in under_way {
                self.recording.heard(from, &bytes);
                if let Some(stack) = self.stacks.get_mut(&to) {
                    stack.handle(self.now, Input::Message { from, bytes: &bytes }).expect("all are honest");
                }
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now.saturating_add(Duration::from_millis(millis));
        while self.now < end {
            self.deliver();
            let due = self.stacks.values().filter_map(Stack::next_timeout).min().unwrap_or(end);
            self.now = due.clamp(self.now, end);
            for stack in self.stacks.values_mut() {
                if stack.next_timeout().is_some_and(|at| at <= self.now) {
                    stack.handle(self.now, Input::Timeout).expect("no peer is involved");
                }
            }
        }
        self.deliver();
        let all = self.stacks.values().map(|stack| (self.now, stack.clone()));
        self.recording.moments.extend(all);
    }

    fn work(&mut self, rounds: u32) {
        for round in 0..rounds {
            for (&node, stack) in &mut self.stacks {
                let level = [Level::Ordered, Level::Majority, Level::All][(node.0 + round) as usize % 3];
                let _ = stack.submit(self.now, level, &[7; 30]);
                let _ = stack.write(self.now, "colour", Some(round.to_le_bytes().to_vec()));
                for (name, terms) in
                    [("lossy", Terms::lossy()), ("gossip", Terms::epidemic()), ("agreed", Terms::default())]
                {
                    let is_odd = (node.0 + round) % 7 == 6;
                    let _ = match round % 4 {
                        0 => stack.join_circle(self.now, name, terms),
                        1 if is_odd => stack.leave_circle(self.now, name),
                        _ => stack.say(self.now, name, &[9; 20]).map(drop),
                    };
                    let _ = stack.say(self.now, &format!("{name}/1"), b"to one");
                }
            }
            self.pass(30);
        }
    }
}

fn receivers(stack: &Stack, cast: &Cast) -> Vec<NodeId> {
    match cast.to {
        To::One(to) => vec![to],
        To::Others => {
            stack.view().into_iter().flat_map(View::nodes).filter(|to| *to != stack.me().node).collect()
        }
    }
}

/// A group that works, lets one in, loses one, and works on.
fn recorded(has_log: bool) -> Recording<Stack> {
    let mut group = Group::new(has_log);
    group.work(8);
    let joiner = Stack::joining(Group::config(has_log), member(MEMBERS), group.now);
    group.stacks.insert(NodeId(MEMBERS), joiner);
    group.pass(1);
    group.work(8);
    group.stacks.remove(&NodeId(0));
    for _ in 0..20 {
        group.pass(20);
    }
    group.work(20);
    let epochs: Vec<_> = group.stacks.values().map(|stack| stack.view().map(|view| view.epoch)).collect();
    assert!(epochs.iter().all(|epoch| *epoch > Some(ViewEpoch(2))), "{epochs:?}");
    let all = [
        Protocol::State,
        Protocol::Detect,
        Protocol::Regroup,
        Protocol::Join,
        Protocol::Order,
        Protocol::Snapshot,
        Protocol::Circles,
        Protocol::Multicast,
    ];
    for protocol in all {
        assert!(!group.recording.of(protocol).is_empty(), "nothing was said in {protocol:?}");
    }
    group.recording
}

/// Something that peers talk to.
trait Victim: Debug {
    fn hear(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError>;
    /// Its timers are over, and what it has to say is taken away.
    fn live(&mut self, now: Time);
    fn next_timeout(&self) -> Option<Time>;
    fn node(&self) -> NodeId;
}

impl Victim for Stack {
    fn hear(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        self.handle(now, Input::Message { from, bytes })
    }

    fn live(&mut self, now: Time) {
        self.handle(now, Input::Timeout).expect("no peer is involved");
        loop {
            let mut is_quiet = true;
            while self.poll_transmit(now).is_some() {
                is_quiet = false;
            }
            while let Some(event) = self.poll_event() {
                is_quiet = false;
                let answered = match event {
                    stack::Event::WantsState => self.handle(now, Input::State(&[5; 4000])),
                    stack::Event::Persist { number, .. } | stack::Event::Replace { number, .. } => {
                        self.handle(now, Input::Persisted { number })
                    }
                    stack::Event::Acquire { epoch, .. } => {
                        self.handle(now, Input::Acquired { epoch, granted: false })
                    }
                    _ => Ok(()),
                };
                answered.expect("no peer is involved");
            }
            if is_quiet {
                return;
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        Stack::next_timeout(self)
    }

    fn node(&self) -> NodeId {
        self.me().node
    }
}

impl Victim for Multicast {
    fn hear(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        self.handle(now, multicast::Input::Message { from, bytes })
    }

    fn live(&mut self, now: Time) {
        self.handle(now, multicast::Input::Timeout).expect("no peer is involved");
        while self.poll_transmit().is_some() {}
        while self.poll_event().is_some() {}
    }

    fn next_timeout(&self) -> Option<Time> {
        Multicast::next_timeout(self)
    }

    fn node(&self) -> NodeId {
        NodeId(0)
    }
}

impl Victim for Mscs {
    fn hear(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        self.handle(now, mscs::Input::Message { from, bytes })
    }

    fn live(&mut self, now: Time) {
        self.handle(now, mscs::Input::Timeout).expect("no peer is involved");
        while self.poll_transmit().is_some() {}
        while self.poll_event().is_some() {}
    }

    fn next_timeout(&self) -> Option<Time> {
        Mscs::next_timeout(self)
    }

    fn node(&self) -> NodeId {
        NodeId(0)
    }
}

/// Tells a machine mutations of what was said in some protocols for as long as there is time. How many it took and refused.
fn torment<V: Victim>(
    fuzz: &mut Fuzz,
    mut fresh: impl FnMut(&mut Fuzz) -> (Time, V),
    spoken: &[&[Recorded]],
    copy: impl Fn(&V) -> Option<V>,
) -> (u64, u64) {
    let (mut taken, mut refused, mut longest) = (0, 0, 0);
    while fuzz.goes_on() {
        let (mut now, mut victim) = fresh(fuzz);
        victim.live(now);
        for _ in 0..LIFE {
            let said = fuzz.pick(spoken);
            let Recorded { from, bytes } = fuzz.pick(said).clone();
            let other = fuzz.pick(said).bytes.clone();
            let from = match fuzz.dice.below(12) {
                0 => fuzz.pick(said).from,
                1 => STRANGER,
                _ => from,
            };
            if from == victim.node() {
                continue;
            }
            let bytes = if fuzz.chance(6) { bytes } else { fuzz.mutated(&bytes, &other) };
            // A copy takes longer than a message.
            let before = if fuzz.chance(4) { copy(&victim) } else { None };
            match victim.hear(now, from, &bytes) {
                Ok(()) => taken += 1,
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.from, from, "{error}");
                    if let Some(before) = before {
                        compare(&error, &written(&before), &written(&victim));
                    }
                }
            }
            victim.live(now);
            if fuzz.chance(10) {
                let next = victim.next_timeout().unwrap_or(now);
                now = next.clamp(now, now.saturating_add(Duration::from_millis(100)));
                victim.live(now);
            }
        }
        let written = written(&victim).len();
        longest = longest.max(written);
        assert!(written < MOST_WRITTEN, "it has grown to {written}");
    }
    println!("{taken} taken, {refused} refused, the longest {longest}");
    assert!(taken > 0 && refused > 0, "it was tried");
    (taken, refused)
}

fn torment_members(test: &str, protocols: &[Protocol], has_log: bool) {
    let recording = recorded(has_log);
    let mut fuzz = Fuzz::start(test, 1);
    let spoken: Vec<_> = protocols.iter().map(|protocol| recording.of(*protocol)).collect();
    let fresh = |fuzz: &mut Fuzz| fuzz.pick(&recording.moments).clone();
    torment(&mut fuzz, fresh, &spoken, |stack| Some(stack.clone()));
}

#[test]
fn what_peers_say_of_the_state_of_all() {
    torment_members("state", &[Protocol::State], false);
}

#[test]
fn what_peers_say_to_detectors() {
    torment_members("detect", &[Protocol::Detect], false);
}

#[test]
fn what_peers_say_in_a_regroup() {
    torment_members("regroup", &[Protocol::Regroup], false);
    torment_members("regroup with logs", &[Protocol::Regroup], true);
}

#[test]
fn what_joiners_and_sponsors_say() {
    torment_members("join", &[Protocol::Join], false);
}

#[test]
fn what_peers_say_of_updates() {
    torment_members("order", &[Protocol::Order], false);
    torment_members("order with logs", &[Protocol::Order], true);
}

#[test]
fn what_peers_say_of_snapshots() {
    torment_members("snapshot", &[Protocol::Snapshot, Protocol::Join], false);
}

#[test]
fn what_peers_say_in_circles() {
    torment_members("circles", &[Protocol::Circles, Protocol::Multicast], false);
}

#[test]
fn what_peers_say_in_all_protocols_at_once() {
    let all = [
        Protocol::State,
        Protocol::Detect,
        Protocol::Regroup,
        Protocol::Join,
        Protocol::Order,
        Protocol::Snapshot,
        Protocol::Circles,
        Protocol::Multicast,
    ];
    torment_members("all", &all, false);
}

/// Nodes of one kind, whose network delivers everything at once.
fn exchange<M>(
    nodes: &mut [M],
    recording: &mut Recording<M>,
    mut poll: impl FnMut(&mut M) -> Vec<(NodeId, Vec<u8>)>,
    mut hear: impl FnMut(&mut M, NodeId, &[u8]),
) {
    let mut under_way = VecDeque::new();
    loop {
        for (from, node) in (0..).map(NodeId).zip(nodes.iter_mut()) {
            under_way.extend(poll(node).into_iter().map(|(to, bytes)| (from, to, bytes)));
        }
        let Some((from, to, bytes)) = under_way.pop_front() else { return };
        recording.heard(from, &bytes);
        hear(&mut nodes[to.0 as usize], from, &bytes);
    }
}

#[test]
fn what_peers_say_in_a_multicast() {
    let view = first_view();
    let machine =
        |node| Multicast::new(multicast::Config::default(), member(node), view.clone(), Dice::new(1));
    let mut nodes: Vec<_> = (0..MEMBERS).map(machine).collect();
    let mut recording = Recording::new();
    let mut dice = Dice::new(1);
    for round in 1..60 {
        let now = Time::from_millis(round * 10);
        for node in &mut nodes {
            let _ = node.send(now, &round.to_le_bytes());
            node.handle(now, multicast::Input::Timeout).expect("no peer is involved");
        }
        let poll = |node: &mut Multicast| {
            let others: Vec<_> = node.view().nodes().collect();
            let casts = std::iter::from_fn(|| node.poll_transmit()).flat_map(|cast| {
                let to = match cast.to {
                    To::One(to) => vec![to],
                    To::Others => others.clone(),
                };
                to.into_iter().map(move |to| (to, cast.bytes.to_vec()))
            });
            casts.collect()
        };
        exchange(&mut nodes, &mut recording, poll, |node, from, bytes| {
            // Some are lost, lest there be nothing to repair.
            if !dice.happens(300_000) {
                let _ = node.handle(now, multicast::Input::Message { from, bytes });
            }
        });
        recording.moments.push((now, nodes[0].clone()));
    }
    let mut fuzz = Fuzz::start("multicast", 1);
    let said = recording.of(Protocol::Multicast);
    torment(&mut fuzz, |fuzz| fuzz.pick(&recording.moments).clone(), &[said], |node| Some(node.clone()));
}

/// The classic way trusts its nodes; it does not fall over for that.
#[test]
fn what_peers_say_in_the_classic_way() {
    let all: NodeSet = (0..MEMBERS).map(NodeId).collect();
    let start = |node| Mscs::member(Time::ZERO, member(node), all);
    let mut nodes: Vec<_> = (0..MEMBERS).map(start).collect();
    let mut recording = Recording::new();
    for round in 1..120 {
        let now = Time::from_millis(round * 100);
        for (place, node) in nodes.iter_mut().enumerate() {
            if round % 10 == 0 {
                node.handle(now, mscs::Input::Update(&[u8::try_from(place).expect("few")]))
                    .expect("our own input");
            }
            node.handle(now, mscs::Input::Timeout).expect("no peer is involved");
        }
        let poll = |node: &mut Mscs| {
            let sent: Vec<Transmit> = std::iter::from_fn(|| node.poll_transmit()).collect();
            sent.into_iter().map(|transmit| (transmit.to, transmit.bytes)).collect()
        };
        exchange(&mut nodes, &mut recording, poll, |node, from, bytes| {
            // The last one dies half way through.
            if round < 60 || from.0 + 1 < MEMBERS {
                let _ = node.handle(now, mscs::Input::Message { from, bytes });
            }
        });
    }
    let mut fuzz = Fuzz::start("mscs", 1);
    let said = recording.of(Protocol::Mscs);
    let fresh = |fuzz: &mut Fuzz| (Time::from_millis(1), start(fuzz.dice.below(1)));
    torment(&mut fuzz, fresh, &[said], |_| None);
}

/// What a disk makes of a log, where no checksum finds it out: it is refused, or gone on from without a panic.
#[test]
fn what_a_log_says() {
    let recording = recorded(true);
    let mut fuzz = Fuzz::start("logs", 1);
    let logs: Vec<_> = recording.records.iter().filter(|records| records.len() > 1).collect();
    let (mut taken, mut refused) = (0_u64, 0_u64);
    while fuzz.goes_on() {
        let mut records = (*fuzz.pick(&logs)).clone();
        for _ in 0..1 + fuzz.dice.below(2) {
            let (place, other) = (fuzz.dice.index(records.len()), fuzz.dice.index(records.len()));
            match fuzz.dice.below(6) {
                0 => drop(records.remove(place)),
                1 => records.swap(place, other),
                _ => {
                    let mut bytes = records[place].clone();
                    let other = records[other].clone();
                    fuzz.mutate_message(&mut bytes, &other);
                    records[place] = bytes;
                }
            }
            if records.is_empty() {
                records.push(Vec::new());
            }
        }
        let me = Member { incarnation: Incarnation(2), ..member(fuzz.dice.below(MEMBERS + 1)) };
        let mut now = Time::from_millis(1);
        let records = records.iter().map(|record| &record[..]);
        match Stack::resuming(Group::config(true), me, now, records) {
            Err(_) => refused += 1,
            Ok(mut stack) => {
                taken += 1;
                for _ in 0..10 {
                    stack.live(now);
                    now = stack.next_timeout().unwrap_or(now).max(now);
                }
            }
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 0 && refused > 0, "it was tried");
}

/// A state that another hands over is read like a message: what cannot be is not taken, and the rest is worked with.
#[test]
fn what_a_snapshot_says() {
    let recording = recorded(false);
    let snapshots: Vec<_> = recording.moments.iter().filter_map(|(_, stack)| stack.order()).collect();
    let snapshots: Vec<_> = snapshots.iter().map(|order| order.snapshot(vec![1, 2, 3])).collect();
    let written = |snapshot: &order::Snapshot| postcard::to_allocvec(snapshot).expect("ours");
    let mut fuzz = Fuzz::start("snapshots", 1);
    let (mut taken, mut refused) = (0_u64, 0_u64);
    while fuzz.goes_on() {
        let (bytes, other) = (written(fuzz.pick(&snapshots)), written(fuzz.pick(&snapshots)));
        let bytes = fuzz.mutated(&bytes, &other);
        let snapshot = postcard::from_bytes(&bytes).ok().filter(order::Snapshot::is_sound);
        let Some(snapshot) = snapshot else {
            refused += 1;
            continue;
        };
        taken += 1;
        let cut = snapshot.position;
        let mut order = Order::joining(order::Config::default(), member(1), snapshot);
        let (view, holders) = (first_view(), vec![NodeId(0)]);
        let change = order::Input::Change { view: view.clone(), cut, holders };
        order.handle(Time::from_millis(1), change).expect("no peer is involved");
        order.handle(Time::from_millis(1), order::Input::Install(view)).expect("no peer is involved");
        let _ = order.submit(Time::from_millis(2), Level::Majority, b"one more");
        while order.poll_transmit().is_some() {}
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 0 && refused > 0, "it was tried");
}
