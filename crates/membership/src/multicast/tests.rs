//! Many members, in a network that loses much; and peers that lie.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use comb_sim::{Actor, Checker, Effects, Fault, Input as Happening, Truth, World};
use comb_types::Incarnation;
use proptest::prelude::*;

use super::*;

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

fn view(nodes: u32) -> View {
    View { members: (0..nodes).map(member).collect(), ..View::founded_by(member(0)) }
}

struct Caster(Multicast);

#[derive(Debug)]
enum Told {
    Sent(u64),
    Got(Event),
}

impl Actor for Caster {
    type Command = Vec<u8>;
    type Event = Told;

    fn handle(&mut self, input: Happening<'_, Vec<u8>>, effects: &mut Effects<'_, Told>) {
        let now = effects.now();
        let outcome = match input {
            Happening::Message { from, bytes } => self.0.handle(now, Input::Message { from, bytes }),
            Happening::Command(body) => {
                if let Ok(number) = self.0.send(now, &body) {
                    effects.tell(Told::Sent(number));
                }
                Ok(())
            }
            _ => self.0.handle(now, Input::Timeout),
        };
        outcome.expect("honest members break no rule");
        while let Some(cast) = self.0.poll_transmit() {
            assert!(cast.bytes.len() <= 1400, "{} bytes", cast.bytes.len());
            match cast.to {
                To::One(to) => effects.send(to, cast.bytes.to_vec()),
                To::Others => {
                    let others = self.0.view().nodes().filter(|&to| to != self.0.me.node);
                    others.for_each(|to| effects.send(to, cast.bytes.to_vec()));
                }
            }
        }
        while let Some(event) = self.0.poll_event() {
            effects.tell(Told::Got(event));
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.0.next_timeout()
    }
}

/// Whose message, and which of it.
type Name = (Member, u64);

#[derive(Debug, Default)]
struct Seen {
    sent: BTreeSet<Name>,
    delivered: BTreeMap<Name, BTreeSet<NodeId>>,
    missed: BTreeMap<Name, BTreeSet<NodeId>>,
}

impl Seen {
    /// Messages that somebody lacks.
    fn not_atomic(&self, nodes: u32) -> usize {
        let reached = |name: &Name| self.delivered.get(name).map_or(0, BTreeSet::len);
        self.sent.iter().filter(|name| reached(name) + 1 < nodes as usize).count()
    }
}

struct Judge(Rc<RefCell<Seen>>);

impl Checker<Caster> for Judge {
    fn saw(&mut self, _truth: &Truth<'_>, node: NodeId, event: &Told) -> Result<(), String> {
        let mut seen = self.0.borrow_mut();
        match *event {
            Told::Sent(number) => drop(seen.sent.insert((member(node.0), number))),
            Told::Got(Event::Delivered { from, number, .. }) => {
                let is_sent = seen.sent.contains(&(from, number));
                let is_new = seen.delivered.entry((from, number)).or_default().insert(node);
                if !is_sent || !is_new {
                    return Err(format!("message {number} of {} is made up, or comes twice", from.node));
                }
            }
            Told::Got(Event::Missed { from, first, last }) => {
                for number in first..=last {
                    seen.missed.entry((from, number)).or_default().insert(node);
                }
            }
        }
        Ok(())
    }

    /// Whatever exists has come, or was told to be missed, and never both.
    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        let seen = self.0.borrow();
        for name in &seen.sent {
            for node in truth.up().filter(|&node| node != name.0.node) {
                let has = |all: &BTreeMap<Name, BTreeSet<NodeId>>| {
                    all.get(name).is_some_and(|nodes| nodes.contains(&node))
                };
                if has(&seen.delivered) == has(&seen.missed) {
                    return Err(format!("{node} has neither got nor missed {name:?}, or both"));
                }
            }
        }
        Ok(())
    }
}

