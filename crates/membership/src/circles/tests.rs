//! Circles whose updates come to all members at once, over a network that loses what a test wants.

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use comb_types::Incarnation;
use proptest::prelude::*;

use super::recovery::Recovery;
use super::*;
use crate::order::Body;
use crate::view::ViewEpoch;

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

fn view(epoch: u64, nodes: impl IntoIterator<Item = u32>) -> View {
    let members: Vec<_> = nodes.into_iter().map(member).collect();
    View { epoch: ViewEpoch(epoch), tie_breaker: members[0].node, members }
}

/// Whether a message from one node to another is lost.
type Loss = dyn FnMut(NodeId, NodeId, &[u8]) -> bool;

struct Base {
    all: Vec<Circles>,
    position: u64,
    now: Time,
    view: View,
    events: Vec<Vec<Event>>,
    messages: usize,
    loss: Box<Loss>,
}

fn nothing_is_lost() -> Box<Loss> {
    Box::new(|_, _, _| false)
}

fn is_gossip(bytes: &[u8]) -> bool {
    bytes[1] == Protocol::Multicast as u8
}

impl Base {
    fn new(nodes: u32) -> Self {
        let view = view(1, 0..nodes);
        let circles = |node| Circles::new(Config::default(), member(node), Dice::new(u64::from(node)));
        let mut base = Self {
            all: (0..nodes).map(circles).collect(),
            position: 0,
            now: Time::from_millis(1),
            view: view.clone(),
            events: (0..nodes).map(|_| Vec::new()).collect(),
            messages: 0,
            loss: nothing_is_lost(),
        };
        base.change(view);
        base
    }

    fn change(&mut self, view: View) {
        self.view = view;
        for circles in &mut self.all {
            circles.at(self.now);
            circles.follow(&self.view);
        }
        self.settle();
        for node in self.view.nodes().collect::<Vec<_>>() {
            let circles = &mut self.all[node.0 as usize];
            if let Some(update) = circles.to_tell() {
                circles.has_told();
                self.submit(node.0 as usize, &update);
            }
        }
    }

    fn submit(&mut self, node: usize, update: &[u8]) {
        self.position += 1;
        let delivery = Delivery {
            position: self.position,
            epoch: self.view.epoch,
            sender: self.all[node].me,
            number: self.position,
            body: Body::from(update),
        };
        let is_here = |circles: &&mut Circles| self.view.members.contains(&circles.me);
        for circles in self.all.iter_mut().filter(is_here) {
            circles.delivered(&delivery, update).expect("members are honest");
        }
        self.settle();
    }

    fn join(&mut self, node: usize, name: &str, terms: Terms) {
        self.submit(node, &Circles::join(name, terms).expect("a good name"));
    }

    fn leave(&mut self, node: usize, name: &str) {
        self.submit(node, &Circles::leave(name).expect("a good name"));
    }

    fn say(&mut self, node: usize, address: &str, body: &[u8]) -> Result<(), CircleError> {
        self.all[node].at(self.now);
        if let Way::Submit { update, ticket, .. } = self.all[node].say(address, body)? {
            self.all[node].submitted(ticket, self.position + 1);
            self.submit(node, &update);
        }
        self.settle();
        Ok(())
    }