/// A world in which `loss` is lost, and is planned for as `planned`.
fn world(seed: u64, nodes: u32, loss: f64, config: &Config) -> (World<Caster>, Rc<RefCell<Seen>>) {
    let config = config.clone();
    let mut world = World::new(seed, move |boot| {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        Caster(Multicast::new(config.clone(), me, view(nodes), Dice::new(boot.seed)))
    });
    world.add_nodes(nodes);
    (0..nodes).for_each(|node| world.start(NodeId(node)));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a probability")]
    let lost_per_million = (loss * 1e6) as u32;
    world.network_mut().default.lost_per_million = lost_per_million;
    let seen = Rc::new(RefCell::new(Seen::default()));
    world.check(Judge(seen.clone()));
    (world, seen)
}

fn send_many(world: &mut World<Caster>, count: u32, nodes: u32) {
    for number in 0..count {
        let node = NodeId(world.dice().below(nodes));
        let at = Time::from_millis(10 + 5 * u64::from(number));
        world.command_at(at, node, vec![0; 32]);
    }
}

/// Runs for so many rounds that all has come, been forgotten, and been missed.
fn run_out(world: &mut World<Caster>, config: &Config, nodes: u32) {
    let rounds = rounds(nodes, config.fanout, config.loss, config.epsilon) + SLACK_ROUNDS;
    world.run_for(config.interval * (4 * rounds + 400)).unwrap_or_else(|failure| panic!("{failure}"));
}

const NODES: u32 = 16;

/// How many of so many messages did not reach all, if the network loses so much, and each is gossiped for so many rounds as
/// are right for `planned`.
fn not_atomic(loss: f64, planned: f64, epsilon: f64) -> (usize, usize) {
    let config = Config { loss: planned, epsilon, fanout: 2, ..Config::default() };
    let (mut failed, mut sent) = (0, 0);
    for seed in 0..10 {
        let (mut world, seen) = world(seed, NODES, loss, &config);
        send_many(&mut world, 100, NODES);
        run_out(&mut world, &config, NODES);
        world.end().unwrap_or_else(|failure| panic!("{failure}"));
        sent += seen.borrow().sent.len();
        failed += seen.borrow().not_atomic(NODES);
    }
    (failed, sent)
}

#[test]
fn sim_a_quarter_is_lost_and_no_more_messages_than_promised_do_not_reach_all() {
    let (failed, sent) = not_atomic(0.25, 0.25, 0.01);
    assert!(sent >= 1000 && failed * 100 <= sent, "{failed} of {sent}");
}

#[test]
fn sim_three_quarters_are_lost_and_no_more_messages_than_promised_do_not_reach_all() {
    let (failed, sent) = not_atomic(0.75, 0.75, 0.01);
    assert!(sent >= 1000 && failed * 100 <= sent, "{failed} of {sent}");
}

/// The promise is worth something: with the rounds for a better network it is broken, and every gap is told.
#[test]
fn sim_with_rounds_for_less_loss_messages_do_not_reach_all_and_that_is_told() {
    let (failed, sent) = not_atomic(0.75, 0.25, 0.01);
    assert!(failed * 100 > sent, "{failed} of {sent}");
}

#[test]
fn sim_who_was_cut_off_for_too_long_is_told_what_it_has_missed() {
    let config = Config { loss: 0.25, epsilon: 1e-3, ..Config::default() };
    let (mut world, seen) = world(1, 8, 0.25, &config);
    let others = (0..7).map(NodeId).collect();
    world.at(Time::from_millis(1), Fault::Partition(vec![others, vec![NodeId(7)]]));
    for number in 0..50 {
        world.command_at(Time::from_millis(10 + number), NodeId(0), b"said behind its back".to_vec());
    }
    run_out(&mut world, &config, 8);
    world.at(world.now(), Fault::Heal);
    run_out(&mut world, &config, 8);
    world.end().unwrap_or_else(|failure| panic!("{failure}"));
    let seen = seen.borrow();
    let missed = seen.missed.values().filter(|nodes| nodes.contains(&NodeId(7))).count();
    assert_eq!((seen.sent.len(), missed), (50, 50));
    assert!(world.actors().all(|(_, actor)| actor.0.kept() == 0), "everything is forgotten in the end");
}

#[test]
fn the_bounds_hold() {
    let config = Config { open_most: 10, kept_most: 15, ..Config::default() };
    let mut one = Multicast::new(config.clone(), member(0), view(3), Dice::new(1));
    let long = alloc::vec![0; config.longest_body() + 1];
    assert_eq!(one.send(Time::ZERO, &long), Err(SendError::TooLong));
    for number in 1..=10 {
        assert_eq!(one.send(Time::ZERO, &long[1..]), Ok(number));
    }
    assert_eq!(one.send(Time::ZERO, b"x"), Err(SendError::Full));
    let other = |sender, number| write(&Message::Data { sender: member(sender), number, body: b"x" });
    for number in (1..100).step_by(2) {
        let bytes = other(1, number);
        one.handle(Time::ZERO, Input::Message { from: NodeId(1), bytes: &bytes }).unwrap();
    }
    assert_eq!(one.kept(), 15);
    assert!(one.counts().crowded_out > 0);
    let missed = core::iter::from_fn(|| one.poll_event());
    assert!(missed.filter(|event| matches!(event, Event::Missed { .. })).count() > 30);
}

/// One of three, with what it has sent and told taken out.
fn one(config: &Config) -> Multicast {
    Multicast::new(config.clone(), member(0), view(3), Dice::new(1))
}

fn hear(one: &mut Multicast, from: u32, message: &Message<'_>) {
    one.handle(Time::ZERO, Input::Message { from: NodeId(from), bytes: &write(message) }).expect("honest");
}

fn data(sender: u32, number: u64) -> Message<'static> {
    Message::Data { sender: member(sender), number, body: b"x" }
}

fn claims(sender: u32, next: u64, extra: &[Range], high: u64) -> Message<'static> {
    Message::Digest {
        claims: alloc::vec![Claim { sender: member(sender), next, extra: extra.to_vec(), high }],
    }
}

/// What it says to whom, in words.
fn said(one: &mut Multicast) -> Vec<(To, String)> {
    core::iter::from_fn(|| one.poll_transmit())
        .map(|cast| (cast.to, Multicast::describe(&cast.bytes)))
        .collect()
}

fn told(one: &mut Multicast) -> Vec<Event> {
    core::iter::from_fn(|| one.poll_event()).collect()
}

fn delivered(sender: u32, number: u64) -> Event {
    Event::Delivered { from: member(sender), number, body: b"x".to_vec() }
}

#[test]
fn who_has_some_is_asked_for_them_and_sent_what_it_lacks_and_nothing_else() {
    let mut one = one(&Config::default());
    for number in [1, 2, 4, 5, 7] {
        hear(&mut one, 1, &data(1, number));
    }
    let to = |message: &str| (To::One(NodeId(2)), message.to_owned());
    // It lacks 1 to 3 and 5; it has 4, and 6 to 9 but for 8.
    hear(&mut one, 2, &claims(1, 1, &[(4, 4), (6, 7), (9, 9)], 9));
    let asks = to("I lack [(6, 6), (8, 9)] of node 1");
    assert_eq!(
        said(&mut one),
        [asks, to("message 1 of node 1"), to("message 2 of node 1"), to("message 5 of node 1")]
    );
    // It knows that there are nine, and has none of what is lacking here.
    hear(&mut one, 2, &claims(1, 3, &[(4, 5), (7, 7)], 9));
    assert_eq!(said(&mut one), []);
    hear(&mut one, 2, &claims(1, 4, &[(7, 7)], 9));
    assert_eq!(said(&mut one)[0], to("I lack [(3, 3)] of node 1"));
    hear(&mut one, 2, &Message::Ask { sender: member(1), ranges: alloc::vec![(2, 3), (7, 9)] });
    assert_eq!(said(&mut one), [to("message 2 of node 1"), to("message 7 of node 1")]);
    assert_eq!(one.counts().repaired, 7);
}