    /// Carries messages until there are none.
    fn settle(&mut self) {
        loop {
            let mut under_way = Vec::new();
            for circles in self.all.iter_mut().filter(|circles| self.view.members.contains(&circles.me)) {
                let from = circles.me.node;
                while let Some(cast) = circles.poll_transmit() {
                    let others = self.view.nodes().filter(|&to| to != from);
                    let to: Vec<_> = match cast.to {
                        To::One(to) => vec![to],
                        To::Others => others.collect(),
                    };
                    under_way.extend(to.into_iter().map(|to| (from, to, cast.bytes.clone())));
                }
            }
            if under_way.is_empty() {
                break;
            }
            for (from, to, bytes) in under_way {
                self.messages += 1;
                let circles = &mut self.all[to.0 as usize];
                if self.view.members.contains(&circles.me) && !(self.loss)(from, to, &bytes) {
                    circles.at(self.now);
                    circles.message(from, &bytes).expect("members are honest");
                }
            }
        }
        for (circles, events) in self.all.iter_mut().zip(&mut self.events) {
            events.extend(core::iter::from_fn(|| circles.poll_event()));
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while let Some(next) =
            self.all.iter().filter_map(Circles::next_timeout).min().filter(|next| *next <= end)
        {
            self.now = self.now.max(next);
            for circles in &mut self.all {
                circles.at(self.now);
                if circles.next_timeout().is_some_and(|at| at <= self.now) {
                    circles.timeout();
                }
            }
            self.settle();
        }
        self.now = end;
    }

    fn events(&mut self, node: usize) -> Vec<Event> {
        core::mem::take(&mut self.events[node])
    }

    /// What a node was told by others, and nothing else is looked at.
    fn heard(&mut self, node: usize) -> Vec<(u32, Vec<u8>)> {
        let own = self.all[node].me;
        let told = self.events(node).into_iter().filter_map(|event| match event {
            Event::Told { from, body, .. } if from != own => Some((from.node.0, body)),
            _ => None,
        });
        told.collect()
    }
}

fn changed(circle: &str, since: u64, nodes: &[u32]) -> Event {
    let members = nodes.iter().map(|&node| member(node)).collect();
    Event::Changed { circle: circle.into(), since, members }
}

fn told(circle: &str, from: u32, position: impl Into<Option<u64>>, body: &[u8]) -> Event {
    let position = position.into();
    Event::Told { circle: circle.into(), from: member(from), is_to_one: false, position, body: body.into() }
}

#[test]
fn members_see_the_changes_and_hear_the_words_of_their_circles_only() {
    let mut base = Base::new(3);
    let terms = Terms::default();
    base.join(0, "red", terms);
    base.join(1, "red", terms);
    base.join(2, "blue", terms);
    assert_eq!(base.say(2, "red", b"from outside"), Err(CircleError::NotAMember));
    base.say(1, "red", b"hello").unwrap();
    base.leave(1, "red");
    base.leave(1, "red");
    base.join(0, "red", terms);
    assert_eq!(
        base.events(0),
        [
            changed("red", 1, &[0]),
            changed("red", 2, &[0, 1]),
            told("red", 1, 4, b"hello"),
            changed("red", 5, &[0])
        ]
    );
    let seen = [changed("red", 2, &[0, 1]), told("red", 1, 4, b"hello"), changed("red", 5, &[0])];
    assert_eq!(base.events(1), seen);
    assert_eq!(base.events(2), [changed("blue", 3, &[2])]);
}

#[test]
fn what_was_said_by_one_who_is_no_member_any_more_is_not_heard() {
    let mut base = Base::new(2);
    base.join(0, "red", Terms::default());
    base.join(1, "red", Terms::default());
    let Ok(Way::Submit { update, .. }) = base.all[1].say("red", b"late") else { panic!("it is atomic") };
    base.leave(1, "red");
    base.submit(1, &update);
    assert_eq!(base.heard(0), []);
}

#[test]
fn who_leaves_the_base_group_leaves_all_circles_and_empty_ones_go() {
    let mut base = Base::new(3);
    let terms = Terms::default();
    for (node, name) in [(0, "red"), (1, "red"), (1, "blue")] {
        base.join(node, name, terms);
    }
    base.events(0);
    let first = base.all[0].table.find("red");
    base.change(view(2, [0, 2]));
    assert_eq!(base.events(0), [changed("red", 4, &[0])]);
    assert_eq!(base.all[0].names().collect::<Vec<_>>(), ["red"]);
    base.leave(0, "red");
    assert!(base.all[0].is_empty() && base.all[0].members("red").count() == 0);
    base.join(0, "red", Terms::lossy());
    assert_ne!(base.all[0].table.find("red"), first, "it is another, and may have other terms");
}

/// A joiner is not told of views before its first, and hears of what was said in them. If the table changed by views, this one would
/// be in a circle that for the others is another.
#[test]
fn who_comes_in_later_has_the_same_table_though_it_was_not_told_of_every_view() {
    let mut base = Base::new(4);
    base.join(1, "red", Terms::default());
    let (position, snapshot) = (base.position, Circles::with_table(&base.all[0].snapshot(), b""));
    // All that follows comes to the joiner, but no view.
    base.all[3] = Circles::new(Config::default(), member(3), Dice::new(3));
    base.all[3].restore(position, &snapshot);
    base.view = view(2, [0, 2, 3]);
    for node in [0, 2] {
        base.all[node].follow(&view(2, [0, 2]));
    }
    let update = base.all[0].to_tell().expect("it is the first, and one has left");
    base.all[0].has_told();
    base.submit(0, &update);
    base.join(2, "red", Terms::lossy());
    base.change(view(3, [0, 2, 3]));
    let tables: BTreeSet<_> = [0, 2, 3].map(|node| base.all[node].snapshot()).into();
    assert_eq!(tables.len(), 1);
    assert_eq!(base.all[3].terms("red"), Some(Terms::lossy()), "it was founded anew");
}

#[test]
fn who_has_left_is_told_by_the_first_and_for_the_view_in_which_that_is_said_alone() {
    let mut base = Base::new(3);
    base.join(2, "red", Terms::default());
    let tell = |base: &mut Base, from: u32, meant: u64, epoch: u64, members: &[u32]| {
        let members = members.iter().map(|&node| member(node)).collect();
        let update = encode(Protocol::Circles, &Update::Base { epoch: ViewEpoch(meant), members });
        let (sender, epoch, body) = (member(from), ViewEpoch(epoch), Body::from(&update[..]));
        let delivery = Delivery { position: 9, epoch, sender, number: 1, body };
        let told = base.all[0].delivered(&delivery, &update);
        (told.map_err(|error| error.from.0), base.all[0].len())
    };
    assert_eq!(tell(&mut base, 1, 2, 2, &[0, 1]), (Err(1), 1), "it is not the first");
    assert_eq!(tell(&mut base, 1, 2, 2, &[1, 0]), (Err(1), 1), "nor so");
    assert_eq!(tell(&mut base, 0, 2, 2, &[]), (Err(0), 1));
    assert_eq!(tell(&mut base, 0, 2, 3, &[0, 1]), (Ok(()), 1), "that view is over");
    assert_eq!(tell(&mut base, 0, 2, 2, &[0, 1]), (Ok(()), 0));
    // There is nothing to be told where nobody is concerned.
    base.all[0].follow(&view(2, [0, 1]));
    assert_eq!(base.all[0].to_tell(), None);
}

#[test]
fn a_joiner_has_the_circles_of_its_sponsor_and_knows_its_own() {
    let mut base = Base::new(3);
    base.join(0, "red", Terms::default());
    base.join(1, "blue", Terms::epidemic());
    assert_eq!(base.all[0].snapshot(), base.all[2].snapshot(), "all have the same");
    let snapshot = Circles::with_table(&base.all[0].snapshot(), b"state");
    let mut joiner = Circles::new(Config::default(), member(3), Dice::new(9));
    assert_eq!(joiner.restore(2, &snapshot), b"state");
    assert_eq!((joiner.len(), joiner.poll_event()), (2, None));
    assert_eq!(joiner.members("red").collect::<Vec<_>>(), [member(0)]);
    assert_eq!((joiner.terms("blue"), joiner.terms("green")), (Some(Terms::epidemic()), None));
    // Who has fallen behind, and gets the state, is told where it belongs.
    assert_eq!(base.all[1].restore(2, &snapshot), b"state");
    assert_eq!(base.all[1].poll_event(), Some(changed("blue", 2, &[1])));
}

#[test]
fn who_gets_the_state_of_others_is_still_heard_and_hears() {
    let mut base = Base::new(2);
    base.join(0, "red", Terms::epidemic());
    base.join(1, "red", Terms::epidemic());
    base.say(0, "red", b"1").unwrap();
    base.say(1, "red", b"2").unwrap();
    let snapshot = Circles::with_table(&base.all[1].snapshot(), b"");
    base.all[0].restore(2, &snapshot);
    base.say(0, "red", b"3").unwrap();
    base.say(1, "red", b"4").unwrap();
    assert_eq!(base.heard(1), [(0, b"1".to_vec()), (0, b"3".to_vec())]);
    assert_eq!(base.heard(0), [(1, b"2".to_vec()), (1, b"4".to_vec())]);
}

#[test]
fn who_comes_to_others_has_missed_nothing_of_what_they_said_before() {
    let mut base = Base::new(3);
    base.change(view(2, 0..2));
    (0..2).for_each(|node| base.join(node, "red", Terms::epidemic()));
    for _ in 0..10 {
        base.say(0, "red", b"before").unwrap();
    }
    base.run(Duration::from_secs(3));
    let snapshot = Circles::with_table(&base.all[0].snapshot(), b"");
    base.all[2] = Circles::new(Config::default(), member(2), Dice::new(2));
    base.all[2].restore(base.position, &snapshot);
    base.change(view(3, 0..3));
    base.join(2, "red", Terms::epidemic());
    base.events(2);
    base.say(0, "red", b"after").unwrap();
    base.run(Duration::from_secs(3));
    assert_eq!(base.events(2), [told("red", 0, None, b"after")]);
    assert_eq!(base.all[2].counts(), Counts::default());
}

#[test]
fn one_name_space_has_circles_their_members_and_everyone() {
    let mut base = Base::new(3);
    for terms in [Terms::default(), Terms::epidemic(), Terms::lossy()] {
        let name = std::format!("{:?}", terms.reliability);
        base.join(0, &name, terms);
        base.join(1, &name, terms);
        (0..3).for_each(|node| drop(base.events(node)));
        base.say(0, &name, b"all").unwrap();
        base.say(0, &std::format!("{name}/1"), b"one").unwrap();
        base.say(0, &std::format!("{name}/0"), b"myself").unwrap();
        base.run(Duration::from_secs(1));
        assert_eq!(base.heard(1), [(0, b"all".to_vec()), (0, b"one".to_vec())], "{name}");
        let own = base.events(0).into_iter().map(|event| match event {
            Event::Told { is_to_one, body, .. } => (is_to_one, body),
            other => panic!("{other:?}"),
        });
        assert_eq!(own.collect::<Vec<_>>(), [(false, b"all".to_vec()), (true, b"myself".to_vec())]);
        assert_eq!(base.events(2), []);
        assert_eq!(base.say(0, &std::format!("{name}/2"), b""), Err(CircleError::Nobody(NodeId(2))));
    }
    base.say(2, EVERYONE, b"hello").unwrap();
    base.say(2, "everyone/1", b"you").unwrap();
    assert_eq!(base.heard(0), [(2, b"hello".to_vec())]);
    assert_eq!(base.heard(1), [(2, b"hello".to_vec()), (2, b"you".to_vec())]);
    for bad in ["red/", "red/x", "red/+1", "/", "red/1/2", "red/-1", "red/4294967296"] {
        assert_eq!(base.say(0, bad, b""), Err(CircleError::Address), "{bad}");
    }
    assert_eq!(base.say(0, "", b""), Err(CircleError::NotAMember));
}

#[test]
fn names_and_terms_that_cannot_be_are_refused_where_they_are_made_and_where_they_come() {
    let long = "x".repeat(LONGEST_NAME + 1);
    for bad in ["", "a/b", EVERYONE, &long] {
        assert_eq!(Circles::join(bad, Terms::default()), Err(CircleError::Name), "{bad}");
        assert_eq!(Circles::leave(bad), Err(CircleError::Name), "{bad}");
    }
    assert!(Circles::join(&long[1..], Terms::default()).is_ok());
    let none = Flow { outstanding: 0, ..Flow::default() };
    let never = Flow { per_second: Some(0), ..Flow::default() };
    let bad_terms = [
        Terms { ordering: Ordering::Total, ..Terms::epidemic() },
        Terms { ordering: Ordering::Total, ..Terms::lossy() },
        Terms { ordering: Ordering::Fifo, ..Terms::default() },
        Terms { flow: none, ..Terms::default() },
        Terms { flow: never, ..Terms::lossy() },
    ];
    let mut base = Base::new(2);
    let refused = |base: &mut Base, update: &Update<'_>| {
        let update = encode(Protocol::Circles, update);
        let body = Body::from(&update[..]);
        let (sender, epoch) = (member(1), ViewEpoch(1));
        let delivery = Delivery { position: 9, epoch, sender, number: 1, body };
        let error = base.all[0].delivered(&delivery, &update).expect_err("it may not be");
        (error.from, base.all[0].len())
    };
    for terms in bad_terms {
        assert_eq!(Circles::join("red", terms), Err(CircleError::Terms), "{terms:?}");
        assert_eq!(refused(&mut base, &Update::Join { name: "red", terms }), (NodeId(1), 0));
    }
    let terms = Terms::default();
    for name in ["", "a/b", EVERYONE, &long] {
        assert_eq!(refused(&mut base, &Update::Join { name, terms }), (NodeId(1), 0));
        assert_eq!(refused(&mut base, &Update::Leave { name }), (NodeId(1), 0));
    }
    assert_eq!(base.all[0].counts().refused, 5 + 8);
}