#[test]
fn no_more_is_sent_for_one_message_than_may_be_and_no_more_asked_for_than_is_answered() {
    let config = Config { repairs_most: 3, ..Config::default() };
    let mut one = one(&config);
    (1..=20).for_each(|number| hear(&mut one, 1, &data(1, 2 * number)));
    hear(&mut one, 2, &Message::Ask { sender: member(1), ranges: alloc::vec![(1, 9), (10, 40)] });
    assert_eq!(said(&mut one).len(), 3);
    hear(&mut one, 2, &claims(1, 1, &[], 0));
    assert_eq!(said(&mut one).len(), 3);
    let ask = Message::Ask { sender: member(1), ranges: alloc::vec![(1, 1); MOST_RANGES + 1] };
    assert!(one.handle(Time::ZERO, Input::Message { from: NodeId(2), bytes: &write(&ask) }).is_err());
    hear(&mut one, 2, &claims(1, 41, &[], 40));
    let (_, words) = said(&mut one).remove(0);
    assert_eq!(words.matches('(').count(), MOST_RANGES, "{words}");
    let digest = one.digest();
    let Ok(Message::Digest { claims }) = read(NodeId(0), &digest) else { panic!("a digest") };
    assert!(claims.iter().all(|claim| claim.extra.len() <= MOST_RANGES));
}

/// In which digests a group is spoken of that is too large for one.
#[test]
fn each_sender_is_spoken_of_in_turn_and_a_member_of_itself_in_every_digest() {
    const MEMBERS: u32 = 30;
    let config = Config { longest_message: 480, ..Config::default() };
    let mut one = Multicast::new(config.clone(), member(3), view(MEMBERS), Dice::new(1));
    // Eight fit one, besides itself and the envelope.
    let once = rounds(MEMBERS, config.fanout, config.loss, config.epsilon);
    assert_eq!(one.rounds(), 3 * once, "a message is gossiped until it was spoken of often enough");
    let mut spoken = BTreeMap::<u32, u32>::new();
    for turn in 0..30 {
        if turn == 15 {
            // These need more room.
            for (sender, number) in (4..16).flat_map(|sender| (1..10).map(move |number| (sender, number))) {
                hear(&mut one, sender, &data(sender, (1 << 60) + 3 * number));
            }
        }
        let digest = one.digest();
        assert!(digest.len() <= config.longest_message);
        let Ok(Message::Digest { claims }) = read(NodeId(0), &digest) else { panic!("a digest") };
        let senders: Vec<_> = claims.iter().map(|claim| claim.sender.node.0).collect();
        assert_eq!((senders[0], senders.len()), (3, senders.iter().collect::<BTreeSet<_>>().len()));
        assert!(senders.len() <= 9, "{senders:?}");
        senders.into_iter().for_each(|sender| *spoken.entry(sender).or_default() += 1);
    }
    assert_eq!((spoken.len(), spoken[&3]), (MEMBERS as usize, 30));
    let others = || spoken.iter().filter(|(sender, _)| **sender != 3).map(|(_, times)| *times);
    assert!(others().max() <= others().min().map(|least| least + 1), "{spoken:?}");
}