#[test]
fn nothing_is_kept_of_a_circle_that_is_left() {
    let mut base = Base::new(2);
    let lossy = Terms { reliability: Reliability::Lossy, ordering: Ordering::Fifo, ..Terms::default() };
    let circles = [("red", lossy), ("green", Terms::epidemic()), ("blue", Terms::default())];
    for (name, terms) in circles {
        (0..2).for_each(|node| base.join(node, name, terms));
        base.say(0, name, b"hello").unwrap();
    }
    assert!(
        !base.all[0].own.is_empty() && !base.all[0].submitted.is_empty() && !base.all[1].heard.is_empty()
    );
    for (name, _) in circles {
        (0..2).for_each(|node| base.leave(node, name));
    }
    for Circles { own, since, heard, submitted, .. } in &base.all {
        assert!(own.is_empty() && since.is_empty() && heard.is_empty() && submitted.is_empty());
    }
}

#[test]
fn who_wants_other_terms_is_told_which_there_are_and_there_is_a_limit() {
    let mut base = Base::new(2);
    base.join(0, "red", Terms::lossy());
    base.join(1, "red", Terms::epidemic());
    let reason = Refusal::OtherTerms(Terms::lossy());
    assert_eq!(base.events(1), [Event::Refused { circle: "red".into(), reason }]);
    assert_eq!(base.all[1].members("red").collect::<Vec<_>>(), [member(0)]);
    for number in base.all[0].len()..MOST_CIRCLES {
        base.join(0, &std::format!("{number}"), Terms::lossy());
    }
    base.events(1);
    base.join(1, "one too many", Terms::lossy());
    let reason = Refusal::TooMany;
    assert_eq!(base.events(1), [Event::Refused { circle: "one too many".into(), reason }]);
    assert_eq!(base.all[0].len(), MOST_CIRCLES);
}