/// One claim is spoken of, however little fits.
#[test]
fn a_digest_that_has_room_for_nothing_still_goes_on() {
    let mut one =
        Multicast::new(Config { longest_message: 60, ..Config::default() }, member(0), view(3), Dice::new(1));
    let spoken: BTreeSet<_> = (0..6)
        .flat_map(|_| match read(NodeId(0), &one.digest()) {
            Ok(Message::Digest { claims }) => claims.iter().map(|claim| claim.sender.node.0).collect(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(spoken.len(), 3);
}

#[test]
fn of_who_comes_the_first_message_counts_and_of_who_leaves_nothing_stays() {
    let mut one = one(&Config::default());
    hear(&mut one, 1, &data(1, 1));
    hear(&mut one, 2, &data(2, 1));
    one.send(Time::ZERO, b"own").expect("room");
    let (_, _) = (told(&mut one), said(&mut one));
    let five = view(5);
    let without =
        View { members: five.members.iter().copied().filter(|it| it.node.0 != 2).collect(), ..five };
    one.handle(Time::ZERO, Input::Members(without)).expect("our own");
    assert_eq!(one.kept(), 2, "that of who has left is forgotten");
    // Heard from itself, and from another: what was lost of it is asked for.
    hear(&mut one, 3, &data(3, 2));
    hear(&mut one, 1, &claims(4, 3, &[], 2));
    assert_eq!(told(&mut one), [delivered(3, 2)]);
    assert_eq!(said(&mut one), [(To::One(NodeId(1)), "I lack [(1, 2)] of node 4".to_owned())]);
    assert_eq!((one.expects(member(3)), one.expects(member(4))), (Some(1), Some(1)));
    hear(&mut one, 3, &data(3, 2));
    assert_eq!(one.counts(), Counts { doubled: 1, ..Counts::default() });
    // Late words of who has left.
    hear(&mut one, 1, &data(2, 2));
    hear(&mut one, 1, &claims(2, 4, &[], 3));
    assert_eq!((told(&mut one), said(&mut one).len(), one.counts().strangers), (Vec::new(), 0, 2));
}

#[test]
fn who_comes_to_others_gets_what_is_still_gossiped_of_and_misses_nothing_from_before() {
    let config = Config { open_most: 10, ..Config::default() };
    let mut one = Multicast::joining(config, member(0), view(3), Dice::new(1));
    hear(&mut one, 1, &data(1, 70));
    hear(&mut one, 1, &claims(2, 81, &[], 80));
    assert_eq!(told(&mut one), [delivered(1, 70)]);
    assert_eq!(said(&mut one), [(To::One(NodeId(1)), "I lack [(71, 80)] of node 2".to_owned())]);
    hear(&mut one, 2, &data(2, 79));
    assert_eq!(told(&mut one), [delivered(2, 79)]);
    hear(&mut one, 2, &data(2, 82));
    while one.expects(member(2)) != Some(83) {
        let due = one.next_timeout().expect("it has others");
        one.handle(due, Input::Timeout).expect("our own");
    }
    let missed = Event::Missed { from: member(2), first: 81, last: 81 };
    assert_eq!(told(&mut one), [delivered(2, 82), missed], "only what was said after it came");
}

#[test]
fn who_is_alone_sends_nothing_and_waits_for_nothing() {
    let mut one = Multicast::new(Config::default(), member(0), view(1), Dice::new(1));
    one.send(Time::ZERO, b"to nobody").expect("room");
    assert_eq!((said(&mut one), one.next_timeout()), (Vec::new(), None));
}

#[test]
fn rounds_are_seldom_while_nothing_is_open_and_soon_when_something_is() {
    let config = Config::default();
    let mut one = one(&config);
    let waits = |one: &Multicast| one.next_timeout().expect("it has others").since(Time::ZERO);
    one.handle(Time::ZERO, Input::Timeout).expect("our own");
    assert!(waits(&one) >= config.interval * IDLE_ROUNDS / 2);
    let (mut sends, mut hears, mut lacks) = (one.clone(), one.clone(), one.clone());
    sends.send(Time::ZERO, b"x").expect("room");
    hear(&mut hears, 1, &data(1, 1));
    hear(&mut lacks, 1, &claims(2, 2, &[], 1));
    for (what, busy) in [("sends", &sends), ("hears", &hears), ("lacks", &lacks)] {
        assert!(waits(busy) <= config.interval * 3 / 2, "{what}");
    }
}

#[test]
fn what_is_crowded_out_is_the_oldest() {
    let mut one = one(&Config { kept_most: 2, ..Config::default() });
    hear(&mut one, 1, &data(1, 1));
    for number in 2..=3 {
        let now = one.next_timeout().expect("it has others");
        one.handle(now, Input::Timeout).expect("our own");
        hear(&mut one, 1, &data(1, number));
    }
    assert_eq!(one.kept.keys().map(|(_, number)| *number).collect::<Vec<_>>(), [2, 3]);
}

fn lied(message: &Message<'_>, from: u32) -> Result<(), &'static str> {
    let mut one = Multicast::new(Config::default(), member(0), view(3), Dice::new(1));
    let good = write(&Message::Data { sender: member(1), number: 1, body: b"good" });
    one.handle(Time::ZERO, Input::Message { from: NodeId(1), bytes: &good }).unwrap();
    let bytes = write(message);
    let outcome = one.handle(Time::ZERO, Input::Message { from: NodeId(from), bytes: &bytes });
    assert_eq!(one.counts().refused, u64::from(outcome.is_err()));
    outcome.map_err(|error| {
        assert_eq!(error.from, NodeId(from));
        error.rule
    })
}

#[test]
fn each_lie_is_refused_with_its_reason() {
    let data = |sender, number| Message::Data { sender: member(sender), number, body: b"bad" };
    let digest = |sender, next, extra: &[Range], high| Message::Digest {
        claims: alloc::vec![Claim { sender: member(sender), next, extra: extra.to_vec(), high }],
    };
    assert_eq!(lied(&data(1, 2), 1), Ok(()));
    assert_eq!(lied(&data(1, 2), 0), Err("a message from somebody who is no other member"));
    assert_eq!(lied(&data(1, 2), 9), Err("a message from somebody who is no other member"));
    assert_eq!(lied(&data(1, 1), 2), Err("one number for two messages"));
    assert_eq!(lied(&data(0, 1), 2), Err("a message of ours that we never sent"));
    assert_eq!(lied(&data(1, 0), 2), Err("a number that cannot be"));
    assert_eq!(lied(&digest(1, 3, &[(5, 6), (8, 8)], 9), 2), Ok(()));
    assert_eq!(lied(&digest(0, 2, &[], 1), 2), Err("a message of ours that we never sent"));
    for (next, extra, high) in [
        (0, &[][..], 9),
        (3, &[], 1),
        (3, &[(3, 4)], 9),
        (3, &[(6, 5)], 9),
        (3, &[(5, 10)], 9),
        (3, &[(5, 6), (6, 7)], 9),
        // Nothing is lacking between them: what there is to send ended before it began, and the machine with it.
        (3, &[(5, 6), (7, 7)], 9),
        (3, &[], u64::MAX),
    ] {
        assert_eq!(lied(&digest(1, next, extra, high), 2), Err("a digest that contradicts itself"));
    }
    let ask = Message::Ask { sender: member(1), ranges: alloc::vec![(2, 1)] };
    assert_eq!(lied(&ask, 2), Err("a request that asks for nothing, or for too much"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_breaks_a_machine(
        messages in proptest::collection::vec(
            (0_u32..4, 0_u8..4, 0_u32..4, proptest::collection::vec(
                prop_oneof![4 => 0_u64..9, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)], 8),
             proptest::collection::vec(any::<u8>(), 0..20)),
            1..30),
    ) {
        let config = Config { open_most: 8, kept_most: 8, ..Config::default() };
        let mut one = Multicast::new(config, member(0), view(3), Dice::new(1));
        one.send(Time::ZERO, b"own").unwrap();
        for (from, kind, sender, numbers, noise) in messages {
            let sender = member(sender);
            let ranges = alloc::vec![(numbers[2], numbers[3]), (numbers[4], numbers[5])];
            let bytes = match kind {
                0 => write(&Message::Data { sender, number: numbers[0], body: &noise }),
                1 => write(&Message::Digest { claims: alloc::vec![
                    Claim { sender, next: numbers[0], extra: ranges, high: numbers[1] }] }),
                2 => write(&Message::Ask { sender, ranges }),
                _ => [&[VERSION, Protocol::Multicast as u8], &noise[..]].concat().into(),
            };
            let now = one.next_timeout().unwrap_or(Time::ZERO);
            if let Err(error) = one.handle(now, Input::Message { from: NodeId(from), bytes: &bytes }) {
                prop_assert_eq!(error.from, NodeId(from));
            }
            let sent = core::iter::from_fn(|| one.poll_transmit()).count();
            prop_assert!(sent < 100, "{} messages for one", sent);
            while one.poll_event().is_some() {}
            prop_assert!(one.kept() <= 8);
        }
    }
}