/// What a lossy circle does with messages that come in this order.
fn lossy(ordering: Ordering, order: &[usize]) -> (Vec<Vec<u8>>, u64) {
    let mut base = Base::new(2);
    let terms = Terms { ordering, ..Terms::lossy() };
    base.join(0, "red", terms);
    base.join(1, "red", terms);
    base.events(1);
    let mut messages = Vec::new();
    for body in [b"1", b"2", b"3"] {
        base.all[0].say("red", body).expect("there is room");
        messages.extend(core::iter::from_fn(|| base.all[0].poll_transmit()));
    }
    assert_eq!(messages.len(), 3, "one to each other");
    for &message in order {
        base.all[1].message(NodeId(0), &messages[message].bytes).unwrap();
    }
    base.settle();
    let overtaken = base.all[1].counts().overtaken;
    (base.heard(1).into_iter().map(|(_, body)| body).collect(), overtaken)
}

#[test]
fn in_a_lossy_circle_what_comes_is_heard_and_in_order_if_that_was_asked_for() {
    let heard = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
    assert_eq!(lossy(Ordering::None, &[1, 0, 0, 2]), (heard("2113"), 0));
    assert_eq!(lossy(Ordering::Fifo, &[1, 0, 1, 2]), (heard("23"), 2));
    assert_eq!(lossy(Ordering::Fifo, &[0, 2]), (heard("13"), 0));
}

/// Its numbers went on from the first again, so it was not heard until they had come as far as before; and then its old words behind new ones.
#[test]
fn who_leaves_a_lossy_circle_and_comes_back_is_heard_at_once_and_in_order() {
    let mut base = Base::new(2);
    let terms = Terms { ordering: Ordering::Fifo, ..Terms::lossy() };
    base.join(0, "red", terms);
    base.join(1, "red", terms);
    let say = |base: &mut Base, body: &[u8]| {
        base.all[0].say("red", body).expect("there is room");
        base.all[0].poll_transmit().expect("to the other").bytes
    };
    let [first, late] = [b"first", b"late."].map(|body| say(&mut base, body));
    base.all[1].message(NodeId(0), &first).unwrap();
    base.leave(0, "red");
    base.join(0, "red", terms);
    let again = say(&mut base, b"again");
    for message in [&again, &late] {
        base.all[1].message(NodeId(0), message).unwrap();
    }
    base.settle();
    assert_eq!(base.heard(1), [(0, b"first".to_vec()), (0, b"again".to_vec())]);
}

#[test]
fn gossip_brings_everything_in_the_order_of_each_sender_though_much_is_lost() {
    let mut base = Base::new(8);
    base.join(0, "early", Terms { ordering: Ordering::None, ..Terms::epidemic() });
    for node in 0..7 {
        base.join(node, "red", Terms::epidemic());
    }
    let mut dice = Dice::new(7);
    base.loss = Box::new(move |_, _, _| dice.happens(300_000));
    for number in 0_u8..40 {
        for node in [0, 1] {
            base.say(node, "red", &[number]).unwrap();
        }
        base.run(Duration::from_millis(5));
    }
    base.run(Duration::from_secs(2));
    for node in 2..7 {
        let heard = base.heard(node);
        for sender in [0, 1] {
            let numbers: Vec<_> =
                heard.iter().filter(|(from, _)| *from == sender).map(|(_, body)| body[0]).collect();
            assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "{node} hears {sender}");
        }
    }
    assert_eq!(base.heard(7), [], "it carries, and is no member");
}

/// Two members say something, of which a third gets nothing by gossip until it has given it up. Then the others answer, those who
/// may.
fn missed(answers: fn(NodeId) -> bool) -> Base {
    let mut base = Base::new(4);
    for node in 0..3 {
        base.join(node, "red", Terms::epidemic());
    }
    base.loss = Box::new(move |from, to, bytes| {
        let is_data = is_gossip(bytes) && bytes[2] == 0;
        let is_answer = !is_gossip(bytes) && !answers(from);
        to == NodeId(2) && (is_data || is_answer)
    });
    base.say(0, "red", b"one").unwrap();
    base.say(0, "red", b"two").unwrap();
    base.say(1, "red", b"three").unwrap();
    base.run(Duration::from_secs(1));
    assert_eq!(base.all[2].counts().given_up, 3, "{:?}", base.all[2].multicast);
    base.loss = nothing_is_lost();
    base.say(0, "red", b"four").unwrap();
    base.run(Duration::from_secs(3));
    base
}

#[test]
fn what_gossip_gave_up_is_got_from_others_and_told_in_order() {
    for answers in [|from| from == NodeId(0) || from == NodeId(1), |from| from == NodeId(3), |_| true] {
        let mut base = missed(answers);
        let mut heard = base.heard(2);
        heard.sort_by_key(|(from, _)| *from);
        let words = |list: &[(u32, &str)]| {
            list.iter().map(|&(from, word)| (from, word.as_bytes().to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(heard, words(&[(0, "one"), (0, "two"), (0, "four"), (1, "three")]));
        assert_eq!(base.all[2].counts().recovered, 3);
    }
}

/// The first answers are garbled, as by a peer that lies. They name it, and what was asked for is still asked for.
#[test]
fn an_answer_that_cannot_be_read_names_who_sent_it_and_leaves_the_message_lacked() {
    let mut base = Base::new(3);
    base.join(0, "red", Terms::epidemic());
    base.join(2, "red", Terms::epidemic());
    base.loss = Box::new(|_, to, _| to == NodeId(2));
    base.say(0, "red", b"one").unwrap();
    let circles = &mut base.all[2];
    assert_eq!(circles.recovery.begin(base.now, member(0), 1, 1), []);
    let answer = |body| encode(Protocol::Circles, &Message::Recovered { sender: member(0), number: 1, body });
    let refused = circles.message(NodeId(1), &answer(b"")).expect_err("it is nothing");
    assert_eq!((refused.from, circles.recovery.first_lacked(member(0))), (NodeId(1), Some(1)));
    base.loss = nothing_is_lost();
    base.run(Duration::from_secs(1));
    assert_eq!(base.heard(2), [(0, b"one".to_vec())]);
}

#[test]
fn who_keeps_no_more_says_so_and_on_its_own_word_the_next_is_asked_at_once() {
    let mut giver = Recovery::default();
    giver.keep(member(0), 5, b"five".to_vec());
    let answer = giver.answer(NodeId(2), member(0), 5, 6);
    let answer: Vec<_> = answer.iter().map(|cast| message::read(NodeId(0), &cast.bytes).unwrap()).collect();
    let five = Message::Recovered { sender: member(0), number: 5, body: b"five" };
    assert_eq!(answer, [five, Message::NoMore { sender: member(0), first: 5, last: 6 }]);

    let (mut taker, mut dice, now) = (Recovery::default(), Dice::new(1), Time::from_millis(1000));
    let mut asked = |taker: &mut Recovery| {
        let (casts, missed) = taker.go_on(now, &[0, 1, 3].map(NodeId), &mut dice);
        assert_eq!(missed, []);
        casts.into_iter().map(|cast| cast.to).collect::<Vec<_>>()
    };
    assert_eq!(taker.begin(now, member(0), 5, 6), []);
    assert_eq!(asked(&mut taker), [To::One(NodeId(0))], "first its sender");
    taker.has_no_more(now, NodeId(3), member(0), 5, 6);
    assert_eq!(asked(&mut taker), [], "it was not asked");
    taker.has_no_more(now, NodeId(0), member(0), 5, 6);
    assert_eq!(asked(&mut taker).len(), 1);
}

#[test]
fn what_is_too_much_to_be_asked_for_is_told_to_be_missed_whenever_it_was_given_up() {
    let mut recovery = Recovery::default();
    let mut begin = |first, last| recovery.begin(Time::ZERO, member(0), first, last);
    let missed = |first, last| Event::Missed { from: member(0), first, last };
    assert_eq!(begin(1, 300), [missed(1, 44)]);
    assert_eq!(begin(301, 302), [missed(45, 46)]);
    assert_eq!(begin(1000, 2000), [missed(47, 302), missed(1000, 1744)]);
    assert_eq!(recovery.first_lacked(member(0)), Some(1745));
}

#[test]
fn what_nobody_gives_is_told_to_be_missed_and_holds_up_nothing_behind_it() {
    let mut base = missed(|_| false);
    let events = base.events(2);
    let missed = |from: u32, first, last| Event::Missed { from: member(from), first, last };
    assert!(events.contains(&missed(0, 1, 2)) && events.contains(&missed(1, 1, 1)), "{events:?}");
    assert_eq!(events.last(), Some(&told("red", 0, None, b"four")));
    assert_eq!(base.all[2].counts().recovered, 0);
}

#[test]
fn what_is_said_by_gossip_waits_until_it_is_known_who_is_in_the_circle() {
    let mut base = Base::new(2);
    base.join(0, "red", Terms::epidemic());
    base.join(1, "red", Terms::epidemic());
    base.heard(1);
    // It has heard of something later than the other: there it may have changed who is in the circle.
    base.all[0].passed(9);
    base.say(0, "red", b"hello").unwrap();
    assert_eq!(base.heard(1), []);
    base.all[1].passed(8);
    base.settle();
    assert_eq!(base.heard(1), []);
    base.all[1].passed(9);
    base.settle();
    assert_eq!(base.heard(1), [(0, b"hello".to_vec())]);
}

#[test]
fn who_comes_to_a_circle_hears_what_is_said_to_it_and_nothing_from_before() {
    let mut base = Base::new(3);
    base.change(view(2, [0, 1]));
    base.join(0, "red", Terms::epidemic());
    base.say(0, "red", b"before anybody else").unwrap();
    base.join(1, "red", Terms::epidemic());
    base.say(0, "red", b"before you").unwrap();
    let position = base.position;
    let snapshot = Circles::with_table(&base.all[0].snapshot(), b"");
    base.all[2] = Circles::new(Config::default(), member(2), Dice::new(2));
    base.all[2].restore(position, &snapshot);
    base.change(view(3, 0..3));
    base.join(2, "red", Terms::epidemic());
    // All of what is said now is lost where it is sent: of the newcomer's words others hear first by digests, and it of theirs.
    base.loss = Box::new(|_, _, bytes| is_gossip(bytes) && bytes[2] == 0);
    for (node, word) in [(0, "a"), (1, "b"), (2, "c")] {
        base.say(node, "red", word.as_bytes()).unwrap();
    }
    base.run(Duration::from_millis(50));
    base.loss = nothing_is_lost();
    base.run(Duration::from_secs(1));
    let words = |node, base: &mut Base| {
        let mut heard: Vec<_> = base.heard(node).into_iter().map(|(_, word)| word).collect();
        heard.sort();
        heard
    };
    assert_eq!(words(2, &mut base), [b"a", b"b"]);
    assert_eq!(words(1, &mut base), [&b"a"[..], b"before you", b"c"]);
    assert_eq!(words(0, &mut base), [b"b", b"c"]);
}

#[test]
fn no_more_is_under_way_than_the_terms_allow() {
    let mut base = Base::new(2);
    let flow = Flow { outstanding: 2, per_second: None };
    for terms in [Terms { flow, ..Terms::default() }, Terms { flow, ..Terms::epidemic() }] {
        let name = std::format!("{:?}", terms.reliability);
        base.join(0, &name, terms);
        base.join(1, &name, terms);
        base.say(0, &name, b"1").unwrap();
        base.say(0, &name, b"2").unwrap();
        assert_eq!(base.say(0, &name, b"3"), Err(CircleError::Full), "{name}");
        let open: Vec<_> = base.all[0].submitted.keys().copied().collect();
        base.say(1, &name, b"mine").expect("each has its own limit");
        for number in open {
            base.all[0].reached(number);
        }
        base.run(Duration::from_secs(2));
        base.say(0, &name, b"3").expect("there is room again");
    }
}

#[test]
fn nobody_says_more_in_a_second_than_the_terms_allow() {
    let mut base = Base::new(2);
    let flow = Flow { outstanding: 1000, per_second: Some(100) };
    base.join(0, "red", Terms { flow, ..Terms::lossy() });
    let mut said = 0;
    for _ in 0..3000 {
        match base.say(0, "red", b"") {
            Ok(()) => said += 1,
            Err(CircleError::TooFast(wait)) => assert!(wait <= Duration::from_millis(10), "{wait:?}"),
            Err(other) => panic!("{other}"),
        }
        base.now = base.now.saturating_add(Duration::from_millis(1));
    }
    // Three seconds, and what may be said at once.
    assert_eq!(said, 300 + 10);
}

#[test]
fn who_is_alone_is_never_told_that_too_much_is_under_way() {
    let mut base = Base::new(2);
    base.join(0, "red", Terms::epidemic());
    base.say(0, "red", b"to two").unwrap();
    base.change(view(2, [0]));
    for number in 0..5000_u32 {
        base.say(0, "red", &number.to_le_bytes()).expect("it is heard at once");
    }
}

/// No detectors, no messages of their own, and a word of a death to those whom it concerns.
#[test]
fn thousands_of_circles_cost_nothing_while_nothing_happens_and_each_is_told_of_its_own_changes() {
    const NODES: u32 = 16;
    const CIRCLES: u32 = 5000;
    let mut base = Base::new(NODES);
    for circle in 0..CIRCLES {
        for node in [circle % NODES, (circle * 7 + 1) % NODES] {
            base.join(node as usize, &std::format!("circle {circle}"), Terms::lossy());
        }
    }
    (0..NODES as usize).for_each(|node| drop(base.events(node)));
    let before = base.messages;
    base.run(Duration::from_secs(60));
    assert_eq!(base.messages, before);
    let dead = NODES - 1;
    let was_in = |circle: &String| base.all[0].members(circle).any(|member| member.node.0 == dead);
    let names: BTreeSet<_> = base.all[0].names().map(std::string::String::from).collect();
    let concerned: BTreeSet<_> = names.iter().filter(|name| was_in(name)).cloned().collect();
    let left: Vec<BTreeSet<_>> = (0..dead)
        .map(|node| {
            let is_mine = |name: &&String| base.all[0].members(name).any(|member| member.node.0 == node);
            concerned.iter().filter(is_mine).cloned().collect()
        })
        .collect();
    base.change(view(2, 0..dead));
    for node in 0..dead {
        let events = base.events(node as usize);
        let told: BTreeSet<_> = events
            .iter()
            .map(|event| match event {
                Event::Changed { circle, members, .. } if !members.contains(&member(dead)) => circle.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((events.len(), &told), (told.len(), &left[node as usize]), "each once");
    }
    assert!(left.iter().map(BTreeSet::len).sum::<usize>() > 500);
    assert_eq!(base.messages, before);
}

#[test]
fn what_a_peer_may_not_send_is_refused_by_name() {
    let mut base = Base::new(3);
    base.join(0, "red", Terms::default());
    base.join(1, "red", Terms::default());
    let circle = base.all[0].table.find("red").expect("it is there");
    let mut rule = |from: u32, message: &Message<'_>| {
        let refused = base.all[0].message(NodeId(from), &encode(Protocol::Circles, message));
        refused.err().map(|error| (error.from.0, error.rule))
    };
    let say = Message::Say { circle, number: 1, is_to_one: false, body: b"" };
    assert_eq!(rule(1, &say), Some((1, "a message that is not on its circle's terms")));
    assert_eq!((rule(7, &say), rule(0, &say)), (None, None), "either may not know of a view yet");
    let recover = Message::Recover { sender: member(1), first: 2, last: 1 };
    assert_eq!(rule(1, &recover), Some((1, "a request that asks for nothing")));
    let unasked = Message::Recovered { sender: member(1), number: 1, body: b"x" };
    assert_eq!(rule(1, &unasked), None);
    let nothing = Message::NoMore { sender: member(1), first: 9, last: 1 };
    assert_eq!(rule(1, &nothing), None);
    assert_eq!(base.all[0].counts().strangers, 2);
    assert_eq!(base.heard(0), [], "nobody asked for it");
}

#[test]
fn what_is_no_snapshot_is_known_for_one() {
    assert!(Circles::is_sound(&[]), "no circles, and no state");
    let table = Base::new(1).all[0].snapshot();
    let good = Circles::with_table(&table, b"state");
    assert!(Circles::is_sound(&good));
    assert!(!Circles::is_sound(&good[1..]) && !Circles::is_sound(&[&good[..], b"x"].concat()));
    assert!(!Circles::is_sound(&Circles::with_table(&[&table[..], b"x"].concat(), b"state")));
    let circle = |name: &str, nodes: &[u32]| table::Circle {
        name: name.into(),
        terms: Terms::default(),
        members: nodes.iter().map(|&node| member(node)).collect(),
    };
    let never = Terms { flow: Flow { outstanding: 0, per_second: None }, ..Terms::lossy() };
    let is_sound = |circles: &[(u64, table::Circle)]| {
        let circles: BTreeMap<_, _> = circles.iter().cloned().collect();
        let table = postcard::to_allocvec(&(circles, false)).expect("plain data");
        Circles::is_sound(&Circles::with_table(&table, b""))
    };
    assert!(is_sound(&[(4, circle("red", &[1]))]));
    assert!(!is_sound(&[(0, circle("red", &[1]))]), "that is everyone's number");
    assert!(!is_sound(&[(4, circle(EVERYONE, &[1]))]), "and that its name");
    assert!(!is_sound(&[(4, circle("red", &[]))]), "an empty circle");
    assert!(!is_sound(&[(4, table::Circle { terms: never, ..circle("red", &[1]) })]));
    assert!(!is_sound(&[(4, circle("red", &[1])), (5, circle("red", &[1]))]), "one name for two");
}

proptest! {
    #[test]
    fn whatever_comes_changes_nothing_or_is_a_message(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        is_enveloped in any::<bool>(),
    ) {
        let mut base = Base::new(3);
        base.join(0, "red", Terms::epidemic());
        base.events(0);
        let envelope = [crate::wire::VERSION, Protocol::Circles as u8];
        let bytes = if is_enveloped { [&envelope[..], &bytes].concat() } else { bytes };
        let before = base.all[0].snapshot();
        if let Err(error) = base.all[0].message(NodeId(1), &bytes) {
            prop_assert_eq!(error.from, NodeId(1));
            prop_assert_eq!(base.all[0].poll_event(), None);
        }
        prop_assert_eq!(&base.all[0].snapshot(), &before);
        let body = Body::from(&bytes[..]);
        let (sender, epoch) = (member(1), ViewEpoch(1));
        let delivery = Delivery { position: 9, epoch, sender, number: 1, body };
        if let Err(error) = base.all[0].delivered(&delivery, &bytes) {
            prop_assert_eq!(error.from, NodeId(1));
            prop_assert_eq!(base.all[0].snapshot(), before);
        }
        prop_assert!(Circles::is_sound(&Circles::with_table(&base.all[0].snapshot(), &bytes)));
        let restored = Circles::new(Config::default(), member(2), Dice::new(1)).restore(1, &bytes);
        prop_assert!(restored.len() <= bytes.len());
    }
}
